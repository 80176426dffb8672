//! One discovery from beginning to end: the lease, the contact, the manifest, the fact.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_core::compare::Renamed;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::freshness::{Freshness, backoff};
use toolcrib_core::inventory::{Actor, Command, Event, Recording};
use toolcrib_core::manifest::{Change, Delta, Manifest, Packed};
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp, ToolName};

use super::{Outcome, PendingSource, Refresh, Refreshed};
use crate::clock::after;
use crate::connector::{Discovery, Offer};
use crate::registry::{Compared, Notice, Shared, Stage, Writer, Written};
use crate::secret::connects_to;
use crate::store::{Check, Failure, Lease, Standing};
use crate::trace::Trace;

/// A lease is renewed several times within its duration, so that a busy machine does not lose it. A process that ends
/// leaves none behind, so that its death does not hold others up.
const LEASE: Duration = Duration::from_secs(15);
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// How often a lease that another process holds is asked for: at first, and at last.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const MAX_RETRY: Duration = Duration::from_millis(500);
/// What a connector may take beyond its deadline to take leave of a server, or to say why there is no list.
const GRACE: Duration = Duration::from_secs(10);

/// An attempt to discover a source that failed.
struct Attempt {
    /// When it began.
    at: Timestamp,
    /// For the standing: attempts that began before are superseded.
    started_at: Timestamp,
    duration_ms: u64,
    connects_to: Option<Fingerprint>,
    /// How the source stood before.
    standing: Standing,
}

impl Shared {
    /// `before` is how the source stood when the discovery was asked for.
    pub(super) async fn discover(&self, source: &Source, refresh: &Refresh, before: &Standing) -> Outcome {
        let began = tokio::time::Instant::now();
        let trace = self.begin_trace(refresh.trace.as_ref());
        let _nobody_listens = self.notices.send(Notice::Discovering(source.id.clone()));
        let leased = self.discover_leased(source, refresh, before, &trace).await;
        let mut outcome = leased.unwrap_or_else(|error| self.standing_outcome(&source.id, Some(Failure::of(&error))));
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
        self.tell_discovery(source, &outcome, elapsed, &trace, refresh.trace.as_ref());
        self.meters.discovered(source.kind.name(), outcome.status.name(), elapsed);
        let _nobody_listens = self.notices.send(Notice::Discovered(Arc::new(outcome.clone())));
        outcome
    }

    async fn discover_leased(
        &self,
        source: &Source,
        refresh: &Refresh,
        before: &Standing,
        trace: &Trace,
    ) -> Result<Outcome> {
        self.permitted(&source.id)?;
        let holder = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        let mut retry = FIRST_RETRY;
        let patience = after(self.discovery_timeout(source, false).saturating_add(GRACE));
        while let Lease::HeldFor(_) = self.store.lease(&source.id, &holder, LEASE).await? {
            if tokio::time::Instant::now() > patience {
                let message = "another process has been discovering it for too long; try again";
                return Err(Error::new(Code::ToolUnavailable, message));
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(MAX_RETRY);
        }
        // Another process may have met the need between the decision to contact the source and the lease.
        self.catch_up().await?;
        if let Some(outcome) = self.met_meanwhile(&source.id, before, refresh.force) {
            self.release(&source.id, &holder).await;
            return Ok(outcome);
        }
        let renewing = async {
            loop {
                tokio::time::sleep(RENEW_INTERVAL).await;
                match self.store.lease(&source.id, &holder, LEASE).await {
                    Ok(Lease::Granted) => {}
                    Ok(Lease::HeldFor(_)) => {
                        tracing::warn!(server_name = %source.id, "its lease was lost; it may be contacted twice");
                    }
                    Err(error) => tracing::debug!(%error, "a lease cannot be renewed now"),
                }
            }
        };
        let outcome = tokio::select! {
            outcome = self.contact(source, refresh, trace) => outcome,
            () = renewing => Err(Error::new(Code::Internal, "a lease is renewed for ever")),
        };
        self.release(&source.id, &holder).await;
        outcome
    }

    /// What was found is recorded by now; a lease that cannot be given back ends by itself.
    async fn release(&self, id: &SourceId, holder: &str) {
        let released = self.store.release(id, holder).await;
        if let Err(error) = match released {
            Ok(()) => self.catch_up().await,
            Err(error) => Err(error),
        } {
            tracing::debug!(%error, "a lease cannot be given back now");
        }
    }

    pub(super) fn standing(&self, id: &SourceId) -> Standing {
        self.now.load().standings.get(id).cloned().unwrap_or_default()
    }

    /// What another process found since `before`, if that is what was asked for.
    fn met_meanwhile(&self, id: &SourceId, before: &Standing, force: bool) -> Option<Outcome> {
        let after = self.standing(id);
        // What this process alone connects to was contacted by no other.
        if self.overridden(id) {
            return None;
        }
        let tried = after.started_at != before.started_at;
        let fresh = self.freshness(&self.now.load(), id) == Freshness::Fresh;
        let met = if force { tried } else { fresh || (tried && after.last_error.is_some()) };
        met.then(|| self.standing_outcome(id, after.last_error))
    }

    /// Nothing new: the list that holds, or why there is no newer one.
    fn standing_outcome(&self, id: &SourceId, error: Option<Failure>) -> Outcome {
        let now = self.now.load();
        let status = if error.is_some() { Refreshed::Failed } else { Refreshed::Unchanged };
        let inventory_hash = now.inventory.source(id).and_then(|state| state.manifest);
        let unchanged = now.catalog.tool_count(id);
        Outcome { error, inventory_hash, unchanged, ..Outcome::new(id.clone(), status) }
    }

    async fn contact(&self, source: &Source, refresh: &Refresh, trace: &Trace) -> Result<Outcome> {
        let began = tokio::time::Instant::now();
        let started_at = self.options.clock.now();
        let standing = self.standing(&source.id);
        let connects_to = connects_to(&self.key, &source.kind);
        let timeout = self.discovery_timeout(source, standing.checked_at.is_some());
        let same = connects_to.is_some() && connects_to == standing.connects_to;
        let at_hand = self.now.load().catalog.part(&source.id).is_some();
        let known =
            standing.marks.clone().filter(|_| same && at_hand && !refresh.force && !self.overridden(&source.id));
        let (era, trace_told) = (standing.era.clone(), Some(trace.clone()));
        let discovery = Discovery { timeout, era, keep: refresh.keep, known, trace: trace_told };
        let slot = self.connections.slot(source);
        self.tell_stage(source, Stage::Contacting);
        // A connector keeps to its deadline and knows best what it waited for; this is for one that does not.
        let offer = match tokio::time::timeout(timeout.saturating_add(GRACE), slot.connector.discover(discovery)).await
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
        let check = |tool_count| Check {
            source: source.id.clone(),
            at: started_at,
            duration_ms,
            tool_count: Some(tool_count),
            error: None,
        };
        match offer {
            Ok(offer) if offer.unchanged => {
                let tool_count = self.now.load().catalog.tool_count(&source.id);
                let standing = Standing {
                    started_at,
                    checked_at: Some(self.options.clock.now()),
                    tried: connects_to,
                    marks: offer.marks,
                    failures: 0,
                    failing_since: None,
                    last_error: None,
                    not_before: None,
                    invalidated: false,
                    ..standing
                };
                let same = check(tool_count);
                let decide = |writer: &Writer| writer.inventory.known(&source.id).map(|_| Vec::new());
                self.write(&Actor::refresh(), Some((&same, &standing)), decide).await?;
                slot.discovered();
                told_success(source, tool_count, duration_ms, trace);
                Ok(Outcome { contacted: true, ..self.standing_outcome(&source.id, None) })
            }
            Ok(offer) => {
                self.tell_stage(source, Stage::Recording { tools: offer.tools.len() });
                let standing = Standing {
                    started_at,
                    checked_at: Some(self.options.clock.now()),
                    connects_to: connects_to.or(standing.connects_to),
                    tried: connects_to,
                    era: offer.era.clone(),
                    offers: offer.offers.clone(),
                    hint_ttl_ms: offer.ttl_ms,
                    private: offer.private,
                    marks: offer.marks.clone(),
                    ..Standing::default()
                };
                let outcome = self.record(source, offer, standing, check).await?;
                slot.discovered();
                if !source.kind.is_builtin() {
                    let tool_count = outcome.added.len() + outcome.changed.len() + outcome.unchanged;
                    told_success(source, tool_count, duration_ms, trace);
                }
                Ok(Outcome { contacted: !source.kind.is_builtin(), ..outcome })
            }
            Err(error) => {
                let attempt = Attempt { at: started_at, started_at, duration_ms, connects_to, standing };
                let failure = self.record_failure(source, attempt, error).await?;
                Ok(Outcome { contacted: true, ..self.standing_outcome(&source.id, Some(failure)) })
            }
        }
    }

    /// See [`Registry::give_up`](crate::Registry::give_up).
    pub(super) async fn give_up(&self, pending: &PendingSource, waited: Duration) -> Result<()> {
        let id = &pending.source;
        let Some(source) = self.now.load().sources.get(id).cloned() else { return Ok(()) };
        let standing = self.standing(id);
        if standing.started_at != pending.started_at {
            // It ended after all, here or in another process, and that is recorded.
            return Ok(());
        }
        let waited_ms = i64::try_from(waited.as_millis()).unwrap_or(i64::MAX);
        let attempt = Attempt {
            at: Timestamp(self.options.clock.now().0.saturating_sub(waited_ms)),
            // This is no attempt of its own: one that is under way elsewhere is not superseded by it.
            started_at: standing.started_at,
            duration_ms: waited_ms.unsigned_abs(),
            connects_to: connects_to(&self.key, &source.kind),
            standing,
        };
        let message = format!("it was not discovered within {}", format_duration(waited));
        self.record_failure(&source, attempt, Error::new(Code::ToolUnavailable, message)).await.map(drop)
    }

    /// A failure keeps the list there is, and makes the next attempt wait.
    async fn record_failure(&self, source: &Source, attempt: Attempt, error: Error) -> Result<Failure> {
        let Attempt { at, started_at, duration_ms, connects_to, standing } = attempt;
        let failure = Failure::of(&self.connections.slot(source).redactor().redact_error(error));
        let failures = standing.failures.saturating_add(1);
        let now = self.options.clock.now();
        let not_before = now.plus(backoff(failures, rand::random::<f64>()));
        let standing = Standing {
            started_at,
            failures,
            failing_since: standing.failing_since.or(Some(at)),
            last_error: Some(failure.clone()),
            tried: connects_to,
            not_before: Some(not_before),
            ..standing
        };
        if self.overridden(&source.id) {
            self.record_here(source, None, standing).await?;
        } else {
            let error = Some(failure.clone());
            let check = Check { source: source.id.clone(), at, duration_ms, tool_count: None, error };
            // A source that was removed meanwhile is refused by `known`: its failure matters no more.
            let decide = |writer: &Writer| writer.inventory.known(&source.id).map(|_| Vec::new());
            self.write(&Actor::refresh(), Some((&check, &standing)), decide).await?;
        }
        Ok(failure)
    }

    fn tell_stage(&self, source: &Source, stage: Stage) {
        let _nobody_listens = self.notices.send(Notice::Progress { source: source.id.clone(), stage });
    }

    /// First the content, then the fact that refers to it; unchanged: no fact, only the check.
    pub(crate) async fn record(
        &self,
        source: &Source,
        offer: Offer,
        standing: Standing,
        check: impl Fn(usize) -> Check,
    ) -> Result<Outcome> {
        let (id, bounds) = (source.id.clone(), self.options.bounds);
        let known = self.now.load().catalog.part(&id).map(|part| part.segment.clone());
        // Hashing and packing a large list takes a while: not on a thread that others wait for.
        let packed = tokio::task::spawn_blocking(move || {
            let manifest = Manifest::new(&id, &offer.tools, offer.excluded, &bounds);
            let mut packed = Packed::new(&manifest.about(offer.about.as_deref()))?;
            // What is new is counted by the first who needs it, so that no discovery waits for the tokenizer.
            if let Some(known) = &known {
                known.hand_over_counts(&mut packed);
            }
            let compared = Compared::between(known.as_ref().map(|known| &**known.packed()), &packed)?;
            Ok::<_, Error>((packed, compared))
        });
        let (after, compared) = packed
            .await
            .map_err(|error| Error::new(Code::Internal, "a list could not be packed").with_cause(error))??;
        let (check, after) = (check(after.tools.len()), Arc::new(after));
        if self.overridden(&source.id) {
            let delta = self.record_here(source, Some((after.clone(), compared)), standing).await?;
            let changed = !delta.is_empty();
            return Ok(self.outcome(source, delta, changed, &after));
        }
        self.store.put_manifest(&after).await?;
        let decide = |writer: &Writer| {
            let before = writer.before(&source.id);
            let delta = compared.delta(&before);
            let recording = Recording { before, after: after.clone(), delta };
            writer.inventory.decide(&Command::Record(recording))
        };
        Ok(match self.write(&Actor::refresh(), Some((&check, &standing)), decide).await? {
            Written::Done(events) => {
                if events.is_empty() && !source.kind.is_builtin() {
                    self.replace_segment(&after).await;
                }
                self.outcome(source, told_by(&events, after.tools.len()), !events.is_empty(), &after)
            }
            Written::Superseded => self.standing_outcome(&source.id, None),
        })
    }

    /// The delta in the names that agents see.
    fn outcome(&self, source: &Source, delta: Delta, changed: bool, after: &Packed) -> Outcome {
        let now = self.now.load();
        let part = now.catalog.part(&source.id);
        let name = |original: &String| {
            let segment = part.map(|part| &part.segment);
            let entry = segment.and_then(|segment| {
                segment.position_of_original(original).and_then(|position| segment.entries().get(position))
            });
            match (entry, source.kind.is_builtin()) {
                (Some(entry), _) => entry.name.to_string(),
                (None, true) => original.clone(),
                (None, false) => ToolName::plain(&format!("{}__", source.id), original).to_string(),
            }
        };
        let status = if changed { Refreshed::Success } else { Refreshed::Unchanged };
        Outcome {
            added: delta.added.iter().map(name).collect(),
            changed: delta.changed.into_iter().map(|change| Change { name: name(&change.name), ..change }).collect(),
            removed: delta.removed.iter().map(name).collect(),
            renamed: delta
                .renamed
                .iter()
                .map(|renamed| Renamed { from: name(&renamed.from), to: name(&renamed.to) })
                .collect(),
            unchanged: delta.unchanged,
            inventory_hash: Some(after.fingerprint),
            ..Outcome::new(source.id.clone(), status)
        }
    }
}

fn told_success(source: &Source, tool_count: usize, duration_ms: u64, trace: &Trace) {
    tracing::info!(
        trace_id = %trace.id(),
        server_name = %source.id,
        tool_count,
        duration_ms,
        "tools.discovery.server.success"
    );
}

/// The delta that a recording came to; without an event, nothing changed.
fn told_by(events: &[Event], tools: usize) -> Delta {
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
