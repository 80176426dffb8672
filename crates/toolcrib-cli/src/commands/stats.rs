//! `toolcrib stats`: prints cache hits, the age of tool lists and call counts. Makes no network requests and starts no
//! process.
//!
//! Counts are those of all processes on the store, as they were last written; a running `serve` writes them from time
//! to time and when it ends.

use std::time::Duration;

use clap::Args;
use toolcrib::Result;
use toolcrib::registry::Stats;

use crate::arguments::CommonArguments;
use crate::commands::sources::{format_age, format_ago};
use crate::session::CliSession;
use crate::table::Table;

/// Show cache hits, ages of tool lists, and calls
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib stats
  toolcrib stats --json | jq '.tools[] | select(.errors > 0)'")]
pub(crate) struct Arguments {}

/// Loads the stored counts and prints them.
pub(crate) async fn run(common: &CommonArguments, _: Arguments) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    let loaded = session.registry.statistics().load().await;
    let stats = session.registry.statistics().totals();
    // Close the session before reporting an error of the store.
    session.close().await;
    loaded?;
    common.print(&stats, || render_stats(&stats))
}

/// Renders totals, then a table of sources and one of called tools. Tools that were never called have no row.
fn render_stats(stats: &Stats) -> String {
    let Stats { tool_count, hits, misses, calls, errors, .. } = stats;
    // The ratio is unknown before the first use.
    let ratio = stats.hit_ratio.map(|ratio| format!(" ({:.0} % were hits)", ratio * 100.0)).unwrap_or_default();
    let mut text = format!(
        "tools  {tool_count}\ncalls  {calls}, {errors} failed\ncache  {hits} hits, {misses} misses{ratio}; a hit is a use of a fresh tool list\n"
    );
    if !stats.sources.is_empty() {
        let mut table = Table::new(&["source", "age", "expired", "hits", "misses"]);
        for source in &stats.sources {
            table.add_row(vec![
                source.id.to_string(),
                source.cache_age_ms.map_or_else(|| "never".to_owned(), |age| format_age(Duration::from_millis(age))),
                if source.expired { "yes" } else { "no" }.to_owned(),
                source.hits.to_string(),
                source.misses.to_string(),
            ]);
        }
        text.push_str(&format!("\n{}", table.render()));
    }
    if !stats.tools.is_empty() {
        let mut table = Table::new(&["tool", "calls", "errors", "last called", "last error"]);
        for tool in &stats.tools {
            table.add_row(vec![
                tool.name.clone(),
                tool.calls.to_string(),
                tool.errors.to_string(),
                tool.last_called.map_or_else(|| "never".to_owned(), format_ago),
                tool.last_error.as_ref().map(|failure| failure.message.clone()).unwrap_or_default(),
            ]);
        }
        text.push_str(&format!("\n{}", table.render()));
    }
    text
}
