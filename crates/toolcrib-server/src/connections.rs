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
const MAX_WAITING: usize = 1_024;
/// How long a new connection waits for a place while all others are busy.
const PLACE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    waiting_places: Semaphore,
    /// Those that may be closed to make room, by their number.
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    next_number: AtomicU64,
    started: Instant,
    idle: Arc<BecameIdle>,
}

/// Wakes new connections that wait for one to become idle.
#[derive(Debug, Default)]
struct BecameIdle {
    waiting: AtomicUsize,
    notify: Notify,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    /// Requests whose response is not completely written yet.
    active: AtomicUsize,
    /// Whether there was a request at all.
    served: AtomicBool,
    /// In microseconds since the server started.
    idle_since: AtomicU64,
    started: Instant,
    close: CancellationToken,
    idle: Arc<BecameIdle>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pub(crate) connection: Arc<Connection>,
    connections: Arc<Connections>,
    _permit: OwnedSemaphorePermit,
}

/// A request in progress, until it is dropped with the response's body.
#[derive(Debug)]
pub(crate) struct Active(Arc<Connection>);

/// Why there is no place for a new connection.
#[derive(Debug)]
pub(crate) enum Full<'a> {
    /// None became free in time.
    Waited(SemaphorePermit<'a>),
    TooManyWait,
}

impl Connections {
    pub(crate) fn new(capacity: usize) -> Arc<Connections> {
        Arc::new(Connections {
            places: Arc::new(Semaphore::new(capacity)),
            waiting_places: Semaphore::new(MAX_WAITING),
            open: Mutex::default(),
            next_number: AtomicU64::new(0),
            started: Instant::now(),
            idle: Arc::default(),
        })
    }

    /// Admits a new connection, whose `close` token is a child of `closing`.
    pub(crate) async fn admit(self: &Arc<Self>, closing: &CancellationToken) -> Result<ConnectionPermit, Full<'_>> {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit().await?,
        };
        let connection = Arc::new(Connection {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            active: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            idle_since: AtomicU64::new(microseconds(self.started.elapsed())),
            started: self.started,
            close: closing.child_token(),
            idle: self.idle.clone(),
        });
        self.open().insert(connection.number, connection.clone());
        Ok(ConnectionPermit { connection, connections: self.clone(), _permit: permit })
    }

    async fn wait_for_permit(&self) -> Result<OwnedSemaphorePermit, Full<'_>> {
        let waiting_place = self.waiting_places.try_acquire().map_err(|_| Full::TooManyWait)?;
        match tokio::time::timeout(PLACE_TIMEOUT, self.make_room()).await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) | Err(_) => Err(Full::Waited(waiting_place)),
        }
    }

    /// Closes one idle connection, now or when one becomes idle, and takes the next place that is free.
    async fn make_room(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = Waiting::begin(&self.idle);
        let mut place = pin!(self.places.clone().acquire_owned());
        loop {
            let mut became_idle = pin!(self.idle.notify.notified());
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
        let oldest = idle.min_by_key(|connection| (connection.idle_since.load(Ordering::Relaxed), connection.number));
        let Some(number) = oldest.map(|connection| connection.number) else { return false };
        // Another new connection chooses another one.
        let closed = open.remove(&number);
        drop(open);
        closed.inspect(|connection| connection.close.cancel()).is_some()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// A request begins.
    pub(crate) fn activate(self: &Arc<Self>) -> Active {
        self.active.fetch_add(1, Ordering::SeqCst);
        self.served.store(true, Ordering::Relaxed);
        Active(self.clone())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Waits until the connection is to be closed as soon as it is idle.
    pub(crate) async fn closing(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.idle_since.store(microseconds(connection.started.elapsed()), Ordering::Relaxed);
        // In one order with the count of those that wait: either this sees them, or they see an idle connection.
        connection.active.fetch_sub(1, Ordering::SeqCst);
        if connection.idle.waiting.load(Ordering::SeqCst) > 0 {
            connection.idle.notify.notify_one();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.open().remove(&self.connection.number);
    }
}

/// Counts a new connection that waits.
struct Waiting<'a>(&'a BecameIdle);

impl Waiting<'_> {
    fn begin(idle: &BecameIdle) -> Waiting<'_> {
        idle.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(idle)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
