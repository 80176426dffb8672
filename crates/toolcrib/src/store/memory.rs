//! The store that forgets: for tests, and for embedders who keep nothing. It behaves as the others do until it is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::Packed;
use toolcrib_core::{Code, Result, ResultExt, Source, SourceId};

use super::{CHECKS_KEPT, CallCount, Check, Commit, Committed, Lease, NeedCount, Standing, Store, StoredRecord};

#[derive(Debug)]
pub struct MemoryStore {
    key: [u8; 32],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pulse: u64,
    journal: Vec<StoredRecord>,
    manifests: BTreeMap<Fingerprint, Packed>,
    definitions: BTreeMap<Fingerprint, Source>,
    standings: BTreeMap<SourceId, Standing>,
    /// Newest first.
    checks: BTreeMap<SourceId, VecDeque<Check>>,
    leases: BTreeMap<SourceId, (String, Instant)>,
    calls: BTreeMap<(SourceId, String), CallCount>,
    needs: BTreeMap<SourceId, NeedCount>,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore { key: rand::random(), state: Mutex::default() }
    }

    /// Every change below is whole when it is made, so a panic elsewhere leaves nothing half done.
    fn read(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> MutexGuard<'_, State> {
        let mut state = self.read();
        state.pulse += 1;
        state
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        let state = self.read();
        let first = state.journal.partition_point(|record| record.seq <= after);
        Ok(state.journal.iter().skip(first).take(limit).cloned().collect())
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<Committed> {
        let bodies = commit.events.iter().map(serde_json::to_string).collect::<Result<Vec<String>, _>>();
        let bodies = bodies.context(Code::Internal, "write an event as JSON")?;
        Ok(self.write().commit(&commit, bodies))
    }

    async fn put_manifest(&self, manifest: &Packed) -> Result<()> {
        self.write().manifests.insert(manifest.fingerprint, manifest.clone());
        Ok(())
    }

    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<Packed>> {
        let state = self.read();
        Ok(wanted.iter().filter_map(|fingerprint| state.manifests.get(fingerprint).cloned()).collect())
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        self.write().definitions.insert(name, definition.clone());
        Ok(())
    }

    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        let state = self.read();
        Ok(wanted.iter().filter_map(|name| Some((*name, state.definitions.get(name)?.clone()))).collect())
    }

    async fn forget_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()> {
        self.write().definitions.retain(|name, definition| definition.id != *source || Some(*name) == but);
        Ok(())
    }

    async fn standings(&self) -> Result<BTreeMap<SourceId, Standing>> {
        let state = self.read();
        let mut standings = state.standings.clone();
        let now = Instant::now();
        for (source, (_, until)) in state.leases.iter().filter(|(_, (_, until))| *until > now) {
            standings.entry(source.clone()).or_default().discovering_until = Some(*until);
        }
        Ok(standings)
    }

    async fn checks(&self, source: &SourceId) -> Result<Vec<Check>> {
        Ok(self.read().checks.get(source).into_iter().flatten().cloned().collect())
    }

    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        if let Some(standing) = self.write().standings.get_mut(source) {
            standing.invalidated = true;
        }
        Ok(())
    }

    async fn forget(&self, source: &SourceId) -> Result<()> {
        self.write().standings.remove(source);
        Ok(())
    }

    async fn lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        let now = Instant::now();
        let mut state = self.write();
        match state.leases.get(source) {
            Some((other, until)) if other != holder && *until > now => Ok(Lease::HeldFor(*until - now)),
            Some(_) | None => {
                state.leases.insert(source.clone(), (holder.to_owned(), now + duration));
                Ok(Lease::Granted)
            }
        }
    }

    async fn release(&self, source: &SourceId, holder: &str) -> Result<()> {
        let mut state = self.write();
        if state.leases.get(source).is_some_and(|(held_by, _)| held_by == holder) {
            state.leases.remove(source);
        }
        Ok(())
    }

    async fn count(&self, calls: &[CallCount], needs: &[NeedCount]) -> Result<()> {
        if calls.is_empty() && needs.is_empty() {
            return Ok(());
        }
        self.write().count(calls, needs);
        Ok(())
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        Ok(self.read().calls.values().cloned().collect())
    }

    async fn need_counts(&self) -> Result<Vec<NeedCount>> {
        Ok(self.read().needs.values().cloned().collect())
    }

    async fn key(&self) -> Result<[u8; 32]> {
        Ok(self.key)
    }

    async fn check_integrity(&self, _: usize) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn pulse(&self) -> Result<u64> {
        Ok(self.read().pulse)
    }

    async fn close(&self) {}
}

impl State {
    fn commit(&mut self, commit: &Commit<'_>, bodies: Vec<String>) -> Committed {
        let head = self.journal.last().map_or(0, |record| record.seq);
        if head != commit.expected {
            return Committed::Conflict;
        }
        if let Some((check, standing)) = commit.check {
            if self.standings.get(&check.source).is_some_and(|newest| newest.supersedes(standing, commit.at)) {
                return Committed::Superseded;
            }
            let standing = Standing { discovering_until: None, ..standing.clone() };
            self.standings.insert(check.source.clone(), standing);
            let checks = self.checks.entry(check.source.clone()).or_default();
            checks.push_front(check.clone());
            checks.truncate(CHECKS_KEPT);
        }
        for ((seq, body), event) in (commit.first..).zip(bodies).zip(commit.events) {
            let mut record = StoredRecord {
                seq,
                at: commit.at,
                actor: commit.actor.clone(),
                body,
                critical: event.critical(),
                since: event.since().to_owned(),
                checksum: None,
            };
            record.checksum = Some(record.compute_checksum());
            self.journal.push(record);
        }
        Committed::Done
    }

    fn count(&mut self, calls: &[CallCount], needs: &[NeedCount]) {
        for more in calls {
            let nothing = CallCount { calls: 0, errors: 0, ..more.clone() };
            let call = self.calls.entry((more.source.clone(), more.tool.clone())).or_insert(nothing);
            call.calls += more.calls;
            call.errors += more.errors;
            call.last_called = call.last_called.max(more.last_called);
            call.last_error = more.last_error.clone().or(call.last_error.take());
        }
        for more in needs {
            let nothing = NeedCount { source: more.source.clone(), hits: 0, misses: 0 };
            let need = self.needs.entry(more.source.clone()).or_insert(nothing);
            need.hits += more.hits;
            need.misses += more.misses;
        }
    }
}
