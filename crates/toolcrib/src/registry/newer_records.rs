//! Records of a newer Toolcrib. Most are passed over; after one that must not be ignored, nothing is called or written
//! any more, and what is known can still be read.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::json;
use toolcrib_core::inventory::compare_versions;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

use super::journal::{EntryStatus, JournalEntry};
use super::{RegistryInner, Snapshot};

/// The version of this build.
const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is known of a record that a newer Toolcrib wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewerRecord {
    /// The type of its event.
    pub(crate) kind: String,
    /// The version of Toolcrib that understands it.
    pub(crate) since: String,
    /// Whether it must not be ignored.
    pub(crate) critical: bool,
}

/// Whether a version is later than this build's. Asked of many records at a start, so the common answer comes first.
pub(crate) fn is_newer_version(version: &str) -> bool {
    version != BUILD_VERSION && compare_versions(version, BUILD_VERSION) == Ordering::Greater
}

impl NewerRecord {
    /// Which Toolcrib wrote it, in words.
    pub(crate) fn describe_writer(&self) -> String {
        if is_newer_version(&self.since) {
            format!("Toolcrib {} or newer", sanitize_truncated(&self.since, 40))
        } else {
            "a newer Toolcrib".to_owned()
        }
    }

    /// Why nothing is called or written.
    pub(crate) fn to_error(&self) -> Error {
        let kind = sanitize_truncated(&self.kind, 60);
        let message = format!(
            "the journal holds a record of type `{kind}` that {} wrote and that must not be ignored; \
             this is {BUILD_VERSION}: upgrade Toolcrib",
            self.describe_writer()
        );
        let details = json!({ "type": kind, "since": sanitize_truncated(&self.since, 40), "version": BUILD_VERSION });
        Error::new(Code::StoreUnavailable, message).with_retryable(false).with_details(details)
    }

    /// Of a record that was found before and those that follow, the one that needs the latest version.
    pub(crate) fn latest<'a>(
        found: Option<Arc<NewerRecord>>,
        following: impl Iterator<Item = &'a Arc<NewerRecord>>,
    ) -> Option<Arc<NewerRecord>> {
        following.fold(found, |found, next| match found {
            Some(found) if compare_versions(&next.since, &found.since) != Ordering::Greater => Some(found),
            Some(_) | None => Some(next.clone()),
        })
    }
}

impl JournalEntry {
    /// What the store says of it, where a newer Toolcrib wrote it.
    pub(crate) fn newer_record(&self) -> Option<&Arc<NewerRecord>> {
        match &self.status {
            EntryStatus::Newer(newer) => Some(newer),
            EntryStatus::Understood | EntryStatus::Damaged(_) => None,
        }
    }
}

impl Snapshot {
    /// Refuses to act while the journal is damaged, or holds a record that must not be ignored and that this build does not
    /// understand.
    pub(crate) fn ensure_usable(&self) -> Result<()> {
        self.ensure_undamaged()?;
        match &self.newer_record {
            Some(newer) => Err(newer.to_error()),
            None => Ok(()),
        }
    }
}

impl RegistryInner {
    /// The same, as of now.
    pub(crate) fn ensure_usable(&self) -> Result<()> {
        self.snapshot.load().ensure_usable()
    }
}

/// Tells of records that are passed over, once for all that came together.
pub(super) fn log_ignored_records(news: &[JournalEntry]) {
    let ignored = news.iter().filter_map(JournalEntry::newer_record).filter(|newer| !newer.critical);
    if let Some(latest) = NewerRecord::latest(None, ignored.clone()) {
        tracing::warn!(
            records = ignored.count(),
            since = %sanitize_truncated(&latest.since, 40),
            "the journal holds records that {} wrote; this is {BUILD_VERSION}, and they are passed over",
            latest.describe_writer()
        );
    }
}
