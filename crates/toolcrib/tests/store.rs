//! The contract of [`Store`]. Each property is one function, run against every implementation.

mod administration;
mod concurrency;
mod copy;
mod postgres_server;

mod postgres_failures;
mod proxy;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tempfile::TempDir;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Event};
use toolcrib::core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib::core::source::{SourceKind, SourceSettings, StdioSource};
use toolcrib::core::{Code, Error, Source, SourceId, Timestamp};
use toolcrib::store::{
    self, CacheCount, CallCount, Commit, CommitOutcome, CountBatch, DiscoveryCheck, ErrorSummary, Login, LoginKind,
    MAX_CHECKS_PER_SOURCE, Measurement, MemoryStore, PostgresStore, SourceStatus, SqliteStore, Store, StoredRecord,
    TokenUse,
};
use toolcrib_testkit::programs;

use administration::{
    a_copy_goes_on_where_it_was_interrupted, a_snapshot_of_a_lost_journal_is_replaced,
    a_store_with_content_is_no_target, an_empty_store_takes_over_records_and_key, an_unfinished_copy_is_not_used,
    of_two_runs_of_a_copy_the_later_one_goes_on, pruning_removes_what_is_not_selected, the_last_snapshot_is_read_back,
};
use concurrency::{
    a_completed_status_of_an_earlier_discovery_is_superseded, a_held_lease_marks_its_source_as_being_discovered,
    a_list_of_the_host_ends_the_lease_of_an_earlier_discovery, a_lost_lease_cannot_be_renewed_or_used,
    an_invalidation_during_a_discovery_is_kept, concurrent_writers_lose_nothing,
    leases_order_discoveries_whatever_the_clocks_say, of_32_concurrent_writers_one_wins_each_time,
    one_holder_discovers_a_source_at_a_time, two_handles_see_each_others_writes,
};

/// Generates a test of each property for each store.
macro_rules! contract {
    ($($property:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() { super::$property(super::TestStore::sqlite()).await })*
        }
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() { super::$property(super::TestStore::memory()).await })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                match super::TestStore::postgres() {
                    Some(store) => super::$property(store).await,
                    None => super::programs::skip(stringify!($property), "PostgreSQL is not installed"),
                }
            })*
        }
    };
}

contract![
    records_are_read_back_in_order,
    a_record_stores_whether_it_is_critical_and_its_minimum_version,
    a_long_journal_is_read_completely,
    a_commit_with_an_outdated_head_writes_nothing,
    an_older_discovery_is_superseded_by_a_newer_one,
    a_completed_status_keeps_an_invalidation,
    the_last_status_wins,
    a_status_can_be_invalidated_and_removed,
    the_last_hundred_checks_are_kept,
    one_holder_discovers_a_source_at_a_time,
    a_lost_lease_cannot_be_renewed_or_used,
    a_held_lease_marks_its_source_as_being_discovered,
    an_invalidation_during_a_discovery_is_kept,
    leases_order_discoveries_whatever_the_clocks_say,
    a_list_of_the_host_ends_the_lease_of_an_earlier_discovery,
    a_completed_status_of_an_earlier_discovery_is_superseded,
    counts_are_added_once,
    many_counts_are_added_at_once,
    the_latest_use_of_a_token_wins,
    a_login_is_found_until_it_expires_and_removed_once,
    manifests_are_read_back_unchanged,
    definitions_are_read_back_unchanged,
    unusual_text_survives,
    the_key_belongs_to_the_store,
    the_change_counters_change_with_every_write,
    concurrent_writers_lose_nothing,
    of_32_concurrent_writers_one_wins_each_time,
    two_handles_see_each_others_writes,
    the_last_snapshot_is_read_back,
    an_empty_store_takes_over_records_and_key,
    a_copy_goes_on_where_it_was_interrupted,
    a_store_with_content_is_no_target,
    an_unfinished_copy_is_not_used,
    of_two_runs_of_a_copy_the_later_one_goes_on,
    a_snapshot_of_a_lost_journal_is_replaced,
    pruning_removes_what_is_not_selected,
];

/// A store to test; every handle on it sees the same content.
enum TestStore {
    Sqlite(TempDir),
    Memory(Arc<MemoryStore>),
    /// URL of a database of its own.
    Postgres(String),
}

impl TestStore {
    /// `None` without PostgreSQL.
    fn postgres() -> Option<TestStore> {
        toolcrib_testkit::postgres::shared_database().map(TestStore::Postgres)
    }

    fn sqlite() -> TestStore {
        TestStore::Sqlite(TempDir::new().unwrap())
    }

    fn memory() -> TestStore {
        TestStore::Memory(Arc::default())
    }

    async fn open(&self) -> Arc<dyn Store> {
        match self {
            TestStore::Sqlite(directory) => Arc::new(SqliteStore::open(directory.path()).await.unwrap()),
            TestStore::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            TestStore::Postgres(url) => Arc::new(PostgresStore::open(url).await.unwrap()),
        }
    }

    async fn open_copy_target(&self) -> Arc<dyn Store> {
        match self {
            TestStore::Sqlite(directory) => {
                Arc::new(SqliteStore::open_copy_target(directory.path().join("toolcrib.db")).await.unwrap())
            }
            TestStore::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            TestStore::Postgres(url) => Arc::new(PostgresStore::open_copy_target(url).await.unwrap()),
        }
    }

    /// Returns the error for opening the store, if its kind can refuse that.
    async fn open_error(&self) -> Option<Error> {
        match self {
            TestStore::Sqlite(directory) => Some(SqliteStore::open(directory.path()).await.unwrap_err()),
            TestStore::Memory(_) => None,
            TestStore::Postgres(url) => Some(PostgresStore::open(url).await.unwrap_err()),
        }
    }
}

async fn records_are_read_back_in_order(test_store: TestStore) {
    let store = test_store.open().await;
    assert_eq!(store.records(0, 10).await.unwrap(), []);

    assert_eq!(append(&*store, 0, &["a", "b"]).await, CommitOutcome::Committed);
    assert_eq!(append(&*store, 2, &["c"]).await, CommitOutcome::Committed);

    assert_eq!(store.records(0, 10).await.unwrap(), [record(1, "a"), record(2, "b"), record(3, "c")]);
    assert_eq!(store.records(1, 1).await.unwrap(), [record(2, "b")]);
    assert_eq!(store.records(3, 10).await.unwrap(), []);
    assert_eq!(store.records(u64::MAX, usize::MAX).await.unwrap(), []);
}

async fn a_record_stores_whether_it_is_critical_and_its_minimum_version(test_store: TestStore) {
    let store = test_store.open().await;
    let golden = include_str!("../../toolcrib-core/src/inventory/golden_events.jsonl");
    let events: Vec<Event> = golden.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let commit = Commit { expected_head: 0, first_seq: 1, at: AT, actor: &actor(), events: &events, measurement: None };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
    let records = test_store.open().await.records(0, usize::MAX).await.unwrap();
    let stored: Vec<(&str, bool, &str)> =
        records.iter().map(|record| (record.body.as_str(), record.critical, record.min_version.as_str())).collect();
    let expected = golden.lines().zip(&events).map(|(line, event)| (line, event.is_critical(), event.min_version()));
    assert_eq!(stored, expected.collect::<Vec<_>>());
}

async fn a_long_journal_is_read_completely(test_store: TestStore) {
    let store = test_store.open().await;
    let tools: Vec<String> = (0..4_100).map(|number| number.to_string()).collect();
    append(&*store, 0, &tools.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (after, limit, expected) in [
        (0, usize::MAX, 1..=4_100),
        (0, 4_000, 1..=4_000),
        (0, 2_000, 1..=2_000),
        (99, 2_001, 100..=2_100),
        (4_099, 5, 4_100..=4_100),
    ] {
        let records = store.records(after, limit).await.unwrap();
        assert!(records.iter().map(|record| record.seq).eq(expected), "{limit} after {after}");
    }
    assert_eq!(store.records(0, 0).await.unwrap(), []);
}

async fn a_commit_with_an_outdated_head_writes_nothing(test_store: TestStore) {
    let store = test_store.open().await;
    append(&*store, 0, &["a"]).await;
    for expected in [0, 2, u64::MAX] {
        assert_eq!(append(&*store, expected, &["b"]).await, CommitOutcome::Conflict, "{expected}");
        assert_eq!(
            commit_check(&*store, expected, check("b", 1), status_started_at(1)).await,
            CommitOutcome::Conflict,
            "{expected}"
        );
    }
    assert_eq!(store.records(0, 10).await.unwrap(), [record(1, "a")]);
    assert_eq!(store.source_statuses().await.unwrap(), BTreeMap::new());
    assert_eq!(store.checks(&id("b")).await.unwrap(), []);
}

async fn a_completed_status_keeps_an_invalidation(test_store: TestStore) {
    let store = test_store.open().await;
    let pending = SourceStatus { lists_pending_until: Some(AT), ..status_started_at(10) };
    assert_eq!(commit_check(&*store, 0, check("a", 12), pending).await, CommitOutcome::Committed);
    store.invalidate(&id("a")).await.unwrap();
    let completed = SourceStatus { private: true, hint_ttl_ms: Some(5), ..status_started_at(10) };
    let measurement = Some(Measurement { source: &id("a"), status: &completed, check: None, lease: None });
    let commit = Commit { expected_head: 0, first_seq: 1, at: AT, actor: &actor(), events: &[], measurement };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
    let expected = SourceStatus { invalidated: true, ..completed };
    assert_eq!(store.source_statuses().await.unwrap(), BTreeMap::from([(id("a"), expected)]));
    assert_eq!(store.checks(&id("a")).await.unwrap(), [check("a", 12)]);
}

async fn an_older_discovery_is_superseded_by_a_newer_one(test_store: TestStore) {
    let store = test_store.open().await;
    assert_eq!(commit_check(&*store, 0, check("a", 12), status_started_at(10)).await, CommitOutcome::Committed);

    let older = check("a", 13);
    let status = status_started_at(9);
    let events = [tool_disabled("a")];
    let commit = Commit {
        expected_head: 0,
        first_seq: 1,
        at: AT,
        actor: &actor(),
        events: &events,
        measurement: Some(Measurement::from_check(&older, &status)),
    };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Superseded);

    assert_eq!(store.records(0, 10).await.unwrap(), []);
    assert_eq!(store.source_statuses().await.unwrap(), BTreeMap::from([(id("a"), status_started_at(10))]));
    assert_eq!(store.checks(&id("a")).await.unwrap(), [check("a", 12)]);
    // A discovery that started at the same time, and one of another source, are not older.
    assert_eq!(commit_check(&*store, 0, check("a", 14), status_started_at(10)).await, CommitOutcome::Committed);
    assert_eq!(commit_check(&*store, 0, check("b", 14), status_started_at(1)).await, CommitOutcome::Committed);
}

async fn the_last_status_wins(test_store: TestStore) {
    let store = test_store.open().await;
    let failed = SourceStatus {
        failures: 3,
        last_error: Some(failure("it is \"down\"")),
        not_before: Some(Timestamp(99)),
        era: Some("2025-11-25".into()),
        checked_at: Some(Timestamp(7)),
        connection_fingerprint: Some(Fingerprint::digest("x")),
        ..status_started_at(8)
    };
    commit_check(&*store, 0, check("a", 1), status_started_at(1)).await;
    commit_check(&*store, 0, check("a", 8), failed.clone()).await;
    commit_check(&*store, 0, check("b", 2), status_started_at(2)).await;
    let expected = BTreeMap::from([(id("a"), failed), (id("b"), status_started_at(2))]);
    assert_eq!(store.source_statuses().await.unwrap(), expected);
}

async fn a_status_can_be_invalidated_and_removed(test_store: TestStore) {
    let store = test_store.open().await;
    let status = SourceStatus { last_error: Some(failure("\u{0}🦀")), ..status_started_at(1) };
    commit_check(&*store, 0, check("a", 1), status.clone()).await;
    commit_check(&*store, 0, check("b", 1), status_started_at(1)).await;

    store.invalidate(&id("a")).await.unwrap();
    store.invalidate(&id("unknown")).await.unwrap();
    let invalidated = SourceStatus { invalidated: true, ..status };
    assert_eq!(
        store.source_statuses().await.unwrap(),
        BTreeMap::from([(id("a"), invalidated), (id("b"), status_started_at(1))])
    );

    assert!(!store.remove_source_status(&id("a"), 1).await.unwrap(), "the journal is at another record");
    assert_eq!(store.source_statuses().await.unwrap().len(), 2);
    assert!(store.remove_source_status(&id("a"), 0).await.unwrap());
    assert_eq!(store.source_statuses().await.unwrap(), BTreeMap::from([(id("b"), status_started_at(1))]));
    assert_eq!(store.checks(&id("a")).await.unwrap(), [check("a", 1)]);
}

async fn the_last_hundred_checks_are_kept(test_store: TestStore) {
    let store = test_store.open().await;
    commit_check(&*store, 0, check("b", 0), status_started_at(0)).await;
    let last = MAX_CHECKS_PER_SOURCE as i64 + 5;
    for time in 1..=last {
        commit_check(&*store, 0, check("a", time), status_started_at(time)).await;
    }
    let expected: Vec<DiscoveryCheck> = (6..=last).rev().map(|time| check("a", time)).collect();
    assert_eq!(store.checks(&id("a")).await.unwrap(), expected);
    assert_eq!(store.checks(&id("b")).await.unwrap(), [check("b", 0)]);
}

async fn a_login_is_found_until_it_expires_and_removed_once(test_store: TestStore) {
    let (one, other) = (test_store.open().await, test_store.open().await);
    let session = login("session", LoginKind::Session, 0, 100);
    let link = login("link", LoginKind::Link, 0, 50);
    for login in [&session, &link] {
        one.put_login(login).await.unwrap();
    }
    let found = async |now| {
        let mut found = other.logins(Timestamp(now)).await.unwrap();
        found.sort_by_key(|login| login.kind.as_str());
        found
    };
    assert_eq!(found(49).await, [link, session.clone()]);
    assert_eq!(found(50).await, std::slice::from_ref(&session));
    assert_eq!(found(100).await, []);
    let later = login("later", LoginKind::Session, 60, 200);
    one.put_login(&later).await.unwrap();
    assert_eq!(one.logins(Timestamp(0)).await.unwrap().len(), 2, "the expired link was removed");
    let removed = tokio::join!(one.remove_login(session.digest), other.remove_login(session.digest));
    assert!(removed.0.unwrap() != removed.1.unwrap(), "one of both removes it");
    assert_eq!(found(60).await, [later]);
}

async fn counts_are_added_once(test_store: TestStore) {
    let store = test_store.open().await;
    let call = |tool: &str, calls, errors, last_called: Option<i64>, last_error: Option<&str>| CallCount {
        source: id("a"),
        tool: tool.into(),
        calls,
        errors,
        last_called: last_called.map(Timestamp),
        last_error: last_error.map(failure),
    };
    let lookups = |source: &str, hits, misses| CacheCount { source: id(source), hits, misses };
    let other = test_store.open().await;
    store.add_counts(&batch("one", 1), &[], &[]).await.unwrap();
    let calls = [call("push", 2, 1, Some(5), Some("no"))];
    store.add_counts(&batch("one", 2), &calls, &[lookups("b", 1, 0), lookups("a", 0, 1)]).await.unwrap();
    let calls = [call("push", 1, 0, Some(3), None), call("🦀", 1, 0, None, None)];
    other.add_counts(&batch("two", 1), &calls, &[]).await.unwrap();
    // Repeated, because the writer did not get the answer.
    for _ in 0..2 {
        let calls = [call("push", 1, 1, None, Some("again"))];
        store.add_counts(&batch("one", 3), &calls, &[lookups("b", 4, 2)]).await.unwrap();
    }
    other.add_counts(&batch("two", 1), &calls, &[]).await.unwrap();

    let expected = [call("push", 4, 2, Some(5), Some("again")), call("🦀", 1, 0, None, None)];
    assert_eq!(store.call_counts().await.unwrap(), expected);
    assert_eq!(store.cache_counts().await.unwrap(), [lookups("a", 0, 1), lookups("b", 5, 2)]);
}

async fn many_counts_are_added_at_once(test_store: TestStore) {
    const TOOLS: usize = 2_500;
    let call = |number: usize| CallCount {
        source: id("a"),
        tool: format!("t{number:04}"),
        calls: 2,
        errors: 0,
        last_called: Some(AT),
        last_error: None,
    };
    let calls: Vec<CallCount> = (0..TOOLS).map(call).collect();
    let lookups = |number: usize| CacheCount { source: id(&format!("s{number:04}")), hits: 1, misses: 0 };
    let lookups: Vec<CacheCount> = (0..TOOLS).map(lookups).collect();
    let mut writers = tokio::task::JoinSet::new();
    for writer in ["one", "two"] {
        let (store, mut calls, lookups) = (test_store.open().await, calls.clone(), lookups.clone());
        // In opposite orders, which must not lead to a deadlock.
        if writer == "two" {
            calls.reverse();
        }
        writers.spawn(async move {
            for number in 1..=3 {
                store.add_counts(&batch(writer, number), &calls, &lookups).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let store = test_store.open().await;
    let counted = store.call_counts().await.unwrap();
    assert!(counted.iter().map(|count| (&count.tool, count.calls)).eq(calls.iter().map(|call| (&call.tool, 12))));
    assert!(store.cache_counts().await.unwrap().iter().all(|count| count.hits == 6));
}

async fn the_latest_use_of_a_token_wins(test_store: TestStore) {
    let token_use = |token: &str, at| TokenUse { token: token.to_owned(), last_used: Timestamp(at) };
    let (one, other) = (test_store.open().await, test_store.open().await);
    assert_eq!(one.token_uses().await.unwrap(), []);
    one.record_token_uses(&[]).await.unwrap();
    one.record_token_uses(&[token_use("b", 5), token_use("a", 7)]).await.unwrap();
    other.record_token_uses(&[token_use("a", 6), token_use("b", 1_794_700_800_000)]).await.unwrap();
    let expected = [token_use("a", 7), token_use("b", 1_794_700_800_000)];
    assert_eq!(one.token_uses().await.unwrap(), expected);
    assert_eq!(test_store.open().await.token_uses().await.unwrap(), expected);
}

async fn manifests_are_read_back_unchanged(test_store: TestStore) {
    let store = test_store.open().await;
    let one = manifest("one", &[PUSH, PULL]);
    let two = manifest("two", &[PUSH]);
    let empty = manifest("none", &[]);
    for manifest in [&one, &two, &empty, &one] {
        store.put_manifest(manifest).await.unwrap();
    }
    let unknown = Fingerprint::digest("unknown");
    let mut found = store.manifests(&[one.fingerprint, unknown, empty.fingerprint]).await.unwrap();
    found.sort_by(|a, b| a.source.cmp(&b.source));
    assert_eq!(manifest_contents(&found), manifest_contents(&[empty, one]));
    assert_eq!(manifest_contents(&store.manifests(&[]).await.unwrap()), manifest_contents(&[]));

    // The order of keys is no other content: readers of the first one must find the same bytes again.
    let sorted = manifest("keys", &[r#"{"name":"a","inputSchema":{"title":"t","type":"object"}}"#]);
    let permuted = manifest("keys", &[r#"{"name":"a","inputSchema":{"type":"object","title":"t"}}"#]);
    assert!(sorted.fingerprint == permuted.fingerprint && sorted.body != permuted.body);
    for manifest in [&sorted, &permuted] {
        store.put_manifest(manifest).await.unwrap();
    }
    let found = store.manifests(&[sorted.fingerprint]).await.unwrap();
    assert_eq!(manifest_contents(&found), manifest_contents(&[sorted]));

    let many = (0..5_000u32).map(|number| Fingerprint::digest(number.to_be_bytes()));
    let many: Vec<Fingerprint> = many.chain([two.fingerprint]).collect();
    assert_eq!(manifest_contents(&store.manifests(&many).await.unwrap()), manifest_contents(&[two]));
}

async fn definitions_are_read_back_unchanged(test_store: TestStore) {
    let store = test_store.open().await;
    let names = [Fingerprint::digest("1"), Fingerprint::digest("2"), Fingerprint::digest("3")];
    store.put_definition(names[0], &definition("npx")).await.unwrap();
    store.put_definition(names[1], &definition("uvx")).await.unwrap();
    store.put_definition(names[1], &definition("bunx")).await.unwrap();

    let mut found = store.definitions(&names).await.unwrap();
    found.sort_by_key(|(name, _)| *name != names[0]);
    assert_eq!(found, [(names[0], definition("npx")), (names[1], definition("bunx"))]);
    assert_eq!(store.definitions(&names[2..]).await.unwrap(), []);

    assert!(!store.remove_definitions(&id("files"), None, 1).await.unwrap(), "the journal is at another record");
    assert!(store.remove_definitions(&id("others"), None, 0).await.unwrap());
    assert_eq!(store.definitions(&names).await.unwrap().len(), 2);
    assert!(store.remove_definitions(&id("files"), Some(names[1]), 0).await.unwrap());
    assert_eq!(store.definitions(&names).await.unwrap(), [(names[1], definition("bunx"))]);
    assert!(store.remove_definitions(&id("files"), None, 0).await.unwrap());
    assert_eq!(store.definitions(&names).await.unwrap(), []);
}

async fn unusual_text_survives(test_store: TestStore) {
    let store = test_store.open().await;
    let offered = r#"{"name":"größe \u0000 🦀","description":"'; DROP TABLE journal; --","inputSchema":{"type":"object",
        "z":123456789012345678901234567890,"a":1.0e400,"deep":[[["\ud83e\udd80\u2028"]]]},"x-vendor":{"b":1,"a":2}}"#;
    let manifest = manifest("odd", &[offered]);
    store.put_manifest(&manifest).await.unwrap();
    let found = store.manifests(&[manifest.fingerprint]).await.unwrap();
    assert_eq!(manifest_contents(&found), manifest_contents(std::slice::from_ref(&manifest)));
    assert!(found[0].body.contains("123456789012345678901234567890"));

    let strange = Actor::new("me\u{0}🦀'");
    let events = [tool_disabled("\u{0}\u{feff}🦀\"")];
    let commit = Commit {
        expected_head: 0,
        first_seq: 1,
        at: Timestamp(-1),
        actor: &strange,
        events: &events,
        measurement: None,
    };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
    let records = store.records(0, 10).await.unwrap();
    assert_eq!((&records[0].actor, records[0].at), (&strange, Timestamp(-1)));
    assert_eq!(serde_json::from_str::<Event>(&records[0].body).unwrap(), events[0]);
}

async fn the_key_belongs_to_the_store(test_store: TestStore) {
    let store = test_store.open().await;
    let key = store.key().await.unwrap();
    store.close().await;
    assert_eq!(test_store.open().await.key().await.unwrap(), key);
    for other in [TestStore::sqlite(), TestStore::memory()].into_iter().chain(TestStore::postgres()) {
        assert_ne!(other.open().await.key().await.unwrap(), key);
    }
}

async fn the_change_counters_change_with_every_write(test_store: TestStore) {
    let reader = test_store.open().await;
    let writer = test_store.open().await;
    let before = reader.change_counters().await.unwrap();
    reader.records(0, 10).await.unwrap();
    assert_eq!(reader.change_counters().await.unwrap(), before);

    append(&*writer, 0, &["a"]).await;
    let after_commit = reader.change_counters().await.unwrap();
    assert_ne!(after_commit.journal, before.journal);
    assert_eq!(reader.change_counters().await.unwrap(), after_commit);

    writer.acquire_lease(&id("a"), "one", Duration::from_secs(1)).await.unwrap();
    let after_lease = reader.change_counters().await.unwrap();
    assert_ne!(after_lease.journal, after_commit.journal);

    append(&*reader, 1, &["b"]).await;
    let last = reader.change_counters().await.unwrap();
    assert_ne!(last.journal, after_lease.journal);

    let count = CacheCount { source: id("a"), hits: 1, misses: 0 };
    writer.add_counts(&batch("one", 1), &[], &[count]).await.unwrap();
    assert_ne!(reader.change_counters().await.unwrap().counts, last.counts);
    writer.record_token_uses(&[TokenUse { token: "a".to_owned(), last_used: AT }]).await.unwrap();
    assert_ne!(reader.change_counters().await.unwrap().token_uses, last.token_uses);
    writer.put_login(&login("session", LoginKind::Session, 0, 100)).await.unwrap();
    assert_ne!(reader.change_counters().await.unwrap().logins, last.logins);
}

#[tokio::test]
async fn a_store_is_opened_by_its_location() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let file = directory.path().join("other.db");
    let first = store::open(data.to_str().unwrap()).await.unwrap();
    append(&*first, 0, &["a"]).await;
    assert!(data.join("toolcrib.db").is_file());

    for (location, records) in [
        (format!("sqlite:{}/toolcrib.db", data.display()), 1),
        (format!("sqlite:{}", data.display()), 1),
        (format!("sqlite://{}", file.display()), 0),
        ("memory:".into(), 0),
    ] {
        let store = store::open(&location).await.unwrap();
        assert_eq!(store.records(0, 10).await.unwrap().len(), records, "{location}");
    }
    assert_eq!(store::open("redis://localhost").await.unwrap_err().code, Code::ConfigInvalid);
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_are_accessible_only_to_their_owner() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("new").join("data");
    let file = directory.join("toolcrib.db");
    let store = SqliteStore::open(&directory).await.unwrap();
    append(&store, 0, &["a"]).await;
    assert_eq!([mode(&directory), mode(directory.parent().unwrap())], [0o700; 2]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
    for entry in fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }

    store.close().await;
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "the log was moved into the file");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    SqliteStore::open(&directory).await.unwrap();
    assert_eq!(mode(&file), 0o600);
}

const AT: Timestamp = Timestamp(1_794_700_800_123);
const PUSH: &str = r#"{"name":"push","description":"Push it","inputSchema":{"type":"object"}}"#;
const PULL: &str = r#"{"name":"pull","inputSchema":{"type":"object","properties":{"z":{},"a":{}}},"outputSchema":{}}"#;

async fn append(store: &dyn Store, expected: u64, tools: &[&str]) -> CommitOutcome {
    let events: Vec<Event> = tools.iter().map(|tool| tool_disabled(tool)).collect();
    store
        .commit(Commit {
            expected_head: expected,
            first_seq: expected.saturating_add(1),
            at: AT,
            actor: &actor(),
            events: &events,
            measurement: None,
        })
        .await
        .unwrap()
}

async fn commit_check(store: &dyn Store, expected: u64, check: DiscoveryCheck, status: SourceStatus) -> CommitOutcome {
    let measurement = Some(Measurement::from_check(&check, &status));
    store
        .commit(Commit {
            expected_head: expected,
            first_seq: expected.saturating_add(1),
            at: AT,
            actor: &actor(),
            events: &[],
            measurement,
        })
        .await
        .unwrap()
}

fn batch(writer: &str, number: u64) -> CountBatch {
    CountBatch { writer: writer.to_owned(), number }
}

fn login(name: &str, kind: LoginKind, created_at: i64, expires_at: i64) -> Login {
    Login {
        digest: Fingerprint::digest(name),
        kind,
        credential: "t1".to_owned(),
        created_at: Timestamp(created_at),
        expires_at: Timestamp(expires_at),
    }
}

fn record(seq: u64, tool: &str) -> StoredRecord {
    let body = serde_json::to_string(&tool_disabled(tool)).unwrap();
    let since = "0.1.0".to_owned();
    let record = StoredRecord { seq, at: AT, actor: actor(), body, critical: true, min_version: since, checksum: None };
    StoredRecord { checksum: Some(record.compute_checksum()), ..record }
}

fn tool_disabled(tool: &str) -> Event {
    Event::ToolDisabled { source: id("a"), tool: tool.into() }
}

fn actor() -> Actor {
    Actor::new("test")
}

fn id(source: &str) -> SourceId {
    SourceId::parse(source).unwrap()
}

fn status_started_at(time: i64) -> SourceStatus {
    SourceStatus { started_at: Timestamp(time), ..SourceStatus::default() }
}

fn check(source: &str, time: i64) -> DiscoveryCheck {
    let source = id(source);
    DiscoveryCheck { source, at: Timestamp(time), duration_ms: 3, tool_count: Some(2), error: None, transition: None }
}

fn failure(message: &str) -> ErrorSummary {
    ErrorSummary::new(Code::ToolUnavailable, message)
}

fn manifest(source: &str, offered: &[&str]) -> PackedManifest {
    let offered: Vec<Box<RawValue>> = offered.iter().map(|tool| serde_json::from_str(tool).unwrap()).collect();
    PackedManifest::new(&Manifest::new(&id(source), &offered, vec![], &ToolLimits::default())).unwrap()
}

fn definition(command: &str) -> Source {
    let kind = SourceKind::Stdio(StdioSource {
        command: command.into(),
        args: vec!["-y \u{0} 日本".into()],
        ..StdioSource::default()
    });
    let settings = SourceSettings { title: Some("Files".into()), ..SourceSettings::default() };
    Source { id: id("files"), kind, settings }
}

/// Everything that is stored of manifests.
fn manifest_contents(manifests: &[PackedManifest]) -> Vec<(SourceId, Fingerprint, String, Arc<String>)> {
    let contents = |packed: &PackedManifest| {
        (packed.source.clone(), packed.fingerprint, packed.index_json().unwrap(), Arc::clone(&packed.body))
    };
    manifests.iter().map(contents).collect()
}
