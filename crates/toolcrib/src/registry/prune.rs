//! Removing what a store does not need any more: old checks, counts of unknown tools, definitions and tool lists that
//! nothing refers to. Records are never removed.

use std::collections::BTreeSet;
use std::time::Duration;

use toolcrib_core::inventory::{SourceState, StoredEvent};
use toolcrib_core::{Code, Error, Result, SourceId, Timestamp, ToolId};

use super::StoreMaintenance;
use crate::state::{READ_BATCH_SIZE, Snapshot};
use crate::store::{PruneMode, PruneReport, PruneSelection, RecordReferences};

/// Age below which nothing is removed, except expired logins: a discovery stores its list before the record that refers
/// to it, and tools and tokens that other nodes add meanwhile are used at once.
const MIN_CONTENT_AGE: Duration = Duration::from_secs(60 * 60);
/// Time since the last call for which counts of an unknown tool are kept: the host program of another process may have
/// it.
const MIN_COUNT_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

impl StoreMaintenance<'_> {
    /// Removes, or only counts, what is not needed: checks of removed sources and those older than `keep_checks`,
    /// counts and uses of what does not exist, expired logins, and definitions and lists that nothing refers to. Fails
    /// while the journal is damaged, or has records of a newer version, which may refer to anything.
    pub async fn prune(&self, keep_checks: Duration, mode: PruneMode) -> Result<PruneReport> {
        self.registry.state.catch_up().await?;
        let snapshot = self.registry.state.snapshot();
        snapshot.ensure_usable()?;
        if snapshot.inventory.unknown_events > 0 {
            let message =
                "the journal has records of a newer Toolcrib, which may refer to anything; upgrade this Toolcrib first";
            return Err(Error::new(Code::StoreUnavailable, message).with_retryable(false));
        }
        let references = self.read_references().await?;
        let now = self.registry.state.now();
        let age = i64::try_from(keep_checks.as_millis()).unwrap_or(i64::MAX);
        let mut known = select_known(&snapshot);
        let oldest = Timestamp(now.0.saturating_sub(i64::try_from(MIN_COUNT_AGE.as_millis()).unwrap_or(i64::MAX)));
        for count in self.registry.state.store.call_counts().await? {
            if count.last_called.is_some_and(|at| at >= oldest) {
                known.counted_sources.insert(count.source.clone());
                known.counted_tools.insert(ToolId { source: count.source, name: count.tool });
            }
        }
        let selection = PruneSelection {
            now,
            checks_since: Timestamp(now.0.saturating_sub(age)),
            lists: references.manifests.into_iter().chain(references.features).collect(),
            min_age: MIN_CONTENT_AGE,
            ..known
        };
        self.registry.state.store.administration().prune(&selection, mode).await
    }

    /// Reads which manifests and lists the records refer to.
    async fn read_references(&self) -> Result<RecordReferences> {
        let mut references = RecordReferences::default();
        let mut after = 0;
        loop {
            let batch = self.registry.state.store.records(after, READ_BATCH_SIZE).await?;
            let Some(last) = batch.last() else { return Ok(references) };
            after = last.seq;
            for record in &batch {
                if let StoredEvent::Known(event) = StoredEvent::parse(&record.body) {
                    references.add(&event);
                }
            }
        }
    }
}

/// Returns what the inventory and this process know. Removed sources keep their counts, because they may be declared
/// again.
fn select_known(snapshot: &Snapshot) -> PruneSelection {
    let inventory = &snapshot.inventory;
    let states = inventory.all_source_ids().filter_map(|id| {
        let state = inventory.source(id).or_else(|| inventory.removed_source(id))?;
        Some((id, state))
    });
    let tools = states.flat_map(|(id, state): (&SourceId, &std::sync::Arc<SourceState>)| {
        state.tools.keys().map(|name| ToolId { source: id.clone(), name: name.clone() })
    });
    // The catalogue also has the tools of the host program, which no record announces.
    let listed = snapshot.catalog.sources().flat_map(|source| {
        let id = source.segment.source();
        source.segment.packed().tools.iter().map(|tool| ToolId { source: id.clone(), name: tool.name.clone() })
    });
    let listed_sources = snapshot.catalog.sources().map(|source| source.segment.source().clone());
    PruneSelection {
        sources: inventory.sources().map(|(id, _)| id.clone()).collect(),
        counted_sources: inventory.all_source_ids().cloned().chain(listed_sources).collect::<BTreeSet<_>>(),
        counted_tools: tools.chain(listed).collect(),
        tokens: inventory.tokens().map(|token| token.id.clone()).collect(),
        definitions: inventory.sources().map(|(_, state)| state.definition).collect(),
        ..PruneSelection::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::RegistryOptions;
    use crate::clock::Clock;
    use crate::store::{CallCount, CountBatch, MemoryStore, Store};
    use crate::testkit::{ScriptedSource, config_with_sources, open_with_connectors};

    /// The host program of another process has tools that no record announces.
    #[tokio::test]
    async fn counts_of_unknown_tools_are_kept_while_they_are_called() {
        let (clock, manual_clock) = Clock::manual(Timestamp(1_790_000_000_000));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let options = RegistryOptions { store: Some(store.clone()), clock, ..RegistryOptions::default() };
        let factory = ScriptedSource::connector_factory([]);
        let registry = open_with_connectors(config_with_sources([]), options, factory).await.unwrap();
        let tool = ToolId { source: SourceId::from_name("host").unwrap(), name: "greet".into() };
        let count = CallCount { calls: 1, last_called: Some(registry.now()), ..CallCount::zero(&tool) };
        let batch = CountBatch { writer: "host".into(), number: 1 };
        store.add_counts(&batch, &[count], &[]).await.unwrap();
        for (age, remaining) in [(MIN_COUNT_AGE, 1), (Duration::from_millis(1), 0)] {
            manual_clock.advance(age);
            registry.store().prune(MIN_COUNT_AGE, PruneMode::Remove).await.unwrap();
            assert_eq!(store.call_counts().await.unwrap().len(), remaining, "{age:?}");
        }
    }
}
