//! Store failures: writes fail with `STORE_UNAVAILABLE`, reads continue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use toolcrib::config::Config;
use toolcrib::core::features::{FeatureList, FeatureSummary, OfferedFeatures};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command, Event};
use toolcrib::core::manifest::PackedManifest;
use toolcrib::core::{Error, Result, Timestamp};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::HistoryQuery;
use toolcrib::store::{
    CacheCount, CallCount, ChangeCounters, Commit, CommitOutcome, CountBatch, DiscoveryCheck, Lease, Login,
    MemoryStore, SourceStatus, Store, StoreAdministration, StoreState, StoredRecord, StoredSnapshot, TokenUse,
};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Code, Registry, RegistryOptions, Source, SourceId};

use crate::registry::long_journal::{open_long, write_long_journal, write_snapshot};
use crate::support::{
    TestRegistry, agent, cached_tools, call, force_refresh, id, list_tools, open_with, output_text, refresh, wait_until,
};

/// A store with failures that a test can switch on.
#[derive(Debug, Default)]
struct FailingStore {
    store: MemoryStore,
    full: AtomicBool,
    /// Releasing a lease fails.
    release_fails: AtomicBool,
    /// Reading the journal fails.
    records_fail: AtomicBool,
    /// Reading the journal waits.
    records_hang: AtomicBool,
    /// The journal reads as empty.
    journal_empty: AtomicBool,
    /// A commit fails after it was written.
    commit_is_ambiguous: AtomicBool,
    /// Writing a manifest never finishes.
    manifests_hang: AtomicBool,
    /// A source is invalidated when its prompts and resources are written.
    invalidates: AtomicBool,
}

impl FailingStore {
    fn check_space(&self) -> Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the disk is full"));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FailingStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        if self.records_fail.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the journal cannot be read"));
        }
        while self.records_hang.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if self.journal_empty.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        self.store.records(after, limit).await
    }
    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        self.check_space()?;
        let outcome = self.store.commit(commit).await;
        if self.commit_is_ambiguous.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the connection was lost"));
        }
        outcome
    }
    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()> {
        if self.manifests_hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.check_space()?;
        self.store.put_manifest(manifest).await
    }
    async fn manifests(&self, fingerprints: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        self.store.manifests(fingerprints).await
    }
    async fn put_features(&self, features: &FeatureList) -> Result<()> {
        if self.invalidates.load(Ordering::SeqCst) {
            self.store.invalidate(&features.summary.source).await?;
        }
        self.store.put_features(features).await
    }
    async fn feature_summaries(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureSummary>> {
        self.store.feature_summaries(fingerprints).await
    }
    async fn features(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureList>> {
        self.store.features(fingerprints).await
    }
    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        self.check_space()?;
        self.store.put_definition(name, definition).await
    }
    async fn definitions(&self, fingerprints: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        self.store.definitions(fingerprints).await
    }
    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>, head: u64) -> Result<bool> {
        self.store.remove_definitions(source, keep, head).await
    }
    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        self.store.source_statuses().await
    }
    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        self.store.checks(source).await
    }
    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        self.check_space()?;
        self.store.invalidate(source).await
    }
    async fn remove_source_status(&self, source: &SourceId, head: u64) -> Result<bool> {
        self.check_space()?;
        self.store.remove_source_status(source, head).await
    }
    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        self.check_space()?;
        self.store.acquire_lease(source, holder, duration).await
    }
    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool> {
        self.check_space()?;
        self.store.renew_lease(source, holder, duration).await
    }
    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        self.check_space()?;
        if self.release_fails.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the store is locked by another process"));
        }
        self.store.release_lease(source, holder).await
    }
    async fn add_counts(&self, batch: &CountBatch, calls: &[CallCount], needs: &[CacheCount]) -> Result<()> {
        self.check_space()?;
        self.store.add_counts(batch, calls, needs).await
    }
    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        self.store.call_counts().await
    }
    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        self.store.cache_counts().await
    }
    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()> {
        self.check_space()?;
        self.store.record_token_uses(uses).await
    }
    async fn token_uses(&self) -> Result<Vec<TokenUse>> {
        self.store.token_uses().await
    }
    async fn put_login(&self, login: &Login) -> Result<()> {
        self.check_space()?;
        self.store.put_login(login).await
    }
    async fn remove_login(&self, digest: Fingerprint) -> Result<bool> {
        self.check_space()?;
        self.store.remove_login(digest).await
    }
    async fn logins(&self, now: Timestamp) -> Result<Vec<Login>> {
        self.store.logins(now).await
    }
    async fn put_snapshot(&self, snapshot: &StoredSnapshot) -> Result<()> {
        self.store.put_snapshot(snapshot).await
    }
    async fn snapshot(&self) -> Result<Option<StoredSnapshot>> {
        self.store.snapshot().await
    }
    fn administration(&self) -> &dyn StoreAdministration {
        self.store.administration()
    }
    async fn key(&self) -> Result<[u8; 32]> {
        self.store.key().await
    }
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        self.store.check_integrity(limit).await
    }
    async fn change_counters(&self) -> Result<ChangeCounters> {
        self.store.change_counters().await
    }
    async fn close(&self) {}
}

async fn open_failing(git: &Arc<ScriptedSource>) -> (TestRegistry, Arc<FailingStore>) {
    let full = Arc::new(FailingStore::default());
    let store: Arc<dyn Store> = full.clone();
    let yaml = "sources: { git: { command: x } }";
    let fixture =
        open_with(yaml, &[("git", git)], |options| RegistryOptions { store: Some(store.clone()), ..options }).await;
    (TestRegistry { store, ..fixture }, full)
}

#[tokio::test(start_paused = true)]
async fn a_registry_is_ready_while_its_store_can_be_read() {
    let (fixture, disk) = open_failing(&ScriptedSource::new(["push"])).await;
    list_tools(&fixture).await;
    assert!(fixture.store().check_ready().is_ok());
    disk.full.store(true, Ordering::SeqCst);
    call(&fixture, "git__push", json!({})).await.unwrap();
    wait_until("the failure is reported", || fixture.store().health().state == StoreState::Down).await;
    assert!(fixture.store().check_ready().is_ok(), "calls go on");
    disk.full.store(false, Ordering::SeqCst);
    wait_until("all is well", || fixture.store().health().state == StoreState::Ok).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_prevents_refreshes_only() {
    let git = ScriptedSource::new(["push"]);
    let (fixture, disk) = open_failing(&git).await;
    list_tools(&fixture).await;
    git.set_tools(["pull", "push"]);
    disk.full.store(true, Ordering::SeqCst);
    let outcome = force_refresh(&fixture, "git").await;
    let error = outcome.error.unwrap();
    assert_eq!(
        (outcome.status, error.code, error.message.as_str()),
        (RefreshStatus::Failed, Code::StoreUnavailable, "the disk is full")
    );
    assert_eq!(list_tools(&fixture).await, ["git__push"], "reads go on");
    assert_eq!(output_text(&call(&fixture, "git__push", json!({})).await.unwrap()), "push {}", "and calls");
    let error = fixture.execute(Command::Disable(id("git")), Actor::new("operator")).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert_eq!(cached_tools(&fixture), ["git__push"]);
    assert_eq!(fixture.statistics().totals().calls, 1, "and numbers");

    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(force_refresh(&fixture, "git").await.added, ["git__pull"]);
    assert_eq!(fixture.statistics().totals().calls, 1, "what was counted meanwhile is kept");
}

#[tokio::test(start_paused = true)]
async fn recent_records_are_read_from_memory() {
    let (fixture, disk) = open_failing(&ScriptedSource::new(["push"])).await;
    list_tools(&fixture).await;
    disk.records_fail.store(true, Ordering::SeqCst);
    let records = fixture.history().records(&HistoryQuery::after(0)).await.unwrap();
    assert_eq!(records.last().unwrap().text, "1 tool added to `git`: push");
    let last = HistoryQuery { limit: Some(1), tool: Some("git__push".into()), ..HistoryQuery::default() };
    assert_eq!(fixture.history().records(&last).await.unwrap()[0].seq, records.len() as u64);
    assert_eq!(fixture.history().records(&HistoryQuery::after(records.len() as u64)).await.unwrap(), []);
}

#[tokio::test]
async fn newest_records_are_read_from_memory_after_a_start_with_a_snapshot() {
    let store = Arc::new(FailingStore::default());
    write_long_journal(&*store).await;
    write_snapshot(&store).await;
    let registry = open_long(&store, false).await;
    registry.execute(Command::Disable(id("git")), Actor::new("operator")).await.unwrap();
    let newest = async |limit| {
        let query = HistoryQuery { limit: Some(limit), ..HistoryQuery::default() };
        registry.history().records(&query).await.unwrap().iter().map(|record| record.seq).collect::<Vec<_>>()
    };
    assert_eq!(newest(3).await, [12_003, 12_004, 12_005], "those before the snapshot are read from the store");
    store.records_fail.store(true, Ordering::SeqCst);
    assert_eq!(newest(1).await, [12_005]);
    assert_eq!(newest(3).await, [12_005], "the records in memory are the answer while the store is down");
    registry.close().await;
}

#[tokio::test(start_paused = true)]
async fn counting_tokens_does_not_wait_for_the_store() {
    let (fixture, disk) = open_failing(&ScriptedSource::new(["push"])).await;
    list_tools(&fixture).await;
    disk.manifests_hang.store(true, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(1), fixture.statistics().count_tokens()).await.unwrap();
    assert!(fixture.view(&agent()).full_token_count() > 0);
    assert!(fixture.unrestricted_catalog().sources().all(|part| part.segment.has_token_counts()));
}

/// Regression: recording prompts and resources discarded an invalidation that happened meanwhile.
#[tokio::test(start_paused = true)]
async fn an_invalidation_while_lists_are_recorded_is_not_lost() {
    let git = ScriptedSource::new(["push"]);
    git.set_features(OfferedFeatures { instructions: Some("Use it.".into()), ..OfferedFeatures::default() });
    git.set_list_delay(Duration::from_secs(5));
    let (fixture, store) = open_failing(&git).await;
    store.invalidates.store(true, Ordering::SeqCst);
    list_tools(&fixture).await;
    assert_eq!(fixture.source_view("git").freshness, Freshness::Fresh);
    fixture.refresher().wait_for_pending_lists(Duration::from_secs(60)).await;
    assert_eq!(fixture.sources().get(&id("git")).unwrap().instructions.as_deref(), Some("Use it."));
    assert_eq!(fixture.source_view("git").freshness, Freshness::Stale);
}

/// The disk fills up between the response of the source and the write.
#[tokio::test(start_paused = true)]
async fn a_disk_that_fills_up_during_a_discovery_keeps_the_old_list() {
    let git = ScriptedSource::new(["push"]);
    let (fixture, disk) = open_failing(&git).await;
    list_tools(&fixture).await;
    git.set_tools(["pull"]);
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("the discovery started", || git.discoveries() == 2).await;
    disk.full.store(true, Ordering::SeqCst);
    git.resume();
    assert_eq!(running.await.unwrap().error.unwrap().code, Code::StoreUnavailable);
    assert_eq!(cached_tools(&fixture), ["git__push"]);
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(fixture.store().verify().await.unwrap().faults, Vec::<String>::new());
}

/// Regression: a recorded refresh was reported as failed because its lease could not be released.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_released_does_not_fail_the_refresh() {
    let git = ScriptedSource::new(["push"]);
    let (fixture, disk) = open_failing(&git).await;
    disk.release_fails.store(true, Ordering::SeqCst);
    let outcome = force_refresh(&fixture, "git").await;
    assert_eq!((outcome.status, outcome.added), (RefreshStatus::Success, vec!["git__push".to_owned()]));
}

/// Regression: the lease was not renewed while its holder waited for its turn to read the journal, and another node
/// contacted the source too.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_its_holder_catches_up() {
    let git = ScriptedSource::new(["push"]);
    let (fixture, disk) = open_failing(&git).await;
    disk.records_hang.store(true, Ordering::SeqCst);
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { refresh(&registry, "git").await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lease = disk.acquire_lease(&id("git"), "other", Duration::from_secs(10)).await.unwrap();
    assert!(matches!(lease, Lease::HeldFor(_)), "{lease:?}");
    disk.records_hang.store(false, Ordering::SeqCst);
    assert_eq!(running.await.unwrap().status, RefreshStatus::Success);
    assert_eq!(git.discoveries(), 1);
}

#[tokio::test]
async fn a_locked_store_is_reported_and_still_readable() {
    let home = tempfile::tempdir().unwrap();
    let registry = crate::support::open_at(home.path(), json!({"s": crate::support::scripted_source(&[])})).await;
    assert_eq!(list_tools(&registry).await.len(), 3);
    // Another process locks the file for longer than the busy timeout.
    let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\nsys.stdin.read()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(home.path().join("toolcrib.db"));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut locker) = command.spawn() else {
        return toolcrib_testkit::programs::skip(
            "store_failures::a_locked_store_is_reported_and_still_readable",
            "`python3` is not installed",
        );
    };
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(locker.stdout.as_mut().unwrap()), &mut line).unwrap();
    assert_eq!(line, "locked\n");
    let outcome = force_refresh(&registry, "s").await;
    let error = outcome.error.unwrap();
    assert_eq!((outcome.status, error.code), (RefreshStatus::Failed, Code::StoreUnavailable), "{}", error.message);
    assert!(error.message.contains("is locked by another process; try again"), "{}", error.message);
    assert_eq!(cached_tools(&registry).len(), 3);
    assert_eq!(output_text(&call(&registry, "s__echo", json!({"text": "on"})).await.unwrap()), "on");
    drop(locker.stdin.take());
    locker.wait().unwrap();
    assert_eq!(force_refresh(&registry, "s").await.status, RefreshStatus::Unchanged);
    registry.close().await;
}

/// Records that the store lost are skipped, and those in memory are returned.
#[tokio::test]
async fn a_lost_journal_is_read_from_memory_to_its_end() {
    let store = Arc::new(FailingStore::default());
    let actor = Actor::new("test");
    let events: Vec<Event> = (0..15_000).map(|_| Event::SourceEnabled { source: id("mail") }).collect();
    store
        .commit(Commit {
            expected_head: 0,
            first_seq: 1,
            at: Timestamp(1),
            actor: &actor,
            events: &events,
            measurement: None,
        })
        .await
        .unwrap();
    let options = RegistryOptions { store: Some(store.clone()), ..RegistryOptions::default() };
    let registry = Registry::open(Config::default(), options).await.unwrap();
    assert_eq!(registry.history().records(&HistoryQuery::after(0)).await.unwrap().len(), 15_000);
    store.journal_empty.store(true, Ordering::SeqCst);
    let records = registry.history().records(&HistoryQuery::after(0)).await.unwrap();
    assert_eq!(
        (records.first().map(|record| record.seq), records.last().map(|record| record.seq)),
        (Some(5_001), Some(15_000))
    );
    assert_eq!(registry.history().page(&HistoryQuery::after(0)).await.unwrap().next_after, None);
    registry.close().await;
}

#[tokio::test]
async fn a_declaration_that_was_written_though_the_store_failed_keeps_its_definition() {
    let store = Arc::new(FailingStore::default());
    let open = || {
        let options = RegistryOptions { store: Some(store.clone()), ..RegistryOptions::default() };
        Registry::open(Config::default(), options)
    };
    let declared = |title: &str| {
        let yaml = format!("sources: {{ away: {{ url: 'http://127.0.0.1:1', title: {title} }} }}");
        let mut config = Config::read(&yaml, "toolcrib.yaml", std::path::Path::new("/")).unwrap();
        config.sources.remove(0).source.unwrap()
    };
    let registry = open().await.unwrap();
    registry.sources().declare_lazily(&declared("First"), Actor::new("test")).await.unwrap();
    store.commit_is_ambiguous.store(true, Ordering::SeqCst);
    let error = registry.sources().declare_lazily(&declared("Second"), Actor::new("test")).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    store.commit_is_ambiguous.store(false, Ordering::SeqCst);
    let other = open().await.unwrap();
    let declaration = other.sources().declaration(&id("away")).unwrap();
    assert_eq!(declaration.settings.title.as_deref(), Some("Second"));
}
