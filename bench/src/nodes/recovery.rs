//! Time from the end of an outage of the database until all nodes write again, and until they have found out by
//! themselves.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use toolcrib_testkit::postgres::{PostgresServer, StopMode};

use super::cluster::{NodeFiles, NodeProcess, wait_for_equal_positions};
use super::parts::PartsTable;
use super::upstream::UpstreamServers;
use crate::Result;
use crate::report::format_duration;

/// Number of nodes.
const NODES: usize = 3;
/// Number of sources, each with one tool.
const SOURCES: usize = 10;
/// Duration of the outage, long enough that every node has noticed it.
const OUTAGE: Duration = Duration::from_secs(6);
/// Interval of questions to a node.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum wait for a node.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Stops the server in the same way as its administrator, and starts it again.
pub(super) fn run(parts: &mut PartsTable, server: &mut PostgresServer) -> Result<()> {
    let upstream = UpstreamServers::start(SOURCES, 1, Duration::ZERO)?;
    let files = NodeFiles::new(&upstream.sources)?;
    let nodes = files.start_nodes(NODES, &server.create_database())?;
    nodes.first().ok_or("there are no nodes")?.discover_all()?;
    wait_for_equal_positions(&nodes)?;
    server.stop(StopMode::Fast);
    // Time is the subject: the nodes poll less often the longer nothing changes.
    thread::sleep(OUTAGE);
    if let Some(node) = nodes.iter().find(|node| !matches!(store_state(node).as_deref(), Ok("down"))) {
        return Err(format!("the node on {} has not noticed the outage", node.address).into());
    }
    server.start_again();
    let began = Instant::now();
    wait_until_ok(&nodes)?;
    parts.add(
        format!("after a restart of the database: until all {NODES} nodes have noticed by themselves"),
        format_duration(began.elapsed()),
    );
    Ok(())
}

fn wait_until_ok(nodes: &[NodeProcess]) -> Result<()> {
    let began = Instant::now();
    for node in nodes {
        while store_state(node)? != "ok" {
            if began.elapsed() > RECOVERY_TIMEOUT {
                return Err(format!("the node on {} does not recover", node.address).into());
            }
            thread::sleep(ATTEMPT_INTERVAL);
        }
    }
    Ok(())
}

/// Returns the state of the store as a node knows it.
fn store_state(node: &NodeProcess) -> Result<String> {
    let ready: Value = serde_json::from_slice(&node.connect()?.get("/readyz", "")?.body)?;
    Ok(ready["store"]["state"].as_str().unwrap_or_default().to_owned())
}
