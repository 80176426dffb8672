//! Tool list of a fake server, each tool as the JSON bytes that are served.
//!
//! By default three tools with behaviour (`echo`, `add`, `fail`), then numbered ones; or the list of a file, byte for
//! byte except for line breaks. Faulty tools and padding are added to either.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::ServerFlags;
use super::tools;

/// JSON of one tool. Bytes, since one of the faults is invalid UTF-8.
pub(super) type ToolJson = Vec<u8>;

/// Builds the list for the flags. Reads its file every time, so that a test may change it.
pub(super) fn read_tool_list(flags: &ServerFlags) -> io::Result<Vec<ToolJson>> {
    let mut list = match flags.change_file.as_ref().or(flags.tools_file.as_ref()) {
        Some(path) => read_tools_file(path)?,
        None => (0..flags.tools.unwrap_or(3)).map(numbered_tool).collect(),
    };
    list.extend(flags.extra_tools.iter().map(|name| tool_json(name)));
    // Faulty tools come in the middle, so that a test notices if the list ends at one.
    let middle = list.len() / 2;
    list.splice(middle..middle, faulty_tools(flags));
    if let Some(size) = flags.list_bytes {
        // One byte for each comma; the envelope of the response is not counted.
        let current_size: usize = list.iter().map(|tool| tool.len() + 1).sum();
        list.push(big_tool(size.saturating_sub(current_size)));
    }
    Ok(list)
}

/// Returns the names of all tools that parse.
pub(super) fn tool_names(list: &[ToolJson]) -> BTreeSet<String> {
    #[derive(Deserialize)]
    struct NameField {
        name: String,
    }
    list.iter().filter_map(|tool| serde_json::from_slice::<NameField>(tool).ok()).map(|tool| tool.name).collect()
}

/// Returns the page for a cursor, and the cursor of the next page. Cursors have the form `page-2`; an unknown one
/// begins again.
pub(super) fn select_page<'a>(
    flags: &ServerFlags,
    list: &'a [ToolJson],
    cursor: Option<&str>,
) -> (&'a [ToolJson], Option<String>) {
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

/// Reads an array of tools, or a recording `{server, initialize, tools}`.
fn read_tools_file(path: &Path) -> io::Result<Vec<ToolJson>> {
    #[derive(Deserialize)]
    struct RecordedFile<'a> {
        #[serde(borrow)]
        tools: Vec<&'a RawValue>,
    }
    let text = fs::read_to_string(path)?;
    let raw = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<&RawValue>>(&text)?
    } else {
        serde_json::from_str::<RecordedFile<'_>>(&text)?.tools
    };
    Ok(raw.into_iter().map(|tool| to_one_line(tool.get())).collect())
}

/// Replaces line breaks, which in valid JSON occur only between tokens: a message on stdio is one line.
fn to_one_line(text: &str) -> ToolJson {
    text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

/// The first three tools have behaviour of their own; the others are numbered.
fn numbered_tool(index: usize) -> ToolJson {
    match index {
        0 => tool_json("echo"),
        1 => tool_json("add"),
        2 => tool_json("fail"),
        index => tool_json(&format!("tool_{:04}", index - 2)),
    }
}

/// Definition of a tool by name.
fn tool_json(name: &str) -> ToolJson {
    tools::tool_definition(name).to_string().into_bytes()
}

/// Faulty tools that the flags request.
fn faulty_tools(flags: &ServerFlags) -> Vec<ToolJson> {
    let mut faults = Vec::new();
    if flags.no_schema {
        faults.push(json!({"name": "no_schema", "description": "Has no schema"}).to_string().into_bytes());
    }
    if let Some(levels) = flags.deep_schema_levels {
        faults.push(deep_tool(levels));
    }
    if flags.invalid_utf8 {
        let mut bytes = br#"{"name":"invalid_utf8","description":"Not text: "#.to_vec();
        bytes.extend([0xff, 0xfe, 0xc0]);
        bytes.extend(br#"","inputSchema":{"type":"object"}}"#);
        faults.push(bytes);
    }
    faults
}

/// Tool with a deeply nested schema. Built as text: serialising such a value would overflow the stack.
fn deep_tool(levels: usize) -> ToolJson {
    let open = r#"{"type":"object","properties":{"down":"#.repeat(levels);
    let close = "}}".repeat(levels);
    format!(r#"{{"name":"deep","description":"Has a deep schema","inputSchema":{open}{{}}{close}}}"#).into_bytes()
}

/// Tool of a given size in bytes, padded in its description.
fn big_tool(size: usize) -> ToolJson {
    let frame = r#"{"name":"big","description":"","inputSchema":{"type":"object"}}"#;
    let padding = "x".repeat(size.saturating_sub(frame.len()));
    format!(r#"{{"name":"big","description":"{padding}","inputSchema":{{"type":"object"}}}}"#).into_bytes()
}
