//! `toolcrib sources`: prints every source with its status. Makes no network requests and starts no process.
//!
//! The table has the columns of `SourceView`; the demo prints the same table. `serialized_name` keeps its words equal
//! to those of the JSON.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use toolcrib::Result;
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::time::format_duration;
use toolcrib::core::tool::ToolName;
use toolcrib::registry::SourceView;
use toolcrib::store::NodeStatus;

use crate::arguments::CommonArguments;
use crate::session::CliSession;
use crate::table::Table;
use crate::{color, output};

/// List every source with its status, without contacting it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib sources
  toolcrib sources --tools
  toolcrib sources --json | jq '.sources[] | select(.status == \"failed\")'")]
pub(crate) struct Arguments {
    /// Add the names of the tools of each source
    #[arg(long)]
    tools: bool,
}

/// Prints the table, or the sources as JSON.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    let mut sources = session.registry.sources().list();
    if arguments.tools {
        session.registry.sources().add_tool_names(&CliSession::caller(), &mut sources);
    }
    let nodes = session.registry.store().nodes();
    if common.json {
        let mut listed = json!({ "sources": sources });
        if let Some(nodes) = &nodes {
            listed["nodes"] = json!(**nodes);
        }
        output::print_json(&listed)?;
    } else if !sources.is_empty() {
        output::print_line(&sources_table(&sources).render())?;
        for source in sources.iter().filter(|source| source.tools.as_ref().is_some_and(|tools| !tools.is_empty())) {
            let names: Vec<&str> = source.tools.iter().flatten().map(ToolName::as_str).collect();
            output::print_line(&format!("\n{}\n  {}", color::bold(source.id.as_str()), names.join("\n  ")))?;
        }
    } else if !session.is_damaged() {
        output::print_line(
            "no sources yet; `toolcrib add NAME -- COMMAND` declares one, `toolcrib import` imports those of another client",
        )?;
    }
    if let Some(nodes) = nodes.filter(|nodes| !common.json && !nodes.is_empty()) {
        output::print_line(&format!("\n{}", nodes_table(&nodes).render()))?;
    }
    session.close().await;
    Ok(())
}

/// Returns the table of the nodes that share the store.
fn nodes_table(nodes: &[NodeStatus]) -> Table {
    let mut table = Table::new(&["node", "version", "position", "lag", "seen"]);
    for node in nodes {
        let seen = format!("{} ago", format_age(Duration::from_millis(node.last_seen_ms)));
        table.add_row(vec![
            node.label.clone(),
            node.version.clone(),
            node.position.to_string(),
            node.lag.to_string(),
            // A node that ended in order leaves no report.
            if node.alive { seen } else { format!("{seen}, silent") },
        ]);
    }
    table
}

/// Returns the table of sources, as the demo prints it, too.
pub(crate) fn sources_table(sources: &[SourceView]) -> Table {
    let mut table =
        Table::new(&["source", "kind", "transport", "status", "freshness", "health", "tools", "checked", "last error"]);
    for source in sources {
        table.add_row(vec![
            source.id.to_string(),
            source.kind.to_string(),
            // Of other kinds, the transport is the kind. A source with an invalid declaration has none.
            source.transport.filter(|_| source.kind == "mcp").unwrap_or("-").to_owned(),
            // The status of a disabled source is that of its last discovery, which would mislead.
            if source.enabled { serialized_name(&source.status) } else { "disabled".to_owned() },
            serialized_name(&source.freshness),
            serialized_name(&source.health),
            source.tool_count.to_string(),
            source.last_checked.map_or_else(|| "never".to_owned(), format_ago),
            source.last_error.as_ref().map(|failure| failure.message.clone()).unwrap_or_default(),
        ]);
    }
    table
}

/// Returns the name of a unit variant as in JSON. Empty for any other value, which no caller passes.
pub(crate) fn serialized_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Formats the time since: `3m ago`.
pub(crate) fn format_ago(at: Timestamp) -> String {
    format!("{} ago", format_age(Clock::system().now().since(at)))
}

/// Formats an age, rounded down to one unit.
pub(crate) fn format_age(age: Duration) -> String {
    let seconds = age.as_secs();
    // Minutes below an hour, whole hours above: an age in a list needs no more precision.
    let rounded = match seconds {
        0..=59 => seconds,
        60..=3_599 => seconds / 60 * 60,
        _ => seconds / 3_600 * 3_600,
    };
    format_duration(Duration::from_secs(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_row() {
        let node = |label: &str, alive| NodeStatus {
            id: format!("{label}-1"),
            label: label.to_owned(),
            version: "0.3.0".to_owned(),
            position: 120,
            lag: 3,
            last_seen_ms: 65_000,
            alive,
        };
        let table = nodes_table(&[node("gpu", true), node("web", false)]).render();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "NODE  VERSION  POSITION  LAG  SEEN",
                "gpu   0.3.0    120       3    1m ago",
                "web   0.3.0    120       3    1m ago, silent",
            ]
        );
    }
}
