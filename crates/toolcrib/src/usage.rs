//! Counts of calls and cache lookups, kept in memory and written to the store in batches. They are measurements: a
//! crash may lose the last second. Counts of other processes are included as of the last read, so that reading counts
//! never waits for the store.
//!
//! A count moves through three stages: `pending` (counted here), `flushing` (in a transaction whose end is not known
//! yet) and `stored`. A write that fails moves it back to `pending`, so nothing is lost while the store is down.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use toolcrib_core::{Result, SourceId, Timestamp, ToolId};

use crate::store::{CacheCount, CallCount, ErrorSummary, Store};

/// The counters of a registry. Its lock is held for a moment only; calls never wait for the store.
#[derive(Debug, Default)]
pub(crate) struct UsageCounters {
    counts: Mutex<UsageState>,
    /// Serializes reads and writes of the store.
    write_lock: tokio::sync::Mutex<()>,
}

/// Every count is in exactly one of the three fields.
#[derive(Debug, Default)]
struct UsageState {
    /// Counts in the store, as of the last read or write.
    stored: UsageCounts,
    /// Counts that are being written.
    flushing: UsageCounts,
    /// Counts that are not written yet.
    pending: UsageCounts,
}

/// Counts of tools and sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageCounts {
    pub(crate) calls: BTreeMap<ToolId, CallCount>,
    pub(crate) cache_lookups: BTreeMap<SourceId, CacheCount>,
}

impl UsageCounters {
    /// Counts a call of a tool.
    pub(crate) fn count_call(&self, tool: &ToolId, at: Timestamp, error: Option<ErrorSummary>) {
        let mut counts = self.counts.lock();
        let count = counts.pending.calls.entry(tool.clone()).or_insert_with(|| CallCount {
            source: tool.source.clone(),
            tool: tool.name.clone(),
            calls: 0,
            errors: 0,
            last_called: None,
            last_error: None,
        });
        // Failed calls count as calls, too.
        count.calls += 1;
        count.last_called = Some(at);
        if error.is_some() {
            count.errors += 1;
            count.last_error = error;
        }
    }

    /// Counts a request for a source's tools; `hit` if they were fresh.
    pub(crate) fn count_lookup(&self, source: &SourceId, hit: bool) {
        let mut counts = self.counts.lock();
        let count = counts.pending.cache_lookups.entry(source.clone()).or_insert_with(|| CacheCount {
            source: source.clone(),
            hits: 0,
            misses: 0,
        });
        count.hits += u64::from(hit);
        count.misses += u64::from(!hit);
    }

    /// Returns all counts, of this and other processes.
    pub(crate) fn total(&self) -> UsageCounts {
        let counts = self.counts.lock();
        let mut total = counts.stored.clone();
        total.merge(&counts.flushing);
        total.merge(&counts.pending);
        total
    }

    /// Returns the call counts of one tool.
    pub(crate) fn tool_count(&self, tool: &ToolId) -> Option<CallCount> {
        let counts = self.counts.lock();
        let parts = [&counts.stored, &counts.flushing, &counts.pending];
        let mut counts = parts.into_iter().filter_map(|part| part.calls.get(tool));
        let mut total = counts.next()?.clone();
        counts.for_each(|count| total.merge(count));
        Some(total)
    }

    /// Writes the pending counts. If that fails, they stay pending. Without pending counts the store is not accessed.
    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<()> {
        let _guard = self.write_lock.lock().await;
        let flushing = {
            let mut counts = self.counts.lock();
            // A flush that was dropped while writing counts as written, so that nothing is counted twice; the next read
            // of the store corrects the counts.
            let dropped = std::mem::take(&mut counts.flushing);
            counts.stored.merge(&dropped);
            counts.flushing = std::mem::take(&mut counts.pending);
            counts.flushing.clone()
        };
        let calls: Vec<CallCount> = flushing.calls.values().cloned().collect();
        let lookups: Vec<CacheCount> = flushing.cache_lookups.values().cloned().collect();
        if calls.is_empty() && lookups.is_empty() {
            return Ok(());
        }
        let written = store.add_counts(&calls, &lookups).await;
        let mut counts = self.counts.lock();
        let flushing = std::mem::take(&mut counts.flushing);
        match written {
            Ok(()) => {
                counts.stored.merge(&flushing);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "counts cannot be written now; they are kept in memory");
                // Counted while the write was running, so it is merged on top.
                let newer = std::mem::replace(&mut counts.pending, flushing);
                counts.pending.merge(&newer);
                Err(error)
            }
        }
    }

    /// Reads the counts in the store, those of other processes included. Not during a flush: the same counts would be
    /// in `stored` and `flushing`.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<()> {
        let _guard = self.write_lock.lock().await;
        let calls = store.call_counts().await?;
        let lookups = store.cache_counts().await?;
        let tool_id = |count: &CallCount| ToolId { source: count.source.clone(), name: count.tool.clone() };
        self.counts.lock().stored = UsageCounts {
            calls: calls.into_iter().map(|count| (tool_id(&count), count)).collect(),
            cache_lookups: lookups.into_iter().map(|count| (count.source.clone(), count)).collect(),
        };
        Ok(())
    }
}

impl UsageCounts {
    /// Adds `newer`, which was counted after everything in `self`. Order matters for `last_called` and `last_error`, of
    /// which the newer value is kept.
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
            let zero = CacheCount { hits: 0, misses: 0, ..count.clone() };
            let total = self.cache_lookups.entry(source.clone()).or_insert(zero);
            total.hits += count.hits;
            total.misses += count.misses;
        }
    }
}

impl CallCount {
    /// Adds `newer`, which was counted after `self`.
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
    async fn a_flush_dropped_while_writing_neither_loses_nor_doubles_counts() {
        let counters = UsageCounters::default();
        let tool = ToolId { source: SourceId::from_name("git").unwrap(), name: "push".into() };
        counters.count_call(&tool, Timestamp(1), None);
        {
            // The state that a flush leaves when it is dropped while writing.
            let mut counts = counters.counts.lock();
            counts.flushing = std::mem::take(&mut counts.pending);
        }
        counters.count_call(&tool, Timestamp(2), None);
        let store = MemoryStore::default();
        counters.flush(&store).await.unwrap();
        assert_eq!(counters.tool_count(&tool).unwrap().calls, 2);
        assert_eq!(
            store.call_counts().await.unwrap()[0].calls,
            1,
            "counts that may have been written are not written again"
        );
    }
}
