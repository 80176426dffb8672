//! Statements that nodes send: idle, and for each write. Counted in the log of the server.

use std::thread;
use std::time::Duration;

use toolcrib_testkit::postgres::{PostgresServer, run_sql};

use super::cluster::{NodeFiles, wait_for_equal_positions};
use super::first_tool;
use super::parts::PartsTable;
use super::processes::{DatabaseProcesses, connection_memory};
use super::propagation::measure_propagation;
use super::upstream::UpstreamServers;
use crate::Result;
use crate::report::format_duration;

/// Number of nodes in the second measurement.
const NODES: usize = 3;
/// Number of sources, each with one tool.
const SOURCES: usize = 10;
/// Time for which idle nodes are observed.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Number of writes.
const WRITES: usize = 50;
/// Time between two writes. Notifications of writes in quick succession are handled together.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// Number of statements and of transactions in a log.
#[derive(Debug, Clone, Copy)]
struct StatementCounts {
    statements: usize,
    /// A statement outside of a transaction is one of its own.
    transactions: usize,
}

/// Counts with one node and with several.
pub(super) fn run(parts: &mut PartsTable) -> Result<()> {
    // A server of its own: its log has the statements of these nodes alone.
    let server = PostgresServer::start().ok_or("PostgreSQL is not installed")?;
    let upstream = UpstreamServers::start(SOURCES, 1, Duration::ZERO)?;
    let files = NodeFiles::new(&upstream.sources)?;
    let url = server.create_database();
    let (_, database) = url.rsplit_once('/').ok_or("the URL names no database")?;
    run_sql(&url, &format!("ALTER DATABASE {database} SET log_statement = 'all'"));
    // By a node that ends: its connections would stay for two minutes.
    let first = files.start_node("discovering", &url)?;
    let discovered = count_statements(&server, || first.discover_all().map(drop))?;
    drop(first);
    let per_source = |count: usize| count as f64 / SOURCES as f64;
    parts.add(
        "a discovery: statements and transactions",
        format!("{:.1}, {:.1}", per_source(discovered.statements), per_source(discovered.transactions)),
    );
    let processes = DatabaseProcesses::find(&url)?;
    let mut writes = Vec::new();
    for count in [1, NODES] {
        let nodes = files.start_nodes(count, &url)?;
        wait_for_equal_positions(&nodes)?;
        let tool = first_tool(&nodes)?;
        // Time is the subject: an idle node polls and reports at intervals.
        let cpu_time_before = processes.cpu_time()?;
        let idle = count_statements(&server, || {
            thread::sleep(IDLE_TIME);
            Ok(())
        })?;
        let idle_cpu_time = (processes.cpu_time()? - cpu_time_before) / count as u32;
        let (memory, connections) = connection_memory(&url)?;
        let written =
            count_statements(&server, || measure_propagation(&nodes, &tool, WRITES, WRITE_INTERVAL).map(drop))?;
        let per_second = |number: usize| number as f64 / IDLE_TIME.as_secs_f64() / count as f64;
        parts.add(
            format!(
                "an idle node, {count} running: statements and transactions a second; connections; their memory; CPU time \
                 of the database in {} s",
                IDLE_TIME.as_secs()
            ),
            format!(
                "{:.2}, {:.2}; {:.1}; {:.1} MB each; {}",
                per_second(idle.statements),
                per_second(idle.transactions),
                connections as f64 / count as f64,
                memory as f64 / connections as f64 / 1e6,
                format_duration(idle_cpu_time),
            ),
        );
        // Polls and reports go on during the writes.
        let duration = (WRITE_INTERVAL * WRITES as u32).as_secs_f64() / IDLE_TIME.as_secs_f64();
        let per_write = |written: usize, idle: usize| (written as f64 - idle as f64 * duration) / WRITES as f64;
        writes
            .push((per_write(written.statements, idle.statements), per_write(written.transactions, idle.transactions)));
    }
    let [alone, together] = writes[..] else { return Err("not all numbers of nodes were measured".into()) };
    let others = (NODES - 1) as f64;
    parts
        .add("a write: statements and transactions of the node that writes", format!("{:.1}, {:.1}", alone.0, alone.1));
    parts.add(
        "a write: statements and transactions of each other node",
        format!("{:.1}, {:.1}", (together.0 - alone.0) / others, (together.1 - alone.1) / others),
    );
    Ok(())
}

/// Counts the statements that nodes send meanwhile.
fn count_statements(server: &PostgresServer, work: impl FnOnce() -> Result<()>) -> Result<StatementCounts> {
    let begin = server.log().len();
    work()?;
    let log = server.log();
    Ok(parse_log(log.get(begin..).unwrap_or_default()))
}

/// Counts the statements in a log. Those of the benchmark itself are not prepared, and are left out.
fn parse_log(log: &str) -> StatementCounts {
    let mut counts = StatementCounts { statements: 0, transactions: 0 };
    // Process ids of connections that are in a transaction.
    let mut open: Vec<&str> = Vec::new();
    for line in log.lines() {
        let Some((prefix, statement)) = line.split_once("LOG:  ") else { continue };
        let Some(pid) = prefix.split(['[', ']']).nth(1) else { continue };
        if statement == "statement: BEGIN" {
            open.push(pid);
            counts.transactions += 1;
            counts.statements += 1;
        } else if statement == "statement: COMMIT" || statement == "statement: ROLLBACK" {
            open.retain(|other| *other != pid);
            counts.statements += 1;
        } else if statement.starts_with("execute ") {
            counts.statements += 1;
            counts.transactions += usize::from(!open.contains(&pid));
        }
    }
    counts
}
