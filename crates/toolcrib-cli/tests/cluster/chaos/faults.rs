//! Faults of nodes and of the database, in an order that a seed decides.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use toolcrib_testkit::postgres::{PostgresServer, StopMode};

use crate::cluster::nodes::{ServingNode, admin_header};
use crate::support::http::request;
use crate::support::test_server::TEST_TIMEOUT;

/// Maximum time between two faults.
const MAX_FAULT_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time for which the database is down.
const MAX_OUTAGE: Duration = Duration::from_secs(3);
/// Interval of looks at the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of attempts to start a node.
const MAX_STARTS: usize = 5;

/// When faults happen, in acknowledged changes.
#[derive(Debug)]
pub(super) struct FaultPlan {
    /// Changes after which there are no faults any more.
    pub(super) end: usize,
    /// Maximum number of changes between two faults of nodes.
    pub(super) max_interval: usize,
    /// Minimum number of nodes killed and paused; with fewer, the faults have come too late to test anything.
    pub(super) min_node_faults: usize,
    /// Restarts of the database.
    pub(super) restarts: Vec<(usize, StopMode)>,
}

/// Number of faults of each kind.
#[derive(Debug, Default)]
pub(super) struct FaultCounts {
    pub(super) kills: usize,
    pub(super) pauses: usize,
    pub(super) restarts: usize,
}

/// State of a node as the faults left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Running,
    Paused,
    Killed,
}

/// Causes faults until the end of the plan; at least one node is running at any time, and all of them afterwards.
pub(super) fn cause_faults(
    plan: &FaultPlan,
    nodes: &mut [ServingNode<'_>],
    postgres: &mut PostgresServer,
    progress: &AtomicUsize,
    random: &mut StdRng,
) -> FaultCounts {
    let mut counts = FaultCounts::default();
    let mut states = vec![NodeState::Running; nodes.len()];
    let mut restarts = plan.restarts.iter().peekable();
    let mut last_progress = (0, Instant::now());
    loop {
        let next = progress.load(Ordering::SeqCst) + random.random_range(1..=plan.max_interval);
        let reached = wait_for_progress(progress, next.min(plan.end));
        if reached > last_progress.0 {
            last_progress = (reached, Instant::now());
        }
        assert!(last_progress.1.elapsed() < TEST_TIMEOUT, "no change is acknowledged any more: {states:?}");
        if let Some((_, mode)) = restarts.next_if(|(at, _)| *at <= reached) {
            postgres.stop(*mode);
            std::thread::sleep(MAX_OUTAGE.mul_f64(random.random()));
            let running = nodes.iter().zip(&states).filter(|(_, state)| **state == NodeState::Running);
            running.for_each(|(node, _)| assert_reads_work(node));
            postgres.start_again();
            counts.restarts += 1;
        }
        if reached >= plan.end {
            break;
        }
        let index = random.random_range(0..nodes.len());
        let mut next = next_state(states[index], &states, random);
        // One fault of each kind first, so that no run is without.
        if next != NodeState::Running && (counts.kills == 0 || counts.pauses == 0) {
            next = if counts.kills == 0 { NodeState::Killed } else { NodeState::Paused };
        }
        change_state(&mut nodes[index], states[index], next);
        counts.kills += usize::from(next == NodeState::Killed && states[index] != next);
        counts.pauses += usize::from(next == NodeState::Paused && states[index] != next);
        states[index] = next;
    }
    for (node, state) in nodes.iter_mut().zip(states) {
        change_state(node, state, NodeState::Running);
    }
    counts
}

/// Asserts that a node reads from memory while the database is down.
fn assert_reads_work(node: &ServingNode<'_>) {
    for path in ["/api/tools", "/api/search?q=tool", "/api/tools?format=mcp"] {
        let response = request(&node.url, "GET", path, &admin_header(), "");
        assert_eq!(response.status, 200, "{path}: {response:?}");
    }
}

/// Waits until so many changes are acknowledged, but not longer than [`MAX_FAULT_INTERVAL`]. Returns their number.
fn wait_for_progress(progress: &AtomicUsize, count: usize) -> usize {
    let deadline = Instant::now() + MAX_FAULT_INTERVAL;
    while progress.load(Ordering::SeqCst) < count && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    progress.load(Ordering::SeqCst)
}

/// Chooses what happens to a node. The last one that is running goes on.
fn next_state(state: NodeState, states: &[NodeState], random: &mut impl Rng) -> NodeState {
    let running = states.iter().filter(|state| **state == NodeState::Running).count();
    match state {
        NodeState::Running if running == 1 => NodeState::Running,
        NodeState::Running if random.random() => NodeState::Killed,
        NodeState::Running => NodeState::Paused,
        // A paused node may be killed without ever waking up.
        NodeState::Paused if random.random_ratio(1, 4) => NodeState::Killed,
        NodeState::Paused | NodeState::Killed => NodeState::Running,
    }
}

fn change_state(node: &mut ServingNode<'_>, from: NodeState, to: NodeState) {
    match (from, to) {
        (NodeState::Killed, NodeState::Running) => start_again(node),
        (NodeState::Paused, NodeState::Running) => node.resume(),
        (NodeState::Running, NodeState::Paused) => node.pause(),
        (NodeState::Running | NodeState::Paused, NodeState::Killed) => node.kill(),
        _ => {}
    }
}

/// Starts a node like a supervisor: again if it ends, because the store was not available when it began.
fn start_again(node: &mut ServingNode<'_>) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    for _ in 0..MAX_STARTS {
        if node.start() {
            return;
        }
        assert!(Instant::now() < deadline);
    }
    panic!("node {} does not start: {}", node.label, node.log());
}
