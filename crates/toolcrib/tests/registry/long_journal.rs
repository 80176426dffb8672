//! A journal that is longer than its part in memory, and starts with a snapshot instead of its first record.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolcrib::config::Config;
use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Event};
use toolcrib::registry::HistoryQuery;
use toolcrib::store::{Commit, CommitOutcome, JournalPosition, MemoryStore, Store, StoredSnapshot};
use toolcrib::{Registry, RegistryOptions};

use crate::support::id;

/// A search that finds little returns after a bounded number of records, with the position to continue from.
#[tokio::test]
async fn a_long_journal_is_searched_page_by_page() {
    let touched = [1, 25_000, 44_000];
    let event = |seq: u64| {
        if touched.contains(&seq) {
            Event::ToolDisabled { source: id("git"), tool: "push".into() }
        } else {
            Event::SourceEnabled { source: id("mail") }
        }
    };
    let store = Arc::new(MemoryStore::default());
    let actor = Actor::new("test");
    let events: Vec<Event> = (1..=45_000).map(event).collect();
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
    let options = RegistryOptions { store: Some(store), ..RegistryOptions::default() };
    let registry = Registry::open(Config::default(), options).await.unwrap();

    let query = |after: u64, limit: Option<usize>| HistoryQuery {
        tool: Some("git/push".into()),
        limit,
        ..HistoryQuery::after(after)
    };
    let mut seen = Vec::new();
    let mut after = Some(0);
    while let Some(from) = after {
        let page = registry.history().page(&query(from, None)).await.unwrap();
        seen.push((page.records.iter().map(|record| record.seq).collect::<Vec<_>>(), page.next_after));
        after = page.next_after;
    }
    assert_eq!(seen, [(vec![1], Some(20_000)), (vec![25_000, 44_000], None)]);
    let all = registry.history().records(&query(0, None)).await.unwrap();
    assert_eq!(all.iter().map(|record| record.seq).collect::<Vec<_>>(), touched);
    assert_eq!(registry.history().records(&query(0, Some(2))).await.unwrap().len(), 2);
    assert_eq!(registry.history().page(&query(0, Some(1))).await.unwrap().next_after, Some(1));
    assert_eq!(registry.history().page(&query(45_000, None)).await.unwrap().next_after, None);
    registry.close().await;
}

async fn store_with_long_journal() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    write_long_journal(&*store).await;
    store
}

/// Writes a journal that is long enough for a snapshot, of a source with a tool that is disabled last, a token and a
/// group.
pub(crate) async fn write_long_journal(store: &dyn Store) {
    let fingerprint = Fingerprint::digest("x");
    let first = [
        json!({"type": "SourceDeclared", "source": "git", "kind": "mcp", "origin": "runtime",
            "definition": fingerprint, "enabled": null}),
        json!({"type": "InventoryRecorded", "source": "git", "fingerprint": fingerprint, "added": ["push", "pull"],
            "changed": [], "removed": []}),
        json!({"type": "TokenCreated", "token": "3f9c01d2a4b7", "name": "ci", "role": "agent", "hash": fingerprint,
            "expires_at": null, "claims": {"team": "sales"}}),
        json!({"type": "GroupDefined", "group": "support", "origin": "runtime", "definition": {"title": "Support"}}),
    ];
    let mut events: Vec<Event> = first.map(|event| serde_json::from_value(event).unwrap()).into();
    let source = id("git");
    events.extend((0..12_000).map(|number| match number % 2 {
        0 => Event::ToolDisabled { source: source.clone(), tool: "push".into() },
        _ => Event::ToolEnabled { source: source.clone(), tool: "push".into() },
    }));
    append(store, &events).await;
}

async fn append(store: &dyn Store, events: &[Event]) {
    let head = store.records(0, usize::MAX).await.unwrap().last().map_or(0, |record| record.seq);
    let commit = Commit {
        expected_head: head,
        first_seq: head + 1,
        at: Timestamp(1),
        actor: &Actor::new("test"),
        events,
        measurement: None,
    };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
}

pub(crate) async fn open_long(store: &Arc<impl Store + 'static>, follow_writes: bool) -> Registry {
    let config = Config { retains_sources: true, replaces_rules: false, ..Config::default() };
    let options = RegistryOptions { store: Some(store.clone()), follow_writes, ..RegistryOptions::default() };
    Registry::open(config, options).await.unwrap()
}

/// Lets a long-running registry write a snapshot.
pub(crate) async fn write_snapshot(store: &Arc<impl Store + 'static>) -> StoredSnapshot {
    let registry = open_long(store, true).await;
    let written = async {
        loop {
            match store.snapshot().await.unwrap() {
                Some(snapshot) => return snapshot,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let snapshot = tokio::time::timeout(Duration::from_secs(30), written).await.unwrap();
    registry.close().await;
    snapshot
}

#[tokio::test]
async fn a_start_with_a_snapshot_equals_a_full_replay() {
    let store = store_with_long_journal().await;
    let replayed = open_long(&store, false).await;
    assert_eq!(store.snapshot().await.unwrap(), None, "a command writes none");
    let snapshot = write_snapshot(&store).await;
    assert_eq!(snapshot.position.seq, 12_004);

    let registry = open_long(&store, false).await;
    assert_eq!(registry.inventory(), replayed.inventory());
    assert_eq!(registry.tokens().list(), replayed.tokens().list());
    assert_eq!(registry.store().verify().await.unwrap(), replayed.store().verify().await.unwrap());
    // The history does not depend on where the start began.
    for query in
        [HistoryQuery::default(), HistoryQuery::after(0), HistoryQuery::after(12_003), HistoryQuery::after(12_004)]
    {
        let (found, expected) = (registry.history().page(&query).await, replayed.history().page(&query).await);
        let (found, expected) = (found.unwrap(), expected.unwrap());
        assert_eq!((found.records.len(), found.next_after), (expected.records.len(), expected.next_after), "{query:?}");
        assert_eq!(found.records.last(), expected.records.last(), "{query:?}");
    }
    registry.close().await;

    // Records after the snapshot are read.
    append(&*store, &[Event::SourceDisabled { source: id("git") }]).await;
    let registry = open_long(&store, false).await;
    assert_eq!(registry.inventory().version, 12_005);
    assert!(!registry.inventory().source(&id("git")).unwrap().enabled);
    assert_eq!(registry.history().page(&HistoryQuery::after(12_003)).await.unwrap().records.len(), 2);
    registry.close().await;
}

#[tokio::test]
async fn an_unusable_snapshot_is_ignored_and_replaced() {
    let good = write_snapshot(&store_with_long_journal().await).await;
    let other_record = JournalPosition { seq: 12_003, ..good.position.clone() };
    let beyond = JournalPosition { seq: 99_999, ..good.position.clone() };
    let cases = [
        ("changed", StoredSnapshot { body: good.body.replace("push", "pull"), ..good.clone() }, true),
        ("no JSON", StoredSnapshot::new(good.position.clone(), env!("CARGO_PKG_VERSION"), "{".into()), true),
        ("other version", StoredSnapshot::new(good.position.clone(), "0.0.1", good.body.clone()), false),
        ("other record", StoredSnapshot::new(other_record, env!("CARGO_PKG_VERSION"), good.body.clone()), false),
        ("beyond the end", StoredSnapshot::new(beyond, env!("CARGO_PKG_VERSION"), good.body.clone()), false),
    ];
    for (what, unusable, is_fault) in cases {
        // A store of its own: one with a later snapshot would keep that.
        let store = store_with_long_journal().await;
        store.put_snapshot(&unusable).await.unwrap();
        assert_eq!(store.snapshot().await.unwrap().as_ref(), Some(&unusable), "{what}");
        let registry = open_long(&store, false).await;
        assert!(registry.inventory().source(&id("git")).unwrap().tools.contains_key("push"), "{what}");
        assert_eq!(registry.inventory().version, 12_004, "{what}");
        assert!(registry.store().damage_error().is_none(), "{what}");
        let faults = registry.store().verify().await.unwrap().faults;
        assert_eq!(faults.iter().any(|fault| fault.contains("snapshot")), is_fault, "{what}: {faults:?}");
        registry.close().await;
    }
}

#[tokio::test]
async fn verify_finds_a_snapshot_that_differs_from_the_journal() {
    let store = store_with_long_journal().await;
    let good = write_snapshot(&store).await;
    let body = good.body.replace("push", "fetch");
    store.put_snapshot(&StoredSnapshot::new(good.position, env!("CARGO_PKG_VERSION"), body)).await.unwrap();
    let registry = open_long(&store, false).await;
    let faults = registry.store().verify().await.unwrap().faults;
    assert!(faults.iter().any(|fault| fault.contains("snapshot of the inventory differs")), "{faults:?}");
    registry.close().await;
}
