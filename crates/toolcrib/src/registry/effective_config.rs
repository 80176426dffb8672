//! The configuration as it holds: what all files, commands and variables come to, with the origin of each value.
//! Nothing secret is in it.

use std::path::Path;

use serde_json::{Map, Value, json};
use toolcrib_core::SourceId;
use toolcrib_core::config::show::{mask_url, show_config, show_source_keys};
use toolcrib_core::inventory::Origin;

use super::Registry;
use crate::config_file::LoadedConfig;

impl Registry {
    /// As `toolcrib config --json` prints it and `GET /api/config` answers. `data` is the data directory.
    pub fn effective_config(&self, found: &LoadedConfig, data: &Path) -> Value {
        let mut merged = show_config(&found.config);
        let mut sources: Map<String, Value> = Map::new();
        for (_, source) in self.declarations().iter().filter(|(origin, _)| *origin == Origin::Runtime) {
            let mut keys = show_source_keys(source);
            keys["origin"] = json!("runtime");
            sources.insert(source.id.to_string(), keys);
        }
        if let Some(configured) = merged["sources"].as_object() {
            sources.extend(configured.clone());
        }
        sources.sort_keys();
        let inventory = self.inventory();
        let overrides: Map<String, Value> = inventory
            .sources()
            .map(|(id, _)| (id.to_string(), self.describe_overrides(id)))
            .filter(|(_, changes)| !changes.is_empty())
            .map(|(id, changes)| (id, changes.into()))
            .collect();
        merged["sources"] = sources.into();
        merged["overrides"] = overrides.into();
        if let Some(project) = found.untrusted_project() {
            merged["untrusted"] =
                json!({ "file": project.file.to_string_lossy(), "reason": project.untrusted_reason() });
        }
        // A path that is not Unicode can only be shown so.
        merged["files"] = found.files.iter().map(|file| file.to_string_lossy()).collect();
        merged["data"] = json!(data.to_string_lossy());
        merged
    }

    /// What goes before a source's declaration: a command, and before that the environment.
    fn describe_overrides(&self, id: &SourceId) -> Map<String, Value> {
        let mut changes = Map::new();
        let inventory = self.inventory();
        let commanded = inventory.source(id).filter(|state| state.enabled != state.declared_enabled.unwrap_or(true));
        if let Some(state) = commanded {
            changes.insert("enabled".into(), json!({ "value": state.enabled, "origin": "command" }));
        }
        let Some(environment) = self.source_override(id) else { return changes };
        let variable = |what: &str| format!("TOOLCRIB_SOURCE_{}_{what}", id.as_str().to_uppercase());
        if let Some(enabled) = environment.enabled {
            changes.insert("enabled".into(), json!({ "value": enabled, "origin": variable("ENABLED") }));
        }
        if let Some(url) = environment.url {
            changes.insert("url".into(), json!({ "value": mask_url(&url), "origin": variable("URL") }));
        }
        if environment.token.is_some() {
            changes.insert("token".into(), json!({ "value": "***", "origin": variable("TOKEN") }));
        }
        changes
    }
}
