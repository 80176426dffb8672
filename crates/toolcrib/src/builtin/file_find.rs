//! `file_find`: files and directories by a glob on their path.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{Glob, Roots, Walk, file_handler};
use super::{Answer, Definition, Handler};

const MOST: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
}

pub(super) fn tool(roots: Arc<Roots>) -> Result<(Definition, Handler)> {
    let definition = Definition::new(
        "file_find",
        "Finds files and directories by name. The pattern is a glob: `*.rs` matches names at any depth, \
         `src/**/*.{ts,tsx}` whole paths. Gives at most 500 paths in order; skips .git and node_modules and follows \
         no links. To look into files use `file_search`. Only in the configured directories.",
        json!({
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "maxLength": 500 },
                "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "where to start; default: the first root" },
            },
            "required": ["pattern"],
            "additionalProperties": false,
        }),
    )?
    .title("Find files by name")
    .tags(["files"])
    .reads_only();
    Ok((definition, file_handler(roots, find)))
}

fn find(roots: &Roots, arguments: &Arguments) -> Result<Answer> {
    let glob = Glob::new(&arguments.pattern)?;
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.existing(path)?;
    let mut walk = Walk::new(&start, path, usize::MAX)?;
    let mut lines = Vec::new();
    while lines.len() <= MOST
        && let Some(entry) = walk.next()
    {
        if glob.matches(&entry.relative) {
            let slash = if entry.kind.is_dir() { "/" } else { "" };
            lines.push(format!("{}{slash}", roots.shown(&entry.path_from(&start))));
        }
    }
    let more = lines.len() > MOST;
    lines.truncate(MOST);
    let answer = Answer::text(if lines.is_empty() { "(nothing found)".into() } else { lines.join("\n") });
    Ok(match (more, walk.cut_short()) {
        (true, _) => answer.and(format!("(cut after {MOST} paths; use a narrower pattern)")),
        (false, true) => answer.and("(not everything was looked at; start further down with `path`)"),
        (false, false) => answer,
    })
}
