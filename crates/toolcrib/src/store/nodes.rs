//! Nodes: processes on several machines that share one store, as they report themselves.

use std::time::Duration;

use serde::Serialize;

/// Report of a running node about itself, sent every few seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// Unique id of the process.
    pub id: String,
    /// Label that people gave the node, see `--node`.
    pub label: String,
    /// Version of Toolcrib.
    pub version: String,
    /// Sequence number of the last record that the node has applied.
    pub position: u64,
}

/// A node as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Unique id of the process.
    pub id: String,
    /// Label of the node.
    pub label: String,
    /// Version of Toolcrib.
    pub version: String,
    /// Sequence number of the last record that the node had applied when it last reported.
    pub position: u64,
    /// Records in the journal that it had not applied by then.
    pub lag: u64,
    /// Time since its last report, by the clock of the store.
    pub last_seen_ms: u64,
    /// Whether the node reports regularly.
    pub alive: bool,
}

/// Minimum time between reports of a node whose position changes all the time.
pub(crate) const MIN_NODE_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of reports of a node that has nothing new to report.
pub(crate) const NODE_REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a report after which a node does not count as alive.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "other stores keep no reports"))]
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time after which a node that no longer reports is forgotten.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "other stores keep no reports"))]
pub(crate) const NODE_RETENTION: Duration = Duration::from_secs(600);
