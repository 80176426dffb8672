//! The current public keys of one issuer: when they are fetched, and how long they are used.
//!
//! ```text
//! fetched ── fresh (`max-age`, 1 min to 24 h) ──▶ stale ── 24 h after the fetch ──▶ unusable
//! ```
//!
//! Stale keys are fetched again at the next use. While the provider cannot be reached, they go on being used until they
//! are unusable: a provider that is down must not lock out every client, and a key that it withdrew must not be accepted
//! for ever. A token that may be signed with a new key causes a fetch too, at most once a minute, because a provider may
//! start to use a new key before the old set is stale. A fetch that failed does not use up the minute.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::key_set::KeySet;

/// How long keys are fresh if the provider does not say.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(3600);
/// Minimum time that keys are fresh, so that a provider without caching is not asked for each token.
const MIN_MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum time that keys are fresh, and that they are used without a successful fetch.
const MAX_KEY_AGE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two successful fetches for the same reason ([`RefetchReason`]).
const REFETCH_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum time between two attempts while there are no usable keys.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two attempts while there are usable keys.
const USABLE_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Fetches a key set. Bounded in time and size by its implementation.
pub(super) type KeyFetcher = Box<dyn Fn() -> BoxFuture<'static, Result<FetchedKeys, String>> + Send + Sync>;

/// A key set, and for how long its provider allows it to be cached.
#[derive(Debug)]
pub(super) struct FetchedKeys {
    pub(super) keys: KeySet,
    pub(super) max_age: Option<Duration>,
}

/// The keys that are needed cannot be fetched at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeysUnavailable {
    /// Time until the next attempt.
    pub(super) retry_after: Duration,
}

/// Why a token causes a fetch although the keys are fresh. Each reason has a minute of its own, because tokens without
/// `kid` need no knowledge of the keys, and must not delay the keys of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RefetchReason {
    /// It names a key that is not in the set.
    UnknownKeyId,
    /// It names none, and no key of the set has signed it: a new one may have replaced the only one.
    MissingKeyId,
}

/// The keys of one issuer. Shared by all requests.
pub(super) struct IssuerKeys {
    /// For the log.
    issuer: String,
    fetch: KeyFetcher,
    /// The last set that was fetched; read for every request.
    current: ArcSwapOption<CachedKeys>,
    attempts: Mutex<FetchAttempts>,
}

/// A fetched set with its times.
struct CachedKeys {
    keys: Arc<KeySet>,
    fresh_until: Instant,
    usable_until: Instant,
}

/// The fetch in progress, and times of earlier ones.
#[derive(Default)]
struct FetchAttempts {
    /// All requests that need keys wait for the same fetch. It runs in a task, so that it does not end with the request
    /// that began it.
    running: Option<Shared<BoxFuture<'static, ()>>>,
    /// When the last fetch ended, if it failed.
    last_failure: Option<Instant>,
    /// When the last successful fetch for each reason ended.
    refetched_at: HashMap<RefetchReason, Instant>,
}

impl IssuerKeys {
    pub(super) fn new(issuer: &str, fetch: KeyFetcher) -> IssuerKeys {
        let attempts = Mutex::default();
        IssuerKeys { issuer: issuer.to_owned(), fetch, current: ArcSwapOption::empty(), attempts }
    }

    /// Returns keys that may be used, after a fetch if they are missing or stale.
    pub(super) async fn load(self: &Arc<IssuerKeys>) -> Result<Arc<KeySet>, KeysUnavailable> {
        if let Some(running) = self.start_fetch_if_due() {
            running.await;
        }
        self.usable().ok_or_else(|| self.unavailable())
    }

    /// Fetches the keys again because a token may be signed with one that is not among `known`. Returns the new set, or
    /// `None` if the last such fetch was less than a minute ago.
    pub(super) async fn load_newer(
        self: &Arc<IssuerKeys>,
        known: &Arc<KeySet>,
        reason: RefetchReason,
    ) -> Result<Option<Arc<KeySet>>, KeysUnavailable> {
        let newer = || self.usable().filter(|keys| !Arc::ptr_eq(keys, known));
        let running = {
            let mut attempts = self.attempts.lock();
            let now = Instant::now();
            if let Some(newer) = newer() {
                return Ok(Some(newer));
            }
            let active = attempts.active_fetch();
            if let (None, Some(retry_after)) = (&active, self.remaining_pause(&attempts, now)) {
                return Err(KeysUnavailable { retry_after });
            }
            let refetched_at = attempts.refetched_at.get(&reason);
            if active.is_none() && refetched_at.is_some_and(|at| now.duration_since(*at) < REFETCH_INTERVAL) {
                return Ok(None);
            }
            active.unwrap_or_else(|| self.start_fetch(&mut attempts, Some(reason)))
        };
        running.await;
        // Each successful fetch makes another set.
        newer().map(Some).ok_or_else(|| self.unavailable())
    }

    /// Fetches the keys again, however fresh they are. Those of a failed fetch stay.
    pub(super) async fn refetch(self: &Arc<IssuerKeys>) {
        let running = self.start_fetch(&mut self.attempts.lock(), None);
        running.await;
    }

    /// Whether there are keys that need not be fetched again yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.current.load().as_ref().is_some_and(|current| Instant::now() < current.fresh_until)
    }

    /// Returns the keys if they may still be used, also if they are stale.
    pub(super) fn usable(&self) -> Option<Arc<KeySet>> {
        let current = self.current.load();
        let current = current.as_ref()?;
        (Instant::now() < current.usable_until).then(|| current.keys.clone())
    }

    /// Starts or joins a fetch if the keys are missing or stale and the last attempt did not just fail.
    fn start_fetch_if_due(self: &Arc<IssuerKeys>) -> Option<Shared<BoxFuture<'static, ()>>> {
        let now = Instant::now();
        if self.is_fresh() {
            return None;
        }
        let mut attempts = self.attempts.lock();
        // Again under the lock: the fetch that others waited for may have ended meanwhile.
        if self.is_fresh() {
            return None;
        }
        if let Some(running) = attempts.active_fetch() {
            return Some(running);
        }
        if self.remaining_pause(&attempts, now).is_some() {
            return None;
        }
        Some(self.start_fetch(&mut attempts, None))
    }

    /// Returns how long no fetch is made after a failed one; `None` if one may be made now.
    fn remaining_pause(&self, attempts: &FetchAttempts, now: Instant) -> Option<Duration> {
        let interval = if self.usable().is_some() { USABLE_RETRY_INTERVAL } else { RETRY_INTERVAL };
        let remaining = (attempts.last_failure? + interval).saturating_duration_since(now);
        (!remaining.is_zero()).then_some(remaining)
    }

    fn unavailable(&self) -> KeysUnavailable {
        let pause = self.remaining_pause(&self.attempts.lock(), Instant::now());
        KeysUnavailable { retry_after: pause.unwrap_or(RETRY_INTERVAL) }
    }

    fn start_fetch(
        self: &Arc<IssuerKeys>,
        attempts: &mut FetchAttempts,
        reason: Option<RefetchReason>,
    ) -> Shared<BoxFuture<'static, ()>> {
        let keys = self.clone();
        let task = tokio::spawn(async move {
            let fetched = (keys.fetch)().await;
            keys.finish_fetch(fetched, reason);
        });
        // A task that panicked counts as ended.
        let running = async move { drop(task.await) }.boxed().shared();
        attempts.running = Some(running.clone());
        running
    }

    /// Replaces the set, or records the failure.
    fn finish_fetch(&self, fetched: Result<FetchedKeys, String>, reason: Option<RefetchReason>) {
        let now = Instant::now();
        let mut attempts = self.attempts.lock();
        attempts.running = None;
        match fetched {
            Ok(FetchedKeys { keys, max_age }) => {
                let max_age = max_age.unwrap_or(DEFAULT_MAX_AGE).clamp(MIN_MAX_AGE, MAX_KEY_AGE);
                let cached =
                    CachedKeys { keys: Arc::new(keys), fresh_until: now + max_age, usable_until: now + MAX_KEY_AGE };
                self.current.store(Some(Arc::new(cached)));
                attempts.last_failure = None;
                attempts.refetched_at.extend(reason.map(|reason| (reason, now)));
            }
            Err(reason) => {
                attempts.last_failure = Some(now);
                tracing::warn!(issuer = self.issuer, reason, "the keys of an identity provider cannot be fetched");
            }
        }
    }
}

impl FetchAttempts {
    /// Returns the fetch in progress. One that ended without a result (a panic) does not count.
    fn active_fetch(&self) -> Option<Shared<BoxFuture<'static, ()>>> {
        self.running.clone().filter(|running| running.peek().is_none())
    }
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IssuerKeys").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::RefetchReason::{MissingKeyId, UnknownKeyId};
    use super::*;

    /// A provider that counts fetches, and is up or down.
    #[derive(Default)]
    struct FakeProvider {
        fetches: AtomicUsize,
        is_down: AtomicBool,
    }

    fn issuer_keys(provider: &Arc<FakeProvider>, max_age: Option<Duration>) -> Arc<IssuerKeys> {
        let provider = provider.clone();
        let fetch: KeyFetcher = Box::new(move || {
            let provider = provider.clone();
            let fetching = async move {
                // Other tasks run meanwhile.
                tokio::task::yield_now().await;
                provider.fetches.fetch_add(1, Ordering::SeqCst);
                if provider.is_down.load(Ordering::SeqCst) {
                    return Err("down".to_owned());
                }
                Ok(FetchedKeys { keys: KeySet::default(), max_age })
            };
            fetching.boxed()
        });
        Arc::new(IssuerKeys::new("https://id.example", fetch))
    }

    fn fetches(provider: &FakeProvider) -> usize {
        provider.fetches.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_a_fetch_and_keys_are_cached_as_long_as_the_provider_says() {
        let provider = Arc::new(FakeProvider::default());
        for (max_age, fresh_for) in [
            (None, DEFAULT_MAX_AGE),
            (Some(Duration::ZERO), MIN_MAX_AGE),
            (Some(Duration::from_secs(600)), Duration::from_secs(600)),
            (Some(Duration::MAX), MAX_KEY_AGE),
        ] {
            let keys = issuer_keys(&provider, max_age);
            let before = fetches(&provider);
            assert!(join_all((0..50).map(|_| keys.load())).await.iter().all(Result::is_ok));
            tokio::time::advance(fresh_for - Duration::from_millis(1)).await;
            keys.load().await.unwrap();
            assert_eq!(fetches(&provider) - before, 1, "{max_age:?}");
            tokio::time::advance(Duration::from_millis(1)).await;
            keys.load().await.unwrap();
            assert_eq!(fetches(&provider) - before, 2, "{max_age:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_key_causes_one_fetch_a_minute_beside_the_first() {
        let provider = Arc::new(FakeProvider::default());
        let keys = issuer_keys(&provider, None);
        let first = keys.load().await.unwrap();
        let waiting = join_all((0..20).map(|_| keys.load_newer(&first, UnknownKeyId)));
        assert!(waiting.await.iter().all(|newer| newer.as_ref().unwrap().is_some()));
        assert_eq!(fetches(&provider), 2);
        let second = keys.load().await.unwrap();
        assert!(keys.load_newer(&second, UnknownKeyId).await.unwrap().is_none());
        // Tokens without `kid` have a minute of their own.
        let third = keys.load_newer(&second, MissingKeyId).await.unwrap().unwrap();
        assert!(keys.load_newer(&third, MissingKeyId).await.unwrap().is_none());
        tokio::time::advance(REFETCH_INTERVAL).await;
        assert!(keys.load_newer(&third, UnknownKeyId).await.unwrap().is_some());
        assert_eq!(fetches(&provider), 4);
    }

    /// Regression: the failed fetch used up the minute, and tokens with a new key were said to be wrong.
    #[tokio::test(start_paused = true)]
    async fn an_unknown_key_is_unavailable_while_the_provider_is_down() {
        let provider = Arc::new(FakeProvider::default());
        let keys = issuer_keys(&provider, None);
        let first = keys.load().await.unwrap();
        provider.is_down.store(true, Ordering::SeqCst);
        let unavailable = |seconds| Err(KeysUnavailable { retry_after: Duration::from_secs(seconds) });
        let newer = async || keys.load_newer(&first, UnknownKeyId).await.map(|newer| newer.is_some());
        assert_eq!(newer().await, unavailable(5));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(newer().await, unavailable(3));
        assert_eq!(fetches(&provider), 2);
        provider.is_down.store(false, Ordering::SeqCst);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(newer().await, Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_used_for_a_day_while_the_provider_is_down() {
        let provider = Arc::new(FakeProvider::default());
        let keys = issuer_keys(&provider, None);
        keys.load().await.unwrap();
        provider.is_down.store(true, Ordering::SeqCst);
        tokio::time::advance(DEFAULT_MAX_AGE).await;
        keys.load().await.unwrap();
        keys.load().await.unwrap();
        assert_eq!(fetches(&provider), 2, "the second attempt waits");
        tokio::time::advance(MAX_KEY_AGE - DEFAULT_MAX_AGE - Duration::from_millis(1)).await;
        assert!(keys.usable().is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(keys.usable().is_none());
        tokio::time::advance(RETRY_INTERVAL).await;
        assert!(keys.load().await.is_err());
        provider.is_down.store(false, Ordering::SeqCst);
        assert!(keys.load().await.is_err(), "at most one attempt a second");
        tokio::time::advance(RETRY_INTERVAL).await;
        keys.load().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stale_keys_are_usable_until_new_ones_are_loaded() {
        let provider = Arc::new(FakeProvider::default());
        let keys = issuer_keys(&provider, None);
        let first = keys.load().await.unwrap();
        assert!(keys.is_fresh());
        tokio::time::advance(DEFAULT_MAX_AGE).await;
        assert!(!keys.is_fresh() && Arc::ptr_eq(&keys.usable().unwrap(), &first));
        let second = keys.load().await.unwrap();
        assert!(!Arc::ptr_eq(&second, &first) && fetches(&provider) == 2);
    }
}
