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
use toolcrib::core::manifest::Packed;
use toolcrib::core::{Error, Result, Timestamp};
use toolcrib::refresh::Refreshed;
use toolcrib::registry::Wanted;
use toolcrib::store::{
    CallCount, Check, Commit, Committed, Lease, MemoryStore, NeedCount, Standing, Store, StoreState, StoredRecord,
};
use toolcrib::testkit::Scripted;
use toolcrib::{Code, Options, Registry, Source, SourceId};

use crate::support::{Bench, agent, cached, call, force, id, open_with, text, tools, until};

/// A store on a disk that fills up: it can be read, and written only while there is room.
#[derive(Debug, Default)]
struct Full {
    store: MemoryStore,
    full: AtomicBool,
    /// Only a lease cannot be given back.
    sticky: AtomicBool,
    /// The journal cannot be read.
    mute: AtomicBool,
    /// The journal is gone.
    emptied: AtomicBool,
    /// Lists are never done being written.
    stuck: AtomicBool,
}

impl Full {
    fn room(&self) -> Result<()> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(Error::new(Code::StoreUnavailable, "the disk is full")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Full {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        if self.mute.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the journal cannot be read"));
        }
        match self.emptied.load(Ordering::SeqCst) {
            true => Ok(Vec::new()),
            false => self.store.records(after, limit).await,
        }
    }
    async fn commit(&self, commit: Commit<'_>) -> Result<Committed> {
        self.room()?;
        self.store.commit(commit).await
    }
    async fn put_manifest(&self, manifest: &Packed) -> Result<()> {
        if self.stuck.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.room()?;
        self.store.put_manifest(manifest).await
    }
    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<Packed>> {
        self.store.manifests(wanted).await
    }
    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        self.room()?;
        self.store.put_definition(name, definition).await
    }
    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        self.store.definitions(wanted).await
    }
    async fn forget_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()> {
        self.store.forget_definitions(source, but).await
    }
    async fn standings(&self) -> Result<BTreeMap<SourceId, Standing>> {
        self.store.standings().await
    }
    async fn checks(&self, source: &SourceId) -> Result<Vec<Check>> {
        self.store.checks(source).await
    }
    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        self.room()?;
        self.store.invalidate(source).await
    }
    async fn forget(&self, source: &SourceId) -> Result<()> {
        self.room()?;
        self.store.forget(source).await
    }
    async fn lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        self.room()?;
        self.store.lease(source, holder, duration).await
    }
    async fn release(&self, source: &SourceId, holder: &str) -> Result<()> {
        self.room()?;
        if self.sticky.load(Ordering::SeqCst) {
            return Err(Error::new(Code::StoreUnavailable, "the store is locked by another process"));
        }
        self.store.release(source, holder).await
    }
    async fn count(&self, calls: &[CallCount], needs: &[NeedCount]) -> Result<()> {
        self.room()?;
        self.store.count(calls, needs).await
    }
    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        self.store.call_counts().await
    }
    async fn need_counts(&self) -> Result<Vec<NeedCount>> {
        self.store.need_counts().await
    }
    async fn key(&self) -> Result<[u8; 32]> {
        self.store.key().await
    }
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        self.store.check_integrity(limit).await
    }
    async fn pulse(&self) -> Result<u64> {
        self.store.pulse().await
    }
    async fn close(&self) {}
}

async fn open(git: &Arc<Scripted>) -> (Bench, Arc<Full>) {
    let full = Arc::new(Full::default());
    let store: Arc<dyn Store> = full.clone();
    let yaml = "sources: { git: { command: x } }";
    let bench = open_with(yaml, &[("git", git)], |options| Options { store: Some(store.clone()), ..options }).await;
    (Bench { store, ..bench }, full)
}

#[tokio::test(start_paused = true)]
async fn a_registry_is_ready_while_its_store_answers() {
    let (bench, disk) = open(&Scripted::new(["push"])).await;
    tools(&bench).await;
    assert!(bench.ready().is_ok());
    disk.full.store(true, Ordering::SeqCst);
    call(&bench, "git__push", json!({})).await.unwrap();
    until("it is told", || bench.store_health().state == StoreState::Down).await;
    assert!(bench.ready().is_ok(), "calls go on");
    disk.full.store(false, Ordering::SeqCst);
    until("all is well", || bench.store_health().state == StoreState::Ok).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_a_refresh_and_nothing_else() {
    let git = Scripted::new(["push"]);
    let (bench, disk) = open(&git).await;
    tools(&bench).await;
    git.offer(["pull", "push"]);
    disk.full.store(true, Ordering::SeqCst);
    let outcome = force(&bench, "git").await;
    let error = outcome.error.unwrap();
    assert_eq!(
        (outcome.status, error.code, error.message.as_str()),
        (Refreshed::Failed, Code::StoreUnavailable, "the disk is full")
    );
    assert_eq!(tools(&bench).await, ["git__push"], "reads go on");
    assert_eq!(text(&call(&bench, "git__push", json!({})).await.unwrap()), "push {}", "and calls");
    let error = bench.execute(Command::Disable(id("git")), Actor::new("somebody")).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert_eq!(cached(&bench), ["git__push"]);
    assert_eq!(bench.stats().calls, 1, "and numbers");

    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(force(&bench, "git").await.added, ["git__pull"]);
    assert_eq!(bench.stats().calls, 1, "what was counted meanwhile is kept");
}

#[tokio::test(start_paused = true)]
async fn what_is_recent_of_the_journal_is_read_without_the_store() {
    let (bench, disk) = open(&Scripted::new(["push"])).await;
    tools(&bench).await;
    disk.mute.store(true, Ordering::SeqCst);
    let records = bench.history(&Wanted::after(0)).await.unwrap();
    assert_eq!(records.last().unwrap().text, "1 tool added to `git`: push");
    let last = Wanted { limit: Some(1), tool: Some("git__push".into()), ..Wanted::default() };
    assert_eq!(bench.history(&last).await.unwrap()[0].seq, records.len() as u64);
    assert_eq!(bench.history(&Wanted::after(records.len() as u64)).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn who_wants_tokens_counted_does_not_wait_for_the_store() {
    let (bench, disk) = open(&Scripted::new(["push"])).await;
    tools(&bench).await;
    disk.stuck.store(true, Ordering::SeqCst);
    tokio::time::timeout(Duration::from_secs(1), bench.count_tokens()).await.unwrap();
    assert!(bench.view(&agent()).tokens_full() > 0);
    assert!(bench.catalog().parts().all(|part| part.segment.is_counted()));
}

/// The disk fills up between asking a source and writing down what it said.
#[tokio::test(start_paused = true)]
async fn a_disk_that_fills_up_during_a_discovery_leaves_the_old_list() {
    let git = Scripted::new(["push"]);
    let (bench, disk) = open(&git).await;
    tools(&bench).await;
    git.offer(["pull"]);
    git.hold();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force(&registry, "git").await });
    until("it is asked", || git.discoveries() == 2).await;
    disk.full.store(true, Ordering::SeqCst);
    git.release();
    assert_eq!(running.await.unwrap().error.unwrap().code, Code::StoreUnavailable);
    assert_eq!(cached(&bench), ["git__push"]);
    disk.full.store(false, Ordering::SeqCst);
    assert_eq!(bench.verify().await.unwrap().faults, Vec::<String>::new());
}

/// What was recorded was reported as failed because the lease could not be given back.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_given_back_spoils_no_refresh() {
    let git = Scripted::new(["push"]);
    let (bench, disk) = open(&git).await;
    disk.sticky.store(true, Ordering::SeqCst);
    let outcome = force(&bench, "git").await;
    assert_eq!((outcome.status, outcome.added), (Refreshed::Success, vec!["git__push".to_owned()]));
}

#[tokio::test]
async fn a_locked_store_says_so_and_is_read_on() {
    let home = tempfile::tempdir().unwrap();
    let registry = crate::support::open_at(home.path(), json!({"s": crate::support::scripted(&[])})).await;
    assert_eq!(tools(&registry).await.len(), 3);
    // Another process holds the file for longer than anybody waits.
    let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\nsys.stdin.read()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(home.path().join("toolcrib.db"));
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut locker) = command.spawn() else {
        return toolcrib_testkit::rig::skip("trouble::a_locked_store", "`python3` is not there");
    };
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(locker.stdout.as_mut().unwrap()), &mut said).unwrap();
    assert_eq!(said, "locked\n");
    let outcome = force(&registry, "s").await;
    let error = outcome.error.unwrap();
    assert_eq!((outcome.status, error.code), (Refreshed::Failed, Code::StoreUnavailable), "{}", error.message);
    assert!(error.message.contains("is locked by another process; try again"), "{}", error.message);
    assert_eq!(cached(&registry).len(), 3);
    assert_eq!(text(&call(&registry, "s__echo", json!({"text": "on"})).await.unwrap()), "on");
    drop(locker.stdin.take());
    locker.wait().unwrap();
    assert_eq!(force(&registry, "s").await.status, Refreshed::Unchanged);
    registry.close().await;
}

/// What the store has lost is passed over, and what memory has kept is told.
#[tokio::test]
async fn a_journal_that_was_lost_is_read_to_its_end() {
    let (store, actor) = (Arc::new(Full::default()), Actor::new("test"));
    let events: Vec<Event> = (0..15_000).map(|_| Event::SourceEnabled { source: id("mail") }).collect();
    store
        .commit(Commit { expected: 0, first: 1, at: Timestamp(1), actor: &actor, events: &events, check: None })
        .await
        .unwrap();
    let options = Options { store: Some(store.clone()), ..Options::default() };
    let registry = Registry::open(Config::default(), options).await.unwrap();
    assert_eq!(registry.history(&Wanted::after(0)).await.unwrap().len(), 15_000);
    store.emptied.store(true, Ordering::SeqCst);
    let kept = registry.history(&Wanted::after(0)).await.unwrap();
    assert_eq!(
        (kept.first().map(|record| record.seq), kept.last().map(|record| record.seq)),
        (Some(5_001), Some(15_000))
    );
    assert_eq!(registry.history_page(&Wanted::after(0)).await.unwrap().next_after, None);
    registry.close().await;
}
