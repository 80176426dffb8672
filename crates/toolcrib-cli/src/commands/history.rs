//! `toolcrib history`: prints the records of the journal, or with `--checks` the latest discoveries of each source. Makes
//! no network requests and starts no process.
//!
//! ```text
//! 2026-11-15 22:08:26Z  #1  cli      `files` declared (mcp, at run time)
//! 2026-11-15 22:08:41Z  #2  refresh  14 tools added to `files`: create_directory, …
//! ```
//!
//! A record has its time, its sequence number, the actor and a description, which the module
//! `toolcrib_core::inventory::history` writes for all interfaces. Checks are measurements, not records:
//! they are kept per source and have no number.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use serde_json::json;
use toolcrib::cloud_event::CloudEvent;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::TimeSpec;
use toolcrib::core::{SourceId, Timestamp};
use toolcrib::registry::{HistoryQuery, HistoryRecord};
use toolcrib::store::{DiscoveryCheck, SourceTransition};
use toolcrib::{Result, clock::Clock};

use crate::arguments::CommonArguments;
use crate::output;
use crate::plural::pluralize;
use crate::session::CliSession;

/// Show what changed, when, and by whom, from the journal
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib history --since 7d
  toolcrib history --source github --limit 20
  toolcrib history --tool github__create_issue --json
  toolcrib history --checks --source github
  toolcrib history --since 1d --format cloudevents

Sources that were removed keep their history.")]
pub(crate) struct Arguments {
    /// Only records of one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only records of one tool, by its own or its full name
    #[arg(long, value_name = "TOOL", conflicts_with = "checks")]
    tool: Option<String>,
    /// Only records since then: `2h`, `7d`, `2026-11-15`, or a time such as `2026-11-15T20:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<TimeSpec>,
    /// Only the latest N
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The last hundred discoveries of each source instead, newest first
    #[arg(long)]
    checks: bool,
    /// `table`, `json` (as `--json`), or `cloudevents`: a JSON array of CloudEvents 1.0
    #[arg(long, value_enum, default_value_t)]
    format: HistoryFormat,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum HistoryFormat {
    #[default]
    Table,
    Json,
    #[value(name = "cloudevents")]
    CloudEvents,
}

/// Loads and prints the entries.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    let format = arguments.format;
    let (report, text) = session
        .run_and_close(async |session| {
            let store = session.registry.history().store_uri();
            let is_cloud = format == HistoryFormat::CloudEvents;
            if arguments.checks {
                let checks = load_checks(session, &arguments).await?;
                let report = if is_cloud {
                    json!(checks.iter().map(|check| CloudEvent::from_check(&store, check)).collect::<Vec<_>>())
                } else {
                    json!({ "checks": checks })
                };
                return Ok((report, render_checks(&checks)));
            }
            let records = load_records(session, &arguments).await?;
            let report = if is_cloud {
                json!(records.iter().map(|record| CloudEvent::from_record(&store, record)).collect::<Vec<_>>())
            } else {
                json!({ "records": records })
            };
            Ok((report, render_records(&records)))
        })
        .await?;
    match format {
        HistoryFormat::Table => common.print(&report, || text),
        HistoryFormat::Json | HistoryFormat::CloudEvents => output::print_json(&report),
    }
}

/// Loads the latest matching journal records, oldest first.
async fn load_records(session: &CliSession, arguments: &Arguments) -> Result<Vec<HistoryRecord>> {
    let query = HistoryQuery {
        source: resolve_source(session, arguments.source.as_deref())?,
        tool: arguments.tool.clone(),
        since: arguments.since.map(|since| since.resolve(Clock::system().now())),
        // All records from the start, not only those in memory.
        ..HistoryQuery::after(0)
    };
    let mut records = session.registry.history().records(&query).await?;
    // Filters apply to all records; the limit keeps the latest.
    let excess = records.len().saturating_sub(arguments.limit.unwrap_or(usize::MAX));
    records.drain(..excess);
    Ok(records)
}

/// Loads the latest matching discoveries, newest first. The store keeps a bounded number for each source.
async fn load_checks(session: &CliSession, arguments: &Arguments) -> Result<Vec<DiscoveryCheck>> {
    let sources: BTreeSet<SourceId> = match resolve_source(session, arguments.source.as_deref())? {
        Some(source) => BTreeSet::from([source]),
        None => session.registry.inventory().all_source_ids().cloned().collect(),
    };
    let since = arguments.since.map(|since| since.resolve(Clock::system().now()));
    let mut checks = Vec::new();
    for source in &sources {
        checks.extend(session.registry.history().checks(source).await?);
    }
    checks.retain(|check| since.is_none_or(|since| check.at >= since));
    // The sort is stable: discoveries of one source with equal times keep their order.
    checks.sort_by_key(|check| std::cmp::Reverse(check.at));
    checks.truncate(arguments.limit.unwrap_or(usize::MAX));
    Ok(checks)
}

/// Resolves the name of a source that exists or was removed; the history of a removed one stays. An unknown name is an
/// error with the most similar one.
fn resolve_source(session: &CliSession, name: Option<&str>) -> Result<Option<SourceId>> {
    let Some(name) = name else { return Ok(None) };
    let id = SourceId::from_name(name)?;
    let is_recorded = session.registry.inventory().all_source_ids().any(|recorded| *recorded == id);
    if is_recorded { Ok(Some(id)) } else { session.find_source(name).map(Some) }
}

/// Renders one line per record.
fn render_records(records: &[HistoryRecord]) -> String {
    if records.is_empty() {
        return "no matching records".to_owned();
    }
    // Columns are padded to the widest cell; the actor may be the name of a token, so it is truncated.
    let number_width = records.iter().map(|record| record.seq.to_string().len()).max().unwrap_or(0) + 1;
    let actor_width = records.iter().map(|record| sanitize_truncated(&record.actor, 20).len()).max().unwrap_or(0);
    let lines = records.iter().map(|record| {
        let number = format!("#{}", record.seq);
        let actor = sanitize_truncated(&record.actor, 20);
        let time = format_timestamp(record.at);
        format!("{time}  {number:<number_width$}  {actor:<actor_width$}  {}", record.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a time to the second: `2026-11-15 20:14:20Z`.
fn format_timestamp(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).map_or(text.clone(), |second| format!("{}Z", second.replace('T', " ")))
}

/// Renders one line per discovery.
fn render_checks(checks: &[DiscoveryCheck]) -> String {
    if checks.is_empty() {
        return "no matching discoveries".to_owned();
    }
    let widest = checks.iter().map(|check| check.source.as_str().len()).max().unwrap_or(0);
    let line = |check: &DiscoveryCheck| {
        let result = match (&check.error, check.tool_count) {
            (Some(failure), _) => format!("failed: {}", failure.message),
            (None, count) => {
                let tools = pluralize(count.unwrap_or(0), "tool");
                let recovered = check.transition == Some(SourceTransition::Recovered);
                if recovered { format!("recovered: {tools}") } else { tools }
            }
        };
        format!(
            "{}  {:<widest$}  {:>6} ms  {result}",
            format_timestamp(check.at),
            check.source.as_str(),
            check.duration_ms
        )
    };
    checks.iter().map(line).collect::<Vec<_>>().join("\n")
}
