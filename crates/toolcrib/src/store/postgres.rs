//! Store in a PostgreSQL database, which any number of nodes share.
//!
//! Every transaction that changes records, statuses or leases locks the one row of `head` first. Sequence numbers are
//! therefore dense and in the order of the commits: a reader that has seen record 7 has seen all before it. A sequence
//! of the database would give numbers before the commit, and readers would miss records that are committed late. The
//! common first lock also rules out deadlocks. Counts and logins have rows of their own for that ([`changes`]).
//!
//! Each commit notifies the other nodes. Notifications are only hints, so readers poll as well. Leases end by the clock
//! of the database ([`lease`]).

mod administration;
mod changes;
mod connections;
mod content;
mod counts;
mod errors;
mod journal;
mod lease;
mod logins;
mod measurements;
mod nodes;
mod prune;
mod schema;
mod snapshot;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions, Connection, PgConnection};
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId, Timestamp};

use super::administration::unfinished_copy_error;
use super::open::ExpectedContent;
use super::{
    CacheCount, CallCount, ChangeCounters, Commit, CommitOutcome, CopyRun, CountBatch, DiscoveryCheck, Lease, Login,
    Measurements, NodeReport, NodeStatus, PruneMode, PruneReport, PruneSelection, SchemaStatus, SourceStatus, Store,
    StoreAdministration, StoredRecord, StoredSnapshot, TokenUse,
};
use changes::ChangeListener;
use connections::DatabasePool;
use counts::BatchOutcome;
use errors::{DatabaseName, StoreLabel};
use journal::CommitAttempt;
use schema::SCHEMA;

/// Maximum time of the first connection, so that a command with a wrong URL fails soon.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time of one operation, as seen from here: a database that is paused sends neither answer nor error. A start
/// that such a database interrupts ends within 10 s.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum time of operations that read everything. Each of their statements is short.
const LONG_OPERATION_TIMEOUT: Duration = Duration::from_secs(600);
/// Settings of each session, whatever the defaults of the database are.
///
/// Limits that the database itself applies to each statement, so that none goes on after its client has given up. A
/// process that is paused within a transaction loses its locks long before the others give up waiting for them. A
/// statement after one that waited for a lock must read what was committed meanwhile, and an acknowledged commit must
/// be durable.
const SESSION_SETTINGS: [(&str, &str); 5] = [
    ("lock_timeout", "5s"),
    ("statement_timeout", "7s"),
    ("idle_in_transaction_session_timeout", "2s"),
    ("default_transaction_isolation", "read committed"),
    ("synchronous_commit", "on"),
];
/// Parameters of the URL, other than `options[NAME]`.
const URL_PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// Poll interval. Notifications are faster; polling finds what was written while the listening connection was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time of a poll, so that a database that does not answer is soon known to be down.
const POLL_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs one function of a submodule on a connection, which is kept for reuse if that succeeded.
macro_rules! with_connection {
    ($store:expr, within $limit:expr, $work:path $(, $argument:expr)*) => {{
        let store: &PostgresStore = $store;
        let mut connection = store.connections.acquire().await?;
        let outcome = tokio::time::timeout($limit, $work(&mut connection $(, $argument)*)).await;
        connection.finish($limit, outcome)
    }};
    ($store:expr, $work:path $(, $argument:expr)*) => {
        with_connection!($store, within OPERATION_TIMEOUT, $work $(, $argument)*)
    };
}

/// A [`Store`] in a PostgreSQL database.
pub struct PostgresStore {
    connections: DatabasePool,
    database: DatabaseName,
    changes: ChangeListener,
    own_changes: OwnChanges,
}

/// Number of changes that this store has made itself, and that its process need not read.
#[derive(Debug, Default)]
struct OwnChanges {
    counts: AtomicU64,
    token_uses: AtomicU64,
}

/// Without the connection settings, which hold the password.
impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.database).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store at a URL such as `postgres://user:password@host/database`. Creates the tables in an empty
    /// database, and migrates older ones. Fails within seconds if the database cannot be reached.
    pub async fn open(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedContent::Any).await
    }

    /// Opens a store that exists. Creates nothing: a database without tables is an error.
    pub async fn open_existing(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedContent::Existing).await
    }

    /// Opens a store that was in use before: a database without tables is damaged.
    pub(super) async fn open_used_before(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedContent::UsedBefore).await
    }

    /// Opens a store in order to copy another one into it; creates the tables if there are none. Only this opens an
    /// unfinished copy.
    pub async fn open_copy_target(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect(url, ExpectedContent::CopyTarget).await
    }

    /// Returns the name of the database, without credentials.
    pub fn database_name(url: &str) -> Result<String> {
        Ok(DatabaseName::new(&parse_url(url)?).to_string())
    }

    async fn connect(url: &str, expected: ExpectedContent) -> Result<PostgresStore> {
        let options = parse_url(url)?;
        let database = DatabaseName::new(&options);
        let options = with_session_settings(options);
        let store = StoreLabel::Opening(&database);
        let first = tokio::time::timeout(OPEN_TIMEOUT, options.connect()).await;
        let mut connection = match first {
            Ok(connection) => connection.map_err(|error| errors::store_error(store, error))?,
            Err(_) => return Err(errors::no_answer_error(store, OPEN_TIMEOUT)),
        };
        let prepared = prepare(&mut connection, expected, &database).await;
        // Announces the end to the server, which is not worth a failure.
        let _ = tokio::time::timeout(Duration::from_secs(1), connection.close()).await;
        prepared?;
        let connections = DatabasePool::new(options.clone(), database.clone());
        let own_changes = OwnChanges::default();
        Ok(PostgresStore { connections, changes: ChangeListener::new(options), database, own_changes })
    }

    /// Finds out whether a commit was executed whose answer was lost. The database may be restarting, so it is asked
    /// again for a few seconds. `None` if it cannot tell.
    async fn resolve_lost_commit(&self, commit: &Commit<'_>, records: &[StoredRecord]) -> Option<CommitOutcome> {
        const MAX_ATTEMPTS: usize = 10;
        const ATTEMPT_INTERVAL: Duration = Duration::from_millis(500);
        for _ in 0..MAX_ATTEMPTS {
            match self.find_commit(commit, records).await {
                Ok(outcome) => return Some(outcome),
                Err(error) => tracing::debug!(%error, "whether a commit was executed is not known yet"),
            }
            tokio::time::sleep(ATTEMPT_INTERVAL).await;
        }
        None
    }

    async fn find_commit(&self, commit: &Commit<'_>, records: &[StoredRecord]) -> Result<CommitOutcome> {
        with_connection!(self, journal::find_commit, commit, records)
    }
}

/// Parses a URL.
fn parse_url(url: &str) -> Result<PgConnectOptions> {
    // The error of the parser may quote the password.
    let invalid = || {
        let message = "the URL of the PostgreSQL store is invalid; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`";
        Error::new(Code::ConfigInvalid, message)
    };
    let parsed = url::Url::parse(url).map_err(|_| invalid())?;
    // A `?` in a password begins the parameters too early.
    if parsed.query().is_some_and(|query| query.contains('@')) {
        let message = "the URL of the PostgreSQL store has `@` after `?`; write `?` in a password as `%3F`, and `@` in a \
                       parameter as `%40`";
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    // The parser ignores an unknown parameter, and a misspelt `sslmode` would turn off the check of the certificate.
    let is_known = |name: &str| URL_PARAMETERS.contains(&name) || name.starts_with("options[");
    if let Some((unknown, _)) = parsed.query_pairs().find(|(name, _)| !is_known(name)) {
        let message = format!(
            "the URL of the PostgreSQL store has the unknown parameter `{}`; known ones are {}",
            sanitize_truncated(&unknown, 40),
            URL_PARAMETERS.join(", ")
        );
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    let is_ssl_mode = |name: &str| matches!(name, "sslmode" | "ssl-mode");
    if parsed.query_pairs().any(|(name, value)| is_ssl_mode(&name) && value.parse::<PgSslMode>().is_err()) {
        let message = "the URL of the PostgreSQL store has an unknown `sslmode`; known ones are disable, allow, prefer, \
                       require, verify-ca and verify-full";
        return Err(Error::new(Code::ConfigInvalid, message));
    }
    let options = PgConnectOptions::from_str(url).map_err(|_| invalid())?;
    // The parser leaves the brackets of an IPv6 address, with which no host is found.
    let host = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
    Ok(match host {
        Some(host) => options.host(&host),
        None => options,
    })
}

/// Adds what every connection needs.
fn with_session_settings(options: PgConnectOptions) -> PgConnectOptions {
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("toolcrib"),
    };
    options.options(SESSION_SETTINGS).disable_statement_logging()
}

/// Checks the schema, and creates or migrates it if necessary. A schema that this version cannot use is refused without
/// being changed.
async fn prepare(connection: &mut PgConnection, expected: ExpectedContent, database: &DatabaseName) -> Result<()> {
    let store = StoreLabel::Opening(database);
    match within(OPEN_TIMEOUT, store, schema::read_state(connection, SCHEMA)).await? {
        schema::DatabaseSchema::Usable => {}
        schema::DatabaseSchema::New if expected == ExpectedContent::Existing => {
            return Err(errors::no_store_error(store));
        }
        schema::DatabaseSchema::New if expected == ExpectedContent::UsedBefore => {
            return Err(errors::lost_store_error(store, "holds no tables"));
        }
        schema::DatabaseSchema::New => {
            within(OPEN_TIMEOUT, store, schema::migrate(connection, SCHEMA)).await?.check(store)?
        }
        // May rewrite large tables.
        schema::DatabaseSchema::Older(_) => {
            within(LONG_OPERATION_TIMEOUT, store, schema::migrate(connection, SCHEMA)).await?.check(store)?;
        }
        unusable @ (schema::DatabaseSchema::Newer { .. } | schema::DatabaseSchema::Incomplete) => {
            unusable.check(store)?
        }
    }
    if expected != ExpectedContent::CopyTarget
        && within(OPEN_TIMEOUT, store, administration::unfinished_copy(connection)).await?.is_some()
    {
        return Err(unfinished_copy_error(&database.to_string()));
    }
    Ok(())
}

/// Limits a step of the opening.
async fn within<T>(limit: Duration, store: StoreLabel<'_>, step: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, step).await {
        Ok(done) => done.map_err(|error| errors::store_error(store, error)),
        Err(_) => Err(errors::no_answer_error(store, limit)),
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        with_connection!(self, journal::read_records, after, limit)
    }

    async fn kept_head(&self) -> Result<u64> {
        with_connection!(self, journal::read_head)
    }

    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        let records = commit.records().context(Code::Internal, "write an event as JSON")?;
        let mut connection = self.connections.acquire().await?;
        let sender = self.changes.sender();
        let attempt = journal::commit(&mut connection, &commit, &records, sender, OPERATION_TIMEOUT).await;
        // The connection of an unanswered commit is of no use any more.
        let attempt = match attempt {
            Ok(Ok(CommitAttempt::Unanswered(error))) => {
                drop(connection);
                CommitAttempt::Unanswered(error)
            }
            attempt => connection.finish(OPERATION_TIMEOUT, attempt)?,
        };
        match attempt {
            CommitAttempt::Ended(outcome) => Ok(outcome),
            CommitAttempt::NeedsContract { event, contracted } => {
                Err(errors::needs_contract_error(&event, &contracted))
            }
            CommitAttempt::Unanswered(error) => {
                let outcome = self.resolve_lost_commit(&commit, &records).await;
                outcome.ok_or_else(|| errors::unknown_outcome_error(error))
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
        with_connection!(self, within LONG_OPERATION_TIMEOUT, content::load_feature_summaries, fingerprints)
    }

    async fn features(&self, fingerprints: &[Fingerprint]) -> Result<Vec<FeatureList>> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, content::load_features, fingerprints)
    }

    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        with_connection!(self, content::put_definition, name, definition)
    }

    async fn definitions(&self, names: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, content::load_definitions, names)
    }

    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>, head: u64) -> Result<bool> {
        with_connection!(self, content::remove_definitions, source, keep, head)
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

    async fn remove_source_status(&self, source: &SourceId, head: u64) -> Result<bool> {
        let sender = self.changes.sender();
        with_connection!(self, measurements::remove_source_status, source, head, sender)
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

    async fn add_counts(&self, batch: &CountBatch, calls: &[CallCount], lookups: &[CacheCount]) -> Result<()> {
        let outcome = with_connection!(self, counts::add_batch, batch, calls, lookups)?;
        if outcome == BatchOutcome::Applied {
            self.own_changes.counts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        with_connection!(self, counts::call_counts)
    }

    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        with_connection!(self, counts::cache_counts)
    }

    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()> {
        with_connection!(self, counts::record_token_uses, uses)?;
        self.own_changes.token_uses.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn token_uses(&self) -> Result<Vec<TokenUse>> {
        with_connection!(self, counts::token_uses)
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
        with_connection!(self, within LONG_OPERATION_TIMEOUT, snapshot::put, snapshot)
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

    /// Counts that this store has written are known to its process.
    async fn change_counters(&self) -> Result<ChangeCounters> {
        let counters = with_connection!(self, within POLL_TIMEOUT, journal::read_change_counters)?;
        let own = &self.own_changes;
        Ok(ChangeCounters {
            counts: counters.counts.wrapping_sub(own.counts.load(Ordering::Relaxed)),
            token_uses: counters.token_uses.wrapping_sub(own.token_uses.load(Ordering::Relaxed)),
            ..counters
        })
    }

    fn poll_interval(&self) -> Duration {
        POLL_INTERVAL
    }

    async fn wait_for_changes(&self) {
        self.changes.wait().await;
    }

    async fn close(&self) {
        self.changes.close();
        self.connections.close().await;
    }
}

#[async_trait]
impl StoreAdministration for PostgresStore {
    async fn begin_copy(&self, key: [u8; 32], run: CopyRun) -> Result<()> {
        let step = with_connection!(self, administration::begin_copy, key, run)?;
        step.map_err(|refusal| refusal.to_error(&self.database.to_string()))
    }

    async fn restore_records(&self, run: CopyRun, after: u64, records: &[StoredRecord]) -> Result<()> {
        let step = with_connection!(self, administration::restore_records, run, after, records)?;
        step.map_err(|refusal| refusal.to_error(&self.database.to_string()))
    }

    async fn restore_measurements(&self, run: CopyRun, measurements: &Measurements) -> Result<()> {
        let limit = LONG_OPERATION_TIMEOUT;
        let step = with_connection!(self, within limit, administration::restore_measurements, run, measurements)?;
        step.map_err(|refusal| refusal.to_error(&self.database.to_string()))
    }

    async fn finish_copy(&self, run: CopyRun) -> Result<()> {
        let step = with_connection!(self, administration::finish_copy, run)?;
        step.map_err(|refusal| refusal.to_error(&self.database.to_string()))
    }

    async fn finished_copy(&self) -> Result<Option<CopyRun>> {
        with_connection!(self, administration::finished_copy)
    }

    async fn checked_sources(&self) -> Result<Vec<SourceId>> {
        with_connection!(self, administration::checked_sources)
    }

    async fn prune(&self, selection: &PruneSelection, mode: PruneMode) -> Result<PruneReport> {
        with_connection!(self, within LONG_OPERATION_TIMEOUT, prune::prune, selection, mode)
    }

    async fn schema_status(&self) -> Result<SchemaStatus> {
        with_connection!(self, schema::read_status, SCHEMA)
    }

    async fn migrate_contract(&self) -> Result<bool> {
        match with_connection!(self, within LONG_OPERATION_TIMEOUT, schema::contract, SCHEMA)? {
            schema::ContractOutcome::Finished => Ok(true),
            schema::ContractOutcome::Unneeded => Ok(false),
            schema::ContractOutcome::InUse(nodes) => Err(errors::older_nodes_error(&nodes)),
        }
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
        for (url, message) in [
            ("postgres://me:secret@host:port/db", "is invalid; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`"),
            ("postgres://me:secret@host/db?sslmode=maybe", "has an unknown `sslmode`; known ones are disable"),
            ("postgres://me:secret@host/db?sslmod=verify-full", "has the unknown parameter `sslmod`; known ones are"),
            ("postgres://me:12?secret@host/db", "write `?` in a password as `%3F`"),
            ("postgres://me:12?secret&more@host/db", "write `?` in a password as `%3F`"),
        ] {
            let error = parse_url(url).unwrap_err();
            assert_eq!(error.code, Code::ConfigInvalid);
            assert!(error.message.contains(message), "{url}: {}", error.message);
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }

    #[test]
    fn the_name_of_a_database_has_no_password() {
        let name = |url: &str| PostgresStore::database_name(url).unwrap();
        assert_eq!(name("postgres://me:secret@db.example.com/tools"), "postgres://me@db.example.com:5432/tools");
        assert_eq!(name("postgresql://me@127.0.0.1:5433/tools?sslmode=disable"), "postgres://me@127.0.0.1:5433/tools");
        assert_eq!(name("postgres://me:secret@[::1]:5433/tools"), "postgres://me@[::1]:5433/tools");
        assert_eq!(parse_url("postgres://me@[::1]/tools").unwrap().get_host(), "::1");
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
