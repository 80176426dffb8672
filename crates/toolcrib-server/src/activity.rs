//! Recent activity of this process, for the console: the last calls, discoveries and journal records, calls per minute,
//! discoveries in progress, and the token costs of all tools. In memory and bounded; nothing is persisted.
//!
//! It is fed by the notices of the registry, which may be missed under load. So it is good for a page that people look
//! at, and not for counting: exact numbers are in the metrics and in `stats`.

mod calls_per_minute;
mod token_costs;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use toolcrib::call::CallFinished;
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::{Event, Record};
use toolcrib::registry::{DiscoveryStage, RegistryNotice, Visibility};
use toolcrib::{RefreshOutcome, Registry, SourceId};

pub(crate) use calls_per_minute::MinuteCounts;
pub(crate) use token_costs::TokenCosts;

use calls_per_minute::{CalledTool, CallsPerMinute, ToolCalls};

/// Maximum number of entries; the oldest are dropped. The activity page shows 100 of them; the rest is for its filters,
/// which search the same entries.
const MAX_ACTIVITY_ENTRIES: usize = 500;

/// Collects the activity from the notices of the registry.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    recent: Mutex<RecentActivity>,
    pub(crate) token_costs: TokenCosts,
}

/// Everything behind one lock. Each notice changes it for a moment, and a page copies what it shows.
#[derive(Debug, Default)]
struct RecentActivity {
    /// Oldest first.
    entries: VecDeque<ActivityEntry>,
    calls_per_minute: CallsPerMinute,
    /// Last discovery of each source.
    last_runs: BTreeMap<SourceId, DiscoveryRun>,
    /// Discoveries in progress. An entry is removed when the discovery ends, when its source is removed, or when
    /// notices were missed.
    stages: BTreeMap<SourceId, DiscoveryStage>,
}

/// One entry of the activity list.
#[derive(Debug, Clone)]
pub(crate) struct ActivityEntry {
    pub(crate) at: Timestamp,
    pub(crate) event: ActivityEvent,
}

/// Subject of an activity entry: a finished call or discovery, or a journal record.
#[derive(Debug, Clone)]
pub(crate) enum ActivityEvent {
    /// A call ended, with or without an error.
    Called(Arc<CallFinished>),
    /// A discovery ended that contacted its source; lookups that found a fresh list are left out.
    Discovered(Arc<RefreshOutcome>),
    /// A change was written to the journal.
    Recorded(Arc<Record>),
}

/// One discovery that contacted its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiscoveryRun {
    pub(crate) elapsed_ms: u64,
    pub(crate) failed: bool,
}

impl Activity {
    /// Follows the notices of the registry until it is closed, and counts tokens when a page needs them.
    pub(crate) async fn watch(&self, registry: Registry) {
        // Subscribed before the past is read, so that no discovery between the two is missed.
        let mut notices = registry.subscribe();
        self.load_past_checks(&registry).await;
        tokio::join!(
            async {
                loop {
                    match notices.recv().await {
                        Ok(notice) => self.recent.lock().apply_notice(notice),
                        // The end of a discovery may be among the missed notices; without this it would seem to go on.
                        Err(RecvError::Lagged(_)) => self.recent.lock().stages.clear(),
                        Err(RecvError::Closed) => break,
                    }
                }
            },
            self.token_costs.count_on_request(&registry)
        );
    }

    /// Loads the durations of discoveries before this process started. Without it the charts of a server that was just
    /// started would be empty. A store that cannot be read leaves them empty.
    async fn load_past_checks(&self, registry: &Registry) {
        for source in registry.sources().list() {
            let Ok(checks) = registry.history().checks(&source.id).await else { continue };
            let Some(newest) = checks.first() else { continue };
            let run = DiscoveryRun { elapsed_ms: newest.duration_ms, failed: newest.error.is_some() };
            self.recent.lock().last_runs.insert(source.id, run);
        }
    }

    /// Returns up to `limit` of the entries that `select` returns, newest first.
    pub(crate) fn recent_entries(
        &self,
        select: impl Fn(&ActivityEntry) -> Option<ActivityEntry>,
        limit: usize,
    ) -> Vec<ActivityEntry> {
        // Copied first: `select` may take long, and each notice needs the lock.
        let entries: Vec<ActivityEntry> = self.recent.lock().entries.iter().rev().cloned().collect();
        entries.iter().filter_map(select).take(limit).collect()
    }

    /// Returns the calls of the last hour that a reader may know of, oldest minute first.
    pub(crate) fn calls_in_last_hour(&self, now: Timestamp, visibility: &Visibility) -> Vec<MinuteCounts> {
        let tools = self.recent.lock().calls_per_minute.last_hour(now);
        let is_visible = |calls: &ToolCalls| visibility.shows_called_tool(calls.tool.source.as_ref(), &calls.tool.name);
        calls_per_minute::add_up(tools.into_iter().filter(is_visible))
    }

    /// Returns the last discovery of a source.
    pub(crate) fn last_run(&self, id: &SourceId) -> Option<DiscoveryRun> {
        self.recent.lock().last_runs.get(id).copied()
    }

    /// Returns the stage of a discovery in progress.
    pub(crate) fn discovery_stage(&self, id: &SourceId) -> Option<DiscoveryStage> {
        self.recent.lock().stages.get(id).copied()
    }
}

impl ActivityEntry {
    /// Returns the entry without the tools that its reader may not know of; `None` if it is about nothing else.
    pub(crate) fn restrict(&self, visibility: &Visibility) -> Option<ActivityEntry> {
        let event = match &self.event {
            ActivityEvent::Called(call) => visibility.shows_call(call).then(|| self.event.clone())?,
            ActivityEvent::Discovered(outcome) => {
                ActivityEvent::Discovered(Arc::new(visibility.restrict_outcome((**outcome).clone())?))
            }
            ActivityEvent::Recorded(record) => match visibility.restrict_record(record)? {
                Cow::Borrowed(_) => self.event.clone(),
                Cow::Owned(record) => ActivityEvent::Recorded(Arc::new(record)),
            },
        };
        Some(ActivityEntry { at: self.at, event })
    }
}

impl RecentActivity {
    /// Records a notice of the registry.
    fn apply_notice(&mut self, notice: RegistryNotice) {
        let now = Clock::system().now();
        match notice {
            RegistryNotice::RecordAppended(record) => {
                if let Event::SourceRemoved { source, .. } = &record.event {
                    self.last_runs.remove(source);
                    self.stages.remove(source);
                }
                self.push(ActivityEntry { at: record.at, event: ActivityEvent::Recorded(record) });
            }
            RegistryNotice::DiscoveryStarted(source) => {
                self.stages.insert(source, DiscoveryStage::Contacting);
            }
            RegistryNotice::DiscoveryProgress { source, stage } => {
                self.stages.insert(source, stage);
            }
            RegistryNotice::DiscoveryFinished(outcome) => {
                self.stages.remove(&outcome.source);
                if outcome.contacted {
                    let run = DiscoveryRun { elapsed_ms: outcome.elapsed_ms, failed: outcome.error.is_some() };
                    self.last_runs.insert(outcome.source.clone(), run);
                    self.push(ActivityEntry { at: now, event: ActivityEvent::Discovered(outcome) });
                }
            }
            RegistryNotice::CallFinished(call) => {
                let tool = CalledTool { source: call.source.clone(), name: call.tool.clone() };
                let counts = MinuteCounts { calls: 1, errors: u64::from(call.code != "OK") };
                self.calls_per_minute.record_calls(tool, call.at, counts);
                self.push(ActivityEntry { at: call.at, event: ActivityEvent::Called(call) });
            }
            // The list of discoveries shows failures already.
            RegistryNotice::SourceTransition(_)
            | RegistryNotice::CatalogChanged
            | RegistryNotice::RulesChanged
            | RegistryNotice::FeaturesChanged
            | RegistryNotice::SourceNotification { .. } => {}
            _ => {}
        }
    }

    /// Appends an entry; drops the oldest one if there are too many.
    fn push(&mut self, entry: ActivityEntry) {
        if self.entries.len() == MAX_ACTIVITY_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }
}
