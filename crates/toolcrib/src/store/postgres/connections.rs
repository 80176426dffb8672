//! Connections of this process to the database: a few, opened when they are needed.
//!
//! Not the pool of `sqlx`, for four reasons. It tries again by itself and then reports a timeout instead of the reason.
//! It takes back a connection whose use was cancelled, with an unbounded check of its state. It lets every caller wait
//! for a database that is known to be down. It cannot tell a lack of connections of this process from an outage.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use toolcrib_core::Result;

use super::errors::{self, DatabaseName, StoreLabel};

/// Maximum number of connections of a process, besides the one that listens. Reads are served from memory, so a node
/// needs few; a database has about a hundred for all nodes.
const MAX_CONNECTIONS: usize = 8;
/// Maximum wait for a connection, with the time to open one. Short, because writes of clients wait for it while the
/// database does not answer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time to find out whether an idle connection still works.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after a failure in which no other attempt is made.
const OUTAGE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Ends a connection that has not been used for this long, so that an idle node holds one or none.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time to close the connections, so that a database that does not answer does not delay the end of the
/// process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections with the same options.
pub(super) struct DatabasePool {
    options: PgConnectOptions,
    database: DatabaseName,
    /// One permit for each connection that may be in use. Closed with the pool.
    permits: Semaphore,
    /// Connections that no caller uses, the one that was used last at the end.
    idle: Mutex<Vec<IdleConnection>>,
    /// Time of the next attempt while the database cannot be reached.
    next_attempt: Mutex<Option<Instant>>,
}

struct IdleConnection {
    connection: PgConnection,
    since: Instant,
}

/// Exclusive use of a connection. Dropped without [`finish`](DatabaseConnection::finish), such as by a caller that is
/// cancelled, it closes the connection, and the database rolls back what was begun.
pub(super) struct DatabaseConnection<'a> {
    connection: PgConnection,
    pool: &'a DatabasePool,
    /// Released after the connection is idle or closed.
    _permit: SemaphorePermit<'a>,
}

impl DatabasePool {
    /// Opens no connection yet.
    pub(super) fn new(options: PgConnectOptions, database: DatabaseName) -> DatabasePool {
        DatabasePool {
            options,
            database,
            permits: Semaphore::new(MAX_CONNECTIONS),
            idle: Mutex::default(),
            next_attempt: Mutex::default(),
        }
    }

    /// Returns a connection that works. While the database cannot be reached, one caller per second tries, and the
    /// others fail at once.
    pub(super) async fn acquire(&self) -> Result<DatabaseConnection<'_>> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        let permit = match timeout_at(deadline, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(errors::closed_error()),
            Err(_) => return Err(errors::busy_pool_error(MAX_CONNECTIONS)),
        };
        let connection = match self.take_idle().await {
            Some(connection) => connection,
            None => self.open(deadline).await?,
        };
        *self.next_attempt.lock() = None;
        Ok(DatabaseConnection { connection, pool: self, _permit: permit })
    }

    /// Opens a connection, unless the database is known to be down.
    async fn open(&self, deadline: Instant) -> Result<PgConnection> {
        self.begin_attempt()?;
        match timeout_at(deadline, self.options.connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => {
                tracing::debug!(database = %self.database, %error, "no connection to the store");
                if errors::is_outage(&error) {
                    self.note_outage();
                } else {
                    // The database answers; the next caller may get a connection.
                    *self.next_attempt.lock() = None;
                }
                Err(errors::store_error(StoreLabel::Running, error))
            }
            Err(_) => {
                tracing::debug!(database = %self.database, "the store does not answer");
                self.note_outage();
                Err(errors::no_answer_error(StoreLabel::Running, ACQUIRE_TIMEOUT))
            }
        }
    }

    /// Fails if the database could not be reached a moment ago, or if another caller is trying.
    fn begin_attempt(&self) -> Result<()> {
        let mut next_attempt = self.next_attempt.lock();
        let now = Instant::now();
        match *next_attempt {
            Some(at) if at > now => Err(errors::outage_error()),
            Some(_) => {
                // This caller finds out. If it is cancelled, another one tries after that time.
                *next_attempt = Some(now + ACQUIRE_TIMEOUT);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn note_outage(&self) {
        *self.next_attempt.lock() = Some(Instant::now() + OUTAGE_RETRY_INTERVAL);
    }

    /// Takes an idle connection. It is checked, because the database may have been restarted. Also while no connection
    /// can be opened: one slow statement says nothing about the others.
    async fn take_idle(&self) -> Option<PgConnection> {
        let IdleConnection { mut connection, .. } = self.idle.lock().pop()?;
        if matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(()))) {
            return Some(connection);
        }
        // The others have most likely been lost with it.
        self.idle.lock().clear();
        None
    }

    /// Closes the connections. Those in use are closed when their use ends. Later calls of `acquire` fail.
    pub(super) async fn close(&self) {
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock());
        let closing = futures_util::future::join_all(idle.into_iter().map(|idle| idle.connection.close()));
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }
}

impl DatabaseConnection<'_> {
    /// Ends the use of the connection, and converts an error. After an error or a timeout (`limit`) its state is
    /// unknown, so it is closed.
    pub(super) fn finish<T>(self, limit: Duration, outcome: Result<sqlx::Result<T>, Elapsed>) -> Result<T> {
        match outcome {
            Ok(Ok(value)) => {
                self.release();
                Ok(value)
            }
            Ok(Err(error)) => {
                tracing::debug!(database = %self.pool.database, %error, "the store failed");
                Err(errors::store_error(StoreLabel::Running, error))
            }
            Err(_) => {
                self.pool.note_outage();
                Err(errors::no_answer_error(StoreLabel::Running, limit))
            }
        }
    }

    /// Makes the connection idle.
    fn release(self) {
        let DatabaseConnection { connection, pool, _permit } = self;
        if pool.permits.is_closed() {
            return;
        }
        let mut idle = pool.idle.lock();
        idle.retain(|idle| idle.since.elapsed() < IDLE_TIMEOUT);
        idle.push(IdleConnection { connection, since: Instant::now() });
    }
}

impl Deref for DatabaseConnection<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for DatabaseConnection<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
