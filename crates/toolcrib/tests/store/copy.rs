//! Copies of whole stores: exact, verified, continued after an interruption.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use toolcrib::core::inventory::Event;
use toolcrib::core::{Code, Timestamp};
use toolcrib::store::{
    self, Commit, CommitOutcome, CopyProgress, CopyReport, MemoryStore, OpenedStore, SqliteStore, Store,
    StoreAdministration, StoredRecord,
};
use toolcrib_testkit::programs;

use super::{
    AT, PUSH, TestStore, actor, append, check, commit_check, definition, id, manifest, record, status_started_at,
};

/// A store in memory with something of everything.
async fn full_store() -> OpenedStore {
    let store = MemoryStore::new();
    let name = toolcrib::core::fingerprint::Fingerprint::digest("1");
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
    target.administration().begin_copy(from.store.key().await.unwrap()).await.unwrap();
    target.administration().restore_records(0, &[record(1, "a")]).await.unwrap();
    assert_eq!(copy(&from, &target).await.unwrap_err().code, Code::Conflict);
}

#[tokio::test]
async fn a_damaged_source_is_refused_before_the_target_is_touched() {
    let from = full_store().await;
    let damaged = MemoryStore::new();
    damaged.administration().begin_copy([1; 32]).await.unwrap();
    damaged.administration().restore_records(0, &[record(1, "a"), record(3, "b")]).await.unwrap();
    let damaged = OpenedStore { store: Arc::new(damaged), head: None };
    let target = MemoryStore::new();
    let error = copy(&damaged, &target).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert!(error.message.contains("record 2 is missing") && error.message.contains("toolcrib verify"), "{error}");
    copy(&from, &target).await.unwrap();
}

#[tokio::test]
async fn records_written_during_the_copy_are_left_out() {
    let from = full_store().await;
    let target = MemoryStore::new();
    let store = from.store.clone();
    let write = move |progress| {
        if progress == CopyProgress::CopyingContent {
            let store = store.clone();
            // The callback is not async; the copy goes on meanwhile.
            tokio::spawn(async move { append(&*store, 2, &["push"]).await });
        }
    };
    let report = store::copy_store(&from, &target, &write).await.unwrap();
    assert_eq!((report.records, target.records(0, 10).await.unwrap().len()), (2, 2));
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

/// A store in memory with many records, whose times differ.
async fn large_store() -> OpenedStore {
    let store = MemoryStore::new();
    store.begin_copy([3; 32]).await.unwrap();
    let template = record(1, "push");
    let numbered = |seq: u64| {
        let record = StoredRecord { seq, at: Timestamp(seq.cast_signed()), ..template.clone() };
        StoredRecord { checksum: Some(record.compute_checksum()), ..record }
    };
    let records: Vec<StoredRecord> = (1..=RECORDS).map(numbered).collect();
    store.restore_records(0, &records).await.unwrap();
    store.finish_copy().await.unwrap();
    OpenedStore { store: Arc::new(store), head: None }
}

/// Copies with attempts that are dropped at random records; each one continues what the one before has left.
async fn assert_copied_despite_interruptions(source: &OpenedStore, target: &TestStore) {
    let mut interruptions = 0;
    for _ in 0..3 {
        let store = target.open_copy_target().await;
        let stop_at = rand::random_range(0..RECORDS);
        let (stop, mut stopped) = tokio::sync::mpsc::unbounded_channel();
        let notify = move |progress| {
            if matches!(progress, CopyProgress::Copying(seq, _) if seq >= stop_at) {
                let _ = stop.send(());
            }
        };
        tokio::select! {
            report = store::copy_store(source, &*store, &notify) => assert_eq!(report.unwrap().records, RECORDS),
            _ = stopped.recv() => interruptions += 1,
        }
    }
    assert!(interruptions > 0);
    let store = target.open_copy_target().await;
    let report = copy(source, &*store).await.unwrap();
    assert_eq!((report.records, report.verified), (RECORDS, true));
    store.close().await;
    let copied = target.open().await;
    for after in (0..RECORDS).step_by(10_000) {
        let [copied, expected] = [&copied, &source.store].map(|store| store.records(after, 10_000));
        assert!(copied.await.unwrap() == expected.await.unwrap(), "the records after {after} differ");
    }
}
