//! `file_list`: lists a directory.
//!
//! Output is one entry a line: `src/`, `Cargo.toml<TAB>1234`, `current<TAB>link`. Links are not followed.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{DirectoryWalk, Roots, WalkEntry, blocking_handler};
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, invalid_input, sanitize_for_message};

/// Maximum number of entries in the output.
const MAX_ENTRIES: usize = 1000;
/// Upper bound of `depth`.
const MAX_LIST_DEPTH: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Directory; the first root if it is not given.
    path: Option<String>,
    /// Levels below the directory; 1 if it is not given.
    depth: Option<usize>,
}

/// Builds the tool for files below `roots`.
pub(super) fn tool(roots: Arc<Roots>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "file_list",
        "Lists a directory: one path a line, `/` after directories, the size in bytes after files. Gives at most 1000 \
         entries; does not look into .git and node_modules. To look for a name use `file_find`. Only in the \
         configured directories; relative paths start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "default: the first root" },
                "depth": { "type": "integer", "minimum": 1, "maximum": MAX_LIST_DEPTH, "description": "levels; default 1" },
            },
            "additionalProperties": false,
        }),
    )?
    .title("List a directory")
    .tags(["files"])
    .read_only();
    Ok((definition, blocking_handler(roots, list_directory)))
}

/// Lists the entries down to the given depth.
fn list_directory(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.resolve_existing(path)?;
    if !start.is_dir() {
        return Err(invalid_input(format!("`{}` is a file; use `file_read`", sanitize_for_message(path))));
    }
    // `depth` is clamped although the schema bounds it: embedders may call the handler directly.
    let mut walk = DirectoryWalk::new(&start, path, arguments.depth.unwrap_or(1).clamp(1, MAX_LIST_DEPTH))?;
    let mut lines = Vec::new();
    while lines.len() < MAX_ENTRIES
        && let Some(entry) = walk.next()
    {
        lines.push(format_entry(&walk, &entry));
    }
    // One more step of the walk shows whether something was left out.
    let has_more = walk.next().is_some() || walk.is_truncated();
    let shown_lines = if lines.is_empty() { "(empty)".into() } else { lines.join("\n") };
    let output = BuiltinOutput::text(format!("{}:\n{shown_lines}", roots.display_path(start.path())));
    Ok(if has_more {
        output.with_text(format!("(cut after {} entries; list a directory further down)", lines.len()))
    } else {
        output
    })
}

/// One line of the output: path with size or type.
fn format_entry(walk: &DirectoryWalk, entry: &WalkEntry) -> String {
    match entry.file_type {
        file_type if file_type.is_dir() => format!("{}/", entry.relative),
        file_type if file_type.is_file() => format!("{}\t{}", entry.relative, walk.size(entry)),
        file_type if file_type.is_symlink() => format!("{}\tlink", entry.relative),
        _ => format!("{}\tspecial", entry.relative),
    }
}
