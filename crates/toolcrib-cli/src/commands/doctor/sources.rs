//! Each source: whether it can be reached as it is declared, how it stands, and what it offers that agents do not get.

use std::collections::BTreeSet;

use serde_json::Value;
use toolcrib::core::Source;
use toolcrib::core::config::show::shown_text;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::manifest::SetAside;
use toolcrib::core::reference::{self, Piece};
use toolcrib::core::source::Kind;
use toolcrib::core::text::shown_short;
use toolcrib::refresh::Refreshed;
use toolcrib::registry::{SourceView, Status};
use toolcrib::{Outcome, secret};

use super::{Check, remedy};
use crate::commands::sources::{ago, word};
use crate::desk::Desk;
use crate::wording::counted;

pub(super) fn checks(desk: &Desk, source: &SourceView, probed: Option<&Outcome>) -> Vec<Check> {
    let name = format!("source {}", source.id);
    if !source.enabled {
        let message = "disabled; none of its tools is listed";
        return vec![Check::ok(name, message).with_fix(format!("`toolcrib enable {}` turns it on", source.id))];
    }
    if desk.registry.forbidden().contains_key(&source.id) {
        return vec![Check::warn(&name, "not contacted, because its file is not trusted", "`toolcrib trust`")];
    }
    let definition = desk.registry.definition(&source.id);
    let mut checks: Vec<Check> = match definition.as_deref() {
        Some(definition) => unreachable(&name, definition),
        None => Vec::new(),
    };
    if checks.is_empty() {
        checks.push(standing(&name, source, probed));
    }
    checks.extend(set_aside(desk, source));
    checks
}

/// What can be seen without asking the source: references that lead nowhere, programs and directories that are not there.
fn unreachable(name: &str, source: &Source) -> Vec<Check> {
    let mut checks: Vec<Check> = unresolved(&source.kind)
        .into_iter()
        .map(|message| {
            let fix = remedy::for_reference(&message);
            Check::fail(name, message, Some(fix))
        })
        .collect();
    // Messages show what is declared: the values of references are secret.
    if let (Ok(Kind::Stdio(stdio)), Kind::Stdio(declared)) = (secret::resolve_kind(&source.kind), &source.kind) {
        if stdio.cwd.as_ref().is_some_and(|cwd| !std::path::Path::new(cwd).is_dir()) {
            let fix = "make the directory, or correct `cwd`".to_owned();
            let declared = declared.cwd.as_deref().map(shown_text).unwrap_or_default();
            checks.push(Check::fail(name, format!("its `cwd` `{declared}` is not a directory"), Some(fix)));
        } else if !remedy::is_there(&stdio) {
            let command = shown_text(&declared.command);
            let message = format!("its command `{}` is not found", shown_short(&command, 120));
            checks.push(Check::fail(name, message, Some(remedy::for_command(&command))));
        }
    }
    checks
}

/// Every reference in a declaration that cannot be filled here, in words.
fn unresolved(kind: &Kind) -> BTreeSet<String> {
    fn walk(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                for piece in reference::pieces(text) {
                    let Piece::Reference(reference) = piece else { continue };
                    into.extend(secret::resolve(&reference.to_string()).err().map(|error| error.message));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, into)),
            Value::Object(fields) => fields.values().for_each(|field| walk(field, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut unresolved = BTreeSet::new();
    walk(&serde_json::to_value(kind).unwrap_or_default(), &mut unresolved);
    unresolved
}

fn standing(name: &str, source: &SourceView, probed: Option<&Outcome>) -> Check {
    let id = &source.id;
    let health = word(&source.health);
    let answered = probed.map(|outcome| match outcome.status {
        Refreshed::Success | Refreshed::Unchanged if outcome.contacted => {
            format!(", answered in {} ms", outcome.elapsed_ms)
        }
        Refreshed::Success | Refreshed::Unchanged | Refreshed::Fresh | Refreshed::Failed | Refreshed::Disabled => {
            String::new()
        }
    });
    let answered = answered.unwrap_or_default();
    let tools = counted(source.tool_count, "tool");
    if source.status == Status::Failed {
        let failure = source.last_error.as_ref();
        let reason = failure.map_or("no reason is known", |failure| failure.message.as_str());
        let kept = match (source.tool_count, source.last_checked) {
            (0, _) | (_, None) => String::new(),
            (_, Some(at)) => format!("; the {tools} it had {} are still listed", ago(at)),
        };
        let fix = remedy::for_failure(source);
        return Check::fail(name, format!("failed, health {health}: {reason}{kept}"), Some(fix));
    }
    let checked = source.last_checked.map_or_else(|| "never checked".to_owned(), |at| format!("checked {}", ago(at)));
    let message = format!("{tools}, health {health}, {checked}{answered}");
    match (source.status, source.freshness) {
        (Status::Discovering, _) => Check::ok(name, format!("is being discovered now; {message}")),
        (_, Freshness::Fresh) => Check::ok(name, message),
        (_, Freshness::Stale) => {
            let fix = format!("served from the cache; `toolcrib refresh {id}` asks again");
            Check::ok(name, format!("{message}, stale")).with_fix(fix)
        }
        (_, Freshness::Missing) => {
            let fix = format!("`toolcrib refresh {id}` discovers it now; otherwise the first need does");
            Check::warn(name, "was never discovered", fix)
        }
    }
}

/// Tools that a source offers and agents do not get: set aside for what they are, or because a built-in has their name.
fn set_aside(desk: &Desk, source: &SourceView) -> Vec<Check> {
    let catalog = desk.registry.catalog();
    let own = catalog.part(&source.id).map(|part| part.segment.set_aside().to_vec()).unwrap_or_default();
    let (refused, shadowed): (Vec<&SetAside>, Vec<&SetAside>) =
        source.set_aside.iter().partition(|tool| own.contains(tool));
    let name = format!("tools of {}", source.id);
    let mut checks: Vec<Check> = refused
        .iter()
        .map(|tool| {
            let message = format!("`{}` is set aside: {}", shown_short(&tool.name, 80), tool.reason);
            Check::warn(&name, message, "only its maker can put it right; the other tools are not affected")
        })
        .collect();
    if !shadowed.is_empty() {
        let names: Vec<String> = shadowed.iter().map(|tool| format!("`{}`", shown_short(&tool.name, 80))).collect();
        let message = format!("left out, for built-in tools have these names: {}", names.join(", "));
        checks.push(Check::warn(&name, message, "`on_conflict: keep` on the source keeps both"));
    }
    checks
}
