//! Stored form of a feature list: a summary, which a start reads, and one text with the index of the items and the items.
//!
//! ```text
//! summary  {"source":"git","counts":{"prompts":1,…},"digests":{"prompts":"…",…},"instructions":"…","set_aside":[]}
//! items    {"prompts":[["review","…",0,18]],"resources":[["file:///a","…",18,36]],…}
//!          {"name":"review",…}{"uri":"file:///a",…}
//! ```
//!
//! The index is the first line of the items: JSON has no line break outside of a string, and none inside.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ByFeatureKind, Feature, FeatureKind, FeatureList, FeatureSummary};
use crate::error::{Code, Error, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::manifest::SkippedTool;
use crate::source::SourceId;

/// Stored form of the summary.
#[derive(Serialize, Deserialize)]
struct StoredSummary<'a> {
    source: Cow<'a, SourceId>,
    counts: Cow<'a, ByFeatureKind<usize>>,
    digests: Cow<'a, ByFeatureKind<Fingerprint>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<Cow<'a, str>>,
    #[serde(default, rename = "set_aside")]
    skipped: Cow<'a, [SkippedTool]>,
}

/// Key and fingerprint of a feature, and start and end of its JSON after the index.
type StoredFeature<'a> = (Cow<'a, str>, Fingerprint, usize, usize);

impl FeatureSummary {
    /// Returns the stored form.
    pub fn to_json(&self) -> Result<String> {
        let stored = StoredSummary {
            source: Cow::Borrowed(&self.source),
            counts: Cow::Borrowed(&self.counts),
            digests: Cow::Borrowed(&self.digests),
            instructions: self.instructions.as_deref().map(Cow::Borrowed),
            skipped: Cow::Borrowed(&self.skipped),
        };
        serde_json::to_string(&stored).context(Code::Internal, "cannot serialize the summary of prompts and resources")
    }

    /// Restores a summary from its stored form.
    pub fn read(fingerprint: Fingerprint, summary: &str) -> Result<FeatureSummary> {
        let StoredSummary { source, counts, digests, instructions, skipped } = serde_json::from_str(summary)
            .context(Code::Internal, "cannot read the summary of prompts and resources")?;
        Ok(FeatureSummary {
            source: source.into_owned(),
            fingerprint,
            instructions: instructions.map(Cow::into_owned),
            skipped: skipped.into_owned(),
            counts: counts.into_owned(),
            digests: digests.into_owned(),
        })
    }
}

impl FeatureList {
    /// Returns index and items in their stored form. The summary is stored separately.
    pub fn items_text(&self) -> Result<String> {
        let stored = |feature: &'_ Feature| {
            (Cow::Owned(feature.key.clone()), feature.fingerprint, feature.range.start, feature.range.end)
        };
        let index: ByFeatureKind<Vec<StoredFeature<'_>>> =
            ByFeatureKind::from_fn(|kind| self.features(kind).iter().map(stored).collect());
        let index = serde_json::to_string(&index);
        let index = index.context(Code::Internal, "cannot serialize the index of prompts and resources")?;
        Ok(format!("{index}\n{}", self.body))
    }

    /// Restores a list from its stored summary and items. Checks offsets, not contents: see [`Self::find_damage`].
    pub fn read(fingerprint: Fingerprint, summary: &str, items: &str) -> Result<FeatureList> {
        let summary = FeatureSummary::read(fingerprint, summary)?;
        let (index, body) = items.split_once('\n').unwrap_or_default();
        let index: ByFeatureKind<Vec<StoredFeature<'_>>> =
            serde_json::from_str(index).context(Code::Internal, "cannot read the index of prompts and resources")?;
        let features = ByFeatureKind::from_fn(|kind| {
            let feature = |(key, fingerprint, start, end): &StoredFeature<'_>| Feature {
                key: key.to_string(),
                fingerprint: *fingerprint,
                range: *start..*end,
            };
            index.get(kind).iter().map(feature).collect::<Vec<_>>()
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
        Ok(FeatureList { summary, features, body: Arc::new(body.to_owned()) })
    }
}
