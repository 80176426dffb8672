//! Store in a PostgreSQL database, which any number of nodes share.
//!
//! Every transaction that other nodes must notice locks the one row of `head` first. Sequence numbers are therefore dense
//! and in the order of the commits: a reader that has seen record 7 has seen all before it. A sequence of the database
//! would give numbers before the commit, and readers would miss records that are committed late. The common first lock
//! also rules out deadlocks.
//!
//! News travel by `NOTIFY` with each commit ([`changes`]). They are only hints, so readers poll as well. Leases end by the
//! clock of the database ([`lease`]).

mod administration;
mod changes;
mod content;
mod errors;
mod journal;
mod lease;
mod logins;
mod measurements;
mod nodes;
mod schema;
mod snapshot;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool, Postgres};
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use super::administration::unfinished_copy_error;
use super::{
    CacheCount, CallCount, Commit, CommitOutcome, DiscoveryCheck, Lease, Login, Measurements, NodeReport, NodeStatus,
    PruneMode, PruneReport, PruneSelection, SchemaStatus, SourceStatus, Store, StoreAdministration, StoredRecord,
    StoredSnapshot, TokenUse,
};
use changes::ChangeListener;
use errors::DatabaseName;
use journal::CommitAttempt;

/// Maximum number of connections of a process, besides the one that listens. Reads are served from memory, so a node
/// needs few; a database has about a hundred for all nodes.
const MAX_CONNECTIONS: u32 = 8;
/// Maximum wait for a connection, with the time to open one. Short, because writes of clients wait for it while the
/// database is down.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time of the first connection, so that a command with a wrong URL fails soon.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time of one operation, as seen from here: a database that is paused sends neither answer nor error.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time of operations that read everything.
const LONG_OPERATION_TIMEOUT: Duration = Duration::from_secs(600);
/// Ends a connection that has not been used for this long, so that an idle node holds none but the listening one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Limits that the database itself applies to each statement, so that none goes on after its client has given up.
const SERVER_TIMEOUTS: [(&str, &str); 3] =
    [("lock_timeout", "5s"), ("statement_timeout", "10s"), ("idle_in_transaction_session_timeout", "20s")];
/// Poll interval. Notifications are faster; polling finds what was written while the listening connection was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time of a poll, so that a database that does not answer is soon known to be down.
const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs one function of a submodule on a connection, which returns to the pool if that succeeded.
macro_rules! with_connection {
    ($store:expr, within $limit:expr, $work:path $(, $argument:expr)*) => {{
        let store: &PostgresStore = $store;
        let mut connection = store.acquire().await?;
        let outcome = tokio::time::timeout($limit, $work(&mut connection $(, $argument)*)).await;
        store.finish(connection, $limit, outcome)
    }};
    ($store:expr, $work:path $(, $argument:expr)*) => {
        with_connection!($store, within OPERATION_TIMEOUT, $work $(, $argument)*)
    };
}

/// A [`Store`] in a PostgreSQL database.
pub struct PostgresStore {
    pool: PgPool,
    database: DatabaseName,
    changes: ChangeListener,
}

/// Expected content of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedSchema {
    /// A store, or nothing yet.
    Any,
    /// A store to fill, which may be an unfinished copy, or nothing yet.
    CopyTarget,
    /// A store that was in use before; anything else is damage.
    Existing,
}

/// Without the connection settings, which hold the password.
impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.database).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store at a URL such as `postgres://user:password@host/database`. Creates the tables in an empty database,
    /// and migrates older ones. Fails within seconds if the database cannot be reached.
    pub async fn open(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedSchema::Any).await
    }

    /// Opens a store that was in use before. Creates nothing: a database without tables is an error.
    pub async fn open_existing(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedSchema::Existing).await
    }

    /// Opens a store in order to copy another one into it; creates the tables if there are none. Only this opens an
    /// unfinished copy.
    pub async fn open_copy_target(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedSchema::CopyTarget).await
    }

    /// Returns the name of the database, without credentials.
    pub fn database_name(url: &str) -> Result<String> {
        Ok(DatabaseName::new(&parse_url(url)?).to_string())
    }

    async fn connect(url: &str, expected: ExpectedSchema) -> Result<PostgresStore> {
        let options = parse_url(url)?;
        let database = DatabaseName::new(&options);
        let options = with_session_settings(options);
        // By itself and not through the pool, which tries again and in the end reports a timeout instead of the reason.
        let first = tokio::time::timeout(OPEN_TIMEOUT, options.connect()).await;
        let mut connection = match first {
            Ok(connection) => connection.map_err(|error| errors::store_error(&database, error))?,
            Err(_) => return Err(errors::no_answer_error(&database, OPEN_TIMEOUT)),
        };
        let prepared = prepare(&mut connection, expected, &database).await;
        // Closing tells the server good-bye, which is not worth a failure.
        let _ = tokio::time::timeout(Duration::from_secs(1), connection.close()).await;
        prepared?;
        let pool = PgPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        Ok(PostgresStore { pool, changes: ChangeListener::new(options), database })
    }

    /// Takes a connection from the pool. One that was lost meanwhile is replaced.
    async fn acquire(&self) -> Result<PoolConnection<Postgres>> {
        self.pool.acquire().await.map_err(|error| errors::store_error(&self.database, error))
    }

    /// Ends the use of a connection. After an error or a timeout its state is unknown, so it is closed, and the database
    /// rolls back what it had begun.
    fn finish<T>(
        &self,
        mut connection: PoolConnection<Postgres>,
        limit: Duration,
        outcome: Result<sqlx::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<T> {
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                connection.close_on_drop();
                Err(errors::store_error(&self.database, error))
            }
            Err(_) => {
                connection.close_on_drop();
                Err(errors::no_answer_error(&self.database, limit))
            }
        }
    }

    /// Finds out whether a commit was executed whose answer was lost. The database may be restarting, so it is asked
    /// again for a few seconds.
    async fn resolve_lost_commit(&self, record: &StoredRecord) -> Option<CommitOutcome> {
        const MAX_ATTEMPTS: usize = 4;
        for _ in 0..MAX_ATTEMPTS {
            match self.records(record.seq.saturating_sub(1), 1).await {
                // By its checksum, which covers content, time and actor.
                Ok(stored) if stored.first() == Some(record) => return Some(CommitOutcome::Committed),
                // Nothing was committed: the caller decides again on what is there now.
                Ok(_) => return Some(CommitOutcome::Conflict),
                Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            }
        }
        None
    }
}

/// Parses a URL.
fn parse_url(url: &str) -> Result<PgConnectOptions> {
    // The error of the parser may quote the password.
    PgConnectOptions::from_str(url).map_err(|_| {
        let message = "the URL of the PostgreSQL store is invalid; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`";
        Error::new(Code::ConfigInvalid, message)
    })
}

/// Adds what every connection needs.
fn with_session_settings(options: PgConnectOptions) -> PgConnectOptions {
    options.application_name("toolcrib").options(SERVER_TIMEOUTS).disable_statement_logging()
}

/// Checks the schema, and creates or migrates it if necessary. A schema that this version cannot use is refused without
/// being changed.
async fn prepare(connection: &mut PgConnection, expected: ExpectedSchema, database: &DatabaseName) -> Result<()> {
    let fail = |error| errors::store_error(database, error);
    match schema::read_state(connection).await.map_err(fail)? {
        schema::DatabaseSchema::Usable => {}
        schema::DatabaseSchema::New if expected == ExpectedSchema::Existing => {
            return Err(errors::lost_store_error(database, "holds no tables"));
        }
        schema::DatabaseSchema::New | schema::DatabaseSchema::Older(_) => {
            schema::migrate(connection).await.map_err(fail)?.check(database)?;
        }
        unusable @ (schema::DatabaseSchema::Newer(_) | schema::DatabaseSchema::Incomplete) => {
            unusable.check(database)?
        }
    }
    if expected != ExpectedSchema::CopyTarget && administration::is_copying(connection).await.map_err(fail)? {
        return Err(unfinished_copy_error(&database.to_string()));
    }
    Ok(())
}

#[async_trait]
impl Store for PostgresStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        with_connection!(self, journal::read_records, after, limit)
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        let encode = |error| errors::store_error(&self.database, sqlx::Error::Encode(Box::new(error)));
        let records = commit.records().map_err(encode)?;
        let sender = self.changes.sender();
        match with_connection!(self, journal::commit, &commit, &records, sender)? {
            CommitAttempt::Ended(outcome) => Ok(outcome),
            CommitAttempt::NeedsContract { event, contracted } => {
                Err(errors::needs_contract_error(&event, &contracted))
            }
            CommitAttempt::Unanswered(error) => {
                let known = match records.first() {
                    Some(first) => self.resolve_lost_commit(first).await,
                    None => None,
                };
                known.ok_or_else(|| errors::store_error(&self.database, error))
            }
        }
    }

    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()> {
        with_connection!(self, content::put_manifest, manifest)
    }

    async fn manifests(&self, fingerprints: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, content::load_manifests, fingerprints)
    }

    async fn put_features(&self, features: &FeatureList) -> Result<()> {
        with_connection!(self, content::put_features, features)
    }

    async fn feature_summaries(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureSummary>> {
        with_connection!(self, content::load_feature_summaries, fingerprints)
    }

    async fn features(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureList>> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, content::load_features, fingerprints)
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        with_connection!(self, content::put_definition, name, definition)
    }

    async fn definitions(&self, names: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        with_connection!(self, content::load_definitions, names)
    }

    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>) -> Result<()> {
        with_connection!(self, content::remove_definitions, source, keep)
    }

    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        with_connection!(self, measurements::source_statuses)
    }

    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        with_connection!(self, measurements::checks, source)
    }

    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        let sender = self.changes.sender();
        with_connection!(self, measurements::invalidate, source, sender)
    }

    async fn remove_source_status(&self, source: &SourceId) -> Result<()> {
        let sender = self.changes.sender();
        with_connection!(self, measurements::remove_source_status, source, sender)
    }

    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        with_connection!(self, lease::acquire, source, holder, duration)
    }

    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool> {
        with_connection!(self, lease::renew, source, holder, duration)
    }

    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        with_connection!(self, lease::release, source, holder)
    }

    async fn add_counts(&self, calls: &[CallCount], lookups: &[CacheCount]) -> Result<()> {
        with_connection!(self, measurements::add_counts, calls, lookups)
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        with_connection!(self, measurements::call_counts)
    }

    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        with_connection!(self, measurements::cache_counts)
    }

    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()> {
        with_connection!(self, measurements::record_token_uses, uses)
    }

    async fn token_uses(&self) -> Result<Vec<TokenUse>> {
        with_connection!(self, measurements::token_uses)
    }

    async fn put_login(&self, login: &Login) -> Result<()> {
        let sender = self.changes.sender();
        with_connection!(self, logins::put, login, sender)
    }

    async fn remove_login(&self, digest: Fingerprint) -> Result<bool> {
        let sender = self.changes.sender();
        with_connection!(self, logins::remove, digest, sender)
    }

    async fn logins(&self, now: Timestamp) -> Result<Vec<Login>> {
        with_connection!(self, logins::list, now)
    }

    async fn report_node(&self, report: &NodeReport) -> Result<()> {
        with_connection!(self, nodes::report, report)
    }

    async fn remove_node(&self, id: &str) -> Result<()> {
        with_connection!(self, nodes::remove, id)
    }

    async fn nodes(&self) -> Result<Option<Vec<NodeStatus>>> {
        with_connection!(self, nodes::list).map(Some)
    }

    async fn put_snapshot(&self, snapshot: &StoredSnapshot) -> Result<()> {
        with_connection!(self, snapshot::put, snapshot)
    }

    async fn snapshot(&self) -> Result<Option<StoredSnapshot>> {
        with_connection!(self, snapshot::load)
    }

    fn administration(&self) -> &dyn StoreAdministration {
        self
    }

    async fn key(&self) -> Result<[u8; 32]> {
        with_connection!(self, schema::read_key)
    }

    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, schema::check_integrity, limit)
    }

    async fn change_counter(&self) -> Result<u64> {
        with_connection!(self, within POLL_TIMEOUT, journal::read_change_counter)
    }

    fn poll_interval(&self) -> Duration {
        POLL_INTERVAL
    }

    async fn wait_for_changes(&self) {
        self.changes.wait().await;
    }

    /// Ends the listener first: the pool waits for the connections that are in use.
    async fn close(&self) {
        self.changes.close();
        // A database that does not answer would otherwise delay the end of the process.
        let _ = tokio::time::timeout(ACQUIRE_TIMEOUT, self.pool.close()).await;
    }
}

#[async_trait]
impl StoreAdministration for PostgresStore {
    async fn begin_copy(&self, key: [u8; 32]) -> Result<()> {
        with_connection!(self, administration::begin_copy, key)?.check(&self.database.to_string(), 0)
    }

    async fn restore_records(&self, after: u64, records: &[StoredRecord]) -> Result<()> {
        let step = with_connection!(self, administration::restore_records, after, records);
        step?.check(&self.database.to_string(), after)
    }

    async fn restore_measurements(&self, measurements: &Measurements) -> Result<()> {
        let limit = LONG_OPERATION_TIMEOUT;
        let step = with_connection!(self, within limit, administration::restore_measurements, measurements);
        step?.check(&self.database.to_string(), 0)
    }

    async fn finish_copy(&self) -> Result<()> {
        with_connection!(self, administration::finish_copy)
    }

    async fn checked_sources(&self) -> Result<Vec<SourceId>> {
        with_connection!(self, administration::checked_sources)
    }

    async fn prune(&self, selection: &PruneSelection, mode: PruneMode) -> Result<PruneReport> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, administration::prune, selection, mode)
    }

    async fn schema_status(&self) -> Result<SchemaStatus> {
        with_connection!(self, schema::read_status)
    }

    async fn migrate_contract(&self) -> Result<bool> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, schema::contract)
    }
}

/// Returns a number as the database stores it; numbers beyond its range match nothing.
fn to_bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreState;

    #[test]
    fn an_invalid_url_is_refused_without_repeating_it() {
        for url in ["postgres://me:secret@host:port/db", "postgres://me:secret@host/db?sslmode=maybe"] {
            let error = parse_url(url).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid);
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }

    #[test]
    fn the_name_of_a_database_has_no_password() {
        let name = |url: &str| PostgresStore::database_name(url).unwrap();
        assert_eq!(name("postgres://me:secret@db.example.com/tools"), "postgres://me@db.example.com:5432/tools");
        assert_eq!(name("postgresql://me@127.0.0.1:5433/tools?sslmode=disable"), "postgres://me@127.0.0.1:5433/tools");
    }

    #[tokio::test]
    async fn a_database_that_cannot_be_reached_is_reported_soon() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = PostgresStore::open(&format!("postgres://me:secret@127.0.0.1:{port}/tools")).await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::StoreUnavailable, true));
        assert_eq!(StoreState::from_error(&error), StoreState::Down);
        let expected = format!("the store `postgres://me@127.0.0.1:{port}/tools` cannot be reached");
        assert!(error.message.starts_with(&expected), "{}", error.message);
    }
}
