//! What a file would run and whom it would contact, as one canonical text: trust is given to this, and asked for again
//! when it changes.

use serde_json::json;

use super::Config;
use crate::source::Source;

/// One line of JSON for each source, in the order of ids: the command with its environment, the address with its
/// credentials, the directories that built-in tools may touch. Disabled ones count too: enabling one later must not
/// slip a new command in.
pub fn command_hash_input(config: &Config) -> String {
    let mut sources: Vec<&Source> = config.valid_sources().collect();
    sources.sort_by(|one, other| one.id.cmp(&other.id));
    let lines = sources.into_iter().map(|source| json!({ "id": source.id, "kind": source.kind }));
    // That others may start programs is as much as a command of its own.
    let allowed = config.allow_commands.then(|| json!({ "allow_commands": true }));
    lines.chain(allowed).map(|line| line.to_string() + "\n").collect()
}
