//! `file_find`: finds files and directories by a glob on their path.
//!
//! The pattern is matched against paths relative to the start; results are relative to the first root or absolute, so
//! that they can be passed to the other file tools.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::files::{DirectoryWalk, Glob, Roots, blocking_handler};
use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput};

/// Maximum number of paths in the output.
const MAX_PATHS: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Glob; see `files::glob`.
    pattern: String,
    /// Directory to start in; the first root if it is not given.
    path: Option<String>,
}

/// Builds the tool for files below `roots`.
pub(super) fn tool(roots: Arc<Roots>) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
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
    .read_only();
    Ok((definition, blocking_handler(roots, find_files)))
}

/// Walks the directory and collects matching paths. One more than the limit shows that there are more.
fn find_files(roots: &Roots, arguments: &Arguments) -> Result<BuiltinOutput> {
    let glob = Glob::new(&arguments.pattern)?;
    let path = arguments.path.as_deref().unwrap_or(".");
    let start = roots.resolve_existing(path)?;
    // The walk is bounded by itself, so the depth need not be.
    let mut walk = DirectoryWalk::new(&start, path, usize::MAX)?;
    let mut lines = Vec::new();
    // Collect until the limit is exceeded by one.
    while lines.len() <= MAX_PATHS
        && let Some(entry) = walk.next()
    {
        if glob.matches(&entry.relative) {
            let slash = if entry.file_type.is_dir() { "/" } else { "" };
            lines.push(format!("{}{slash}", roots.display_path(&entry.path_from(&start))));
        }
    }
    let has_more = lines.len() > MAX_PATHS;
    lines.truncate(MAX_PATHS);
    let output = BuiltinOutput::text(if lines.is_empty() { "(nothing found)".into() } else { lines.join("\n") });
    Ok(match (has_more, walk.is_truncated()) {
        (true, _) => output.with_text(format!("(cut after {MAX_PATHS} paths; use a narrower pattern)")),
        (false, true) => output.with_text("(not everything was searched; narrow the search with `path`)"),
        (false, false) => output,
    })
}
