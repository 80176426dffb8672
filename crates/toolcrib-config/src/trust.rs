//! Scope of trust in a project's configuration file, and which later changes of the file need approval again: those
//! that run, contact or allow more than the trusted version. A change that only restricts is covered.
//!
//! Each key of a source belongs to one of these groups, and a key that is in no list must stay exactly the same. A key
//! that is added to Toolcrib later is therefore asked about by default.
//!
//! ```text
//! title, tags, ttl, timeouts       free to change
//! roots, methods, allow_refs, …    items may be removed
//! include, include_tags, nodes     items may be removed, but not the last one
//! exclude                          items may be added
//! enabled, tools                   compared by meaning
//! command, url, headers, …         must be equal
//! ```
//!
//! Groups, access rules and policies must stay equal too: whether a change gives more depends on the claims of callers.
//!
//! This module compares; asking the user and storing the answer is done by the library and the command.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::policy::{DefaultVerdict, Rules, widens};
use toolcrib_core::source::{Source, SourceId};
use toolcrib_core::tool::SEPARATOR;

use super::rules::{is_empty_section, rules_to_sections};
use super::source_keys::{Secrets, rules_to_value, source_to_keys};
use super::{Config, ConfiguredStore};

/// Keys of a source that may change freely: they run, contact and allow nothing.
const KEYS_WITHOUT_TRUST: [&str; 9] = [
    "title",
    "tags",
    "ttl",
    "connect_timeout",
    "first_start_timeout",
    "discovery_timeout",
    "call_timeout",
    "idle",
    "result_limit",
];

/// Lists that grant something per item: a subset grants less.
const GRANT_LISTS: [&str; 5] = ["builtin", "roots", "inherit_env", "methods", "allow_refs"];
/// Lists that select tools or nodes: a subset selects less, but an empty list selects everything.
const SELECTION_LISTS: [&str; 3] = ["include", "include_tags", "nodes"];
/// The list of exclusions: a superset selects less.
const EXCLUDE_LIST: &str = "exclude";

/// Trusted state of a project's file. Values are stored as hashes, since some are secret.
/// The rules on tools are stored in full, because whether they widen cannot be told from a hash.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrustedFile {
    /// Hashes of `defaults`, `expose`, groups, access rules, policies and other top-level keys that the file sets.
    settings: BTreeMap<String, Fingerprint>,
    /// Top-level switches that are on and allow more, such as `allow_commands`.
    switches: BTreeSet<String>,
    /// Sources that the file declares itself.
    sources: BTreeMap<SourceId, TrustedSource>,
    /// Restrictions on sources of the user's file. They apply even while a changed file waits for approval.
    narrowings: BTreeMap<SourceId, TrustedNarrowing>,
}

/// Trusted state of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct TrustedSource {
    /// Hash of each key that must stay exactly the same.
    keys: BTreeMap<String, Fingerprint>,
    /// Hashes of the items of lists that may be narrowed.
    lists: BTreeMap<String, BTreeSet<Fingerprint>>,
    /// Disabling a source needs no approval, enabling it does.
    enabled: bool,
    tools: Rules,
    /// `None` for a source whose targets do not depend on a file of the project.
    #[serde(default)]
    document: Option<LocalDocument>,
}

/// Trusted restriction on a source of another file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct TrustedNarrowing {
    enabled: Option<bool>,
    tools: Rules,
}

/// Targets that a local document of the project leads to, or the roots of built-in tools. The credentials of the source
/// are sent to these targets only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalDocument {
    /// The origins that an OpenAPI document sends requests to, the source descriptions of an Arazzo document, or the
    /// directories that roots are links to.
    pub servers: BTreeSet<String>,
    /// Files that the targets were read from, with their hashes.
    pub files: BTreeMap<String, Fingerprint>,
    /// Files of the project that `${file:…}` references name, with their hashes.
    pub references: BTreeMap<String, Fingerprint>,
}

impl TrustedFile {
    /// Records a file as trusted. `documents` are the local documents of its sources.
    /// Sources with errors are left out: they cannot run, and count as new once they are valid.
    pub fn new(project: &Config, mut documents: BTreeMap<SourceId, LocalDocument>) -> TrustedFile {
        let hash = |value: Value| Fingerprint::digest(value.to_string());
        // A section that the file does not set at all is not part of the trust.
        let is_set = |section: &str| {
            let prefix = format!("{section}.");
            project.origins.keys().any(|key| key == section || key.starts_with(&prefix))
        };
        let expose = &project.expose;
        let mut expose_values = vec![
            json!(expose.mode.as_str()),
            json!(expose.full_below_tokens),
            json!(expose.essential),
            json!(expose.prefix),
        ];
        // Left out unless it is set, so that files trusted before the key existed stay trusted.
        if is_set("expose.essential_patterns") {
            expose_values.push(json!(expose.essential_patterns));
        }
        let issuers: Vec<Value> =
            project.identity.issuers.iter().map(|issuer| issuer.to_keys(Secrets::Plain)).collect();
        let settings = [
            ("defaults", json!(project.defaults)),
            ("expose", json!(expose_values)),
            // Its key is that of the whole section, as it was stored when the section had no other key.
            ("identity", json!(project.identity.loopback.as_str())),
            ("identity.issuers", json!(issuers)),
            ("public_url", json!(project.public_url)),
            ("store", json!(project.store.as_ref().map(ConfiguredStore::unresolved))),
            ("warm", json!(project.warm.as_str())),
            ("search", json!(project.search_model)),
            ("limits", json!(project.limits)),
        ];
        // Rules have no order, so moving one changes nothing.
        let mut rules: Vec<_> = project.rules.iter().map(|configured| (&configured.rule, None)).collect();
        rules.sort_by_key(|(rule, _)| rule.name());
        let rules = rules_to_sections(&rules).into_iter().filter(|(_, section)| !is_empty_section(section));
        let is_part = |key: &str| is_set(if key == "identity" { "identity.loopback" } else { key });
        let settings = settings.into_iter().filter(|(key, _)| is_part(key));
        let switches =
            [("allow_commands", project.allow_commands), ("allow_private_sources", project.allow_private_sources)];
        let sources = project
            .valid_sources()
            .map(|source| (source.id.clone(), TrustedSource::new(source, documents.remove(&source.id))));
        let narrowings = project.narrowings.iter().map(|narrowing| {
            let trusted = TrustedNarrowing { enabled: narrowing.enabled, tools: narrowing.tools.clone() };
            (narrowing.id.clone(), trusted)
        });
        TrustedFile {
            settings: settings
                .map(|(key, value)| (key.to_owned(), value))
                .chain(rules)
                .map(|(key, value)| (key, hash(value)))
                .collect(),
            switches: switches.into_iter().filter(|(_, on)| *on).map(|(key, _)| key.to_owned()).collect(),
            sources: sources.collect(),
            narrowings: narrowings.collect(),
        }
    }

    /// Adds the files of the project that references in `store` name, with their hashes: their content decides which
    /// store is used.
    #[must_use]
    pub fn with_store_files(mut self, files: &BTreeMap<String, Fingerprint>) -> TrustedFile {
        if !files.is_empty() {
            self.settings.insert("store.references".to_owned(), Fingerprint::digest(json!(files).to_string()));
        }
        self
    }

    /// Returns the key paths of `new` that this trust does not cover. Empty if no approval is needed.
    /// Removed sources are covered, since they run nothing any more.
    pub fn uncovered_keys(&self, new: &TrustedFile) -> Vec<String> {
        let mut uncovered = Vec::new();
        let keys: BTreeSet<&String> = self.settings.keys().chain(new.settings.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.settings.get(*key) != new.settings.get(*key));
        uncovered.extend(changed.chain(new.switches.difference(&self.switches)).cloned());
        for (id, source) in &new.sources {
            let keys = match self.sources.get(id) {
                Some(old) => old.uncovered_keys(id, source),
                // An empty key stands for the source as a whole.
                None => vec![String::new()],
            };
            uncovered.extend(keys.into_iter().map(|key| source_key(id, &key)));
        }
        uncovered.extend(self.lost_restrictions(new));
        uncovered
    }

    /// Returns restrictions on sources of another file that `new` no longer has. A source that `new` declares itself is
    /// reported as a new source instead.
    fn lost_restrictions<'a>(&'a self, new: &'a TrustedFile) -> impl Iterator<Item = String> + 'a {
        let narrowings = self.narrowings.iter().filter(|(id, _)| !new.sources.contains_key(*id));
        narrowings.flat_map(|(id, old)| {
            let none = TrustedNarrowing { enabled: None, tools: Rules::default() };
            let current = new.narrowings.get(id).unwrap_or(&none);
            let lost = [
                ("enabled", old.enabled == Some(false) && current.enabled != Some(false)),
                ("tools", widens(&old.tools, &current.tools, &tool_prefix(id), DefaultVerdict::Allow)),
            ];
            lost.into_iter().filter(|(_, is_lost)| *is_lost).map(|(key, _)| source_key(id, key))
        })
    }

    /// Returns the trusted restrictions on sources of another file.
    pub fn narrowings(&self) -> impl Iterator<Item = super::Narrowing> + '_ {
        self.narrowings.iter().map(|(id, narrowing)| super::Narrowing {
            id: id.clone(),
            enabled: narrowing.enabled,
            tools: narrowing.tools.clone(),
            file: String::new(),
            line: 0,
        })
    }

    /// Returns the trusted targets of sources with a local document.
    pub fn documents(&self) -> impl Iterator<Item = (&SourceId, &LocalDocument)> {
        self.sources.iter().filter_map(|(id, source)| Some((id, source.document.as_ref()?)))
    }
}

impl TrustedSource {
    fn new(source: &Source, document: Option<LocalDocument>) -> TrustedSource {
        let settings = &source.settings;
        let mut trusted = TrustedSource {
            keys: BTreeMap::new(),
            lists: BTreeMap::new(),
            enabled: settings.enabled.unwrap_or(true),
            tools: settings.tools.clone(),
            document,
        };
        let hash = |value: &Value| Fingerprint::digest(value.to_string());
        for (key, value) in source_to_keys(source, Secrets::Plain) {
            if KEYS_WITHOUT_TRUST.contains(&key.as_str()) || key == "enabled" || key == "tools" {
                continue;
            }
            let is_list =
                GRANT_LISTS.contains(&key.as_str()) || SELECTION_LISTS.contains(&key.as_str()) || key == EXCLUDE_LIST;
            if let Some(items) = value.as_array().filter(|_| is_list) {
                trusted.lists.insert(key, items.iter().map(hash).collect());
            } else {
                trusted.keys.insert(key, hash(&value));
            }
        }
        trusted
    }

    /// Returns the keys of one source that differ in a way that needs approval.
    fn uncovered_keys(&self, id: &SourceId, new: &TrustedSource) -> Vec<String> {
        // `builtin: all` is a text, not a list. Replacing it by a list of tools narrows it.
        let is_part_of_all = self.keys.contains_key("builtin") && new.lists.contains_key("builtin");
        let is_compared = |key: &&String| !(is_part_of_all && *key == "builtin");
        // A key that exists on one side only counts as changed, whichever side that is.
        let keys: BTreeSet<&String> = self.keys.keys().chain(new.keys.keys()).filter(is_compared).collect();
        let mut uncovered: Vec<String> =
            keys.into_iter().filter(|key| self.keys.get(*key) != new.keys.get(*key)).cloned().collect();
        let lists: BTreeSet<&String> = self.lists.keys().chain(new.lists.keys()).filter(is_compared).collect();
        let none = BTreeSet::new();
        uncovered.extend(lists.into_iter().filter_map(|key| {
            let old_list = self.lists.get(key).unwrap_or(&none);
            let new_list = new.lists.get(key).unwrap_or(&none);
            (!is_list_narrower(key, old_list, new_list)).then(|| key.clone())
        }));
        let is_builtin = new.keys.contains_key("builtin") || new.lists.contains_key("builtin");
        let default = if is_builtin { DefaultVerdict::PerTool } else { DefaultVerdict::Allow };
        let no_document = LocalDocument::default();
        let old_document = self.document.as_ref().unwrap_or(&no_document);
        let document = new.document.as_ref().unwrap_or(&no_document);
        let is_same = |(path, hash)| old_document.references.get(path) == Some(hash);
        let has_new_servers = !document.servers.is_subset(&old_document.servers);
        let others = [
            ("references", !document.references.iter().all(is_same)),
            ("enabled", new.enabled && !self.enabled),
            ("tools", widens(&self.tools, &new.tools, &tool_prefix(id), default)),
            (if is_builtin { "roots" } else { "servers" }, has_new_servers),
        ];
        uncovered.extend(others.into_iter().filter(|(_, is_uncovered)| *is_uncovered).map(|(key, _)| key.to_owned()));
        uncovered.sort();
        uncovered.dedup();
        uncovered
    }
}

/// Whether a list grants or selects nothing beyond the old one.
/// Lists are compared as sets; the order of items has no meaning in any of them.
fn is_list_narrower(key: &str, old: &BTreeSet<Fingerprint>, new: &BTreeSet<Fingerprint>) -> bool {
    if key == EXCLUDE_LIST {
        return new.is_superset(old);
    }
    let selects_everything = |list: &BTreeSet<Fingerprint>| SELECTION_LISTS.contains(&key) && list.is_empty();
    selects_everything(old) || (new.is_subset(old) && !selects_everything(new))
}

/// Returns the top-level settings and restrictions of a project's file that trusting it accepts, as keys of the file.
/// Used to show what is being approved.
pub fn settings_to_trust(project: &Config) -> Map<String, Value> {
    let mut config = super::show::show_config(project);
    let mut keys = Map::new();
    for section in ["defaults", "expose", "identity", "limits", "search"] {
        let Some(values) = config[section].as_object_mut() else { continue };
        let set = values.iter_mut().filter(|(key, _)| project.origins.contains_key(&format!("{section}.{key}")));
        let set: Map<String, Value> = set.map(|(key, value)| (key.clone(), value["value"].take())).collect();
        if !set.is_empty() {
            keys.insert(section.to_owned(), set.into());
        }
    }
    for key in ["store", "warm", "public_url", "allow_commands", "allow_private_sources"] {
        if project.origins.contains_key(key) {
            keys.insert(key.to_owned(), config[key]["value"].take());
        }
    }
    let rules: Vec<_> = project.rules.iter().map(|configured| (&configured.rule, None)).collect();
    keys.extend(rules_to_sections(&rules).into_iter().filter(|(_, section)| !is_empty_section(section)));
    for narrowing in &project.narrowings {
        let mut narrowed = Map::new();
        narrowed.extend(narrowing.enabled.map(|enabled| ("enabled".to_owned(), json!(enabled))));
        if !narrowing.tools.is_empty() {
            narrowed.insert("tools".to_owned(), rules_to_value(&narrowing.tools));
        }
        keys.insert(source_key(&narrowing.id, ""), narrowed.into());
    }
    keys
}

/// Key path of a source, or of one of its keys.
fn source_key(id: &SourceId, key: &str) -> String {
    if key.is_empty() { format!("sources.{id}") } else { format!("sources.{id}.{key}") }
}

/// Prefix of the source's tools in the catalogue.
fn tool_prefix(id: &SourceId) -> String {
    format!("{id}{SEPARATOR}")
}

#[cfg(test)]
mod tests;
