//! Disk, memory and start time for tools and sources.

use std::time::Duration;

use toolcrib_testkit::postgres::{PostgresServer, run_sql};

use super::cluster::NodeFiles;
use super::parts::PartsTable;
use super::upstream::UpstreamServers;
use crate::Result;
use crate::measure::measure_time;
use crate::report::format_duration;

/// Number of sources in both measurements.
const SOURCES: usize = 50;
/// Numbers of tools of each source. The difference shows the cost of a tool.
const TOOLS_PER_SOURCE: [usize; 2] = [20, 420];
/// Searches before the memory is read, which build what a node keeps for search.
const SEARCHES: [&str; 3] = ["create+issue", "send+message", "list+files"];

/// Memory and disk at one number of tools.
struct StoredTools {
    tools: usize,
    /// Start of a node with these tools. The journal is short.
    start: Duration,
    /// Resident memory of that node after it has answered searches.
    memory: u64,
    /// Table of manifests.
    manifests: f64,
}

/// Compares two numbers of tools, and reads the size of the rows of a source.
pub(super) fn run(parts: &mut PartsTable, server: &PostgresServer) -> Result<()> {
    let mut measured = Vec::new();
    for tools_per_source in TOOLS_PER_SOURCE {
        let upstream = UpstreamServers::start(SOURCES, tools_per_source, Duration::ZERO)?;
        let files = NodeFiles::new(&upstream.sources)?;
        let url = server.create_database();
        files.start_node("first", &url)?.discover_all()?;
        // Another process, because that of the discovery still has memory which it needed for it.
        let (start, node) = measure_time(|| files.start_node("second", &url));
        let node = node?;
        let mut client = node.connect()?;
        for query in SEARCHES {
            client.get(&format!("/api/search?q={query}"), "")?;
        }
        client.get("/api/tools?limit=100", "")?;
        let manifests: f64 = run_sql(&url, "SELECT pg_total_relation_size('manifests')").parse()?;
        let tools = SOURCES * tools_per_source;
        measured.push(StoredTools { tools, start, memory: node.resident_memory()?, manifests });
        if measured.len() == TOOLS_PER_SOURCE.len() {
            add_source_rows(parts, &url)?;
        }
    }
    let [few, many] = &measured[..] else { return Err("not all numbers of tools were measured".into()) };
    let thousands = (many.tools - few.tools) as f64 / 1e3;
    parts.add(
        format!("memory of a node with {} and with {} tools in {SOURCES} sources", few.tools, many.tools),
        format!(
            "{:.0} MB, {:.0} MB: {:.1} MB for 1,000 tools",
            few.memory as f64 / 1e6,
            many.memory as f64 / 1e6,
            (many.memory as f64 - few.memory as f64) / 1e6 / thousands
        ),
    );
    parts.add(
        format!("start with {} and with {} tools in {SOURCES} sources", few.tools, many.tools),
        format!("{}, {}", format_duration(few.start), format_duration(many.start)),
    );
    parts.add(
        "manifests in PostgreSQL, compressed by it",
        format!("{:.2} MB for 1,000 tools", (many.manifests - few.manifests) / 1e6 / thousands),
    );
    Ok(())
}

/// Adds the size of the rows of a source besides its manifest.
fn add_source_rows(parts: &mut PartsTable, url: &str) -> Result<()> {
    let mut sizes = Vec::new();
    for table in ["definitions", "statuses", "checks"] {
        let size = run_sql(url, &format!("SELECT round(avg(pg_column_size(rows.*))) FROM {table} AS rows"));
        sizes.push(format!("{size} bytes"));
    }
    parts.add("rows of a source: its definition, its status, a check", sizes.join(", "));
    Ok(())
}
