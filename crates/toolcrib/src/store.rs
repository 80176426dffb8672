//! Persistent storage: the journal, manifests, feature lists and definitions by their fingerprints, and measurements
//! (statuses, checks, counts, uses of tokens, leases).
//!
//! A store makes no decisions. It writes what it is given, completely or not at all. [`SqliteStore`] is the default;
//! [`MemoryStore`] keeps nothing after it is dropped.

mod head;
mod logins;
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
use tokio::time::Instant;
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Event};
use toolcrib_core::manifest::{PackedManifest, SkippedTool};
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp, ToolId};

use crate::connector::document::DocumentVersions;

pub(crate) use head::RememberedHead;
pub use head::{HeadFile, JournalPosition};
pub use logins::{Login, LoginKind};
pub use memory::MemoryStore;
pub use nodes::{NodeReport, NodeStatus};
pub use open::{OpenedStore, open, open_with_head};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteStore, rebuild_store};

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
    /// Returns the records after a sequence number, in order, at most `limit` of them.
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>>;

    /// Appends events and a measurement in one transaction, unless the journal has grown meanwhile. Stores with each
    /// event what versions that do not know it need: [`Event::is_critical`] and [`Event::min_version`].
    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome>;

    /// Stores a manifest; replaces a damaged one of the same fingerprint.
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
    /// Removes a source's definitions except `keep`. Old definitions may hold secrets.
    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>) -> Result<()>;

    /// Returns the status of every source that was discovered or is being discovered.
    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>>;
    /// Returns the last checks of a source, newest first; at most [`MAX_CHECKS_PER_SOURCE`].
    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>>;
    /// Marks a source's tool list as stale, whatever its age.
    async fn invalidate(&self, source: &SourceId) -> Result<()>;
    /// Removes the status of a source that was removed; its checks stay. A source that is declared again starts as
    /// never discovered.
    async fn remove_source_status(&self, source: &SourceId) -> Result<()>;

    /// Acquires the right to discover a source for `duration`, unless another holder has it. A store measures the
    /// duration by a clock that processes cannot set, and ends the lease of a process that it knows to have ended.
    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease>;
    /// Extends the lease of `holder`, even if it has expired, as long as no other holder has acquired it since. Returns
    /// false if the lease is lost.
    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool>;
    /// Releases a lease, if `holder` has it.
    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()>;

    /// Adds to the counts; every entry is an increment.
    async fn add_counts(&self, calls: &[CallCount], lookups: &[CacheCount]) -> Result<()>;
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

    /// Returns the store's secret, created with it: the key for hashes that must not be guessable.
    async fn key(&self) -> Result<[u8; 32]>;
    /// Runs the store's own integrity check; returns at most `limit` faults. Reads everything.
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>>;
    /// Returns a number that changes with every write, of this or another process. Cheap, because it is polled.
    async fn change_counter(&self) -> Result<u64>;
    /// Interval at which `change_counter` is polled.
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

/// Number of checks that are kept per source. A source that is checked every five minutes has a history of about eight
/// hours.
pub const MAX_CHECKS_PER_SOURCE: usize = 100;

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
    /// Replaces the stored status, unless a discovery that started later has written one.
    pub status: &'a SourceStatus,
    /// `None` for a status that completes that of an earlier check: of a stored status with the same start, only the
    /// fields of [`SourceStatus::with_lists`] are replaced.
    pub check: Option<&'a DiscoveryCheck>,
    /// Holder of the lease under which the source was discovered. If that lease is lost, the commit is
    /// [`CommitOutcome::Superseded`]: a holder that was paused must not overwrite what its successor found.
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

/// Last use of an access token. A measurement: the latest time wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUse {
    /// Id of the token.
    pub token: String,
    /// Time of the last admitted request.
    pub last_used: Timestamp,
}

/// Answer to a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// The requester holds the lease now.
    Granted,
    /// Another holder has the lease for this long, unless it renews or releases it.
    HeldFor(Duration),
}

/// Status of a source: result of its latest discoveries. A measurement, so the last write wins.
///
/// More than twelve fields: one row of the store, read and written as a whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    /// Start of the newest discovery that has ended.
    pub started_at: Timestamp,
    /// Time of the last successful discovery.
    pub checked_at: Option<Timestamp>,
    /// Keyed hash of what the source connected to at that time (address, command, credentials).
    #[serde(rename = "connects_to")]
    pub connection_fingerprint: Option<Fingerprint>,
    /// Number of failed discoveries in a row.
    pub failures: u32,
    /// Time of the first of those failures.
    pub failing_since: Option<Timestamp>,
    /// Error of the last of those.
    pub last_error: Option<ErrorSummary>,
    /// Keyed hash of what the newest discovery tried to connect to.
    #[serde(rename = "tried")]
    pub attempted_fingerprint: Option<Fingerprint>,
    /// End of the backoff: no discovery before this time, unless it is forced.
    pub not_before: Option<Timestamp>,
    /// Whether the tool list counts as stale whatever its age.
    pub invalidated: bool,
    /// MCP protocol version of the source.
    pub era: Option<String>,
    /// Names of the capabilities, besides tools, that the source announced.
    #[serde(rename = "offers")]
    pub capabilities: Vec<String>,
    /// Time for which the source says that its list may be cached.
    pub hint_ttl_ms: Option<u64>,
    /// Whether the source says that its list must not be shared between callers.
    pub private: bool,
    /// Lists of prompts and resources that the last discovery could not read, by method, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_lists: Vec<SkippedTool>,
    /// Set while prompts and resources are being read, which tools do not wait for: time by which that has ended. Later
    /// than that, the reader ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists_pending_until: Option<Timestamp>,
    /// Versions (ETag, hash) of the documents that the list was read from, for conditional requests.
    #[serde(rename = "marks")]
    pub document_versions: Option<DocumentVersions>,
    /// End of the lease under which the source is being discovered. Derived from the leases; ignored by `commit`.
    #[serde(skip)]
    pub discovering_until: Option<Instant>,
}

/// An error in a form that can be stored and serialized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredErrorSummary")]
pub struct ErrorSummary {
    /// Code of the error.
    pub code: Code,
    /// Message for people, without secrets.
    pub message: String,
    /// Whether a retry may succeed.
    pub retryable: bool,
}

impl ErrorSummary {
    /// Creates a summary with the code's default for `retryable`.
    pub fn new(code: Code, message: impl Into<String>) -> ErrorSummary {
        ErrorSummary { code, message: message.into(), retryable: code.is_retryable() }
    }

    /// Summarizes an error, without details and cause.
    pub fn from_error(error: &Error) -> ErrorSummary {
        ErrorSummary { code: error.code, message: error.message.clone(), retryable: error.is_retryable() }
    }
}

/// Stored form of [`ErrorSummary`]. Older versions did not store `retryable`.
#[derive(Deserialize)]
struct StoredErrorSummary {
    code: Code,
    message: String,
    retryable: Option<bool>,
}

impl From<StoredErrorSummary> for ErrorSummary {
    fn from(stored: StoredErrorSummary) -> ErrorSummary {
        let retryable = stored.retryable.unwrap_or(stored.code.is_retryable());
        ErrorSummary { code: stored.code, message: stored.message, retryable }
    }
}

impl SourceStatus {
    /// Returns this status with the fields about prompts and resources of another one. Other fields may have changed
    /// while the lists were read, such as by an invalidation.
    #[must_use]
    pub fn with_lists(self, completed: &SourceStatus) -> SourceStatus {
        SourceStatus {
            hint_ttl_ms: completed.hint_ttl_ms,
            private: completed.private,
            failed_lists: completed.failed_lists.clone(),
            lists_pending_until: completed.lists_pending_until,
            ..self
        }
    }

    /// Whether a discovery of the source is running, in any process.
    pub fn is_being_discovered(&self) -> bool {
        self.discovering_until.is_some_and(|until| until > Instant::now())
    }

    /// Whether this status is of a discovery that started after that of `other`. A start later than `now` was stored
    /// before the clock was set back, and does not count.
    pub fn supersedes(&self, other: &SourceStatus, now: Timestamp) -> bool {
        self.started_at > other.started_at && self.started_at <= now
    }
}

/// One attempt to discover a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryCheck {
    /// The source.
    pub source: SourceId,
    /// Start of the attempt.
    pub at: Timestamp,
    /// Duration of the attempt.
    pub duration_ms: u64,
    /// Number of tools found; `None` if the discovery failed.
    pub tool_count: Option<usize>,
    /// Set if the attempt failed.
    pub error: Option<ErrorSummary>,
    /// Set if the source failed or recovered with this attempt; versions before stored none.
    #[serde(default)]
    pub transition: Option<SourceTransition>,
}

/// Change of a source between working and failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceTransition {
    /// The first failure after a success, or the first attempt of all failed.
    Failed,
    /// The first success after a failure.
    Recovered,
}

impl SourceTransition {
    /// Name in JSON and of the live event.
    pub fn name(self) -> &'static str {
        match self {
            SourceTransition::Failed => "failed",
            SourceTransition::Recovered => "recovered",
        }
    }

    /// Returns the transition between two statuses of a source, in this order.
    pub fn between(before: &SourceStatus, after: &SourceStatus) -> Option<SourceTransition> {
        match (before.failures, after.failures) {
            (0, 1..) => Some(SourceTransition::Failed),
            (1.., 0) => Some(SourceTransition::Recovered),
            (0, 0) | (1.., 1..) => None,
        }
    }
}

/// Calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCount {
    /// Source of the tool.
    pub source: SourceId,
    /// Original name of the tool.
    pub tool: String,
    /// Number of calls, failed ones included.
    pub calls: u64,
    /// Number of failed calls.
    pub errors: u64,
    /// End of the last call.
    pub last_called: Option<Timestamp>,
    /// Reason of the last failed call.
    pub last_error: Option<ErrorSummary>,
}

/// Requests for a source's tools that found the list fresh (hits) or not (misses).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCount {
    /// The source.
    pub source: SourceId,
    /// Requests that found the list fresh.
    pub hits: u64,
    /// Requests that found a stale list or none.
    pub misses: u64,
}

/// Counts of tools and sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageCounts {
    pub(crate) calls: BTreeMap<ToolId, CallCount>,
    pub(crate) cache_lookups: BTreeMap<SourceId, CacheCount>,
}

impl UsageCounts {
    /// Adds increments that were counted after everything in `self`.
    pub(crate) fn add<'a>(
        &mut self,
        calls: impl IntoIterator<Item = &'a CallCount>,
        lookups: impl IntoIterator<Item = &'a CacheCount>,
    ) {
        for increment in calls {
            let id = ToolId { source: increment.source.clone(), name: increment.tool.clone() };
            let zero = CallCount::zero(&id);
            self.calls.entry(id).or_insert(zero).add(increment);
        }
        for increment in lookups {
            let zero = CacheCount { hits: 0, misses: 0, ..increment.clone() };
            let count = self.cache_lookups.entry(increment.source.clone()).or_insert(zero);
            count.hits += increment.hits;
            count.misses += increment.misses;
        }
    }
}

impl CallCount {
    pub(crate) fn zero(tool: &ToolId) -> CallCount {
        CallCount {
            source: tool.source.clone(),
            tool: tool.name.clone(),
            calls: 0,
            errors: 0,
            last_called: None,
            last_error: None,
        }
    }

    /// Adds `newer`, which was counted after `self`. One without an error keeps the error of an earlier one.
    pub(crate) fn add(&mut self, newer: &CallCount) {
        self.calls += newer.calls;
        self.errors += newer.errors;
        self.last_called = self.last_called.max(newer.last_called);
        self.last_error = newer.last_error.clone().or(self.last_error.take());
    }
}
