//! Copies of whole stores: exact, verified, continued after an interruption.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use toolcrib::core::inventory::Event;
use toolcrib::core::{Code, Timestamp};
use toolcrib::store::{
    self, Commit, CommitOutcome, CopyProgress, CopyReport, MemoryStore, OpenedStore, SqliteStore, Store, StoredRecord,
};

use super::{AT, PUSH, actor, append, check, commit_check, definition, id, manifest, record, status_started_at};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_records_are_copied_exactly_despite_interruptions() {
    const RECORDS: u64 = 100_000;
    let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let source = open_target(&directories[0]).await;
    source.administration().begin_copy([3; 32]).await.unwrap();
    let template = record(1, "push");
    for first in (1..=RECORDS).step_by(10_000) {
        let numbered = |seq| {
            let record = StoredRecord { seq, at: Timestamp(seq.cast_signed()), ..template.clone() };
            StoredRecord { checksum: Some(record.compute_checksum()), ..record }
        };
        let records: Vec<StoredRecord> = (first..first + 10_000).map(numbered).collect();
        source.administration().restore_records(first - 1, &records).await.unwrap();
    }
    source.administration().finish_copy().await.unwrap();
    let source = OpenedStore { store: Arc::new(source), head: None };

    // Each attempt is dropped at a random record, and the next one continues.
    let mut interruptions = 0;
    for _ in 0..3 {
        let target = Arc::new(open_target(&directories[1]).await);
        let stop_at = rand::random_range(0..RECORDS);
        let (stop, mut stopped) = tokio::sync::mpsc::unbounded_channel();
        let notify = move |progress| {
            if matches!(progress, CopyProgress::Copying(seq, _) if seq >= stop_at) {
                let _ = stop.send(());
            }
        };
        tokio::select! {
            report = store::copy_store(&source, &*target, &notify) => assert_eq!(report.unwrap().records, RECORDS),
            _ = stopped.recv() => interruptions += 1,
        }
        drop(target);
    }
    assert!(interruptions > 0);
    let target = open_target(&directories[1]).await;
    let report = copy(&source, &target).await.unwrap();
    assert_eq!((report.records, report.verified), (RECORDS, true));
    target.close().await;
    let copied = SqliteStore::open(directories[1].path()).await.unwrap();
    assert_eq!(copied.records(99_990, 100).await.unwrap(), source.store.records(99_990, 100).await.unwrap());
}
