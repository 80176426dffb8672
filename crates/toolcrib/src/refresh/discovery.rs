//! One discovery from beginning to end: the lease, the contact, the manifest, the fact.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_core::compare::ToolRename;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::{Freshness, backoff};
use toolcrib_core::inventory::{Actor, Command, Event, ManifestUpdate};
use toolcrib_core::manifest::{Delta, Manifest, PackedManifest, ToolChange};
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp, ToolName};

use super::{PendingSource, Refresh, RefreshOutcome, RefreshStatus};
use crate::clock::deadline_after;
use crate::connector::{Discovered, Discovery};
use crate::registry::{DiscoveryStage, PrecomputedDelta, RegistryInner, RegistryNotice, WriteOutcome, WriterState};
use crate::secret::connection_fingerprint;
use crate::store::{DiscoveryCheck, ErrorSummary, Lease, SourceStatus};
use crate::trace::Trace;

/// A lease is renewed several times within its duration, so that a busy machine does not lose it. A process that ends
/// leaves none behind, so that its death does not hold others up.
const LEASE_DURATION: Duration = Duration::from_secs(15);
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// How often a lease that another process holds is asked for: at first, and at last.
const MIN_LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(50);
const MAX_LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// What a connector may take beyond its deadline to take leave of a server, or to say why there is no list.
const DISCOVERY_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// An attempt to discover a source that failed.
struct FailedDiscovery {
    /// When it began.
    began_at: Timestamp,
    /// For the standing: attempts that began before are superseded.
    started_at: Timestamp,
    duration_ms: u64,
    connection_fingerprint: Option<Fingerprint>,
    /// How the source stood before.
    previous_status: SourceStatus,
}

impl RegistryInner {
    /// `before` is how the source stood when the discovery was asked for.
    pub(super) async fn discover(&self, source: &Source, refresh: &Refresh, before: &SourceStatus) -> RefreshOutcome {
        let began = tokio::time::Instant::now();
        let trace = self.start_trace(refresh.trace.as_ref());
        let _nobody_listens = self.notices.send(RegistryNotice::DiscoveryStarted(source.id.clone()));
        let leased = self.discover_with_lease(source, refresh, before, &trace).await;
        let mut outcome =
            leased.unwrap_or_else(|error| self.current_outcome(&source.id, Some(ErrorSummary::from_error(&error))));
        if let Some(failure) = &outcome.error {
            tracing::warn!(
                trace_id = %trace.id(),
                server_name = %source.id,
                error_message = %failure.message,
                "tools.discovery.server.failed"
            );
        }
        let elapsed = began.elapsed();
        outcome.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.record_discovery_span(source, &outcome, elapsed, &trace, refresh.trace.as_ref());
        self.metrics.record_discovery(source.kind.name(), outcome.status.name(), elapsed);
        let _nobody_listens = self.notices.send(RegistryNotice::DiscoveryFinished(Arc::new(outcome.clone())));
        outcome
    }

    async fn discover_with_lease(
        &self,
        source: &Source,
        refresh: &Refresh,
        before: &SourceStatus,
        trace: &Trace,
    ) -> Result<RefreshOutcome> {
        self.ensure_can_contact(&source.id)?;
        let holder = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        let mut retry = MIN_LEASE_RETRY_INTERVAL;
        let patience = deadline_after(self.discovery_timeout(source, false).saturating_add(DISCOVERY_GRACE_PERIOD));
        while let Lease::HeldFor(_) = self.store.acquire_lease(&source.id, &holder, LEASE_DURATION).await? {
            if tokio::time::Instant::now() > patience {
                let message = "another process has been discovering it for too long; try again";
                return Err(Error::new(Code::ToolUnavailable, message));
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(MAX_LEASE_RETRY_INTERVAL);
        }
        // Another process may have met the need between the decision to contact the source and the lease.
        self.catch_up().await?;
        if let Some(outcome) = self.outcome_of_other_process(&source.id, before, refresh.force) {
            self.release_lease(&source.id, &holder).await;
            return Ok(outcome);
        }
        let renewing = async {
            loop {
                tokio::time::sleep(LEASE_RENEW_INTERVAL).await;
                match self.store.acquire_lease(&source.id, &holder, LEASE_DURATION).await {
                    Ok(Lease::Granted) => {}
                    Ok(Lease::HeldFor(_)) => {
                        tracing::warn!(server_name = %source.id, "its lease was lost; it may be contacted twice");
                    }
                    Err(error) => tracing::debug!(%error, "a lease cannot be renewed now"),
                }
            }
        };
        let outcome = tokio::select! {
            outcome = self.discover_now(source, refresh, trace) => outcome,
            () = renewing => Err(Error::new(Code::Internal, "a lease is renewed for ever")),
        };
        self.release_lease(&source.id, &holder).await;
        outcome
    }

    /// What was found is recorded by now; a lease that cannot be given back ends by itself.
    async fn release_lease(&self, id: &SourceId, holder: &str) {
        let released = self.store.release_lease(id, holder).await;
        if let Err(error) = match released {
            Ok(()) => self.catch_up().await,
            Err(error) => Err(error),
        } {
            tracing::debug!(%error, "a lease cannot be given back now");
        }
    }

    pub(super) fn source_status(&self, id: &SourceId) -> SourceStatus {
        self.snapshot.load().statuses.get(id).cloned().unwrap_or_default()
    }

    /// What another process found since `before`, if that is what was asked for.
    fn outcome_of_other_process(&self, id: &SourceId, before: &SourceStatus, force: bool) -> Option<RefreshOutcome> {
        let after = self.source_status(id);
        // What this process alone connects to was contacted by no other.
        if self.is_overridden(id) {
            return None;
        }
        let tried = after.started_at != before.started_at;
        let fresh = self.freshness(&self.snapshot.load(), id) == Freshness::Fresh;
        let met = if force { tried } else { fresh || (tried && after.last_error.is_some()) };
        met.then(|| self.current_outcome(id, after.last_error))
    }

    /// Nothing new: the list that holds, or why there is no newer one.
    fn current_outcome(&self, id: &SourceId, error: Option<ErrorSummary>) -> RefreshOutcome {
        let now = self.snapshot.load();
        let status = if error.is_some() { RefreshStatus::Failed } else { RefreshStatus::Unchanged };
        let inventory_hash = now.inventory.source(id).and_then(|state| state.manifest);
        let unchanged = now.catalog.tool_count(id);
        RefreshOutcome { error, inventory_hash, unchanged, ..RefreshOutcome::new(id.clone(), status) }
    }

    async fn discover_now(&self, source: &Source, refresh: &Refresh, trace: &Trace) -> Result<RefreshOutcome> {
        let began = tokio::time::Instant::now();
        let started_at = self.options.clock.now();
        let standing = self.source_status(&source.id);
        let connects_to = connection_fingerprint(&self.store_key, &source.kind);
        let timeout = self.discovery_timeout(source, standing.checked_at.is_some());
        let same = connects_to.is_some() && connects_to == standing.connection_fingerprint;
        let at_hand = self.snapshot.load().catalog.source(&source.id).is_some();
        let known = standing
            .document_versions
            .clone()
            .filter(|_| same && at_hand && !refresh.force && !self.is_overridden(&source.id));
        let (era, trace_told) = (standing.era.clone(), Some(trace.clone()));
        let discovery = Discovery {
            timeout,
            era,
            keep_connection: refresh.keep_connection,
            known_versions: known,
            trace: trace_told,
        };
        let slot = self.connectors.slot(source);
        self.notify_stage(source, DiscoveryStage::Contacting);
        // A connector keeps to its deadline and knows best what it waited for; this is for one that does not.
        let offer = match tokio::time::timeout(
            timeout.saturating_add(DISCOVERY_GRACE_PERIOD),
            slot.connector.discover(discovery),
        )
        .await
        {
            Ok(offer) => offer,
            Err(_) => {
                let message = format!("no answer within {}", format_duration(timeout));
                Err(Error::new(Code::ToolUnavailable, message))
            }
        };
        let offer = offer.and_then(|offer| {
            self.ensure_servers_are_trusted(&source.id, &offer.servers)?;
            Ok(offer)
        });
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let check = |tool_count| DiscoveryCheck {
            source: source.id.clone(),
            at: started_at,
            duration_ms,
            tool_count: Some(tool_count),
            error: None,
        };
        match offer {
            Ok(offer) if offer.unchanged => {
                let tool_count = self.snapshot.load().catalog.tool_count(&source.id);
                let standing = SourceStatus {
                    started_at,
                    checked_at: Some(self.options.clock.now()),
                    attempted_fingerprint: connects_to,
                    document_versions: offer.versions,
                    failures: 0,
                    failing_since: None,
                    last_error: None,
                    not_before: None,
                    invalidated: false,
                    ..standing
                };
                let same = check(tool_count);
                let decide = |writer: &WriterState| writer.inventory.require_source(&source.id).map(|_| Vec::new());
                self.write(&Actor::refresh(), Some((&same, &standing)), decide).await?;
                slot.record_discovery();
                log_success(source, tool_count, duration_ms, trace);
                Ok(RefreshOutcome { contacted: true, ..self.current_outcome(&source.id, None) })
            }
            Ok(offer) => {
                self.notify_stage(source, DiscoveryStage::Recording { tools: offer.tools.len() });
                let standing = SourceStatus {
                    started_at,
                    checked_at: Some(self.options.clock.now()),
                    connection_fingerprint: connects_to.or(standing.connection_fingerprint),
                    attempted_fingerprint: connects_to,
                    era: offer.era.clone(),
                    capabilities: offer.capabilities.clone(),
                    hint_ttl_ms: offer.ttl_ms,
                    private: offer.private,
                    document_versions: offer.versions.clone(),
                    ..SourceStatus::default()
                };
                let outcome = self.record_tools(source, offer, standing, check).await?;
                slot.record_discovery();
                if !source.kind.is_builtin() {
                    let tool_count = outcome.added.len() + outcome.changed.len() + outcome.unchanged;
                    log_success(source, tool_count, duration_ms, trace);
                }
                Ok(RefreshOutcome { contacted: !source.kind.is_builtin(), ..outcome })
            }
            Err(error) => {
                let attempt = FailedDiscovery {
                    began_at: started_at,
                    started_at,
                    duration_ms,
                    connection_fingerprint: connects_to,
                    previous_status: standing,
                };
                let failure = self.record_failure(source, attempt, error).await?;
                Ok(RefreshOutcome { contacted: true, ..self.current_outcome(&source.id, Some(failure)) })
            }
        }
    }

    /// See [`Registry::give_up`](crate::Registry::give_up).
    pub(super) async fn record_wait_timeout(&self, pending: &PendingSource, waited: Duration) -> Result<()> {
        let id = &pending.source;
        let Some(source) = self.snapshot.load().effective_sources.get(id).cloned() else { return Ok(()) };
        let standing = self.source_status(id);
        if standing.started_at != pending.started_at {
            // It ended after all, here or in another process, and that is recorded.
            return Ok(());
        }
        let waited_ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        let attempt = FailedDiscovery {
            began_at: Timestamp(self.options.clock.now().0.saturating_sub(waited_ms)),
            // This is no attempt of its own: one that is under way elsewhere is not superseded by it.
            started_at: standing.started_at,
            duration_ms: waited_ms.unsigned_abs(),
            connection_fingerprint: connection_fingerprint(&self.store_key, &source.kind),
            previous_status: standing,
        };
        let message = format!("it was not discovered within {}", format_duration(waited));
        self.record_failure(&source, attempt, Error::new(Code::ToolUnavailable, message)).await.map(drop)
    }

    /// A failure keeps the list there is, and makes the next attempt wait.
    async fn record_failure(&self, source: &Source, attempt: FailedDiscovery, error: Error) -> Result<ErrorSummary> {
        let FailedDiscovery {
            began_at: at,
            started_at,
            duration_ms,
            connection_fingerprint: connects_to,
            previous_status: standing,
        } = attempt;
        let failure = ErrorSummary::from_error(&self.connectors.slot(source).redactor().redact_error(error));
        let failures = standing.failures.saturating_add(1);
        let now = self.options.clock.now();
        let not_before = now.plus(backoff(failures, rand::random::<f64>()));
        let standing = SourceStatus {
            started_at,
            failures,
            failing_since: standing.failing_since.or(Some(at)),
            last_error: Some(failure.clone()),
            attempted_fingerprint: connects_to,
            not_before: Some(not_before),
            ..standing
        };
        if self.is_overridden(&source.id) {
            self.record_local(source, None, standing).await?;
        } else {
            let error = Some(failure.clone());
            let check = DiscoveryCheck { source: source.id.clone(), at, duration_ms, tool_count: None, error };
            // A source that was removed meanwhile is refused by `known`: its failure matters no more.
            let decide = |writer: &WriterState| writer.inventory.require_source(&source.id).map(|_| Vec::new());
            self.write(&Actor::refresh(), Some((&check, &standing)), decide).await?;
        }
        Ok(failure)
    }

    fn notify_stage(&self, source: &Source, stage: DiscoveryStage) {
        let _nobody_listens = self.notices.send(RegistryNotice::DiscoveryProgress { source: source.id.clone(), stage });
    }

    /// First the content, then the fact that refers to it; unchanged: no fact, only the check.
    pub(crate) async fn record_tools(
        &self,
        source: &Source,
        offer: Discovered,
        standing: SourceStatus,
        check: impl Fn(usize) -> DiscoveryCheck,
    ) -> Result<RefreshOutcome> {
        let (id, bounds) = (source.id.clone(), self.options.bounds);
        let known = self.snapshot.load().catalog.source(&id).map(|part| part.segment.clone());
        // Hashing and packing a large list takes a while: not on a thread that others wait for.
        let packed = tokio::task::spawn_blocking(move || {
            let manifest = Manifest::new(&id, &offer.tools, offer.excluded, &bounds);
            let mut packed = PackedManifest::new(&manifest.with_about(offer.about.as_deref()))?;
            // What is new is counted by the first who needs it, so that no discovery waits for the tokenizer.
            if let Some(known) = &known {
                known.copy_token_counts(&mut packed);
            }
            let compared = PrecomputedDelta::between(known.as_ref().map(|known| &**known.packed()), &packed)?;
            Ok::<_, Error>((packed, compared))
        });
        let (after, compared) = packed
            .await
            .map_err(|error| Error::new(Code::Internal, "a list could not be packed").with_cause(error))??;
        let (check, after) = (check(after.tools.len()), Arc::new(after));
        if self.is_overridden(&source.id) {
            let delta = self.record_local(source, Some((after.clone(), compared)), standing).await?;
            let changed = !delta.is_empty();
            return Ok(self.build_outcome(source, delta, changed, &after));
        }
        self.store.put_manifest(&after).await?;
        let decide = |writer: &WriterState| {
            let before = writer.previous_manifest(&source.id);
            let delta = compared.delta(&before);
            let recording = ManifestUpdate { before, after: after.clone(), delta };
            writer.inventory.decide(&Command::Record(recording))
        };
        Ok(match self.write(&Actor::refresh(), Some((&check, &standing)), decide).await? {
            WriteOutcome::Applied(events) => {
                if events.is_empty() && !source.kind.is_builtin() {
                    self.replace_segment(&after).await;
                }
                self.build_outcome(source, recorded_delta(&events, after.tools.len()), !events.is_empty(), &after)
            }
            WriteOutcome::Superseded => self.current_outcome(&source.id, None),
        })
    }

    /// The delta in the names that agents see.
    fn build_outcome(&self, source: &Source, delta: Delta, changed: bool, after: &PackedManifest) -> RefreshOutcome {
        let now = self.snapshot.load();
        let part = now.catalog.source(&source.id);
        let name = |original: &String| {
            let segment = part.map(|part| &part.segment);
            let entry = segment.and_then(|segment| {
                segment.position_of_original(original).and_then(|position| segment.entries().get(position))
            });
            match (entry, source.kind.is_builtin()) {
                (Some(entry), _) => entry.name.to_string(),
                (None, true) => original.clone(),
                (None, false) => ToolName::from_original(&format!("{}__", source.id), original).to_string(),
            }
        };
        let status = if changed { RefreshStatus::Success } else { RefreshStatus::Unchanged };
        RefreshOutcome {
            added: delta.added.iter().map(name).collect(),
            changed: delta
                .changed
                .into_iter()
                .map(|change| ToolChange { name: name(&change.name), ..change })
                .collect(),
            removed: delta.removed.iter().map(name).collect(),
            renamed: delta
                .renamed
                .iter()
                .map(|renamed| ToolRename { from: name(&renamed.from), to: name(&renamed.to) })
                .collect(),
            unchanged: delta.unchanged,
            inventory_hash: Some(after.fingerprint),
            ..RefreshOutcome::new(source.id.clone(), status)
        }
    }
}

fn log_success(source: &Source, tool_count: usize, duration_ms: u64, trace: &Trace) {
    tracing::info!(
        trace_id = %trace.id(),
        server_name = %source.id,
        tool_count,
        duration_ms,
        "tools.discovery.server.success"
    );
}

/// The delta that a recording came to; without an event, nothing changed.
fn recorded_delta(events: &[Event], tools: usize) -> Delta {
    match events.first() {
        Some(Event::InventoryRecorded { added, changed, removed, renamed, .. }) => Delta {
            unchanged: tools.saturating_sub(added.len() + changed.len()),
            added: added.clone(),
            changed: changed.clone(),
            removed: removed.clone(),
            renamed: renamed.clone(),
        },
        Some(_) | None => Delta { unchanged: tools, ..Delta::default() },
    }
}
