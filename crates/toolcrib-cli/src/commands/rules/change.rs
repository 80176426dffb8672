//! Defines, replaces and removes a rule, or previews that.
//!
//! The preview is computed before the change, from the tools and callers that are known: local processes and tokens.
//! Callers of an identity provider are known only to the server that they use.

use serde_json::json;
use toolcrib::core::access_rules::{NamedRule, RuleKind};
use toolcrib::core::inventory::Origin;
use toolcrib::core::tool::ToolName;
use toolcrib::registry::{CallerChange, RuleChange, RuleChangePreview, ToolChanges};
use toolcrib::{Registry, Result};

use super::find_rule;
use crate::output;
use crate::plural::pluralize;
use crate::session::CliSession;

/// Further tools of a caller are only counted.
const MAX_LISTED_TOOLS: usize = 5;

/// Makes the change and prints what it does; with `dry_run` prints that only.
pub(super) async fn run(session: &CliSession, change: &RuleChange, dry_run: bool) -> Result<()> {
    let registry = &session.registry;
    let (kind, name) = match change {
        RuleChange::Define(rule) => (rule.kind(), rule.name()),
        RuleChange::Remove(kind, name) => (*kind, name.as_str()),
    };
    let origin = registry.rules().in_force().origin(kind, name);
    if origin.is_none() && matches!(change, RuleChange::Remove(..)) {
        return Err(registry.rules().unknown_error(kind, name));
    }
    let preview = registry.rules().preview(change, &[])?;
    let warning = local_warning(registry, change)?;
    if dry_run {
        let verb = match (change, origin) {
            (RuleChange::Remove(..), _) => "removed",
            (RuleChange::Define(_), Some(_)) => "replaced",
            (RuleChange::Define(_), None) => "defined",
        };
        let heading = format!("dry run: the {} `{name}` would be {verb}", kind.noun());
        session.common.print(&preview, || render_preview(&heading, &preview))?;
    } else {
        make_change(session, change, origin, &preview).await?;
    }
    if let Some(warning) = warning {
        session.common.hint(&warning);
    }
    Ok(())
}

/// Writes the change and prints it with the number of callers that it affects.
async fn make_change(
    session: &CliSession,
    change: &RuleChange,
    origin: Option<Origin>,
    preview: &RuleChangePreview,
) -> Result<()> {
    let registry = &session.registry;
    let affected = describe_affected(preview);
    match change {
        RuleChange::Define(rule) => {
            let (noun, name) = (rule.kind().noun(), rule.name());
            let changed = registry.rules().define((**rule).clone(), CliSession::actor()).await?;
            let verb = match (changed, origin) {
                (false, _) => return print_rule(session, rule, &format!("the {noun} `{name}` is already defined so")),
                (true, Some(_)) => "replaced",
                (true, None) => "defined",
            };
            print_rule(session, rule, &format!("{verb} the {noun} `{name}`; {affected}"))
        }
        RuleChange::Remove(kind, name) => {
            registry.rules().remove(*kind, name, CliSession::actor()).await?;
            let report = json!({ "name": name, "removed": true });
            session.common.print(&report, || format!("removed the {} `{name}`; {affected}", kind.noun()))
        }
    }
}

/// Prints a message, or with `--json` the rule as it is in force now.
fn print_rule(session: &CliSession, rule: &NamedRule, message: &str) -> Result<()> {
    if !session.common.json {
        return output::print_line(message);
    }
    let (rule, origin) = find_rule(&session.registry, rule.kind(), rule.name())?;
    output::print_json(&session.registry.rules().to_json(&rule, origin))
}

/// Returns a warning if the change leaves local processes without tools, which they are not before it.
fn local_warning(registry: &Registry, change: &RuleChange) -> Result<Option<String>> {
    if !registry.rules().would_leave_local_without_tools(change)? {
        return Ok(None);
    }
    let warning = "warning: local processes without a token (`toolcrib mcp`, agents on this machine) see no tool \
                   with this change";
    let rules = registry.rules().in_force();
    let group = match change {
        RuleChange::Define(rule) => match &**rule {
            NamedRule::Access(_, rule) => rule.groups.first().cloned(),
            NamedRule::Group(..) | NamedRule::Policy(..) => None,
        },
        RuleChange::Remove(RuleKind::Access, _) => rules.groups().next().map(|group| group.name.clone()),
        RuleChange::Remove(..) => None,
    };
    let Some(group) = group else { return Ok(Some(warning.to_owned())) };
    let rule = format!("{{when: [{{claim: caller.kind, equals: local}}], groups: [{group}]}}");
    Ok(Some(format!(
        "{warning}; this rule gives them the tools of `{group}`: `echo '{rule}' | toolcrib access set local --file -`"
    )))
}

/// Renders what changes for each caller.
fn render_preview(heading: &str, preview: &RuleChangePreview) -> String {
    let mut text = format!("{heading}; {}\n", describe_affected(preview));
    for CallerChange { caller, kind, tools } in &preview.callers {
        let ToolChanges { gains, gains_count, loses, loses_count, verdicts, verdicts_count } = tools;
        let name = if caller == kind { caller.clone() } else { format!("{caller} ({kind})") };
        text.push_str(&format!("{name}\n"));
        for (verb, tools, count) in [("gains", gains, *gains_count), ("loses", loses, *loses_count)] {
            let names = tools.iter().map(ToolName::to_string);
            text.push_str(&render_tools(verb, "tool", names, count));
        }
        let changes = verdicts
            .iter()
            .map(|change| format!("{} ({} -> {})", change.tool, change.before.as_str(), change.after.as_str()));
        text.push_str(&render_tools("changed", "verdict", changes, *verdicts_count));
    }
    if preview.changed > preview.callers.len() {
        let more = pluralize(preview.changed - preview.callers.len(), "caller");
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

/// Renders a line with the first of `count` tools; nothing without any.
fn render_tools(verb: &str, noun: &str, tools: impl Iterator<Item = String>, count: usize) -> String {
    if count == 0 {
        return String::new();
    }
    let names: Vec<String> = tools.take(MAX_LISTED_TOOLS).collect();
    let rest = if count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
    format!("  {verb} {}: {}{rest}\n", pluralize(count, noun), names.join(", "))
}

/// Returns text such as `affects 2 of 3 known callers`.
fn describe_affected(preview: &RuleChangePreview) -> String {
    let affected = preview.changed;
    let known = pluralize(affected + preview.unchanged, "known caller");
    if affected == 0 { format!("affects none of {known}") } else { format!("affects {affected} of {known}") }
}
