//! Notices to the subscribers of a registry, with what they tell: records, the progress and outcome of discoveries, and
//! finished calls. Defined below the owners that send them, because each owner knows only those before it.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_core::delta::{ToolChange, ToolRename};
use toolcrib_core::features::{ByFeatureKind, FeatureDelta};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::Record;
use toolcrib_core::{SourceId, Timestamp};

use crate::store::{ErrorSummary, SourceStatus, SourceTransition};

/// Notice to the subscribers of a registry; see [`Registry::subscribe`](crate::Registry::subscribe).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RegistryNotice {
    /// A record was appended to the journal, by this or another process.
    RecordAppended(Arc<Record>),
    /// A discovery started. Like all discovery notices a measurement, not a fact of the journal.
    DiscoveryStarted(SourceId),
    /// A discovery ended, successfully or not.
    DiscoveryFinished(Arc<RefreshOutcome>),
    /// A discovery reached another stage.
    DiscoveryProgress {
        /// Source that is being discovered.
        source: SourceId,
        /// The stage that begins.
        stage: DiscoveryStage,
    },
    /// A source failed or recovered, as found by a discovery of this or another process.
    SourceTransition(Arc<SourceTransitionNotice>),
    /// A call ended, successfully or not.
    CallFinished(Arc<CallFinished>),
    /// The tool lists have changed. Sent after the snapshot was replaced, so a subscriber that reads now sees the new
    /// list.
    CatalogChanged,
    /// Groups, access rules or policies have changed, so that principals may see other tools. Sent like `CatalogChanged`.
    RulesChanged,
    /// Prompts, resources or instructions of a source have changed, with or without tools. Sent like `CatalogChanged`.
    FeaturesChanged,
    /// An MCP source sent a notification that belongs to no call, e.g. that its resources or prompts changed.
    SourceNotification {
        /// Sender of the notification.
        source: SourceId,
        /// Method of the protocol, such as `notifications/resources/updated`.
        method: String,
        /// Parameters as the source sent them.
        params: Option<Arc<RawValue>>,
    },
}

/// A source that failed or recovered.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SourceTransitionNotice {
    /// The source.
    pub source: SourceId,
    /// Whether it failed or recovered.
    pub transition: SourceTransition,
    /// Start of the failing discovery, or time of the successful one.
    pub at: Timestamp,
    /// Set if it failed.
    pub error: Option<ErrorSummary>,
    /// Start of the failures.
    pub failing_since: Option<Timestamp>,
    /// Description in one line.
    pub text: String,
}

impl SourceTransitionNotice {
    /// Compares two statuses of a source; `None` if it works or fails as before.
    pub(crate) fn between(
        source: &SourceId,
        before: &SourceStatus,
        after: &SourceStatus,
    ) -> Option<SourceTransitionNotice> {
        let transition = SourceTransition::between(before, after)?;
        let at = match transition {
            SourceTransition::Failed => after.failing_since,
            SourceTransition::Recovered => after.checked_at,
        };
        let at = at.unwrap_or(after.started_at);
        let failing_since = before.failing_since.or(after.failing_since);
        Some(SourceTransitionNotice::new(source.clone(), transition, at, after.last_error.clone(), failing_since))
    }

    /// Describes a transition.
    pub(crate) fn new(
        source: SourceId,
        transition: SourceTransition,
        at: Timestamp,
        error: Option<ErrorSummary>,
        failing_since: Option<Timestamp>,
    ) -> SourceTransitionNotice {
        let text = match transition {
            SourceTransition::Failed => {
                let reason = error.as_ref().map_or("unknown reason", |error| error.message.as_str());
                format!("`{source}` failed: {reason}")
            }
            SourceTransition::Recovered => format!("`{source}` recovered"),
        };
        SourceTransitionNotice { source, transition, at, error, failing_since, text }
    }
}

/// Stage of a running discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
#[non_exhaustive]
pub enum DiscoveryStage {
    /// The tool list is being requested from the source.
    Contacting,
    /// The source has answered; its tool list is being recorded.
    Recording {
        /// Number of tools in the answer.
        tools: usize,
    },
}

/// Outcome of the refresh of one source: a delta, or an error.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RefreshOutcome {
    /// The refreshed source.
    pub source: SourceId,
    /// Tells whether the list changed, and whether the source answered.
    pub status: RefreshStatus,
    /// Whether the source was contacted by this refresh. False for built-in tools, for fresh lists, and when another
    /// process discovered the source meanwhile.
    pub contacted: bool,
    /// Names as agents see them, here and in the fields below.
    pub added: Vec<String>,
    /// Tools whose definition changed, each with the class of the change.
    pub changed: Vec<ToolChange>,
    /// Tools that the source no longer offers.
    pub removed: Vec<String>,
    /// Likely renames; both names are in `removed` and `added` too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<ToolRename>,
    /// Changes of prompts, resources and instructions, by their own names and URIs; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<FeatureOutcome>,
    /// Number of tools that are as before.
    pub unchanged: usize,
    /// Fingerprint of the manifest that is served now.
    pub inventory_hash: Option<Fingerprint>,
    /// Duration of the refresh, with the wait for other discoveries.
    pub elapsed_ms: u64,
    /// Set if `status` is `failed`; the manifest above is then the last good one.
    pub error: Option<ErrorSummary>,
}

/// Changes of a source's prompts, resources and instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FeatureOutcome {
    /// Added, changed and removed prompts, resources and resource templates.
    #[serde(flatten)]
    pub lists: ByFeatureKind<FeatureDelta>,
    /// Whether the server's instructions are new or different.
    pub instructions_changed: bool,
}

/// Status of a finished refresh of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RefreshStatus {
    /// The source answered and its list is new or changed.
    Success,
    /// The source answered with the known list.
    Unchanged,
    /// The list is recent enough; the source was not contacted.
    Fresh,
    /// The discovery failed; the last good list is still served.
    Failed,
    /// The source is disabled and was not contacted.
    Disabled,
}

/// Totals of a refresh of several sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct RefreshTotals {
    /// Number of sources.
    pub sources: usize,
    /// Sources whose list is up to date: `success`, `unchanged` or `fresh`.
    pub succeeded: usize,
    /// Sources whose discovery failed.
    pub failed: usize,
    /// Sources that are disabled.
    pub disabled: usize,
    /// Sources that were contacted.
    pub contacted: usize,
    /// Tools that were added.
    pub added: usize,
    /// Tools that changed.
    pub changed: usize,
    /// Tools that were removed.
    pub removed: usize,
    /// Tools that are as before.
    pub unchanged: usize,
}

impl RefreshTotals {
    /// Adds up outcomes.
    pub fn new(outcomes: &[RefreshOutcome]) -> RefreshTotals {
        let mut totals = RefreshTotals { sources: outcomes.len(), ..RefreshTotals::default() };
        for outcome in outcomes {
            match outcome.status {
                RefreshStatus::Success | RefreshStatus::Unchanged | RefreshStatus::Fresh => totals.succeeded += 1,
                RefreshStatus::Failed => totals.failed += 1,
                RefreshStatus::Disabled => totals.disabled += 1,
            }
            totals.contacted += usize::from(outcome.contacted);
            totals.added += outcome.added.len();
            totals.changed += outcome.changed.len();
            totals.removed += outcome.removed.len();
            totals.unchanged += outcome.unchanged;
        }
        totals
    }
}

impl RefreshStatus {
    /// Returns the name used in JSON, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            RefreshStatus::Success => "success",
            RefreshStatus::Unchanged => "unchanged",
            RefreshStatus::Fresh => "fresh",
            RefreshStatus::Failed => "failed",
            RefreshStatus::Disabled => "disabled",
        }
    }
}

/// Summary of a call that ended, for subscribers and the activity log. Holds neither arguments nor result. Sent for
/// every call that ended, refused ones included.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallFinished {
    /// Name of the tool as lists show it; for an unknown tool, the name as requested.
    pub tool: String,
    /// Source of the tool; `None` when no tool was found.
    pub source: Option<SourceId>,
    /// Name of the caller.
    pub caller: String,
    /// `OK`, or the error code.
    pub code: &'static str,
    /// Time at which the call ended.
    pub at: Timestamp,
    /// Time from the request to the result, with the wait for a discovery.
    pub elapsed_ms: u64,
}

impl RefreshOutcome {
    /// Creates an outcome without changes.
    pub(crate) fn new(source: SourceId, status: RefreshStatus) -> RefreshOutcome {
        RefreshOutcome {
            source,
            status,
            contacted: false,
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            renamed: Vec::new(),
            features: None,
            unchanged: 0,
            inventory_hash: None,
            elapsed_ms: 0,
            error: None,
        }
    }
}
