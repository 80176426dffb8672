//! Nodes on one PostgreSQL store share the discoveries of their sources, and take over those of a node that has ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::Actor;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::DiscoveryStatus;
use toolcrib::store::{Commit, CommitOutcome, DiscoveryCheck, Lease, Measurement, PostgresStore, SourceStatus, Store};
use toolcrib::testkit::{ScriptedSource, config_with_sources, open_with_connectors};
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_testkit::{postgres, programs};

use crate::support::{cached_tools, force_refresh, id, wait_until};

const NODE_COUNT: usize = 3;
/// Duration of a discovery, so that it costs more than the lease that it needs.
const DISCOVERY_TIME: Duration = Duration::from_millis(20);

/// Registry with sources of its own, which count the discoveries of this node.
struct DiscoveringNode {
    registry: Registry,
    sources: Vec<Arc<ScriptedSource>>,
}

impl DiscoveringNode {
    async fn open(url: &str, names: &[String]) -> DiscoveringNode {
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(url).await.unwrap());
        let options = RegistryOptions { store: Some(store), environment: Vec::new(), ..RegistryOptions::default() };
        let sources: Vec<Arc<ScriptedSource>> = names.iter().map(|_| ScriptedSource::new(["look_up"])).collect();
        sources.iter().for_each(|source| source.set_delay(DISCOVERY_TIME));
        let factory = ScriptedSource::connector_factory(names.iter().map(String::as_str).zip(&sources));
        let config = config_with_sources(names.iter().map(String::as_str));
        let registry = open_with_connectors(config, options, factory).await.unwrap();
        DiscoveringNode { registry, sources }
    }

    async fn refresh_all(&self) {
        let outcomes = self.registry.refresh(Refresh::default()).await;
        for outcome in outcomes {
            assert_ne!(outcome.status, RefreshStatus::Failed, "{outcome:?}");
        }
    }

    fn discoveries(&self) -> usize {
        self.sources.iter().map(|source| source.discoveries()).sum()
    }
}

/// Opens the nodes one after the other: the first one creates the tables and declares the sources.
async fn open_nodes(url: &str, count: usize, names: &[String]) -> Vec<DiscoveringNode> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(DiscoveringNode::open(url, names).await);
    }
    nodes
}

fn source_names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("s{number:03}")).collect()
}

/// How often all nodes together have contacted each source.
fn contacts(nodes: &[DiscoveringNode], names: &[String]) -> Vec<usize> {
    let count = |index: usize| nodes.iter().map(|node| node.sources[index].discoveries()).sum();
    (0..names.len()).map(count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovering_200_sources_over_three_nodes_uses_all_three() {
    let name = "discovering_200_sources_over_three_nodes_uses_all_three";
    assert_all_nodes_discover(name, 200).await;
}

/// Fewer sources than one node would discover at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovering_30_sources_over_three_nodes_uses_all_three() {
    assert_all_nodes_discover("discovering_30_sources_over_three_nodes_uses_all_three", 30).await;
}

async fn assert_all_nodes_discover(test: &str, source_count: usize) {
    let Some(url) = postgres::shared_database() else { return programs::skip(test, "PostgreSQL is not installed") };
    let names = source_names(source_count);
    let nodes = open_nodes(&url, NODE_COUNT, &names).await;
    // At once: nodes that start together do not know of each other yet.
    join_all(nodes.iter().map(DiscoveringNode::refresh_all)).await;

    assert_eq!(contacts(&nodes, &names), vec![1; source_count], "each source is contacted once");
    let shares: Vec<usize> = nodes.iter().map(DiscoveringNode::discoveries).collect();
    // An equal share is a third; how far the shares differ depends on the scheduler.
    assert!(shares.iter().all(|share| *share >= source_count / 10), "{shares:?}");
    for node in &nodes {
        wait_until("the node lists all tools", || cached_tools(&node.registry).len() == source_count).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discoveries_of_a_node_that_has_ended_are_taken_over() {
    const ABANDONED_COUNT: usize = 8;
    let name = "discoveries_of_a_node_that_has_ended_are_taken_over";
    let Some(url) = postgres::shared_database() else { return programs::skip(name, "PostgreSQL is not installed") };
    let names = source_names(3 * ABANDONED_COUNT);
    let nodes = open_nodes(&url, 2, &names).await;
    let abandoned: Vec<_> = names[..ABANDONED_COUNT].iter().map(|name| id(name)).collect();
    // A node that holds leases and will not release them. Its holder is none of the nodes above.
    let ended = PostgresStore::open(&url).await.unwrap();
    for source in &abandoned {
        let lease = ended.acquire_lease(source, "ended", Duration::from_secs(60)).await.unwrap();
        assert_eq!(lease, Lease::Granted);
    }

    let taking_over = async {
        let others = || contacts(&nodes, &names)[ABANDONED_COUNT..].iter().all(|count| *count == 1);
        wait_until("the other sources are discovered", others).await;
        assert_eq!(contacts(&nodes, &names)[..ABANDONED_COUNT], [0; ABANDONED_COUNT], "their lease is held");
        let status = |node: &DiscoveringNode| node.registry.sources().get(&abandoned[0]).unwrap().status;
        wait_until("all nodes know that", || nodes.iter().all(|node| status(node) == DiscoveryStatus::Discovering))
            .await;
        // The time in which nothing renews the leases, without the wait.
        for source in &abandoned {
            assert!(ended.renew_lease(source, "ended", Duration::ZERO).await.unwrap());
        }
    };
    tokio::join!(join_all(nodes.iter().map(DiscoveringNode::refresh_all)), taking_over);

    assert_eq!(contacts(&nodes, &names), vec![1; names.len()], "each source is contacted once");
    for source in &abandoned {
        let is_renewed = ended.renew_lease(source, "ended", Duration::from_secs(60)).await.unwrap();
        assert!(!is_renewed, "a node that wakes up has lost its lease");
    }
}

/// When the holder of a lease that was taken over notices it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakeoverNotice {
    /// When it records its result.
    Record,
    /// When it renews the lease.
    Renewal,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_lease_records_nothing() {
    let name = "a_node_that_lost_its_lease_records_nothing";
    for notice in [TakeoverNotice::Record, TakeoverNotice::Renewal] {
        let Some(url) = postgres::shared_database() else { return programs::skip(name, "PostgreSQL is not installed") };
        let node = DiscoveringNode::open(&url, &source_names(1)).await;
        let (source, scripted) = (id("s000"), &node.sources[0]);
        let store = PostgresStore::open(&url).await.unwrap();
        scripted.pause();
        let taking_over = async {
            wait_until("the discovery has begun", || scripted.discoveries() == 1).await;
            // The node was paused for longer than its lease.
            postgres::run_sql(&url, "UPDATE leases SET holder = 'successor', until = now() + interval '1 minute'");
            record_check(&store, "successor").await;
            if notice == TakeoverNotice::Record {
                scripted.resume();
            }
        };
        let (outcome, ()) = tokio::join!(force_refresh(&node.registry, "s000"), taking_over);
        let has_result = notice == TakeoverNotice::Record;
        assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Unchanged, has_result), "{notice:?}");
        assert_eq!(scripted.discoveries(), 1, "{notice:?}");
        assert_eq!(cached_tools(&node.registry), [""; 0], "{notice:?}");
        let checks = store.checks(&source).await.unwrap();
        assert_eq!(checks.iter().map(|check| check.at).collect::<Vec<_>>(), [SUCCESSOR_STARTED_AT], "{notice:?}");
        scripted.resume();
    }
}

const SUCCESSOR_STARTED_AT: Timestamp = Timestamp(1_790_000_000_000);

/// Records an unchanged list, as the holder of the lease of `s000`.
async fn record_check(store: &PostgresStore, holder: &str) {
    let status = SourceStatus {
        started_at: SUCCESSOR_STARTED_AT,
        checked_at: Some(SUCCESSOR_STARTED_AT),
        ..SourceStatus::default()
    };
    let check = DiscoveryCheck {
        source: id("s000"),
        at: SUCCESSOR_STARTED_AT,
        duration_ms: 1,
        tool_count: Some(0),
        error: None,
        transition: None,
    };
    let head = store.records(0, 1_000).await.unwrap().len() as u64;
    let measurement = Some(Measurement::from_check(&check, &status).under_lease(holder));
    let actor = Actor::new("successor");
    let at = SUCCESSOR_STARTED_AT;
    let commit = Commit { expected_head: head, first_seq: head + 1, at, actor: &actor, events: &[], measurement };
    assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Committed);
}
