//! `toolcrib refresh`: ask sources now, and say what changed.

use clap::Args;
use serde_json::json;
use toolcrib::core::compare::Renamed;
use toolcrib::core::history::changed_in_words;
use toolcrib::refresh::Refreshed;
use toolcrib::{Outcome, Refresh, Result};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::{output, progress, wording};

/// A line has no room for more; `--json` has them all.
const MOST_NAMES: usize = 20;

/// Discover sources again and say what was added, changed and removed
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib refresh\n  toolcrib refresh github --force")]
pub(crate) struct Arguments {
    /// Which sources; all enabled ones when none are named
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Contact a source even when its list is fresh
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(common: &Common, arguments: Arguments) -> Result<Done> {
    let desk = Desk::open(common).await?;
    let named = arguments.sources.iter().map(|name| desk.source(name)).collect::<Result<Vec<_>>>()?;
    let sources = (!named.is_empty()).then_some(named);
    let refresh = Refresh { sources, force: arguments.force, ..Refresh::default() };
    let outcomes = progress::shown(&desk.registry, common.quiet, desk.registry.refresh(refresh)).await;
    if common.json {
        output::json(&json!({ "results": outcomes }))?;
    } else {
        for outcome in &outcomes {
            output::line(&told(outcome))?;
        }
        if outcomes.is_empty() {
            output::line("no sources yet; `toolcrib add NAME -- COMMAND` declares one")?;
        }
    }
    desk.close().await;
    let failed = outcomes.iter().any(|outcome| outcome.status == Refreshed::Failed);
    Ok(if failed { Done::Failed } else { Done::Well })
}

/// One source's delta in words.
pub(crate) fn told(outcome: &Outcome) -> String {
    let Outcome { source, added, changed, removed, unchanged, elapsed_ms, .. } = outcome;
    let total = added.len() + changed.len() + unchanged;
    let total = wording::counted(total, "tool");
    match outcome.status {
        Refreshed::Fresh => format!("{source}: fresh, {total}; `--force` asks anyway"),
        Refreshed::Disabled => format!("{source}: disabled"),
        Refreshed::Unchanged => format!("{source}: unchanged, {total} ({elapsed_ms} ms)"),
        Refreshed::Failed => {
            let reason = outcome.error.as_ref().map_or("no reason is known", |failure| failure.message.as_str());
            format!("{source}: failed: {reason}")
        }
        Refreshed::Success => {
            let mut text = format!("{source}: {total} ({elapsed_ms} ms)");
            let groups = [("added", added.clone()), ("removed", removed.clone())];
            for (what, names) in groups.iter().filter(|(_, names)| !names.is_empty()) {
                text.push_str(&format!("\n  {what}: {}", crate::wording::shortened(names, MOST_NAMES)));
            }
            for change in changed {
                text.push_str(&format!("\n  changed: {}", changed_in_words(change)));
            }
            for Renamed { from, to } in &outcome.renamed {
                text.push_str(&format!("\n  most likely renamed: {from} to {to}"));
            }
            text
        }
    }
}
