//! The open connections, at most so many. At capacity a new connection takes the place of the one that has been idle
//! longest; a connection with a request in progress or an open stream is never closed for another.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// New connections that wait while all others are busy; one more is refused at once.
const MAX_WAITING_CONNECTIONS: usize = 1_024;
/// How long a new connection waits for a place while all others are busy.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct HttpConnections {
    permits: Arc<Semaphore>,
    waiting_permits: Semaphore,
    /// Those that may be closed to make room, by their number.
    open: Mutex<HashMap<u64, Arc<HttpConnection>>>,
    next_id: AtomicU64,
    started: Instant,
    idle_notifier: Arc<IdleNotifier>,
}

/// Wakes new connections that wait for one to become idle.
#[derive(Debug, Default)]
struct IdleNotifier {
    waiting: AtomicUsize,
    notify: Notify,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    id: u64,
    /// Requests whose response is not completely written yet.
    active: AtomicUsize,
    /// Whether there was a request at all.
    has_request: AtomicBool,
    /// In microseconds since the server started.
    idle_since: AtomicU64,
    started: Instant,
    close: CancellationToken,
    idle_notifier: Arc<IdleNotifier>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pub(crate) connection: Arc<HttpConnection>,
    connections: Arc<HttpConnections>,
    _permit: OwnedSemaphorePermit,
}

/// A request in progress, until it is dropped with the response's body.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<HttpConnection>);

/// Why there is no place for a new connection.
#[derive(Debug)]
pub(crate) enum NoCapacity<'a> {
    /// None became free in time.
    TimedOut(SemaphorePermit<'a>),
    QueueFull,
}

impl HttpConnections {
    pub(crate) fn new(capacity: usize) -> Arc<HttpConnections> {
        Arc::new(HttpConnections {
            permits: Arc::new(Semaphore::new(capacity)),
            waiting_permits: Semaphore::new(MAX_WAITING_CONNECTIONS),
            open: Mutex::default(),
            next_id: AtomicU64::new(0),
            started: Instant::now(),
            idle_notifier: Arc::default(),
        })
    }

    /// Admits a new connection, whose `close` token is a child of `closing`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        closing: &CancellationToken,
    ) -> Result<ConnectionPermit, NoCapacity<'_>> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit().await?,
        };
        let connection = Arc::new(HttpConnection {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            active: AtomicUsize::new(0),
            has_request: AtomicBool::new(false),
            idle_since: AtomicU64::new(microseconds(self.started.elapsed())),
            started: self.started,
            close: closing.child_token(),
            idle_notifier: self.idle_notifier.clone(),
        });
        self.open().insert(connection.id, connection.clone());
        Ok(ConnectionPermit { connection, connections: self.clone(), _permit: permit })
    }

    async fn wait_for_permit(&self) -> Result<OwnedSemaphorePermit, NoCapacity<'_>> {
        let waiting_place = self.waiting_permits.try_acquire().map_err(|_| NoCapacity::QueueFull)?;
        match tokio::time::timeout(CAPACITY_TIMEOUT, self.evict_idle()).await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) | Err(_) => Err(NoCapacity::TimedOut(waiting_place)),
        }
    }

    /// Closes one idle connection, now or when one becomes idle, and takes the next place that is free.
    async fn evict_idle(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = WaitingGuard::new(&self.idle_notifier);
        let mut place = pin!(self.permits.clone().acquire_owned());
        loop {
            let mut became_idle = pin!(self.idle_notifier.notify.notified());
            // From here on none is missed.
            became_idle.as_mut().enable();
            if self.close_oldest_idle() {
                return place.await.ok();
            }
            tokio::select! {
                place = &mut place => return place.ok(),
                () = became_idle => {}
            }
        }
    }

    /// Closes the connection that has been idle longest; false when all are busy. Looks at all of them, which is cheaper
    /// than an order that every request would have to keep up to date.
    pub(crate) fn close_oldest_idle(&self) -> bool {
        let mut open = self.open();
        let idle = open.values().filter(|connection| connection.is_idle());
        let oldest = idle.min_by_key(|connection| (connection.idle_since.load(Ordering::Relaxed), connection.id));
        let Some(number) = oldest.map(|connection| connection.id) else { return false };
        // Another new connection chooses another one.
        let closed = open.remove(&number);
        drop(open);
        closed.inspect(|connection| connection.close.cancel()).is_some()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<HttpConnection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpConnection {
    /// A request begins.
    pub(crate) fn begin_request(self: &Arc<Self>) -> ActiveRequest {
        self.active.fetch_add(1, Ordering::SeqCst);
        self.has_request.store(true, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn has_had_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// Waits until the connection is to be closed as soon as it is idle.
    pub(crate) async fn wait_until_closing(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.idle_since.store(microseconds(connection.started.elapsed()), Ordering::Relaxed);
        // In one order with the count of those that wait: either this sees them, or they see an idle connection.
        connection.active.fetch_sub(1, Ordering::SeqCst);
        if connection.idle_notifier.waiting.load(Ordering::SeqCst) > 0 {
            connection.idle_notifier.notify.notify_one();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.open().remove(&self.connection.id);
    }
}

/// Counts a new connection that waits.
struct WaitingGuard<'a>(&'a IdleNotifier);

impl WaitingGuard<'_> {
    fn new(idle: &IdleNotifier) -> WaitingGuard<'_> {
        idle.waiting.fetch_add(1, Ordering::SeqCst);
        WaitingGuard(idle)
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
