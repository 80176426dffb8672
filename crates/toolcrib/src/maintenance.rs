//! Maintenance of an open registry: one task that runs until it closes. It flushes counts and uses of tokens, removes expired result pages,
//! follows the writes of other processes, restores lost connections, and hands announced changes of sources to the
//! refresher.
//!
//! The result of the last run is the health of the store. Ready means that calls can be expected to work. A store that
//! is down (locked, full disk) does not change that, since lists are in memory; a damaged or removed store and a record
//! of a newer version do.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result, Timestamp};
use tracing::Instrument;

use crate::call::Dispatcher;
use crate::connectors::Connectors;
use crate::refresh::Refresher;
use crate::state::State;
use crate::store::{NodeStatus, SourceStatus, StoreState};
use crate::tasks::Tasks;
use crate::trace::Trace;

/// Interval of maintenance: following other processes' writes and writing counts. A tick without changes costs one
/// cheap statement of the store (`Store::change_counter`).
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);
/// If maintenance has not finished for this long, the store hangs.
const MAINTENANCE_TIMEOUT: Duration = Duration::from_secs(15);

/// The periodic work of a registry, and what it last found out about the store.
#[derive(Debug)]
pub(crate) struct Maintenance {
    state: Arc<State>,
    connectors: Arc<Connectors>,
    refresher: Arc<Refresher>,
    dispatcher: Arc<Dispatcher>,
    tasks: Tasks,
    last: Mutex<LastMaintenance>,
    /// Nodes that share the store, as they last reported. `None` if the store keeps no reports.
    nodes: ArcSwapOption<Vec<NodeStatus>>,
}

/// Result of the last maintenance run.
#[derive(Debug)]
struct LastMaintenance {
    /// End of the last maintenance run, by the monotonic clock.
    ran_at: Instant,
    /// State of the store. The reason is only logged: `/readyz` needs no credentials.
    store: StoreState,
    /// Time at which the store last worked.
    ok_at: Timestamp,
}

/// Health of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    /// Result of the last access to the store.
    pub state: StoreState,
    /// Time at which the store last worked, if it does not work now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl Maintenance {
    /// Starts with a working store.
    pub(crate) fn new(
        state: Arc<State>,
        connectors: Arc<Connectors>,
        refresher: Arc<Refresher>,
        dispatcher: Arc<Dispatcher>,
        tasks: Tasks,
    ) -> Maintenance {
        let last = Mutex::new(LastMaintenance { ran_at: Instant::now(), store: StoreState::Ok, ok_at: state.now() });
        Maintenance { state, connectors, refresher, dispatcher, tasks, last, nodes: ArcSwapOption::empty() }
    }

    /// Spawns the maintenance task. It runs until the registry closes.
    pub(crate) fn spawn(self: &Arc<Self>) {
        let maintenance = self.clone();
        self.tasks.spawn_until_shutdown(async move {
            let mut last_change = None;
            let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
            // After a pause, e.g. of a laptop that slept, one tick is enough.
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {
                        maintenance.maintain_connections();
                        maintenance.run_tick(&mut last_change).await;
                    }
                    source = maintenance.connectors.source_events.next_changed_source() => {
                        maintenance.refresher.on_tools_changed(source);
                    }
                }
            }
        });
    }

    /// Lets connectors restore connections that clients depend on and that were lost, in the background. Each connector
    /// runs as a task of its own, because a connection attempt may take as long as its timeout.
    fn maintain_connections(&self) {
        if self.state.snapshot().ensure_usable().is_err() {
            return;
        }
        for connector in self.connectors.connectors().into_iter().filter(|connector| connector.needs_maintenance()) {
            self.tasks.spawn_until_shutdown(async move { connector.maintain().await });
        }
    }

    /// Removes expired result pages and binaries, writes counts and uses of tokens, and applies what other processes wrote. Never ends the task: a
    /// failure is logged, reported by readiness checks, and tried again with the next tick.
    async fn run_tick(&self, last_change: &mut Option<u64>) {
        self.dispatcher.result_pages.remove_expired();
        self.dispatcher.held_binaries.remove_expired();
        let monitoring = &self.dispatcher.monitoring;
        let counted = monitoring.usage.flush(&*self.state.store).await;
        let flushed = counted.and(monitoring.token_uses.flush_if_due(&*self.state.store).await);
        let followed =
            if self.dispatcher.options.follow_writes { self.follow_writes(last_change).await } else { Ok(()) };
        if let Err(error) = &followed {
            tracing::warn!(%error, "records of other processes cannot be read; the current catalogue is still served");
        }
        self.record(&flushed.and(followed));
    }

    /// Catches up if the store has changed since `last_change`. `last_change` is updated only after everything was
    /// read, so a failure is repeated with the next tick.
    async fn follow_writes(&self, last_change: &mut Option<u64>) -> Result<()> {
        let change = self.state.store.change_counter().await?;
        // A lease can end without a write: when its process was killed. So read the statuses on each tick while a lease
        // is held.
        let discovering = self.state.snapshot().statuses.values().any(SourceStatus::is_being_discovered);
        if *last_change == Some(change) && !discovering {
            return Ok(());
        }
        // Records of other processes belong to no request here; their log events share a trace of their own.
        let span = tracing::info_span!("follow_writes", trace_id = %Trace::log_only().id());
        self.state.catch_up().instrument(span.clone()).await?;
        self.state.write_pending_rules().instrument(span).await?;
        *last_change = Some(change);
        self.dispatcher.monitoring.usage.load(&*self.state.store).await?;
        self.load_token_uses().await
    }

    /// Reads when tokens were last used. A store without tokens is not accessed.
    pub(crate) async fn load_token_uses(&self) -> Result<()> {
        let inventory = self.state.snapshot().inventory.clone();
        let uses = &self.dispatcher.monitoring.token_uses;
        if inventory.tokens().next().is_some() {
            uses.load(&*self.state.store).await?;
        }
        uses.retain(|token| inventory.token_by_id(token).is_some());
        Ok(())
    }

    /// Reads which nodes share the store.
    pub(crate) async fn load_nodes(&self) -> Result<()> {
        self.nodes.store(self.state.store.nodes().await?.map(Arc::new));
        Ok(())
    }

    /// Returns the nodes as they were last read.
    pub(crate) fn nodes(&self) -> Option<Arc<Vec<NodeStatus>>> {
        self.nodes.load_full()
    }

    /// Records the result of a run, failed or not.
    fn record(&self, store: &Result<()>) {
        let now = self.state.now();
        let mut last = self.last.lock();
        last.ran_at = Instant::now();
        match store {
            Ok(()) => {
                last.store = StoreState::Ok;
                last.ok_at = now;
            }
            Err(error) => last.store = StoreState::from_error(error),
        }
    }

    /// Returns the health of the store, without accessing it. A store whose maintenance hangs counts as down.
    pub(crate) fn store_health(&self) -> StoreHealth {
        if let Some(damage) = &self.state.snapshot().damage {
            return StoreHealth { state: damage.state(), since: None };
        }
        let last = self.last.lock();
        let is_silent = last.ran_at.elapsed() > MAINTENANCE_TIMEOUT;
        let state = if last.store == StoreState::Ok && is_silent { StoreState::Down } else { last.store };
        StoreHealth { state, since: (state != StoreState::Ok).then_some(last.ok_at) }
    }

    /// Fails if calls cannot be expected to work. The error names no path: `/readyz` is answered without credentials.
    pub(crate) fn check_ready(&self) -> Result<()> {
        if self.tasks.shutdown().is_cancelled() {
            return Err(Error::new(Code::StoreUnavailable, "the registry is closed"));
        }
        let snapshot = self.state.snapshot();
        if let Some(damage) = &snapshot.damage {
            return Err(damage.to_public_error());
        }
        snapshot.ensure_usable()?;
        match self.store_health().state {
            StoreState::Ok | StoreState::Down => Ok(()),
            state @ (StoreState::Damaged | StoreState::Missing) => {
                let is_missing = state == StoreState::Missing;
                let message =
                    if is_missing { "the file of the store was removed or replaced" } else { "the store is damaged" };
                let message = format!(
                    "{message}; tool lists are served from memory, and nothing is written; run `toolcrib verify`"
                );
                Err(state.annotate(Error::new(Code::StoreUnavailable, message)))
            }
        }
    }
}
