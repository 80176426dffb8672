//! One discovery: acquire the lease, contact the source, and have the result recorded ([`recording`](super::recording)).
//!
//! Order matters in two places. The manifest is stored before the event that refers to it, so a crash in between leaves
//! an unused row and never a dangling event. The lease is released after the result is recorded, so a waiting process
//! finds the result and does not contact the source again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use toolcrib_catalog::token_count;
use toolcrib_core::inventory::Actor;
use toolcrib_core::source::SourceKind;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::features::{ListOrigin, PendingLists};
use super::recording::{FailedDiscovery, RecordCondition};
use super::{Refresh, RefreshOutcome, RefreshStatus};
use crate::clock::deadline_after;
use crate::connector::Discovery;
use crate::connectors::Connectors;
use crate::monitoring::Monitoring;
use crate::notice::{DiscoveryStage, RegistryNotice};
use crate::options::RegistryOptions;
use crate::state::{State, WriterState, list_timeout};
use crate::store::{DiscoveryCheck, ErrorSummary, Lease, Measurement, SourceStatus, SourceTransition};
use crate::trace::Trace;

/// Duration of the lease that keeps other processes from discovering the same source. Renewed several times within it,
/// so that a busy machine does not lose it. The store ends the lease of a process that was killed.
const LEASE_DURATION: Duration = Duration::from_secs(10);
/// Interval of lease renewals. A holder can miss three renewals in a row before the lease ends.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_millis(2500);
/// Interval of attempts to acquire a lease that another process holds, for a process that does not follow the writes of
/// others; doubled after each attempt. While another process holds the lease, an attempt only reads the store.
const MIN_LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Upper bound of that interval.
const MAX_LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which a process that follows the writes of others tries again without news of the end of the other
/// discovery, which may be lost.
const NEWS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time beyond its timeout that a connector gets to close the connection and report the reason of a failure. Also the
/// margin for which a process waits for the discovery of another one.
const DISCOVERY_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Time over which nodes that share a store spread the starts of their discoveries, for each one.
const SPREAD_PER_DISCOVERY: Duration = Duration::from_millis(5);
/// Maximum of that time.
const MAX_SPREAD: Duration = Duration::from_millis(500);

/// Bounds on the discoveries of this process, whichever request started them.
#[derive(Debug)]
pub(super) struct DiscoveryPermits {
    /// For the time until the tools are recorded.
    discoveries: Semaphore,
    /// For connections, with those that are still open for prompts and resources after the tools were recorded. Twice the
    /// discoveries, so that lists that hang do not soon delay the tools of other sources.
    connections: Semaphore,
}

impl DiscoveryPermits {
    pub(super) fn new(max_discoveries: usize) -> DiscoveryPermits {
        let max_discoveries = max_discoveries.clamp(1, Semaphore::MAX_PERMITS / 2);
        DiscoveryPermits {
            discoveries: Semaphore::new(max_discoveries),
            connections: Semaphore::new(2 * max_discoveries),
        }
    }
}

/// Runs discoveries, each on behalf of the [`Refresher`](super::Refresher), and records their results.
#[derive(Debug)]
pub(crate) struct Discoverer {
    pub(super) state: Arc<State>,
    pub(super) connectors: Arc<Connectors>,
    pub(super) monitoring: Arc<Monitoring>,
    pub(super) options: Arc<RegistryOptions>,
    pub(super) tokenizer_preload: std::sync::Once,
    pub(super) permits: DiscoveryPermits,
    /// Leases of the discoveries that are running, by their holders. A source has several for a moment when it is
    /// declared anew during its discovery.
    pub(super) held_leases: Mutex<BTreeMap<String, SourceId>>,
    /// Serialises lists and tools that the host records in this process. Each tool is merged with the list before it;
    /// with one at a time, only other processes make it start again.
    pub(crate) recording: tokio::sync::Mutex<()>,
}

impl Discoverer {
    /// Discovers a source and reports the outcome to log, metrics, spans and subscribers. `before` is the status when
    /// the discovery was requested. Never fails: an error is part of the outcome, beside the list that is still served.
    /// Prompts and resources may be still to be read, for which the connection and its permit are kept.
    pub(super) async fn discover(
        &self,
        source: &Source,
        refresh: &Refresh,
        before: &SourceStatus,
    ) -> (RefreshOutcome, Option<(PendingLists, SemaphorePermit<'_>)>) {
        let started = tokio::time::Instant::now();
        let trace = self.monitoring.start_trace(refresh.requester.trace.as_ref());
        self.state.notify(RegistryNotice::DiscoveryStarted(source.id.clone()));
        self.preload_tokenizer(source);
        let result = self.discover_with_lease(source, refresh, before, &trace).await;
        let (mut outcome, pending) = result
            .unwrap_or_else(|error| (self.current_outcome(&source.id, Some(ErrorSummary::from_error(&error))), None));
        if let Some(failure) = &outcome.error {
            tracing::warn!(
                trace_id = %trace.id(),
                server_name = %source.id,
                error_message = %failure.message,
                "tools.discovery.server.failed"
            );
        }
        let elapsed = started.elapsed();
        outcome.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.record_discovery_span(source, &outcome, elapsed, &trace, refresh.requester.trace.as_ref());
        self.monitoring.metrics.record_discovery(source.kind.name(), outcome.status.name(), elapsed);
        self.state.notify(RegistryNotice::DiscoveryFinished(Arc::new(outcome.clone())));
        (outcome, pending)
    }

    /// Loads the tokenizer while a source is discovered for the first time: its tools will be counted when they are
    /// recorded.
    fn preload_tokenizer(&self, source: &Source) {
        if !source.kind.is_builtin() && self.state.snapshot().catalog.source(&source.id).is_none() {
            self.tokenizer_preload.call_once(|| drop(tokio::task::spawn_blocking(token_count::load_tokenizer)));
        }
    }

    /// Discovers a source under its lease, unless another process has done so meanwhile. An `Err` is a problem of the
    /// store or of the wait for another process, or a source that must not be contacted; a failure of the source is an
    /// `Ok` outcome.
    async fn discover_with_lease(
        &self,
        source: &Source,
        refresh: &Refresh,
        before: &SourceStatus,
        trace: &Trace,
    ) -> Result<(RefreshOutcome, Option<(PendingLists, SemaphorePermit<'_>)>)> {
        self.state.snapshot().ensure_can_contact(&source.id)?;
        let mut retry_interval = MIN_LEASE_RETRY_INTERVAL;
        // The other process may be in a first start, which has the longest timeout. Measured from the first refusal: the
        // wait for a permit may have taken long before.
        let wait_limit = discovery_timeout(source, false).saturating_add(DISCOVERY_GRACE_PERIOD);
        let mut deadline = None;
        loop {
            // Before a permit is taken, which other sources need, and after the wait for it.
            if let Some(outcome) = self.outcome_of_other_process(&source.id, before, refresh.force) {
                return Ok((outcome, None));
            }
            let connection_permit = self.permits.connections.acquire().await.map_err(closed_error)?;
            let permit = self.permits.discoveries.acquire().await.map_err(closed_error)?;
            if let Some(outcome) = self.outcome_of_other_process(&source.id, before, refresh.force) {
                return Ok((outcome, None));
            }
            if let Some(holder) = self.acquire_lease(&source.id).await? {
                let discovered = self.discover_under_lease(source, refresh, before, &holder, trace).await;
                self.release_lease(&source.id, &holder).await;
                if let Some(discovered) = discovered {
                    let (outcome, pending) = discovered?;
                    return Ok((outcome, pending.map(|pending| (pending, connection_permit))));
                }
            }
            // Released while waiting, so that the sources that others are not discovering come first: processes that
            // need the same sources share them in this way.
            drop((permit, connection_permit));
            if tokio::time::Instant::now() > *deadline.get_or_insert_with(|| deadline_after(wait_limit)) {
                let message = "another process has been discovering it for too long; try again";
                return Err(Error::new(Code::ToolUnavailable, message));
            }
            // At random times, so that those who wait do not ask together.
            if self.options.follow_writes {
                let limit = NEWS_TIMEOUT.mul_f64(rand::random_range(0.5..1.0));
                let _ =
                    tokio::time::timeout(limit, self.wait_for_end_elsewhere(&source.id, before, refresh.force)).await;
            } else {
                tokio::time::sleep(retry_interval.mul_f64(rand::random_range(0.5..1.0))).await;
                retry_interval = (retry_interval * 2).min(MAX_LEASE_RETRY_INTERVAL);
            }
        }
    }

    /// Waits until the snapshot shows the outcome of the discovery by another process, or that its lease has ended. A
    /// holder that is killed releases nothing; its lease ends by time. Reads no store: maintenance publishes the news.
    async fn wait_for_end_elsewhere(&self, id: &SourceId, before: &SourceStatus, force: bool) {
        let mut was_held = false;
        loop {
            // Created before the snapshot is read, so that no later one is missed.
            let next_snapshot = self.state.next_snapshot();
            if self.outcome_of_other_process(id, before, force).is_some() {
                return;
            }
            let status = self.state.snapshot().source_status(id);
            let held_until = status.discovering_until.filter(|_| status.is_being_discovered());
            if was_held && held_until.is_none() {
                return;
            }
            // A snapshot that is older than the other discovery does not show its lease yet.
            was_held |= held_until.is_some();
            match held_until {
                Some(until) => drop(tokio::time::timeout_at(until, next_snapshot).await),
                None => next_snapshot.await,
            }
        }
    }

    /// Waits for a random time, longer the more discoveries this process has begun, if other nodes can share the store:
    /// they may need the same sources at about the same time, and the first one must not take all of them.
    pub(super) async fn wait_for_turn(&self, running: usize) {
        if self.state.is_shared() && running > 1 {
            let running = u32::try_from(running).unwrap_or(u32::MAX);
            let spread = SPREAD_PER_DISCOVERY.saturating_mul(running).min(MAX_SPREAD);
            tokio::time::sleep(spread.mul_f64(rand::random())).await;
        }
    }

    /// Acquires the lease of a source; returns the name under which it is held. `None` if another process has it.
    async fn acquire_lease(&self, id: &SourceId) -> Result<Option<String>> {
        // Unique per discovery: two registries in one process are two holders.
        let holder = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        // Noted first: when the registry closes, this future may be dropped after the store has granted the lease.
        self.held_leases.lock().insert(holder.clone(), id.clone());
        let lease = self.state.store.acquire_lease(id, &holder, LEASE_DURATION).await;
        if !matches!(lease, Ok(Lease::Granted)) {
            self.held_leases.lock().remove(&holder);
        }
        Ok(matches!(lease?, Lease::Granted).then_some(holder))
    }

    /// Discovers a source whose lease is held. `None` if the lease was lost: this process was paused or cut off from the
    /// store, and another one has taken over.
    async fn discover_under_lease(
        &self,
        source: &Source,
        refresh: &Refresh,
        before: &SourceStatus,
        holder: &str,
        trace: &Trace,
    ) -> Option<Result<(RefreshOutcome, Option<PendingLists>)>> {
        let discovery = async {
            // Another process may have discovered the source between the request and the lease.
            self.state.catch_up().await?;
            match self.outcome_of_other_process(&source.id, before, refresh.force) {
                Some(outcome) => Ok((outcome, None)),
                None => self.discover_now(source, refresh, holder, trace).await,
            }
        };
        // A discovery may take longer than its lease, so the lease is renewed while it runs. Also while it catches up,
        // which on a busy node waits for the writes before it.
        let lease_loss = async {
            loop {
                tokio::time::sleep(LEASE_RENEW_INTERVAL).await;
                match self.state.store.renew_lease(&source.id, holder, LEASE_DURATION).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => tracing::debug!(%error, "a discovery lease cannot be renewed"),
                }
            }
        };
        tokio::select! {
            discovered = discovery => Some(discovered),
            () = lease_loss => {
                tracing::warn!(server_name = %source.id, "another process has taken over the discovery; waiting for its result");
                None
            }
        }
    }

    /// Releases the lease. A failure is only logged: the outcome is recorded by now, and the lease expires by itself.
    async fn release_lease(&self, id: &SourceId, holder: &str) {
        self.held_leases.lock().remove(holder);
        let release = async {
            self.state.store.release_lease(id, holder).await?;
            self.state.catch_up().await
        };
        if let Err(error) = release.await {
            tracing::debug!(%error, "a discovery lease cannot be released");
        }
    }

    /// Releases the leases of discoveries that were dropped, so that other processes need not wait for their end.
    pub(super) async fn release_held_leases(&self) {
        let held = std::mem::take(&mut *self.held_leases.lock());
        for (holder, id) in held {
            if let Err(error) = self.state.store.release_lease(&id, &holder).await {
                tracing::debug!(%error, "a discovery lease cannot be released");
            }
        }
    }

    /// Returns what another process discovered since `before`, if that satisfies this request. A forced refresh is
    /// satisfied by any attempt that has ended since the request, even a failed one; otherwise by a fresh list, a new
    /// failure, or a new list that is not fresh only because the clock of the other machine is another one.
    fn outcome_of_other_process(&self, id: &SourceId, before: &SourceStatus, force: bool) -> Option<RefreshOutcome> {
        let snapshot = self.state.snapshot();
        let after = snapshot.source_status(id);
        // No other process contacts the overridden address.
        if snapshot.environment.changes_connection(id) {
            return None;
        }
        let has_new_attempt = after.started_at != before.started_at;
        let is_fresh = !snapshot.is_due(id, self.state.now());
        let has_list = after.checked_at.is_some() && snapshot.catalog.source(id).is_some();
        let is_current = has_list && !after.invalidated && !snapshot.has_connection_changed(id);
        let is_satisfied = if force {
            has_new_attempt
        } else {
            is_fresh || (has_new_attempt && (after.last_error.is_some() || is_current))
        };
        is_satisfied.then(|| self.current_outcome(id, after.last_error))
    }

    /// Returns an outcome without changes: the manifest that is served, and why there is no newer one.
    pub(super) fn current_outcome(&self, id: &SourceId, error: Option<ErrorSummary>) -> RefreshOutcome {
        let snapshot = self.state.snapshot();
        let status = if error.is_some() { RefreshStatus::Failed } else { RefreshStatus::Unchanged };
        let inventory_hash = snapshot.inventory.source(id).and_then(|state| state.manifest);
        let unchanged = snapshot.catalog.tool_count(id);
        RefreshOutcome { error, inventory_hash, unchanged, ..RefreshOutcome::new(id.clone(), status) }
    }

    /// Contacts the source and records the result, provided that `holder` still has the lease then. Success, failure and
    /// an unchanged document each end in one commit, which holds the check, the status and, for a changed list, the
    /// event.
    async fn discover_now(
        &self,
        source: &Source,
        refresh: &Refresh,
        holder: &str,
        trace: &Trace,
    ) -> Result<(RefreshOutcome, Option<PendingLists>)> {
        // Monotonic for the duration, wall clock for the record.
        let started = tokio::time::Instant::now();
        let started_at = self.state.now();
        let status = self.state.snapshot().source_status(&source.id);
        let slot = self.connectors.slot(source);
        // Read once: the fingerprint is that of the values with which the connector connects.
        let references = Arc::new(slot.references.read().await);
        let fingerprint = self.state.publish_values(source, &references);
        let timeout = discovery_timeout(source, status.checked_at.is_some());
        let same_connection = fingerprint.is_some() && fingerprint == status.connection_fingerprint;
        let is_loaded = self.state.snapshot().catalog.source(&source.id).is_some();
        // Conditional discovery (ETag, hash) only if the known list is of the same address and is still loaded.
        let known_versions = status.document_versions.clone().filter(|_| {
            same_connection
                && is_loaded
                && !refresh.force
                && !self.state.snapshot().environment.changes_connection(&source.id)
        });
        let era = status.era.clone();
        let discovery = Discovery {
            timeout,
            era,
            keep_connection: refresh.keep_connection,
            known_versions,
            references,
            trace: Some(trace.clone()),
        };
        // The breaker is not asked: a discovery is what finds out whether a source works again.
        self.notify_stage(source, DiscoveryStage::Contacting);
        // A connector ends at its timeout and knows best what it was waiting for; this one is a safety net.
        let limit = timeout.saturating_add(DISCOVERY_GRACE_PERIOD);
        let discovered = tokio::time::timeout(limit, slot.connector.discover(discovery)).await.unwrap_or_else(|_| {
            let message = format!("no answer within {}", format_duration(timeout));
            Err(Error::new(Code::ToolUnavailable, message))
        });
        // A document that sends requests to servers outside of the trust is a failed discovery.
        let discovered = discovered.and_then(|discovered| {
            self.state.trust.load().ensure_servers_are_trusted(&source.id, &discovered.servers)?;
            Ok(discovered)
        });
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Becomes the row in the history of checks.
        let transition = SourceTransition::between(&status, &SourceStatus::default());
        let check = |tool_count| DiscoveryCheck {
            source: source.id.clone(),
            at: started_at,
            duration_ms,
            tool_count: Some(tool_count),
            error: None,
            transition,
        };
        let actor = refresh.requester.actor.clone().unwrap_or_else(Actor::system);
        match discovered {
            // Unchanged documents: only the check is recorded, the stored manifest stays current. The failures and the
            // backoff are cleared, as after any success.
            Ok(discovered) if discovered.unchanged => {
                let tool_count = self.state.snapshot().catalog.tool_count(&source.id);
                let status = SourceStatus {
                    started_at,
                    checked_at: Some(self.state.now()),
                    attempted_fingerprint: fingerprint,
                    document_versions: discovered.versions,
                    failures: 0,
                    failing_since: None,
                    last_error: None,
                    not_before: None,
                    invalidated: false,
                    ..status
                };
                let check = check(tool_count);
                let decide = |writer: &WriterState| writer.inventory.require_source(&source.id).map(|_| Vec::new());
                let measurement = Measurement::from_check(&check, &status).under_lease(holder);
                self.state.write(&actor, Some(measurement), decide).await?;
                self.complete_stored_list(&source.id).await?;
                slot.record_discovery();
                log_success(source, tool_count, duration_ms, trace);
                Ok((RefreshOutcome { contacted: true, ..self.current_outcome(&source.id, None) }, None))
            }
            Ok(mut discovered) => {
                // A new list: the status starts anew, without failures.
                self.notify_stage(source, DiscoveryStage::Recording { tools: discovered.tools.len() });
                let pending = discovered.pending_features.take().map(|features| PendingLists {
                    features,
                    origin: ListOrigin {
                        started_at,
                        actor: actor.clone(),
                        tools_ttl_ms: discovered.ttl_ms,
                        tools_private: discovered.private,
                    },
                });
                let now = self.state.now();
                let status = SourceStatus {
                    started_at,
                    checked_at: Some(now),
                    connection_fingerprint: fingerprint.or(status.connection_fingerprint),
                    attempted_fingerprint: fingerprint,
                    era: discovered.era.clone(),
                    capabilities: discovered.capabilities.clone(),
                    hint_ttl_ms: discovered.ttl_ms,
                    // The known prompts and resources stay until the new ones were read, and so does what holds for them.
                    private: discovered.private || (pending.is_some() && status.private),
                    failed_lists: if pending.is_some() { status.failed_lists } else { Vec::new() },
                    lists_pending_until: pending.is_some().then(|| now.plus(list_timeout(source))),
                    document_versions: discovered.versions.clone(),
                    ..SourceStatus::default()
                };
                let outcome = self
                    .record_tools(source, discovered, RecordCondition::LeaseHeld(holder), status, check, &actor)
                    .await?;
                slot.record_discovery();
                if !source.kind.is_builtin() {
                    let tool_count = outcome.added.len() + outcome.changed.len() + outcome.unchanged;
                    log_success(source, tool_count, duration_ms, trace);
                }
                Ok((RefreshOutcome { contacted: !source.kind.is_builtin(), ..outcome }, pending))
            }
            Err(error) => {
                // The last good list stays; only status and check are recorded.
                let attempt = FailedDiscovery {
                    began_at: started_at,
                    started_at,
                    duration_ms,
                    attempted_fingerprint: fingerprint,
                    previous_status: status,
                };
                // By the slot that was asked: it knows the values with which the connector connected.
                let error = slot.redactor().redact_error(error);
                let failure = self.record_failure(source, attempt, error, Some(holder)).await?;
                Ok((RefreshOutcome { contacted: true, ..self.current_outcome(&source.id, Some(failure)) }, None))
            }
        }
    }

    /// Notifies subscribers of the progress of a discovery.
    fn notify_stage(&self, source: &Source, stage: DiscoveryStage) {
        self.state.notify(RegistryNotice::DiscoveryProgress { source: source.id.clone(), stage });
    }
}

/// Error for a permit of a registry that is closed.
fn closed_error(_: tokio::sync::AcquireError) -> Error {
    Error::new(Code::ToolUnavailable, "the registry was closed")
}

/// Returns the discovery timeout of a source. The first start of a stdio server gets more time, because e.g. `npx` may
/// have to install it. `known` is whether the source was ever discovered successfully, by any process on the store.
fn discovery_timeout(source: &Source, known: bool) -> Duration {
    let is_first_start = matches!(source.kind, SourceKind::Stdio(_)) && !known;
    if is_first_start { source.settings.first_start_timeout() } else { source.settings.discovery_timeout() }
}

/// Logs a successful discovery.
fn log_success(source: &Source, tool_count: usize, duration_ms: u64, trace: &Trace) {
    tracing::info!(
        trace_id = %trace.id(),
        server_name = %source.id,
        tool_count,
        duration_ms,
        "tools.discovery.server.success"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_a_dead_node_end_in_seconds_and_a_live_one_keeps_its_own() {
        assert!(LEASE_DURATION <= Duration::from_secs(10));
        assert!(LEASE_DURATION > 3 * LEASE_RENEW_INTERVAL);
    }
}
