//! The tables, and how a store written by an older Toolcrib gets those of today.

use sqlx::{Connection, SqliteConnection};

use super::journal;

/// One step from each version to the next. Stores are out there: steps are added, never changed.
const MIGRATIONS: [&str; 4] = [CREATE_TABLES, DESCRIBE_RECORDS, NAME_LEASE_HOLDERS, ADD_CHECKSUMS];

const CREATE_TABLES: &str = "
    CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
    CREATE TABLE journal (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, actor TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE manifests (fingerprint TEXT PRIMARY KEY, idx TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE definitions (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE standings (source TEXT PRIMARY KEY, started_at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE checks (id INTEGER PRIMARY KEY, source TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE INDEX checks_of_source ON checks (source);
    CREATE TABLE leases (source TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL) STRICT;
    CREATE TABLE call_counts (
        source TEXT NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL, errors INTEGER NOT NULL,
        last_called INTEGER, last_error TEXT, PRIMARY KEY (source, tool)
    ) STRICT;
    CREATE TABLE need_counts (source TEXT PRIMARY KEY, hits INTEGER NOT NULL, misses INTEGER NOT NULL) STRICT;
    PRAGMA user_version = 1;
";

/// Each record says for older versions whether it may be ignored, and which version understands it. The records that are
/// there have types of 0.1.0; which of those are critical is written out, because the types that a later version calls
/// critical may be others. A body that is no JSON is damaged and has no type; `CASE`, because `AND` does not promise to
/// look at the left side first.
const DESCRIBE_RECORDS: &str = "
    ALTER TABLE journal ADD COLUMN critical INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE journal ADD COLUMN since TEXT NOT NULL DEFAULT '0.1.0';
    UPDATE journal SET critical = 1
    WHERE CASE WHEN json_valid(body) THEN json_extract(body, '$.type') END
        IN ('SourceChanged', 'SourceDisabled', 'SourceRemoved', 'ToolDisabled', 'TokenChanged', 'TokenRevoked');
    PRAGMA user_version = 2;
";

/// A lease goes by the time since the machine was started, and names its process. Those that are there go by the wall
/// clock and are void within seconds; those that a running process of an older version writes are void from the start.
const NAME_LEASE_HOLDERS: &str = "
    DROP TABLE leases;
    CREATE TABLE leases (
        source TEXT PRIMARY KEY, holder TEXT NOT NULL, process TEXT NOT NULL DEFAULT '', boot TEXT NOT NULL DEFAULT '',
        until INTEGER NOT NULL
    ) STRICT;
    PRAGMA user_version = 3;
";

/// A record has a checksum over its other columns. SQLite has no such function, so those that are there get theirs from
/// [`journal::add_checksums`]; what a running process of an older version appends has none and is not checked.
const ADD_CHECKSUMS: &str = "
    ALTER TABLE journal ADD COLUMN checksum TEXT;
    PRAGMA user_version = 4;
";
/// The version of the tables that brought checksums.
const CHECKSUMS_SINCE: i64 = 4;

pub(super) const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

pub(super) enum SchemaState {
    Current,
    Older,
    /// Without any table: a new file.
    New,
    Newer(i64),
    /// A database, but not ours.
    Foreign,
}

pub(super) async fn read_schema_state(connection: &mut SqliteConnection) -> sqlx::Result<SchemaState> {
    let (version, has_tables): (i64, bool) =
        sqlx::query_as("SELECT user_version, EXISTS (SELECT 1 FROM sqlite_schema) FROM pragma_user_version")
            .fetch_one(connection)
            .await?;
    Ok(match version {
        SCHEMA_VERSION => SchemaState::Current,
        0 if has_tables => SchemaState::Foreign,
        0 => SchemaState::New,
        1..SCHEMA_VERSION => SchemaState::Older,
        _ => SchemaState::Newer(version),
    })
}

pub(super) async fn migrate(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    // Both stay for good, and cannot be set inside a transaction. Manifests are large: with pages of 4 KiB, a start
    // spends more time asking for pages than reading them.
    sqlx::raw_sql("PRAGMA page_size = 16384; PRAGMA journal_mode = WAL").execute(&mut *connection).await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Asked again: another process may have been faster.
    let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
    for step in MIGRATIONS.into_iter().skip(usize::try_from(version).unwrap_or(usize::MAX)) {
        sqlx::raw_sql(step).execute(&mut *transaction).await?;
    }
    if (1..CHECKSUMS_SINCE).contains(&version) {
        journal::add_checksums(&mut transaction).await?;
    }
    if version == 0 {
        let key: [u8; 32] = rand::random();
        sqlx::query("INSERT INTO meta VALUES ('key', ?)").bind(key.to_vec()).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// SQLite's own check of its pages, indexes and constraints. It says `ok` where it finds nothing.
pub(super) async fn check_integrity(connection: &mut SqliteConnection, limit: usize) -> sqlx::Result<Vec<String>> {
    let pragma = sqlx::AssertSqlSafe(format!("PRAGMA integrity_check({limit})"));
    let lines: Vec<String> = sqlx::query_scalar(pragma).fetch_all(connection).await?;
    Ok(lines.into_iter().filter(|line| line != "ok").take(limit).collect())
}

pub(super) async fn read_key(connection: &mut SqliteConnection) -> sqlx::Result<[u8; 32]> {
    let key: Vec<u8> = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'key'").fetch_one(connection).await?;
    key.try_into().map_err(|_| sqlx::Error::Decode("the key is not 32 bytes".into()))
}
