//! The store in one SQLite file: write-ahead log, synced at every commit, one connection that reads and one that writes,
//! so that a reader never waits for a writer. Any number of processes may share the file.

mod content;
mod fault;
mod file;
mod journal;
mod lane;
mod lease;
mod measures;
mod schema;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};
use tokio::time::Instant;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::Packed;
use toolcrib_core::{Result, Source, SourceId};

use super::{CallCount, Check, Commit, Committed, Lease, NeedCount, Standing, Store, StoreState, StoredRecord};
use file::FileIdentity;
use lane::Lane;

/// The name of the file in a data directory.
pub(super) const FILE_NAME: &str = "toolcrib.db";

/// How long callers wait. They take turns in this process and wait for the lock on the file that another process
/// holds; both are long, so that a busy machine delays work instead of losing it. Commands have shorter deadlines.
#[derive(Debug, Clone, Copy)]
struct Patience {
    turn: Duration,
    lock: Duration,
    /// To open a store: a program that cannot reach it says so soon.
    open: Duration,
}

const PATIENCE: Patience =
    Patience { turn: Duration::from_secs(60), lock: Duration::from_secs(30), open: Duration::from_secs(5) };

/// What may lie at a path that is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// A store, or nothing yet.
    Any,
    /// A store that was in use before.
    Existing,
}

/// Each method takes its turn, runs one function of a submodule, and ends the turn with what came of it.
macro_rules! in_turn {
    ($lane:expr, $work:path $(, $argument:expr)*) => {{
        let mut turn = $lane.turn().await?;
        let outcome = $work(&mut turn.connection $(, $argument)*).await;
        turn.end(outcome)
    }};
}

#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    patience: Patience,
    reads: Lane,
    writes: Lane,
}

impl SqliteStore {
    /// Opens the store of a data directory, and makes both where they are missing.
    pub async fn open(directory: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::open_file(directory.as_ref().join(FILE_NAME)).await
    }

    pub async fn open_file(path: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::open_with(path.as_ref(), PATIENCE).await
    }

    /// Opens a store that was in use before, and makes nothing: one that is gone or empty is an error.
    pub async fn open_existing(path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = file::find(path.as_ref())?;
        SqliteStore::connect(path, PATIENCE, Expect::Existing).await
    }

    /// Fills a new store with records as another one had them, and gives it that one's key.
    pub(super) async fn restore(&self, records: &[StoredRecord], key: Option<[u8; 32]>) -> Result<()> {
        in_turn!(self.writes, journal::restore, records, key)
    }

    /// Why a part of the file must be missing, if so.
    pub(super) fn find_cut(&self) -> Option<String> {
        file::find_cut(&self.path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn open_with(path: &Path, patience: Patience) -> Result<SqliteStore> {
        SqliteStore::connect(file::prepare(path)?, patience, Expect::Any).await
    }

    async fn connect(path: PathBuf, patience: Patience, expect: Expect) -> Result<SqliteStore> {
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(patience.lock)
            .foreign_keys(false)
            .disable_statement_logging();
        let reads = Lane::new(&path, patience.turn, options.clone().busy_timeout(patience.open));
        let writes = Lane::new(&path, patience.turn, options.synchronous(SqliteSynchronous::Full));
        let store = SqliteStore { path, patience, reads, writes };
        store.prepare(expect).await?;
        let identity = FileIdentity::read(&store.path)?;
        store.reads.pin(identity);
        store.writes.pin(identity);
        Ok(store)
    }

    /// One statement when the store is as we know it; the connection that writes is opened by the first write.
    async fn prepare(&self, expect: Expect) -> Result<()> {
        let mut turn = self.reads.turn().await?;
        let found = schema::found(&mut turn.connection).await;
        match turn.end(found)? {
            schema::Found::Current => Ok(()),
            schema::Found::New if expect == Expect::Existing => {
                Err(fault::lost(&self.path, StoreState::Damaged, "holds no tables"))
            }
            schema::Found::Older | schema::Found::New => self.upgrade().await,
            schema::Found::Newer(version) => Err(fault::newer(&self.path, version)),
            schema::Found::Foreign => Err(fault::foreign(&self.path)),
        }
    }

    /// The wait for another process is bounded, the work is not.
    async fn upgrade(&self) -> Result<()> {
        let deadline = Instant::now() + self.patience.open;
        loop {
            let mut turn = self.writes.turn().await?;
            set_busy_timeout(&mut turn.connection, self.patience.open)
                .await
                .map_err(|error| fault::fault(&self.path, error))?;
            let upgraded = schema::upgrade(&mut turn.connection).await;
            match upgraded {
                // Turning the log on does not wait for another process that does the same, so we do.
                Err(error) if fault::is_busy(&error) && Instant::now() < deadline => {
                    drop(turn);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => return turn.end(Err(error)),
                Ok(()) => {
                    let restored = set_busy_timeout(&mut turn.connection, self.patience.lock).await;
                    return turn.end(restored);
                }
            }
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        in_turn!(self.reads, journal::records, after, limit)
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<Committed> {
        in_turn!(self.writes, journal::commit, &commit)
    }

    async fn put_manifest(&self, manifest: &Packed) -> Result<()> {
        in_turn!(self.writes, content::put_manifest, manifest)
    }

    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<Packed>> {
        in_turn!(self.reads, content::manifests, wanted)
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        in_turn!(self.writes, content::put_definition, name, definition)
    }

    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        in_turn!(self.reads, content::definitions, wanted)
    }

    async fn forget_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()> {
        in_turn!(self.writes, content::forget_definitions, source, but)
    }

    async fn standings(&self) -> Result<BTreeMap<SourceId, Standing>> {
        in_turn!(self.reads, measures::standings)
    }

    async fn checks(&self, source: &SourceId) -> Result<Vec<Check>> {
        in_turn!(self.reads, measures::checks, source)
    }

    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        in_turn!(self.writes, measures::invalidate, source)
    }

    async fn forget(&self, source: &SourceId) -> Result<()> {
        in_turn!(self.writes, measures::forget, source)
    }

    async fn lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        in_turn!(self.writes, lease::lease, source, holder, duration)
    }

    async fn release(&self, source: &SourceId, holder: &str) -> Result<()> {
        in_turn!(self.writes, lease::release, source, holder)
    }

    async fn count(&self, calls: &[CallCount], needs: &[NeedCount]) -> Result<()> {
        if calls.is_empty() && needs.is_empty() {
            return Ok(());
        }
        in_turn!(self.writes, measures::count, calls, needs)
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        in_turn!(self.reads, measures::call_counts)
    }

    async fn need_counts(&self) -> Result<Vec<NeedCount>> {
        in_turn!(self.reads, measures::need_counts)
    }

    async fn key(&self) -> Result<[u8; 32]> {
        in_turn!(self.reads, schema::key)
    }

    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        in_turn!(self.reads, schema::check_integrity, limit)
    }

    /// SQLite tells a connection when others committed. The one that reads never writes, so it hears of our own
    /// writes too; it counts from the start when it is opened again, hence the upper half.
    async fn pulse(&self) -> Result<u64> {
        let mut turn = self.reads.turn().await?;
        let opened = turn.opened();
        let heard = data_version(&mut turn.connection).await;
        Ok(u64::from(opened) << 32 | u64::from(turn.end(heard)?))
    }

    /// The last connection to leave folds the log into the file.
    async fn close(&self) {
        self.reads.close().await;
        self.writes.close().await;
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
