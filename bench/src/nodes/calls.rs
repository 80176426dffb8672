//! Calls and reads of a node on PostgreSQL, compared with those of a node with SQLite.
//!
//! Both serve the same catalogue from memory, so the store should make no difference: a call leaves only a count, which
//! is written twice a second.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use toolcrib_testkit::postgres::PostgresServer;
use toolcrib_testkit::programs;

use super::cluster::{NodeFiles, NodeProcess};
use super::parts::PartsTable;
use super::processes::DatabaseProcesses;
use super::upstream::UpstreamServers;
use super::{SOURCES, TOOLS_PER_SOURCE};
use crate::Result;
use crate::http::{CLIENTS, REQUESTS_PER_CLIENT, search_paths, time_concurrent_clients};
use crate::measure::{measure_time, median, percentile, ratio};
use crate::proxy::{Agent, AgentProtocol, ListeningProcess};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of blocks of calls. All targets alternate, so that disturbances affect all.
const BLOCKS: usize = 120;
/// Number of calls or requests in a block.
const BLOCK_SIZE: usize = 50;
/// Number of measurements of the throughput.
const ROUNDS: usize = 7;
/// Maximum latency of a call on PostgreSQL relative to one on SQLite.
const MAX_CALL_RATIO: f64 = 1.05;
/// Page of the list that is read.
const PAGE: &str = "/api/tools?limit=100";

/// Node whose calls are measured.
struct CallTarget {
    agent: Agent,
    times: Vec<Duration>,
}

/// Starts one node on PostgreSQL and two with SQLite, of which the second shows how much equal nodes differ.
pub(super) fn run(report: &mut BenchReport, parts: &mut PartsTable, server: &PostgresServer) -> Result<()> {
    let bare = ListeningProcess::start(&mut Command::new(programs::toolcrib_binary().with_file_name("fast-http")))?;
    let upstream = UpstreamServers::start(SOURCES, TOOLS_PER_SOURCE, Duration::ZERO)?;
    let mut sources = upstream.sources.clone();
    sources.insert("bare".into(), json!({"url": bare.url}));
    let files = NodeFiles::new(&sources)?;
    let url = server.create_database();
    let shared = files.start_node("shared", &url)?;
    let single = files.start_sqlite_node("single")?;
    let other = files.start_sqlite_node("other")?;
    for node in [&shared, &single, &other] {
        node.discover_all()?;
    }
    let database = DatabaseProcesses::find(&url)?;
    let cpu_times = || -> Result<[Duration; 3]> { Ok([shared.cpu_time()?, database.cpu_time()?, single.cpu_time()?]) };
    let before = cpu_times()?;
    measure_calls(report, [&shared, &single, &other])?;
    drop(other);
    add_cpu_ratio(report, before, cpu_times()?);
    measure_pages(report, [&shared, &single])?;
    // The first round is a warm-up and not counted: it builds what a node keeps for search.
    for node in [&shared, &single] {
        time_concurrent_clients(&node.address, &search_paths(), "")?;
    }
    let before = [shared.cpu_time()?, database.cpu_time()?];
    measure_searches(report, [&shared, &single])?;
    let searches = ROUNDS * CLIENTS * REQUESTS_PER_CLIENT;
    add_cpu_times(parts, ("search that is cached", searches), before, [shared.cpu_time()?, database.cpu_time()?]);
    Ok(())
}

/// Compares the CPU time of a call on PostgreSQL, that of the database included, with that of a call with SQLite. The
/// work that a node does without calls counts, also that during the blocks of the other nodes.
fn add_cpu_ratio(report: &mut BenchReport, before: [Duration; 3], after: [Duration; 3]) {
    let calls = ((BLOCKS + 1) * BLOCK_SIZE) as u32;
    let [shared, database, single] = [0, 1, 2].map(|index| (after[index] - before[index]) / calls);
    report.add_row(RatioRow {
        bench: "nodes",
        measured: format!(
            "CPU time of these calls on PostgreSQL, for each: {} on the node and {} on the database",
            format_duration(shared),
            format_duration(database)
        ),
        baseline: format!("with SQLite: {} on the node", format_duration(single)),
        ratio: ratio(shared + database, single),
        threshold: Threshold::None,
    });
}

/// Adds the CPU time of node and database for some requests to the node.
fn add_cpu_times(parts: &mut PartsTable, (name, count): (&str, usize), before: [Duration; 2], after: [Duration; 2]) {
    let [node, database] = [after[0] - before[0], after[1] - before[1]];
    parts.add(
        format!("CPU time of a {name} on a node; of the database for {count} of them"),
        format!("{}; {:.2} s", format_duration(node / count as u32), database.as_secs_f64()),
    );
}

/// Calls a tool that echoes on all nodes, in blocks in turn.
fn measure_calls(report: &mut BenchReport, nodes: [&NodeProcess; 3]) -> Result<()> {
    let connect = |node: &NodeProcess| {
        Ok(CallTarget { agent: Agent::connect(&node.mcp_url(), AgentProtocol::Modern)?, times: Vec::new() })
    };
    let mut targets = nodes.into_iter().map(connect).collect::<Result<Vec<CallTarget>>>()?;
    // The first block is a warm-up and not counted.
    for block in 0..=BLOCKS {
        for CallTarget { agent, times } in &mut targets {
            for call in 0..BLOCK_SIZE {
                let (time, result) = measure_time(|| agent.call("bare__echo", &format!("block {block}, call {call}")));
                result?;
                if block > 0 {
                    times.push(time);
                }
            }
        }
    }
    let times: Vec<Vec<Duration>> = targets.into_iter().map(|target| target.times).collect();
    let [shared, single, other] = &times[..] else { return Err("a node was not measured".into()) };
    let bar = || Threshold::AtMost(MAX_CALL_RATIO, "SQLite".into());
    for (label, times, threshold) in
        [("on PostgreSQL", shared, bar()), ("on a second node with SQLite", other, Threshold::None)]
    {
        let time = median(times.clone());
        let baseline = median(single.clone());
        report.add_row(RatioRow {
            bench: "nodes",
            measured: format!("`tools/call` (2026-07-28) {label}, median: {}", format_duration(time)),
            baseline: format!("with SQLite: {}", format_duration(baseline)),
            ratio: ratio(time, baseline),
            threshold,
        });
    }
    let [time, baseline] = [shared, single].map(|times| percentile(times, 0.99));
    report.add_row(RatioRow {
        bench: "nodes",
        measured: format!("the same on PostgreSQL, 99th percentile: {}", format_duration(time)),
        baseline: format!("with SQLite: {}", format_duration(baseline)),
        ratio: ratio(time, baseline),
        threshold: Threshold::None,
    });
    Ok(())
}

/// Reads a page of the list that the client has already.
fn measure_pages(report: &mut BenchReport, nodes: [&NodeProcess; 2]) -> Result<()> {
    let mut targets = Vec::new();
    for node in nodes {
        let mut client = node.connect()?;
        let tag = client.get(PAGE, "")?.etag;
        targets.push((client, format!("If-None-Match: {tag}\r\n"), Vec::new()));
    }
    for block in 0..=BLOCKS {
        for (client, headers, times) in &mut targets {
            for _ in 0..BLOCK_SIZE {
                let (time, response) = measure_time(|| client.get(PAGE, headers));
                response?;
                if block > 0 {
                    times.push(time);
                }
            }
        }
    }
    let medians: Vec<Duration> = targets.into_iter().map(|(_, _, times)| median(times)).collect();
    let [shared, single] = medians[..] else { return Err("a node was not measured".into()) };
    report.add_row(RatioRow {
        bench: "nodes",
        measured: format!(
            "a page of 100 of 10,000 tools with its `ETag`, on PostgreSQL, median: {}",
            format_duration(shared)
        ),
        baseline: format!("with SQLite: {}", format_duration(single)),
        ratio: ratio(shared, single),
        threshold: Threshold::None,
    });
    Ok(())
}

/// Measures searches of several clients at once.
fn measure_searches(report: &mut BenchReport, nodes: [&NodeProcess; 2]) -> Result<()> {
    let queries = search_paths();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (node, times) in nodes.iter().zip(&mut times) {
            times.push(time_concurrent_clients(&node.address, &queries, "")?);
        }
    }
    let [shared, single] = times.map(median);
    let per_second = |time: Duration| (CLIENTS * REQUESTS_PER_CLIENT) as f64 / time.as_secs_f64();
    report.add_row(RatioRow {
        bench: "nodes",
        measured: format!(
            "`GET /api/search` on PostgreSQL, {CLIENTS} clients at once: {:.0} a second",
            per_second(shared)
        ),
        baseline: format!("with SQLite: {:.0} a second", per_second(single)),
        ratio: per_second(shared) / per_second(single),
        threshold: Threshold::None,
    });
    Ok(())
}
