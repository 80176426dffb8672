//! A journal that is longer than its part in memory.

use std::sync::Arc;

use toolcrib::config::Config;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::{Actor, Event};
use toolcrib::registry::HistoryQuery;
use toolcrib::store::{Commit, MemoryStore, Store};
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
