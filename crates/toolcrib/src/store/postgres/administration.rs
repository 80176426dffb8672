//! Filling an empty store.

use sqlx::{Connection, PgConnection};
use toolcrib_core::SourceId;

use super::journal::{insert_records, lock_head};
use super::{counts, logins, measurements, nodes, schema, to_bigint};
use crate::store::administration::{COPIED_KEY, COPYING_KEY, CopyRefusal, CopyTarget, check_mark};
use crate::store::rows::skip_damaged;
use crate::store::{CopyRun, Measurements, StoredRecord};

/// Returns the run of the unfinished copy that the store is, if it is one.
pub(super) async fn unfinished_copy(connection: &mut PgConnection) -> sqlx::Result<Option<CopyRun>> {
    read_run(connection, COPYING_KEY).await
}

/// Returns the run that has filled the store, if it is a finished copy.
pub(super) async fn finished_copy(connection: &mut PgConnection) -> sqlx::Result<Option<CopyRun>> {
    read_run(connection, COPIED_KEY).await
}

async fn read_run(connection: &mut PgConnection, key: &str) -> sqlx::Result<Option<CopyRun>> {
    let run: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT value FROM meta WHERE key = $1").bind(key).fetch_optional(connection).await?;
    Ok(run.map(|run| CopyRun(run.try_into().unwrap_or_default())))
}

/// Marks an empty store and takes over the key; prepares a marked one for another attempt.
pub(super) async fn begin_copy(
    connection: &mut PgConnection,
    key: [u8; 32],
    run: CopyRun,
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    let nodes = nodes::list(&mut transaction).await?.into_iter().filter(|node| node.alive);
    let target = CopyTarget {
        is_marked: unfinished_copy(&mut transaction).await?.is_some(),
        has_source_key: schema::read_key(&mut transaction).await? == key,
        has_content: has_content(&mut transaction).await?,
        nodes: nodes.map(|node| node.label).collect(),
    };
    if let Err(refusal) = target.check() {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    sqlx::query("TRUNCATE statuses, checks, call_counts, cache_counts, count_batches, token_uses, logins, snapshots")
        .execute(&mut *transaction)
        .await?;
    schema::write_meta(&mut transaction, "key", &key).await?;
    schema::write_meta(&mut transaction, COPYING_KEY, &run.0).await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Whether the store has records or definitions.
async fn has_content(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM journal) OR EXISTS (SELECT 1 FROM definitions)")
        .fetch_one(connection)
        .await
}

/// Appends records as they are, whether or not this version understands them.
pub(super) async fn restore_records(
    connection: &mut PgConnection,
    run: CopyRun,
    after: u64,
    records: &[StoredRecord],
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    let head: i64 = sqlx::query_scalar("SELECT seq FROM head").fetch_one(&mut *transaction).await?;
    let allowed = check_mark(unfinished_copy(&mut transaction).await?, run)
        .and_then(|()| if head == to_bigint(after) { Ok(()) } else { Err(CopyRefusal::OtherHead(after)) });
    if let Err(refusal) = allowed {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    insert_records(&mut transaction, records).await?;
    if let Some(last) = records.last() {
        sqlx::query("UPDATE head SET seq = $1").bind(to_bigint(last.seq)).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Adds measurements. Not in one transaction: after an interruption, `begin_copy` removes them.
pub(super) async fn restore_measurements(
    connection: &mut PgConnection,
    run: CopyRun,
    restored: &Measurements,
) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
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
pub(super) async fn finish_copy(connection: &mut PgConnection, run: CopyRun) -> sqlx::Result<Result<(), CopyRefusal>> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    if let Err(refusal) = check_mark(unfinished_copy(&mut transaction).await?, run) {
        transaction.rollback().await?;
        return Ok(Err(refusal));
    }
    schema::write_meta(&mut transaction, COPIED_KEY, &run.0).await?;
    sqlx::query("DELETE FROM meta WHERE key = $1").bind(COPYING_KEY).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Ok(()))
}

/// Returns the sources that have checks.
pub(super) async fn checked_sources(connection: &mut PgConnection) -> sqlx::Result<Vec<SourceId>> {
    let sources: Vec<String> =
        sqlx::query_scalar("SELECT source FROM checks GROUP BY source ORDER BY source COLLATE \"C\"")
            .fetch_all(connection)
            .await?;
    Ok(sources.iter().filter_map(|source| skip_damaged("check", source, SourceId::parse(source))).collect())
}
