//! Counts of calls and cache lookups, kept in memory and written to the store in batches. They are measurements: a
//! crash may lose the last second. Counts of other processes are included as of the last read, so that reading counts
//! never waits for the store.
//!
//! A count moves through three stages: `pending` (counted here), `flushing` (in a transaction whose end is not known
//! yet) and `stored`. A write that fails moves it back to `pending`, so nothing is lost while the store is down.

use parking_lot::Mutex;
use toolcrib_core::{Result, SourceId, Timestamp, ToolId};

use crate::store::{CacheCount, CallCount, ErrorSummary, Store, UsageCounts};

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

impl UsageCounters {
    /// Counts a call of a tool.
    pub(crate) fn count_call(&self, tool: &ToolId, at: Timestamp, error: Option<ErrorSummary>) {
        let mut counts = self.counts.lock();
        let count = counts.pending.calls.entry(tool.clone()).or_insert_with(|| CallCount::zero(tool));
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
        let lookup = CacheCount { source: source.clone(), hits: u64::from(hit), misses: u64::from(!hit) };
        counts.pending.add([], [&lookup]);
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
    pub(crate) fn tool_count(&self, tool: &ToolId) -> CallCount {
        let counts = self.counts.lock();
        let parts = [&counts.stored, &counts.flushing, &counts.pending];
        let mut total = CallCount::zero(tool);
        parts.into_iter().filter_map(|part| part.calls.get(tool)).for_each(|count| total.add(count));
        total
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
        let mut stored = UsageCounts::default();
        stored.add(&calls, &lookups);
        self.counts.lock().stored = stored;
        Ok(())
    }
}

impl UsageCounts {
    /// Adds `newer`, which was counted after everything in `self`.
    fn merge(&mut self, newer: &UsageCounts) {
        self.add(newer.calls.values(), newer.cache_lookups.values());
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
        assert_eq!(counters.tool_count(&tool).calls, 2);
        assert_eq!(
            store.call_counts().await.unwrap()[0].calls,
            1,
            "counts that may have been written are not written again"
        );
    }
}
