//! Trouble with the store: a clear `STORE_UNAVAILABLE`, and reads go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use toolcrib::core::config::Config;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Command, Event};
use toolcrib::core::manifest::PackedManifest;
use toolcrib::core::{Error, Result, Timestamp};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::HistoryQuery;
use toolcrib::store::{
    CacheCount, CallCount, Commit, CommitOutcome, DiscoveryCheck, Lease, MemoryStore, SourceStatus, Store, StoreState,
    StoredRecord,
};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Code, Registry, RegistryOptions, Source, SourceId};

use crate::support::{
    TestRegistry, agent, cached_tools, call, force_refresh, id, list_tools, open_with, output_text, wait_until,
};

/// A store on a disk that fills up: it can be read, and written only while there is room.
#[derive(Debug, Default)]
struct FailingStore {
    store: MemoryStore,
    full: AtomicBool,
    /// Only a lease cannot be given back.
    release_fails: AtomicBool,
    /// The journal cannot be read.
    records_fail: AtomicBool,
    /// The journal is gone.
    journal_empty: AtomicBool,
    /// Lists are never done being written.
    manifests_hang: AtomicBool,
}

impl FailingStore {
    fn check_space(&self) -> Result<()> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(Error::new(Code::StoreUnavailable, "the disk is full")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for FailingStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        if self.records_fail.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the journal cannot be read"));
        }
        match self.journal_empty.load(Ordering::SeqCst) {
            true => Ok(Vec::new()),
            false => self.store.records(after, limit).await,
        }
    }
    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        self.check_space()?;
        self.store.commit(commit).await
    }
    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()> {
        if self.manifests_hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.check_space()?;
        self.store.put_manifest(manifest).await
    }
    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        self.store.manifests(wanted).await
    }
    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        self.check_space()?;
        self.store.put_definition(name, definition).await
    }
    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        self.store.definitions(wanted).await
    }
    async fn remove_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()> {
        self.store.remove_definitions(source, but).await
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
    async fn remove_source_status(&self, source: &SourceId) -> Result<()> {
        self.check_space()?;
        self.store.remove_source_status(source).await
    }
    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        self.check_space()?;
        self.store.acquire_lease(source, holder, duration).await
    }
    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        self.check_space()?;
        if self.release_fails.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the store is locked by another process"));
        }
        self.store.release_lease(source, holder).await
    }
    async fn add_counts(&self, calls: &[CallCount], needs: &[CacheCount]) -> Result<()> {
        self.check_space()?;
        self.store.add_counts(calls, needs).await
    }
    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        self.store.call_counts().await
    }
    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        self.store.cache_counts().await
    }
    async fn key(&self) -> Result<[u8; 32]> {
        self.store.key().await
    }
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        self.store.check_integrity(limit).await
    }
    async fn change_counter(&self) -> Result<u64> {
        self.store.change_counter().await
    }
    async fn close(&self) {}
}

async fn open_failing(git: &Arc<ScriptedSource>) -> (TestRegistry, Arc<FailingStore>) {
    let full = Arc::new(FailingStore::default());
    let store: Arc<dyn Store> = full.clone();
    let yaml = "sources: { git: { command: x } }";
    let bench =
        open_with(yaml, &[("git", git)], |options| RegistryOptions { store: Some(store.clone()), ..options }).await;
    (TestRegistry { store, ..bench }, full)
}

#[tokio::test(start_paused = true)]
async fn a_registry_is_ready_while_its_store_answers() {
    let (bench, disk) = open_failing(&ScriptedSource::new(["push"])).await;
    list_tools(&bench).await;
    assert!(bench.check_ready().is_ok());
    disk.full.store(true, Ordering::SeqCst);
    call(&bench, "git__push", json!({})).await.unwrap();
    wait_until("it is told", || bench.store_health().state == StoreState::Down).await;
    assert!(bench.check_ready().is_ok(), "calls go on");
    disk.full.store(false, Ordering::SeqCst);
    wait_until("all is well", || bench.store_health().state == StoreState::Ok).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_a_refresh_and_nothing_else() {
    let git = ScriptedSource::new(["push"]);
    let (bench, disk) = open_failing(&git).await;
    list_tools(&bench).await;
    git.set_tools(["pull", "push"]);
    disk.full.store(true, Ordering::SeqCst);
    let outcome = force_refresh(&bench, "git").await;
    let error = outcome.error.unwrap();
    assert_eq!(
        (outcome.status, error.code, error.message.as_str()),
        (RefreshStatus::Failed, Code::StoreUnavailable, "the disk is full")
    );
    assert_eq!(list_tools(&bench).await, ["git__push"], "reads go on");
    assert_eq!(output_text(&call(&bench, "git__push", json!({})).await.unwrap()), "push {}", "and calls");
    let error = bench.execute(Command::Disable(id("git")), Actor::new("somebody")).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert_eq!(cached_tools(&bench), ["git__push"]);
    assert_eq!(bench.stats().calls, 1, "and numbers");

    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(force_refresh(&bench, "git").await.added, ["git__pull"]);
    assert_eq!(bench.stats().calls, 1, "what was counted meanwhile is kept");
}

#[tokio::test(start_paused = true)]
async fn what_is_recent_of_the_journal_is_read_without_the_store() {
    let (bench, disk) = open_failing(&ScriptedSource::new(["push"])).await;
    list_tools(&bench).await;
    disk.records_fail.store(true, Ordering::SeqCst);
    let records = bench.history(&HistoryQuery::after(0)).await.unwrap();
    assert_eq!(records.last().unwrap().text, "1 tool added to `git`: push");
    let last = HistoryQuery { limit: Some(1), tool: Some("git__push".into()), ..HistoryQuery::default() };
    assert_eq!(bench.history(&last).await.unwrap()[0].seq, records.len() as u64);
    assert_eq!(bench.history(&HistoryQuery::after(records.len() as u64)).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn who_wants_tokens_counted_does_not_wait_for_the_store() {
    let (bench, disk) = open_failing(&ScriptedSource::new(["push"])).await;
    list_tools(&bench).await;
    disk.manifests_hang.store(true, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(1), bench.count_tokens()).await.unwrap();
    assert!(bench.view(&agent()).full_token_count() > 0);
    assert!(bench.catalog().sources().all(|part| part.segment.has_token_counts()));
}

/// The disk fills up between asking a source and writing down what it said.
#[tokio::test(start_paused = true)]
async fn a_disk_that_fills_up_during_a_discovery_leaves_the_old_list() {
    let git = ScriptedSource::new(["push"]);
    let (bench, disk) = open_failing(&git).await;
    list_tools(&bench).await;
    git.set_tools(["pull"]);
    git.pause();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("it is asked", || git.discoveries() == 2).await;
    disk.full.store(true, Ordering::SeqCst);
    git.resume();
    assert_eq!(running.await.unwrap().error.unwrap().code, Code::StoreUnavailable);
    assert_eq!(cached_tools(&bench), ["git__push"]);
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(bench.verify().await.unwrap().faults, Vec::<String>::new());
}

/// What was recorded was reported as failed because the lease could not be given back.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_given_back_spoils_no_refresh() {
    let git = ScriptedSource::new(["push"]);
    let (bench, disk) = open_failing(&git).await;
    disk.release_fails.store(true, Ordering::SeqCst);
    let outcome = force_refresh(&bench, "git").await;
    assert_eq!((outcome.status, outcome.added), (RefreshStatus::Success, vec!["git__push".to_owned()]));
}

#[tokio::test]
async fn a_locked_store_says_so_and_is_read_on() {
    let home = tempfile::tempdir().unwrap();
    let registry = crate::support::open_at(home.path(), json!({"s": crate::support::scripted_source(&[])})).await;
    assert_eq!(list_tools(&registry).await.len(), 3);
    // Another process holds the file for longer than anybody waits.
    let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\nsys.stdin.read()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(home.path().join("toolcrib.db"));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut locker) = command.spawn() else {
        return toolcrib_testkit::programs::skip("trouble::a_locked_store", "`python3` is not there");
    };
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(locker.stdout.as_mut().unwrap()), &mut said).unwrap();
    assert_eq!(said, "locked\n");
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

/// What the store has lost is passed over, and what memory has kept is told.
#[tokio::test]
async fn a_journal_that_was_lost_is_read_to_its_end() {
    let (store, actor) = (Arc::new(FailingStore::default()), Actor::new("test"));
    let events: Vec<Event> = (0..15_000).map(|_| Event::SourceEnabled { source: id("mail") }).collect();
    store
        .commit(Commit {
            expected_head: 0,
            first_seq: 1,
            at: Timestamp(1),
            actor: &actor,
            events: &events,
            check: None,
        })
        .await
        .unwrap();
    let options = RegistryOptions { store: Some(store.clone()), ..RegistryOptions::default() };
    let registry = Registry::open(Config::default(), options).await.unwrap();
    assert_eq!(registry.history(&HistoryQuery::after(0)).await.unwrap().len(), 15_000);
    store.journal_empty.store(true, Ordering::SeqCst);
    let kept = registry.history(&HistoryQuery::after(0)).await.unwrap();
    assert_eq!(
        (kept.first().map(|record| record.seq), kept.last().map(|record| record.seq)),
        (Some(5_001), Some(15_000))
    );
    assert_eq!(registry.history_page(&HistoryQuery::after(0)).await.unwrap().next_after, None);
    registry.close().await;
}
