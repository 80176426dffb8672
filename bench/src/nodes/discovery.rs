//! Discovery of 200 sources by one node, and by three that share it.

use std::thread;
use std::time::Duration;

use toolcrib_testkit::postgres::PostgresServer;

use super::cluster::{NodeFiles, NodeProcess, wait_for_equal_positions};
use super::upstream::UpstreamServers;
use crate::Result;
use crate::measure::{measure_time, median, ratio};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of sources.
const SOURCES: usize = 200;
/// Number of tools of each source.
const TOOLS_PER_SOURCE: usize = 10;
/// Number of nodes that share the sources.
const NODES: usize = 3;
/// Time that each server takes for its list, in two measurements: one bound by the machine, one by the servers.
const DELAYS: [(&str, Duration); 2] =
    [("that answer at once", Duration::ZERO), ("of 1 s each", Duration::from_secs(1))];
/// Number of measurements of each kind.
const ROUNDS: usize = 3;

/// Discovery by several nodes.
struct SharedDiscovery {
    /// Until all nodes have all lists.
    time: Duration,
    /// Sources that each node has contacted.
    contacted: Vec<u64>,
}

/// Compares both, with servers that answer at once and with slow ones.
pub(super) fn run(report: &mut BenchReport, server: &PostgresServer) -> Result<()> {
    for (label, delay) in DELAYS {
        let upstream = UpstreamServers::start(SOURCES, TOOLS_PER_SOURCE, delay)?;
        let mut alone = Vec::new();
        let mut together = Vec::new();
        let mut shares = Vec::new();
        let mut uses_all = true;
        for _ in 0..ROUNDS {
            alone.push(discover(server, &upstream, 1)?.time);
            let SharedDiscovery { time, contacted } = discover(server, &upstream, NODES)?;
            together.push(time);
            uses_all &= contacted.iter().sum::<u64>() == SOURCES as u64 && contacted.iter().all(|count| *count > 0);
            shares.push(contacted.iter().map(u64::to_string).collect::<Vec<_>>().join(" + "));
        }
        let shares = shares.join(", ");
        let (alone, together) = (median(alone), median(together));
        report.add_row(RatioRow {
            bench: "nodes",
            measured: format!(
                "{SOURCES} sources {label}, discovered by {NODES} nodes: {}; contacted by each, {ROUNDS} runs: {shares}",
                format_duration(together)
            ),
            baseline: format!("by one node: {}", format_duration(alone)),
            ratio: ratio(together, alone),
            threshold: Threshold::Condition(uses_all, "each source once, by all nodes".into()),
        });
    }
    Ok(())
}

/// Lets new nodes on a new store discover all sources. All are asked for it at the same time.
fn discover(server: &PostgresServer, upstream: &UpstreamServers, count: usize) -> Result<SharedDiscovery> {
    let files = NodeFiles::new(&upstream.sources)?;
    let nodes = files.start_nodes(count, &server.create_database())?;
    wait_for_equal_positions(&nodes)?;
    let (time, contacted) = measure_time(|| -> Result<Vec<u64>> {
        let contacted = discover_at_once(&nodes)?;
        wait_for_equal_positions(&nodes)?;
        Ok(contacted)
    });
    Ok(SharedDiscovery { time, contacted: contacted? })
}

/// Asks all nodes for a refresh of all sources.
fn discover_at_once(nodes: &[NodeProcess]) -> Result<Vec<u64>> {
    let outcomes = thread::scope(|scope| {
        let refreshing: Vec<_> = nodes
            .iter()
            // The boxed error is not `Send`.
            .map(|node| scope.spawn(|| node.discover_all().map_err(|error| error.to_string())))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        };
        refreshing.into_iter().map(join).collect::<std::result::Result<Vec<u64>, String>>()
    });
    Ok(outcomes?)
}
