//! Limits failed token attempts of each peer. Tokens have too much entropy to be guessed; the limit keeps guessing from
//! flooding the server and its log. One peer that sends wrong tokens does not affect the others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use toolcrib::core::Timestamp;
use toolcrib::{Code, Error, Result};

/// Failed attempts per window that get `UNAUTHORIZED`; further ones get `RATE_LIMITED`.
const MAX_FAILED_TOKENS: u32 = 20;
/// Length of a window. `Retry-After` of a refused attempt is the same time.
const RATE_LIMIT_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of peers that are counted one by one. Beyond it, new ones are counted together.
const MAX_PEERS: usize = 4_096;

/// Counts failed token attempts of each peer, in fixed windows.
#[derive(Debug, Default)]
pub(super) struct TokenRateLimit(Mutex<FailureCounts>);

#[derive(Debug, Default)]
struct FailureCounts {
    peers: HashMap<IpAddr, FailureWindow>,
    /// Of all peers beyond [`MAX_PEERS`], and of connections without a known peer.
    others: FailureWindow,
}

/// The current window of a peer: its start, and the failures since then.
#[derive(Debug, Default)]
struct FailureWindow {
    started_at: Timestamp,
    failures: u32,
}

impl TokenRateLimit {
    /// Whether further failed attempts of a peer get `RATE_LIMITED` now.
    pub(super) fn is_exceeded(&self, peer: Option<IpAddr>, now: Timestamp) -> bool {
        let mut counts = self.0.lock();
        let window = counts.window(peer.map(to_network), now);
        !window.is_over(now) && window.failures >= MAX_FAILED_TOKENS
    }

    /// Counts a failed attempt of a peer. Returns `RATE_LIMITED` when its window already had [`MAX_FAILED_TOKENS`].
    pub(super) fn record_failure(&self, peer: Option<IpAddr>, now: Timestamp) -> Result<()> {
        let mut counts = self.0.lock();
        let failures = counts.window(peer.map(to_network), now).record(now);
        drop(counts);
        match failures {
            1..=MAX_FAILED_TOKENS => Ok(()),
            _ => Err(Error::new(Code::RateLimited, "too many wrong tokens; try again in a minute")),
        }
    }
}

impl FailureCounts {
    /// Returns the window of a peer. Makes room by forgetting the peers whose window is over.
    fn window(&mut self, peer: Option<IpAddr>, now: Timestamp) -> &mut FailureWindow {
        let Some(peer) = peer else { return &mut self.others };
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            self.peers.retain(|_, window| !window.is_over(now));
            if self.peers.len() >= MAX_PEERS {
                return &mut self.others;
            }
        }
        self.peers.entry(peer).or_default()
    }
}

impl FailureWindow {
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.started_at) >= RATE_LIMIT_WINDOW
    }

    /// Counts a failure and returns how many the window has.
    fn record(&mut self, now: Timestamp) -> u32 {
        // A fixed window lets through up to twice the limit around its end, which does not matter for this purpose.
        if self.is_over(now) {
            *self = FailureWindow { started_at: now, failures: 0 };
        }
        self.failures = self.failures.saturating_add(1);
        self.failures
    }
}

/// Returns the address to count: an IPv6 client has a whole network of 64 bits, and would get a new count with each of
/// its addresses.
fn to_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(limit: &TokenRateLimit, peer: &str, times: u32, now: Timestamp) -> Result<()> {
        let peer = Some(peer.parse().unwrap());
        (0..times).try_for_each(|_| limit.record_failure(peer, now))
    }

    #[test]
    fn each_peer_has_its_own_count() {
        let limit = TokenRateLimit::default();
        let now = Timestamp(1_000_000);
        fail(&limit, "192.0.2.1", MAX_FAILED_TOKENS, now).unwrap();
        assert_eq!(fail(&limit, "192.0.2.1", 1, now).unwrap_err().code, Code::RateLimited);
        assert_eq!(fail(&limit, "::ffff:192.0.2.1", 1, now).unwrap_err().code, Code::RateLimited);
        fail(&limit, "192.0.2.2", MAX_FAILED_TOKENS, now).unwrap();
        fail(&limit, "2001:db8::1", MAX_FAILED_TOKENS, now).unwrap();
        assert!(fail(&limit, "2001:db8::2", 1, now).is_err(), "the same network");
        fail(&limit, "2001:db8:0:1::2", 1, now).unwrap();
        fail(&limit, "192.0.2.1", MAX_FAILED_TOKENS, now.plus(RATE_LIMIT_WINDOW)).unwrap();
    }

    #[test]
    fn the_number_of_peers_is_bounded() {
        let limit = TokenRateLimit::default();
        let now = Timestamp(1_000_000);
        let peer = |index: usize| Some(IpAddr::V4(u32::try_from(index).unwrap().into()));
        for index in 0..MAX_PEERS {
            limit.record_failure(peer(index), now).unwrap();
        }
        // Further peers share one count.
        for index in 0..MAX_FAILED_TOKENS as usize {
            limit.record_failure(peer(MAX_PEERS + index), now).unwrap();
        }
        assert!(limit.record_failure(peer(MAX_PEERS * 2), now).is_err());
        assert_eq!(limit.0.lock().peers.len(), MAX_PEERS);
        let later = now.plus(RATE_LIMIT_WINDOW);
        limit.record_failure(peer(MAX_PEERS * 2), later).unwrap();
        assert_eq!(limit.0.lock().peers.len(), 1);
    }
}
