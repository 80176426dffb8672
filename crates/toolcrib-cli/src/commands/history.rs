//! `toolcrib history`: what changed, when, and by whom; and with `--checks`, how each discovery went. Contacts nobody.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::json;
use toolcrib::core::text::shown_short;
use toolcrib::core::time::When;
use toolcrib::core::{SourceId, Timestamp};
use toolcrib::registry::{HistoryRecord, Wanted};
use toolcrib::store::Check;
use toolcrib::{Result, clock::Clock};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;
use crate::wording::counted;

/// Show what changed, when, and by whom; contacts nobody
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolcrib history --since 7d
  toolcrib history --source github --limit 20
  toolcrib history --tool github__create_issue --json
  toolcrib history --checks --source github

Sources that were removed keep their history.")]
pub(crate) struct Arguments {
    /// Only what concerns one source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only what touches one tool, by its own or its full name
    #[arg(long, value_name = "TOOL", conflicts_with = "checks")]
    tool: Option<String>,
    /// Only what is not older: `2h`, `7d`, `2026-11-15`, or a time such as `2026-11-15T20:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Only the last so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The last hundred discoveries of each source instead, newest first
    #[arg(long)]
    checks: bool,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let desk = Desk::manage(common).await?;
    let result = match arguments.checks {
        true => checks(&desk, &arguments).await.map(Found::Checks),
        false => records(&desk, &arguments).await.map(Found::Records),
    };
    desk.close().await;
    match result? {
        Found::Records(records) if common.json => output::json(&json!({ "records": records }))?,
        Found::Checks(checks) if common.json => output::json(&json!({ "checks": checks }))?,
        Found::Records(records) if records.is_empty() => output::line("nothing is recorded that fits")?,
        Found::Checks(checks) if checks.is_empty() => output::line("no discovery is recorded that fits")?,
        Found::Records(records) => output::line(&told(&records))?,
        Found::Checks(checks) => output::line(&checked(&checks))?,
    }
    Ok(Done::Well)
}

enum Found {
    Records(Vec<HistoryRecord>),
    Checks(Vec<Check>),
}

async fn records(desk: &Desk, arguments: &Arguments) -> Result<Vec<HistoryRecord>> {
    let wanted = Wanted {
        source: source(desk, arguments.source.as_deref())?,
        tool: arguments.tool.clone(),
        since: arguments.since.map(|since| since.as_of(Clock::system().now())),
        ..Wanted::after(0)
    };
    let mut records = desk.registry.history(&wanted).await?;
    let over = records.len().saturating_sub(arguments.limit.unwrap_or(usize::MAX));
    records.drain(..over);
    Ok(records)
}

async fn checks(desk: &Desk, arguments: &Arguments) -> Result<Vec<Check>> {
    let sources: BTreeSet<SourceId> = match source(desk, arguments.source.as_deref())? {
        Some(source) => BTreeSet::from([source]),
        None => desk.registry.inventory().remembered().cloned().collect(),
    };
    let since = arguments.since.map(|since| since.as_of(Clock::system().now()));
    let mut checks = Vec::new();
    for source in &sources {
        checks.extend(desk.registry.checks(source).await?);
    }
    checks.retain(|check| since.is_none_or(|since| check.at >= since));
    // Stable: those of one source stay in their order when they share a moment.
    checks.sort_by_key(|check| std::cmp::Reverse(check.at));
    checks.truncate(arguments.limit.unwrap_or(usize::MAX));
    Ok(checks)
}

/// A source that there is, or was.
fn source(desk: &Desk, name: Option<&str>) -> Result<Option<SourceId>> {
    let Some(name) = name else { return Ok(None) };
    let id = SourceId::from_name(name)?;
    let was = desk.registry.inventory().remembered().any(|remembered| *remembered == id);
    if was { Ok(Some(id)) } else { desk.source(name).map(Some) }
}

/// One line for each record, oldest first.
fn told(records: &[HistoryRecord]) -> String {
    let seq = records.iter().map(|record| record.seq.to_string().len()).max().unwrap_or(0) + 1;
    let actor = records.iter().map(|record| shown_short(&record.actor, 20).len()).max().unwrap_or(0);
    let lines = records.iter().map(|record| {
        let (number, who) = (format!("#{}", record.seq), shown_short(&record.actor, 20));
        format!("{}  {number:<seq$}  {who:<actor$}  {}", moment(record.at), record.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// To the second: `2026-11-15 20:14:20Z`.
fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).map_or(text.clone(), |second| format!("{}Z", second.replace('T', " ")))
}

/// One line for each check, newest first.
fn checked(checks: &[Check]) -> String {
    let widest = checks.iter().map(|check| check.source.as_str().len()).max().unwrap_or(0);
    let line = |check: &Check| {
        let how = match (&check.error, check.tool_count) {
            (Some(failure), _) => format!("failed: {}", failure.message),
            (None, count) => counted(count.unwrap_or(0), "tool"),
        };
        format!("{}  {:<widest$}  {:>6} ms  {how}", moment(check.at), check.source.as_str(), check.duration_ms)
    };
    checks.iter().map(line).collect::<Vec<_>>().join("\n")
}
