//! `warm: client`: starts the discovery of missing and stale sources when a client connects, before it requests a list.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolcrib::config::WarmPolicy;
use toolcrib_mcp::server::{McpPeer, McpRequest};

use super::{McpService, peer_requester};

/// Without a session it is unknown whether a request is the first of its client. One counts as such once per interval.
const FIRST_REQUEST_INTERVAL: Duration = Duration::from_secs(60);

/// Time at which a request of a stateless client last counted as a first one.
#[derive(Debug, Default)]
pub(super) struct StatelessClients(Mutex<Option<Instant>>);

impl StatelessClients {
    /// True when a request counts as the first of its client; at most once per interval. Takes the time as an argument,
    /// so that a test can move it.
    fn counts_as_first(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_first = last.is_none_or(|last| now.saturating_duration_since(last) >= FIRST_REQUEST_INTERVAL);
        if is_first {
            *last = Some(now);
        }
        is_first
    }
}

impl McpService {
    /// Warms up at `initialize` and `server/discover`.
    pub(super) fn warm_on_handshake(&self, peer: &McpPeer) {
        if self.registry.configuration().warm() == WarmPolicy::Client {
            self.registry.refresher().refresh_in_background(peer_requester(&peer.extensions(), peer));
        }
    }

    /// Warms up at any other request: a stateless client of protocol 2026-07-28 may start with any method.
    pub(super) fn warm_on_request(&self, request: &McpRequest) {
        let peer = &request.peer;
        let may_be_first = peer.is_stateless && self.registry.configuration().warm() == WarmPolicy::Client;
        if may_be_first && self.stateless_clients.counts_as_first(Instant::now()) {
            self.registry.refresher().refresh_in_background(peer_requester(&request.extensions, peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stateless_request_counts_as_first_once_a_minute() {
        let clients = StatelessClients::default();
        let start = Instant::now();
        let counts = [0, 1, 59, 60, 61, 119, 120].map(|seconds| {
            let now = start + Duration::from_secs(seconds);
            clients.counts_as_first(now)
        });
        assert_eq!(counts, [true, false, false, true, false, false, true]);
    }
}
