//! `toolcrib config`: what all files, commands and variables come to, with the origin of each value. Nothing secret.

mod readable;

use clap::Args;
use serde_json::{Map, Value, json};
use toolcrib::core::config::show::{show, show_keys, shown_url};
use toolcrib::core::inventory::Origin;
use toolcrib::core::text::shown;
use toolcrib::{Result, SourceId};

use crate::arguments::Common;
use crate::desk::Desk;
use crate::exit::Done;
use crate::output;

/// Show the merged configuration and where each value comes from
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  toolcrib config\n  toolcrib config --json | jq .defaults.ttl")]
pub(crate) struct Arguments {}

pub(crate) async fn run(common: &Common, _: Arguments) -> Result<Done> {
    let desk = Desk::look(common).await?;
    let merged = merged(&desk).await;
    desk.close().await;
    let merged = merged?;
    match common.json {
        true => output::json(&merged)?,
        false => output::line(&readable::dimmed(&shown(&readable::text(&merged)), output::coloured()))?,
    }
    Ok(Done::Well)
}

async fn merged(desk: &Desk) -> Result<Value> {
    let mut merged = show(&desk.found.config);
    let mut sources: Map<String, Value> = Map::new();
    for (_, source) in desk.registry.declarations().await?.iter().filter(|(origin, _)| *origin == Origin::Runtime) {
        let mut keys = show_keys(source);
        keys["origin"] = json!("runtime");
        sources.insert(source.id.to_string(), keys);
    }
    if let Some(configured) = merged["sources"].as_object() {
        sources.extend(configured.clone());
    }
    sources.sort_keys();
    let overrides: Map<String, Value> = desk
        .registry
        .inventory()
        .sources()
        .map(|(id, _)| (id.to_string(), overriding(desk, id)))
        .filter(|(_, changes)| !changes.is_empty())
        .map(|(id, changes)| (id, changes.into()))
        .collect();
    merged["sources"] = sources.into();
    merged["overrides"] = overrides.into();
    merged["files"] = json!(desk.found.files);
    merged["data"] = json!(desk.data);
    Ok(merged)
}

/// What goes before a source's declaration: a command, and before that the environment.
fn overriding(desk: &Desk, id: &SourceId) -> Map<String, Value> {
    let mut changes = Map::new();
    let inventory = desk.registry.inventory();
    if let Some(state) = inventory.source(id).filter(|state| state.enabled != state.declared_enabled.unwrap_or(true)) {
        changes.insert("enabled".into(), json!({ "value": state.enabled, "origin": "command" }));
    }
    let Some(environment) = desk.registry.overriding(id) else { return changes };
    let variable = |what: &str| format!("TOOLCRIB_SOURCE_{}_{what}", id.as_str().to_uppercase());
    if let Some(enabled) = environment.enabled {
        changes.insert("enabled".into(), json!({ "value": enabled, "origin": variable("ENABLED") }));
    }
    if let Some(url) = environment.url {
        changes.insert("url".into(), json!({ "value": shown_url(&url), "origin": variable("URL") }));
    }
    if environment.token.is_some() {
        changes.insert("token".into(), json!({ "value": "***", "origin": variable("TOKEN") }));
    }
    changes
}
