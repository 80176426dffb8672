//! `toolcrib remove`: forget a source that was declared at run time.

use clap::Args;
use serde_json::json;
use toolcrib::{Code, Error, Result};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;
use crate::{output, source_summary};

/// Remove a source that `add` or `import` declared, with its tools
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  toolcrib remove time")]
pub(crate) struct Arguments {
    /// The source, as `toolcrib sources` lists it
    source: String,
}

pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let desk = CliSession::open_offline(common).await?;
    let result = remove(&desk, &arguments.source).await;
    desk.close().await;
    result?;
    Ok(CommandOutcome::Success)
}

async fn remove(desk: &CliSession, name: &str) -> Result<()> {
    let id = desk.find_source(name)?;
    if let Some(place) = desk.loaded_config.declared_at(&id) {
        let message = format!("`{id}` is declared in `{place}`; remove it there, or run `toolcrib disable {id}`");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let tools = desk.registry.source(&id).map_or(0, |source| source.tool_count);
    desk.registry.remove(&id, CliSession::actor()).await?;
    match desk.common.json {
        true => output::print_json(&json!({ "source": id, "removed": true, "tools": tools })),
        false => output::print_line(&format!("removed `{id}` and its {}", source_summary::pluralize(tools, "tool"))),
    }
}
