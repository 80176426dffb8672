//! Time from a write on one node until all nodes show it.
//!
//! Each node has a listener on `/api/events`, which is told of a record when the node has published the catalogue with
//! it. Polling would load the nodes, and `min_position` would make them read the journal.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::cluster::{ADMIN_HEADER, NodeProcess};
use crate::Result;
use crate::http::RawHttpClient;

/// Times of a series of writes, each until the last node shows it.
#[derive(Debug)]
pub(super) struct PropagationTimes {
    /// From the request on: contains the commit.
    pub(super) since_request: Vec<Duration>,
    /// From the response on. Zero if all nodes showed the write before the writer had its response.
    pub(super) since_response: Vec<Duration>,
}

/// A write: its record, when it was sent, and when it was acknowledged.
struct TimedWrite {
    record: u64,
    sent: Instant,
    acknowledged: Instant,
}

/// Disables and enables a tool in turn, on each node in turn, at a fixed rate. Each write is one record, and there must
/// be no other ones.
pub(super) fn measure_propagation(
    nodes: &[NodeProcess],
    tool: &str,
    writes: usize,
    interval: Duration,
) -> Result<PropagationTimes> {
    let mut clients = nodes.iter().map(NodeProcess::connect).collect::<Result<Vec<_>>>()?;
    let listeners = nodes.iter().map(|node| RawHttpClient::subscribe_events(&node.address));
    let listeners = listeners.collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let listening: Vec<_> = listeners
            .into_iter()
            // The boxed error is not `Send`.
            .map(|listener| scope.spawn(move || read_arrivals(listener, writes).map_err(|error| error.to_string())))
            .collect();
        let began = Instant::now();
        let mut sent = Vec::new();
        for number in 0..writes {
            let next = began + interval * number as u32;
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let action = if number % 2 == 0 { "disable" } else { "enable" };
            let index = number % clients.len();
            let client = clients.get_mut(index).ok_or("there are no nodes")?;
            let request_sent = Instant::now();
            let record = client.post(&format!("/api/tools/{tool}/{action}"), ADMIN_HEADER)?.position;
            sent.push(TimedWrite { record, sent: request_sent, acknowledged: Instant::now() });
        }
        let arrivals = listening
            .into_iter()
            .map(|listener| listener.join().unwrap_or_else(|_| Err("a listener panicked".into())))
            .collect::<std::result::Result<Vec<BTreeMap<u64, Instant>>, String>>()?;
        let mut times = PropagationTimes { since_request: Vec::new(), since_response: Vec::new() };
        for write in &sent {
            let arrived: Option<Vec<&Instant>> = arrivals.iter().map(|arrivals| arrivals.get(&write.record)).collect();
            let last = arrived.and_then(|arrived| arrived.into_iter().max()).ok_or("a write did not arrive")?;
            times.since_request.push(last.saturating_duration_since(write.sent));
            times.since_response.push(last.saturating_duration_since(write.acknowledged));
        }
        Ok(times)
    })
}

/// Lets a writer for each tool disable and enable it without a pause, on the nodes in turn. Returns the number of
/// writes and the time that they took.
pub(super) fn write_at_once(
    nodes: &[NodeProcess],
    tools: &[String],
    writes_per_tool: usize,
) -> Result<(usize, Duration)> {
    let began = Instant::now();
    let outcomes = thread::scope(|scope| {
        let writing: Vec<_> = tools
            .iter()
            .zip(nodes.iter().cycle())
            // The boxed error is not `Send`.
            .map(|(tool, node)| scope.spawn(|| write(node, tool, writes_per_tool).map_err(|error| error.to_string())))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a writer panicked".to_owned()))
        };
        writing.into_iter().map(join).collect::<std::result::Result<Vec<()>, String>>()
    });
    outcomes?;
    Ok((tools.len() * writes_per_tool, began.elapsed()))
}

/// Disables and enables a tool.
fn write(node: &NodeProcess, tool: &str, count: usize) -> Result<()> {
    let mut client = node.connect()?;
    for number in 0..count {
        let action = if number % 2 == 0 { "disable" } else { "enable" };
        client.post(&format!("/api/tools/{tool}/{action}"), ADMIN_HEADER)?;
    }
    Ok(())
}

/// Returns when each of the next records arrived, by their numbers.
fn read_arrivals(mut listener: RawHttpClient, count: usize) -> Result<BTreeMap<u64, Instant>> {
    let mut arrivals = BTreeMap::new();
    while arrivals.len() < count {
        let number = listener.next_record()?;
        if let Some((last, _)) = arrivals.last_key_value()
            && number != last + 1
        {
            return Err(format!("record {number} followed record {last}").into());
        }
        arrivals.insert(number, Instant::now());
    }
    Ok(arrivals)
}
