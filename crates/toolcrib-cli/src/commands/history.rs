//! `toolcrib history`: what changed, when, and by whom; and with `--checks`, how each discovery went. Contacts nobody.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use toolcrib::core::text::shown_short;
use toolcrib::core::time::parse_duration;
use toolcrib::core::tool::{Asked, ToolName, parse_name};
use toolcrib::core::{SourceId, Timestamp};
use toolcrib::registry::HistoryRecord;
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
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Since>,
    /// Only the last so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The last hundred discoveries of each source instead, newest first
    #[arg(long)]
    checks: bool,
}

#[derive(Debug, Clone, Copy)]
enum Since {
    At(Timestamp),
    Ago(Duration),
}

fn since(text: &str) -> Result<Since, String> {
    let text = text.trim();
    if let Some(duration) = days(text).or_else(|| parse_duration(text)) {
        return Ok(Since::Ago(duration));
    }
    let at = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse());
    at.map(Since::At).map_err(|_| "write `2h`, `7d`, `2026-11-15` or `2026-11-15T20:00:00Z`".to_owned())
}

/// Days and weeks, which are of no use elsewhere.
fn days(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let days = match unit {
        "d" => 1,
        "w" => 7,
        _ => return None,
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(days * 86_400)?))
}

impl Since {
    fn admits(self, at: Timestamp) -> bool {
        match self {
            Since::At(since) => at >= since,
            Since::Ago(duration) => Clock::system().now().since(at) <= duration,
        }
    }
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
        Found::Records(records) => output::line(&told(&records, arguments.tool.as_deref()))?,
        Found::Checks(checks) => output::line(&checked(&checks))?,
    }
    Ok(Done::Well)
}

enum Found {
    Records(Vec<HistoryRecord>),
    Checks(Vec<Check>),
}

async fn records(desk: &Desk, arguments: &Arguments) -> Result<Vec<HistoryRecord>> {
    let all = desk.registry.history(0).await?;
    let source = source(desk, &all, arguments.source.as_deref())?;
    let mut records: Vec<HistoryRecord> = all
        .into_iter()
        .filter(|record| source.as_ref().is_none_or(|source| record.source.as_deref() == Some(source.as_str())))
        .filter(|record| arguments.tool.as_deref().is_none_or(|tool| touches(record, tool)))
        .filter(|record| arguments.since.is_none_or(|since| since.admits(record.at)))
        .collect();
    let over = records.len().saturating_sub(arguments.limit.unwrap_or(usize::MAX));
    records.drain(..over);
    Ok(records)
}

async fn checks(desk: &Desk, arguments: &Arguments) -> Result<Vec<Check>> {
    let all = desk.registry.history(0).await?;
    let sources: BTreeSet<SourceId> = match source(desk, &all, arguments.source.as_deref())? {
        Some(source) => BTreeSet::from([source]),
        None => all.iter().filter_map(|record| SourceId::parse(record.source.as_deref()?).ok()).collect(),
    };
    let mut checks = Vec::new();
    for source in &sources {
        checks.extend(desk.registry.checks(source).await?);
    }
    checks.retain(|check| arguments.since.is_none_or(|since| since.admits(check.at)));
    // Stable: those of one source stay in their order when they share a moment.
    checks.sort_by_key(|check| std::cmp::Reverse(check.at));
    checks.truncate(arguments.limit.unwrap_or(usize::MAX));
    Ok(checks)
}

/// A source that there is, or was.
fn source(desk: &Desk, all: &[HistoryRecord], name: Option<&str>) -> Result<Option<SourceId>> {
    let Some(name) = name else { return Ok(None) };
    let id = SourceId::from_name(name)?;
    let was = all.iter().any(|record| record.source.as_deref() == Some(id.as_str()));
    if was { Ok(Some(id)) } else { desk.source(name).map(Some) }
}

/// Whether a record speaks of a tool, by its own name or by any that agents see or people write.
fn touches(record: &HistoryRecord, asked: &str) -> bool {
    record.tool.iter().any(|tool| is_meant(record, tool, asked))
        || ["added", "changed", "removed"]
            .iter()
            .any(|what| names(record, what).iter().any(|(tool, _)| is_meant(record, tool, asked)))
}

fn is_meant(record: &HistoryRecord, tool: &str, asked: &str) -> bool {
    if tool == asked {
        return true;
    }
    let Some(source) = record.source.as_deref() else { return false };
    let prefix = format!("{source}__");
    if [ToolName::plain(&prefix, tool), ToolName::hashed(&prefix, tool)].iter().any(|name| name.as_str() == asked) {
        return true;
    }
    match parse_name(asked) {
        Ok(Asked::Qualified { source: named, tool: own }) => {
            own == tool && SourceId::from_name(named).is_ok_and(|named| named.as_str() == source)
        }
        Ok(Asked::Bare(_)) | Err(_) => false,
    }
}

/// The tools in one list of a record, and what changed of each where that is said.
fn names(record: &HistoryRecord, what: &str) -> Vec<(String, Vec<String>)> {
    let items = record.data.get(what).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let named = |item: &Value| {
        let fields = item.get("fields").and_then(Value::as_array).into_iter().flatten();
        // Added and removed tools are names alone.
        let name = text(item).or_else(|| item.get("name").and_then(text))?;
        Some((name, fields.filter_map(text).collect()))
    };
    items.iter().filter_map(named).collect()
}

/// One line for each record, oldest first.
fn told(records: &[HistoryRecord], tool: Option<&str>) -> String {
    let seq = records.iter().map(|record| record.seq.to_string().len()).max().unwrap_or(0) + 1;
    let actor = records.iter().map(|record| shown_short(&record.actor, 20).len()).max().unwrap_or(0);
    let lines = records.iter().map(|record| {
        let (number, who) = (format!("#{}", record.seq), shown_short(&record.actor, 20));
        format!("{}  {number:<seq$}  {who:<actor$}  {}", moment(record.at), happened(record, tool))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// To the second: `2026-11-15 20:14:20Z`.
fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).map_or(text.clone(), |second| format!("{}Z", second.replace('T', " ")))
}

fn happened(record: &HistoryRecord, asked: Option<&str>) -> String {
    let source = record.source.as_deref().unwrap_or("?");
    let tool = record.tool.as_deref().map(|tool| shown_short(tool, 80)).unwrap_or_default();
    let data = |key: &str| record.data.get(key).and_then(Value::as_str).unwrap_or("?").to_owned();
    let disabled = if record.data.get("enabled") == Some(&Value::Bool(false)) { ", disabled" } else { "" };
    match record.kind.as_str() {
        "SourceDeclared" => format!("`{source}` declared ({}, from {}{disabled})", data("kind"), data("origin")),
        "SourceChanged" => {
            format!("the declaration of `{source}` changed ({}, from {}{disabled})", data("kind"), data("origin"))
        }
        "SourceEnabled" => format!("`{source}` enabled"),
        "SourceDisabled" => format!("`{source}` disabled"),
        "SourceRemoved" => format!("`{source}` removed"),
        "ToolEnabled" => format!("tool `{tool}` of `{source}` enabled"),
        "ToolDisabled" => format!("tool `{tool}` of `{source}` disabled"),
        "TokenCreated" => format!("token `{}` created ({})", data("name"), data("role")),
        "TokenChanged" => format!("token `{}` changed ({})", data("name"), data("role")),
        "TokenRevoked" => format!("token `{}` revoked", data("name")),
        "InventoryRecorded" => recorded(record, source, asked),
        other => format!("`{}`, which this Toolcrib does not know", shown_short(other, 60)),
    }
}

/// ``3 tools added to `github`: a, b, c; 1 changed: create_issue (inputSchema)``, about one tool when one was asked for.
fn recorded(record: &HistoryRecord, source: &str, asked: Option<&str>) -> String {
    const MOST: usize = 10;
    let mut parts = Vec::new();
    for (what, preposition) in [("added", "to"), ("changed", "in"), ("removed", "from")] {
        let mut names = names(record, what);
        names.retain(|(name, _)| asked.is_none_or(|asked| is_meant(record, name, asked)));
        if names.is_empty() {
            continue;
        }
        let mut shown: Vec<String> = names
            .iter()
            .take(MOST)
            .map(|(name, fields)| match &fields[..] {
                [] => shown_short(name, 80),
                fields => format!("{} ({})", shown_short(name, 80), shown_short(&fields.join(", "), 120)),
            })
            .collect();
        if names.len() > MOST {
            shown.push(format!("and {} more", names.len() - MOST));
        }
        let subject = match (parts.is_empty(), names.len()) {
            (true, count) => format!("{} {what} {preposition} `{source}`", counted(count, "tool")),
            (false, count) => format!("{count} {what}"),
        };
        parts.push(format!("{subject}: {}", shown.join(", ")));
    }
    match &parts[..] {
        [] => format!("the list of `{source}` was recorded; no tool came, changed or went"),
        parts => parts.join("; "),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_time_a_day_or_so_long_ago() {
        assert!(matches!(since("2h"), Ok(Since::Ago(ago)) if ago.as_secs() == 7_200));
        assert!(matches!(since("7d"), Ok(Since::Ago(ago)) if ago.as_secs() == 604_800));
        assert!(matches!(since("2w"), Ok(Since::Ago(ago)) if ago.as_secs() == 1_209_600));
        assert!(matches!(since("2026-11-15"), Ok(Since::At(Timestamp(1_794_700_800_000)))));
        assert!(matches!(since("2026-11-15T01:00:00+01:00"), Ok(Since::At(Timestamp(1_794_700_800_000)))));
        for text in ["", "d", "yesterday", "7", "99999999999999999999d", "2026-13-01", "日"] {
            assert!(since(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_tool_is_meant_by_any_of_its_names() {
        let record = HistoryRecord {
            seq: 1,
            at: Timestamp(0),
            actor: "refresh".into(),
            kind: "InventoryRecorded".into(),
            source: Some("github".into()),
            tool: None,
            data: json!({"added": ["a.b"], "changed": [{"name": "c", "fields": ["title"]}], "removed": []}),
        };
        for asked in ["a.b", "github__a_b", "github__a.b", "github/a.b", "GitHub:a.b", "c", "github__c"] {
            assert!(touches(&record, asked), "{asked}");
        }
        for asked in ["a", "gitlab__c", "gitlab/a.b", "github", ""] {
            assert!(!touches(&record, asked), "{asked}");
        }
        assert_eq!(happened(&record, None), "1 tool added to `github`: a.b; 1 changed: c (title)");
        assert_eq!(happened(&record, Some("c")), "1 tool changed in `github`: c (title)");
    }
}
