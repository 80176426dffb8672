//! `file_edit`: an exact text in a file, replaced by another.

use std::ffi::OsStr;
use std::io::Read;
use std::sync::Arc;

use cap_std::fs::Dir;
use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Roots, cannot, file_handler, open_file, replace};
use super::{Answer, Definition, Handler, invalid, shown};

const LARGEST: u64 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn tool(roots: Arc<Roots>) -> Result<(Definition, Handler)> {
    let definition = Definition::new(
        "file_edit",
        "Replaces a text in a file of at most 1 MiB. `old` must match exactly, spaces and line breaks included, and \
         stand in the file once; give some of the surrounding lines to make it so, or set `replace_all`. Only in the \
         configured directories; relative paths start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "old": { "type": "string", "minLength": 1, "maxLength": LARGEST },
                "new": { "type": "string", "maxLength": LARGEST },
                "replace_all": { "type": "boolean", "description": "replace every occurrence; default false" },
            },
            "required": ["path", "old", "new"],
            "additionalProperties": false,
        }),
    )?
    .title("Edit a file")
    .tags(["files"])
    .changes_things();
    Ok((definition, file_handler(roots, edit)))
}

fn edit(roots: &Roots, arguments: &Arguments) -> Result<Answer> {
    let Arguments { path, old, new, replace_all } = arguments;
    let target = roots.existing(path)?;
    // The file is read and replaced in the same directory, wherever that is moved in between.
    let (directory, name) = target.open_parent().map_err(|error| cannot("open", path, &error))?;
    let text = text(&directory, name, path)?;
    let count = if old.is_empty() { 0 } else { text.matches(old.as_str()).count() };
    match count {
        0 => return Err(invalid(format!("`old` does not stand in `{}`; read the file again", shown(path)))),
        1 => {}
        _ if *replace_all => {}
        _ => {
            let message = format!(
                "`old` stands {count} times in `{}`; give more of its lines, or set `replace_all`",
                shown(path)
            );
            return Err(invalid(message));
        }
    }
    let size = text.len() - count * old.len() + count.saturating_mul(new.len());
    if size as u64 > LARGEST {
        return Err(invalid(format!("`{}` would become larger than 1 MiB", shown(path))));
    }
    let new_text = text.replace(old.as_str(), new);
    replace(&directory, name, new_text.as_bytes()).map_err(|error| cannot("write", path, &error))?;
    Ok(Answer::text(format!("replaced {count} in `{}`", roots.shown(target.path()))))
}

fn text(directory: &Dir, name: &OsStr, path: &str) -> Result<String> {
    let file = open_file(directory, name, path)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| cannot("read", path, &error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(invalid(format!("`{}` is larger than 1 MiB", shown(path))));
    }
    String::from_utf8(bytes).map_err(|_| invalid(format!("`{}` is not UTF-8 text", shown(path))))
}
