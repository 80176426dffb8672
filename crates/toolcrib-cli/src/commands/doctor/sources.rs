//! Checks of a source: whether its declaration can work on this machine, its status, and the tools that agents do not
//! get.
//!
//! The order of the checks avoids repetition: a disabled or untrusted source gets one line; a declaration that cannot
//! work is reported instead of the failure that it causes; then comes the status of the last discovery.

use std::collections::BTreeSet;

use serde_json::Value;
use toolcrib::RefreshOutcome;
use toolcrib::config::reference;
use toolcrib::config::reference::ReferencePart;
use toolcrib::config::show::mask_text;
use toolcrib::core::Source;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::manifest::SkippedTool;
use toolcrib::core::source::SourceKind;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, SourceView};
use toolcrib::secret::{ReferenceValues, SecretFiles};

use super::{DoctorCheck, advice};
use crate::commands::sources::{format_ago, serialized_name};
use crate::plural::pluralize;
use crate::session::CliSession;

/// Checks one source; `probed` is the outcome of `--probe`.
pub(super) async fn check_source(
    session: &CliSession,
    source: &SourceView,
    probed: Option<&RefreshOutcome>,
) -> Vec<DoctorCheck> {
    // A disabled or untrusted source is not contacted, so nothing else can be wrong with it.
    let name = format!("source {}", source.id);
    if !source.enabled {
        let message = "disabled; none of its tools is listed";
        return vec![DoctorCheck::ok(name, message).with_fix(format!("`toolcrib enable {}` enables it", source.id))];
    }
    if session.registry.sources().blocked().contains_key(&source.id) {
        return vec![DoctorCheck::warn(&name, "not contacted, because its file is not trusted", "`toolcrib trust`")];
    }
    // Its program and its variables are those of other machines.
    if let Err(elsewhere) = session.registry.sources().ensure_may_start(&source.id) {
        return vec![DoctorCheck::ok(name, elsewhere.message)];
    }
    let definition = session.registry.sources().effective(&source.id);
    let mut checks: Vec<DoctorCheck> = match definition.as_deref() {
        Some(definition) => {
            let references = SecretFiles::default().read_for(&definition.kind).await;
            check_reachability(&name, definition, &references)
        }
        None => Vec::new(),
    };
    // A declaration that cannot work explains a failure; do not report that twice.
    if checks.is_empty() {
        checks.push(check_status(&name, source, probed));
    }
    checks.extend(check_skipped_tools(session, source, definition.as_deref()));
    checks
}

/// Checks what can be checked without contacting the source: unresolved references, missing program or directory.
fn check_reachability(name: &str, source: &Source, references: &ReferenceValues) -> Vec<DoctorCheck> {
    let mut checks: Vec<DoctorCheck> = unresolved_references(&source.kind, references)
        .into_iter()
        .map(|message| {
            let fix = advice::for_reference(&message);
            DoctorCheck::fail(name, message, Some(fix))
        })
        .collect();
    // Messages quote the declaration, because the resolved values of references are secret.
    if let (Ok(SourceKind::Stdio(stdio)), SourceKind::Stdio(declared)) =
        (references.resolve_kind(&source.kind), &source.kind)
    {
        if stdio.cwd.as_ref().is_some_and(|cwd| !std::path::Path::new(cwd).is_dir()) {
            let fix = "create the directory, or correct `cwd`".to_owned();
            let declared = declared.cwd.as_deref().map(mask_text).unwrap_or_default();
            checks.push(DoctorCheck::fail(name, format!("its `cwd` `{declared}` is not a directory"), Some(fix)));
        } else if !advice::program_exists(&stdio) {
            let command = mask_text(&declared.command);
            let message = format!("its command `{}` is not found", sanitize_truncated(&command, 120));
            checks.push(DoctorCheck::fail(name, message, Some(advice::for_command(&command))));
        }
    }
    checks
}

/// Returns an error message for every reference in a declaration that cannot be resolved. Sorted and without
/// duplicates; the messages name the reference, never its value.
fn unresolved_references(kind: &SourceKind, references: &ReferenceValues) -> BTreeSet<String> {
    // References may be part of any text in the declaration, at any depth.
    fn walk(value: &Value, references: &ReferenceValues, into: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                for piece in reference::split_references(text) {
                    let ReferencePart::Reference(reference) = piece else { continue };
                    into.extend(references.get(&reference).err().map(|error| error.message));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, references, into)),
            Value::Object(fields) => fields.values().for_each(|field| walk(field, references, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut unresolved = BTreeSet::new();
    walk(&serde_json::to_value(kind).unwrap_or_default(), references, &mut unresolved);
    unresolved
}

/// Reports status, health and freshness of the source's tool list.
fn check_status(name: &str, source: &SourceView, probed: Option<&RefreshOutcome>) -> DoctorCheck {
    let id = &source.id;
    let health = serialized_name(&source.health);
    let has_answered = |outcome: &&RefreshOutcome| {
        outcome.contacted && matches!(outcome.status, RefreshStatus::Success | RefreshStatus::Unchanged)
    };
    let answered = probed.filter(has_answered).map(|outcome| format!(", answered in {} ms", outcome.elapsed_ms));
    let answered = answered.unwrap_or_default();
    let tools = pluralize(source.tool_count, "tool");
    // A failing source first: its status explains everything else.
    if source.status == DiscoveryStatus::Failed {
        let failure = source.last_error.as_ref();
        let reason = failure.map_or("unknown reason", |failure| failure.message.as_str());
        // Cached tools of a failing source stay listed.
        let still_listed = match (source.tool_count, source.last_checked) {
            (0, _) | (_, None) => String::new(),
            (_, Some(at)) => format!("; the {tools} it had {} are still listed", format_ago(at)),
        };
        let fix = advice::for_failure(source);
        return DoctorCheck::fail(name, format!("failed, health {health}: {reason}{still_listed}"), Some(fix));
    }
    let checked =
        source.last_checked.map_or_else(|| "never checked".to_owned(), |at| format!("checked {}", format_ago(at)));
    let message = format!("{tools}, health {health}, {checked}{answered}");
    match (source.status, source.freshness) {
        (DiscoveryStatus::Discovering, _) => DoctorCheck::ok(name, format!("is being discovered now; {message}")),
        (_, Freshness::Fresh) => DoctorCheck::ok(name, message),
        (_, Freshness::Stale) => {
            let fix = format!("served from the cache; `toolcrib refresh {id}` refreshes it");
            DoctorCheck::ok(name, format!("{message}, stale")).with_fix(fix)
        }
        (_, Freshness::Missing) => {
            let fix = format!(
                "`toolcrib refresh {id}` discovers it now; otherwise the first command that needs its tools does"
            );
            DoctorCheck::warn(name, "was never discovered", fix)
        }
    }
}

/// Reports tools that agents do not get: invalid ones, and those with the name of a built-in tool.
fn check_skipped_tools(session: &CliSession, source: &SourceView, definition: Option<&Source>) -> Vec<DoctorCheck> {
    // The segment knows the invalid tools; the source's list adds those that a built-in shadows.
    let view = session.registry.view(&CliSession::caller());
    let invalid_tools = view.source(&source.id).map(|entry| entry.segment.skipped().to_vec()).unwrap_or_default();
    let (invalid, shadowed): (Vec<&SkippedTool>, Vec<&SkippedTool>) =
        source.skipped.iter().partition(|tool| invalid_tools.contains(tool));
    let name = format!("tools of {}", source.id);
    let fix = advice::for_skipped_tool(definition.map(|definition| &definition.kind));
    let mut checks: Vec<DoctorCheck> = invalid
        .iter()
        .map(|tool| {
            let message = format!("`{}` is skipped: {}", sanitize_truncated(&tool.name, 80), tool.reason);
            DoctorCheck::warn(&name, message, format!("{fix}; the other tools are not affected"))
        })
        .collect();
    if !shadowed.is_empty() {
        let names: Vec<String> =
            shadowed.iter().map(|tool| format!("`{}`", sanitize_truncated(&tool.name, 80))).collect();
        let message = format!("skipped, because built-in tools have these names: {}", names.join(", "));
        checks.push(DoctorCheck::warn(&name, message, "`on_conflict: keep` on the source keeps both"));
    }
    checks
}
