//! `toolcrib sources`: every source and how it stands. Contacts nobody.

use clap::Args;
use serde_json::json;
use toolcrib::Result;
use toolcrib::core::time::format_duration;
use toolcrib::registry::SourceView;

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::table::Table;

/// List every source and how it stands; contacts nobody
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  toolcrib sources --json | jq '.sources[] | select(.status == \"failed\")'")]
pub(crate) struct Arguments {}

pub(crate) async fn run(common: &Common, _: Arguments) -> Result<Done> {
    let desk = Desk::manage(common).await?;
    let sources = desk.registry.sources();
    if common.json {
        output::json(&json!({ "sources": sources }))?;
    } else if sources.is_empty() {
        output::line(
            "no sources yet; `toolcrib add NAME -- COMMAND` declares one, `toolcrib import` brings those of another client",
        )?;
    } else {
        output::line(&table(&sources).render())?;
    }
    desk.close().await;
    Ok(Done::Well)
}

pub(crate) fn table(sources: &[SourceView]) -> Table {
    let mut table = Table::new(&["source", "kind", "status", "freshness", "health", "tools", "checked", "last error"]);
    for source in sources {
        table.row(vec![
            source.id.to_string(),
            source.transport.unwrap_or("-").to_owned(),
            if source.enabled { word(&source.status) } else { "disabled".to_owned() },
            word(&source.freshness),
            word(&source.health),
            source.tool_count.to_string(),
            source.last_checked.map_or_else(|| "never".to_owned(), ago),
            source.last_error.as_ref().map(|failure| failure.message.clone()).unwrap_or_default(),
        ]);
    }
    table
}

/// A plain enum as JSON writes it.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(crate) fn ago(at: toolcrib::core::Timestamp) -> String {
    let seconds = toolcrib::clock::Clock::system().now().since(at).as_secs();
    let rounded = match seconds {
        0..=59 => seconds,
        60..=3_599 => seconds / 60 * 60,
        _ => seconds / 3_600 * 3_600,
    };
    format!("{} ago", format_duration(std::time::Duration::from_secs(rounded)))
}
