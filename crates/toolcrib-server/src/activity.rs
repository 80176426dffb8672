//! What happened lately, as this process saw it: the last calls, discoveries and records, calls by the minute, what is
//! being discovered, what all tools cost. Kept in memory for the console, and bounded.

mod costs;
mod minutes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast::error::RecvError;
use toolcrib::call::Called;
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::{Event, Record};
use toolcrib::registry::{Notice, Stage};
use toolcrib::{Outcome, Registry, SourceId};

pub(crate) use costs::Costs;
pub(crate) use minutes::{Minute, Minutes};

/// So much of what happened is remembered.
const MOST: usize = 500;
/// Discoveries of one source whose durations are remembered.
const MOST_RUNS: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Activity {
    lately: Mutex<Lately>,
    pub(crate) costs: Costs,
}

#[derive(Debug, Default)]
struct Lately {
    /// The oldest first.
    moments: VecDeque<Moment>,
    minutes: Minutes,
    runs: BTreeMap<SourceId, VecDeque<Run>>,
    stages: BTreeMap<SourceId, Stage>,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) at: Timestamp,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Called(Arc<Called>),
    Discovered(Arc<Outcome>),
    Recorded(Arc<Record>),
}

/// One discovery that contacted its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) elapsed_ms: u64,
    pub(crate) failed: bool,
}

impl Activity {
    /// Listens for as long as the registry is there.
    pub(crate) async fn watch(&self, registry: Registry) {
        let mut notices = registry.subscribe();
        self.remember_checks(&registry).await;
        tokio::join!(
            async {
                loop {
                    match notices.recv().await {
                        Ok(notice) => self.lately().take(notice),
                        // What was missed is missed; a discovery must not seem to go on for ever.
                        Err(RecvError::Lagged(_)) => self.lately().stages.clear(),
                        Err(RecvError::Closed) => break,
                    }
                }
            },
            self.costs.count_when_asked(&registry)
        );
    }

    /// How long discoveries took before this server started.
    async fn remember_checks(&self, registry: &Registry) {
        for source in registry.sources() {
            let Ok(checks) = registry.checks(&source.id).await else { continue };
            let newest = checks.iter().take(MOST_RUNS).rev();
            let runs =
                newest.map(|check| Run { elapsed_ms: check.duration_ms, failed: check.error.is_some() }).collect();
            self.lately().runs.insert(source.id, runs);
        }
    }

    /// The newest first.
    pub(crate) fn moments(&self, wanted: impl Fn(&Moment) -> bool, most: usize) -> Vec<Moment> {
        self.lately().moments.iter().rev().filter(|moment| wanted(moment)).take(most).cloned().collect()
    }

    /// The last hour, the oldest minute first.
    pub(crate) fn minutes(&self, now: Timestamp) -> Vec<Minute> {
        self.lately().minutes.until(now)
    }

    /// How long discoveries took, the oldest first.
    pub(crate) fn runs(&self, id: &SourceId) -> Vec<Run> {
        self.lately().runs.get(id).map(|runs| runs.iter().copied().collect()).unwrap_or_default()
    }

    /// How far a discovery under way has come.
    pub(crate) fn stage(&self, id: &SourceId) -> Option<Stage> {
        self.lately().stages.get(id).copied()
    }

    fn lately(&self) -> MutexGuard<'_, Lately> {
        // Whatever ended in a panic left numbers, none of which can be half-written.
        self.lately.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lately {
    fn take(&mut self, notice: Notice) {
        let now = Clock::system().now();
        match notice {
            Notice::Recorded(record) => {
                if let Event::SourceRemoved { source } = &record.event {
                    self.runs.remove(source);
                    self.stages.remove(source);
                }
                self.push(Moment { at: record.at, what: What::Recorded(record) });
            }
            Notice::Discovering(source) => {
                self.stages.insert(source, Stage::Contacting);
            }
            Notice::Progress { source, stage } => {
                self.stages.insert(source, stage);
            }
            Notice::Discovered(outcome) => {
                self.stages.remove(&outcome.source);
                if outcome.contacted {
                    let run = Run { elapsed_ms: outcome.elapsed_ms, failed: outcome.error.is_some() };
                    let runs = self.runs.entry(outcome.source.clone()).or_default();
                    bounded_push(runs, run, MOST_RUNS);
                    self.push(Moment { at: now, what: What::Discovered(outcome) });
                }
            }
            Notice::Called(called) => {
                self.minutes.count(called.at, called.code != "OK");
                self.push(Moment { at: called.at, what: What::Called(called) });
            }
            Notice::CatalogChanged | Notice::Said { .. } => {}
        }
    }

    fn push(&mut self, moment: Moment) {
        bounded_push(&mut self.moments, moment, MOST);
    }
}

fn bounded_push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}
