//! `toolcrib remove`: removes a source that was declared at run time.
//!
//! A source of a configuration file is removed there; here the command fails with `CONFLICT` and names the file. The
//! history of a removed source stays.

use clap::Args;
use serde_json::json;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;
use crate::{output, plural};

/// Remove a source that `add` or `import` declared, with its tools
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib remove time")]
pub(crate) struct Arguments {
    /// The source, as `toolcrib sources` lists it
    source: String,
}

/// Removes the source and prints how many tools went with it.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open_offline(common).await?;
    let result = remove(&session, &arguments.source).await;
    session.close().await;
    result?;
    Ok(CommandOutcome::Success)
}

/// Removes one source by name.
async fn remove(session: &CliSession, name: &str) -> Result<()> {
    let id = session.find_source(name)?;
    // Removing a configured source from the store would have no effect: the next command would add it again.
    if let Some(location) = session.loaded_config.declared_at(&id) {
        let message = format!("`{id}` is declared in `{location}`; remove it there, or run `toolcrib disable {id}`");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    // Count before removing.
    let tools = session.registry.sources().get(&id).map_or(0, |source| source.tool_count);
    session.registry.sources().remove(&id, CliSession::actor()).await?;
    if session.common.json {
        output::print_json(&json!({ "source": id, "removed": true, "tools": tools }))
    } else {
        output::print_line(&format!("removed `{id}` and its {}", plural::pluralize(tools, "tool")))
    }
}
