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

use super::fault::{self, fault};
use super::file::FileIdentity;

#[derive(Debug)]
pub(super) struct Lane {
    path: PathBuf,
    patience: Duration,
    options: SqliteConnectOptions,
    /// The file that was opened, once the store is ready.
    identity: OnceLock<FileIdentity>,
    seat: Mutex<Seat>,
}

#[derive(Debug, Default)]
struct Seat {
    idle: Option<SqliteConnection>,
    /// How often a connection has been opened.
    opened: u32,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) connection: SqliteConnection,
    path: &'a Path,
    identity: Option<FileIdentity>,
    seat: MutexGuard<'a, Seat>,
}

impl Lane {
    pub(super) fn new(path: &Path, patience: Duration, options: SqliteConnectOptions) -> Lane {
        Lane { path: path.to_owned(), patience, options, identity: OnceLock::new(), seat: Mutex::default() }
    }

    /// From now on the path must lead to this file.
    pub(super) fn pin(&self, identity: FileIdentity) {
        let _ = self.identity.set(identity);
    }

    pub(super) async fn turn(&self) -> Result<Turn<'_>> {
        let Ok(mut seat) = timeout(self.patience, self.seat.lock()).await else {
            return Err(fault::queued(&self.path));
        };
        if seat.closed {
            return Err(fault::closed(&self.path));
        }
        let identity = self.identity.get().copied();
        if let Some(identity) = identity {
            identity.ensure_unchanged(&self.path)?;
        }
        let connection = match seat.idle.take() {
            Some(connection) => connection,
            None => {
                seat.opened = seat.opened.wrapping_add(1);
                self.options.connect().await.map_err(|error| fault(&self.path, error))?
            }
        };
        Ok(Turn { connection, path: &self.path, identity, seat })
    }

    pub(super) async fn close(&self) {
        let mut seat = self.seat.lock().await;
        seat.closed = true;
        let Some(connection) = seat.idle.take() else { return };
        if let Err(error) = connection.close().await {
            tracing::warn!(%error, "the store did not close cleanly; nothing is lost");
        }
    }
}

impl Turn<'_> {
    pub(super) fn opened(&self) -> u32 {
        self.seat.opened
    }

    pub(super) fn end<T>(mut self, outcome: sqlx::Result<T>) -> Result<T> {
        let done = outcome.map_err(|error| fault(self.path, error))?;
        // Looked at again: what was written meanwhile to a file that is gone is not durable.
        if let Some(identity) = self.identity {
            identity.ensure_unchanged(self.path)?;
        }
        self.seat.idle = Some(self.connection);
        Ok(done)
    }
}
