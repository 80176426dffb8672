//! Records the results of discoveries: tool lists and failures, each with its check and status in one commit.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_catalog::Segment;
use toolcrib_core::delta::{Delta, ToolChange, ToolRename};
use toolcrib_core::features::OfferedFeatures;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::backoff;
use toolcrib_core::inventory::{Actor, Command, Event, ManifestUpdate};
use toolcrib_core::manifest::{Manifest, PackedManifest};
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use super::discovery::Discoverer;
use super::{PendingSource, RefreshOutcome, RefreshStatus};
use crate::connector::{Discovered, run_blocking};
use crate::notice::FeatureOutcome;
use crate::state::{PrecomputedDelta, WriteOutcome, WriterState};
use crate::store::{DiscoveryCheck, ErrorSummary, Measurement, SourceStatus, SourceTransition};

/// A discovery that failed, with what is needed to record it.
pub(super) struct FailedDiscovery {
    /// Wall-clock time at which the attempt began.
    pub(super) began_at: Timestamp,
    /// `started_at` of the new status; the store drops results of discoveries that started earlier.
    pub(super) started_at: Timestamp,
    pub(super) duration_ms: u64,
    pub(super) attempted_fingerprint: Option<Fingerprint>,
    /// Status of the source before the attempt.
    pub(super) previous_status: SourceStatus,
}

/// Condition under which a tool list is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordCondition<'a> {
    /// None: a list that the host made is complete, whichever list is current.
    Always,
    /// This holder still has the lease under which it discovered the list.
    LeaseHeld(&'a str),
    /// The current list is this one, or none: the new list was made from it.
    Replacing(Option<Fingerprint>),
}

impl<'a> RecordCondition<'a> {
    /// Whether the current list may be replaced.
    fn accepts(self, current: Option<Fingerprint>) -> bool {
        match self {
            RecordCondition::Always | RecordCondition::LeaseHeld(_) => true,
            RecordCondition::Replacing(expected) => expected == current,
        }
    }

    fn lease(self) -> Option<&'a str> {
        match self {
            RecordCondition::LeaseHeld(holder) => Some(holder),
            RecordCondition::Always | RecordCondition::Replacing(_) => None,
        }
    }
}

impl Discoverer {
    /// Records a discovered tool list: first the manifest, then the event that refers to it. An unchanged list writes
    /// no event, only the check. The delta is computed before the writer lock is taken; if another process recorded a
    /// list meanwhile, it is computed again inside `decide`, or refused there if `condition` says so.
    pub(crate) async fn record_tools(
        &self,
        source: &Source,
        discovered: Discovered,
        condition: RecordCondition<'_>,
        status: SourceStatus,
        check: impl Fn(usize) -> DiscoveryCheck,
        actor: &Actor,
    ) -> Result<RefreshOutcome> {
        let id = source.id.clone();
        let bounds = self.options.tool_limits;
        let known = self.state.snapshot().catalog.source(&id).map(|source| source.segment.clone());
        // Built-in tools are recorded at a start, which must not wait for the tokenizer; they are counted by the first
        // reader that shows counts. Estimates of a build without a tokenizer are not stored.
        let counts_tokens = cfg!(feature = "tokens") && !source.kind.is_builtin();
        let Discovered { tools, skipped, about, features: offered_features, .. } = discovered;
        // Hashing, packing and counting a large list takes a while, so it runs on a blocking thread.
        let packed = run_blocking(move || {
            let manifest = Manifest::new(&id, &tools, skipped, &bounds);
            let packed = PackedManifest::new(&manifest.with_about(about.as_deref()))?;
            let mut packed = packed.with_recorded_fingerprint(known.as_ref().map(|known| &**known.packed()));
            // Token counts of unchanged tools are kept.
            if let Some(known) = &known {
                known.copy_token_counts(&mut packed);
            }
            if counts_tokens && packed.tools.iter().any(|tool| tool.tokens == 0) {
                packed = Segment::with_prefix(Arc::new(packed)).with_token_counts();
            }
            let precomputed = PrecomputedDelta::between(known.as_ref().map(|known| &**known.packed()), &packed)?;
            Ok((packed, precomputed))
        });
        let (after, precomputed) = packed.await?;
        let check = check(after.tools.len());
        let after = Arc::new(after);
        // Only MCP servers have features. A discovery that tells nothing about them leaves the known ones.
        let offered_features =
            offered_features.or_else(|| (source.kind.name() != "mcp").then(OfferedFeatures::default));
        let features = match offered_features {
            Some(offered) => Some(self.prepare_features(&source.id, offered).await?),
            None => None,
        };
        // A list from an overridden address holds for this process alone and is not stored.
        if self.state.snapshot().environment.changes_connection(&source.id) {
            let manifest = Some((after.clone(), precomputed));
            let list = features.as_ref().map(|features| features.list.clone());
            let delta = self.state.record_local(source, manifest, list, status).await?;
            let features = features.and_then(|features| FeatureOutcome::from_changes(features.changes));
            let changed = !delta.is_empty() || features.is_some();
            return Ok(RefreshOutcome { features, ..self.build_outcome(source, delta, changed, &after) });
        }
        // The manifest first: an event must never refer to content that is not stored.
        self.state.store.put_manifest(&after).await?;
        let outdated = || {
            let message = format!("the tools of `{}` were recorded by another process meanwhile", source.id);
            Error::new(Code::Conflict, message)
        };
        let decide = |writer: &WriterState| {
            let before = writer.previous_manifest(&source.id);
            if !condition.accepts(before.fingerprint()) {
                return Err(outdated());
            }
            let delta = precomputed.delta(&before, &after)?;
            let update = ManifestUpdate { before, after: after.clone(), delta };
            let mut events = writer.inventory.decide(&Command::Record(update))?;
            match features.as_ref().map(|features| writer.inventory.decide(&features.to_command())) {
                None => {}
                Some(Ok(recorded)) => events.extend(recorded),
                // Another process has recorded the lists of its own discovery meanwhile; those stay.
                Some(Err(error)) if error.code == Code::Conflict => {}
                Some(Err(error)) => return Err(error),
            }
            Ok(events)
        };
        let measurement = Some(Measurement { lease: condition.lease(), ..Measurement::from_check(&check, &status) });
        Ok(match self.state.write(actor, measurement, decide).await? {
            WriteOutcome::Applied(events) => {
                // Same fingerprint: an older version may have stored the list in another form, or it could not be read.
                if events.is_empty() && !source.kind.is_builtin() {
                    self.state.replace_segment(&after).await;
                }
                let outcome =
                    self.build_outcome(source, recorded_delta(&events, after.tools.len()), !events.is_empty(), &after);
                let features = features.and_then(|features| features.to_outcome(&events));
                RefreshOutcome { features, ..outcome }
            }
            WriteOutcome::Superseded => match condition {
                RecordCondition::Always | RecordCondition::LeaseHeld(_) => self.current_outcome(&source.id, None),
                RecordCondition::Replacing(_) => return Err(outdated()),
            },
        })
    }

    /// Adds what an older version did not store with the current list of a source, such as token counts. For a source
    /// that reports that its list is unchanged, without sending it again.
    pub(super) async fn complete_stored_list(&self, id: &SourceId) -> Result<()> {
        let snapshot = self.state.snapshot();
        let segment = snapshot.catalog.source(id).map(|source| source.segment.clone());
        let recorded = snapshot.inventory.source(id).and_then(|state| state.manifest);
        let incomplete = |segment: &Arc<Segment>| {
            cfg!(feature = "tokens") && recorded == Some(segment.fingerprint()) && !segment.is_stored_completely()
        };
        let Some(segment) = segment.filter(incomplete) else { return Ok(()) };
        let after = Arc::new(run_blocking(move || Ok(segment.with_token_counts())).await?);
        self.state.store.put_manifest(&after).await?;
        self.state.replace_segment(&after).await;
        Ok(())
    }

    /// Builds an outcome with the tool names that agents see. The journal stores the source's own names, so they are
    /// translated here.
    fn build_outcome(&self, source: &Source, delta: Delta, changed: bool, after: &PackedManifest) -> RefreshOutcome {
        let snapshot = self.state.snapshot();
        let names = snapshot.tool_names(&source.id);
        let name = |original: &String| names.name(original).to_string();
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

    /// Records a failed discovery: the last good list stays, and the next attempt waits for the backoff. The error must
    /// be redacted: it is stored and shown. `holder` has the lease under which the discovery ran.
    pub(super) async fn record_failure(
        &self,
        source: &Source,
        attempt: FailedDiscovery,
        error: Error,
        holder: Option<&str>,
    ) -> Result<ErrorSummary> {
        let FailedDiscovery { began_at, started_at, duration_ms, attempted_fingerprint, previous_status: status } =
            attempt;
        let failure = ErrorSummary::from_error(&error);
        let failures = status.failures.saturating_add(1);
        let now = self.state.now();
        // Random, so that processes and sources that failed together do not retry together.
        let not_before = now.plus(backoff(failures, rand::random::<f64>()));
        let transition = (status.failures == 0).then_some(SourceTransition::Failed);
        let status = SourceStatus {
            started_at,
            failures,
            failing_since: status.failing_since.or(Some(began_at)),
            last_error: Some(failure.clone()),
            attempted_fingerprint,
            not_before: Some(not_before),
            ..status
        };
        if self.state.snapshot().environment.changes_connection(&source.id) {
            self.state.record_local(source, None, None, status).await?;
        } else {
            let error = Some(failure.clone());
            let source_id = source.id.clone();
            let check =
                DiscoveryCheck { source: source_id, at: began_at, duration_ms, tool_count: None, error, transition };
            // `require_source` fails if the source was removed meanwhile: its failure is of no interest then.
            let decide = |writer: &WriterState| writer.inventory.require_source(&source.id).map(|_| Vec::new());
            // A failure appends no record, so no actor is stored.
            let measurement = Measurement { lease: holder, ..Measurement::from_check(&check, &status) };
            self.state.write(&Actor::system(), Some(measurement), decide).await?;
        }
        Ok(failure)
    }

    /// See [`Refresher::record_wait_timeout`](super::Refresher::record_wait_timeout).
    pub(super) async fn record_wait_timeout(&self, pending: &PendingSource, waited: Duration) -> Result<()> {
        let id = &pending.source;
        let snapshot = self.state.snapshot();
        let Some(source) = snapshot.effective_sources.get(id) else { return Ok(()) };
        let status = snapshot.source_status(id);
        if status.started_at != pending.started_at {
            // It ended after all, in this or another process, and its outcome is recorded.
            return Ok(());
        }
        let waited_ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        let attempt = FailedDiscovery {
            began_at: Timestamp(self.state.now().0.saturating_sub(waited_ms)),
            // The reader's timeout is no attempt of its own and must not supersede a discovery that is still running.
            started_at: status.started_at,
            duration_ms: waited_ms.unsigned_abs(),
            attempted_fingerprint: snapshot.connection_fingerprint(id),
            previous_status: status,
        };
        let message = format!("it was not discovered within {}", format_duration(waited));
        self.record_failure(source, attempt, Error::new(Code::ToolUnavailable, message), None).await.map(drop)
    }
}

/// Returns the delta of the recorded event; without an event, nothing changed.
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
