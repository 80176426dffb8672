//! One SQLite connection, opened on first use and used by one caller at a time, in order.
//!
//! Only a successful use returns the connection. After an error or a cancelled call it is unknown whether SQLite has
//! rolled back already, so the next use opens a new one.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use toolcrib_core::Result;

use super::errors::{self, store_error};
use super::file::FileIdentity;

/// A connection with a queue of callers.
#[derive(Debug)]
pub(super) struct SerialConnection {
    path: PathBuf,
    /// Maximum wait of a caller for the connection.
    queue_timeout: Duration,
    options: SqliteConnectOptions,
    /// Identity of the file that was opened; set once the store is ready.
    identity: OnceLock<FileIdentity>,
    state: Mutex<SerialConnectionState>,
}

#[derive(Debug, Default)]
struct SerialConnectionState {
    /// The connection, while no caller uses it.
    idle: Option<SqliteConnection>,
    /// Number of connections opened so far.
    open_count: u32,
    closed: bool,
}

/// Exclusive use of the connection. Dropped without `finish`, it closes the connection.
#[derive(Debug)]
pub(super) struct ConnectionGuard<'a> {
    pub(super) connection: SqliteConnection,
    path: &'a Path,
    identity: Option<FileIdentity>,
    state: MutexGuard<'a, SerialConnectionState>,
}

impl SerialConnection {
    /// Creates a connection that is opened on first use.
    pub(super) fn new(path: &Path, queue_timeout: Duration, options: SqliteConnectOptions) -> SerialConnection {
        SerialConnection {
            path: path.to_owned(),
            queue_timeout,
            options,
            identity: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Requires from now on that the path leads to this file.
    pub(super) fn pin(&self, identity: FileIdentity) {
        // Set once, when the store is opened.
        let _ = self.identity.set(identity);
    }

    /// Waits for the connection, checks that the file is still the same, and opens the connection if necessary. Fails
    /// if the wait exceeds the queue timeout, the store is closed, or the file was removed or replaced.
    pub(super) async fn acquire(&self) -> Result<ConnectionGuard<'_>> {
        let Ok(mut state) = timeout(self.queue_timeout, self.state.lock()).await else {
            return Err(errors::busy_error(&self.path));
        };
        if state.closed {
            return Err(errors::closed_error(&self.path));
        }
        let identity = self.identity.get().copied();
        if let Some(identity) = identity {
            identity.ensure_unchanged(&self.path)?;
        }
        let connection = match state.idle.take() {
            Some(connection) => connection,
            None => {
                state.open_count = state.open_count.wrapping_add(1);
                self.options.connect().await.map_err(|error| store_error(&self.path, error))?
            }
        };
        Ok(ConnectionGuard { connection, path: &self.path, identity, state })
    }

    /// Closes the connection. Later calls of `acquire` fail.
    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.closed = true;
        let Some(connection) = state.idle.take() else { return };
        if let Err(error) = connection.close().await {
            tracing::warn!(%error, "the store did not close cleanly; nothing is lost");
        }
    }
}

impl ConnectionGuard<'_> {
    /// Returns how many connections were opened so far.
    pub(super) fn open_count(&self) -> u32 {
        self.state.open_count
    }

    /// Ends the use of the connection and converts an error of SQLite. After an error the connection is dropped, and
    /// SQLite rolls back what it had begun.
    pub(super) fn finish<T>(mut self, outcome: sqlx::Result<T>) -> Result<T> {
        let value = outcome.map_err(|error| store_error(self.path, error))?;
        // Checked again: what was just written to a file that is gone is not durable.
        if let Some(identity) = self.identity {
            identity.ensure_unchanged(self.path)?;
        }
        self.state.idle = Some(self.connection);
        Ok(value)
    }
}
