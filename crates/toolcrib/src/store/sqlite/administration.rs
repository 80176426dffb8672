//! Filling an empty store, and removing rows that are not needed any more.

use std::collections::BTreeSet;

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::SourceId;
use toolcrib_core::fingerprint::Fingerprint;

use super::journal::insert_records;
use super::{counts, logins, measurements, schema};
use crate::store::administration::{COPIED_KEY, COPYING_KEY, CopyRefusal, CopyTarget, check_mark};
use crate::store::rows::{skip_damaged, to_json};
use crate::store::{Measurements, PruneMode, PruneReport, PruneSelection, StoredRecord};

/// Records that one statement inserts. Each has seven parameters, of which SQLite allows 32,766.
const RECORDS_PER_STATEMENT: usize = 500;

/// Whether the store is an unfinished copy.
pub(super) async fn is_copying(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM meta WHERE key = ?)").bind(COPYING_KEY).fetch_one(connection).await
}

/// Marks an empty store and takes over the key; prepares a marked one for another attempt.
pub(super) async fn begin_copy(
    connection: &mut SqliteConnection,
    key: [u8; 32],
    run: CopyRun,
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let target = CopyTarget {
        is_marked: unfinished_copy(&mut transaction).await?.is_some(),
        has_source_key: schema::read_key(&mut transaction).await? == key,
        has_content: has_content(&mut transaction).await?,
        nodes: Vec::new(),
    };
    if let Err(refusal) = target.check() {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    for statement in [
        "DELETE FROM standings",
        "DELETE FROM checks",
        "DELETE FROM call_counts",
        "DELETE FROM need_counts",
        "DELETE FROM count_batches",
        "DELETE FROM token_uses",
        "DELETE FROM logins",
        "DELETE FROM snapshots",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    sqlx::query("INSERT OR REPLACE INTO meta (key, value) VALUES ('key', ?), (?, ?)")
        .bind(key.to_vec())
        .bind(COPYING_KEY)
        .bind(run.0.to_vec())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Whether the store has records or definitions.
async fn has_content(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM journal) OR EXISTS (SELECT 1 FROM definitions)")
        .fetch_one(connection)
        .await
}

/// Appends records as they are, whether or not this version understands them.
pub(super) async fn restore_records(
    connection: &mut SqliteConnection,
    run: CopyRun,
    after: u64,
    records: &[StoredRecord],
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let head: i64 =
        sqlx::query_scalar("SELECT coalesce(max(seq), 0) FROM journal").fetch_one(&mut *transaction).await?;
    let allowed = check_mark(unfinished_copy(&mut transaction).await?, run)
        .and_then(|()| if head.unsigned_abs() == after { Ok(()) } else { Err(CopyRefusal::OtherHead(after)) });
    if let Err(refusal) = allowed {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    for records in records.chunks(RECORDS_PER_STATEMENT) {
        insert_records(&mut transaction, records).await?;
    }
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Adds measurements. Not in one transaction: after an interruption, `begin_copy` removes them.
pub(super) async fn restore_measurements(
    connection: &mut SqliteConnection,
    run: CopyRun,
    restored: &Measurements,
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Err(refusal) = check_mark(unfinished_copy(&mut transaction).await?, run) {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    for (source, status) in &restored.statuses {
        measurements::put_status(&mut transaction, source, status).await?;
    }
    for check in &restored.checks {
        measurements::insert_check(&mut transaction, check).await?;
    }
    for login in &restored.logins {
        logins::insert(&mut transaction, login).await?;
    }
    counts::add_counts(&mut transaction, &restored.call_counts, &restored.cache_counts).await?;
    transaction.commit().await?;
    counts::record_token_uses(connection, &restored.token_uses).await?;
    Ok(Ok(()))
}

/// Replaces the mark by that of a finished copy.
pub(super) async fn finish_copy(
    connection: &mut SqliteConnection,
    run: CopyRun,
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Err(refusal) = check_mark(unfinished_copy(&mut transaction).await?, run) {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    sqlx::query("UPDATE OR REPLACE meta SET key = ? WHERE key = ?")
        .bind(COPIED_KEY)
        .bind(COPYING_KEY)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Returns the sources that have checks.
pub(super) async fn checked_sources(connection: &mut SqliteConnection) -> sqlx::Result<Vec<SourceId>> {
    let sources: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT source FROM checks ORDER BY source").fetch_all(connection).await?;
    Ok(sources.iter().filter_map(|source| skip_damaged("check", source, SourceId::parse(source))).collect())
}

/// Removes, or counts, what is not in the selection. Rows are removed in small batches, so that other writers wait for
/// moments only; each statement checks their age again.
pub(super) async fn prune(
    connection: &mut SqliteConnection,
    selection: &PruneSelection,
    mode: PruneMode,
) -> sqlx::Result<PruneReport> {
    let tools: Vec<_> = selection.counted_tools.iter().map(|tool| (tool.source.as_str(), tool.name.as_str())).collect();
    let texts = |fingerprints: &BTreeSet<Fingerprint>| {
        to_json(&fingerprints.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let min_age = i64::try_from(selection.min_age.as_secs()).unwrap_or(i64::MAX);
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // Bounds first: the sets may be large, and a row that is old enough needs no lookup.
    let checks = sqlx::query("DELETE FROM checks WHERE at < ? OR source NOT IN (SELECT value FROM json_each(?))")
        .bind(selection.checks_since.0)
        .bind(to_json(&selection.sources)?)
        .execute(&mut *transaction)
        .await?;
    let calls = sqlx::query(
        "DELETE FROM call_counts
         WHERE (source, tool) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))",
    )
    .bind(to_json(&tools)?)
    .execute(&mut *transaction)
    .await?;
    let lookups = sqlx::query("DELETE FROM need_counts WHERE source NOT IN (SELECT value FROM json_each(?))")
        .bind(to_json(&selection.counted_sources)?)
        .execute(&mut *transaction)
        .await?;
    let token_uses = sqlx::query("DELETE FROM token_uses WHERE token NOT IN (SELECT value FROM json_each(?))")
        .bind(to_json(&selection.tokens)?)
        .execute(&mut *transaction)
        .await?;
    let logins = sqlx::query("DELETE FROM logins WHERE expires_at <= ?")
        .bind(selection.now.0)
        .execute(&mut *transaction)
        .await?;
    let definitions = sqlx::query(
        "DELETE FROM definitions
         WHERE stored_at <= unixepoch() - ? AND name NOT IN (SELECT value FROM json_each(?))",
    )
    .bind(min_age)
    .bind(texts(&selection.definitions)?)
    .execute(&mut *transaction)
    .await?;
    let manifests = sqlx::query(
        "DELETE FROM manifests
         WHERE stored_at <= unixepoch() - ? AND fingerprint NOT IN (SELECT value FROM json_each(?))",
    )
    .bind(min_age)
    .bind(texts(&selection.lists)?)
    .execute(&mut *transaction)
    .await?;
    // It is written again when enough records follow.
    sqlx::query("DELETE FROM snapshots").execute(&mut *transaction).await?;
    let report = PruneReport {
        checks: checks.rows_affected(),
        counts: calls.rows_affected() + lookups.rows_affected(),
        token_uses: token_uses.rows_affected(),
        logins: logins.rows_affected(),
        definitions: definitions.rows_affected(),
        manifests: manifests.rows_affected(),
    };
    if mode == PruneMode::Remove {
        // It is written again when enough records follow.
        sqlx::query("DELETE FROM snapshots").execute(connection).await?;
    }
    Ok(report)
}
