//! `toolcrib remove`: removes a source that was declared at run time.
//!
//! A source of a configuration file is removed there; here the command fails with `CONFLICT` and names the file. The
//! history of a removed source stays.

use clap::Args;
use serde_json::json;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::plural::pluralize;
use crate::session::CliSession;

/// Remove a source that `add` or `import` declared, with its tools
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib remove time")]
pub(crate) struct Arguments {
    /// The source, as `toolcrib sources` lists it
    source: String,
}

/// Removes the source and prints how many tools went with it.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    session.run_and_close(async |session| remove(session, &arguments.source).await).await
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
    let report = json!({ "source": id, "removed": true, "tools": tools });
    session.common.print(&report, || format!("removed `{id}` and its {}", pluralize(tools, "tool")))
}
