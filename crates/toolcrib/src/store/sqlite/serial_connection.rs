//! One connection, opened when it is first needed and used by one caller at a time, in the order they came.
//! Only a turn that ends well gives its connection back: after an error or a cancelled call nobody knows whether
//! SQLite has already rolled back, so the next turn starts with a new one.

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

#[derive(Debug)]
pub(super) struct SerialConnection {
    path: PathBuf,
    queue_timeout: Duration,
    options: SqliteConnectOptions,
    /// The file that was opened, once the store is ready.
    identity: OnceLock<FileIdentity>,
    state: Mutex<SerialConnectionState>,
}

#[derive(Debug, Default)]
struct SerialConnectionState {
    idle: Option<SqliteConnection>,
    /// How often a connection has been opened.
    open_count: u32,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct ConnectionGuard<'a> {
    pub(super) connection: SqliteConnection,
    path: &'a Path,
    identity: Option<FileIdentity>,
    state: MutexGuard<'a, SerialConnectionState>,
}

impl SerialConnection {
    pub(super) fn new(path: &Path, patience: Duration, options: SqliteConnectOptions) -> SerialConnection {
        SerialConnection {
            path: path.to_owned(),
            queue_timeout: patience,
            options,
            identity: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// From now on the path must lead to this file.
    pub(super) fn pin(&self, identity: FileIdentity) {
        let _ = self.identity.set(identity);
    }

    pub(super) async fn acquire(&self) -> Result<ConnectionGuard<'_>> {
        let Ok(mut seat) = timeout(self.queue_timeout, self.state.lock()).await else {
            return Err(errors::busy_error(&self.path));
        };
        if seat.closed {
            return Err(errors::closed_error(&self.path));
        }
        let identity = self.identity.get().copied();
        if let Some(identity) = identity {
            identity.ensure_unchanged(&self.path)?;
        }
        let connection = match seat.idle.take() {
            Some(connection) => connection,
            None => {
                seat.open_count = seat.open_count.wrapping_add(1);
                self.options.connect().await.map_err(|error| store_error(&self.path, error))?
            }
        };
        Ok(ConnectionGuard { connection, path: &self.path, identity, state: seat })
    }

    pub(super) async fn close(&self) {
        let mut seat = self.state.lock().await;
        seat.closed = true;
        let Some(connection) = seat.idle.take() else { return };
        if let Err(error) = connection.close().await {
            tracing::warn!(%error, "the store did not close cleanly; nothing is lost");
        }
    }
}

impl ConnectionGuard<'_> {
    pub(super) fn open_count(&self) -> u32 {
        self.state.open_count
    }

    pub(super) fn finish<T>(mut self, outcome: sqlx::Result<T>) -> Result<T> {
        let done = outcome.map_err(|error| store_error(self.path, error))?;
        // Looked at again: what was written meanwhile to a file that is gone is not durable.
        if let Some(identity) = self.identity {
            identity.ensure_unchanged(self.path)?;
        }
        self.state.idle = Some(self.connection);
        Ok(done)
    }
}
