//! What a file would run, as one canonical text: trust is given to this, and asked for again when it changes.

use serde_json::json;

use super::Config;
use crate::source::{Kind, Source};

/// One line of JSON for each source that starts a program, in the order of ids. Disabled ones count too: enabling one
/// later must not slip a new command in.
pub fn command_hash_input(config: &Config) -> String {
    let mut sources: Vec<&Source> = config.valid_sources().collect();
    sources.sort_by(|one, other| one.id.cmp(&other.id));
    let lines = sources.into_iter().filter_map(|source| match &source.kind {
        Kind::Stdio(stdio) => Some(json!({
            "id": source.id,
            "command": stdio.command,
            "args": stdio.args,
            "env": stdio.env,
            "cwd": stdio.cwd,
            "inherit_env": stdio.inherit_env,
        })),
        Kind::Http(_) | Kind::Sse(_) | Kind::Builtin(_) => None,
    });
    lines.map(|line| line.to_string() + "\n").collect()
}
