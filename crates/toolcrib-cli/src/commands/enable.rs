//! `toolcrib enable` and `toolcrib disable`: sources by their id, tools by any spelling of their name.

use clap::Args;
use serde_json::json;
use toolcrib::core::inventory::Inventory;
use toolcrib::core::text::closest_match;
use toolcrib::core::tool::{ParsedToolName, SEPARATOR, parse_tool_name};
use toolcrib::core::{ToolId, ToolName};
use toolcrib::registry::{EnableTarget, EnabledState};
use toolcrib::{Code, Error, Result, SourceId};

use crate::arguments::CommonArguments;
use crate::exit::CommandOutcome;
use crate::output;
use crate::session::CliSession;

/// Enable sources or single tools
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  toolcrib enable github\n  toolcrib enable github__delete_repository files/write_file"
)]
pub(crate) struct EnableArguments {
    /// A source's id, or a tool as `source__tool`, `source/tool`, or by its own name when it is unique
    #[arg(value_name = "SOURCE-OR-TOOL", required = true)]
    names: Vec<String>,
}

/// Disable sources or single tools: agents see them no longer, and they stay known
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  toolcrib disable github\n  toolcrib disable github__delete_repository files/write_file"
)]
pub(crate) struct DisableArguments {
    /// A source's id, or a tool as `source__tool`, `source/tool`, or by its own name when it is unique
    #[arg(value_name = "SOURCE-OR-TOOL", required = true)]
    names: Vec<String>,
}

pub(crate) async fn enable(common: &CommonArguments, arguments: EnableArguments) -> Result<CommandOutcome> {
    run(common, &arguments.names, EnabledState::Enabled).await
}

pub(crate) async fn disable(common: &CommonArguments, arguments: DisableArguments) -> Result<CommandOutcome> {
    run(common, &arguments.names, EnabledState::Disabled).await
}

async fn run(common: &CommonArguments, names: &[String], switch: EnabledState) -> Result<CommandOutcome> {
    let session = CliSession::open_offline(common).await?;
    let result = set_all_enabled(&session, names, switch).await;
    session.close().await;
    result?;
    Ok(CommandOutcome::Success)
}

/// All names are understood before anything changes.
async fn set_all_enabled(session: &CliSession, names: &[String], switch: EnabledState) -> Result<()> {
    // Before names are looked up: those of a damaged journal may be lost.
    if let Some(damaged) = session.registry.damage_error() {
        return Err(damaged);
    }
    let sources: Vec<SourceId> = names.iter().filter_map(|name| find_source(session, name).ok().flatten()).collect();
    let targets = names.iter().map(|name| resolve_target(session, name, &sources)).collect::<Result<Vec<_>>>()?;
    for target in targets {
        set_enabled(session, target, switch).await?;
    }
    Ok(())
}

async fn set_enabled(session: &CliSession, target: EnableTarget, switch: EnabledState) -> Result<()> {
    let switched = session.registry.set_enabled(target, switch, CliSession::actor()).await?;
    let name = switched.target.name();
    let already = if switched.changed { "" } else { "already " };
    if session.common.json {
        output::print_json(&switched)?
    } else {
        output::print_line(&format!("{name}: {already}{}", switch.as_str()))?
    }
    if let EnableTarget::Source(id) = &switched.target {
        hint_override(session, id);
    }
    Ok(())
}

/// The environment goes before a command, so that somebody may wonder why nothing happens.
fn hint_override(session: &CliSession, id: &SourceId) {
    let Some(enabled) = session.registry.source_override(id).and_then(|overriding| overriding.enabled) else { return };
    let variable = id.as_str().to_uppercase();
    let state = if enabled { "enabled" } else { "disabled" };
    session.common.hint(&format!(
        "hint: `TOOLCRIB_SOURCE_{variable}_ENABLED` is set and wins here: `{id}` is {state} in this environment"
    ));
}

/// What a name stands for, where `sources` are named with it.
fn resolve_target(session: &CliSession, name: &str, sources: &[SourceId]) -> Result<EnableTarget> {
    let qualified = matches!(parse_tool_name(name)?, ParsedToolName::Qualified { .. });
    if !qualified && let Some(source) = find_source(session, name)? {
        return Ok(EnableTarget::Source(source));
    }
    let catalog = session.registry.catalog();
    match catalog.find(name) {
        Ok(tool) => Ok(EnableTarget::Tool(tool.id(), tool.name().clone())),
        Err(error) if error.code == Code::ToolNotImplemented => {
            find_tool_in_sources(&session.registry.inventory(), name, sources)
                .ok_or_else(|| unknown_name_error(session, name, sources, error))
        }
        Err(error) => Err(error),
    }
}

fn find_source(session: &CliSession, name: &str) -> Result<Option<SourceId>> {
    let Some(id) = SourceId::from_name(name).ok().filter(|id| session.registry.source(id).is_some()) else {
        return Ok(None);
    };
    if session.registry.inventory().source(&id).is_none() {
        if let Some(reason) = session.registry.blocked_sources().get(&id) {
            return Err(Error::new(Code::Forbidden, reason.clone()));
        }
        let place = session.loaded_config.declared_at(&id).unwrap_or_default();
        let message = format!("`{id}` is stated wrongly in `{place}`; `toolcrib sources` says how");
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    Ok(Some(id))
}

/// A tool of a source that is named with it. While that source is disabled, only the inventory knows its tools.
fn find_tool_in_sources(inventory: &Inventory, name: &str, sources: &[SourceId]) -> Option<EnableTarget> {
    let (of, tool) = match parse_tool_name(name).ok()? {
        ParsedToolName::Qualified { source, tool } => (Some(SourceId::from_name(source).ok()?), tool),
        ParsedToolName::Bare(tool) => (None, tool),
    };
    let meant = sources.iter().filter(|id| of.as_ref().is_none_or(|of| of == *id));
    let mut found = meant.filter_map(|id| {
        let state = inventory.source(id)?;
        let prefix = if state.kind == "builtin" { String::new() } else { format!("{id}{SEPARATOR}") };
        let offered = || state.tools.iter().filter(|(_, state)| !state.deprecated).map(|(own, _)| own);
        // As a catalogue names them: who is called so goes before who is only made into it.
        let made = |make: fn(&str, &str) -> ToolName| {
            offered().find(|own| make(&prefix, own).as_str().strip_prefix(&prefix) == Some(tool)).map(|own| (own, make))
        };
        let exact =
            offered().find(|own| *own == tool).map(|own| (own, ToolName::from_original as fn(&str, &str) -> ToolName));
        let (own, make) = exact.or_else(|| made(ToolName::from_original)).or_else(|| made(ToolName::with_hash))?;
        Some(EnableTarget::Tool(ToolId { source: id.clone(), name: own.clone() }, make(&prefix, own)))
    });
    found.next().filter(|_| found.next().is_none())
}

/// Why the catalogue does not have it: its source is disabled or was never asked, or the name is wrong.
fn unknown_name_error(session: &CliSession, name: &str, sources: &[SourceId], error: Error) -> Error {
    let inventory = session.registry.inventory();
    let refuse = |message: String| Error::new(Code::Conflict, message).with_retryable(false);
    let Ok(ParsedToolName::Qualified { source, .. }) = parse_tool_name(name) else {
        return match find_disabled_owner(&inventory, name) {
            Some(id) => refuse(disabled_message(id)),
            None => not_found_error(session, name, error),
        };
    };
    let Some(view) = SourceId::from_name(source).ok().and_then(|id| session.registry.source(&id)) else { return error };
    match (view.enabled, view.inventory_hash) {
        // Whoever names the source too has asked for a tool that it does not have.
        (false, Some(_)) if sources.contains(&view.id) => error,
        (false, _) => refuse(disabled_message(&view.id)),
        (true, None) => refuse(format!("`{0}` has not been discovered yet; run `toolcrib refresh {0}` first", view.id)),
        (true, Some(_)) => error,
    }
}

/// A disabled source that has a tool of this name.
fn find_disabled_owner<'a>(inventory: &'a Inventory, tool: &str) -> Option<&'a SourceId> {
    let offers =
        |state: &toolcrib::core::inventory::SourceState| state.tools.get(tool).is_some_and(|state| !state.deprecated);
    inventory.sources().find(|(_, state)| !state.enabled && offers(state)).map(|(id, _)| id)
}

fn disabled_message(id: &SourceId) -> String {
    format!("`{id}` is disabled, and all its tools with it; run `toolcrib enable {id}` first")
}

/// Neither a source nor a tool, with what comes near.
fn not_found_error(session: &CliSession, name: &str, error: Error) -> Error {
    let sources = session.registry.sources();
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
