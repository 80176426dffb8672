//! Stored form of a feature list: an index, and one text with all items, like that of a manifest.
//!
//! ```text
//! body    {"name":"review",…}{"uri":"file:///a",…}
//! index   {"source":"git","prompts":[["review","…",0,18]],"resources":[["file:///a","…",18,36]],…}
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ByFeatureKind, Feature, FeatureKind, FeatureList, list_digests};
use crate::error::{Code, Error, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::manifest::SkippedTool;
use crate::source::SourceId;

/// Key and fingerprint of a feature, and start and end of its JSON in the body.
type StoredFeature<'a> = (Cow<'a, str>, Fingerprint, usize, usize);

/// Stored form of the index.
#[derive(Serialize, Deserialize)]
struct StoredFeatureIndex<'a> {
    source: Cow<'a, SourceId>,
    #[serde(flatten)]
    features: ByFeatureKind<Vec<StoredFeature<'a>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<Cow<'a, str>>,
    #[serde(default, rename = "set_aside")]
    skipped: Cow<'a, [SkippedTool]>,
}

impl FeatureList {
    /// Returns the index in its stored form. The body is stored separately.
    pub fn index_json(&self) -> Result<String> {
        let stored = |feature: &'_ Feature| {
            (Cow::Owned(feature.key.clone()), feature.fingerprint, feature.range.start, feature.range.end)
        };
        let index = StoredFeatureIndex {
            source: Cow::Borrowed(&self.source),
            features: ByFeatureKind::from_fn(|kind| self.features(kind).iter().map(stored).collect()),
            instructions: self.instructions.as_deref().map(Cow::Borrowed),
            skipped: Cow::Borrowed(&self.skipped),
        };
        serde_json::to_string(&index).context(Code::Internal, "cannot serialize the index of prompts and resources")
    }

    /// JSON of all items, as stored.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Restores a list from its stored index and body. Checks offsets, not contents: see [`Self::find_damage`].
    pub fn read(fingerprint: Fingerprint, index: &str, body: String) -> Result<FeatureList> {
        let index: StoredFeatureIndex<'_> =
            serde_json::from_str(index).context(Code::Internal, "cannot read the index of prompts and resources")?;
        let features = ByFeatureKind::from_fn(|kind| {
            let stored = index.features.get(kind).iter();
            let feature = |(key, fingerprint, start, end): &StoredFeature<'_>| Feature {
                key: key.to_string(),
                fingerprint: *fingerprint,
                range: *start..*end,
            };
            stored.map(feature).collect::<Vec<_>>()
        });
        let is_valid = FeatureKind::ALL
            .iter()
            .flat_map(|kind| features.get(*kind))
            .all(|feature| body.get(feature.range.clone()).is_some());
        if !is_valid {
            let message =
                format!("the stored list of prompts and resources `{}` is damaged", fingerprint.short_hex(12));
            return Err(Error::new(Code::Internal, message));
        }
        let StoredFeatureIndex { source, instructions, skipped, .. } = index;
        Ok(FeatureList {
            source: source.into_owned(),
            fingerprint,
            instructions: instructions.map(Cow::into_owned),
            skipped: skipped.into_owned(),
            digests: list_digests(&features),
            features,
            body: Arc::new(body),
        })
    }
}
