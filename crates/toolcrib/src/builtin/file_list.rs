//! `file_list`: what is in a directory.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Entry, Roots, Walk, file_handler};
use super::{Answer, Definition, Handler, invalid, shown};

const MOST: usize = 1000;
const DEEPEST: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: Option<String>,
    depth: Option<usize>,
}

pub(super) fn tool(roots: Arc<Roots>) -> Result<(Definition, Handler)> {
    let definition = Definition::new(
        "file_list",
        "Lists a directory: one path a line, `/` after directories, the size in bytes after files. Gives at most 1000 \
         entries; does not look into .git and node_modules. To look for a name use `file_find`. Only in the \
         configured directories; relative paths start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "default: the first root" },
                "depth": { "type": "integer", "minimum": 1, "maximum": DEEPEST, "description": "levels; default 1" },
            },
            "additionalProperties": false,
        }),
    )?
    .title("List a directory")
    .tags(["files"])
    .reads_only();
    Ok((definition, file_handler(roots, list)))
}

fn list(roots: &Roots, arguments: &Arguments) -> Result<Answer> {
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.existing(path)?;
    if !start.is_dir() {
        return Err(invalid(format!("`{}` is a file; use `file_read`", shown(path))));
    }
    let mut walk = Walk::new(&start, path, arguments.depth.unwrap_or(1).clamp(1, DEEPEST))?;
    let mut lines = Vec::new();
    while lines.len() < MOST
        && let Some(entry) = walk.next()
    {
        lines.push(line(&walk, &entry));
    }
    let more = walk.next().is_some() || walk.cut_short();
    let shown_lines = if lines.is_empty() { "(empty)".into() } else { lines.join("\n") };
    let answer = Answer::text(format!("{}:\n{shown_lines}", roots.shown(start.path())));
    Ok(if more {
        answer.and(format!("(cut after {} entries; list a directory further down)", lines.len()))
    } else {
        answer
    })
}

fn line(walk: &Walk, entry: &Entry) -> String {
    match entry.kind {
        kind if kind.is_dir() => format!("{}/", entry.relative),
        kind if kind.is_file() => format!("{}\t{}", entry.relative, walk.size(entry)),
        kind if kind.is_symlink() => format!("{}\tlink", entry.relative),
        _ => format!("{}\tspecial", entry.relative),
    }
}
