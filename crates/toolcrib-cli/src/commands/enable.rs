//! `toolcrib enable` and `toolcrib disable`: switch sources (by id) and tools (by any spelling of their name) on and off.
//!
//! A name is looked up as a source first, then as a tool of the catalogue. The catalogue has no tools of disabled
//! sources, so `enable SOURCE SOURCE__TOOL` also searches the inventory of the sources that are named on the same
//! command line. All names are resolved before the first change: an unknown name changes nothing.

use clap::Args;
use serde_json::json;
use toolcrib::core::inventory::Inventory;
use toolcrib::core::text::closest_match;
use toolcrib::core::tool::{ParsedToolName, name_prefix, parse_tool_name};
use toolcrib::core::{ToolId, ToolName};
use toolcrib::registry::{EnableTarget, EnabledState};
use toolcrib::{Code, Error, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::session::CliSession;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A source's id, or a tool as `source__tool`, `source/tool`, or by its own name when it is unique
    #[arg(value_name = "SOURCE-OR-TOOL", required = true)]
    names: Vec<String>,
}

/// Switches the named sources and tools. Offline: no source is contacted.
pub(crate) async fn run(common: &CommonArguments, arguments: Arguments, new_state: EnabledState) -> Result<()> {
    let session = CliSession::open_offline(common).await?;
    session.run_and_close(async |session| set_all_enabled(session, &arguments.names, new_state).await).await
}

/// Resolves all names first, so that an unknown one changes nothing.
async fn set_all_enabled(session: &CliSession, names: &[String], new_state: EnabledState) -> Result<()> {
    // A damaged journal may have lost sources and tools; say that rather than "no source or tool named …".
    if let Some(error) = session.registry.store().damage_error() {
        return Err(error);
    }
    // Sources named here count as enabled when tools are resolved: `enable github github__create_issue`.
    let sources: Vec<SourceId> = names.iter().filter_map(|name| find_source(session, name).ok().flatten()).collect();
    let targets = names.iter().map(|name| resolve_target(session, name, &sources)).collect::<Result<Vec<_>>>()?;
    for target in targets {
        set_enabled(session, target, new_state).await?;
    }
    Ok(())
}

/// Switches one source or tool and prints the result. Switching to the current state writes no record and is printed
/// as `already`.
async fn set_enabled(session: &CliSession, target: EnableTarget, new_state: EnabledState) -> Result<()> {
    let outcome = session.registry.sources().set_enabled(target, new_state, CliSession::actor()).await?;
    let name = outcome.target.name();
    let already = if outcome.changed { "" } else { "already " };
    session.common.print(&outcome, || format!("{name}: {already}{}", new_state.as_str()))?;
    if let EnableTarget::Source(id) = &outcome.target {
        hint_override(session, id);
    }
    Ok(())
}

/// Prints a hint if an environment variable overrides the state, so that the command seems to have no effect.
fn hint_override(session: &CliSession, id: &SourceId) {
    let Some(enabled) = session.registry.sources().environment_override(id).and_then(|overriding| overriding.enabled)
    else {
        return;
    };
    let variable = id.as_str().to_uppercase();
    let state = if enabled { "enabled" } else { "disabled" };
    session.common.hint(&format!(
        "hint: `TOOLCRIB_SOURCE_{variable}_ENABLED` is set and takes precedence: `{id}` is {state} in this environment"
    ));
}

/// Resolves a name to a source or a tool; `sources` are the sources named on the same command line.
fn resolve_target(session: &CliSession, name: &str, sources: &[SourceId]) -> Result<EnableTarget> {
    let is_qualified = matches!(parse_tool_name(name)?, ParsedToolName::Qualified { .. });
    if !is_qualified && let Some(source) = find_source(session, name)? {
        return Ok(EnableTarget::Source(source));
    }
    let catalog = session.registry.unrestricted_catalog();
    match catalog.find(name) {
        Ok(tool) => Ok(EnableTarget::Tool(tool.id(), tool.name().clone())),
        Err(error) if error.code == Code::ToolNotImplemented => {
            find_tool_in_sources(&session.registry.inventory(), name, sources)
                .ok_or_else(|| unknown_name_error(session, name, sources, error))
        }
        Err(error) => Err(error),
    }
}

/// Returns the source with this name, or `None`; an error if it exists but cannot be switched.
fn find_source(session: &CliSession, name: &str) -> Result<Option<SourceId>> {
    let Some(id) = SourceId::from_name(name).ok().filter(|id| session.registry.sources().get(id).is_some()) else {
        return Ok(None);
    };
    // Known to the configuration but not to the journal: blocked by missing trust, or invalid.
    if session.registry.inventory().source(&id).is_none() {
        if let Some(reason) = session.registry.sources().blocked().get(&id) {
            return Err(Error::new(Code::Forbidden, reason.clone()));
        }
        let location = session.loaded_config.declared_at(&id).unwrap_or_default();
        let message = format!("`{id}` has an invalid declaration in `{location}`; `toolcrib sources` shows the error");
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    Ok(Some(id))
}

/// Finds a tool in the inventory of the named sources. The catalogue does not list tools of disabled sources, but
/// `enable SOURCE SOURCE__TOOL` must find them. Returns `None` if several sources have the tool.
fn find_tool_in_sources(inventory: &Inventory, name: &str, sources: &[SourceId]) -> Option<EnableTarget> {
    let (source, tool) = match parse_tool_name(name).ok()? {
        ParsedToolName::Qualified { source, tool } => (Some(SourceId::from_name(source).ok()?), tool),
        ParsedToolName::Bare(tool) => (None, tool),
    };
    let candidates = sources.iter().filter(|id| source.as_ref().is_none_or(|source| source == *id));
    let mut matches = candidates.filter_map(|id| {
        let state = inventory.source(id)?;
        let prefix = name_prefix(id, &state.kind);
        let tool_names = || state.tools.iter().filter(|(_, state)| !state.deprecated).map(|(original, _)| original);
        // The same order as in the catalogue: an exact original name, then a sanitized one, then one with a hash.
        let find_by = |make: fn(&str, &str) -> ToolName| {
            let is_match = |original: &&String| make(&prefix, original).as_str().strip_prefix(&prefix) == Some(tool);
            tool_names().find(is_match).map(|original| (original, make))
        };
        let exact = tool_names()
            .find(|original| *original == tool)
            .map(|original| (original, ToolName::from_original as fn(&str, &str) -> ToolName));
        let (original, make) =
            exact.or_else(|| find_by(ToolName::from_original)).or_else(|| find_by(ToolName::with_hash))?;
        Some(EnableTarget::Tool(ToolId { source: id.clone(), name: original.clone() }, make(&prefix, original)))
    });
    matches.next().filter(|_| matches.next().is_none())
}

/// Explains why the catalogue has no such tool: its source is disabled or was never discovered, or the name is unknown.
fn unknown_name_error(session: &CliSession, name: &str, sources: &[SourceId], error: Error) -> Error {
    let inventory = session.registry.inventory();
    let conflict = |message: String| Error::new(Code::Conflict, message).with_retryable(false);
    let Ok(ParsedToolName::Qualified { source, .. }) = parse_tool_name(name) else {
        return match find_disabled_owner(&inventory, name) {
            Some(id) => conflict(disabled_message(id)),
            None => not_found_error(session, name, error),
        };
    };
    // The name says which source is meant; explain its state rather than the missing tool.
    let Some(view) = SourceId::from_name(source).ok().and_then(|id| session.registry.sources().get(&id)) else {
        return error;
    };
    match (view.enabled, view.inventory_hash) {
        // The source is named as well, so it is about to be enabled: the tool itself is unknown.
        (false, Some(_)) if sources.contains(&view.id) => error,
        (false, _) => conflict(disabled_message(&view.id)),
        (true, None) => {
            conflict(format!("`{0}` has not been discovered yet; run `toolcrib refresh {0}` first", view.id))
        }
        (true, Some(_)) => error,
    }
}

/// Returns a disabled source that has a tool with this name.
fn find_disabled_owner<'a>(inventory: &'a Inventory, tool: &str) -> Option<&'a SourceId> {
    let offers =
        |state: &toolcrib::core::inventory::SourceState| state.tools.get(tool).is_some_and(|state| !state.deprecated);
    inventory.sources().find(|(_, state)| !state.enabled && offers(state)).map(|(id, _)| id)
}

/// The error message for a tool of a disabled source.
fn disabled_message(id: &SourceId) -> String {
    format!("`{id}` is disabled, and all its tools with it; run `toolcrib enable {id}` first")
}

/// The error for a name of neither a source nor a tool, with similar names.
fn not_found_error(session: &CliSession, name: &str, error: Error) -> Error {
    // Suggest sources and tools alike; the lookup error has the similar tool names.
    let sources = session.registry.sources().list();
    let near_source = closest_match(name, sources.iter().map(|source| source.id.as_str())).map(str::to_owned);
    let details = error.details.unwrap_or_default();
    let near_tools = details["near"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
    let near: Vec<String> = near_source.into_iter().chain(near_tools.map(str::to_owned)).collect();
    let hint = match &near[..] {
        [] => "; `toolcrib sources` and `toolcrib tools` list them".to_owned(),
        near => format!("; did you mean `{}`?", near.join("` or `")),
    };
    let name = toolcrib::core::text::sanitize_truncated(name, 80);
    Error::new(Code::NotFound, format!("no source or tool named `{name}`{hint}")).with_details(json!({ "near": near }))
}
