//! Times at which access tokens were last used, kept in memory and written to the store every few seconds. They are
//! measurements: a crash loses the last seconds. Of several processes on one store, the latest time wins.
//!
//! A request costs one lookup and one atomic operation. A write that fails is repeated, because a time stays newer than
//! the stored one until it is written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use toolcrib_core::{Result, Timestamp};

use crate::store::{Store, TokenUse};

/// Minimum time between two writes. With the interval of maintenance and a slow store, a time that another process reads
/// is less than five seconds old.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Time of a token that was never used.
const NEVER: i64 = i64::MIN;

/// Last uses of all tokens that were ever used.
#[derive(Debug, Default)]
pub(crate) struct TokenUses {
    /// By the ids of tokens. Locked for writing only by the first use of a token.
    times: RwLock<HashMap<String, UseTimes>>,
    /// Start of the last write by [`TokenUses::flush_if_due`].
    last_flush: Mutex<Option<Instant>>,
}

/// Times of one token, in milliseconds as in [`Timestamp`]. Both only grow.
#[derive(Debug)]
struct UseTimes {
    /// Last use in this process.
    used: AtomicI64,
    /// Last use in the store, of any process.
    stored: AtomicI64,
}

impl Default for UseTimes {
    fn default() -> UseTimes {
        UseTimes { used: AtomicI64::new(NEVER), stored: AtomicI64::new(NEVER) }
    }
}

impl TokenUses {
    /// Records a use of a token.
    pub(crate) fn record(&self, token: &str, at: Timestamp) {
        self.with_times(token, |times| times.used.fetch_max(at.0, Ordering::Relaxed));
    }

    /// Returns the last use of a token that is known here: in this process, or in the store as of the last read.
    pub(crate) fn last_use(&self, token: &str) -> Option<Timestamp> {
        let times = self.times.read();
        let times = times.get(token)?;
        let latest = times.used.load(Ordering::Relaxed).max(times.stored.load(Ordering::Relaxed));
        (latest != NEVER).then_some(Timestamp(latest))
    }

    /// Writes uses that are not in the store, unless the last write was a moment ago.
    pub(crate) async fn flush_if_due(&self, store: &dyn Store) -> Result<()> {
        {
            let mut last_flush = self.last_flush.lock();
            if last_flush.is_some_and(|at| at.elapsed() < WRITE_INTERVAL) {
                return Ok(());
            }
            *last_flush = Some(Instant::now());
        }
        self.flush(store).await
    }

    /// Writes uses that are not in the store. Without any the store is not accessed.
    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<()> {
        let is_pending = |times: &UseTimes| times.used.load(Ordering::Relaxed) > times.stored.load(Ordering::Relaxed);
        let pending: Vec<TokenUse> = {
            let times = self.times.read();
            let pending = times.iter().filter(|(_, times)| is_pending(times));
            pending
                .map(|(token, times)| TokenUse {
                    token: token.clone(),
                    last_used: Timestamp(times.used.load(Ordering::Relaxed)),
                })
                .collect()
        };
        if pending.is_empty() {
            return Ok(());
        }
        if let Err(error) = store.record_token_uses(&pending).await {
            tracing::warn!(%error, "last uses of tokens cannot be written now; they are kept in memory");
            return Err(error);
        }
        self.merge_stored(&pending);
        Ok(())
    }

    /// Reads the uses in the store, those of other processes included.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<()> {
        self.merge_stored(&store.token_uses().await?);
        Ok(())
    }

    /// Forgets tokens that do not exist any more, such as revoked ones.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        let has_unknown = self.times.read().keys().any(|token| !exists(token));
        if has_unknown {
            self.times.write().retain(|token, _| exists(token));
        }
    }

    fn merge_stored(&self, uses: &[TokenUse]) {
        for TokenUse { token, last_used } in uses {
            self.with_times(token, |times| times.stored.fetch_max(last_used.0, Ordering::Relaxed));
        }
    }

    /// Updates the times of a token, which are created if necessary.
    fn with_times(&self, token: &str, update: impl Fn(&UseTimes) -> i64) {
        if let Some(times) = self.times.read().get(token) {
            update(times);
            return;
        }
        update(self.times.write().entry(token.to_owned()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn token_use(token: &str, at: i64) -> TokenUse {
        TokenUse { token: token.to_owned(), last_used: Timestamp(at) }
    }

    #[tokio::test]
    async fn the_latest_use_wins_here_and_in_the_store() {
        let store = MemoryStore::default();
        let (one, other) = (TokenUses::default(), TokenUses::default());
        assert_eq!(one.last_use("a"), None);
        for at in [7, 9, 8] {
            one.record("a", Timestamp(at));
        }
        assert_eq!(one.last_use("a"), Some(Timestamp(9)), "a use is known before it is written");
        one.flush(&store).await.unwrap();
        // The clock of another process is behind.
        other.record("a", Timestamp(5));
        other.record("b", Timestamp(6));
        other.flush(&store).await.unwrap();
        assert_eq!(store.token_uses().await.unwrap(), [token_use("a", 9), token_use("b", 6)]);
        one.load(&store).await.unwrap();
        assert_eq!((one.last_use("a"), one.last_use("b")), (Some(Timestamp(9)), Some(Timestamp(6))));
        one.retain(|token| token == "b");
        assert_eq!((one.last_use("a"), one.last_use("b")), (None, Some(Timestamp(6))));
    }

    #[tokio::test(start_paused = true)]
    async fn many_uses_are_written_once_in_two_seconds() {
        let store = MemoryStore::default();
        let uses = TokenUses::default();
        let mut writes = 0;
        let mut last_change = store.change_counters().await.unwrap();
        for tick in 0..20 {
            uses.record("a", Timestamp(tick));
            uses.flush_if_due(&store).await.unwrap();
            let change = store.change_counters().await.unwrap();
            writes += i32::from(change != last_change);
            last_change = change;
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(writes, 5);
        // Nothing to write, although a write is due.
        uses.flush(&store).await.unwrap();
        let written = store.change_counters().await.unwrap();
        tokio::time::advance(Duration::from_secs(9)).await;
        uses.flush_if_due(&store).await.unwrap();
        assert_eq!(store.change_counters().await.unwrap(), written);
    }
}
