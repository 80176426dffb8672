//! `file_write`: writes a whole file, new or replacing another.
//!
//! Creating and replacing are separate operations: a new file is created exclusively, so that a file which appears
//! meanwhile is not overwritten; an existing one is replaced atomically.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Roots, blocking_handler, create_file, io_error, replace_file};
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, invalid_input, sanitize_for_message};

/// Maximum size of the content.
const MAX_CONTENT_BYTES: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    /// The whole new content, in UTF-8.
    content: String,
    /// Permits to replace an existing file.
    #[serde(default)]
    overwrite: bool,
}

/// Builds the tool for files below `roots`.
pub(super) fn tool(roots: Arc<Roots>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "file_write",
        "Writes a text file of at most 1 MiB. The directory must exist; an existing file is replaced only with \
         `overwrite`. To change a part of a file use `file_edit`. Only in the configured directories; relative paths \
         start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "content": { "type": "string", "maxLength": MAX_CONTENT_BYTES },
                "overwrite": { "type": "boolean", "description": "replace an existing file; default false" },
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        }),
    )?
    .title("Write a file")
    .tags(["files"])
    .mutating();
    Ok((definition, blocking_handler(roots, write_file)))
}

/// Creates the file, or replaces it with `overwrite`.
fn write_file(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    let path = &arguments.path;
    let content = arguments.content.as_bytes();
    if content.len() > MAX_CONTENT_BYTES {
        return Err(invalid_input("`content` is larger than 1 MiB"));
    }
    let write_error = |error| io_error("write", path, &error);
    // The target may be new, so only its directory is opened; the file is created or replaced relative to it.
    let target = roots.resolve_target(path)?;
    let (directory, name) = target.open_parent().map_err(write_error)?;
    // Links are not followed: a link in place of the file is not a regular file.
    let existing = directory.symlink_metadata(name).ok();
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        return Err(invalid_input(format!("`{}` exists and is not a regular file", sanitize_for_message(path))));
    }
    if existing.is_some() && !arguments.overwrite {
        return Err(invalid_input(format!(
            "`{}` exists; set `overwrite`, or use `file_edit`",
            sanitize_for_message(path)
        )));
    }
    let action = if existing.is_some() {
        replace_file(&directory, name, content).map_err(write_error)?;
        "replaced"
    } else {
        create_file(&directory, name, content).map_err(write_error)?;
        "created"
    };
    let size = content.len();
    let unit = if size == 1 { "byte" } else { "bytes" };
    Ok(BuiltinOutput::text(format!("{action} `{}` ({size} {unit})", roots.display_path(target.path()))))
}
