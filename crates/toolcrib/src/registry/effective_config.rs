//! The effective configuration: what files, commands and environment variables add up to, with the origin of each
//! value. Secrets are masked.
//!
//! A value is `{"value": …, "origin": …}`, where the origin is a file, `default`, `command`, or the name of an
//! environment variable; a source has one `origin` for its whole declaration. References such as `${env:TOKEN}` are
//! shown as written, literal secrets as `***`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcrib_config::show::{mask_args, mask_text, mask_url, show_config, show_rules, show_source_keys};
use toolcrib_config::{Config, ConfiguredStore, Expose, WarmPolicy, store_kind};
use toolcrib_core::access::Role;
use toolcrib_core::access_rules::{NamedRule, RuleKind};
use toolcrib_core::inventory::Origin;
use toolcrib_core::principal::Principal;
use toolcrib_core::{Result, SourceId};

use super::{NamedStore, Registry, Trust};
use crate::config_file::LoadedConfig;
use crate::state::ConfiguredSettings;

/// Configuration of a registry: what applies now, and how to change it; see [`Registry::configuration`].
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    pub(super) registry: &'a Registry,
}

impl Configuration<'_> {
    /// Applies a configuration that was read again. Only sources of the configuration change; those added at run time
    /// stay. Fails, before anything changes, while the journal is damaged or too new, and as [`Configuration::check`]
    /// does.
    pub async fn apply(&self, config: &Config) -> Result<()> {
        self.registry.state.snapshot().ensure_usable()?;
        self.check(config)?;
        let settings = &self.registry.state.settings;
        settings.store(Arc::new(ConfiguredSettings::from_config(config).with_model_of(&settings.load())));
        self.registry.dispatcher.caller_limits.set_limits(config.limits);
        self.registry.state.reconcile(config).await?;
        self.registry.state.republish().await;
        self.registry.record_builtins().await;
        Ok(())
    }
    /// Checks that the rules of a configuration fit to those that were defined at run time.
    ///
    /// # Errors
    /// `CONFIG_INVALID` if it lacks a group of the configuration in force that a rule defined at run time refers to.
    pub fn check(&self, config: &Config) -> Result<()> {
        self.registry.state.check_rules(config)
    }
    /// Replaces the trust. Call [`Configuration::apply`] with the same configuration afterwards.
    pub fn set_trust(&self, trust: Trust) {
        self.registry.state.set_trust(trust);
    }
    /// Whether the project's configuration file is trusted; also true when there is none.
    pub fn is_trusted(&self) -> bool {
        self.registry.state.trust.load().untrusted.is_none()
    }
    /// Returns which tools agents are shown, per configuration.
    pub fn expose(&self) -> Arc<Expose> {
        self.registry.state.settings.load().expose.clone()
    }
    /// Returns when missing and stale sources are discovered ahead of requests, per configuration; for programs that
    /// serve clients.
    pub fn warm(&self) -> WarmPolicy {
        self.registry.state.settings.load().warm
    }
    /// Returns the configuration as `toolcrib config --json` prints it and `GET /api/config` returns it. `data` is the
    /// data directory.
    pub fn show(&self, loaded: &LoadedConfig, data: &Path) -> Value {
        let mut config = show_config(&loaded.config);
        let mut sources: Map<String, Value> = Map::new();
        for (_, source) in
            self.registry.sources().declarations().iter().filter(|(origin, _)| *origin == Origin::Runtime)
        {
            let mut keys = show_source_keys(source);
            keys["origin"] = json!("runtime");
            sources.insert(source.id.to_string(), keys);
        }
        // A source of the configuration takes precedence over one of the same name added at run time.
        if let Some(configured) = config["sources"].as_object() {
            sources.extend(configured.clone());
        }
        sources.sort_keys();
        // Overrides by commands and the environment, per source.
        let inventory = self.registry.inventory();
        let overrides: Map<String, Value> = inventory
            .sources()
            .map(|(id, _)| (id.to_string(), self.describe_overrides(id)))
            .filter(|(_, changes)| !changes.is_empty())
            .map(|(id, changes)| (id, changes.into()))
            .collect();
        // A rule of the configuration takes precedence in the same way.
        let runtime = inventory.rules().iter().filter(|(_, origin)| *origin == Origin::Runtime).map(|(rule, _)| rule);
        let is_configured = |rule: &NamedRule| {
            let mut configured = loaded.config.rules.iter();
            configured.any(|known| known.rule.kind() == rule.kind() && known.rule.name() == rule.name())
        };
        let runtime: Vec<NamedRule> = runtime.filter(|rule| !is_configured(rule)).collect();
        let configured = loaded.config.rules.iter();
        let configured =
            configured.map(|configured| (&configured.rule, format!("{}:{}", configured.file, configured.line)));
        for (section, rules) in show_rules(configured.chain(runtime.iter().map(|rule| (rule, "runtime".to_owned())))) {
            config[section] = rules;
        }
        config["sources"] = sources.into();
        config["overrides"] = overrides.into();
        config["store"] = self.show_store(loaded);
        if let Some(project) = loaded.untrusted_project() {
            config["untrusted"] =
                json!({ "file": project.file.to_string_lossy(), "reason": project.untrusted_reason() });
        }
        // Invalid Unicode in paths is replaced: JSON cannot hold it.
        config["files"] = loaded.files.iter().map(|file| file.to_string_lossy()).collect();
        config["data"] = json!(data.to_string_lossy());
        config
    }

    /// Like [`Configuration::show`], without sources, groups, access rules and policies, and where tools are withheld
    /// from the principal without everything that names or selects tools.
    pub fn show_for(&self, principal: &Principal, loaded: &LoadedConfig, data: &Path) -> Value {
        let mut config = self.show(loaded, data);
        // The host and the name of a database are the business of administrators.
        if let Some(location) = config["store"]["value"].as_str().filter(|_| principal.role() != Role::Admin) {
            config["store"]["value"] = json!(store_kind(location));
        }
        let visibility = self.registry.visibility(principal);
        if visibility.is_full() {
            return config;
        }
        // Patterns and names in them may be those of tools that the principal must not know of.
        for kind in RuleKind::ALL {
            config[kind.plural()] = if config[kind.plural()].is_object() { json!({}) } else { json!([]) };
        }
        if visibility.leaves_out_tools() {
            remove_keys(&mut config["expose"], &["essential", "essential_patterns"]);
            config["warnings"] = json!([]);
        }
        for section in ["sources", "overrides"] {
            let Some(sources) = config[section].as_object_mut() else { continue };
            sources.retain(|id, keys| {
                let Some(id) = SourceId::parse(id).ok().filter(|id| visibility.shows_source(id)) else { return false };
                if visibility.restricts(&id) {
                    remove_keys(keys, &KEYS_ABOUT_TOOLS);
                }
                true
            });
        }
        config
    }

    /// Returns the effective settings of a source as keys of a configuration file; without those that name or select
    /// tools if some are withheld from the principal.
    pub fn show_source_for(&self, principal: &Principal, id: &SourceId) -> Option<Value> {
        let mut keys = show_source_keys(&*self.registry.sources().effective(id)?);
        if self.registry.visibility(principal).restricts(id) {
            remove_keys(&mut keys, &KEYS_ABOUT_TOOLS);
        }
        Some(keys)
    }

    /// Returns the store in use. A configuration that was read again may name another one.
    fn show_store(&self, loaded: &LoadedConfig) -> Value {
        let named = self.registry.options.named_store.as_ref();
        let location = named.map(|named| named.location.clone());
        let origin = named.map_or("default", |named| &named.origin);
        let mut shown = json!({ "value": location, "origin": origin });
        let configured = loaded.config.store.as_ref().map(ConfiguredStore::mask_password);
        if origin != NamedStore::OPTION && configured != location {
            shown["restart"] = json!("the configuration names another store, which is used after a restart");
        }
        shown
    }

    /// Returns what overrides a source's declaration: a command, and over that the environment. Keys are `enabled`,
    /// `url`, `command`, `args` and `token`; empty if nothing overrides it.
    fn describe_overrides(&self, id: &SourceId) -> Map<String, Value> {
        let mut changes = Map::new();
        let inventory = self.registry.inventory();
        if let Some(enabled) = inventory.source(id).and_then(|state| state.enabled_by_command()) {
            changes.insert("enabled".into(), json!({ "value": enabled, "origin": "command" }));
        }
        // The environment takes precedence over a command, so it is inserted later.
        let Some(environment) = self.registry.sources().environment_override(id) else { return changes };
        let variable = |key: &str| format!("TOOLCRIB_SOURCE_{}_{key}", id.as_str().to_uppercase());
        if let Some(enabled) = environment.enabled {
            changes.insert("enabled".into(), json!({ "value": enabled, "origin": variable("ENABLED") }));
        }
        if let Some(url) = environment.url {
            changes.insert("url".into(), json!({ "value": mask_url(&url), "origin": variable("URL") }));
        }
        if let Some((program, args)) = environment.command.as_deref().and_then(<[String]>::split_first) {
            let origin = variable("COMMAND");
            changes.insert("command".into(), json!({ "value": mask_text(program), "origin": origin }));
            changes.insert("args".into(), json!({ "value": mask_args(args), "origin": origin }));
        }
        if environment.token.is_some() {
            changes.insert("token".into(), json!({ "value": "***", "origin": variable("TOKEN") }));
        }
        changes
    }
}

/// Keys of a source that name or select tools, or quote such a key (`faults`).
const KEYS_ABOUT_TOOLS: [&str; 8] =
    ["tools", "essential", "include", "exclude", "include_tags", "poll", "builtin", "faults"];

fn remove_keys(section: &mut Value, keys: &[&str]) {
    if let Some(section) = section.as_object_mut() {
        section.retain(|key, _| !keys.contains(&key.as_str()));
    }
}
