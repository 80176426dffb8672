//! Notifications to many listeners: the part of a commit that grows with the number of nodes on the database itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::{Actor, Event};
use toolcrib::store::{self, Commit, CommitOutcome, Store};
use toolcrib_testkit::postgres::PostgresServer;

use super::parts::PartsTable;
use super::processes::DatabaseProcesses;
use crate::Result;
use crate::measure::median;
use crate::recorded_tools::source_id;
use crate::report::format_duration;

/// Numbers of listeners. The server permits 200 connections.
const SIZES: [usize; 3] = [1, 50, 150];
/// Number of commits.
const COMMITS: u64 = 200;
/// Maximum wait for the notifications of one commit.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures commits while nothing but listening connections share the store.
pub(super) fn run(parts: &mut PartsTable, server: &PostgresServer) -> Result<()> {
    let runtime = Runtime::new()?;
    for size in SIZES {
        let url = server.create_database();
        runtime.block_on(measure_notifications(parts, &url, size))?;
    }
    Ok(())
}

async fn measure_notifications(parts: &mut PartsTable, url: &str, size: usize) -> Result<()> {
    let writer = store::open(url).await?;
    let mut listeners: Vec<Arc<dyn Store>> = Vec::new();
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    for _ in 0..size {
        let listener = store::open(url).await?;
        listeners.push(listener.clone());
        let sender = sender.clone();
        // Ends with the channel or with the runtime.
        tokio::spawn(async move {
            loop {
                listener.wait_for_changes().await;
                if sender.send(Instant::now()).is_err() {
                    return;
                }
            }
        });
    }
    // A new connection counts as news.
    receive(&mut arrivals, size).await?;
    let mut commits = Vec::new();
    let mut deliveries = Vec::new();
    let database = DatabaseProcesses::find(url)?;
    let before = database.cpu_time()?;
    for head in 0..COMMITS {
        let began = Instant::now();
        append(&writer, head).await?;
        commits.push(began.elapsed());
        deliveries.push(receive(&mut arrivals, size).await?.saturating_duration_since(began));
    }
    let database_time = (database.cpu_time()? - before) / COMMITS as u32;
    for store in listeners.iter().chain([&writer]) {
        store.close().await;
    }
    parts.add(
        format!(
            "a commit; until the last listener is notified; CPU time of the database; listening connections: {size}"
        ),
        format!(
            "{}; {}; {}",
            format_duration(median(commits)),
            format_duration(median(deliveries)),
            format_duration(database_time)
        ),
    );
    Ok(())
}

/// Waits for as many notifications; returns when the last one arrived.
async fn receive(arrivals: &mut mpsc::UnboundedReceiver<Instant>, count: usize) -> Result<Instant> {
    let mut last = None;
    for _ in 0..count {
        last = tokio::time::timeout(NOTIFICATION_TIMEOUT, arrivals.recv()).await?;
    }
    last.ok_or_else(|| "there are no listeners".into())
}

/// Appends one record.
async fn append(store: &Arc<dyn Store>, head: u64) -> Result<()> {
    let events = [Event::SourceEnabled { source: source_id(0)? }];
    let actor = Actor::new("bench");
    let commit = Commit {
        expected_head: head,
        first_seq: head + 1,
        at: Timestamp(1),
        actor: &actor,
        events: &events,
        measurement: None,
    };
    match store.commit(commit).await? {
        CommitOutcome::Committed => Ok(()),
        CommitOutcome::Conflict | CommitOutcome::Superseded => Err("another process has written".into()),
    }
}
