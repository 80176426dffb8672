//! What survives a restart: the journal, manifests and definitions by their fingerprints, and measurements.
//! A store decides nothing; it keeps what it is given, whole or not at all.

mod head;
mod memory;
mod open;
mod salvage;
mod sqlite;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Event};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use crate::connector::DocumentVersions;

pub use head::{HeadFile, JournalPosition};
pub use memory::MemoryStore;
pub use open::{OpenedStore, open, open_with_head};
pub use salvage::{Salvage, rebuild_store};
pub use sqlite::SqliteStore;

/// An implementation returns `STORE_UNAVAILABLE` when it cannot keep its word, and never acknowledges before
/// what it was given is durable. It must not interpret events, retry, or hold a lock across calls. A record is read back as it
/// was written, whether or not this build understands it.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The records after `seq`, in order, at most `limit` of them.
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>>;

    /// Appends facts and a measurement in one transaction, unless the journal has grown meanwhile. With each fact is kept what it says
    /// about itself for versions that do not know it: [`Event::critical`] and [`Event::since`].
    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome>;

    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()>;
    /// Those of the wanted manifests that there are and can be read, in any order.
    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<PackedManifest>>;

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()>;
    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>>;
    /// Drops the definitions a source had, but for the one it has: they may hold secrets.
    async fn remove_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()>;

    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>>;
    /// The last checks of a source, newest first; at most [`CHECKS_KEPT`].
    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>>;
    /// Marks what is known of a source as due, whatever its age.
    async fn invalidate(&self, source: &SourceId) -> Result<()>;
    /// Drops the standing of a source that was removed; its checks stay.
    async fn remove_source_status(&self, source: &SourceId) -> Result<()>;

    /// Takes the right to discover a source for `duration`, unless another holder has it; the same holder renews it.
    /// A store measures durations by a clock that cannot be set, and ends the lease of a process that it knows to have
    /// ended.
    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease>;
    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()>;

    /// Adds to the counters; every entry is an increment.
    async fn add_counts(&self, calls: &[CallCount], needs: &[CacheCount]) -> Result<()>;
    async fn call_counts(&self) -> Result<Vec<CallCount>>;
    async fn cache_counts(&self) -> Result<Vec<CacheCount>>;

    /// A secret of this store, made when it was: the key for hashes that must not be guessed.
    async fn key(&self) -> Result<[u8; 32]>;
    /// Faults that the store's own check finds, at most `limit` lines. Reads everything.
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>>;
    /// A number that changes when another process or this one wrote anything. Cheap: it is polled.
    async fn change_counter(&self) -> Result<u64>;
    async fn close(&self);
}

/// How many checks of a source are kept.
pub const MAX_CHECKS_PER_SOURCE: usize = 100;

/// A journal entry as it lies in the store; its body may be of a kind this build does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub seq: u64,
    pub at: Timestamp,
    pub actor: Actor,
    pub body: String,
    /// Whether a Toolcrib that does not understand the body must stop instead of passing it over.
    pub critical: bool,
    /// The version of Toolcrib that is needed to understand the body.
    pub since: String,
    /// What [`compute_checksum`](StoredRecord::compute_checksum) was when the record was written. `None` for a record of
    /// a version without checksums, which is not checked.
    pub checksum: Option<String>,
}

/// Hexadecimal digits of a checksum: 128 bits, against mistakes and not against an author of files.
const CHECKSUM_DIGITS: usize = 32;

impl StoredRecord {
    /// Checksum over every other field.
    pub fn compute_checksum(&self) -> String {
        compute_checksum(self.seq, self.at, self.actor.as_str(), &self.body, self.critical, &self.since)
    }
}

pub(crate) fn compute_checksum(
    seq: u64,
    at: Timestamp,
    actor: &str,
    body: &str,
    critical: bool,
    since: &str,
) -> String {
    let mut hash = Sha256::new();
    hash.update(seq.to_le_bytes());
    hash.update(at.0.to_le_bytes());
    hash.update([u8::from(critical)]);
    // With their lengths, so that no text moves from one field to the next unnoticed.
    for text in [actor, since, body] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    Fingerprint::from_bytes(hash.finalize().into()).short_hex(CHECKSUM_DIGITS)
}

/// The end of messages about a store that is damaged or gone.
const VERIFY_HINT: &str = "; run `toolcrib verify`";

/// How a store is, as `/readyz` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreState {
    Ok,
    /// It does not answer for now: locked, full, unreachable.
    Down,
    /// What it holds cannot be relied on.
    Damaged,
    /// Its file is gone, or another one lies in its place.
    Missing,
}

impl StoreState {
    pub fn as_str(self) -> &'static str {
        match self {
            StoreState::Ok => "ok",
            StoreState::Down => "down",
            StoreState::Damaged => "damaged",
            StoreState::Missing => "missing",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub(crate) fn is_ok(&self) -> bool {
        *self == StoreState::Ok
    }

    /// What an error of a store says about it. Errors say so in their details, for programs need it too.
    pub fn from_error(error: &Error) -> StoreState {
        let state = error.details.as_ref().and_then(|details| details.get("store"));
        state.and_then(|state| StoreState::deserialize(state).ok()).unwrap_or(StoreState::Down)
    }

    /// Marks an error as one of a store in this state.
    pub(crate) fn annotate(self, error: Error) -> Error {
        error.with_retryable(self == StoreState::Down).with_details(serde_json::json!({ "store": self }))
    }
}

#[derive(Debug)]
pub struct Commit<'a> {
    /// The head of the journal as the writer knows it.
    pub expected_head: u64,
    /// Number of the first new record: the one after `expected`, or a later one where records behind `expected` are lost.
    pub first_seq: u64,
    pub at: Timestamp,
    pub actor: &'a Actor,
    pub events: &'a [Event],
    pub check: Option<(&'a DiscoveryCheck, &'a SourceStatus)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed,
    /// The journal has grown since: catch up and decide again.
    Conflict,
    /// A discovery that started later has already been recorded: this answer is old.
    Superseded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    Granted,
    /// Another holder has it for so long, unless it renews or releases it.
    HeldFor(Duration),
}

/// How a source stands: the sum of its checks. A row, last write wins.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceStatus {
    /// When the newest finished discovery began.
    pub started_at: Timestamp,
    /// When the source itself last answered with its tools.
    pub checked_at: Option<Timestamp>,
    /// What it connected to then.
    #[serde(rename = "connects_to")]
    pub connection_fingerprint: Option<Fingerprint>,
    /// Failures in a row, when the first of them was, and the last of them.
    pub failures: u32,
    pub failing_since: Option<Timestamp>,
    pub last_error: Option<ErrorSummary>,
    /// What the newest discovery tried to connect to.
    #[serde(rename = "tried")]
    pub attempted_fingerprint: Option<Fingerprint>,
    /// Not to be bothered before, unless somebody insists.
    pub not_before: Option<Timestamp>,
    pub invalidated: bool,
    /// The protocol version it was found to speak.
    pub era: Option<String>,
    /// What it announced then besides its tools, by the names of its capabilities.
    #[serde(rename = "offers")]
    pub capabilities: Vec<String>,
    /// What the source itself says about its list: how long it holds, and that it is for nobody else.
    pub hint_ttl_ms: Option<u64>,
    pub private: bool,
    /// What its list was read from.
    #[serde(rename = "marks")]
    pub document_versions: Option<DocumentVersions>,
    /// The end of the lease under which it is being discovered. Kept by `lease` and `release`, ignored by `commit`.
    #[serde(skip)]
    pub discovering_until: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredErrorSummary")]
pub struct ErrorSummary {
    pub code: Code,
    pub message: String,
    /// Whether the same may succeed later.
    pub retryable: bool,
}

impl ErrorSummary {
    pub fn new(code: Code, message: impl Into<String>) -> ErrorSummary {
        ErrorSummary { code, message: message.into(), retryable: code.is_retryable() }
    }

    pub fn from_error(error: &Error) -> ErrorSummary {
        ErrorSummary { code: error.code, message: error.message.clone(), retryable: error.is_retryable() }
    }
}

/// A failure as it lies in a store; those of older versions do not say whether they are retryable.
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
    pub fn is_being_discovered(&self) -> bool {
        self.discovering_until.is_some_and(|until| until > Instant::now())
    }

    /// Whether this one is of a discovery that began after that of `other`. A time that is later than `now` was
    /// written before the clock was set back, and says nothing.
    pub fn supersedes(&self, other: &SourceStatus, now: Timestamp) -> bool {
        self.started_at > other.started_at && self.started_at <= now
    }
}

/// One attempt to discover a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryCheck {
    pub source: SourceId,
    pub at: Timestamp,
    pub duration_ms: u64,
    pub tool_count: Option<usize>,
    pub error: Option<ErrorSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCount {
    pub source: SourceId,
    pub tool: String,
    pub calls: u64,
    pub errors: u64,
    pub last_called: Option<Timestamp>,
    pub last_error: Option<ErrorSummary>,
}

/// How often a source was needed and found fresh, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCount {
    pub source: SourceId,
    pub hits: u64,
    pub misses: u64,
}
