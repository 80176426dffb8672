//! Failures specific to SQLite: locks of other processes, a full disk, damaged pages, files of other programs.

use std::fs;

use serde_json::value::RawValue;
use sqlx::{Connection, Executor};
use tempfile::TempDir;
use toolcrib_core::inventory::{Actor, Event};
use toolcrib_core::manifest::{Manifest, ToolLimits};
use toolcrib_core::{Code, Error, Timestamp};

use super::*;
use crate::store::Salvage;

#[tokio::test]
async fn a_locked_store_can_be_read_and_says_why_it_cannot_be_written() {
    let (_directory, store) = store_with_short_timeouts().await;
    let mut other = connect(store.path()).await;
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();

    let error = append(&store, 0).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    let message = format!("the store `{}` is locked by another process; try again", store.path().display());
    assert_eq!(error.message, message);
    assert!(error.is_retryable());
    assert!(error.cause_chain().unwrap().contains("database is locked"));
    assert_eq!(store.records(0, 10).await.unwrap(), []);

    lock.rollback().await.unwrap();
    assert_eq!(append(&store, 0).await.unwrap(), CommitOutcome::Committed);
}

/// Regression: refreshing many sources at once on a busy machine lost some of them after five seconds.
#[tokio::test]
async fn writers_wait_for_each_other_and_for_another_process() {
    let directory = TempDir::new().unwrap();
    let store = std::sync::Arc::new(SqliteStore::open(directory.path()).await.unwrap());
    let mut other = connect(store.path()).await;
    let lock = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..64 {
        let store = store.clone();
        writers.spawn(async move { store.put_manifest(&manifest(&format!("s{number}"), 100)).await });
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    lock.rollback().await.unwrap();
    for written in writers.join_all().await {
        written.unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_writing_resumes_when_there_is_space() {
    let (_directory, store) = store_with_short_timeouts().await;
    let mut guard = store.writer.acquire().await.unwrap();
    let limited = sqlx::raw_sql("PRAGMA max_page_count = 20").execute(&mut guard.connection).await.map(|_| ());
    guard.finish(limited).unwrap();

    let error = store.put_manifest(&manifest("large", 200_000)).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert!(error.message.starts_with("the disk is full"), "{error}");
    assert_eq!(append(&store, 0).await.unwrap(), CommitOutcome::Committed);
    store.put_manifest(&manifest("large", 200_000)).await.unwrap();
}

#[tokio::test]
async fn a_damaged_page_affects_no_other_source() {
    let (_directory, store) = store_with_short_timeouts().await;
    let manifests = ["one", "two", "three"].map(|source| manifest(source, 100_000));
    for manifest in &manifests {
        store.put_manifest(manifest).await.unwrap();
    }
    store.close().await;
    let mut bytes = fs::read(store.path()).unwrap();
    let holds_only = |page: &[u8]| page.windows(4).filter(|window| *window == b"two ").count() > 4_000;
    bytes.chunks_mut(16_384).find(|page| holds_only(page)).unwrap().fill(0xff);
    fs::write(store.path(), bytes).unwrap();

    let store = SqliteStore::open_file(store.path()).await.unwrap();
    let fingerprints = manifests.each_ref().map(|manifest| manifest.fingerprint);
    let mut found: Vec<String> =
        store.manifests(&fingerprints).await.unwrap().iter().map(|manifest| manifest.source.to_string()).collect();
    found.sort();
    assert_eq!(found, ["one", "three"]);
}

#[tokio::test]
async fn a_damaged_row_affects_no_other_source_and_is_repaired_by_the_next_write() {
    let (_directory, store) = store_with_short_timeouts().await;
    let one = manifest("one", 10);
    let two = manifest("two", 10);
    for manifest in [&one, &two] {
        store.put_manifest(manifest).await.unwrap();
    }
    let damage = format!("UPDATE manifests SET body = '' WHERE fingerprint = '{}'", one.fingerprint);
    connect(store.path()).await.execute(sqlx::AssertSqlSafe(damage)).await.unwrap();

    let fingerprints = [one.fingerprint, two.fingerprint];
    assert_eq!(store.manifests(&fingerprints).await.unwrap().len(), 1);
    store.put_manifest(&one).await.unwrap();
    assert_eq!(store.manifests(&fingerprints).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_of_another_program_is_rejected_and_left_unchanged() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file.db");
    for (content, message) in [
        ("CREATE TABLE theirs (x)", "is a database of another program"),
        ("PRAGMA user_version = 8", "was written by a newer Toolcrib (schema version 8, this one supports 7)"),
    ] {
        fs::write(&path, "").unwrap();
        connect(&path).await.execute(content).await.unwrap();
        let before = fs::read(&path).unwrap();
        let error = open_error(&path).await;
        assert!(error.message.contains(message), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    fs::write(&path, "no database ".repeat(1000)).unwrap();
    assert!(open_error(&path).await.message.contains("is damaged"));
    let not_a_file = directory.path().join("directory.db");
    fs::create_dir(&not_a_file).unwrap();
    assert!(open_error(&not_a_file).await.message.contains("cannot be opened"));
    assert!(open_error(&path.join("below")).await.message.contains("cannot create the data directory"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_processes_can_create_the_store() {
    let directory = TempDir::new().unwrap();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let path = directory.path().to_owned();
        opening.spawn(async move { SqliteStore::open(path).await.unwrap().key().await.unwrap() });
    }
    let keys = opening.join_all().await;
    assert!(keys.iter().all(|key| *key == keys[0]));
}

/// Creates a store with schema version 1, with some more records.
async fn create_version_1(records: &[&str]) -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(STORE_FILE_NAME);
    fs::write(&path, "").unwrap();
    let mut connection = connect(&path).await;
    connection.execute("PRAGMA journal_mode = WAL").await.unwrap();
    connection.execute(include_str!("version_1.sql")).await.unwrap();
    for body in records {
        let insert = "INSERT INTO journal SELECT max(seq) + 1, 1, 'test', ? FROM journal";
        sqlx::query(insert).bind(*body).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    (directory, path)
}

#[tokio::test]
async fn the_records_of_an_old_store_are_migrated_once() {
    let golden = include_str!("../../../../toolcrib-core/src/inventory/golden_events.jsonl");
    let parse = |line: &str| serde_json::from_str::<Event>(line).unwrap();
    // Later additions to events are never in a store of schema version 1.
    let golden: Vec<&str> = golden.lines().filter(|line| parse(line).min_version() == "0.1.0").collect();
    let odd = ["", "{", "null", r#"["TokenRevoked"]"#, r#"{"type":{"TokenRevoked":1}}"#, r#"{"type":"ToolPainted"}"#];
    let (_directory, path) = create_version_1(&[&golden[..], &odd].concat()).await;

    let store = SqliteStore::open_file(&path).await.unwrap();
    let records = store.records(0, usize::MAX).await.unwrap();
    let critical = records.iter().filter(|record| record.critical).map(|record| record.seq);
    // `calculate` disabled, `ci` revoked, `gone` disabled and removed; then the golden events.
    let golden_critical = golden.iter().zip(10..).filter(|(line, _)| {
        let event = parse(line);
        // Schema version 1 never had this event.
        event.is_critical() && !matches!(event, Event::DamageAccepted { .. })
    });
    let expected: Vec<u64> = [3, 5, 7, 9].into_iter().chain(golden_critical.map(|(_, seq)| seq)).collect();
    assert_eq!(critical.collect::<Vec<u64>>(), expected);
    assert!(records.iter().all(|record| record.min_version == "0.1.0"));
    assert!(records.iter().all(|record| record.checksum.as_ref() == Some(&record.compute_checksum())));
    let bodies = records.iter().skip(9).map(|record| record.body.as_str());
    assert!(bodies.eq(golden.into_iter().chain(odd)), "every body is unchanged");

    // The rest is unchanged, too.
    assert_eq!(store.key().await.unwrap()[..4], [0x2b, 0x19, 0x08, 0x13]);
    assert_eq!(store.checks(&source("gone")).await.unwrap().len(), 1);
    assert_eq!(store.source_statuses().await.unwrap().len(), 1);
    assert_eq!(store.call_counts().await.unwrap()[0].calls, 1);
    assert_eq!(store.token_uses().await.unwrap(), []);

    // Later changes to the columns are not overwritten by the next start.
    connect(&path).await.execute("UPDATE journal SET critical = 0, since = '0.9.0' WHERE seq = 3").await.unwrap();
    store.close().await;
    let store = SqliteStore::open_file(&path).await.unwrap();
    let record = store.records(2, 1).await.unwrap().remove(0);
    assert_eq!((record.critical, record.min_version.as_str()), (false, "0.9.0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_processes_can_migrate_an_old_store() {
    let (_directory, path) = create_version_1(&[]).await;
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let path = path.clone();
        opening.spawn(async move { SqliteStore::open_file(path).await.unwrap().records(0, 100).await.unwrap() });
    }
    let read = opening.join_all().await;
    assert_eq!(read[0].len(), 9);
    assert!(read.iter().all(|records| *records == read[0]));
}

/// A process of an older version that keeps running during the migration does not know the new columns.
#[tokio::test]
async fn a_writer_of_an_older_version_can_still_append() {
    let (_directory, store) = store_with_short_timeouts().await;
    let insert = r#"INSERT INTO journal (seq, at, actor, body) VALUES (1, 1, 'cli', '{"type":"SourceEnabled"}')"#;
    connect(store.path()).await.execute(insert).await.unwrap();
    let record = store.records(0, 1).await.unwrap().remove(0);
    assert_eq!((record.critical, record.min_version.as_str()), (false, "0.1.0"));
}

#[tokio::test]
async fn a_cancelled_write_leaves_no_lock_behind() {
    let (_directory, store) = store_with_short_timeouts().await;
    for _ in 0..50 {
        let events = [Event::SourceEnabled { source: source("a") }];
        let actor = Actor::config();
        let mut write = store.commit(Commit {
            expected_head: 0,
            first_seq: 1,
            at: Timestamp(1),
            actor: &actor,
            events: &events,
            measurement: None,
        });
        // Polled once or twice, then dropped at whatever point it has reached.
        let _ = tokio::time::timeout(Duration::from_micros(1), &mut write).await;
        drop(write);
        if !store.records(0, 1).await.unwrap().is_empty() {
            break;
        }
    }
    let head = store.records(0, 10).await.unwrap().len() as u64;
    assert_eq!(append(&store, head).await.unwrap(), CommitOutcome::Committed);
}

#[tokio::test]
async fn a_closed_store_fails_with_a_clear_error() {
    let (_directory, store) = store_with_short_timeouts().await;
    store.close().await;
    store.close().await;
    assert!(append(&store, 0).await.unwrap_err().message.ends_with("is closed"));
    assert!(store.records(0, 1).await.unwrap_err().message.ends_with("is closed"));
}

/// Regression: a store was renamed without the part that was still in its log.
#[tokio::test]
async fn a_file_is_renamed_only_if_its_log_is_empty() {
    let (_directory, store) = store_with_short_timeouts().await;
    append(&store, 0).await.unwrap();
    let mut other = connect(store.path()).await;
    let mut reading = other.begin().await.unwrap();
    reading.execute("SELECT count(*) FROM journal").await.unwrap();
    append(&store, 1).await.unwrap();
    let error = store.close_for_rename(JournalMode::Wal).await.unwrap_err();
    assert!(error.is_retryable() && error.message.contains("is locked by another process"), "{}", error.message);
    drop(reading);
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_is_one_file_and_becomes_a_store_with_its_first_write() {
    /// Numbers of the file format of a file without and with a log: <https://www.sqlite.org/fileformat.html>.
    const WITHOUT_LOG: u8 = 1;
    const WITH_LOG: u8 = 2;
    let (directory, store) = store_with_short_timeouts().await;
    append(&store, 0).await.unwrap();
    let backup = directory.path().join("backup.db");
    // While the store is in use.
    back_up_store(directory.path().to_str().unwrap(), directory.path(), &backup, &|_| {}).await.unwrap();
    let files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|name| name.starts_with("backup")).collect();
    files.sort();
    assert_eq!(files, ["backup.db"]);
    let format = || fs::read(&backup).unwrap()[18];
    assert_eq!(format(), WITHOUT_LOG);
    let used = SqliteStore::open_existing(&backup).await.unwrap();
    assert_eq!(used.records(0, 10).await.unwrap().len(), 1);
    assert_eq!(format(), WITHOUT_LOG, "reading changes nothing");
    append(&used, 1).await.unwrap();
    used.close().await;
    assert_eq!(format(), WITH_LOG);
}

#[tokio::test]
async fn an_unfinished_backup_that_another_process_has_open_is_not_continued() {
    let (directory, store) = store_with_short_timeouts().await;
    append(&store, 0).await.unwrap();
    let backup = directory.path().join("backup.db");
    let other = SqliteStore::open_backup_target(&directory.path().join("backup.db.partial")).await.unwrap();
    let location = directory.path().to_str().unwrap();
    let error = back_up_store(location, directory.path(), &backup, &|_| {}).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert!(error.message.contains("is in use by another process"), "{}", error.message);
    other.close().await;
    back_up_store(location, directory.path(), &backup, &|_| {}).await.unwrap();
}

/// Regression: the target of a rebuild without a salvaged key was taken for the damaged store itself.
#[tokio::test]
async fn a_store_whose_key_is_lost_is_rebuilt_with_a_new_one() {
    let (directory, store) = store_with_short_timeouts().await;
    append(&store, 0).await.unwrap();
    let salvage = Salvage { records: store.records(0, 10).await.unwrap(), ..Salvage::default() };
    store.close().await;
    let kept = rebuild_store(directory.path().to_str().unwrap(), &salvage, Timestamp(0)).await.unwrap();
    assert!(kept.is_some_and(|path| path.is_file()));
    let rebuilt = SqliteStore::open_existing(store.path()).await.unwrap();
    assert_eq!(rebuilt.records(0, 10).await.unwrap(), salvage.records);
}

async fn store_with_short_timeouts() -> (TempDir, SqliteStore) {
    let directory = TempDir::new().unwrap();
    let short = Duration::from_millis(50);
    let timeouts = StoreTimeouts { queue: short, lock: short, open: Duration::from_secs(5) };
    let store = SqliteStore::open_with(&directory.path().join(STORE_FILE_NAME), timeouts).await.unwrap();
    (directory, store)
}

async fn open_error(path: &Path) -> Error {
    let error = SqliteStore::open_file(path).await.unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable);
    assert!(!error.is_retryable());
    error
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

async fn append(store: &SqliteStore, expected: u64) -> Result<CommitOutcome> {
    let events = [Event::SourceEnabled { source: source("a") }];
    let actor = Actor::config();
    store
        .commit(Commit {
            expected_head: expected,
            first_seq: expected.saturating_add(1),
            at: Timestamp(1),
            actor: &actor,
            events: &events,
            measurement: None,
        })
        .await
}

fn manifest(id: &str, bytes: usize) -> PackedManifest {
    let description = format!("{id} ").repeat(bytes / (id.len() + 1));
    let tool = format!(r#"{{"name":"t","description":"{description}","inputSchema":{{"type":"object"}}}}"#);
    let offered = [RawValue::from_string(tool).unwrap()];
    PackedManifest::new(&Manifest::new(&source(id), &offered, vec![], &ToolLimits::default())).unwrap()
}

fn source(id: &str) -> SourceId {
    SourceId::parse(id).unwrap()
}
