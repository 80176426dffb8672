//! Features of an MCP server besides its tools: prompts, resources, resource templates, and its instructions. Like a
//! manifest, a [`FeatureList`] is normalised, bounded, sorted and identified by its fingerprint.
//!
//! Items keep every field that the server sent; texts for people and models are sanitised. An invalid item is skipped
//! with a reason and does not affect the others. A list that could not be read leaves the known one in place.
//!
//! The flow: [`OfferedFeatures`] ─▶ [`FeatureList`] ─▶ [`FeatureDelta`] per kind against the previous one. The size of a
//! list is bounded while it is read, by `toolcrib_mcp::ClientLimits`; here each single item is.
//!
//! A server may have thousands of resources, so a start reads the [`FeatureSummary`] alone. [`RecordedFeatures`] holds it,
//! and the list once a reader has needed it.

mod normalize;
mod recorded;
mod stored;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fingerprint::Fingerprint;
use crate::json;
use crate::manifest::SkippedTool;
use crate::source::SourceId;
use crate::text::sanitize;

pub use recorded::RecordedFeatures;

/// Maximum length of a server's instructions in characters. Those of real servers have a few hundred.
const MAX_INSTRUCTIONS_LEN: usize = 8_000;

/// Kind of a feature that a server lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FeatureKind {
    Prompt,
    Resource,
    ResourceTemplate,
}

crate::name_variants!(FeatureKind {
    Prompt => "prompt",
    Resource => "resource",
    ResourceTemplate => "resource template",
});

impl FeatureKind {
    /// Field that identifies an item at its source.
    pub fn key(self) -> &'static str {
        match self {
            FeatureKind::Prompt => "name",
            FeatureKind::Resource => "uri",
            FeatureKind::ResourceTemplate => "uriTemplate",
        }
    }
}

/// One value for each [`FeatureKind`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ByFeatureKind<T> {
    pub prompts: T,
    pub resources: T,
    pub resource_templates: T,
}

impl<T> ByFeatureKind<T> {
    /// Makes the value of each kind.
    pub fn from_fn(mut value: impl FnMut(FeatureKind) -> T) -> ByFeatureKind<T> {
        ByFeatureKind {
            prompts: value(FeatureKind::Prompt),
            resources: value(FeatureKind::Resource),
            resource_templates: value(FeatureKind::ResourceTemplate),
        }
    }

    /// Returns the value of a kind, to change it.
    pub fn get_mut(&mut self, kind: FeatureKind) -> &mut T {
        match kind {
            FeatureKind::Prompt => &mut self.prompts,
            FeatureKind::Resource => &mut self.resources,
            FeatureKind::ResourceTemplate => &mut self.resource_templates,
        }
    }

    /// Returns the value of a kind.
    pub fn get(&self, kind: FeatureKind) -> &T {
        match kind {
            FeatureKind::Prompt => &self.prompts,
            FeatureKind::Resource => &self.resources,
            FeatureKind::ResourceTemplate => &self.resource_templates,
        }
    }
}

/// Features of a server as a discovery received them.
#[derive(Debug, Clone, Default)]
pub struct OfferedFeatures {
    pub lists: ByFeatureKind<OfferedList>,
    /// From the handshake.
    pub instructions: Option<String>,
    /// Items that were rejected before, with the reason.
    pub skipped: Vec<SkippedTool>,
}

/// One list of features as a discovery received it.
#[derive(Debug, Clone)]
pub enum OfferedList {
    /// The items as raw JSON; none for a server without such a list.
    Items(Vec<Box<RawValue>>),
    /// The list could not be read, so the known one stays.
    Failed,
}

impl Default for OfferedList {
    fn default() -> Self {
        OfferedList::Items(Vec::new())
    }
}

/// Features of a source at one time, without their items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureSummary {
    pub source: SourceId,
    pub fingerprint: Fingerprint,
    /// Instructions of the server for models, sanitised and bounded.
    pub instructions: Option<String>,
    /// Items that were offered and cannot be used, sorted.
    pub skipped: Vec<SkippedTool>,
    /// Number of items of each kind.
    pub counts: ByFeatureKind<usize>,
    /// Digest of each list: changes exactly when the list does.
    pub digests: ByFeatureKind<Fingerprint>,
}

/// Features of a source at one time: summary, index and text of their items.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureList {
    pub summary: FeatureSummary,
    /// In byte order of their keys.
    features: ByFeatureKind<Vec<Feature>>,
    /// JSON of all items, concatenated.
    body: Arc<String>,
}

/// Index entry of a feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Name of a prompt, URI of a resource, or URI template, as the source knows it.
    pub key: String,
    /// Fingerprint of the normalised item.
    pub fingerprint: Fingerprint,
    /// Place of the item's JSON in the body.
    range: Range<usize>,
}

/// Difference of two lists of one kind, by key in byte order. Part of stored events, there with the first names alone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeatureDelta {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// Number of names that were left out of each of them.
    #[serde(default, skip_serializing_if = "OmittedNames::is_empty")]
    pub omitted: OmittedNames,
}

/// Number of names that were left out of a [`FeatureDelta`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OmittedNames {
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
}

impl OmittedNames {
    pub fn is_empty(&self) -> bool {
        *self == OmittedNames::default()
    }
}

/// Difference of two feature lists of one source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureChanges {
    pub lists: ByFeatureKind<FeatureDelta>,
    pub instructions_changed: bool,
}

impl FeatureList {
    /// Normalises what a discovery received. A list that could not be read is taken from `known`. Never fails; invalid
    /// items are skipped.
    pub fn new(source: &SourceId, offered: OfferedFeatures, known: Option<&FeatureList>) -> FeatureList {
        let OfferedFeatures { lists, instructions, mut skipped } = offered;
        let mut body = String::new();
        let features = ByFeatureKind::from_fn(|kind| match lists.get(kind) {
            OfferedList::Items(items) => normalize_list(kind, items, &mut body, &mut skipped),
            OfferedList::Failed => known.map_or_else(Vec::new, |known| known.copy_list(kind, &mut body, &mut skipped)),
        });
        skipped.sort();
        skipped.dedup();
        let instructions = instructions.map(|text| clean_instructions(&text)).filter(|text| !text.is_empty());
        let fingerprint = compute_fingerprint(source, &features, instructions.as_deref(), &skipped);
        let counts = ByFeatureKind::from_fn(|kind| features.get(kind).len());
        let digests = list_digests(&features);
        let source = source.clone();
        let summary = FeatureSummary { source, fingerprint, instructions, skipped, counts, digests };
        FeatureList { summary, features, body: Arc::new(body) }
    }

    /// Items of a kind, in byte order of their keys.
    pub fn features(&self, kind: FeatureKind) -> &[Feature] {
        self.features.get(kind)
    }

    /// Finds an item by its key.
    pub fn find(&self, kind: FeatureKind, key: &str) -> Option<&Feature> {
        let features = self.features(kind);
        let position = features.binary_search_by(|feature| feature.key.as_str().cmp(key)).ok()?;
        features.get(position)
    }

    /// Returns an item as JSON, with the key that its source knows.
    pub fn json(&self, feature: &Feature) -> &str {
        self.body.get(feature.range.clone()).unwrap_or_default()
    }

    /// Compares with the list before; without one everything is added.
    pub fn changes_since(&self, before: Option<&FeatureList>) -> FeatureChanges {
        let lists = ByFeatureKind::from_fn(|kind| {
            let before = before.map(|before| before.features(kind)).unwrap_or_default();
            FeatureDelta::between(before, self.features(kind))
        });
        let instructions_before = before.and_then(|before| before.summary.instructions.as_ref());
        FeatureChanges { lists, instructions_changed: instructions_before != self.summary.instructions.as_ref() }
    }

    /// Verifies the stored content by computing every fingerprint again. Returns a description of the first damage.
    pub fn find_damage(&self) -> Option<String> {
        for kind in FeatureKind::ALL {
            for feature in self.features(kind) {
                let stored = serde_json::from_str::<&RawValue>(self.json(feature)).ok();
                if stored.map(normalize::fingerprint) != Some(feature.fingerprint) {
                    let key = crate::text::sanitize_truncated(&feature.key, 120);
                    return Some(format!("the stored {} `{key}` does not match its fingerprint", kind.as_str()));
                }
            }
        }
        let FeatureSummary { source, fingerprint, instructions, skipped, counts, digests } = &self.summary;
        let computed = compute_fingerprint(source, &self.features, instructions.as_deref(), skipped);
        let has_counts = FeatureKind::ALL.iter().all(|kind| self.features(*kind).len() == *counts.get(*kind));
        (computed != *fingerprint || !has_counts || list_digests(&self.features) != *digests)
            .then(|| "the stored prompts and resources do not match their fingerprint".to_owned())
    }

    /// Appends the items of a list to the body of another, with those that were skipped.
    fn copy_list(&self, kind: FeatureKind, body: &mut String, skipped: &mut Vec<SkippedTool>) -> Vec<Feature> {
        let prefix = format!("{} ", kind.as_str());
        skipped.extend(self.summary.skipped.iter().filter(|skipped| skipped.name.starts_with(&prefix)).cloned());
        let copy = |feature: &Feature| push_item(body, feature.key.clone(), feature.fingerprint, self.json(feature));
        self.features(kind).iter().map(copy).collect()
    }
}

impl FeatureSummary {
    /// Whether the source has no features at all, nor any that were skipped.
    pub fn is_empty(&self) -> bool {
        self.skipped.is_empty() && self.instructions.is_none() && !self.has_items()
    }

    /// Whether the source has a prompt, resource or resource template.
    pub fn has_items(&self) -> bool {
        FeatureKind::ALL.iter().any(|kind| *self.counts.get(*kind) > 0)
    }
}

impl FeatureChanges {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.instructions_changed && FeatureKind::ALL.iter().all(|kind| self.lists.get(*kind).is_empty())
    }
}

impl FeatureDelta {
    /// Keeps the first names of each kind of change and counts the others.
    #[must_use]
    pub fn truncated(&self, max_names: usize) -> FeatureDelta {
        let first = |names: &[String]| names.iter().take(max_names).cloned().collect::<Vec<_>>();
        let rest = |names: &[String]| names.len().saturating_sub(max_names);
        FeatureDelta {
            added: first(&self.added),
            changed: first(&self.changed),
            removed: first(&self.removed),
            omitted: OmittedNames {
                added: self.omitted.added + rest(&self.added),
                changed: self.omitted.changed + rest(&self.changed),
                removed: self.omitted.removed + rest(&self.removed),
            },
        }
    }

    /// Compares two sorted lists.
    fn between(before: &[Feature], after: &[Feature]) -> FeatureDelta {
        let known: BTreeMap<&str, Fingerprint> =
            before.iter().map(|feature| (feature.key.as_str(), feature.fingerprint)).collect();
        let mut delta = FeatureDelta::default();
        for feature in after {
            match known.get(feature.key.as_str()) {
                None => delta.added.push(feature.key.clone()),
                Some(fingerprint) if *fingerprint != feature.fingerprint => delta.changed.push(feature.key.clone()),
                Some(_) => {}
            }
        }
        let is_gone =
            |feature: &&Feature| after.binary_search_by(|other| other.key.as_str().cmp(&feature.key)).is_err();
        delta.removed = before.iter().filter(is_gone).map(|feature| feature.key.clone()).collect();
        delta
    }

    /// Whether the lists are the same.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Normalises the items of one list and appends their JSON to `body`. Of several items with one key the first is kept.
fn normalize_list(
    kind: FeatureKind,
    items: &[Box<RawValue>],
    body: &mut String,
    skipped: &mut Vec<SkippedTool>,
) -> Vec<Feature> {
    let mut normalized: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    for (position, item) in items.iter().enumerate() {
        match normalize::normalize_item(kind, item, position) {
            Ok((key, _)) if normalized.contains_key(&key) => {
                let reason = format!("the source offers this {} twice; the first one is kept", kind.as_str());
                skipped.push(SkippedTool { name: normalize::skipped_name(kind, &key), reason });
            }
            Ok((key, item)) => {
                normalized.insert(key, item);
            }
            Err(rejected) => skipped.push(rejected),
        }
    }
    let push = |(key, item): (String, Box<RawValue>)| {
        let fingerprint = normalize::fingerprint(&item);
        push_item(body, key, fingerprint, item.get())
    };
    normalized.into_iter().map(push).collect()
}

/// Appends the JSON of an item to a body and returns its index entry.
fn push_item(body: &mut String, key: String, fingerprint: Fingerprint, json: &str) -> Feature {
    let start = body.len();
    body.push_str(json);
    Feature { key, fingerprint, range: start..body.len() }
}

/// Sanitises instructions and cuts them at the limit. Line breaks stay: instructions are often lists.
fn clean_instructions(text: &str) -> String {
    let text = sanitize(text);
    let text = text.trim();
    match text.char_indices().nth(MAX_INSTRUCTIONS_LEN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

/// Computes the digest of each list.
fn list_digests(features: &ByFeatureKind<Vec<Feature>>) -> ByFeatureKind<Fingerprint> {
    ByFeatureKind::from_fn(|kind| {
        let mut text = String::new();
        push_pairs(features.get(kind).iter().map(|feature| (&feature.key, feature.fingerprint.to_string())), &mut text);
        Fingerprint::digest(text)
    })
}

/// Hashes source, instructions, features and skipped items as canonical JSON. The text must never change: fingerprints
/// are stored.
fn compute_fingerprint(
    source: &SourceId,
    features: &ByFeatureKind<Vec<Feature>>,
    instructions: Option<&str>,
    skipped: &[SkippedTool],
) -> Fingerprint {
    let mut canonical = String::from("{\"instructions\":");
    match instructions {
        Some(text) => json::push_json_string(text, &mut canonical),
        None => canonical.push_str("null"),
    }
    for (name, kind) in [
        ("prompts", FeatureKind::Prompt),
        ("resource_templates", FeatureKind::ResourceTemplate),
        ("resources", FeatureKind::Resource),
    ] {
        canonical.push_str(&format!(",\"{name}\":["));
        let pairs = features.get(kind).iter().map(|feature| (&feature.key, feature.fingerprint.to_string()));
        push_pairs(pairs, &mut canonical);
        canonical.push(']');
    }
    canonical.push_str(",\"set_aside\":[");
    push_pairs(skipped.iter().map(|skipped| (&skipped.name, skipped.reason.clone())), &mut canonical);
    canonical.push_str("],\"source\":");
    json::push_json_string(source.as_str(), &mut canonical);
    canonical.push('}');
    Fingerprint::digest(canonical)
}

/// Appends pairs of texts as JSON arrays.
fn push_pairs<'a>(pairs: impl Iterator<Item = (&'a String, String)>, canonical: &mut String) {
    for (index, (first, second)) in pairs.enumerate() {
        canonical.push_str(if index > 0 { ",[" } else { "[" });
        json::push_json_string(first, canonical);
        canonical.push(',');
        json::push_json_string(&second, canonical);
        canonical.push(']');
    }
}

#[cfg(test)]
mod tests;
