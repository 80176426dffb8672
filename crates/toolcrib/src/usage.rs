//! Calls and needs, counted in memory and written in batches. A measurement, not a fact: a crash may lose the last second.
//! What others counted is known as it was last read, so that whoever asks for numbers waits for no store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolcrib_core::{Result, SourceId, Timestamp, ToolId};

use crate::store::{CacheCount, CallCount, ErrorSummary, Store};

#[derive(Debug, Default)]
pub(crate) struct UsageCounters {
    counts: Mutex<UsageState>,
    /// Written by one at a time.
    write_lock: tokio::sync::Mutex<()>,
}

/// Everything counted is in exactly one of the three.
#[derive(Debug, Default)]
struct UsageState {
    /// What the store held when it was last read or written.
    stored: UsageCounts,
    /// Being written just now.
    flushing: UsageCounts,
    pending: UsageCounts,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct UsageCounts {
    pub(crate) calls: BTreeMap<ToolId, CallCount>,
    pub(crate) cache_lookups: BTreeMap<SourceId, CacheCount>,
}

impl UsageCounters {
    pub(crate) fn count_call(&self, tool: &ToolId, at: Timestamp, failure: Option<ErrorSummary>) {
        let mut counts = self.counts();
        let count = counts.pending.calls.entry(tool.clone()).or_insert_with(|| CallCount {
            source: tool.source.clone(),
            tool: tool.name.clone(),
            calls: 0,
            errors: 0,
            last_called: None,
            last_error: None,
        });
        count.calls += 1;
        count.last_called = Some(at);
        if failure.is_some() {
            count.errors += 1;
            count.last_error = failure;
        }
    }

    /// A source was needed; `hit` when it was fresh.
    pub(crate) fn count_lookup(&self, source: &SourceId, hit: bool) {
        let mut counts = self.counts();
        let count = counts.pending.cache_lookups.entry(source.clone()).or_insert_with(|| CacheCount {
            source: source.clone(),
            hits: 0,
            misses: 0,
        });
        count.hits += u64::from(hit);
        count.misses += u64::from(!hit);
    }

    /// Everything that is known to have been counted, by whomever.
    pub(crate) fn total(&self) -> UsageCounts {
        let counts = self.counts();
        let mut total = counts.stored.clone();
        total.merge(&counts.flushing);
        total.merge(&counts.pending);
        total
    }

    /// Of one tool.
    pub(crate) fn tool_count(&self, tool: &ToolId) -> Option<CallCount> {
        let counts = self.counts();
        let parts = [&counts.stored, &counts.flushing, &counts.pending];
        let mut found = parts.into_iter().filter_map(|part| part.calls.get(tool));
        let mut total = found.next()?.clone();
        found.for_each(|count| total.merge(count));
        Some(total)
    }

    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<()> {
        let _turn = self.write_lock.lock().await;
        let leaving = {
            let mut counts = self.counts();
            // What was being written when its flush was dropped counts as written, so that nothing is counted twice;
            // whether it was, the next reading of the store tells.
            let left = std::mem::take(&mut counts.flushing);
            counts.stored.merge(&left);
            counts.flushing = std::mem::take(&mut counts.pending);
            counts.flushing.clone()
        };
        let calls: Vec<CallCount> = leaving.calls.values().cloned().collect();
        let needs: Vec<CacheCount> = leaving.cache_lookups.values().cloned().collect();
        if calls.is_empty() && needs.is_empty() {
            return Ok(());
        }
        let written = store.add_counts(&calls, &needs).await;
        let mut counts = self.counts();
        let leaving = std::mem::take(&mut counts.flushing);
        match written {
            Ok(()) => {
                counts.stored.merge(&leaving);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "counters cannot be written now; they are kept");
                let newer = std::mem::replace(&mut counts.pending, leaving);
                counts.pending.merge(&newer);
                Err(error)
            }
        }
    }

    /// Takes in what the store holds, others' counts included.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<()> {
        let _turn = self.write_lock.lock().await;
        let (calls, needs) = (store.call_counts().await?, store.cache_counts().await?);
        let tool = |count: &CallCount| ToolId { source: count.source.clone(), name: count.tool.clone() };
        self.counts().stored = UsageCounts {
            calls: calls.into_iter().map(|count| (tool(&count), count)).collect(),
            cache_lookups: needs.into_iter().map(|count| (count.source.clone(), count)).collect(),
        };
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, UsageState> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsageCounts {
    /// `newer` was counted after all of this.
    fn merge(&mut self, newer: &UsageCounts) {
        for (tool, count) in &newer.calls {
            match self.calls.get_mut(tool) {
                Some(total) => total.merge(count),
                None => {
                    self.calls.insert(tool.clone(), count.clone());
                }
            }
        }
        for (source, count) in &newer.cache_lookups {
            let none = CacheCount { hits: 0, misses: 0, ..count.clone() };
            let total = self.cache_lookups.entry(source.clone()).or_insert(none);
            total.hits += count.hits;
            total.misses += count.misses;
        }
    }
}

impl CallCount {
    /// `newer` was counted after this.
    fn merge(&mut self, newer: &CallCount) {
        self.calls += newer.calls;
        self.errors += newer.errors;
        self.last_called = newer.last_called.or(self.last_called);
        self.last_error = newer.last_error.clone().or(self.last_error.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn a_flush_that_is_dropped_midway_neither_loses_nor_doubles_what_was_counted() {
        let counters = UsageCounters::default();
        let tool = ToolId { source: SourceId::from_name("git").unwrap(), name: "push".into() };
        counters.count_call(&tool, Timestamp(1), None);
        {
            // As a flush leaves it that is dropped while it writes.
            let mut counts = counters.counts();
            counts.flushing = std::mem::take(&mut counts.pending);
        }
        counters.count_call(&tool, Timestamp(2), None);
        let store = MemoryStore::default();
        counters.flush(&store).await.unwrap();
        assert_eq!(counters.tool_count(&tool).unwrap().calls, 2);
        assert_eq!(store.call_counts().await.unwrap()[0].calls, 1, "what may have been written is not written again");
    }
}
