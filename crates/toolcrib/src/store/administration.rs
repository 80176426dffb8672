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
    /// Makes an empty store the target of a copy: it takes over the key of the source and is marked as unfinished, with
    /// the run of the copy. A target that is marked already, with the same key, keeps its records and content and loses
    /// its measurements, which are copied again; the run that marked it before can write no more. Fails with
    /// `CONFLICT`, and changes nothing, if the store has records or definitions of its own, is the unfinished copy of
    /// another store, has this key already, or is used by running nodes.
    async fn begin_copy(&self, key: [u8; 32], run: CopyRun) -> Result<()>;
    /// Appends records exactly as they are, checksums included, all or none. Fails with `CONFLICT` if the store is not
    /// marked with this run, or if its last record is not `after` (0 for none).
    async fn restore_records(&self, run: CopyRun, after: u64, records: &[StoredRecord]) -> Result<()>;
    /// Adds measurements exactly as they are. Fails with `CONFLICT` if the store is not marked with this run.
    async fn restore_measurements(&self, run: CopyRun, measurements: &Measurements) -> Result<()>;
    /// Replaces the mark by that of a finished copy: the store may be used from now on. Fails with `CONFLICT` if the
    /// store is not marked with this run.
    async fn finish_copy(&self, run: CopyRun) -> Result<()>;
    /// Returns the run that has filled this store; `None` if it is no finished copy.
    async fn finished_copy(&self) -> Result<Option<CopyRun>>;
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

/// One run of a copy: a random number that is written to the target. Of two runs into the same target, the later one
/// goes on. Two locations whose stores were filled by different runs lead to different stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRun(pub(crate) [u8; 16]);

impl CopyRun {
    /// Begins a run.
    #[expect(clippy::new_without_default, reason = "each one differs")]
    pub fn new() -> CopyRun {
        CopyRun(rand::random())
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
    /// Minimum age of removed entries. Recent ones are kept: their record may not be written yet, or was written after
    /// this selection was read. Counts of cache lookups have no time.
    pub min_age: Duration,
}

impl PruneSelection {
    /// Returns the time before which something must have been used last to be removed.
    pub(crate) fn used_before(&self) -> Timestamp {
        let age = i64::try_from(self.min_age.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.now.0.saturating_sub(age))
    }
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

/// Key in the table `meta` of the mark of an unfinished copy. The value is its run.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const COPYING_KEY: &str = "copying";
/// Key in the table `meta` of the mark of a finished copy.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const COPIED_KEY: &str = "copied";

/// A store that is to become the target of a copy.
#[derive(Debug)]
pub(crate) struct CopyTarget {
    /// Whether it is an unfinished copy.
    pub(crate) is_marked: bool,
    /// Whether its key is that of the source.
    pub(crate) has_source_key: bool,
    /// Whether it has records or definitions. Manifests are the same in every store.
    pub(crate) has_content: bool,
    /// Labels of the nodes that use it, and would go on with the key that they have read.
    pub(crate) nodes: Vec<String>,
}

impl CopyTarget {
    /// Decides whether a copy may begin or go on.
    pub(crate) fn check(self) -> Result<(), CopyRefusal> {
        match self {
            CopyTarget { is_marked: true, has_source_key: true, .. } => Ok(()),
            CopyTarget { is_marked: true, .. } => Err(CopyRefusal::OtherKey),
            CopyTarget { has_content: true, .. } => Err(CopyRefusal::Occupied),
            CopyTarget { has_source_key: true, .. } => Err(CopyRefusal::SameStore),
            CopyTarget { nodes, .. } if !nodes.is_empty() => Err(CopyRefusal::InUse(nodes)),
            CopyTarget { .. } => Ok(()),
        }
    }
}

/// Fails unless a target is marked with `run`.
pub(crate) fn check_mark(mark: Option<CopyRun>, run: CopyRun) -> Result<(), CopyRefusal> {
    match mark {
        None => Err(CopyRefusal::NotMarked),
        Some(mark) if mark != run => Err(CopyRefusal::OtherRun),
        Some(_) => Ok(()),
    }
}

/// Reason why a store refuses a step of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyRefusal {
    /// The store is not marked.
    NotMarked,
    /// A later run has marked the store.
    OtherRun,
    /// The store has records or definitions of its own.
    Occupied,
    /// The store is the unfinished copy of a store with another key.
    OtherKey,
    /// The store is the source of the copy, or a finished copy of it.
    SameStore,
    /// Nodes with these labels use the store.
    InUse(Vec<String>),
    /// The last record is not the one with this number (0 for none).
    OtherHead(u64),
}

impl CopyRefusal {
    /// Converts the refusal into an error. `target` names the store.
    pub(crate) fn to_error(&self, target: &str) -> Error {
        let message = match self {
            CopyRefusal::NotMarked => format!("the store `{target}` is not the target of a copy"),
            CopyRefusal::OtherRun => {
                format!("another run of this copy has begun to fill the store `{target}`; let that one finish")
            }
            CopyRefusal::Occupied => format!("the store `{target}` has records already; a copy needs an empty store"),
            CopyRefusal::OtherKey => {
                format!("the store `{target}` is an unfinished copy of another store; copy into an empty one")
            }
            CopyRefusal::SameStore => {
                format!("the store `{target}` is the source itself, or a finished copy of it; copy into another one")
            }
            CopyRefusal::InUse(nodes) => {
                format!("the store `{target}` is used by running nodes: `{}`; stop them first", nodes.join("`, `"))
            }
            CopyRefusal::OtherHead(after) => {
                format!("the last record in `{target}` is not {after}; another process writes to it")
            }
        };
        // Not retryable: it would fail again.
        Error::new(Code::Conflict, message).with_retryable(false)
    }
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
