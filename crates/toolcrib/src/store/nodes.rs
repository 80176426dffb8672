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
impl NodeStatus {
    /// Returns the status after a time in which the node has not reported.
    pub(crate) fn after(&self, age: Duration) -> NodeStatus {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let last_seen_ms = self.last_seen_ms.saturating_add(age);
        let alive = self.alive && u128::from(last_seen_ms) < NODE_TIMEOUT.as_millis();
        NodeStatus { last_seen_ms, alive, ..self.clone() }
    }
}

/// Interval of reports of a node that has nothing new to report.
pub(crate) const NODE_REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a report after which a node does not count as alive.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time after which a node that no longer reports is forgotten.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "other stores keep no reports"))]
pub(crate) const NODE_RETENTION: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: while the store was down, a node looked as alive as when it had last been read.
    #[test]
    fn a_node_that_does_not_report_is_not_alive() {
        let status = NodeStatus {
            id: "1".to_owned(),
            label: "a".to_owned(),
            version: "0.3.0".to_owned(),
            position: 7,
            lag: 0,
            last_seen_ms: 2,
            alive: true,
        };
        let check = |age: Duration| (status.after(age).last_seen_ms, status.after(age).alive);
        assert_eq!(check(Duration::ZERO), (2, true));
        assert_eq!(check(NODE_TIMEOUT - Duration::from_millis(3)), (14_999, true));
        assert_eq!(check(NODE_TIMEOUT), (15_002, false));
        assert!(!NodeStatus { alive: false, ..status.clone() }.after(Duration::ZERO).alive);
    }
}
