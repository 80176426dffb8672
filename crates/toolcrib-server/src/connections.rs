//! Bounded set of open HTTP connections. At capacity a new connection evicts the one that has been idle longest; a
//! connection with a request in progress or an open stream is never evicted.
//!
//! A connection is idle when none of its responses is in progress, so one that has sent half a request head is idle
//! too. If all are busy, up to [`MAX_WAITING_CONNECTIONS`] new ones wait for [`CAPACITY_TIMEOUT`]; further ones are
//! refused at once. Semaphores count the places; the map only serves to find the connection to evict.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of new connections that wait while all others are busy; further ones are refused at once. Connections
/// that linger after their rejection count as well: they keep their waiting permit until they close.
const MAX_WAITING_CONNECTIONS: usize = 1_024;
/// How long a new connection waits for capacity while all others are busy. A burst of short requests passes in this
/// time; a client that would wait longer is better told to try again.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(2);

/// All open connections of a server.
#[derive(Debug)]
pub(crate) struct HttpConnections {
    /// One permit per open connection.
    permits: Arc<Semaphore>,
    /// One permit per connection that waits for capacity.
    waiting_permits: Semaphore,
    /// Connections that may be evicted, by id.
    open: Mutex<HashMap<u64, Arc<HttpConnection>>>,
    next_id: AtomicU64,
    /// Zero point of all `idle_since` values.
    started_at: Instant,
    idle_notifier: Arc<IdleNotifier>,
}

/// Wakes new connections that wait for one to become idle.
#[derive(Debug, Default)]
struct IdleNotifier {
    /// Number of waiting connections. Spares the notification in the usual case that there are none.
    waiting: AtomicUsize,
    notify: Notify,
}

/// The state of one connection. Shared by its task, by the guards of its requests and by the map of open connections.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    id: u64,
    /// Requests whose response is not completely written yet.
    active: AtomicUsize,
    /// Set by the first request. Without a request there is no response to flush when the connection closes.
    has_request: AtomicBool,
    /// End of the last request, in microseconds since `started_at`. A connection without a request has been idle since
    /// it was admitted.
    idle_since: AtomicU64,
    started_at: Instant,
    /// Cancelled by an eviction or by the shutdown: the connection closes as soon as it is idle.
    close: CancellationToken,
    idle_notifier: Arc<IdleNotifier>,
}

/// RAII guard for an open connection; dropping it frees the capacity.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pub(crate) connection: Arc<HttpConnection>,
    connections: Arc<HttpConnections>,
    _permit: OwnedSemaphorePermit,
}

/// RAII guard for a request in progress; dropped together with the response body.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<HttpConnection>);

/// Why a new connection was not admitted.
#[derive(Debug)]
pub(crate) enum NoCapacity<'a> {
    /// No connection became idle in time. The waiting permit bounds the connections that linger after their rejection.
    TimedOut(SemaphorePermit<'a>),
    /// [`MAX_WAITING_CONNECTIONS`] wait already.
    QueueFull,
}

impl HttpConnections {
    /// Creates an empty set for at most `capacity` connections.
    pub(crate) fn new(capacity: usize) -> Arc<HttpConnections> {
        Arc::new(HttpConnections {
            permits: Arc::new(Semaphore::new(capacity)),
            waiting_permits: Semaphore::new(MAX_WAITING_CONNECTIONS),
            open: Mutex::default(),
            next_id: AtomicU64::new(0),
            started_at: Instant::now(),
            idle_notifier: Arc::default(),
        })
    }

    /// Admits a new connection, whose `close` token is a child of `closing`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        closing: &CancellationToken,
    ) -> Result<ConnectionPermit, NoCapacity<'_>> {
        // The usual case: a place is free.
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit().await?,
        };
        let connection = Arc::new(HttpConnection {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            active: AtomicUsize::new(0),
            has_request: AtomicBool::new(false),
            idle_since: AtomicU64::new(microseconds(self.started_at.elapsed())),
            started_at: self.started_at,
            close: closing.child_token(),
            idle_notifier: self.idle_notifier.clone(),
        });
        self.open.lock().insert(connection.id, connection.clone());
        Ok(ConnectionPermit { connection, connections: self.clone(), _permit: permit })
    }

    /// Waits up to [`CAPACITY_TIMEOUT`] for another connection to close.
    async fn wait_for_permit(&self) -> Result<OwnedSemaphorePermit, NoCapacity<'_>> {
        // Held until the connection is admitted, or, after a rejection, until it is closed.
        let waiting_permit = self.waiting_permits.try_acquire().map_err(|_| NoCapacity::QueueFull)?;
        match tokio::time::timeout(CAPACITY_TIMEOUT, self.evict_idle()).await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) | Err(_) => Err(NoCapacity::TimedOut(waiting_permit)),
        }
    }

    /// Closes one idle connection, now or when one becomes idle, and takes the next free permit.
    async fn evict_idle(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = WaitingGuard::new(&self.idle_notifier);
        let mut permit = pin!(self.permits.clone().acquire_owned());
        loop {
            let mut became_idle = pin!(self.idle_notifier.notify.notified());
            // Registers for notifications before the search, so that none between the two is missed.
            became_idle.as_mut().enable();
            if self.close_oldest_idle() {
                // The evicted connection still has to close; its place becomes free when its task ends.
                return permit.await.ok();
            }
            tokio::select! {
                permit = &mut permit => return permit.ok(),
                () = became_idle => {}
            }
        }
    }

    /// Closes the connection that has been idle longest; returns false when all are busy. Scans all connections, which is
    /// cheaper than an ordered structure that every request would have to update.
    pub(crate) fn close_oldest_idle(&self) -> bool {
        // The lock is held for the scan alone. Requests do not take it: they change atomic counters.
        let mut open = self.open.lock();
        let idle = open.values().filter(|connection| connection.is_idle());
        let oldest = idle.min_by_key(|connection| (connection.idle_since.load(Ordering::Relaxed), connection.id));
        let Some(id) = oldest.map(|connection| connection.id) else { return false };
        // Removed at once, so that a concurrent eviction chooses another one.
        let closed = open.remove(&id);
        drop(open);
        closed.inspect(|connection| connection.close.cancel()).is_some()
    }
}

impl HttpConnection {
    /// Marks the connection as busy until the returned guard is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        // Sequentially consistent, as in `Drop for ActiveRequest`.
        self.active.fetch_add(1, Ordering::SeqCst);
        self.has_request.store(true, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// True when no request is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Ordering::SeqCst) == 0
    }

    /// True when the connection has carried at least one request.
    pub(crate) fn has_had_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// Waits until the connection is evicted or the shutdown begins.
    pub(crate) async fn wait_until_closing(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let connection = &self.0;
        // Before the counter falls to zero, so that an eviction that sees the connection as idle also sees since when.
        connection.idle_since.store(microseconds(connection.started_at.elapsed()), Ordering::Relaxed);
        // Both counters are sequentially consistent: either this sees the waiting connection and wakes it, or that one
        // sees this connection as idle.
        connection.active.fetch_sub(1, Ordering::SeqCst);
        if connection.idle_notifier.waiting.load(Ordering::SeqCst) > 0 {
            connection.idle_notifier.notify.notify_one();
        }
    }
}

impl Drop for ConnectionPermit {
    // Out of the map before the permit is released, so that an eviction does not choose a connection that is closed.
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.connection.id);
    }
}

/// RAII guard that counts a waiting connection.
struct WaitingGuard<'a>(&'a IdleNotifier);

impl WaitingGuard<'_> {
    /// Counts before the search for an idle connection, so that a request that ends meanwhile sends its notification.
    fn new(notifier: &IdleNotifier) -> WaitingGuard<'_> {
        notifier.waiting.fetch_add(1, Ordering::SeqCst);
        WaitingGuard(notifier)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
