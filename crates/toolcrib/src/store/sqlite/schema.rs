//! The tables, and the migrations from older versions of them.

use sqlx::{Connection, SqliteConnection};

use super::journal;

/// One migration from each version to the next. Existing stores depend on them: migrations are added, never changed.
const MIGRATIONS: [&str; 7] =
    [CREATE_TABLES, DESCRIBE_RECORDS, NAME_LEASE_HOLDERS, ADD_CHECKSUMS, ADD_TOKEN_USES, ADD_LOGINS, ADD_COUNT_BATCHES];

/// Version 1. The table `standings` holds values of `SourceStatus`, `need_counts` those of `CacheCount`.
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

/// Version 2: each record says, for versions that do not know its type, whether it may be ignored and which version
/// understands it. Existing records are of 0.1.0; its critical types are listed here, because later versions may call
/// other types critical. A body that is not valid JSON is damaged and has no type. `CASE`, because SQL does not
/// guarantee that `AND` evaluates its left side first.
const DESCRIBE_RECORDS: &str = "
    ALTER TABLE journal ADD COLUMN critical INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE journal ADD COLUMN since TEXT NOT NULL DEFAULT '0.1.0';
    UPDATE journal SET critical = 1
    WHERE CASE WHEN json_valid(body) THEN json_extract(body, '$.type') END
        IN ('SourceChanged', 'SourceDisabled', 'SourceRemoved', 'ToolDisabled', 'TokenChanged', 'TokenRevoked');
    PRAGMA user_version = 2;
";

/// Version 3: a lease is measured by the time since boot, and identifies its process. Existing leases use the wall
/// clock and would end within seconds; those that a running process of an older version still writes are void from the
/// start.
const NAME_LEASE_HOLDERS: &str = "
    DROP TABLE leases;
    CREATE TABLE leases (
        source TEXT PRIMARY KEY, holder TEXT NOT NULL, process TEXT NOT NULL DEFAULT '', boot TEXT NOT NULL DEFAULT '',
        until INTEGER NOT NULL
    ) STRICT;
    PRAGMA user_version = 3;
";

/// Version 4: a record has a checksum over its other columns. SQLite cannot compute it, so existing records get theirs
/// from [`journal::add_checksums`]. Records that a running process of an older version still appends have none, and are
/// not verified.
const ADD_CHECKSUMS: &str = "
    ALTER TABLE journal ADD COLUMN checksum TEXT;
    PRAGMA user_version = 4;
";
/// Schema version that introduced checksums.
const CHECKSUMS_SINCE: i64 = 4;

/// Version 5: when each token was last used, in milliseconds since 1970.
const ADD_TOKEN_USES: &str = "
    CREATE TABLE token_uses (token TEXT PRIMARY KEY, last_used INTEGER NOT NULL) STRICT;
    PRAGMA user_version = 5;
";

/// Version 6: console sessions and login links; when a manifest or definition was last stored, in seconds since 1970,
/// so that one whose record is yet to be written is not taken for a leftover; and a snapshot of the inventory.
const ADD_LOGINS: &str = "
    CREATE TABLE logins (
        digest TEXT PRIMARY KEY, kind TEXT NOT NULL, credential TEXT NOT NULL, created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT;
    ALTER TABLE manifests ADD COLUMN stored_at INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE definitions ADD COLUMN stored_at INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE snapshots (
        id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, record_checksum TEXT NOT NULL,
        version TEXT NOT NULL, body TEXT NOT NULL, checksum TEXT NOT NULL
    ) STRICT;
    PRAGMA user_version = 6;
";

/// Version 7: the last batch of counts of each writer, and when it was written, in seconds since 1970; whether a source
/// was invalidated since its lease was acquired.
const ADD_COUNT_BATCHES: &str = "
    CREATE TABLE count_batches (writer TEXT PRIMARY KEY, number INTEGER NOT NULL, written_at INTEGER NOT NULL) STRICT;
    ALTER TABLE leases ADD COLUMN invalidated INTEGER NOT NULL DEFAULT 0;
    PRAGMA user_version = 7;
";

/// Current schema version, stored as `user_version`.
pub(super) const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Result of comparing the schema of a file with the current one.
pub(super) enum SchemaState {
    Current,
    Older,
    /// A new file without tables.
    New,
    Newer(i64),
    /// A SQLite database of another program.
    Foreign,
}

/// Reads the schema version, in one statement.
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

/// Migrates the schema to the current version; creates the tables of a new file. All migrations run in one transaction:
/// an interruption leaves the old version.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Read again under the lock: another process may have migrated meanwhile.
    let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
    for migration in MIGRATIONS.into_iter().skip(usize::try_from(version).unwrap_or(usize::MAX)) {
        sqlx::raw_sql(migration).execute(&mut *transaction).await?;
    }
    if (1..CHECKSUMS_SINCE).contains(&version) {
        journal::add_checksums(&mut transaction).await?;
    }
    // A new store gets its key here, once; it is never changed, because hashes in the journal depend on it.
    if version == 0 {
        let key: [u8; 32] = rand::random();
        sqlx::query("INSERT INTO meta VALUES ('key', ?)").bind(key.to_vec()).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Runs SQLite's check of pages, indexes and constraints, which reports `ok` if it finds nothing.
pub(super) async fn check_integrity(connection: &mut SqliteConnection, limit: usize) -> sqlx::Result<Vec<String>> {
    let pragma = sqlx::AssertSqlSafe(format!("PRAGMA integrity_check({limit})"));
    let lines: Vec<String> = sqlx::query_scalar(pragma).fetch_all(connection).await?;
    Ok(lines.into_iter().filter(|line| line != "ok").take(limit).collect())
}

/// Returns the store's secret key.
pub(super) async fn read_key(connection: &mut SqliteConnection) -> sqlx::Result<[u8; 32]> {
    let key: Vec<u8> = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'key'").fetch_one(connection).await?;
    key.try_into().map_err(|_| sqlx::Error::Decode("the key is not 32 bytes".into()))
}
