//! Calls and needs, counted in memory and written in batches. A measurement, not a fact: a crash may lose the last second.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolcrib_core::{SourceId, Timestamp, ToolId};

use crate::store::{CallCount, Failure, NeedCount, Store};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    calls: BTreeMap<ToolId, CallCount>,
    needs: BTreeMap<SourceId, NeedCount>,
}

impl Counters {
    pub(crate) fn called(&self, tool: &ToolId, at: Timestamp, failure: Option<Failure>) {
        let mut pending = self.pending();
        let count = pending.calls.entry(tool.clone()).or_insert_with(|| CallCount {
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
        let mut pending = self.pending();
        let count = pending.needs.entry(source.clone()).or_insert_with(|| NeedCount {
            source: source.clone(),
            hits: 0,
            misses: 0,
        });
        count.hits += u64::from(hit);
        count.misses += u64::from(!hit);
    }

    pub(crate) async fn flush(&self, store: &dyn Store) {
        let taken = std::mem::take(&mut *self.pending());
        let calls: Vec<CallCount> = taken.calls.values().cloned().collect();
        let needs: Vec<NeedCount> = taken.needs.values().cloned().collect();
        if calls.is_empty() && needs.is_empty() {
            return;
        }
        if let Err(error) = store.count(&calls, &needs).await {
            tracing::warn!(%error, "counters cannot be written now; they are kept");
            self.put_back(taken);
        }
    }

    fn put_back(&self, taken: Pending) {
        let mut pending = self.pending();
        for (tool, old) in taken.calls {
            match pending.calls.get_mut(&tool) {
                Some(count) => {
                    count.calls += old.calls;
                    count.errors += old.errors;
                    count.last_error = count.last_error.take().or(old.last_error);
                }
                None => {
                    pending.calls.insert(tool, old);
                }
            }
        }
        for (source, old) in taken.needs {
            let count = pending.needs.entry(source).or_insert(NeedCount { hits: 0, misses: 0, ..old.clone() });
            count.hits += old.hits;
            count.misses += old.misses;
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
