//! Operations of `toolcrib store`, `backup` and `restore` that a store provides: filling an empty store with the
//! content of another one, removing what is not needed any more, and migrations of the schema.
//!
//! A store that is being filled is marked as an unfinished copy, so that no process works with the part that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::{Code, Error, Result, SourceId, Timestamp, ToolId};

use super::{CacheCount, CallCount, DiscoveryCheck, Login, SourceStatus, StoredRecord, TokenUse};

/// Administration of a store; see [`Store::administration`](super::Store::administration).
///
/// Implementations must not interpret records, and must change nothing when they refuse.
#[async_trait]
pub trait StoreAdministration: Send + Sync + std::fmt::Debug {
    /// Makes an empty store the target of a copy: it takes over the key of the source and is marked as unfinished. A
    /// target that is marked already, with the same key, keeps its records and content and loses its measurements,
    /// which are copied again. Fails with `CONFLICT`, and changes nothing, if the store has records or definitions of
    /// its own, is the unfinished copy of another store, has this key already, or is used by running nodes.
    async fn begin_copy(&self, key: [u8; 32]) -> Result<()>;
    /// Appends records exactly as they are, checksums included, all or none. Fails with `CONFLICT` if the store is not
    /// marked, or if its last record is not `after` (0 for none).
    async fn restore_records(&self, after: u64, records: &[StoredRecord]) -> Result<()>;
    /// Adds measurements exactly as they are. Fails with `CONFLICT` if the store is not marked.
    async fn restore_measurements(&self, measurements: &Measurements) -> Result<()>;
    /// Removes the mark: the store may be used from now on.
    async fn finish_copy(&self) -> Result<()>;
    /// Returns the sources that have checks, whether or not they still exist, in order.
    async fn checked_sources(&self) -> Result<Vec<SourceId>>;

    /// Removes, or counts, what is not in the selection. Also removes the snapshot of the inventory, uncounted. Delays
    /// other writers for moments at most, and keeps what they store meanwhile. An interruption leaves a part of it.
    async fn prune(&self, selection: &PruneSelection, mode: PruneMode) -> Result<PruneReport>;

    /// Returns the version of the schema.
    async fn schema_status(&self) -> Result<SchemaStatus>;
    /// Finishes migrations that were begun in a way that the previous version still understands. Returns false if
    /// there was nothing to finish, as for a store whose migrations are complete once it is open. Fails with `CONFLICT`
    /// while nodes of an earlier version are running.
    async fn migrate_contract(&self) -> Result<bool> {
        Ok(false)
    }
}

/// Measurements, or a part of them, as they are copied.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurements {
    /// Statuses of sources. `discovering_until` is not stored.
    pub statuses: BTreeMap<SourceId, SourceStatus>,
    /// Checks; those of one source in the order in which they were written.
    pub checks: Vec<DiscoveryCheck>,
    /// Counts of calls.
    pub call_counts: Vec<CallCount>,
    /// Counts of cache lookups.
    pub cache_counts: Vec<CacheCount>,
    /// Last uses of tokens.
    pub token_uses: Vec<TokenUse>,
    /// Console sessions and login links.
    pub logins: Vec<Login>,
}

/// Selection of what `prune` keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PruneSelection {
    /// Current time: logins that have expired are removed.
    pub now: Timestamp,
    /// Checks before this time are removed.
    pub checks_since: Timestamp,
    /// Sources whose checks are kept.
    pub sources: BTreeSet<SourceId>,
    /// Sources whose counts of cache lookups are kept.
    pub counted_sources: BTreeSet<SourceId>,
    /// Tools whose counts of calls are kept.
    pub counted_tools: BTreeSet<ToolId>,
    /// Ids of the tokens whose last uses are kept.
    pub tokens: BTreeSet<String>,
    /// Definitions in use.
    pub definitions: BTreeSet<Fingerprint>,
    /// Manifests and lists of prompts and resources that records refer to.
    pub lists: BTreeSet<Fingerprint>,
    /// Definitions and lists that were stored more recently are kept: their record may not be written yet.
    pub min_age: Duration,
}

/// Whether `prune` removes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneMode {
    /// Removes what is not needed.
    Remove,
    /// Only counts it.
    Count,
}

/// Number of rows that `prune` removed, or would remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PruneReport {
    /// Checks of sources.
    pub checks: u64,
    /// Counts of calls and cache lookups.
    pub counts: u64,
    /// Last uses of tokens.
    pub token_uses: u64,
    /// Console sessions and login links.
    pub logins: u64,
    /// Definitions of sources.
    pub definitions: u64,
    /// Manifests and lists of prompts and resources.
    pub manifests: u64,
}

impl PruneReport {
    /// Returns the number of all rows.
    pub fn total(&self) -> u64 {
        self.checks + self.counts + self.token_uses + self.logins + self.definitions + self.manifests
    }
}

/// Version of a store's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SchemaStatus {
    /// Version of the tables.
    pub version: i64,
    /// Whether `migrate_contract` has something to finish: until then, the previous version may use the store too.
    pub is_contract_pending: bool,
}

/// Key in the table `meta` of the mark of an unfinished copy.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const COPYING_KEY: &str = "copying";

/// Result of an operation that only an unfinished copy allows.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyStep {
    Done,
    /// The store is not marked.
    NotMarked,
    /// The store has records or definitions of its own.
    Occupied,
    /// The store is the unfinished copy of a store with another key.
    OtherKey,
    /// The store is the source of the copy, or a finished copy of it.
    SameStore,
    /// Nodes with these labels use the store.
    #[cfg(feature = "postgres")]
    InUse(Vec<String>),
    /// The last record is another one than expected.
    OtherHead,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl CopyStep {
    /// Converts a refusal into an error. `store` names the target, `after` the last record that was expected there.
    pub(crate) fn check(self, store: &str, after: u64) -> Result<()> {
        match self {
            CopyStep::Done => Ok(()),
            CopyStep::NotMarked => Err(no_copy_error(store)),
            CopyStep::Occupied => Err(occupied_target_error(store)),
            CopyStep::OtherKey => Err(foreign_copy_error(store)),
            CopyStep::SameStore => Err(same_store_error(store)),
            #[cfg(feature = "postgres")]
            CopyStep::InUse(labels) => Err(used_target_error(store, &labels)),
            CopyStep::OtherHead => Err(misplaced_records_error(store, after)),
        }
    }
}

/// Error for the target of a copy that has content of its own.
pub(crate) fn occupied_target_error(target: &str) -> Error {
    conflict(format!("the store `{target}` has records already; a copy needs an empty store"))
}

/// Error for an unfinished copy of another store.
pub(crate) fn foreign_copy_error(target: &str) -> Error {
    conflict(format!("the store `{target}` is an unfinished copy of another store; copy into an empty one"))
}

/// Error for a target with the key of the source, which is no unfinished copy of it.
pub(crate) fn same_store_error(target: &str) -> Error {
    conflict(format!("the store `{target}` is the source itself, or a finished copy of it; copy into another one"))
}

/// Error for a target that running nodes use.
#[cfg(feature = "postgres")]
fn used_target_error(target: &str, labels: &[String]) -> Error {
    let labels = labels.join("`, `");
    conflict(format!("the store `{target}` is used by running nodes: `{labels}`; stop them first"))
}

/// Error for a store that is not marked as an unfinished copy.
pub(crate) fn no_copy_error(target: &str) -> Error {
    conflict(format!("the store `{target}` is not the target of a copy"))
}

/// Error for records that do not follow the last one in the target.
pub(crate) fn misplaced_records_error(target: &str, after: u64) -> Error {
    conflict(format!("the last record in `{target}` is not {after}; another process writes to it"))
}

/// Error for a store that may not be used, because it has only a part of the content.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn unfinished_copy_error(store: &str) -> Error {
    let message = format!(
        "the copy into the store `{store}` is not finished; run the interrupted `toolcrib store copy`, `backup` or \
         `restore` again"
    );
    Error::new(Code::StoreUnavailable, message).with_retryable(false)
}

/// Not retryable: it would fail again.
fn conflict(message: String) -> Error {
    Error::new(Code::Conflict, message).with_retryable(false)
}
