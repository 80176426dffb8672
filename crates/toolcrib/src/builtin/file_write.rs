//! `file_write`: a whole file, new or in the place of another.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Roots, cannot, create, file_handler, replace};
use super::{Answer, Definition, Handler, invalid, shown};

const LARGEST: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
    #[serde(default)]
    overwrite: bool,
}

pub(super) fn tool(roots: Arc<Roots>) -> Result<(Definition, Handler)> {
    let definition = Definition::new(
        "file_write",
        "Writes a text file of at most 1 MiB. The directory must exist; an existing file is replaced only with \
         `overwrite`. To change a part of a file use `file_edit`. Only in the configured directories; relative paths \
         start in the first.",
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096 },
                "content": { "type": "string", "maxLength": LARGEST },
                "overwrite": { "type": "boolean", "description": "replace an existing file; default false" },
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        }),
    )?
    .title("Write a file")
    .tags(["files"])
    .changes_things();
    Ok((definition, file_handler(roots, write)))
}

fn write(roots: &Roots, arguments: &Arguments) -> Result<Answer> {
    let (path, content) = (&arguments.path, arguments.content.as_bytes());
    if content.len() > LARGEST {
        return Err(invalid("`content` is larger than 1 MiB"));
    }
    let refuse = |error| cannot("write", path, &error);
    let target = roots.target(path)?;
    let (directory, name) = target.open_parent().map_err(refuse)?;
    let existing = directory.symlink_metadata(name).ok();
    if existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
        return Err(invalid(format!("`{}` exists and is not a regular file", shown(path))));
    }
    if existing.is_some() && !arguments.overwrite {
        return Err(invalid(format!("`{}` exists; set `overwrite`, or use `file_edit`", shown(path))));
    }
    let done = if existing.is_some() {
        replace(&directory, name, content).map_err(refuse)?;
        "replaced"
    } else {
        create(&directory, name, content).map_err(refuse)?;
        "created"
    };
    Ok(Answer::text(format!("{done} `{}` ({} bytes)", roots.shown(target.path()), content.len())))
}
