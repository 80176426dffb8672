//! Measurements: statuses and checks of sources, counts of calls and cache lookups, last uses of tokens. Rows that are
//! written over, not events; losing one costs a discovery or a count.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::{Code, Error, SourceId, Timestamp, ToolId};

use super::Measurement;
use crate::connector::document::DocumentVersions;

/// Number of checks that are kept per source. A source that is checked every five minutes has a history of about eight
/// hours.
pub const MAX_CHECKS_PER_SOURCE: usize = 100;

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
}

/// Status of a source in a store, before a measurement replaces it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredStatus {
    /// Start of the discovery that wrote it.
    pub(crate) started_at: Timestamp,
    /// `None` if it is damaged.
    pub(crate) status: Option<SourceStatus>,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl StoredStatus {
    /// Parses a stored status, whose start is stored apart as well.
    pub(crate) fn parse(started_at: Timestamp, body: &str) -> StoredStatus {
        StoredStatus { started_at, status: serde_json::from_str(body).ok() }
    }
}

/// Lease of a discovery that its holder still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldLease {
    /// Whether the source was invalidated since the lease was acquired.
    pub(crate) invalidated: bool,
}

impl Measurement<'_> {
    /// Returns the status that a store writes; `None` if the measurement is superseded. `lease` is the lease of
    /// [`Measurement::lease`], if its holder still has it.
    ///
    /// Leases order discoveries. Without one, the starts do: one that is later than `now` was stored before the clock
    /// was set back, and does not count.
    pub(crate) fn decide(
        &self,
        stored: Option<&StoredStatus>,
        lease: Option<HeldLease>,
        now: Timestamp,
    ) -> Option<SourceStatus> {
        let is_superseded = match (self.lease, stored) {
            (Some(_), _) => lease.is_none(),
            (None, Some(stored)) if self.check.is_none() => stored.started_at != self.status.started_at,
            (None, Some(stored)) => stored.started_at > self.status.started_at && stored.started_at <= now,
            (None, None) => false,
        };
        if is_superseded {
            return None;
        }
        let status = match (self.check, stored.and_then(|stored| stored.status.clone())) {
            (None, Some(stored)) => stored.with_lists(self.status),
            (Some(_), _) | (None, None) => self.status.clone(),
        };
        // The list may have been read before the invalidation.
        let invalidated = status.invalidated || lease.is_some_and(|lease| lease.invalidated);
        Some(SourceStatus { invalidated, discovering_until: None, ..status })
    }

    /// Whether a running discovery loses its lease: it may have read its list before this one, which the host has
    /// recorded without a lease. A timeout that a reader records is no newer than the discovery that it waited for.
    pub(crate) fn ends_lease(&self, stored: Option<&StoredStatus>) -> bool {
        let stored_start = stored.map_or(Timestamp::default(), |stored| stored.started_at);
        self.lease.is_none() && self.check.is_some() && stored_start < self.status.started_at
    }
}

/// Identity of a batch of counts. A writer numbers its batches upwards, and repeats one with the same number and
/// content until it knows that it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountBatch {
    /// Unique name of the writer.
    pub writer: String,
    /// Number of the batch, starting at 1.
    pub number: u64,
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

/// Last use of an access token. A measurement: the latest time wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUse {
    /// Id of the token.
    pub token: String,
    /// Time of the last admitted request.
    pub last_used: Timestamp,
}
