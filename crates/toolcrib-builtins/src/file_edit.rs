//! `file_edit`: replaces an exact text in a file.
//!
//! The exact text must be given, and must be unique, so that a model that remembers the file wrongly changes nothing.
//! The file is replaced as a whole; a reader sees the old or the new content.

use std::ffi::OsStr;
use std::io::Read;
use std::sync::Arc;

use cap_std::fs::Dir;
use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Roots, blocking_handler, io_error, open_file, replace_file};
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, invalid_input, sanitize_for_message};

/// Maximum size of the file, before and after. It is held in memory twice.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    /// Exact text, white space included.
    old: String,
    /// May be empty, which deletes `old`.
    new: String,
    /// Permits several occurrences of `old`, and replaces all.
    #[serde(default)]
    replace_all: bool,
}

/// Builds the tool for files below `roots`.
pub(super) fn tool(roots: Arc<Roots>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "file_edit",
        "Replaces a text in a file of at most 1 MiB. `old` must match exactly, spaces and line breaks included, and \
         stand in the file once; give some of the surrounding lines to make it so, or set `replace_all`. Only in the \
         configured directories; relative paths start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "old": { "type": "string", "minLength": 1, "maxLength": MAX_FILE_BYTES },
                "new": { "type": "string", "maxLength": MAX_FILE_BYTES },
                "replace_all": { "type": "boolean", "description": "replace every occurrence; default false" },
            },
            "required": ["path", "old", "new"],
            "additionalProperties": false,
        }),
    )?
    .title("Edit a file")
    .tags(["files"])
    .mutating();
    Ok((definition, blocking_handler(roots, edit_file)))
}

/// Replaces the text if it occurs once, or everywhere with `replace_all`.
fn edit_file(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    let Arguments { path, old, new, replace_all } = arguments;
    let target = roots.resolve_existing(path)?;
    // Read and replace in the same open directory: it may be moved in between.
    let (directory, name) = target.open_parent().map_err(|error| io_error("open", path, &error))?;
    let text = read_text(&directory, name, path)?;
    // An empty `old` matches everywhere, so it counts as not found.
    let count = if old.is_empty() { 0 } else { text.matches(old.as_str()).count() };
    match count {
        0 => {
            return Err(invalid_input(format!(
                "`old` does not occur in `{}`; read the file again",
                sanitize_for_message(path)
            )));
        }
        1 => {}
        _ if *replace_all => {}
        _ => {
            let message = format!(
                "`old` occurs {count} times in `{}`; give more of the surrounding lines, or set `replace_all`",
                sanitize_for_message(path)
            );
            return Err(invalid_input(message));
        }
    }
    // Compute the size before replacing: `new` may be long and occur often.
    let size = text.len() - count * old.len() + count.saturating_mul(new.len());
    if size as u64 > MAX_FILE_BYTES {
        return Err(invalid_input(format!("`{}` would become larger than 1 MiB", sanitize_for_message(path))));
    }
    let new_text = text.replace(old.as_str(), new);
    replace_file(&directory, name, new_text.as_bytes()).map_err(|error| io_error("write", path, &error))?;
    let occurrences = if count == 1 { "occurrence" } else { "occurrences" };
    Ok(BuiltinOutput::text(format!("replaced {count} {occurrences} in `{}`", roots.display_path(target.path()))))
}

/// Reads the whole file as UTF-8.
fn read_text(directory: &Dir, name: &OsStr, path: &str) -> Result<String> {
    let file = open_file(directory, name, path)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| io_error("read", path, &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(invalid_input(format!("`{}` is larger than 1 MiB", sanitize_for_message(path))));
    }
    String::from_utf8(bytes).map_err(|_| invalid_input(format!("`{}` is not UTF-8 text", sanitize_for_message(path))))
}
