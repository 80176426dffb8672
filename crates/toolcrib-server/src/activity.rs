//! What happened lately, as this process saw it: the last calls, discoveries and records, calls by the minute, what is
//! being discovered, what all tools cost. Kept in memory for the console, and bounded.

mod calls_per_minute;
mod token_costs;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::RecvError;
use toolcrib::call::CallFinished;
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::{Event, Record};
use toolcrib::registry::{DiscoveryStage, RegistryNotice};
use toolcrib::{RefreshOutcome, Registry, SourceId};

pub(crate) use calls_per_minute::{CallsPerMinute, MinuteCounts};
pub(crate) use token_costs::TokenCosts;

/// So much of what happened is remembered.
const MAX_ACTIVITY_ENTRIES: usize = 500;
/// Discoveries of one source whose durations are remembered.
const MAX_RUNS_PER_SOURCE: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Activity {
    recent: Mutex<RecentActivity>,
    pub(crate) token_costs: TokenCosts,
}

#[derive(Debug, Default)]
struct RecentActivity {
    /// The oldest first.
    entries: VecDeque<ActivityEntry>,
    calls_per_minute: CallsPerMinute,
    runs: BTreeMap<SourceId, VecDeque<DiscoveryRun>>,
    stages: BTreeMap<SourceId, DiscoveryStage>,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) struct ActivityEntry {
    pub(crate) at: Timestamp,
    pub(crate) event: ActivityEvent,
}

#[derive(Debug, Clone)]
pub(crate) enum ActivityEvent {
    Called(Arc<CallFinished>),
    Discovered(Arc<RefreshOutcome>),
    Recorded(Arc<Record>),
}

/// One discovery that contacted its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiscoveryRun {
    pub(crate) elapsed_ms: u64,
    pub(crate) failed: bool,
}

impl Activity {
    /// Listens for as long as the registry is there.
    pub(crate) async fn watch(&self, registry: Registry) {
        let mut notices = registry.subscribe();
        self.load_past_checks(&registry).await;
        tokio::join!(
            async {
                loop {
                    match notices.recv().await {
                        Ok(notice) => self.lock().apply_notice(notice),
                        // What was missed is missed; a discovery must not seem to go on for ever.
                        Err(RecvError::Lagged(_)) => self.lock().stages.clear(),
                        Err(RecvError::Closed) => break,
                    }
                }
            },
            self.token_costs.count_on_request(&registry)
        );
    }

    /// How long discoveries took before this server started.
    async fn load_past_checks(&self, registry: &Registry) {
        for source in registry.sources() {
            let Ok(checks) = registry.checks(&source.id).await else { continue };
            let newest = checks.iter().take(MAX_RUNS_PER_SOURCE).rev();
            let runs = newest
                .map(|check| DiscoveryRun { elapsed_ms: check.duration_ms, failed: check.error.is_some() })
                .collect();
            self.lock().runs.insert(source.id, runs);
        }
    }

    /// The newest first.
    pub(crate) fn recent_entries(&self, wanted: impl Fn(&ActivityEntry) -> bool, most: usize) -> Vec<ActivityEntry> {
        self.lock().entries.iter().rev().filter(|moment| wanted(moment)).take(most).cloned().collect()
    }

    /// The last hour, the oldest minute first.
    pub(crate) fn calls_in_last_hour(&self, now: Timestamp) -> Vec<MinuteCounts> {
        self.lock().calls_per_minute.last_hour(now)
    }

    /// How long discoveries took, the oldest first.
    pub(crate) fn discovery_runs(&self, id: &SourceId) -> Vec<DiscoveryRun> {
        self.lock().runs.get(id).map(|runs| runs.iter().copied().collect()).unwrap_or_default()
    }

    /// How far a discovery under way has come.
    pub(crate) fn discovery_stage(&self, id: &SourceId) -> Option<DiscoveryStage> {
        self.lock().stages.get(id).copied()
    }

    fn lock(&self) -> MutexGuard<'_, RecentActivity> {
        // Whatever ended in a panic left numbers, none of which can be half-written.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentActivity {
    fn apply_notice(&mut self, notice: RegistryNotice) {
        let now = Clock::system().now();
        match notice {
            RegistryNotice::RecordAppended(record) => {
                if let Event::SourceRemoved { source } = &record.event {
                    self.runs.remove(source);
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
                    let runs = self.runs.entry(outcome.source.clone()).or_default();
                    push_bounded(runs, run, MAX_RUNS_PER_SOURCE);
                    self.push(ActivityEntry { at: now, event: ActivityEvent::Discovered(outcome) });
                }
            }
            RegistryNotice::CallFinished(called) => {
                self.calls_per_minute.record_call(called.at, called.code != "OK");
                self.push(ActivityEntry { at: called.at, event: ActivityEvent::Called(called) });
            }
            RegistryNotice::CatalogChanged | RegistryNotice::SourceNotification { .. } => {}
        }
    }

    fn push(&mut self, moment: ActivityEntry) {
        push_bounded(&mut self.entries, moment, MAX_ACTIVITY_ENTRIES);
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}
