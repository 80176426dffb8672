//! Calls and needs, counted in memory and written in batches. A measurement, not a fact: a crash may lose the last second.
//! What others counted is known as it was last read, so that whoever asks for numbers waits for no store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolcrib_core::{Result, SourceId, Timestamp, ToolId};

use crate::store::{CallCount, Failure, NeedCount, Store};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    counts: Mutex<Counts>,
    /// Written by one at a time.
    writing: tokio::sync::Mutex<()>,
}

/// Everything counted is in exactly one of the three.
#[derive(Debug, Default)]
struct Counts {
    /// What the store held when it was last read or written.
    known: Tally,
    /// Being written just now.
    leaving: Tally,
    pending: Tally,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) calls: BTreeMap<ToolId, CallCount>,
    pub(crate) needs: BTreeMap<SourceId, NeedCount>,
}

impl Counters {
    pub(crate) fn called(&self, tool: &ToolId, at: Timestamp, failure: Option<Failure>) {
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
    pub(crate) fn needed(&self, source: &SourceId, hit: bool) {
        let mut counts = self.counts();
        let count = counts.pending.needs.entry(source.clone()).or_insert_with(|| NeedCount {
            source: source.clone(),
            hits: 0,
            misses: 0,
        });
        count.hits += u64::from(hit);
        count.misses += u64::from(!hit);
    }

    /// Everything that is known to have been counted, by whomever.
    pub(crate) fn total(&self) -> Tally {
        let counts = self.counts();
        let mut total = counts.known.clone();
        total.add(&counts.leaving);
        total.add(&counts.pending);
        total
    }

    /// Of one tool.
    pub(crate) fn of_tool(&self, tool: &ToolId) -> Option<CallCount> {
        let counts = self.counts();
        let parts = [&counts.known, &counts.leaving, &counts.pending];
        let mut found = parts.into_iter().filter_map(|part| part.calls.get(tool));
        let mut total = found.next()?.clone();
        found.for_each(|count| total.add(count));
        Some(total)
    }

    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<()> {
        let _turn = self.writing.lock().await;
        let leaving = {
            let mut counts = self.counts();
            // What was being written when its flush was dropped counts as written, so that nothing is counted twice;
            // whether it was, the next reading of the store tells.
            let left = std::mem::take(&mut counts.leaving);
            counts.known.add(&left);
            counts.leaving = std::mem::take(&mut counts.pending);
            counts.leaving.clone()
        };
        let calls: Vec<CallCount> = leaving.calls.values().cloned().collect();
        let needs: Vec<NeedCount> = leaving.needs.values().cloned().collect();
        if calls.is_empty() && needs.is_empty() {
            return Ok(());
        }
        let written = store.count(&calls, &needs).await;
        let mut counts = self.counts();
        let leaving = std::mem::take(&mut counts.leaving);
        match written {
            Ok(()) => {
                counts.known.add(&leaving);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "counters cannot be written now; they are kept");
                let newer = std::mem::replace(&mut counts.pending, leaving);
                counts.pending.add(&newer);
                Err(error)
            }
        }
    }

    /// Takes in what the store holds, others' counts included.
    pub(crate) async fn read(&self, store: &dyn Store) -> Result<()> {
        let _turn = self.writing.lock().await;
        let (calls, needs) = (store.call_counts().await?, store.need_counts().await?);
        let tool = |count: &CallCount| ToolId { source: count.source.clone(), name: count.tool.clone() };
        self.counts().known = Tally {
            calls: calls.into_iter().map(|count| (tool(&count), count)).collect(),
            needs: needs.into_iter().map(|count| (count.source.clone(), count)).collect(),
        };
        Ok(())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    /// `newer` was counted after all of this.
    fn add(&mut self, newer: &Tally) {
        for (tool, count) in &newer.calls {
            match self.calls.get_mut(tool) {
                Some(total) => total.add(count),
                None => {
                    self.calls.insert(tool.clone(), count.clone());
                }
            }
        }
        for (source, count) in &newer.needs {
            let none = NeedCount { hits: 0, misses: 0, ..count.clone() };
            let total = self.needs.entry(source.clone()).or_insert(none);
            total.hits += count.hits;
            total.misses += count.misses;
        }
    }
}

impl CallCount {
    /// `newer` was counted after this.
    fn add(&mut self, newer: &CallCount) {
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
        let counters = Counters::default();
        let tool = ToolId { source: SourceId::from_name("git").unwrap(), name: "push".into() };
        counters.called(&tool, Timestamp(1), None);
        {
            // As a flush leaves it that is dropped while it writes.
            let mut counts = counters.counts();
            counts.leaving = std::mem::take(&mut counts.pending);
        }
        counters.called(&tool, Timestamp(2), None);
        let store = MemoryStore::default();
        counters.flush(&store).await.unwrap();
        assert_eq!(counters.of_tool(&tool).unwrap().calls, 2);
        assert_eq!(store.call_counts().await.unwrap()[0].calls, 1, "what may have been written is not written again");
    }
}
