//! Maintenance of an open registry: one task that runs until it closes. It flushes counts and uses of tokens, removes
//! expired result pages, follows the writes of other processes, restores lost connections, and hands announced changes
//! of sources to the refresher.
//!
//! The result of the last run is the health of the store. Ready means that calls can be expected to work. A store that
//! is down (locked, full disk) does not change that, since lists are in memory; a damaged or removed store and a record
//! of a newer version do.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;
use toolcrib_core::{Code, Error, Result};
use tracing::Instrument;

use crate::call::Dispatcher;
use crate::connectors::Connectors;
use crate::logins::Logins;
use crate::refresh::Refresher;
use crate::state::State;
use crate::store::{
    ChangeCounters, MIN_NODE_REPORT_INTERVAL, NODE_REPORT_INTERVAL, NodeReport, NodeStatus, SourceStatus, StoreState,
};
use crate::store_health::StoreHealth;
use crate::tasks::Tasks;
use crate::trace::Trace;

/// Interval of maintenance: writing counts, and following other processes' writes as often as the store wants to be
/// polled. A poll without changes costs one cheap statement (`Store::change_counters`).
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

/// The periodic work of a registry, and what it last found out about the store.
#[derive(Debug)]
pub(crate) struct Maintenance {
    state: Arc<State>,
    connectors: Arc<Connectors>,
    refresher: Arc<Refresher>,
    dispatcher: Arc<Dispatcher>,
    logins: Arc<Logins>,
    tasks: Tasks,
    /// Nodes that share the store, as they had reported when they were read. `None` if the store keeps no reports.
    nodes: ArcSwapOption<(Instant, Vec<NodeStatus>)>,
}

/// Progress of the maintenance task in reading changes and reporting this node.
#[derive(Debug, Default)]
struct FollowProgress {
    /// Change counters of the store when each part was last read.
    journal: Option<u64>,
    counts: Option<u64>,
    logins: Option<u64>,
    token_uses: Option<u64>,
    /// Change counter of the journal when the deferred configuration was last tried.
    deferred_config: Option<u64>,
    /// Time of the last poll.
    polled_at: Option<Instant>,
    /// Position and time of the last report of this node.
    reported_position: u64,
    reported_at: Option<Instant>,
}

impl Maintenance {
    /// Starts with a working store.
    pub(crate) fn new(
        state: Arc<State>,
        connectors: Arc<Connectors>,
        refresher: Arc<Refresher>,
        dispatcher: Arc<Dispatcher>,
        logins: Arc<Logins>,
        tasks: Tasks,
    ) -> Maintenance {
        Maintenance { state, connectors, refresher, dispatcher, logins, tasks, nodes: ArcSwapOption::empty() }
    }

    /// Spawns the maintenance task. It runs until the registry closes.
    pub(crate) fn spawn(self: &Arc<Self>) {
        let maintenance = self.clone();
        self.tasks.spawn_until_shutdown(async move {
            let mut progress = FollowProgress::default();
            let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
            // After a pause, e.g. of a laptop that slept, one tick is enough.
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {
                        maintenance.maintain_connections();
                        maintenance.run_tick(&mut progress).await;
                    }
                    () = maintenance.wait_for_news() => {
                        let followed = maintenance.follow_writes(&mut progress).await;
                        maintenance.record(&followed);
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

    /// Waits until the store tells that another process has written, if this process follows others at all.
    async fn wait_for_news(&self) {
        if self.dispatcher.options.follow_writes {
            self.state.store.wait_for_changes().await;
        } else {
            std::future::pending().await
        }
    }

    /// Removes expired result pages and binaries, writes counts and uses of tokens, and applies what other processes
    /// wrote. Never ends the task: a failure is logged, reported by readiness checks, and tried again with the next
    /// tick.
    async fn run_tick(&self, progress: &mut FollowProgress) {
        self.dispatcher.result_pages.remove_expired();
        self.dispatcher.held_binaries.remove_expired();
        // While the store is down, each tick finds out whether it works again.
        let is_due = !self.state.store_monitor.is_ok()
            || progress.polled_at.is_none_or(|at| at.elapsed() >= self.state.store.poll_interval());
        let follows = self.dispatcher.options.follow_writes;
        if follows && is_due {
            // First, because a poll has the shortest limit: a store that does not answer is soon known to be down.
            let followed = self.follow_writes(progress).await;
            if followed.is_err() {
                return self.record(&followed);
            }
        }
        let flushed = self.flush().await;
        if flushed.is_err() || is_due || !follows {
            self.record(&flushed);
        } else {
            // Nothing was written, or the store accepted it: the result of the last poll holds.
            self.state.store_monitor.record_idle_maintenance();
        }
    }

    /// Writes counts, uses of tokens and ends of sessions. What cannot be written is kept for the next time.
    async fn flush(&self) -> Result<()> {
        let monitoring = &self.dispatcher.monitoring;
        monitoring.usage.flush(&*self.state.store).await?;
        monitoring.token_uses.flush_if_due(&*self.state.store).await?;
        self.logins.flush_ended().await
    }

    /// Applies what other processes wrote, and reports this node. Fails if the journal cannot be read, which tells
    /// whether the store works. What fails besides is logged and repeated with the next poll, each part by itself.
    async fn follow_writes(&self, progress: &mut FollowProgress) -> Result<()> {
        progress.polled_at = Some(Instant::now());
        let changes = self.apply_journal(progress).await.inspect_err(|error| {
            tracing::warn!(%error, "records of other processes cannot be read; the current catalogue is still served");
        })?;
        let is_new = |read: Option<u64>, current: u64| read != Some(current);
        let mut parts: Vec<(&str, Result<()>)> = vec![("rules of the configuration", self.write_pending_rules().await)];
        // Finishing a migration counts as a change, too.
        if is_new(progress.deferred_config, changes.journal) {
            let applied = self.state.apply_deferred_config().await;
            progress.deferred_config = applied.is_ok().then_some(changes.journal);
            parts.push(("the rest of the configuration", applied));
        }
        if is_new(progress.counts, changes.counts) {
            let loaded = self.dispatcher.monitoring.usage.load(&*self.state.store).await;
            progress.counts = loaded.is_ok().then_some(changes.counts);
            parts.push(("counts", loaded));
        }
        if is_new(progress.logins, changes.logins) {
            let loaded = self.logins.load().await;
            progress.logins = loaded.is_ok().then_some(changes.logins);
            parts.push(("logins", loaded));
        }
        if is_new(progress.token_uses, changes.token_uses) {
            let loaded = self.load_token_uses().await;
            progress.token_uses = loaded.is_ok().then_some(changes.token_uses);
            parts.push(("last uses of tokens", loaded));
        }
        parts.push(("reports of nodes", self.report_node(progress).await));
        for (part, result) in parts {
            if let Err(error) = result {
                tracing::warn!(%error, "{part} cannot be exchanged with the store now");
            }
        }
        Ok(())
    }

    /// Applies new records and statuses; returns the change counters of the store from before that.
    async fn apply_journal(&self, progress: &mut FollowProgress) -> Result<ChangeCounters> {
        let changes = self.state.store.change_counters().await?;
        // A lease can end without a write: when its process was killed. So read the statuses on each tick while a lease
        // is held.
        let discovering = self.state.snapshot().statuses.values().any(SourceStatus::is_being_discovered);
        if progress.journal != Some(changes.journal) || discovering {
            // Records of other processes belong to no request here; their log events share a trace of their own.
            let span = tracing::info_span!("follow_writes", trace_id = %Trace::log_only().id());
            self.state.catch_up().instrument(span).await?;
            progress.journal = Some(changes.journal);
        }
        Ok(changes)
    }

    /// Writes rules of the configuration that could not be written before.
    async fn write_pending_rules(&self) -> Result<()> {
        let span = tracing::info_span!("write_pending_rules", trace_id = %Trace::log_only().id());
        self.state.write_pending_rules().instrument(span).await
    }

    /// Reports this node to the others when its position has changed, and regularly; reads the reports of all nodes. Does
    /// nothing if the store keeps no reports.
    async fn report_node(&self, progress: &mut FollowProgress) -> Result<()> {
        let position = self.state.snapshot().position.seq;
        let interval =
            if progress.reported_position == position { NODE_REPORT_INTERVAL } else { MIN_NODE_REPORT_INTERVAL };
        if progress.reported_at.is_some_and(|at| at.elapsed() < interval) {
            return Ok(());
        }
        let report = NodeReport {
            id: self.state.node.unsigned().to_owned(),
            label: self.dispatcher.options.node_label.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            position,
        };
        self.state.store.report_node(&report).await?;
        progress.reported_position = position;
        progress.reported_at = Some(Instant::now());
        self.load_nodes().await
    }

    /// Removes the report of this node, which ends.
    pub(crate) async fn remove_node(&self) -> Result<()> {
        if !self.dispatcher.options.follow_writes {
            return Ok(());
        }
        self.state.store.remove_node(self.state.node.unsigned()).await
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
        let nodes = self.state.store.nodes().await?;
        self.state.set_shared(nodes.is_some());
        self.nodes.store(nodes.map(|nodes| Arc::new((Instant::now(), nodes))));
        Ok(())
    }

    /// Returns the nodes as they were last read. Their reports have aged since, more so while the store is down: what
    /// has not been heard of for too long does not count as alive.
    pub(crate) fn nodes(&self) -> Option<Arc<Vec<NodeStatus>>> {
        let read = self.nodes.load_full()?;
        let (read_at, nodes) = &*read;
        let age = read_at.elapsed();
        Some(Arc::new(nodes.iter().map(|node| node.after(age)).collect()))
    }

    /// Records the result of a run, failed or not.
    fn record(&self, store: &Result<()>) {
        self.state.store_monitor.record_maintenance(store, self.state.now());
    }

    /// Returns the health of the store, without accessing it.
    pub(crate) fn store_health(&self) -> StoreHealth {
        if let Some(damage) = &self.state.snapshot().damage {
            return StoreHealth { state: damage.state(), since: None };
        }
        self.state.store_monitor.health()
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
                let message = if is_missing { "the store was removed or replaced" } else { "the store is damaged" };
                let message = format!(
                    "{message}; tool lists are served from memory, and nothing is written; run `toolcrib verify`"
                );
                Err(state.annotate(Error::new(Code::StoreUnavailable, message)))
            }
        }
    }
}
