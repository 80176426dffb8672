//! Finds the tool of a call by its name, and explains why there is none: unknown, hidden, or of a source that is disabled,
//! not trusted or was never discovered.
//!
//! Decided in memory, without waiting. Next steps are given as a command; REST responses name the route instead
//! (`Error::with_next_step`).

use toolcrib_catalog::ToolRef;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::policy::Verdict;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::{ParsedToolName, parse_tool_name};
use toolcrib_core::{Code, Error, Result, SourceId, Timestamp};

use crate::state::Snapshot;

/// Finds a tool by name. The error says why there is none: unknown, hidden, or of a source that is disabled or was
/// never discovered. A hidden tool gets the same error as one that does not exist.
pub(crate) fn find_tool<'a>(snapshot: &'a Snapshot, name: &str, now: Timestamp) -> Result<ToolRef<'a>> {
    let catalog = &snapshot.catalog;
    match catalog.find(name) {
        Ok(tool) if tool.verdict() == Verdict::Hide => Err(catalog.unknown_tool_error(name)),
        Err(error) if error.code == Code::ToolNotImplemented => {
            Err(explain_unknown_tool(snapshot, name, now).unwrap_or(error))
        }
        found => found,
    }
}

/// Returns a more specific error than "unknown tool" if the source in the name is known. `None` keeps the error of
/// the catalogue, which suggests similar names.
fn explain_unknown_tool(snapshot: &Snapshot, name: &str, now: Timestamp) -> Option<Error> {
    match parse_tool_name(name).ok()? {
        ParsedToolName::Qualified { source, .. } => explain_source(snapshot, &SourceId::from_name(source).ok()?, now),
        ParsedToolName::Bare(_) => explain_bare_name(snapshot, name, now),
    }
}

/// Returns an error that lists undiscovered sources, for a bare name: the tool may belong to any of them, so none
/// is discovered for it.
fn explain_bare_name(snapshot: &Snapshot, name: &str, now: Timestamp) -> Option<Error> {
    // Enough to recognise the missing source; the command in the message discovers all of them.
    const MAX_LISTED_SOURCES: usize = 5;
    let enabled = snapshot.enabled_sources();
    // The tool may belong to one of these.
    let undiscovered: Vec<&SourceId> =
        enabled.map(|(id, _)| id).filter(|id| snapshot.freshness(id, now) == Freshness::Missing).collect();
    if undiscovered.is_empty() {
        return None;
    }
    let listed: Vec<String> = undiscovered.iter().take(MAX_LISTED_SOURCES).map(|id| format!("`{id}`")).collect();
    let more = if undiscovered.len() > MAX_LISTED_SOURCES { " and others" } else { "" };
    let message = format!(
        "no tool named `{}`; not discovered yet: {}{more}; call it as `SOURCE__TOOL`, or discover them",
        sanitize_truncated(name, 80),
        listed.join(", ")
    );
    let error = Error::new(Code::ToolNotImplemented, message);
    Some(error.with_next_step("toolcrib refresh", "POST /api/refresh", "discovers all sources"))
}

/// Returns why the tools of a source are unknown, or `None` if they are known.
pub(crate) fn explain_source(snapshot: &Snapshot, id: &SourceId, now: Timestamp) -> Option<Error> {
    // In the order of what the user has to do first: trust, fix, enable, refresh.
    if let Err(untrusted) = snapshot.ensure_trusted(id) {
        return Some(untrusted);
    }
    if let Some(invalid) = snapshot.invalid_sources.get(id) {
        let message = format!("the configuration of `{id}` is invalid: {}", invalid.message);
        return Some(Error::new(Code::ToolUnavailable, message).with_retryable(false));
    }
    let state = snapshot.inventory.source(id)?;
    if !snapshot.environment.is_enabled(id, state) {
        return Some(disabled_source_error(id));
    }
    if snapshot.freshness(id, now) != Freshness::Missing {
        return None;
    }
    // The last failure says more than the fact that no list is known.
    let reason = snapshot.statuses.get(id).and_then(|status| status.last_error.clone());
    let reason = reason.map_or_else(|| "it was never discovered".to_owned(), |failure| failure.message);
    let error = Error::new(Code::ToolUnavailable, format!("the tools of `{id}` are unknown: {reason}"));
    let route = format!("POST /api/sources/{id}/refresh");
    Some(error.with_next_step(&format!("toolcrib refresh {id}"), &route, "tries again"))
}

/// Returns the error for a request to a disabled source.
pub(super) fn disabled_source_error(id: &SourceId) -> Error {
    let error = Error::new(Code::ToolNotImplemented, format!("the source `{id}` is disabled"));
    let route = format!("POST /api/sources/{id}/enable");
    error.with_next_step(&format!("toolcrib enable {id}"), &route, "enables it")
}
