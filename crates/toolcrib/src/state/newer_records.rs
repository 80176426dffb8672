//! Journal records written by a newer Toolcrib. Most are ignored; after a critical one, calls and writes are refused,
//! and what is known can still be read.
//!
//! Several versions may share a store, e.g. during an upgrade. A record is critical if ignoring it would leave
//! something allowed that it takes away; an old process that meets one goes on reading and listing, but is not ready.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::json;
use toolcrib_core::inventory::compare_versions;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error};

use super::journal::{EntryStatus, JournalEntry};

/// Version of this build.
const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Description of a record that a newer Toolcrib wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewerRecord {
    /// Type of the event.
    pub(crate) kind: String,
    /// Version of Toolcrib that understands the record.
    pub(crate) min_version: String,
    /// Whether the record must not be ignored.
    pub(crate) critical: bool,
}

/// Whether a version is later than this build's. Runs for every record at a start, so the common case is a string
/// comparison.
pub(crate) fn is_newer_version(version: &str) -> bool {
    version != BUILD_VERSION && compare_versions(version, BUILD_VERSION) == Ordering::Greater
}

impl NewerRecord {
    /// Describes which Toolcrib wrote the record. The version in the record is foreign text: it is named only if it is
    /// later than this build, and shortened.
    pub(crate) fn describe_writer(&self) -> String {
        if is_newer_version(&self.min_version) {
            format!("Toolcrib {} or newer", sanitize_truncated(&self.min_version, 40))
        } else {
            "a newer Toolcrib".to_owned()
        }
    }

    /// Returns the error with which calls and writes are refused. Not retryable: only an upgrade helps. The details
    /// name the type of the record and both versions.
    pub(crate) fn to_error(&self) -> Error {
        let kind = sanitize_truncated(&self.kind, 60);
        let message = format!(
            "the journal holds a record of type `{kind}` that {} wrote and that must not be ignored; \
             this is {BUILD_VERSION}: upgrade Toolcrib",
            self.describe_writer()
        );
        let details =
            json!({ "type": kind, "since": sanitize_truncated(&self.min_version, 40), "version": BUILD_VERSION });
        Error::new(Code::StoreUnavailable, message).with_retryable(false).with_details(details)
    }

    /// Returns the record that needs the latest version, among `found` and `following`. An upgrade to that version
    /// understands all of them.
    pub(crate) fn latest<'a>(
        found: Option<Arc<NewerRecord>>,
        following: impl Iterator<Item = &'a Arc<NewerRecord>>,
    ) -> Option<Arc<NewerRecord>> {
        following.fold(found, |found, next| match found {
            Some(found) if compare_versions(&next.min_version, &found.min_version) != Ordering::Greater => Some(found),
            Some(_) | None => Some(next.clone()),
        })
    }
}

impl JournalEntry {
    /// Returns what is known of the record if a newer Toolcrib wrote it.
    pub(crate) fn newer_record(&self) -> Option<&Arc<NewerRecord>> {
        match &self.status {
            EntryStatus::Newer(newer) => Some(newer),
            EntryStatus::Understood | EntryStatus::Damaged(_) => None,
        }
    }
}

/// Logs ignored records, once per batch.
pub(super) fn log_ignored_records(entries: &[JournalEntry]) {
    let ignored = entries.iter().filter_map(JournalEntry::newer_record).filter(|newer| !newer.critical);
    if let Some(latest) = NewerRecord::latest(None, ignored.clone()) {
        tracing::warn!(
            records = ignored.count(),
            since = %sanitize_truncated(&latest.min_version, 40),
            "the journal holds records that {} wrote; this is {BUILD_VERSION}, and they are ignored",
            latest.describe_writer()
        );
    }
}
