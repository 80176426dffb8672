//! Store in one SQLite file: write-ahead log (WAL), synced at every commit. One connection reads and one writes, so
//! that readers never wait for writers. Any number of processes may share the file.
//!
//! `synchronous = FULL` on the writing connection makes a commit durable before it is acknowledged; with `NORMAL`, a
//! power failure loses acknowledged records. Every transaction of several statements begins with `BEGIN IMMEDIATE`, so
//! that what it reads stays true until its commit; a single statement is a transaction by itself.

mod administration;
mod backup;
mod content;
mod counts;
mod errors;
mod file;
mod journal;
mod lease;
mod logins;
mod measurements;
mod process_identity;
mod rebuild;
mod schema;
mod serial_connection;
mod snapshot;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};
use tokio::time::Instant;
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Result, Source, SourceId, Timestamp};

use super::administration::unfinished_copy_error;
use super::open::{ExpectedContent, STORE_FILE_NAME};
use super::{
    CacheCount, CallCount, ChangeCounters, Commit, CommitOutcome, CopyRun, CountBatch, DiscoveryCheck, Lease, Login,
    Measurements, PruneMode, PruneReport, PruneSelection, SchemaStatus, SourceStatus, Store, StoreAdministration,
    StoreState, StoredRecord, StoredSnapshot, TokenUse,
};
use file::FileIdentity;
use serial_connection::SerialConnection;

pub use backup::{ExistingStore, Restoration, back_up_store, restore_backup};
pub use rebuild::rebuild_store;

/// Timeouts of callers: for the connection within this process, and for a lock that another process holds on the
/// file. Both are long, so that a busy machine delays work instead of losing it; commands have shorter timeouts of
/// their own.
#[derive(Debug, Clone, Copy)]
struct StoreTimeouts {
    /// For the connection, while other callers use it.
    queue: Duration,
    /// For the lock on the file (`busy_timeout`).
    lock: Duration,
    /// To open the store. Short, so that a program that cannot open its store reports it soon.
    open: Duration,
}

/// Timeouts outside of tests. The queue may take longer than the lock: the caller in front may itself wait for the
/// lock.
const DEFAULT_TIMEOUTS: StoreTimeouts =
    StoreTimeouts { queue: Duration::from_secs(60), lock: Duration::from_secs(30), open: Duration::from_secs(5) };

/// Runs one function of a submodule on a connection, and keeps the connection for reuse if that succeeded.
macro_rules! with_connection {
    ($serial:expr, $work:path $(, $argument:expr)*) => {{
        let mut connection = $serial.acquire().await?;
        let outcome = $work(&mut connection.connection $(, $argument)*).await;
        connection.finish(outcome)
    }};
}

/// A [`Store`] in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    timeouts: StoreTimeouts,
    /// Description of a file that is shorter than its header says.
    truncation: Option<String>,
    /// Only reads, so `PRAGMA data_version` of this connection also counts the writes of this process.
    reader: SerialConnection,
    /// Opened by the first write: a command that only reads needs one connection.
    writer: SerialConnection,
}

impl SqliteStore {
    /// Opens the store of a data directory; creates directory and store if they are missing.
    pub async fn open(directory: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::open_file(directory.as_ref().join(STORE_FILE_NAME)).await
    }

    /// Opens the store in a file; creates it if it is missing. A file that is a database of another program is refused.
    pub async fn open_file(path: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::open_with(path.as_ref(), DEFAULT_TIMEOUTS).await
    }

    /// Opens a store that exists. Creates nothing: a missing or empty file is an error.
    pub async fn open_existing(path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = file::find_existing(path.as_ref())?;
        SqliteStore::connect(path, DEFAULT_TIMEOUTS, ExpectedContent::Existing).await
    }

    /// Opens the store in a file in order to copy another one into it; creates it if it is missing. Only this opens an
    /// unfinished copy.
    /// Fails with `CONFLICT` if another process has the file open.
    pub async fn open_copy_target(path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = file::create_if_missing(path.as_ref())?;
        file::ensure_unused(&path).await?;
        SqliteStore::connect(path, DEFAULT_TIMEOUTS, ExpectedContent::CopyTarget).await
    }

    /// Opens a new file for a backup, in a directory that exists.
    async fn open_backup_target(path: &Path) -> Result<SqliteStore> {
        let path = file::create_in_directory(path)?;
        file::ensure_unused(&path).await?;
        SqliteStore::connect(path, DEFAULT_TIMEOUTS, ExpectedContent::CopyTarget).await
    }

    /// Returns a description if the file was shorter than its header says when the store was opened.
    pub(super) fn truncation(&self) -> Option<&str> {
        self.truncation.as_deref()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path as messages name it.
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Moves the log into the file and closes the store, so that the file is complete under another name. Fails if
    /// another connection keeps a part of the log in use.
    async fn close_for_rename(&self, journal_mode: JournalMode) -> Result<()> {
        self.reader.close().await;
        let completed = with_connection!(self.writer, complete_file, journal_mode)?;
        self.writer.close().await;
        if completed { Ok(()) } else { Err(errors::locked_error(&self.path)) }
    }

    /// Opens a store with other timeouts than the default.
    async fn open_with(path: &Path, timeouts: StoreTimeouts) -> Result<SqliteStore> {
        SqliteStore::connect(file::create_if_missing(path)?, timeouts, ExpectedContent::Any).await
    }

    /// Opens the connections and brings the schema up to date. The reader waits for a lock only as long as opening may
    /// take; in WAL mode it hardly ever has to.
    async fn connect(path: PathBuf, timeouts: StoreTimeouts, expected: ExpectedContent) -> Result<SqliteStore> {
        // Before SQLite opens the file: closing it here would end the locks of this process, by which others know that
        // the store is in use.
        let truncation = file::find_truncation(&path);
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(timeouts.lock)
            .foreign_keys(false)
            .disable_statement_logging();
        let reader = SerialConnection::new(&path, timeouts.queue, options.clone().busy_timeout(timeouts.open));
        // Manifests are large: with pages of 4 KiB, a start spends more time requesting pages than reading them. Size
        // and mode are permanent; a backup that is used as a store has another mode.
        let writer =
            options.synchronous(SqliteSynchronous::Full).page_size(16_384).journal_mode(SqliteJournalMode::Wal);
        let writer = SerialConnection::new(&path, timeouts.queue, writer);
        let store = SqliteStore { path, timeouts, truncation, reader, writer };
        store.prepare(expected).await?;
        // From now on, both connections notice when the file is removed or replaced.
        let identity = FileIdentity::read(&store.path)?;
        store.reader.pin(identity);
        store.writer.pin(identity);
        Ok(store)
    }

    /// Checks the schema version, and migrates if necessary. For a current schema these are two small statements; the
    /// writing connection is opened by the first write. A store of a newer schema or of another program is refused
    /// without being changed.
    async fn prepare(&self, expected: ExpectedContent) -> Result<()> {
        self.prepare_schema(expected).await?;
        if expected != ExpectedContent::CopyTarget
            && with_connection!(self.reader, administration::unfinished_copy)?.is_some()
        {
            return Err(unfinished_copy_error(&self.name()));
        }
        Ok(())
    }

    /// Checks the schema version, and migrates if necessary.
    async fn prepare_schema(&self, expected: ExpectedContent) -> Result<()> {
        let mut guard = self.reader.acquire().await?;
        let state = schema::read_schema_state(&mut guard.connection).await;
        match guard.finish(state)? {
            schema::SchemaState::Current => Ok(()),
            schema::SchemaState::New if expected == ExpectedContent::Existing => {
                Err(errors::lost_store_error(&self.path, StoreState::Damaged, "holds no tables"))
            }
            schema::SchemaState::Older | schema::SchemaState::New => self.migrate().await,
            schema::SchemaState::Newer(version) => Err(errors::newer_schema_error(&self.path, version)),
            schema::SchemaState::Foreign => Err(errors::foreign_database_error(&self.path)),
        }
    }

    /// Migrates the schema. Only the wait for another process is bounded, not the migration.
    async fn migrate(&self) -> Result<()> {
        let deadline = Instant::now() + self.timeouts.open;
        loop {
            match self.try_migrate().await {
                // Switching to WAL ignores the busy timeout when another process does the same, so wait here.
                Err(error) if error.is_retryable() && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                migrated => return migrated,
            }
        }
    }

    async fn try_migrate(&self) -> Result<()> {
        let mut guard = self.writer.acquire().await?;
        let migrated = async {
            set_busy_timeout(&mut guard.connection, self.timeouts.open).await?;
            schema::migrate(&mut guard.connection).await?;
            set_busy_timeout(&mut guard.connection, self.timeouts.lock).await
        };
        let migrated = migrated.await;
        guard.finish(migrated)
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

    async fn manifests(&self, fingerprints: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        with_connection!(self.reader, content::load_manifests, fingerprints)
    }

    async fn put_features(&self, features: &FeatureList) -> Result<()> {
        with_connection!(self.writer, content::put_features, features)
    }

    async fn feature_summaries(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureSummary>> {
        with_connection!(self.reader, content::load_feature_summaries, fingerprints)
    }

    async fn features(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureList>> {
        with_connection!(self.reader, content::load_features, fingerprints)
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        with_connection!(self.writer, content::put_definition, name, definition)
    }

    async fn definitions(&self, names: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        with_connection!(self.reader, content::load_definitions, names)
    }

    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>, head: u64) -> Result<bool> {
        with_connection!(self.writer, content::remove_definitions, source, keep, head)
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

    async fn remove_source_status(&self, source: &SourceId, head: u64) -> Result<bool> {
        with_connection!(self.writer, measurements::remove_source_status, source, head)
    }

    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        with_connection!(self.writer, lease::acquire, source, holder, duration)
    }

    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool> {
        with_connection!(self.writer, lease::renew, source, holder, duration)
    }

    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        with_connection!(self.writer, lease::release, source, holder)
    }

    async fn add_counts(&self, batch: &CountBatch, calls: &[CallCount], lookups: &[CacheCount]) -> Result<()> {
        with_connection!(self.writer, counts::add_batch, batch, calls, lookups)
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        with_connection!(self.reader, counts::call_counts)
    }

    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        with_connection!(self.reader, counts::cache_counts)
    }

    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()> {
        with_connection!(self.writer, counts::record_token_uses, uses)
    }

    async fn token_uses(&self) -> Result<Vec<TokenUse>> {
        with_connection!(self.reader, counts::token_uses)
    }

    async fn put_login(&self, login: &Login) -> Result<()> {
        with_connection!(self.writer, logins::put, login)
    }

    async fn remove_login(&self, digest: Fingerprint) -> Result<bool> {
        with_connection!(self.writer, logins::remove, digest)
    }

    async fn logins(&self, now: Timestamp) -> Result<Vec<Login>> {
        with_connection!(self.reader, logins::list, now)
    }

    async fn put_snapshot(&self, snapshot: &StoredSnapshot) -> Result<()> {
        with_connection!(self.writer, snapshot::put, snapshot)
    }

    async fn snapshot(&self) -> Result<Option<StoredSnapshot>> {
        with_connection!(self.reader, snapshot::load)
    }

    fn administration(&self) -> &dyn StoreAdministration {
        self
    }

    async fn key(&self) -> Result<[u8; 32]> {
        with_connection!(self.reader, schema::read_key)
    }

    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        with_connection!(self.reader, schema::check_integrity, limit)
    }

    /// `PRAGMA data_version` changes when another connection committed. The reading connection never writes, so it
    /// notices this process's own writes too. The version starts again when the connection is reopened, hence the
    /// number of opens in the upper half.
    async fn change_counters(&self) -> Result<ChangeCounters> {
        let mut guard = self.reader.acquire().await?;
        let open_count = guard.open_count();
        let version = data_version(&mut guard.connection).await;
        Ok(ChangeCounters::for_all_parts(u64::from(open_count) << 32 | u64::from(guard.finish(version)?)))
    }

    /// Closing the last connection makes SQLite move the log into the file.
    async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}

#[async_trait]
impl StoreAdministration for SqliteStore {
    async fn begin_copy(&self, key: [u8; 32], run: CopyRun) -> Result<()> {
        let step = with_connection!(self.writer, administration::begin_copy, key, run)?;
        step.map_err(|refusal| refusal.to_error(&self.name()))
    }

    async fn restore_records(&self, run: CopyRun, after: u64, records: &[StoredRecord]) -> Result<()> {
        let step = with_connection!(self.writer, administration::restore_records, run, after, records)?;
        step.map_err(|refusal| refusal.to_error(&self.name()))
    }

    async fn restore_measurements(&self, run: CopyRun, measurements: &Measurements) -> Result<()> {
        let step = with_connection!(self.writer, administration::restore_measurements, run, measurements)?;
        step.map_err(|refusal| refusal.to_error(&self.name()))
    }

    async fn finish_copy(&self, run: CopyRun) -> Result<()> {
        let step = with_connection!(self.writer, administration::finish_copy, run)?;
        step.map_err(|refusal| refusal.to_error(&self.name()))
    }

    async fn finished_copy(&self) -> Result<Option<CopyRun>> {
        with_connection!(self.reader, administration::finished_copy)
    }

    async fn checked_sources(&self) -> Result<Vec<SourceId>> {
        with_connection!(self.reader, administration::checked_sources)
    }

    async fn prune(&self, selection: &PruneSelection, mode: PruneMode) -> Result<PruneReport> {
        with_connection!(self.writer, administration::prune, selection, mode)
    }

    /// Opening a store migrates it, completely.
    async fn schema_status(&self) -> Result<SchemaStatus> {
        Ok(SchemaStatus { version: schema::SCHEMA_VERSION, is_contract_pending: false })
    }
}

/// Sets how long statements wait for a lock of another process.
async fn set_busy_timeout(connection: &mut SqliteConnection, timeout: Duration) -> sqlx::Result<()> {
    let pragma = format!("PRAGMA busy_timeout = {}", timeout.as_millis());
    sqlx::raw_sql(sqlx::AssertSqlSafe(pragma)).execute(connection).await.map(drop)
}

/// Journal mode of a file that is complete without its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JournalMode {
    /// For a store.
    Wal,
    /// For a backup: a file in WAL mode cannot be read in a directory that is not writable.
    Delete,
}

/// Moves the log into the file. Returns false if another connection uses a part of it.
async fn complete_file(connection: &mut SqliteConnection, journal_mode: JournalMode) -> sqlx::Result<bool> {
    let (busy, _, _): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut *connection).await?;
    if busy == 0 && journal_mode == JournalMode::Delete {
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode = DELETE").fetch_one(connection).await?;
        return Ok(mode == "delete");
    }
    Ok(busy == 0)
}

/// Returns SQLite's counter of commits by other connections.
async fn data_version(connection: &mut SqliteConnection) -> sqlx::Result<u32> {
    sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await
}

#[cfg(test)]
mod tests;
