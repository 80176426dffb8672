//! A store in memory, for tests and for embedders that need no persistence. Behaves like the others until it is
//! dropped.
//!
//! Also takes the place of a store that is lost: all commands then share one path, and the damage is reported through
//! the head file. Errors of the other stores cannot occur here, so tests that need them wrap this store.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Code, Result, ResultExt, Source, SourceId, Timestamp};

use super::administration::{CopyRefusal, CopyTarget, check_mark};
use super::measurements::{HeldLease, StoredStatus};
use super::{
    CacheCount, CallCount, ChangeCounters, Commit, CommitOutcome, CopyRun, CountBatch, DiscoveryCheck, Lease, Login,
    MAX_CHECKS_PER_SOURCE, Measurement, Measurements, PruneMode, PruneReport, PruneSelection, SchemaStatus,
    SourceStatus, Store, StoreAdministration, StoredRecord, StoredSnapshot, TokenUse, UsageCounts,
};

/// Name of the store in messages.
const NAME: &str = "memory:";

/// A [`Store`] in memory.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<MemoryState>,
}

#[derive(Debug, Clone, Default)]
struct MemoryState {
    /// Fixed for the life of the store, like the key of a file, unless another store is copied into it.
    key: [u8; 32],
    /// Run of the copy into this store.
    unfinished_copy: Option<CopyRun>,
    finished_copy: Option<CopyRun>,
    /// Incremented by every write.
    change_counter: u64,
    /// In order of sequence numbers; positions may have gaps after accepted damage.
    journal: Vec<StoredRecord>,
    manifests: BTreeMap<Fingerprint, PackedManifest>,
    features: BTreeMap<Fingerprint, FeatureList>,
    definitions: BTreeMap<Fingerprint, Source>,
    /// When each manifest, feature list and definition was last stored.
    stored_at: BTreeMap<Fingerprint, Instant>,
    statuses: BTreeMap<SourceId, SourceStatus>,
    /// Checks of each source, newest first.
    checks: BTreeMap<SourceId, VecDeque<DiscoveryCheck>>,
    leases: BTreeMap<SourceId, MemoryLease>,
    counts: UsageCounts,
    /// Number of the last batch of counts of each writer.
    count_batches: BTreeMap<String, u64>,
    /// Last use of each token, by its id.
    token_uses: BTreeMap<String, Timestamp>,
    logins: BTreeMap<Fingerprint, Login>,
    snapshot: Option<StoredSnapshot>,
}

/// Lease on the discovery of a source.
#[derive(Debug, Clone)]
struct MemoryLease {
    holder: String,
    until: Instant,
    /// Whether the source was invalidated since the lease was acquired.
    invalidated: bool,
}

impl MemoryStore {
    /// Creates an empty store with a random key.
    pub fn new() -> MemoryStore {
        MemoryStore { state: Mutex::new(MemoryState { key: rand::random(), ..MemoryState::default() }) }
    }

    /// Locks the state for a change. Counts as a change even if nothing is changed in the end, which costs a reader one
    /// needless catch-up.
    fn lock_for_write(&self) -> MutexGuard<'_, MemoryState> {
        let mut state = self.state.lock();
        state.change_counter += 1;
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
        let state = self.state.lock();
        let first = state.journal.partition_point(|record| record.seq <= after);
        Ok(state.journal.iter().skip(first).take(limit).cloned().collect())
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        // Serialized before the lock is taken, so that nothing can fail halfway.
        let records = commit.records().context(Code::Internal, "write an event as JSON")?;
        Ok(self.lock_for_write().commit(&commit, records))
    }

    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()> {
        let mut state = self.lock_for_write();
        state.stored_at.insert(manifest.fingerprint, Instant::now());
        let is_same = |stored: &PackedManifest| stored.has_same_content(manifest) && stored.body != manifest.body;
        if !state.manifests.get(&manifest.fingerprint).is_some_and(is_same) {
            state.manifests.insert(manifest.fingerprint, manifest.clone());
        }
        Ok(())
    }

    async fn manifests(&self, fingerprints: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        let state = self.state.lock();
        Ok(fingerprints.iter().filter_map(|fingerprint| state.manifests.get(fingerprint).cloned()).collect())
    }

    async fn put_features(&self, features: &FeatureList) -> Result<()> {
        let mut state = self.lock_for_write();
        state.stored_at.insert(features.summary.fingerprint, Instant::now());
        state.features.insert(features.summary.fingerprint, features.clone());
        Ok(())
    }

    async fn feature_summaries(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureSummary>> {
        Ok(self.features(fingerprints).await?.into_iter().map(|features| features.summary).collect())
    }

    async fn features(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureList>> {
        let state = self.state.lock();
        Ok(fingerprints.iter().filter_map(|fingerprint| state.features.get(fingerprint).cloned()).collect())
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        let mut state = self.lock_for_write();
        state.stored_at.insert(name, Instant::now());
        state.definitions.insert(name, definition.clone());
        Ok(())
    }

    async fn definitions(&self, names: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        let state = self.state.lock();
        Ok(names.iter().filter_map(|name| Some((*name, state.definitions.get(name)?.clone()))).collect())
    }

    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>, head: u64) -> Result<bool> {
        let mut state = self.lock_for_write();
        if state.head() != head {
            return Ok(false);
        }
        state.definitions.retain(|name, definition| definition.id != *source || Some(*name) == keep);
        Ok(true)
    }

    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        let state = self.state.lock();
        let mut statuses = state.statuses.clone();
        // A source whose first discovery is running has a lease and no status yet.
        let now = Instant::now();
        for (source, lease) in state.leases.iter().filter(|(_, lease)| lease.until > now) {
            statuses.entry(source.clone()).or_default().discovering_until = Some(lease.until);
        }
        Ok(statuses)
    }

    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        Ok(self.state.lock().checks.get(source).into_iter().flatten().cloned().collect())
    }

    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        let mut state = self.lock_for_write();
        if let Some(status) = state.statuses.get_mut(source) {
            status.invalidated = true;
        }
        // For a discovery that may have read the list before.
        if let Some(lease) = state.leases.get_mut(source) {
            lease.invalidated = true;
        }
        Ok(())
    }

    async fn remove_source_status(&self, source: &SourceId, head: u64) -> Result<bool> {
        let mut state = self.lock_for_write();
        if state.head() != head {
            return Ok(false);
        }
        state.statuses.remove(source);
        Ok(true)
    }

    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        let now = Instant::now();
        let mut state = self.lock_for_write();
        // A lease of another holder that has ended is replaced. Both registries of a test share one process, so only
        // time ends a lease here.
        match state.leases.get(source) {
            Some(lease) if lease.holder != holder && lease.until > now => Ok(Lease::HeldFor(lease.until - now)),
            Some(_) | None => {
                let lease = MemoryLease { holder: holder.to_owned(), until: now + duration, invalidated: false };
                state.leases.insert(source.clone(), lease);
                Ok(Lease::Granted)
            }
        }
    }

    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool> {
        let mut state = self.lock_for_write();
        let own = state.leases.get_mut(source).filter(|lease| lease.holder == holder);
        Ok(own.map(|lease| lease.until = Instant::now() + duration).is_some())
    }

    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        let mut state = self.lock_for_write();
        if state.leases.get(source).is_some_and(|lease| lease.holder == holder) {
            state.leases.remove(source);
        }
        Ok(())
    }

    async fn add_counts(&self, batch: &CountBatch, calls: &[CallCount], lookups: &[CacheCount]) -> Result<()> {
        let mut state = self.lock_for_write();
        let last = state.count_batches.entry(batch.writer.clone()).or_default();
        if *last < batch.number {
            *last = batch.number;
            state.counts.add(calls, lookups);
        }
        Ok(())
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        Ok(self.state.lock().counts.calls.values().cloned().collect())
    }

    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        Ok(self.state.lock().counts.cache_lookups.values().cloned().collect())
    }

    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()> {
        let mut state = self.lock_for_write();
        for TokenUse { token, last_used } in uses {
            let stored = state.token_uses.entry(token.clone()).or_insert(*last_used);
            *stored = (*stored).max(*last_used);
        }
        Ok(())
    }

    async fn token_uses(&self) -> Result<Vec<TokenUse>> {
        let state = self.state.lock();
        let token_use =
            |(token, last_used): (&String, &Timestamp)| TokenUse { token: token.clone(), last_used: *last_used };
        Ok(state.token_uses.iter().map(token_use).collect())
    }

    async fn put_login(&self, login: &Login) -> Result<()> {
        let mut state = self.lock_for_write();
        state.logins.retain(|_, known| known.expires_at > login.created_at);
        state.logins.insert(login.digest, login.clone());
        Ok(())
    }

    async fn remove_login(&self, digest: Fingerprint) -> Result<bool> {
        Ok(self.lock_for_write().logins.remove(&digest).is_some())
    }

    async fn logins(&self, now: Timestamp) -> Result<Vec<Login>> {
        Ok(self.state.lock().logins.values().filter(|login| login.expires_at > now).cloned().collect())
    }

    async fn put_snapshot(&self, snapshot: &StoredSnapshot) -> Result<()> {
        let mut state = self.lock_for_write();
        let is_of_journal = |stored: &StoredSnapshot| {
            let position = &stored.position;
            let record = state.journal.binary_search_by_key(&position.seq, |record| record.seq);
            record.is_ok_and(|index| state.journal[index].checksum.as_ref() == Some(&position.checksum))
        };
        let is_later = |stored: &StoredSnapshot| stored.position.seq > snapshot.position.seq;
        if !state.snapshot.as_ref().is_some_and(|stored| is_later(stored) && is_of_journal(stored)) {
            state.snapshot = Some(snapshot.clone());
        }
        Ok(())
    }

    async fn snapshot(&self) -> Result<Option<StoredSnapshot>> {
        Ok(self.state.lock().snapshot.clone())
    }

    fn administration(&self) -> &dyn StoreAdministration {
        self
    }

    async fn key(&self) -> Result<[u8; 32]> {
        Ok(self.state.lock().key)
    }

    async fn check_integrity(&self, _: usize) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn change_counters(&self) -> Result<ChangeCounters> {
        Ok(ChangeCounters::for_all_parts(self.state.lock().change_counter))
    }

    async fn close(&self) {}
}

#[async_trait]
impl StoreAdministration for MemoryStore {
    async fn begin_copy(&self, key: [u8; 32], run: CopyRun) -> Result<()> {
        let mut state = self.lock_for_write();
        let target = CopyTarget {
            is_marked: state.unfinished_copy.is_some(),
            has_source_key: state.key == key,
            has_content: !state.journal.is_empty() || !state.definitions.is_empty(),
            nodes: Vec::new(),
        };
        target.check().map_err(|refusal| refusal.to_error(NAME))?;
        state.begin_copy(key, run);
        Ok(())
    }

    async fn restore_records(&self, run: CopyRun, after: u64, records: &[StoredRecord]) -> Result<()> {
        let mut state = self.lock_for_write();
        state.check_mark(run)?;
        if state.journal.last().map_or(0, |record| record.seq) != after {
            return Err(CopyRefusal::OtherHead(after).to_error(NAME));
        }
        state.journal.extend_from_slice(records);
        Ok(())
    }

    async fn restore_measurements(&self, run: CopyRun, measurements: &Measurements) -> Result<()> {
        let mut state = self.lock_for_write();
        state.check_mark(run)?;
        let Measurements { statuses, checks, call_counts, cache_counts, token_uses, logins } = measurements.clone();
        state.statuses.extend(statuses);
        for check in checks {
            state.checks.entry(check.source.clone()).or_default().push_front(check);
        }
        state.counts.add(&call_counts, &cache_counts);
        state.token_uses.extend(token_uses.into_iter().map(|TokenUse { token, last_used }| (token, last_used)));
        state.logins.extend(logins.into_iter().map(|login| (login.digest, login)));
        Ok(())
    }

    async fn finish_copy(&self, run: CopyRun) -> Result<()> {
        let mut state = self.lock_for_write();
        state.check_mark(run)?;
        state.finished_copy = state.unfinished_copy.take();
        Ok(())
    }

    async fn finished_copy(&self) -> Result<Option<CopyRun>> {
        Ok(self.state.lock().finished_copy)
    }

    async fn checked_sources(&self) -> Result<Vec<SourceId>> {
        let state = self.state.lock();
        Ok(state.checks.iter().filter(|(_, checks)| !checks.is_empty()).map(|(source, _)| source.clone()).collect())
    }

    async fn prune(&self, selection: &PruneSelection, mode: PruneMode) -> Result<PruneReport> {
        let mut state = self.lock_for_write();
        match mode {
            PruneMode::Remove => Ok(state.prune(selection)),
            PruneMode::Count => Ok(state.clone().prune(selection)),
        }
    }

    /// The tables of a store in memory have no versions.
    async fn schema_status(&self) -> Result<SchemaStatus> {
        Ok(SchemaStatus { version: 0, is_contract_pending: false })
    }
}

impl MemoryState {
    /// Takes over the key of the source, and removes measurements.
    fn begin_copy(&mut self, key: [u8; 32], run: CopyRun) {
        *self = MemoryState {
            key,
            unfinished_copy: Some(run),
            change_counter: self.change_counter,
            journal: std::mem::take(&mut self.journal),
            manifests: std::mem::take(&mut self.manifests),
            features: std::mem::take(&mut self.features),
            definitions: std::mem::take(&mut self.definitions),
            stored_at: std::mem::take(&mut self.stored_at),
            leases: std::mem::take(&mut self.leases),
            ..MemoryState::default()
        };
    }

    /// Fails unless the store is marked with this run.
    fn check_mark(&self, run: CopyRun) -> Result<()> {
        check_mark(self.unfinished_copy, run).map_err(|refusal| refusal.to_error(NAME))
    }

    /// Removes what is not in the selection.
    fn prune(&mut self, selection: &PruneSelection) -> PruneReport {
        let mut report = PruneReport::default();
        self.snapshot = None;
        let used_before = selection.used_before();
        for (source, checks) in &mut self.checks {
            let is_needed = |check: &DiscoveryCheck| selection.sources.contains(source) || check.at >= used_before;
            let is_kept = |check: &DiscoveryCheck| check.at >= selection.checks_since && is_needed(check);
            report.checks += remove_unless(checks, VecDeque::len, |checks| checks.retain(is_kept));
        }
        report.counts += remove_unless(&mut self.counts.calls, BTreeMap::len, |calls| {
            calls.retain(|tool, count| {
                selection.counted_tools.contains(tool) || count.last_called.is_some_and(|at| at >= used_before)
            });
        });
        report.counts += remove_unless(&mut self.counts.cache_lookups, BTreeMap::len, |lookups| {
            lookups.retain(|source, _| selection.counted_sources.contains(source));
        });
        report.token_uses = remove_unless(&mut self.token_uses, BTreeMap::len, |uses| {
            uses.retain(|token, last_used| selection.tokens.contains(token) || *last_used >= used_before);
        });
        report.logins = remove_unless(&mut self.logins, BTreeMap::len, |logins| {
            logins.retain(|_, login| login.expires_at > selection.now);
        });
        let is_recent = |name: &Fingerprint| {
            self.stored_at.get(name).is_some_and(|stored_at| stored_at.elapsed() < selection.min_age)
        };
        report.definitions = remove_unless(&mut self.definitions, BTreeMap::len, |definitions| {
            definitions.retain(|name, _| selection.definitions.contains(name) || is_recent(name));
        });
        report.manifests = remove_unless(&mut self.manifests, BTreeMap::len, |manifests| {
            manifests.retain(|name, _| selection.lists.contains(name) || is_recent(name));
        });
        report.manifests += remove_unless(&mut self.features, BTreeMap::len, |features| {
            features.retain(|name, _| selection.lists.contains(name) || is_recent(name));
        });
        report
    }

    /// Sequence number of the last record.
    fn head(&self) -> u64 {
        self.journal.last().map_or(0, |record| record.seq)
    }

    /// See [`Store::commit`].
    fn commit(&mut self, commit: &Commit<'_>, records: Vec<StoredRecord>) -> CommitOutcome {
        // Same order of checks as in the other stores: head, then newer discovery.
        if self.head() != commit.expected_head {
            return CommitOutcome::Conflict;
        }
        if let Some(measurement) = commit.measurement {
            let Measurement { source, check, lease, .. } = measurement;
            let stored = self.statuses.get(source).cloned();
            let stored = stored.map(|status| StoredStatus { started_at: status.started_at, status: Some(status) });
            let lease = self.leases.get(source).filter(|held| lease == Some(held.holder.as_str()));
            let lease = lease.map(|held| HeldLease { invalidated: held.invalidated });
            let Some(status) = measurement.decide(stored.as_ref(), lease, commit.at) else {
                return CommitOutcome::Superseded;
            };
            if measurement.ends_lease(stored.as_ref()) {
                self.leases.remove(source);
            }
            // The status replaces the one before; the list of checks grows at the front. Leases are stored apart.
            self.statuses.insert(source.clone(), status);
            let checks = self.checks.entry(source.clone()).or_default();
            if let Some(check) = check {
                checks.push_front(check.clone());
            }
            checks.truncate(MAX_CHECKS_PER_SOURCE);
        }
        self.journal.extend(records);
        CommitOutcome::Committed
    }
}

/// Removes entries from a collection; returns how many.
fn remove_unless<T>(collection: &mut T, len: impl Fn(&T) -> usize, retain: impl FnOnce(&mut T)) -> u64 {
    let before = len(collection);
    retain(collection);
    (before - len(collection)) as u64
}
