//! Copies of whole stores: exact, verified, continued after an interruption.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tempfile::TempDir;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::Event;
use toolcrib::core::{Code, Timestamp};
use toolcrib::store::{
    self, Commit, CommitOutcome, CopyProgress, CopyReport, CopyRun, MemoryStore, OpenedStore, PostgresStore,
    SqliteStore, Store, StoreAdministration, StoredRecord,
};
use toolcrib_testkit::postgres::{run_sql, shared_database};
use toolcrib_testkit::programs;

use super::{
    AT, PUSH, TestStore, actor, append, check, commit_check, definition, id, manifest, record, status_started_at,
};

/// A store in memory with something of everything.
async fn full_store() -> OpenedStore {
    let store = MemoryStore::new();
    let name = Fingerprint::digest("1");
    let manifest = manifest("files", &[PUSH]);
    store.put_definition(name, &definition("npx")).await.unwrap();
    store.put_manifest(&manifest).await.unwrap();
    let events = [
        serde_json::json!({"type": "SourceDeclared", "source": "files", "kind": "mcp", "origin": "config",
            "definition": name, "enabled": null}),
        serde_json::json!({"type": "InventoryRecorded", "source": "files", "fingerprint": manifest.fingerprint,
            "added": ["push"], "changed": [], "removed": []}),
    ]
    .map(|event| serde_json::from_value::<Event>(event).unwrap());
    let commit = Commit { expected_head: 0, first_seq: 1, at: AT, actor: &actor(), events: &events, measurement: None };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
    commit_check(&store, 2, check("files", 5), status_started_at(5)).await;
    commit_check(&store, 2, check("files", 9), status_started_at(9)).await;
    // A lease is no measurement.
    store.acquire_lease(&id("new"), "one", Duration::from_secs(60)).await.unwrap();
    OpenedStore { store: Arc::new(store), head: None }
}

async fn copy(from: &OpenedStore, to: &dyn Store) -> toolcrib::Result<CopyReport> {
    store::copy_store(from, to, &|_| {}).await
}

async fn open_target(directory: &TempDir) -> SqliteStore {
    SqliteStore::open_copy_target(directory.path().join("toolcrib.db")).await.unwrap()
}

#[tokio::test]
async fn a_copy_has_everything_and_is_verified() {
    let from = full_store().await;
    let directory = TempDir::new().unwrap();
    let target = open_target(&directory).await;
    let report = copy(&from, &target).await.unwrap();
    assert_eq!((report.records, report.position, report.manifests, report.definitions), (2, 2, 1, 1));
    assert_eq!((report.features, report.missing, report.verified), (0, 0, true));
    target.close().await;

    // Back into memory, from the file.
    let from = store::open_existing(directory.path().to_str().unwrap()).await.unwrap();
    let back = MemoryStore::new();
    assert_eq!(copy(&from, &back).await.unwrap(), report);
    assert_eq!(back.checks(&id("files")).await.unwrap(), [check("files", 9), check("files", 5)]);
    assert_eq!(back.source_statuses().await.unwrap().keys().cloned().collect::<Vec<_>>(), [id("files")]);
    assert_eq!(back.key().await.unwrap(), from.store.key().await.unwrap());
    assert_eq!(back.records(0, 10).await.unwrap(), from.store.records(0, 10).await.unwrap());
}

#[tokio::test]
async fn a_target_with_other_records_is_refused() {
    let from = full_store().await;
    let target = MemoryStore::new();
    append(&target, 0, &["a"]).await;
    assert_eq!(copy(&from, &target).await.unwrap_err().code, Code::Conflict);
    assert_eq!(target.records(0, 10).await.unwrap(), [record(1, "a")]);

    // An unfinished copy of the same store with other records, such as of a backup that was restored since.
    let target = MemoryStore::new();
    let run = CopyRun::new();
    target.administration().begin_copy(from.store.key().await.unwrap(), run).await.unwrap();
    target.administration().restore_records(run, 0, &[record(1, "a")]).await.unwrap();
    assert_eq!(copy(&from, &target).await.unwrap_err().code, Code::Conflict);
}

#[tokio::test]
async fn a_damaged_source_is_refused_before_the_target_is_touched() {
    let from = full_store().await;
    let damaged = MemoryStore::new();
    let run = CopyRun::new();
    damaged.administration().begin_copy([1; 32], run).await.unwrap();
    damaged.administration().restore_records(run, 0, &[record(1, "a"), record(3, "b")]).await.unwrap();
    let damaged = OpenedStore { store: Arc::new(damaged), head: None };
    let target = MemoryStore::new();
    let error = copy(&damaged, &target).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert!(error.message.contains("record 2 is missing") && error.message.contains("toolcrib verify"), "{error}");
    copy(&from, &target).await.unwrap();
}

/// Regression: a store was compared with itself, and reported as its own verified copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_under_another_name_is_no_copy_of_itself() {
    let Some(url) = shared_database() else {
        return programs::skip("a_database_under_another_name_is_no_copy_of_itself", "PostgreSQL is not installed");
    };
    let original = OpenedStore { store: Arc::new(PostgresStore::open_copy_target(&url).await.unwrap()), head: None };
    copy(&full_store().await, &*original.store).await.unwrap();
    // With the mark of a finished copy and without.
    for _ in 0..2 {
        let alias = format!("{url}?options=-c%20search_path%3Dpublic");
        assert!(!store::is_same_location(&url, &alias).unwrap(), "the names tell nothing");
        let alias = PostgresStore::open_copy_target(&alias).await.unwrap();
        assert_eq!(copy(&original, &alias).await.unwrap_err().code, Code::Conflict);
        run_sql(&url, "DELETE FROM meta WHERE key = 'copied'");
    }
    // A copy that is finished is only compared.
    let target = TestStore::postgres().unwrap();
    let target = target.open_copy_target().await;
    let report = copy(&original, &*target).await.unwrap();
    assert_eq!(copy(&original, &*target).await.unwrap(), report);
}

#[tokio::test]
async fn a_file_under_another_name_is_no_copy_of_itself() {
    let directory = TempDir::new().unwrap();
    let target = open_target(&directory).await;
    copy(&full_store().await, &target).await.unwrap();
    target.close().await;
    let path = directory.path().join("toolcrib.db");
    let alias = directory.path().join("alias.db");
    std::fs::hard_link(&path, &alias).unwrap();
    let original = store::open_existing(&format!("sqlite:{}", path.display())).await.unwrap();
    // The lock belongs to the file, whatever its name.
    let error = SqliteStore::open_copy_target(&alias).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    assert!(error.message.ends_with("is in use by another process; stop it first"), "{}", error.message);
    original.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_written_during_the_copy_are_left_out() {
    let from = full_store().await;
    let target = MemoryStore::new();
    let appended = AtomicU64::new(0);
    let append = |progress| {
        if !matches!(progress, CopyProgress::Reading(_)) {
            let head = 2 + appended.fetch_add(1, Ordering::Relaxed);
            block_on(append(&*from.store, head, &["push"]));
        }
    };
    let report = store::copy_store(&from, &target, &append).await.unwrap();
    assert!(appended.load(Ordering::Relaxed) >= 3, "while records, content and checks are copied");
    assert_eq!((report.records, target.records(0, 10).await.unwrap().len()), (2, 2));
    assert_eq!(from.store.records(0, 100).await.unwrap().len() as u64, 2 + appended.load(Ordering::Relaxed));
}

/// Regression: the definitions were read long after the records that name them, and had been removed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_change_during_the_copy_are_not_lost() {
    let from = full_store().await;
    let target = MemoryStore::new();
    let changes = AtomicU64::new(0);
    let name = |change: u64| Fingerprint::digest(format!("definition {change}"));
    let change = |progress| {
        let change = changes.load(Ordering::Relaxed);
        // The reading ends when nothing changes any more.
        if change < 6 || !matches!(progress, CopyProgress::Reading(_)) {
            block_on(change_definition(&*from.store, 2 + change, name(change)));
            changes.fetch_add(1, Ordering::Relaxed);
        }
    };
    let report = store::copy_store(&from, &target, &change).await.unwrap();
    assert_eq!((report.definitions, report.missing), (1, 0));
    let copied = report.records - 2;
    assert!(copied >= 6 && changes.load(Ordering::Relaxed) > copied, "{report:?}");
    let last = name(copied - 1);
    assert_eq!(target.definitions(&[last]).await.unwrap().len(), 1);
    assert_eq!(from.store.definitions(&[last]).await.unwrap().len(), 0, "the source has a later one by now");
}

/// Declares the source `files` anew and removes its other definitions, like a registry.
async fn change_definition(store: &dyn Store, head: u64, name: Fingerprint) {
    store.put_definition(name, &definition("npx")).await.unwrap();
    let event = serde_json::json!({"type": "SourceChanged", "source": "files", "kind": "mcp", "origin": "config",
        "definition": name, "enabled": null});
    let events = [serde_json::from_value::<Event>(event).unwrap()];
    let actor = actor();
    let commit =
        Commit { expected_head: head, first_seq: head + 1, at: AT, actor: &actor, events: &events, measurement: None };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
    assert!(store.remove_definitions(&id("files"), Some(name), head + 1).await.unwrap());
}

/// Regression: an entry of an earlier store in the head file made the copy look damaged.
#[tokio::test]
async fn the_head_file_of_an_earlier_store_is_updated() {
    let directory = TempDir::new().unwrap();
    let data = TempDir::new().unwrap();
    let location = directory.path().to_str().unwrap();
    let path = directory.path().canonicalize().unwrap().join("toolcrib.db");
    let target = open_target(&directory).await;
    let report = copy(&full_store().await, &target).await.unwrap();
    target.close().await;
    let heads = [(directory.path(), "default".to_owned()), (data.path(), format!("sqlite:{}", path.display()))];
    store::remember_copy(location, Some(data.path()), &report).await.unwrap();
    for (directory, key) in &heads {
        assert!(!directory.join("head").exists(), "without such an entry nothing is written");
        let entry = serde_json::json!({ key: { "seq": 42, "checksum": "0" }, "other": { "seq": 7, "checksum": "1" } });
        std::fs::write(directory.join("head"), entry.to_string()).unwrap();
    }
    store::remember_copy(location, Some(data.path()), &report).await.unwrap();
    for (directory, key) in &heads {
        let text = std::fs::read_to_string(directory.join("head")).unwrap();
        let head: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&head[key]["seq"], &head["other"]["seq"]), (&2.into(), &7.into()), "{text}");
    }
}

/// Runs a future to its end in a callback that is not async.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// Number of records of a large copy.
const RECORDS: u64 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_records_are_copied_exactly_despite_interruptions() {
    let source = large_store().await;
    assert_copied_despite_interruptions(&source, &TestStore::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_records_are_copied_to_postgresql_and_back_despite_interruptions() {
    let Some(database) = TestStore::postgres() else {
        let name = "a_hundred_thousand_records_are_copied_to_postgresql_and_back_despite_interruptions";
        return programs::skip(name, "PostgreSQL is not installed");
    };
    let source = large_store().await;
    assert_copied_despite_interruptions(&source, &database).await;
    let copied = OpenedStore { store: database.open().await, head: None };
    assert_copied_despite_interruptions(&copied, &TestStore::sqlite()).await;
}

/// A store in memory with something of everything, and with many records, whose times differ.
async fn large_store() -> OpenedStore {
    let full = full_store().await.store;
    let store = MemoryStore::new();
    let run = CopyRun::new();
    store.begin_copy(full.key().await.unwrap(), run).await.unwrap();
    store.put_definition(Fingerprint::digest("1"), &definition("npx")).await.unwrap();
    store.put_manifest(&manifest("files", &[PUSH])).await.unwrap();
    let template = record(1, "push");
    let numbered = |seq: u64| {
        let record = StoredRecord { seq, at: Timestamp(seq.cast_signed()), ..template.clone() };
        StoredRecord { checksum: Some(record.compute_checksum()), ..record }
    };
    let first = full.records(0, 10).await.unwrap();
    let records: Vec<StoredRecord> = first.into_iter().chain((3..=RECORDS).map(numbered)).collect();
    store.restore_records(run, 0, &records).await.unwrap();
    store.restore_measurements(run, &super::administration::measurements()).await.unwrap();
    store.finish_copy(run).await.unwrap();
    OpenedStore { store: Arc::new(store), head: None }
}

/// Copies with attempts that end in each phase; each one continues what the one before has left.
async fn assert_copied_despite_interruptions(source: &OpenedStore, target: &TestStore) {
    let stop_at = rand::random_range(0..RECORDS / 2);
    let phases: [&(dyn Fn(CopyProgress) -> bool + Send + Sync); 5] = [
        &|progress| matches!(progress, CopyProgress::Reading(records) if records >= stop_at),
        &|progress| matches!(progress, CopyProgress::Copying(seq, _) if seq >= stop_at),
        &|progress| matches!(progress, CopyProgress::Copying(seq, _) if seq > RECORDS / 2),
        &|progress| matches!(progress, CopyProgress::CopyingContent),
        &|progress| matches!(progress, CopyProgress::Comparing(seq, _) if seq >= stop_at),
    ];
    for (number, is_end) in phases.into_iter().enumerate() {
        let store = target.open_copy_target().await;
        // Drops everything at exactly this point.
        let progress = |progress| assert!(!is_end(progress), "interrupted");
        let copying = AssertUnwindSafe(store::copy_store(source, &*store, &progress)).catch_unwind().await;
        assert!(copying.is_err(), "attempt {number} was not interrupted");
        store.close().await;
        if number > 0
            && let Some(error) = target.open_error().await
        {
            assert!(error.message.contains("is not finished"), "{}", error.message);
        }
    }
    let store = target.open_copy_target().await;
    let report = copy(source, &*store).await.unwrap();
    assert_eq!((report.records, report.manifests, report.definitions, report.verified), (RECORDS, 1, 1, true));
    store.close().await;
    let copied = target.open().await;
    let content = async |store: &Arc<dyn Store>| {
        (
            store.source_statuses().await.unwrap(),
            store.checks(&id("a")).await.unwrap(),
            store.checks(&id("gone")).await.unwrap(),
            store.call_counts().await.unwrap(),
            store.cache_counts().await.unwrap(),
            store.token_uses().await.unwrap(),
            store.definitions(&[Fingerprint::digest("1")]).await.unwrap(),
        )
    };
    assert_eq!(content(&copied).await, content(&source.store).await);
    for after in (0..RECORDS).step_by(10_000) {
        let [copied, expected] = [&copied, &source.store].map(|store| store.records(after, 10_000));
        assert!(copied.await.unwrap() == expected.await.unwrap(), "the records after {after} differ");
    }
}
