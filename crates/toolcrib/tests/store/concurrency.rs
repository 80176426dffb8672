//! Properties of stores with several writers: leases, and commits of which one wins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toolcrib::store::{Commit, CommitOutcome, Lease, Measurement, SourceStatus, Store};

use super::{AT, TestStore, actor, append, check, commit_check, id, record, status_started_at, tool_disabled};

pub(super) async fn one_holder_discovers_a_source_at_a_time(test_store: TestStore) {
    let store = test_store.open().await;
    let long = Duration::from_secs(60);
    let short = Duration::from_millis(50);
    let granted = async |source: &str, holder: &str, duration| match store
        .acquire_lease(&id(source), holder, duration)
        .await
        .unwrap()
    {
        Lease::Granted => true,
        Lease::HeldFor(remaining) => {
            assert!(remaining <= long, "{remaining:?}");
            false
        }
    };
    assert!(granted("a", "one", short).await);
    assert!(store.renew_lease(&id("a"), "one", long).await.unwrap());
    tokio::time::sleep(short * 2).await;
    assert!(!granted("a", "two", long).await);
    assert!(granted("b", "two", short).await);
    tokio::time::sleep(short * 2).await;
    assert!(granted("b", "one", long).await, "the lease has ended");

    store.release_lease(&id("b"), "two").await.unwrap();
    assert!(!granted("b", "two", long).await, "a lease that passed to another is not released by its former holder");
    store.release_lease(&id("b"), "one").await.unwrap();
    assert!(granted("b", "two", long).await);
}

pub(super) async fn a_lost_lease_cannot_be_renewed_or_used(test_store: TestStore) {
    let store = test_store.open().await;
    let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
    let commit = async |holder: &str, time| {
        let (check, status) = (check("a", time), status_started_at(time));
        let measurement = Some(Measurement::from_check(&check, &status).under_lease(holder));
        let events = [tool_disabled(holder)];
        let expected_head = store.records(0, 10).await.unwrap().len() as u64;
        let first_seq = expected_head + 1;
        let commit = Commit { expected_head, first_seq, at: AT, actor: &actor(), events: &events, measurement };
        store.commit(commit).await.unwrap()
    };
    assert_eq!(commit("one", 1).await, CommitOutcome::Superseded, "without a lease");
    assert_eq!(store.acquire_lease(&id("a"), "one", short).await.unwrap(), Lease::Granted);
    assert_eq!(commit("one", 2).await, CommitOutcome::Committed);
    tokio::time::sleep(short * 2).await;
    // It has expired, and no other holder wants it: the discovery may still end.
    assert!(store.renew_lease(&id("a"), "one", short).await.unwrap());
    tokio::time::sleep(short * 2).await;
    assert_eq!(commit("one", 3).await, CommitOutcome::Committed);
    assert_eq!(store.acquire_lease(&id("a"), "two", long).await.unwrap(), Lease::Granted);
    assert!(!store.renew_lease(&id("a"), "one", long).await.unwrap());
    assert_eq!(commit("one", 4).await, CommitOutcome::Superseded);
    assert_eq!(commit("two", 5).await, CommitOutcome::Committed);
    assert_eq!(store.records(0, 10).await.unwrap().len(), 3);
}

pub(super) async fn a_held_lease_marks_its_source_as_being_discovered(test_store: TestStore) {
    let store = test_store.open().await;
    commit_check(&*store, 0, check("a", 1), status_started_at(1)).await;
    let long = Duration::from_secs(60);
    for source in ["a", "new"] {
        store.acquire_lease(&id(source), "one", long).await.unwrap();
    }
    let statuses = store.source_statuses().await.unwrap();
    assert!(statuses.values().all(SourceStatus::is_being_discovered), "{statuses:?}");
    assert_eq!(statuses.keys().cloned().collect::<Vec<_>>(), [id("a"), id("new")]);

    // A `discovering_until` in a commit is ignored.
    let discovering_until = Some(tokio::time::Instant::now() + long);
    commit_check(&*store, 0, check("a", 2), SourceStatus { discovering_until, ..status_started_at(2) }).await;
    for source in ["a", "new"] {
        store.release_lease(&id(source), "one").await.unwrap();
    }
    assert_eq!(store.source_statuses().await.unwrap(), BTreeMap::from([(id("a"), status_started_at(2))]));
}

pub(super) async fn an_invalidation_during_a_discovery_is_kept(test_store: TestStore) {
    let (one, other) = (test_store.open().await, test_store.open().await);
    let long = Duration::from_secs(60);
    let discover = async |holder: &str, time, invalidate: bool| {
        assert_eq!(one.acquire_lease(&id("a"), holder, long).await.unwrap(), Lease::Granted);
        if invalidate {
            other.invalidate(&id("a")).await.unwrap();
        }
        assert_eq!(commit_under_lease(&*one, holder, time).await, CommitOutcome::Committed);
        one.release_lease(&id("a"), holder).await.unwrap();
        one.source_statuses().await.unwrap()[&id("a")].invalidated
    };
    assert!(discover("one", 1, true).await, "also during the first discovery");
    assert!(discover("two", 2, true).await, "also of a source that was invalidated before");
    assert!(!discover("three", 3, false).await, "a discovery that starts later ends it");
}

pub(super) async fn leases_order_discoveries_whatever_the_clocks_say(test_store: TestStore) {
    let (one, other) = (test_store.open().await, test_store.open().await);
    let long = Duration::from_secs(60);
    for (store, holder, time) in [(&one, "one", 9), (&other, "two", 5)] {
        assert_eq!(store.acquire_lease(&id("a"), holder, long).await.unwrap(), Lease::Granted);
        assert_eq!(commit_under_lease(&**store, holder, time).await, CommitOutcome::Committed);
        store.release_lease(&id("a"), holder).await.unwrap();
    }
    assert_eq!(one.source_statuses().await.unwrap(), BTreeMap::from([(id("a"), status_started_at(5))]));
}

pub(super) async fn a_list_of_the_host_ends_the_lease_of_an_earlier_discovery(test_store: TestStore) {
    let (discovering, host) = (test_store.open().await, test_store.open().await);
    for (recorded_at, expected) in [(0, CommitOutcome::Committed), (2, CommitOutcome::Superseded)] {
        assert_eq!(discovering.acquire_lease(&id("a"), "one", Duration::from_secs(60)).await.unwrap(), Lease::Granted);
        commit_check(&*host, 0, check("a", recorded_at), status_started_at(recorded_at)).await;
        assert_eq!(commit_under_lease(&*discovering, "one", 1).await, expected, "recorded at {recorded_at}");
    }
    assert_eq!(host.source_statuses().await.unwrap(), BTreeMap::from([(id("a"), status_started_at(2))]));
}

pub(super) async fn a_completed_status_of_an_earlier_discovery_is_superseded(test_store: TestStore) {
    let store = test_store.open().await;
    for time in [9, 5] {
        assert_eq!(store.acquire_lease(&id("a"), "one", Duration::from_secs(60)).await.unwrap(), Lease::Granted);
        assert_eq!(commit_under_lease(&*store, "one", time).await, CommitOutcome::Committed);
    }
    let completed = SourceStatus { private: true, ..status_started_at(9) };
    let measurement = Some(Measurement { source: &id("a"), status: &completed, check: None, lease: None });
    let commit = Commit { expected_head: 0, first_seq: 1, at: AT, actor: &actor(), events: &[], measurement };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Superseded);
}

/// Commits a discovery of the source `a`.
async fn commit_under_lease(store: &dyn Store, holder: &str, time: i64) -> CommitOutcome {
    let (check, status) = (check("a", time), status_started_at(time));
    let measurement = Some(Measurement::from_check(&check, &status).under_lease(holder));
    let commit = Commit { expected_head: 0, first_seq: 1, at: AT, actor: &actor(), events: &[], measurement };
    store.commit(commit).await.unwrap()
}

pub(super) async fn concurrent_writers_lose_nothing(test_store: TestStore) {
    const WRITERS: usize = 8;
    const EACH: usize = 50;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = test_store.open().await;
        writers.spawn(async move {
            let mut head = 0;
            for number in 0..EACH {
                let tool = format!("{writer}-{number}");
                while append(&*store, head, &[&tool]).await == CommitOutcome::Conflict {
                    head += store.records(head, usize::MAX).await.unwrap().len() as u64;
                }
                head += 1;
            }
        });
    }
    writers.join_all().await;

    let records = test_store.open().await.records(0, usize::MAX).await.unwrap();
    assert!(records.iter().map(|record| record.seq).eq(1..=(WRITERS * EACH) as u64));
    let bodies: BTreeSet<&String> = records.iter().map(|record| &record.body).collect();
    assert_eq!(bodies.len(), WRITERS * EACH);
}

pub(super) async fn of_32_concurrent_writers_one_wins_each_time(test_store: TestStore) {
    const ROUNDS: u64 = 5;
    let stores = futures_util::future::join_all((0..32).map(|_| test_store.open())).await;
    for round in 0..ROUNDS {
        let mut writers = tokio::task::JoinSet::new();
        for (writer, store) in stores.iter().cloned().enumerate() {
            writers.spawn(async move { append(&*store, round, &[&format!("{round}-{writer}")]).await });
        }
        let outcomes = writers.join_all().await;
        let winners = outcomes.iter().filter(|outcome| **outcome == CommitOutcome::Committed).count();
        assert_eq!(winners, 1, "round {round}: {outcomes:?}");
    }
    let records = stores[0].records(0, 100).await.unwrap();
    assert!(records.iter().map(|record| record.seq).eq(1..=ROUNDS), "{records:?}");
}

pub(super) async fn two_handles_see_each_others_writes(test_store: TestStore) {
    let one = test_store.open().await;
    let two = test_store.open().await;
    append(&*one, 0, &["a"]).await;
    assert_eq!(append(&*two, 0, &["b"]).await, CommitOutcome::Conflict);
    assert_eq!(append(&*two, 1, &["b"]).await, CommitOutcome::Committed);
    assert_eq!(one.records(0, 10).await.unwrap(), [record(1, "a"), record(2, "b")]);

    let long = Duration::from_secs(60);
    assert_eq!(one.acquire_lease(&id("a"), "one", long).await.unwrap(), Lease::Granted);
    assert!(
        matches!(two.acquire_lease(&id("a"), "two", long).await.unwrap(), Lease::HeldFor(remaining) if remaining <= long)
    );

    commit_check(&*one, 2, check("a", 5), status_started_at(5)).await;
    assert_eq!(commit_check(&*two, 2, check("a", 6), status_started_at(4)).await, CommitOutcome::Superseded);
}
