//! The store in one SQLite file: write-ahead log, synced at every commit, one connection that reads and one that writes,
//! so that a reader never waits for a writer. Any number of processes may share the file.

mod content;
mod errors;
mod file;
mod journal;
mod lease;
mod measurements;
mod schema;
mod serial_connection;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};
use tokio::time::Instant;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Result, Source, SourceId};

use super::{
    CacheCount, CallCount, Commit, CommitOutcome, DiscoveryCheck, Lease, SourceStatus, Store, StoreState, StoredRecord,
};
use file::FileIdentity;
use serial_connection::SerialConnection;

/// The name of the file in a data directory.
pub(super) const STORE_FILE_NAME: &str = "toolcrib.db";

/// How long callers wait. They take turns in this process and wait for the lock on the file that another process
/// holds; both are long, so that a busy machine delays work instead of losing it. Commands have shorter deadlines.
#[derive(Debug, Clone, Copy)]
struct StoreTimeouts {
    queue: Duration,
    lock: Duration,
    /// To open a store: a program that cannot reach it says so soon.
    open: Duration,
}

const DEFAULT_TIMEOUTS: StoreTimeouts =
    StoreTimeouts { queue: Duration::from_secs(60), lock: Duration::from_secs(30), open: Duration::from_secs(5) };

/// What may lie at a path that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedFile {
    /// A store, or nothing yet.
    Any,
    /// A store that was in use before.
    Existing,
}

/// Each method takes its turn, runs one function of a submodule, and ends the turn with what came of it.
macro_rules! with_connection {
    ($lane:expr, $work:path $(, $argument:expr)*) => {{
        let mut connection = $lane.acquire().await?;
        let outcome = $work(&mut connection.connection $(, $argument)*).await;
        connection.finish(outcome)
    }};
}

#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    timeouts: StoreTimeouts,
    reader: SerialConnection,
    writer: SerialConnection,
}

impl SqliteStore {
    /// Opens the store of a data directory, and makes both where they are missing.
    pub async fn open(directory: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::open_file(directory.as_ref().join(STORE_FILE_NAME)).await
    }

    pub async fn open_file(path: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::open_with(path.as_ref(), DEFAULT_TIMEOUTS).await
    }

    /// Opens a store that was in use before, and makes nothing: one that is gone or empty is an error.
    pub async fn open_existing(path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = file::find_existing(path.as_ref())?;
        SqliteStore::connect(path, DEFAULT_TIMEOUTS, ExpectedFile::Existing).await
    }

    /// Fills a new store with records as another one had them, and gives it that one's key.
    pub(super) async fn restore(&self, records: &[StoredRecord], key: Option<[u8; 32]>) -> Result<()> {
        with_connection!(self.writer, journal::restore, records, key)
    }

    /// Why a part of the file must be missing, if so.
    pub(super) fn find_truncation(&self) -> Option<String> {
        file::find_truncation(&self.path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn open_with(path: &Path, patience: StoreTimeouts) -> Result<SqliteStore> {
        SqliteStore::connect(file::create_if_missing(path)?, patience, ExpectedFile::Any).await
    }

    async fn connect(path: PathBuf, patience: StoreTimeouts, expect: ExpectedFile) -> Result<SqliteStore> {
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(patience.lock)
            .foreign_keys(false)
            .disable_statement_logging();
        let reads = SerialConnection::new(&path, patience.queue, options.clone().busy_timeout(patience.open));
        let writes = SerialConnection::new(&path, patience.queue, options.synchronous(SqliteSynchronous::Full));
        let store = SqliteStore { path, timeouts: patience, reader: reads, writer: writes };
        store.prepare(expect).await?;
        let identity = FileIdentity::read(&store.path)?;
        store.reader.pin(identity);
        store.writer.pin(identity);
        Ok(store)
    }

    /// One statement when the store is as we know it; the connection that writes is opened by the first write.
    async fn prepare(&self, expect: ExpectedFile) -> Result<()> {
        let mut turn = self.reader.acquire().await?;
        let found = schema::read_schema_state(&mut turn.connection).await;
        match turn.finish(found)? {
            schema::SchemaState::Current => Ok(()),
            schema::SchemaState::New if expect == ExpectedFile::Existing => {
                Err(errors::lost_store_error(&self.path, StoreState::Damaged, "holds no tables"))
            }
            schema::SchemaState::Older | schema::SchemaState::New => self.upgrade().await,
            schema::SchemaState::Newer(version) => Err(errors::newer_schema_error(&self.path, version)),
            schema::SchemaState::Foreign => Err(errors::foreign_database_error(&self.path)),
        }
    }

    /// The wait for another process is bounded, the work is not.
    async fn upgrade(&self) -> Result<()> {
        let deadline = Instant::now() + self.timeouts.open;
        loop {
            let mut turn = self.writer.acquire().await?;
            set_busy_timeout(&mut turn.connection, self.timeouts.open)
                .await
                .map_err(|error| errors::store_error(&self.path, error))?;
            let upgraded = schema::migrate(&mut turn.connection).await;
            match upgraded {
                // Turning the log on does not wait for another process that does the same, so we do.
                Err(error) if errors::is_busy(&error) && Instant::now() < deadline => {
                    drop(turn);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => return turn.finish(Err(error)),
                Ok(()) => {
                    let restored = set_busy_timeout(&mut turn.connection, self.timeouts.lock).await;
                    return turn.finish(restored);
                }
            }
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        with_connection!(self.reader, journal::read_records, after, limit)
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        with_connection!(self.writer, journal::commit, &commit)
    }

    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()> {
        with_connection!(self.writer, content::put_manifest, manifest)
    }

    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        with_connection!(self.reader, content::load_manifests, wanted)
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        with_connection!(self.writer, content::put_definition, name, definition)
    }

    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        with_connection!(self.reader, content::load_definitions, wanted)
    }

    async fn remove_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()> {
        with_connection!(self.writer, content::remove_definitions, source, but)
    }

    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        with_connection!(self.reader, measurements::source_statuses)
    }

    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        with_connection!(self.reader, measurements::checks, source)
    }

    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        with_connection!(self.writer, measurements::invalidate, source)
    }

    async fn remove_source_status(&self, source: &SourceId) -> Result<()> {
        with_connection!(self.writer, measurements::remove_source_status, source)
    }

    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        with_connection!(self.writer, lease::acquire, source, holder, duration)
    }

    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        with_connection!(self.writer, lease::release, source, holder)
    }

    async fn add_counts(&self, calls: &[CallCount], needs: &[CacheCount]) -> Result<()> {
        if calls.is_empty() && needs.is_empty() {
            return Ok(());
        }
        with_connection!(self.writer, measurements::add_counts, calls, needs)
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        with_connection!(self.reader, measurements::call_counts)
    }

    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        with_connection!(self.reader, measurements::cache_counts)
    }

    async fn key(&self) -> Result<[u8; 32]> {
        with_connection!(self.reader, schema::read_key)
    }

    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        with_connection!(self.reader, schema::check_integrity, limit)
    }

    /// SQLite tells a connection when others committed. The one that reads never writes, so it hears of our own
    /// writes too; it counts from the start when it is opened again, hence the upper half.
    async fn change_counter(&self) -> Result<u64> {
        let mut turn = self.reader.acquire().await?;
        let opened = turn.open_count();
        let heard = data_version(&mut turn.connection).await;
        Ok(u64::from(opened) << 32 | u64::from(turn.finish(heard)?))
    }

    /// The last connection to leave folds the log into the file.
    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

async fn set_busy_timeout(connection: &mut SqliteConnection, timeout: Duration) -> sqlx::Result<()> {
    let pragma = format!("PRAGMA busy_timeout = {}", timeout.as_millis());
    sqlx::raw_sql(sqlx::AssertSqlSafe(pragma)).execute(connection).await.map(drop)
}

async fn data_version(connection: &mut SqliteConnection) -> sqlx::Result<u32> {
    sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await
}

#[cfg(test)]
mod tests;
