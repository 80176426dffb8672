//! Finds the tool of a call by its name, and explains why there is none: unknown, hidden, skipped, removed, or of a
//! source that is disabled, not trusted or was never discovered.
//!
//! Decided in memory, without waiting. Next steps are given as a command; REST responses name the route instead, and MCP
//! responses the meta tool (`Error::with_next_step`).

use std::sync::Arc;

use serde_json::json;
use toolcrib_catalog::{ToolRef, View};
use toolcrib_core::access_rules::Audience;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::inventory::history::ToolMatcher;
use toolcrib_core::policy::Verdict;
use toolcrib_core::principal::{Principal, ViewNarrowing};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::{ParsedToolName, ToolName, parse_tool_name};
use toolcrib_core::{Code, Error, Result, SourceId, Timestamp, ToolId};

use super::policy::denied_error;
use crate::registry::Visibility;
use crate::state::Snapshot;

/// Finds a tool by name, for a call of a principal. The error says why there is none: unknown, hidden, or of a source
/// that is disabled or was never discovered. A hidden tool, and one outside the principal's groups, gets the same error
/// as one that does not exist. A denied tool is found.
pub(crate) fn find_tool<'v>(
    snapshot: &Arc<Snapshot>,
    view: &'v View,
    caller: &Principal,
    name: &str,
    now: Timestamp,
) -> Result<ToolRef<'v>> {
    let unknown = || {
        let visibility = Visibility::new(snapshot.clone(), &as_agent(caller));
        let error = explain_unknown_tool(&visibility, name, now);
        error.unwrap_or_else(|| visibility.view().unknown_tool_error(name))
    };
    match view.find_included(name) {
        Ok(tool) if tool.verdict() == Verdict::Hide => Err(unknown()),
        Err(error) if error.code == Code::ToolNotImplemented => Err(unknown()),
        // A bare name of several tools: those that are denied do not count, and are not named as candidates.
        Err(error) if error.code == Code::ToolInvalidInput => {
            match snapshot.view(&as_agent(caller)).find(name).map(|tool| tool.name().clone()) {
                Ok(visible) => view.find_included(visible.as_str()),
                Err(error) if error.code == Code::ToolNotImplemented => Err(unknown()),
                Err(error) => Err(error),
            }
        }
        found => found,
    }
}

/// Like [`find_tool`], for reading: administrators find hidden tools too, everyone else no denied ones.
pub(crate) fn find_readable_tool<'v>(
    snapshot: &Arc<Snapshot>,
    view: &'v View,
    reader: &Principal,
    name: &str,
    now: Timestamp,
) -> Result<ToolRef<'v>> {
    if snapshot.scope(reader).audience() == Audience::Agents {
        let tool = find_tool(snapshot, view, reader, name, now)?;
        return if tool.verdict() == Verdict::Deny {
            Err(denied_error(&tool, &snapshot.scope(reader)))
        } else {
            Ok(tool)
        };
    }
    match view.find(name) {
        Err(error) if error.code == Code::ToolNotImplemented => {
            let visibility = Visibility::new(snapshot.clone(), reader);
            Err(explain_unknown_tool(&visibility, name, now).unwrap_or(error))
        }
        found => found,
    }
}

/// The principal as it reads like an agent: without denied and hidden tools.
fn as_agent(principal: &Principal) -> Principal {
    principal.narrowed(ViewNarrowing { as_agent: true, ..principal.narrowing().clone() })
}

/// Returns a more specific error than "unknown tool" if the source in the name is known and visible. `None` keeps the
/// error of the catalogue, which suggests similar names.
fn explain_unknown_tool(visibility: &Visibility, name: &str, now: Timestamp) -> Option<Error> {
    match parse_tool_name(name).ok()? {
        ParsedToolName::Qualified { source, tool } => {
            let id = SourceId::from_name(source).ok().filter(|id| visibility.shows_source(id));
            let explained = id.and_then(|id| {
                explain_source(visibility.snapshot(), &id, now).or_else(|| explain_skipped(visibility, &id, tool))
            });
            explained.or_else(|| explain_removed(visibility, name))
        }
        ParsedToolName::Bare(_) => {
            explain_removed(visibility, name).or_else(|| explain_bare_name(visibility, name, now))
        }
    }
}

/// Returns an error that says why a tool of a source is skipped; `None` for one that it does not offer, or that a rule
/// keeps from agents.
fn explain_skipped(visibility: &Visibility, id: &SourceId, name: &str) -> Option<Error> {
    let prefix = visibility.snapshot().catalog.source(id)?.segment.prefix();
    let tool = ToolName::from_original(prefix, name);
    let skipped = visibility.skipped_tools(id);
    let skipped = skipped.iter().find(|skipped| ToolName::from_original(prefix, &skipped.name) == tool)?;
    let error = Error::new(Code::ToolNotImplemented, format!("`{tool}` is skipped: {}", skipped.reason));
    let route = format!("GET /api/sources/{id}");
    Some(error.with_next_step("toolcrib doctor", &route, "lists all skipped tools"))
}

/// Returns an error that says when a tool was removed, or that a removed tool is denied; `None` for a name that no source
/// ever offered, or that a rule hides.
fn explain_removed(visibility: &Visibility, name: &str) -> Option<Error> {
    let snapshot = visibility.snapshot();
    let matcher = match visibility.match_tool(&snapshot.inventory, name, |tool| tool.deprecated) {
        Err(error) if error.code == Code::Forbidden => return Some(error),
        matcher => matcher.ok()?,
    };
    let ToolMatcher::Tool(ToolId { source: id, name: original }) = matcher else { return None };
    if !visibility.shows_source(&id) {
        return None;
    }
    let removed_at = snapshot.inventory.source(&id)?.tools.get(&original)?.updated_at;
    let tool = snapshot.tool_names(&id).name(&original);
    let message = format!("`{tool}` was removed at {removed_at}: its source `{id}` no longer offers it");
    // Other tools may have taken its place.
    let near = visibility.view().unknown_tool_error(name).details.map(|details| details["near"].clone());
    let details = json!({ "removed_at": removed_at, "near": near.unwrap_or_default() });
    let error = Error::new(Code::ToolNotImplemented, message).with_details(details);
    let route = format!("GET /api/tools/{tool}");
    let error = error.with_next_step(&format!("toolcrib describe {tool}"), &route, "shows its last definition");
    Some(error.with_meta_tool("describe_tools"))
}

/// Returns an error that lists undiscovered sources, for a bare name: the tool may belong to any of them, so none
/// is discovered for it.
fn explain_bare_name(visibility: &Visibility, name: &str, now: Timestamp) -> Option<Error> {
    // Enough to recognise the missing source; the command in the message discovers all of them.
    const MAX_LISTED_SOURCES: usize = 5;
    let snapshot = visibility.snapshot();
    let enabled = snapshot.enabled_sources().map(|(id, _)| id);
    // The tool may belong to one of these. Those of other nodes are not discovered here.
    let here = enabled.filter(|id| snapshot.ensure_may_start(id).is_ok());
    let undiscovered = here.filter(|id| snapshot.freshness(id, now) == Freshness::Missing);
    let undiscovered: Vec<&SourceId> = undiscovered.filter(|id| visibility.shows_source(id)).collect();
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
    if let Err(elsewhere) = snapshot.ensure_may_start(id) {
        return Some(elsewhere);
    }
    // The last failure says more than the fact that no list is known.
    let failure = snapshot.statuses.get(id).and_then(|status| status.last_error.clone());
    // A missing login does not go away by itself, so that trying again is of no use.
    let code = match &failure {
        Some(failure) if failure.code == Code::AuthRequired => Code::AuthRequired,
        Some(_) | None => Code::ToolUnavailable,
    };
    let reason = failure.map_or_else(|| "it was never discovered".to_owned(), |failure| failure.message);
    let error = Error::new(code, format!("the tools of `{id}` are unknown: {reason}"));
    let route = format!("POST /api/sources/{id}/refresh");
    Some(error.with_next_step(&format!("toolcrib refresh {id}"), &route, "tries again"))
}

/// Returns the error for a request to a disabled source.
pub(super) fn disabled_source_error(id: &SourceId) -> Error {
    let error = Error::new(Code::ToolNotImplemented, format!("the source `{id}` is disabled"));
    let route = format!("POST /api/sources/{id}/enable");
    error.with_next_step(&format!("toolcrib enable {id}"), &route, "enables it")
}
