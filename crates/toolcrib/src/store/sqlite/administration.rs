//! Filling an empty store, and removing rows that are not needed any more.

use std::collections::BTreeSet;

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::SourceId;
use toolcrib_core::fingerprint::Fingerprint;

use super::journal::insert_records;
use super::{counts, logins, measurements, schema};
use crate::store::administration::{COPIED_KEY, COPYING_KEY, CopyRefusal, CopyTarget, check_mark};
use crate::store::rows::{skip_damaged, to_json};
use crate::store::{CopyRun, Measurements, PruneMode, PruneReport, PruneSelection, StoredRecord};

/// Records that one statement inserts. Each has seven parameters, of which SQLite allows 32,766.
const RECORDS_PER_STATEMENT: usize = 500;

/// Rows that one statement removes.
const PRUNED_PER_STATEMENT: u64 = 500;

/// Returns the run of the unfinished copy that the store is, if it is one.
pub(super) async fn unfinished_copy(connection: &mut SqliteConnection) -> sqlx::Result<Option<CopyRun>> {
    read_run(connection, COPYING_KEY).await
}

/// Returns the run that has filled the store, if it is a finished copy.
pub(super) async fn finished_copy(connection: &mut SqliteConnection) -> sqlx::Result<Option<CopyRun>> {
    read_run(connection, COPIED_KEY).await
}

async fn read_run(connection: &mut SqliteConnection, key: &str) -> sqlx::Result<Option<CopyRun>> {
    let run: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT value FROM meta WHERE key = ?").bind(key).fetch_optional(connection).await?;
    Ok(run.map(|run| CopyRun(run.try_into().unwrap_or_default())))
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
    let used_before = selection.used_before().0;
    let min_age = i64::try_from(selection.min_age.as_secs()).unwrap_or(i64::MAX);
    let old = selection.checks_since.0;
    let checks = format!("at < {old} OR (at < ?1 AND source NOT IN (SELECT value FROM json_each(?2)))");
    let calls = "(last_called IS NULL OR last_called < ?1)
                 AND (source, tool) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))";
    let lookups = "?1 IS NOT NULL AND source NOT IN (SELECT value FROM json_each(?2))";
    let token_uses = "last_used < ?1 AND token NOT IN (SELECT value FROM json_each(?2))";
    let definitions = "stored_at <= unixepoch() - ?1 AND name NOT IN (SELECT value FROM json_each(?2))";
    let manifests = "stored_at <= unixepoch() - ?1 AND fingerprint NOT IN (SELECT value FROM json_each(?2))";
    let mut prune = async |table: &str, condition: &str, bound: i64, needed: String| {
        prune_rows(connection, (table, condition), bound, &needed, mode).await
    };
    let report = PruneReport {
        checks: prune("checks", &checks, used_before, to_json(&selection.sources)?).await?,
        counts: prune("call_counts", calls, used_before, to_json(&tools)?).await?
            + prune("need_counts", lookups, used_before, to_json(&selection.counted_sources)?).await?,
        token_uses: prune("token_uses", token_uses, used_before, to_json(&selection.tokens)?).await?,
        logins: prune("logins", "expires_at <= ?1 AND ?2 IS NOT NULL", selection.now.0, String::new()).await?,
        definitions: prune("definitions", definitions, min_age, texts(&selection.definitions)?).await?,
        manifests: prune("manifests", manifests, min_age, texts(&selection.lists)?).await?,
    };
    if mode == PruneMode::Remove {
        // It is written again when enough records follow.
        sqlx::query("DELETE FROM snapshots").execute(connection).await?;
    }
    Ok(report)
}

/// Removes, or counts, the rows of a table that fulfil a condition on a bound (`?1`) and a JSON array (`?2`).
async fn prune_rows(
    connection: &mut SqliteConnection,
    (table, condition): (&str, &str),
    bound: i64,
    needed: &str,
    mode: PruneMode,
) -> sqlx::Result<u64> {
    if mode == PruneMode::Count {
        let count = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table} WHERE {condition}"));
        let count: i64 = sqlx::query_scalar(count).bind(bound).bind(needed).fetch_one(connection).await?;
        return Ok(count.unsigned_abs());
    }
    let delete = format!(
        "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {condition} LIMIT {PRUNED_PER_STATEMENT})"
    );
    let mut removed = 0;
    loop {
        let delete = sqlx::query(sqlx::AssertSqlSafe(delete.clone())).bind(bound).bind(needed);
        let deleted = delete.execute(&mut *connection).await?.rows_affected();
        removed += deleted;
        if deleted < PRUNED_PER_STATEMENT {
            return Ok(removed);
        }
    }
}
