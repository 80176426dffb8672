//! What trusting a project's file covers, and which changes of the file need trust again: whatever runs, contacts or
//! allows more than what was trusted. A file that only restricts itself further is not asked about.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Config;
use super::source_keys::{Secrets, rules_to_value, source_to_keys};
use crate::fingerprint::Fingerprint;
use crate::policy::{DefaultVerdict, Rules, widens};
use crate::source::{Source, SourceId};
use crate::tool::SEPARATOR;

/// Keys of a source that neither run, contact nor allow anything.
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

/// Lists of which a part allows less than the whole.
const GRANT_LISTS: [&str; 5] = ["builtin", "roots", "inherit_env", "methods", "allow_refs"];
/// Lists of which a part selects less than the whole, except that none selects everything.
const SELECTION_LISTS: [&str; 2] = ["include", "include_tags"];
/// The list that selects less the longer it is.
const EXCLUDE_LIST: &str = "exclude";

/// A project's file as far as trust covers it. Values are kept as hashes, since some are secret.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrustedFile {
    /// `defaults`, `expose` and what else stands at top level.
    settings: BTreeMap<String, Fingerprint>,
    /// Switches at top level that allow more, where they are on.
    switches: BTreeSet<String>,
    sources: BTreeMap<SourceId, TrustedSource>,
    narrowings: BTreeMap<SourceId, TrustedNarrowing>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct TrustedSource {
    keys: BTreeMap<String, Fingerprint>,
    lists: BTreeMap<String, BTreeSet<Fingerprint>>,
    enabled: bool,
    tools: Rules,
    /// Where it has none, nothing in the project's files says what it leads to.
    #[serde(default)]
    document: Option<LocalDocument>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct TrustedNarrowing {
    enabled: Option<bool>,
    tools: Rules,
}

/// What a document in a file of the project leads to, or the roots of built-in tools. The source's credentials go there
/// and nowhere else.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalDocument {
    /// The origins that an OpenAPI document sends requests to, the source descriptions of an Arazzo document, or the
    /// directories that roots are links to.
    pub servers: BTreeSet<String>,
    /// The files that this was read from, by their hash.
    pub files: BTreeMap<String, Fingerprint>,
    /// The files of the project that references stand for, by their hash.
    pub references: BTreeMap<String, Fingerprint>,
}

impl TrustedFile {
    /// `documents` are those of its sources that lie in files.
    pub fn new(project: &Config, mut documents: BTreeMap<SourceId, LocalDocument>) -> TrustedFile {
        let hash = |value: Value| Fingerprint::digest(value.to_string());
        let at_top = |section: &str| {
            let prefix = format!("{section}.");
            project.origins.keys().any(|key| key == section || key.starts_with(&prefix))
        };
        let expose = &project.expose;
        let shown = json!([expose.mode.as_str(), expose.full_below_tokens, expose.essential, expose.prefix]);
        let settings = [
            ("defaults", json!(project.defaults)),
            ("expose", shown),
            ("identity", json!(project.identity.loopback.as_str())),
            ("warm", json!(project.warm.as_str())),
        ];
        let settings = settings.into_iter().filter(|(key, _)| at_top(key));
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
            settings: settings.map(|(key, value)| (key.to_owned(), hash(value))).collect(),
            switches: switches.into_iter().filter(|(_, on)| *on).map(|(key, _)| key.to_owned()).collect(),
            sources: sources.collect(),
            narrowings: narrowings.collect(),
        }
    }

    /// What of `new` this trust does not cover, as paths of keys. Empty when nothing has to be asked.
    pub fn uncovered_keys(&self, new: &TrustedFile) -> Vec<String> {
        let mut uncovered = Vec::new();
        let keys: BTreeSet<&String> = self.settings.keys().chain(new.settings.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.settings.get(*key) != new.settings.get(*key));
        uncovered.extend(changed.chain(new.switches.difference(&self.switches)).cloned());
        for (id, source) in &new.sources {
            let keys = match self.sources.get(id) {
                Some(old) => old.uncovered_keys(id, source),
                None => vec![String::new()],
            };
            uncovered.extend(keys.into_iter().map(|key| source_key(id, &key)));
        }
        uncovered.extend(self.lost_restrictions(new));
        uncovered
    }

    /// Restrictions on sources of another file that `new` no longer makes. A source that `new` declares itself is asked
    /// about as such.
    fn lost_restrictions<'a>(&'a self, new: &'a TrustedFile) -> impl Iterator<Item = String> + 'a {
        let narrowings = self.narrowings.iter().filter(|(id, _)| !new.sources.contains_key(*id));
        narrowings.flat_map(|(id, old)| {
            let none = TrustedNarrowing { enabled: None, tools: Rules::default() };
            let now = new.narrowings.get(id).unwrap_or(&none);
            let lost = [
                ("enabled", old.enabled == Some(false) && now.enabled != Some(false)),
                ("tools", widens(&old.tools, &now.tools, &tool_prefix(id), DefaultVerdict::Allow)),
            ];
            lost.into_iter().filter(|(_, is)| *is).map(|(key, _)| source_key(id, key))
        })
    }

    /// What this trust restricts of the sources of another file.
    pub fn narrowings(&self) -> impl Iterator<Item = super::Narrowing> + '_ {
        self.narrowings.iter().map(|(id, narrowing)| super::Narrowing {
            id: id.clone(),
            enabled: narrowing.enabled,
            tools: narrowing.tools.clone(),
            file: String::new(),
            line: 0,
        })
    }

    /// What the documents of sources were found to lead to.
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

    fn uncovered_keys(&self, id: &SourceId, new: &TrustedSource) -> Vec<String> {
        // `builtin: all` is no list, and a list of built-in tools is a part of all.
        let is_part_of_all = self.keys.contains_key("builtin") && new.lists.contains_key("builtin");
        let matters = |key: &&String| !(is_part_of_all && *key == "builtin");
        let keys: BTreeSet<&String> = self.keys.keys().chain(new.keys.keys()).filter(matters).collect();
        let mut uncovered: Vec<String> =
            keys.into_iter().filter(|key| self.keys.get(*key) != new.keys.get(*key)).cloned().collect();
        let lists: BTreeSet<&String> = self.lists.keys().chain(new.lists.keys()).filter(matters).collect();
        let none = BTreeSet::new();
        uncovered.extend(lists.into_iter().filter_map(|key| {
            let old_list = self.lists.get(key).unwrap_or(&none);
            let new_list = new.lists.get(key).unwrap_or(&none);
            (!is_list_narrower(key, old_list, new_list)).then(|| key.clone())
        }));
        let is_builtin = new.keys.contains_key("builtin") || new.lists.contains_key("builtin");
        let default = if is_builtin { DefaultVerdict::PerTool } else { DefaultVerdict::Allow };
        let others = [
            ("references", !has_same_references(self.document.as_ref(), new.document.as_ref())),
            ("enabled", new.enabled && !self.enabled),
            ("tools", widens(&self.tools, &new.tools, &tool_prefix(id), default)),
            (
                if is_builtin { "roots" } else { "servers" },
                !has_no_new_servers(self.document.as_ref(), new.document.as_ref()),
            ),
        ];
        uncovered.extend(others.into_iter().filter(|(_, is)| *is).map(|(key, _)| key.to_owned()));
        uncovered.sort();
        uncovered.dedup();
        uncovered
    }
}

/// Whether a list allows or selects nothing that the old one did not.
fn is_list_narrower(key: &str, old: &BTreeSet<Fingerprint>, new: &BTreeSet<Fingerprint>) -> bool {
    if key == EXCLUDE_LIST {
        return new.is_superset(old);
    }
    let selects_everything = |list: &BTreeSet<Fingerprint>| SELECTION_LISTS.contains(&key) && list.is_empty();
    selects_everything(old) || (new.is_subset(old) && !selects_everything(new))
}

/// Whether a document leads nowhere but where the old one did.
fn has_no_new_servers(old: Option<&LocalDocument>, new: Option<&LocalDocument>) -> bool {
    let none = BTreeSet::new();
    let old = old.map_or(&none, |document| &document.servers);
    new.is_none_or(|new| new.servers.is_subset(old))
}

/// Whether the files that references stand for are as they were.
fn has_same_references(old: Option<&LocalDocument>, new: Option<&LocalDocument>) -> bool {
    let none = BTreeMap::new();
    let old = old.map_or(&none, |document| &document.references);
    new.is_none_or(|new| new.references.iter().all(|(path, hash)| old.get(path) == Some(hash)))
}

/// What of a project's file beside its sources is trusted with it, in the words of the file.
pub fn settings_to_trust(project: &Config) -> Map<String, Value> {
    let mut shown = super::show::show_config(project);
    let mut keys = Map::new();
    for section in ["defaults", "expose", "identity"] {
        let Some(values) = shown[section].as_object_mut() else { continue };
        let set = values.iter_mut().filter(|(key, _)| project.origins.contains_key(&format!("{section}.{key}")));
        let set: Map<String, Value> = set.map(|(key, value)| (key.clone(), value["value"].take())).collect();
        if !set.is_empty() {
            keys.insert(section.to_owned(), set.into());
        }
    }
    for key in ["warm", "allow_commands", "allow_private_sources"] {
        if project.origins.contains_key(key) {
            keys.insert(key.to_owned(), shown[key]["value"].take());
        }
    }
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

fn source_key(id: &SourceId, key: &str) -> String {
    if key.is_empty() { format!("sources.{id}") } else { format!("sources.{id}.{key}") }
}

fn tool_prefix(id: &SourceId) -> String {
    format!("{id}{SEPARATOR}")
}

#[cfg(test)]
mod tests;
