//! `toolcrib remove`: forget a source that was declared at run time.

use clap::Args;
use serde_json::json;
use toolcrib::{Code, Error, Result};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::{output, wording};

/// Remove a source that `add` or `import` declared, with its tools
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  toolcrib remove time")]
pub(crate) struct Arguments {
    /// The source, as `toolcrib sources` lists it
    source: String,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let desk = Desk::manage(common).await?;
    let result = remove(&desk, &arguments.source).await;
    desk.close().await;
    result?;
    Ok(Done::Well)
}

async fn remove(desk: &Desk, name: &str) -> Result<()> {
    let id = desk.source(name)?;
    if let Some(place) = desk.found.declared_at(&id) {
        let message = format!("`{id}` is declared in `{place}`; remove it there, or run `toolcrib disable {id}`");
        return Err(Error::new(Code::Conflict, message).with_retryable(false));
    }
    let tools = desk.registry.source(&id).map_or(0, |source| source.tool_count);
    desk.registry.remove(&id, Desk::actor()).await?;
    match desk.common.json {
        true => output::json(&json!({ "source": id, "removed": true, "tools": tools })),
        false => output::line(&format!("removed `{id}` and its {}", wording::counted(tools, "tool"))),
    }
}
