//! Persistent storage: the journal, manifests, feature lists and definitions by their fingerprints, and measurements
//! (statuses, checks, counts, uses of tokens, leases).
//!
//! A store makes no decisions. It writes what it is given, completely or not at all. [`SqliteStore`] is the default;
//! [`PostgresStore`] is shared by several machines; [`MemoryStore`] keeps nothing after it is dropped.

mod administration;
mod copy;
mod head;
mod inventory_snapshot;
mod logins;
mod measurements;
mod memory;
mod nodes;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod rows;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Event};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Error, Result, Source, SourceId, Timestamp};

pub use administration::{
    CopyRun, Measurements, PruneMode, PruneReport, PruneSelection, SchemaStatus, StoreAdministration,
};
pub(crate) use copy::RecordReferences;
pub use copy::{CopyProgress, CopyReport, ReportProgress, copy_store};
pub(crate) use head::RememberedHead;
pub use head::{HeadFile, JournalPosition};
pub use inventory_snapshot::StoredSnapshot;
pub use logins::{Login, LoginKind};
pub(crate) use measurements::UsageCounts;
pub use measurements::{
    CacheCount, CallCount, CountBatch, DiscoveryCheck, ErrorSummary, MAX_CHECKS_PER_SOURCE, SourceStatus,
    SourceTransition, TokenUse,
};
pub use memory::MemoryStore;
pub(crate) use nodes::{MIN_NODE_REPORT_INTERVAL, NODE_REPORT_INTERVAL};
pub use nodes::{NodeReport, NodeStatus};
pub use open::{
    OpenedStore, ensure_lasting, is_same_location, open, open_copy_target, open_existing, open_with_head, remember_copy,
};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{ExistingStore, Restoration, SqliteStore, back_up_store, rebuild_store, restore_backup};

/// Everything that could be read from a damaged store, for a new one.
#[derive(Default)]
#[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only a store in a file is rebuilt"))]
pub struct Salvage {
    /// Key of the old store, so that stored hashes stay valid.
    pub(crate) key: Option<[u8; 32]>,
    /// Records as stored, checksums included.
    pub(crate) records: Vec<StoredRecord>,
    /// Definitions of sources, by their keyed hashes.
    pub(crate) definitions: Vec<(Fingerprint, Source)>,
    /// Manifests that the records refer to.
    pub(crate) manifests: Vec<PackedManifest>,
    /// Lists of prompts and resources that the records refer to.
    pub(crate) features: Vec<FeatureList>,
}

/// Omits the content: definitions may hold secrets.
impl std::fmt::Debug for Salvage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Salvage").field("records", &self.records.len()).finish_non_exhaustive()
    }
}

/// A store. `tests/store.rs` is the contract that every implementation passes.
///
/// Implementations return `STORE_UNAVAILABLE` when they cannot read or write, and acknowledge a write only when it is
/// durable. They must not interpret events, retry, or hold a lock across calls. A record is read back as it was
/// written, whether or not this build understands it.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Returns the records after a sequence number, in order, at most `limit` of them. Only an empty answer tells that
    /// there are no more: a store may return fewer if they are large.
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>>;

    /// Returns the sequence number of the last record if the store keeps it apart from the records, else 0. Records up
    /// to it that are not there any more are lost.
    async fn kept_head(&self) -> Result<u64> {
        Ok(0)
    }

    /// Appends events and a measurement in one transaction, unless the journal has grown meanwhile. Stores with each
    /// event what versions that do not know it need: [`Event::is_critical`] and [`Event::min_version`].
    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome>;

    /// Stores a manifest; replaces one of the same fingerprint that is damaged, or has another form or index. One that
    /// [has the same content](PackedManifest::has_same_content) keeps its order of keys.
    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()>;
    /// Returns those of the manifests that exist and can be read, in any order.
    async fn manifests(&self, fingerprints: &[Fingerprint]) -> Result<Vec<PackedManifest>>;

    /// Stores a list of prompts, resources and instructions; replaces a damaged one of the same fingerprint.
    async fn put_features(&self, features: &FeatureList) -> Result<()>;
    /// Returns the summaries of those of the lists that exist and can be read, in any order. Reads no items.
    async fn feature_summaries(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureSummary>>;
    /// Returns those of the lists that exist and can be read, in any order.
    async fn features(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureList>>;

    /// Stores the definition of a source under its keyed hash.
    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()>;
    /// Returns those of the definitions that exist and can be read, in any order.
    async fn definitions(&self, names: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>>;
    /// Removes a source's definitions except `keep`, if `head` is the last record; returns false if it is not. Old
    /// definitions may hold secrets, and one that another process has declared meanwhile must stay.
    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>, head: u64) -> Result<bool>;

    /// Returns the status of every source that was discovered or is being discovered.
    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>>;
    /// Returns the last checks of a source, newest first; at most [`MAX_CHECKS_PER_SOURCE`].
    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>>;
    /// Marks a source's tool list as stale, whatever its age; so is the one that the current holder of the lease
    /// records.
    async fn invalidate(&self, source: &SourceId) -> Result<()>;
    /// Removes the status of a source that was removed, if `head` is the last record; returns false if it is not. Its
    /// checks stay. A source that is declared again starts as never discovered.
    async fn remove_source_status(&self, source: &SourceId, head: u64) -> Result<bool>;

    /// Acquires the right to discover a source for `duration`, unless another holder has it. A store measures the
    /// duration by a clock that processes cannot set, and ends the lease of a process that it knows to have ended.
    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease>;
    /// Extends the lease of `holder`, even if it has expired, as long as no other holder has acquired it since. Returns
    /// false if the lease is lost.
    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool>;
    /// Releases a lease, if `holder` has it.
    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()>;

    /// Adds to the counts, unless the batch was added before; every entry is an increment. A writer has at most one
    /// entry for each tool or source in a batch.
    async fn add_counts(&self, batch: &CountBatch, calls: &[CallCount], lookups: &[CacheCount]) -> Result<()>;
    /// Returns the call counts of every tool.
    async fn call_counts(&self) -> Result<Vec<CallCount>>;
    /// Returns the cache counts of every source.
    async fn cache_counts(&self) -> Result<Vec<CacheCount>>;

    /// Stores when tokens were last used, unless a later use is stored.
    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()>;
    /// Returns the last uses of tokens in the order of their ids, those of revoked tokens included.
    async fn token_uses(&self) -> Result<Vec<TokenUse>>;

    /// Stores a console session or a login link; replaces one with the same digest. Removes those that had expired when
    /// this one was created.
    async fn put_login(&self, login: &Login) -> Result<()>;
    /// Removes a session or link. Returns true to exactly one of several callers.
    async fn remove_login(&self, digest: Fingerprint) -> Result<bool>;
    /// Returns the sessions and links that have not expired at `now`, in any order.
    async fn logins(&self, now: Timestamp) -> Result<Vec<Login>>;

    /// Records that a node is running. Only stores that several machines can share keep reports.
    async fn report_node(&self, _report: &NodeReport) -> Result<()> {
        Ok(())
    }
    /// Removes the report of a node that ends.
    async fn remove_node(&self, _id: &str) -> Result<()> {
        Ok(())
    }
    /// Returns the nodes that reported recently, ordered by label and id. `None` if the store keeps no reports.
    async fn nodes(&self) -> Result<Option<Vec<NodeStatus>>> {
        Ok(None)
    }

    /// Replaces the stored snapshot of the inventory, unless a later one of the same journal is stored.
    async fn put_snapshot(&self, snapshot: &StoredSnapshot) -> Result<()>;
    /// Returns the stored snapshot of the inventory, whatever its version; `None` if there is none.
    async fn snapshot(&self) -> Result<Option<StoredSnapshot>>;

    /// Returns the operations of `toolcrib store`, which running processes do not need.
    fn administration(&self) -> &dyn StoreAdministration;

    /// Returns the store's secret, created with it: the key for hashes that must not be guessable.
    async fn key(&self) -> Result<[u8; 32]>;
    /// Runs the store's own integrity check; returns at most `limit` faults. Reads everything.
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>>;
    /// Returns numbers of which one changes with every write, of this or another process. Cheap, because they are
    /// polled.
    async fn change_counters(&self) -> Result<ChangeCounters>;
    /// Interval at which `change_counters` is polled.
    fn poll_interval(&self) -> Duration {
        Duration::from_millis(500)
    }
    /// Completes when another process has written records or statuses. A notification may be lost, so readers poll as
    /// well. A store without notifications never completes.
    async fn wait_for_changes(&self) {
        std::future::pending().await
    }
    /// Closes the store. Later calls fail.
    async fn close(&self);
}

/// A journal record as it is stored. Its body may be of a type that this build does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Position in the journal, starting at 1.
    pub seq: u64,
    /// Time of the commit by the clock of the writer.
    pub at: Timestamp,
    /// Client or component that caused the event.
    pub actor: Actor,
    /// The event as JSON.
    pub body: String,
    /// Whether a version that does not understand the body must refuse to work instead of ignoring the record.
    pub critical: bool,
    /// Minimum version of Toolcrib that understands the body.
    pub min_version: String,
    /// Result of [`compute_checksum`](StoredRecord::compute_checksum) when the record was written. `None` for a record
    /// of a version without checksums, which is not verified.
    pub checksum: Option<String>,
}

/// Hexadecimal digits of a checksum: 128 bits. Detects accidental damage; it does not protect against someone who can
/// write the file.
const CHECKSUM_DIGITS: usize = 32;

impl StoredRecord {
    /// Computes the checksum over all other fields.
    pub fn compute_checksum(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.seq.to_le_bytes());
        hash.update(self.at.0.to_le_bytes());
        hash.update([u8::from(self.critical)]);
        // Each text with its length, so that moving text from one field to the next changes the checksum.
        for text in [self.actor.as_str(), &self.min_version, &self.body] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Fingerprint::from_bytes(hash.finalize().into()).short_hex(CHECKSUM_DIGITS)
    }
}

/// End of messages about a store that is damaged or missing.
const VERIFY_HINT: &str = "; run `toolcrib verify`";

/// State of a store, as `/readyz` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreState {
    /// Reads and writes work.
    #[default]
    Ok,
    /// Temporarily unavailable: locked, disk full, unreachable.
    Down,
    /// The content is not reliable.
    Damaged,
    /// The file was removed or replaced.
    Missing,
}

impl StoreState {
    /// Returns the name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreState::Ok => "ok",
            StoreState::Down => "down",
            StoreState::Damaged => "damaged",
            StoreState::Missing => "missing",
        }
    }

    /// For `skip_serializing_if`.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub(crate) fn is_ok(&self) -> bool {
        *self == StoreState::Ok
    }

    /// Returns the state that an error of a store reports in its details; `Down` for errors without one.
    pub fn from_error(error: &Error) -> StoreState {
        let state = error.details.as_ref().and_then(|details| details.get("store"));
        state.and_then(|state| StoreState::deserialize(state).ok()).unwrap_or(StoreState::Down)
    }

    /// Adds the state to an error's details, for programs as well. Only `Down` is retryable.
    pub(crate) fn annotate(self, error: Error) -> Error {
        error.with_retryable(self == StoreState::Down).with_details(serde_json::json!({ "store": self }))
    }
}

/// Key in the details of an error that `toolcrib store migrate --contract` would prevent.
const CONTRACT_PENDING: &str = "contract_pending";

/// Marks the error of a commit that nodes of the previous version could not read.
#[cfg(feature = "postgres")]
fn mark_contract_pending(error: Error) -> Error {
    error.with_details(serde_json::json!({ CONTRACT_PENDING: true }))
}

/// Whether a commit was refused because nodes of the previous version could not read its records.
pub(crate) fn is_contract_pending(error: &Error) -> bool {
    error.details.as_ref().is_some_and(|details| details.get(CONTRACT_PENDING).is_some())
}

/// Numbers that change when a part of the store is written, so that readers need not read the others again. A store may
/// change all of them with every write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCounters {
    /// For records, statuses and leases.
    pub journal: u64,
    /// For counts of calls and lookups. A store may leave out what was written through itself.
    pub counts: u64,
    /// For console sessions and login links.
    pub logins: u64,
    /// For last uses of tokens. A store may leave out what was written through itself.
    pub token_uses: u64,
}

impl ChangeCounters {
    /// Returns the counters of a store that has one number for all parts.
    pub fn for_all_parts(number: u64) -> ChangeCounters {
        ChangeCounters { journal: number, counts: number, logins: number, token_uses: number }
    }
}

/// Content of a commit.
#[derive(Debug)]
pub struct Commit<'a> {
    /// Sequence number of the last record as the writer knows it; the commit fails if the journal has grown since.
    pub expected_head: u64,
    /// Sequence number of the first new record: the one after `expected_head`, or a later one if records after
    /// `expected_head` are known to be lost.
    pub first_seq: u64,
    /// Time of the records.
    pub at: Timestamp,
    /// Client or component that causes the events.
    pub actor: &'a Actor,
    /// New events, in order. May be empty if there is a measurement.
    pub events: &'a [Event],
    /// Measurement to write with the events.
    pub measurement: Option<Measurement<'a>>,
}

/// Measurement of a source: its status, and the check that led to it.
#[derive(Debug, Clone, Copy)]
pub struct Measurement<'a> {
    /// The source.
    pub source: &'a SourceId,
    /// Replaces the stored status, unless a discovery that started later has written one. Starts of discoveries under
    /// leases are not compared, because they are by the clocks of several machines.
    pub status: &'a SourceStatus,
    /// `None` for a status that completes that of an earlier check: of the stored status, only the fields of
    /// [`SourceStatus::with_lists`] are replaced. A stored status with another start supersedes it.
    pub check: Option<&'a DiscoveryCheck>,
    /// Holder of the lease under which the source was discovered. If that lease is lost, the commit is
    /// [`CommitOutcome::Superseded`]: a holder that was paused must not overwrite what its successor found. If the
    /// source was invalidated since the lease was acquired, its status stays invalidated.
    pub lease: Option<&'a str>,
}

impl<'a> Measurement<'a> {
    /// Measurement of a discovery that has ended.
    pub fn from_check(check: &'a DiscoveryCheck, status: &'a SourceStatus) -> Measurement<'a> {
        Measurement { source: &check.source, status, check: Some(check), lease: None }
    }

    /// Returns this measurement with the holder of the lease that it depends on.
    #[must_use]
    pub fn under_lease(self, holder: &'a str) -> Measurement<'a> {
        Measurement { lease: Some(holder), ..self }
    }
}

impl Commit<'_> {
    /// Returns the records of the events: all of the same time and actor, with consecutive numbers.
    pub(crate) fn records(&self) -> serde_json::Result<Vec<StoredRecord>> {
        let record = |(index, event): (usize, &Event)| {
            let mut record = StoredRecord {
                seq: self.first_seq.saturating_add(index as u64),
                at: self.at,
                actor: self.actor.clone(),
                body: serde_json::to_string(event)?,
                critical: event.is_critical(),
                min_version: event.min_version().to_owned(),
                checksum: None,
            };
            record.checksum = Some(record.compute_checksum());
            Ok(record)
        };
        self.events.iter().enumerate().map(record).collect()
    }
}

/// Result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Everything was written in one transaction.
    Committed,
    /// The journal has grown since: catch up and decide again.
    Conflict,
    /// A discovery that started later has already been recorded, or the lease was lost; nothing was written.
    Superseded,
}

/// Answer to a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// The requester holds the lease now.
    Granted,
    /// Another holder has the lease for this long, unless it renews or releases it.
    HeldFor(Duration),
}
