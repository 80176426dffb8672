//! The list of tools a fake server offers, each as the JSON text it is served as.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Flags;
use super::tools;

/// As bytes, for not every fault is text.
pub(super) type Listed = Vec<u8>;

/// The list as the flags want it, read anew so that a file may change.
pub(super) fn read(flags: &Flags) -> io::Result<Vec<Listed>> {
    let mut list = match flags.change_file.as_ref().or(flags.tools_file.as_ref()) {
        Some(path) => from_file(path)?,
        None => (0..flags.tools.unwrap_or(3)).map(numbered).collect(),
    };
    list.extend(flags.with.iter().map(|name| tool(name)));
    // Faults stand amid good tools, so that a list cut short is noticed.
    let middle = list.len() / 2;
    list.splice(middle..middle, faults(flags));
    if let Some(size) = flags.big {
        let so_far: usize = list.iter().map(|tool| tool.len() + 1).sum();
        list.push(big(size.saturating_sub(so_far)));
    }
    Ok(list)
}

/// The names in a list, as far as they can be read.
pub(super) fn names(list: &[Listed]) -> BTreeSet<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    list.iter().filter_map(|tool| serde_json::from_slice::<Named>(tool).ok()).map(|tool| tool.name).collect()
}

/// A page of the list, and the cursor of the next one.
pub(super) fn page<'a>(flags: &Flags, list: &'a [Listed], cursor: Option<&str>) -> (&'a [Listed], Option<String>) {
    if flags.same_cursor {
        return (list, Some("same".to_owned()));
    }
    let Some(pages) = flags.pages else { return (list, None) };
    let size = list.len().div_ceil(pages.max(1)).max(1);
    let number: usize = cursor.and_then(|cursor| cursor.strip_prefix("page-")?.parse().ok()).unwrap_or(1);
    let start = (size * number.saturating_sub(1)).min(list.len());
    let end = (start + size).min(list.len());
    let next = (number < pages).then(|| format!("page-{}", number + 1));
    (&list[start..end], next)
}

/// An array of tools, or a recording `{server, initialize, tools}`.
fn from_file(path: &Path) -> io::Result<Vec<Listed>> {
    #[derive(Deserialize)]
    struct Recording<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
    }
    let text = fs::read_to_string(path)?;
    let raw = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<&RawValue>>(&text)?
    } else {
        serde_json::from_str::<Recording<'_>>(&text)?.tools
    };
    Ok(raw.into_iter().map(|tool| one_line(tool.get())).collect())
}

/// A raw line break can only stand between tokens, and a message is one line.
fn one_line(text: &str) -> Listed {
    text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

fn numbered(index: usize) -> Listed {
    match index {
        0 => tool("echo"),
        1 => tool("add"),
        2 => tool("fail"),
        more => tool(&format!("tool_{:04}", more - 2)),
    }
}

fn tool(name: &str) -> Listed {
    tools::definition(name).to_string().into_bytes()
}

fn faults(flags: &Flags) -> Vec<Listed> {
    let mut faults = Vec::new();
    if flags.no_schema {
        faults.push(json!({"name": "no_schema", "description": "Has no schema"}).to_string().into_bytes());
    }
    if let Some(levels) = flags.deep {
        faults.push(deep(levels));
    }
    if flags.invalid_utf8 {
        let mut bytes = br#"{"name":"invalid_utf8","description":"Not text: "#.to_vec();
        bytes.extend([0xff, 0xfe, 0xc0]);
        bytes.extend(br#"","inputSchema":{"type":"object"}}"#);
        faults.push(bytes);
    }
    faults
}

/// Written as text: as a value it would overflow the stack on the way out.
fn deep(levels: usize) -> Listed {
    let open = r#"{"type":"object","properties":{"down":"#.repeat(levels);
    let close = "}}".repeat(levels);
    format!(r#"{{"name":"deep","description":"Has a deep schema","inputSchema":{open}{{}}{close}}}"#).into_bytes()
}

fn big(size: usize) -> Listed {
    let frame = r#"{"name":"big","description":"","inputSchema":{"type":"object"}}"#;
    let padding = "x".repeat(size.saturating_sub(frame.len()));
    format!(r#"{{"name":"big","description":"{padding}","inputSchema":{{"type":"object"}}}}"#).into_bytes()
}
