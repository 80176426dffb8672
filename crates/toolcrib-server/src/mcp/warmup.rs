//! `warm: client`: what is missing or stale is discovered when a client connects, before it asks for a list.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolcrib::core::config::WarmPolicy;
use toolcrib_mcp::server::McpPeer;

use super::McpService;

/// Nothing tells whether a request without a session is the first of its client, so one counts as such this often.
const FIRST_REQUEST_INTERVAL: Duration = Duration::from_secs(60);

/// When a request of clients without a session last counted as the first of one.
#[derive(Debug, Default)]
pub(super) struct StatelessClients(Mutex<Option<Instant>>);

impl StatelessClients {
    fn counts_as_first(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = last.is_none_or(|last| now.saturating_duration_since(last) >= FIRST_REQUEST_INTERVAL);
        if is_first {
            *last = Some(now);
        }
        is_first
    }
}

impl McpService {
    /// At `initialize` and `server/discover`.
    pub(super) fn warm_on_handshake(&self) {
        if self.registry.warm() == WarmPolicy::Client {
            self.registry.refresh_in_background();
        }
    }

    /// At any other request: a client of 2026-07-28 over HTTP may begin with whichever it likes.
    pub(super) fn warm_on_request(&self, peer: &McpPeer) {
        let may_be_first = peer.is_stateless && self.registry.warm() == WarmPolicy::Client;
        if may_be_first && self.stateless_clients.counts_as_first(Instant::now()) {
            self.registry.refresh_in_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_session_count_as_first_now_and_then() {
        let (sessionless, begin) = (StatelessClients::default(), Instant::now());
        let counted = [0, 1, 59, 60, 61, 119, 120].map(|seconds| {
            let now = begin + Duration::from_secs(seconds);
            sessionless.counts_as_first(now)
        });
        assert_eq!(counted, [true, false, false, true, false, false, true]);
    }
}
