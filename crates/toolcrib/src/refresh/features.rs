//! Records prompts and resources of a source, with its tools or after them.
//!
//! A server may take long for these lists, so the tools are recorded first ([`PendingLists`]). The rest of the discovery
//! then belongs to no request: it ends at its timeout, when the registry closes, or when another discovery of the source
//! reads the lists. A process that ends early leaves a mark in the status of the source, and the next refresh, or the
//! next process that serves clients, reads the lists.

use std::sync::Arc;

use futures_util::StreamExt;
use toolcrib_core::features::{ByFeatureKind, FeatureChanges, FeatureDelta, FeatureKind, FeatureList, OfferedFeatures};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, Event, FeaturesUpdate};
use toolcrib_core::{Code, Result, Source, SourceId, Timestamp};

use super::discovery::Discoverer;
use crate::connector::{FeatureReading, PendingFeatures, run_blocking};
use crate::notice::FeatureOutcome;
use crate::state::{WriteOutcome, WriterState};
use crate::store::{Measurement, SourceStatus};

/// Maximum number of attempts to record features when other processes record some of the same source meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// Lists of a source that are read after its tools were recorded.
pub(super) struct PendingLists {
    pub(super) features: PendingFeatures,
    pub(super) origin: ListOrigin,
}

/// The discovery that reads lists.
pub(super) struct ListOrigin {
    /// Start of the discovery. A status with another one is that of a later discovery, which reads the lists itself.
    pub(super) started_at: Timestamp,
    pub(super) actor: Actor,
    /// Hints of the tool list.
    pub(super) tools_ttl_ms: Option<u64>,
    pub(super) tools_private: bool,
}

/// Features to record, compared with the current ones.
pub(super) struct NewFeatures {
    /// The list that the changes are relative to.
    before: Option<Fingerprint>,
    pub(super) list: Arc<FeatureList>,
    pub(super) changes: FeatureChanges,
}

impl NewFeatures {
    /// Returns the command that records them.
    pub(super) fn to_command(&self) -> Command {
        Command::RecordFeatures(Box::new(FeaturesUpdate {
            before: self.before,
            after: self.list.summary.clone(),
            changes: self.changes.clone(),
        }))
    }

    /// Returns the changes if one of the events recorded them.
    pub(super) fn to_outcome(&self, events: &[Event]) -> Option<FeatureOutcome> {
        let is_recorded = events.iter().any(|event| matches!(event, Event::FeaturesRecorded { .. }));
        is_recorded.then(|| FeatureOutcome::from_changes(self.changes.clone())).flatten()
    }
}

impl Discoverer {
    /// Normalises offered features, compares them with the current ones and stores them.
    pub(super) async fn prepare_features(&self, id: &SourceId, offered: OfferedFeatures) -> Result<NewFeatures> {
        let snapshot = self.state.snapshot();
        let before = snapshot.inventory.source(id).and_then(|state| state.features);
        let known = match snapshot.catalog.source(id).and_then(|source| source.features.as_ref()) {
            Some(known) => self.state.feature_list(known).await?,
            None => None,
        };
        let owned_id = id.clone();
        // Hashing and comparing thousands of items takes a while.
        let prepared = run_blocking(move || {
            let list = FeatureList::new(&owned_id, offered, known.as_deref());
            let changes = list.changes_since(known.as_deref());
            Ok(NewFeatures { before, list: Arc::new(list), changes })
        });
        let prepared = prepared.await?;
        // Before the event that refers to it. A source that never had any features has no event about them.
        let is_local = snapshot.environment.changes_connection(id);
        if !is_local && (before.is_some() || !prepared.list.summary.is_empty()) {
            self.state.store.put_features(&prepared.list).await?;
        }
        Ok(prepared)
    }

    /// Records prompts and resources as they are read. Returns their changes, if there are any. Lists that were not
    /// read to the end, because the connection was closed, are left to the next refresh.
    pub(super) async fn record_pending(&self, source: &Source, pending: PendingLists) -> Option<FeatureOutcome> {
        let PendingLists { mut features, origin } = pending;
        let mut outcome = None;
        let mut is_complete = false;
        while let Some(reading) = features.0.next().await {
            is_complete |= reading.is_complete;
            match self.record_reading(source, &origin, reading).await {
                Ok(changes) => outcome = merge_outcomes(outcome, changes),
                // The source may have been removed meanwhile; the tools are recorded in any case.
                Err(error) => {
                    tracing::debug!(%error, server_name = %source.id, "prompts and resources are not recorded")
                }
            }
        }
        if !is_complete {
            self.abandon_lists(&source.id, origin.started_at).await;
        }
        outcome
    }

    /// Records what was read, unless a later discovery has begun to read the lists.
    async fn record_reading(
        &self,
        source: &Source,
        origin: &ListOrigin,
        reading: FeatureReading,
    ) -> Result<Option<FeatureOutcome>> {
        let FeatureReading { offered, failed_lists, ttl_ms, private, is_complete } = reading;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let Some(status) = self.current_status(&source.id, origin.started_at).await? else { return Ok(None) };
            let features = self.prepare_features(&source.id, offered.clone()).await?;
            let status = SourceStatus {
                hint_ttl_ms: ttl_ms.into_iter().chain(origin.tools_ttl_ms).min(),
                private: private || origin.tools_private || (!is_complete && status.private),
                failed_lists: failed_lists.clone(),
                lists_pending_until: status.lists_pending_until.filter(|_| !is_complete),
                ..status
            };
            if self.state.snapshot().environment.changes_connection(&source.id) {
                self.state.record_local(source, None, Some(features.list), status).await?;
                return Ok(FeatureOutcome::from_changes(features.changes));
            }
            let command = features.to_command();
            let decide = |writer: &WriterState| writer.inventory.decide(&command);
            let measurement = Measurement { source: &source.id, status: &status, check: None, lease: None };
            return match self.state.write(&origin.actor, Some(measurement), decide).await {
                Ok(WriteOutcome::Applied(events)) => {
                    let snapshot = self.state.snapshot();
                    match snapshot.catalog.source(&source.id).and_then(|source| source.features.as_ref()) {
                        // The first reader need not read them from the store.
                        Some(recorded) => recorded.keep(&features.list),
                        None => self.state.restore_features(&features.list).await,
                    }
                    Ok(features.to_outcome(&events))
                }
                Ok(WriteOutcome::Superseded) => Ok(None),
                // Another process has recorded features meanwhile: compare with those.
                Err(error) if error.code == Code::Conflict && attempts < MAX_ATTEMPTS => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Marks the lists of a source as unread, because this process has not read them to the end.
    pub(super) async fn abandon_lists(&self, id: &SourceId, started_at: Timestamp) {
        let abandon = async {
            let Some(status) = self.current_status(id, started_at).await? else { return Ok(()) };
            if status.lists_pending_until.is_none() || self.state.snapshot().environment.changes_connection(id) {
                return Ok(());
            }
            let status = SourceStatus { lists_pending_until: Some(self.state.now()), ..status };
            let measurement = Measurement { source: id, status: &status, check: None, lease: None };
            let decide = |writer: &WriterState| writer.inventory.require_source(id).map(|_| Vec::new());
            self.state.write(&Actor::system(), Some(measurement), decide).await.map(drop)
        };
        if let Err(error) = abandon.await {
            tracing::debug!(%error, server_name = %id, "unread prompts and resources cannot be marked");
        }
    }

    /// Returns the status of a source; `None` if a later discovery than that of `started_at` has ended.
    async fn current_status(&self, id: &SourceId, started_at: Timestamp) -> Result<Option<SourceStatus>> {
        self.state.catch_up().await?;
        let status = self.state.snapshot().source_status(id);
        Ok((status.started_at == started_at).then_some(status))
    }
}

impl FeatureOutcome {
    /// Returns the changes; `None` if there are none.
    pub(super) fn from_changes(changes: FeatureChanges) -> Option<FeatureOutcome> {
        let is_empty = changes.is_empty();
        let FeatureChanges { lists, instructions_changed } = changes;
        (!is_empty).then_some(FeatureOutcome { lists, instructions_changed })
    }
}

/// Merges the changes of two readings, which concern different lists.
fn merge_outcomes(first: Option<FeatureOutcome>, second: Option<FeatureOutcome>) -> Option<FeatureOutcome> {
    let (Some(first), Some(second)) = (&first, &second) else { return first.or(second) };
    let join = |kind: FeatureKind| {
        let (first, second) = (first.lists.get(kind), second.lists.get(kind));
        FeatureDelta {
            added: [&first.added[..], &second.added].concat(),
            changed: [&first.changed[..], &second.changed].concat(),
            removed: [&first.removed[..], &second.removed].concat(),
            ..FeatureDelta::default()
        }
    };
    Some(FeatureOutcome {
        lists: ByFeatureKind::from_fn(join),
        instructions_changed: first.instructions_changed || second.instructions_changed,
    })
}
