//! Growth of the cost of a write, of lists and of discovery with the number of sources, of nodes and of counted tools.
//!
//! A node that learns of a write reads the new records, and the statuses of all sources. Counts and nodes are read by
//! polls.

use std::thread;
use std::time::{Duration, Instant};

use toolcrib_testkit::postgres::{PostgresServer, run_sql};

use super::cluster::{NodeFiles, NodeProcess, wait_for_equal_positions};
use super::first_tool;
use super::processes::DatabaseProcesses;
use super::propagation::measure_propagation;
use super::upstream::UpstreamServers;
use crate::Result;
use crate::measure::{measure_time, percentile};
use crate::proxy::{Agent, AgentProtocol};
use crate::report::{BenchReport, format_duration};

/// Numbers of sources, each with one tool.
const SIZES: [usize; 3] = [100, 300, 1_000];
/// Number of nodes.
const NODES: usize = 3;
/// Number of writes at each size.
const WRITES: usize = 100;
/// Time between two writes, and between two lists.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of lists at each size.
const LISTS: usize = 100;
/// Adds reports of nodes that do not exist to the smallest store.
const ADD_NODES: &str = "INSERT INTO nodes SELECT 'absent-' || number, 'absent', '0.0.0', 1, now() \
    FROM generate_series(1, 1000) AS number";
/// Adds statuses of sources that are not declared: nodes read them, and publish nothing of them.
const ADD_STATUSES: &str = "INSERT INTO statuses (source, started_at, body) \
    SELECT 'absent_' || number, started_at, body \
    FROM (SELECT * FROM statuses LIMIT 1) AS status, generate_series(1, 900) AS number";
/// Adds counts of tools.
const ADD_COUNTS: &str = "INSERT INTO call_counts \
    SELECT 'source_000', 'tool-' || number, 1, 0, 1, NULL FROM generate_series(1, 10000) AS number";
/// First lines of the table.
const HEAD: &str = "\
| 3 nodes, one tool for each source | first start | discovery by one node | a write until all nodes show it: median, 99th percentile \
| CPU time of a write on a node | on the database | CPU time of a second with 10 lists on one of the other nodes | on the database \
| memory of a node |
|---|---:|---:|---|---:|---:|---:|---:|---:|
";

/// Nodes of one size.
struct GrowthTarget {
    _upstream: UpstreamServers,
    _files: NodeFiles,
    nodes: Vec<NodeProcess>,
    database: DatabaseProcesses,
    url: String,
    /// First two columns.
    begin: String,
}

/// Adds a table with a line for each size.
pub(super) fn run(report: &mut BenchReport, server: &PostgresServer) -> Result<()> {
    let mut table = HEAD.to_owned();
    for (index, size) in SIZES.into_iter().enumerate() {
        let target = GrowthTarget::start(server, size)?;
        table.push_str(&target.measure(&format!("{size} sources"), &target.begin)?);
        if index == 0 {
            run_sql(&target.url, ADD_NODES);
            table.push_str(&target.measure(&format!("{size} sources, 1,000 nodes in the table"), "– | –")?);
            run_sql(&target.url, "DELETE FROM nodes WHERE label = 'absent'");
            run_sql(&target.url, ADD_STATUSES);
            table.push_str(&target.measure(&format!("{size} sources, 900 further statuses"), "– | –")?);
            run_sql(&target.url, "DELETE FROM statuses WHERE source LIKE 'absent%'");
            run_sql(&target.url, ADD_COUNTS);
            table.push_str(&target.measure(&format!("{size} sources, 10,000 tools with counts"), "– | –")?);
        }
    }
    report.add_table(table);
    Ok(())
}

impl GrowthTarget {
    fn start(server: &PostgresServer, size: usize) -> Result<GrowthTarget> {
        let upstream = UpstreamServers::start(size, 1, Duration::ZERO)?;
        let files = NodeFiles::new(&upstream.sources)?;
        let url = server.create_database();
        // The first start declares all sources.
        let (declared, first) = measure_time(|| files.start_node("node-0", &url));
        let first = first?;
        let (discovered, outcome) = measure_time(|| first.discover_all());
        outcome?;
        let mut nodes = vec![first];
        for number in 1..NODES {
            nodes.push(files.start_node(&format!("node-{number}"), &url)?);
        }
        wait_for_equal_positions(&nodes)?;
        let begin = format!("{} | {}", format_duration(declared), format_duration(discovered));
        let database = DatabaseProcesses::find(&url)?;
        Ok(GrowthTarget { _upstream: upstream, _files: files, nodes, database, url, begin })
    }

    /// Returns a line of the table.
    fn measure(&self, label: &str, begin: &str) -> Result<String> {
        let tool = first_tool(&self.nodes)?;
        // The first writes prepare the statements of each connection.
        measure_propagation(&self.nodes, &tool, NODES * 2, INTERVAL)?;
        let before = (self.nodes_cpu_time()?, self.database.cpu_time()?);
        let times = measure_propagation(&self.nodes, &tool, WRITES, INTERVAL)?;
        let after = (self.nodes_cpu_time()?, self.database.cpu_time()?);
        let lists = self.measure_lists()?;
        let memory = self.nodes.last().ok_or("there are no nodes")?.resident_memory()?;
        Ok(format!(
            "| {label} | {begin} | {}, {} | {} | {} | {} | {} | {:.0} MB |\n",
            format_duration(percentile(&times.since_request, 0.5)),
            format_duration(percentile(&times.since_request, 0.99)),
            format_duration((after.0 - before.0) / (WRITES * NODES) as u32),
            format_duration((after.1 - before.1) / WRITES as u32),
            format_duration(lists.0),
            format_duration(lists.1),
            memory as f64 / 1e6,
        ))
    }

    /// Lists the tools on the first node at a fixed rate. Each list counts a lookup of each source, and the counts are
    /// written twice a second. Returns the CPU time of a second on the last node, which serves nothing, and on the
    /// database.
    fn measure_lists(&self) -> Result<(Duration, Duration)> {
        let [first, .., last] = &self.nodes[..] else { return Err("there are no nodes".into()) };
        let mut agent = Agent::connect(&first.mcp_url(), AgentProtocol::Modern)?;
        let before = (last.cpu_time()?, self.database.cpu_time()?);
        let began = Instant::now();
        for number in 0..LISTS {
            thread::sleep((began + INTERVAL * number as u32).saturating_duration_since(Instant::now()));
            agent.list_tools()?;
        }
        let seconds = began.elapsed().as_secs_f64();
        let after = (last.cpu_time()?, self.database.cpu_time()?);
        Ok(((after.0 - before.0).div_f64(seconds), (after.1 - before.1).div_f64(seconds)))
    }

    fn nodes_cpu_time(&self) -> Result<Duration> {
        self.nodes.iter().map(NodeProcess::cpu_time).sum()
    }
}
