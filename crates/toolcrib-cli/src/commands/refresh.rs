//! `toolcrib refresh`: discovers sources now and prints what changed.
//!
//! Without names all enabled sources are refreshed, but only stale and missing lists; `--force` also refreshes fresh
//! ones. The exit code is 1 if any source failed, and the others are refreshed all the same. Slow sources are awaited
//! up to their own timeouts.

use clap::Args;
use serde_json::json;
use toolcrib::core::delta::ToolRename;
use toolcrib::core::features::ByFeatureKind;
use toolcrib::core::inventory::history::{describe_change, describe_feature_changes};
use toolcrib::refresh::{RefreshStatus, RefreshTotals};
use toolcrib::{Refresh, RefreshOutcome, Result};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::session::CliSession;
use crate::{output, plural, progress};

/// Maximum number of tool names on a line; `--json` has all of them. The first discovery of a large source adds
/// hundreds.
const MAX_LISTED_NAMES: usize = 20;

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

/// Refreshes the named sources, or all, and prints each outcome.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments) -> Result<CommandOutcome> {
    let session = CliSession::open(common).await?;
    let named = arguments.sources.iter().map(|name| session.find_source(name)).collect::<Result<Vec<_>>>()?;
    let sources = (!named.is_empty()).then_some(named);
    // Names and `force` as requested; other options have their defaults.
    let refresh = Refresh { sources, force: arguments.force, ..Refresh::default() };
    let outcomes = progress::show_progress(&session.registry, common.quiet, session.registry.refresh(refresh)).await;
    if common.json {
        output::print_json(&json!({ "results": outcomes, "totals": RefreshTotals::new(&outcomes) }))?;
    } else {
        for outcome in &outcomes {
            output::print_line(&render_outcome(outcome))?;
        }
        if outcomes.len() > 1 {
            output::print_line(&render_totals(&RefreshTotals::new(&outcomes)))?;
        }
        if outcomes.is_empty() && !session.is_damaged() {
            output::print_line("no sources yet; `toolcrib add NAME -- COMMAND` declares one")?;
        }
    }
    session.close().await;
    let failed = outcomes.iter().any(|outcome| outcome.status == RefreshStatus::Failed);
    Ok(if failed { CommandOutcome::Failure } else { CommandOutcome::Success })
}

/// Renders the totals: `3 sources: 2 succeeded, 1 failed; 14 tools added, 0 changed, 2 removed`.
fn render_totals(totals: &RefreshTotals) -> String {
    let RefreshTotals { succeeded, failed, disabled, added, changed, removed, .. } = totals;
    let sources = plural::pluralize(totals.sources, "source");
    let disabled = if *disabled > 0 { format!(", {disabled} disabled") } else { String::new() };
    let added = plural::pluralize(*added, "tool");
    format!(
        "{sources}: {succeeded} succeeded, {failed} failed{disabled}; {added} added, {changed} changed, {removed} removed"
    )
}

/// Renders the outcome for one source: counts, and the tools that were added, changed, removed or renamed.
pub(crate) fn render_outcome(outcome: &RefreshOutcome) -> String {
    let RefreshOutcome { source, added, changed, removed, unchanged, elapsed_ms, .. } = outcome;
    // Removed tools are not part of the current total.
    let total = added.len() + changed.len() + unchanged;
    let total = plural::pluralize(total, "tool");
    match outcome.status {
        RefreshStatus::Fresh => format!("{source}: fresh, {total}; `--force` refreshes it anyway"),
        RefreshStatus::Disabled => format!("{source}: disabled"),
        RefreshStatus::Unchanged => format!("{source}: unchanged, {total} ({elapsed_ms} ms)"),
        RefreshStatus::Failed => {
            let reason = outcome.error.as_ref().map_or("unknown reason", |failure| failure.message.as_str());
            format!("{source}: failed: {reason}")
        }
        RefreshStatus::Success | _ => {
            let mut text = format!("{source}: {total} ({elapsed_ms} ms)");
            let groups = [("added", added.clone()), ("removed", removed.clone())];
            for (what, names) in groups.iter().filter(|(_, names)| !names.is_empty()) {
                text.push_str(&format!("\n  {what}: {}", crate::plural::join_truncated(names, MAX_LISTED_NAMES)));
            }
            for change in changed {
                text.push_str(&format!("\n  changed: {}", describe_change(change)));
            }
            // A rename is inferred from a removed and an added tool that are otherwise alike, so it is only likely.
            for ToolRename { from, to } in &outcome.renamed {
                text.push_str(&format!("\n  most likely renamed: {from} to {to}"));
            }
            if let Some(features) = &outcome.features {
                let ByFeatureKind { prompts, resources, resource_templates } = &features.lists;
                let lists = [prompts, resources, resource_templates];
                let changes = describe_feature_changes(source, lists, features.instructions_changed);
                text.push_str(&format!("\n  {changes}"));
            }
            text
        }
    }
}
