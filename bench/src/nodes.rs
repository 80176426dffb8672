//! Several nodes on one PostgreSQL store: real processes on loopback addresses, and a real server.
//!
//! Three things have thresholds: how soon all nodes show a write, what the store adds to a call, and how long a start
//! with a long journal takes. The others are the parts from which docs/scale.md computes larger clusters; two cores
//! cannot show those.

mod propagation;

mod calls;

mod balancer;

mod start;

mod discovery;

mod growth;
mod listeners;
mod recovery;
mod sizes;
mod statements;

mod cluster;
mod parts;
mod processes;
mod upstream;

use std::time::Duration;

use serde_json::Value;
use toolcrib_testkit::postgres::{PostgresServer, run_sql};

use crate::Result;
use crate::measure::{percentile, ratio};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};
use cluster::{NodeFiles, NodeProcess, wait_for_equal_positions};
use parts::PartsTable;
use propagation::{measure_propagation, write_at_once};
use upstream::UpstreamServers;

/// Number of nodes.
const NODES: usize = 3;
/// Number of sources of the catalogue.
const SOURCES: usize = 50;
/// Number of tools of each source.
const TOOLS_PER_SOURCE: usize = 200;
/// Number of writes whose propagation is measured.
const WRITES: usize = 500;
/// Time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);
/// Number of concurrent writers.
const WRITERS: usize = 6;
/// Maximum time from a write until all nodes show it, as the 99th percentile.
const MAX_PROPAGATION: Duration = Duration::from_millis(250);

/// Query for the version of the server, and whether it confirms a commit when it is on the disk.
const DESCRIBE_SERVER: &str = "SELECT 'PostgreSQL ' || current_setting('server_version') || ', fsync ' || \
    current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit')";

/// Runs all parts on one server.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let mut server = PostgresServer::start_durable().ok_or("PostgreSQL is not installed")?;
    let mut parts = PartsTable::default();
    parts.add("server", run_sql(&server.url("postgres"), DESCRIBE_SERVER));
    measure_writes(report, &mut parts, &server)?;
    calls::run(report, &mut parts, &server)?;
    balancer::run(report, &mut parts, &server)?;
    start::run(report, &mut parts, &server)?;
    discovery::run(report, &server)?;
    growth::run(report, &server)?;
    listeners::run(&mut parts, &server)?;
    statements::run(&mut parts)?;
    sizes::run(&mut parts, &server)?;
    recovery::run(&mut parts, &mut server)?;
    parts.print(report);
    Ok(())
}

/// Measures how soon all nodes show a write.
fn measure_writes(report: &mut BenchReport, parts: &mut PartsTable, server: &PostgresServer) -> Result<()> {
    let upstream = UpstreamServers::start(SOURCES, TOOLS_PER_SOURCE, Duration::ZERO)?;
    let files = NodeFiles::new(&upstream.sources)?;
    let nodes = files.start_nodes(NODES, &server.create_database())?;
    nodes.iter().try_for_each(|node| node.discover_all().map(drop))?;
    wait_for_equal_positions(&nodes)?;
    let times = measure_propagation(&nodes, &first_tool(&nodes)?, WRITES, WRITE_INTERVAL)?;
    let series = [
        ("from the request of a write", &times.since_request, Threshold::AtMost(1.0, "99th percentile".into())),
        ("from its response", &times.since_response, Threshold::None),
    ];
    for (label, times, threshold) in series {
        let late = percentile(times, 0.99);
        report.add_row(RatioRow {
            bench: "nodes",
            measured: format!(
                "{label} until all {NODES} nodes show it, {WRITES} writes, 20 a second: median {}, 99th percentile {}",
                format_duration(percentile(times, 0.5)),
                format_duration(late)
            ),
            baseline: format!("allowed: {}", format_duration(MAX_PROPAGATION)),
            ratio: ratio(late, MAX_PROPAGATION),
            threshold,
        });
    }
    for writers in [1, WRITERS] {
        let tools = first_tools(&nodes, writers)?;
        let (writes, time) = write_at_once(&nodes, &tools, WRITES / writers)?;
        parts.add(
            format!("writes a second without a pause, with {NODES} nodes; writers: {writers}"),
            format!("{:.0}", writes as f64 / time.as_secs_f64()),
        );
    }
    Ok(())
}

/// Returns the name of the first tool.
fn first_tool(nodes: &[NodeProcess]) -> Result<String> {
    first_tools(nodes, 1)?.pop().ok_or_else(|| "the list is empty".into())
}

/// Returns the names of the first tools.
fn first_tools(nodes: &[NodeProcess], count: usize) -> Result<Vec<String>> {
    let node = nodes.first().ok_or("there are no nodes")?;
    let list: Value = serde_json::from_slice(&node.connect()?.get(&format!("/api/tools?limit={count}"), "")?.body)?;
    let tools = list["tools"].as_array().ok_or("there is no list")?;
    Ok(tools.iter().filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect())
}
