//! Counts of calls and cache lookups, kept in memory and written to the store in batches. They are measurements: a
//! crash may lose the last second. Counts of other processes are included as of the last read, so that reading counts
//! never waits for the store.
//!
//! A count moves through three stages: `pending` (counted here), `flushing` (in a batch that is being written) and
//! `stored`. A batch whose write failed is written again with the same number, and the store applies it once: nothing is
//! lost while the store is down, and nothing is counted twice when only the answer was lost.

use parking_lot::Mutex;
use toolcrib_core::{Result, SourceId, Timestamp, ToolId};

use crate::store::{CacheCount, CallCount, CountBatch, ErrorSummary, Store, UsageCounts};

/// The counters of a registry. Its lock is held for a moment only; calls never wait for the store.
#[derive(Debug)]
pub(crate) struct UsageCounters {
    /// Names this process in its batches.
    writer: String,
    counts: Mutex<UsageState>,
    /// Serializes reads and writes of the store.
    write_lock: tokio::sync::Mutex<()>,
}

/// Every count is in exactly one of the three fields.
#[derive(Debug, Default)]
struct UsageState {
    /// Counts in the store, as of the last read or write.
    stored: UsageCounts,
    /// Counts that are being written, or whose write failed.
    flushing: UsageCounts,
    /// Number of the batch in `flushing`, or of the last one.
    batch_number: u64,
    /// Counts that are not written yet.
    pending: UsageCounts,
}

impl Default for UsageCounters {
    fn default() -> Self {
        let writer = format!("{:032x}", rand::random::<u128>());
        UsageCounters { writer, counts: Mutex::default(), write_lock: tokio::sync::Mutex::default() }
    }
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

    /// Writes the pending counts, after those whose write failed before. Without any the store is not accessed.
    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<()> {
        let _guard = self.write_lock.lock().await;
        self.write_batch(store).await?;
        {
            let mut counts = self.counts.lock();
            counts.flushing = std::mem::take(&mut counts.pending);
            counts.batch_number += 1;
        }
        self.write_batch(store).await
    }

    /// Writes the batch in `flushing`. If that fails, or if the caller is dropped, it stays there.
    async fn write_batch(&self, store: &dyn Store) -> Result<()> {
        let (batch, flushing) = {
            let counts = self.counts.lock();
            (CountBatch { writer: self.writer.clone(), number: counts.batch_number }, counts.flushing.clone())
        };
        let calls: Vec<CallCount> = flushing.calls.values().cloned().collect();
        let lookups: Vec<CacheCount> = flushing.cache_lookups.values().cloned().collect();
        if calls.is_empty() && lookups.is_empty() {
            return Ok(());
        }
        store.add_counts(&batch, &calls, &lookups).await.inspect_err(|error| {
            tracing::warn!(%error, "counts cannot be written now; they are kept in memory");
        })?;
        let mut counts = self.counts.lock();
        counts.flushing = UsageCounts::default();
        counts.stored.merge(&flushing);
        Ok(())
    }

    /// Reads the counts in the store, those of other processes included. Before that, it writes a batch that may be in
    /// the store already: its counts would be in `stored` and `flushing`.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<()> {
        let _guard = self.write_lock.lock().await;
        self.write_batch(store).await?;
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
    async fn a_flush_whose_end_is_unknown_is_repeated_and_counted_once() {
        let counters = UsageCounters::default();
        let tool = ToolId { source: SourceId::from_name("git").unwrap(), name: "push".into() };
        let store = MemoryStore::default();
        for is_written in [false, true] {
            counters.count_call(&tool, Timestamp(1), None);
            let (number, flushing) = {
                // The state that a flush leaves when it is dropped while writing.
                let mut counts = counters.counts.lock();
                counts.flushing = std::mem::take(&mut counts.pending);
                counts.batch_number += 1;
                (counts.batch_number, counts.flushing.clone())
            };
            if is_written {
                let batch = CountBatch { writer: counters.writer.clone(), number };
                let calls: Vec<CallCount> = flushing.calls.into_values().collect();
                store.add_counts(&batch, &calls, &[]).await.unwrap();
            }
            counters.count_call(&tool, Timestamp(2), None);
            counters.flush(&store).await.unwrap();
        }
        assert_eq!(counters.tool_count(&tool).calls, 4);
        assert_eq!(store.call_counts().await.unwrap()[0].calls, 4);
    }
}
