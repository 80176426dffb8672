//! Start of a node with 100,000 journal records: with a snapshot of the inventory, and without one.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use toolcrib::core::inventory::{Actor, Event};
use toolcrib::core::{Timestamp, ToolId};
use toolcrib::store::{self, Commit, CommitOutcome, Store, StoredSnapshot};
use toolcrib_testkit::postgres::{PostgresServer, run_sql};

use super::cluster::{NodeFiles, NodeProcess};
use super::parts::PartsTable;
use super::upstream::UpstreamServers;
use super::{SOURCES, TOOLS_PER_SOURCE};
use crate::Result;
use crate::measure::{measure_time, median, ratio};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of records in the journal.
const RECORDS: u64 = 100_000;
/// Records after the snapshot: the most there can be before the next one is written.
const RECORDS_AFTER_SNAPSHOT: u64 = 9_999;
/// Number of records in a commit.
const BATCH_SIZE: u64 = 1_000;
/// Number of starts of each kind. Odd, so that the median is one of the measurements.
const ROUNDS: usize = 7;
/// Maximum time of a start with a snapshot.
const MAX_START: Duration = Duration::from_secs(2);

/// Store whose starts are measured.
struct StartTarget<'a> {
    name: &'a str,
    /// Location for [`store::open`].
    location: String,
    files: &'a NodeFiles,
    /// URL of the database; `None` for SQLite.
    database: Option<String>,
}

/// Measures starts on PostgreSQL and with SQLite.
pub(super) fn run(report: &mut BenchReport, parts: &mut PartsTable, server: &PostgresServer) -> Result<()> {
    let runtime = Runtime::new()?;
    let upstream = UpstreamServers::start(SOURCES, TOOLS_PER_SOURCE, Duration::ZERO)?;
    let files = NodeFiles::new(&upstream.sources)?;
    let url = server.create_database();
    let directory = files.data_dir("single");
    let targets = [
        StartTarget { name: "on PostgreSQL", location: url.clone(), files: &files, database: Some(url.clone()) },
        StartTarget {
            name: "with SQLite",
            location: directory.to_string_lossy().into_owned(),
            files: &files,
            database: None,
        },
    ];
    for target in targets {
        target.measure(report, &runtime, &upstream.tools)?;
    }
    let bytes: f64 = run_sql(&url, "SELECT pg_total_relation_size('journal')").parse()?;
    let snapshot: f64 = run_sql(&url, "SELECT octet_length(body) FROM snapshots").parse()?;
    parts.add("a journal record in PostgreSQL, with its index", format!("{:.0} bytes", bytes / RECORDS as f64));
    parts.add(
        format!("the snapshot of {SOURCES} sources and {} tools", SOURCES * TOOLS_PER_SOURCE),
        format!("{:.2} MB", snapshot / 1e6),
    );
    Ok(())
}

impl StartTarget<'_> {
    fn start(&self) -> Result<NodeProcess> {
        match &self.database {
            Some(url) => self.files.start_node("starting", url),
            None => self.files.start_sqlite_node("single"),
        }
    }

    /// Starts a node and waits until it has applied all records.
    fn time_start(&self) -> Result<Duration> {
        let (time, node) = measure_time(|| {
            let node = self.start()?;
            let position = node.position()?;
            Ok::<_, Box<dyn std::error::Error>>((node, position))
        });
        // The node is killed outside of the measured time.
        match node?.1 {
            RECORDS => Ok(time),
            other => Err(format!("the node started with record {other} of {RECORDS}").into()),
        }
    }

    fn measure(&self, report: &mut BenchReport, runtime: &Runtime, tools: &[ToolId]) -> Result<()> {
        self.start()?.discover_all()?;
        let store = runtime.block_on(store::open(&self.location))?;
        runtime.block_on(append_up_to(&store, tools, RECORDS - RECORDS_AFTER_SNAPSHOT))?;
        let snapshot = {
            let _node = self.start()?;
            runtime.block_on(wait_for_snapshot(&store))?
        };
        runtime.block_on(append_up_to(&store, tools, RECORDS))?;
        let mut with_snapshot = Vec::new();
        for _ in 0..ROUNDS {
            with_snapshot.push(self.time_start()?);
        }
        let mut without = Vec::new();
        for _ in 0..ROUNDS {
            // Of another version, so that it is ignored. The node then writes one again.
            let written = runtime.block_on(store.snapshot())?.ok_or("the snapshot was removed")?;
            let unusable = StoredSnapshot::new(written.position, "0.0.0", snapshot.body.clone());
            runtime.block_on(store.put_snapshot(&unusable))?;
            without.push(self.time_start()?);
        }
        runtime.block_on(store.close());
        let (with_snapshot, without) = (median(with_snapshot), median(without));
        report.add_row(RatioRow {
            bench: "nodes",
            measured: format!(
                "start {} with {RECORDS} records, of which {RECORDS_AFTER_SNAPSHOT} follow a snapshot: {}",
                self.name,
                format_duration(with_snapshot)
            ),
            baseline: format!("without a snapshot: {}", format_duration(without)),
            ratio: ratio(with_snapshot, without),
            threshold: Threshold::Condition(with_snapshot < MAX_START, format!("under {}", format_duration(MAX_START))),
        });
        Ok(())
    }
}

/// Appends records that disable and enable tools in turn, up to this one.
async fn append_up_to(store: &Arc<dyn Store>, tools: &[ToolId], last: u64) -> Result<()> {
    let actor = Actor::new("bench");
    let mut head = last_record(store).await?;
    while head < last {
        let batch = BATCH_SIZE.min(last - head);
        let events: Vec<Event> = (0..batch).map(|number| switch_tool(tools, head + number)).collect();
        let commit = Commit {
            expected_head: head,
            first_seq: head + 1,
            at: Timestamp(1),
            actor: &actor,
            events: &events,
            measurement: None,
        };
        match store.commit(commit).await? {
            CommitOutcome::Committed => head += batch,
            CommitOutcome::Conflict | CommitOutcome::Superseded => return Err("another process has written".into()),
        }
    }
    Ok(())
}

/// Returns the number of the last record.
async fn last_record(store: &Arc<dyn Store>) -> Result<u64> {
    let mut last = 0;
    while let Some(record) = store.records(last, 10_000).await?.last() {
        last = record.seq;
    }
    Ok(last)
}

/// Event that disables or enables one of the tools.
fn switch_tool(tools: &[ToolId], number: u64) -> Event {
    let ToolId { source, name } = tools[number as usize / 2 % tools.len()].clone();
    match number % 2 {
        0 => Event::ToolDisabled { source, tool: name },
        _ => Event::ToolEnabled { source, tool: name },
    }
}

async fn wait_for_snapshot(store: &Arc<dyn Store>) -> Result<StoredSnapshot> {
    const MAX_ATTEMPTS: usize = 3_000;
    for _ in 0..MAX_ATTEMPTS {
        let snapshot = store.snapshot().await?;
        if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.position.seq == RECORDS - RECORDS_AFTER_SNAPSHOT) {
            return Ok(snapshot);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("no snapshot was written".into())
}
