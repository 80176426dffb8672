//! Filling an empty store.

use sqlx::{Connection, PgConnection};
use toolcrib_core::SourceId;

use super::journal::{insert_records, lock_head};
use super::{counts, logins, measurements, nodes, schema, to_bigint};
use crate::store::administration::{COPYING_KEY, CopyStep};
use crate::store::rows::skip_damaged;
use crate::store::{Measurements, StoredRecord};

/// Whether the store is an unfinished copy.
pub(super) async fn is_copying(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM meta WHERE key = $1)")
        .bind(COPYING_KEY)
        .fetch_one(connection)
        .await
}

/// Marks an empty store and takes over the key; prepares a marked one for another attempt.
pub(super) async fn begin_copy(connection: &mut PgConnection, key: [u8; 32]) -> sqlx::Result<CopyStep> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    if let Some(refusal) = find_copy_obstacle(&mut transaction, key).await? {
        transaction.rollback().await?;
        return Ok(refusal);
    }
    sqlx::query("TRUNCATE statuses, checks, call_counts, cache_counts, count_batches, token_uses, logins, snapshots")
        .execute(&mut *transaction)
        .await?;
    schema::write_meta(&mut transaction, "key", &key).await?;
    schema::write_meta(&mut transaction, COPYING_KEY, &[]).await?;
    transaction.commit().await?;
    Ok(CopyStep::Done)
}

/// Returns the reason why a store cannot be the target of a copy.
async fn find_copy_obstacle(connection: &mut PgConnection, key: [u8; 32]) -> sqlx::Result<Option<CopyStep>> {
    let is_same_key = schema::read_key(connection).await? == key;
    if is_copying(connection).await? {
        return Ok((!is_same_key).then_some(CopyStep::OtherKey));
    }
    if has_content(connection).await? {
        return Ok(Some(CopyStep::Occupied));
    }
    if is_same_key {
        return Ok(Some(CopyStep::SameStore));
    }
    // A running node would go on with the key that it has read.
    let nodes = nodes::list(connection).await?.into_iter().filter(|node| node.alive);
    let labels: Vec<String> = nodes.map(|node| node.label).collect();
    Ok((!labels.is_empty()).then_some(CopyStep::InUse(labels)))
}

/// Whether the store has records or definitions. Manifests are the same in every store.
async fn has_content(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM journal) OR EXISTS (SELECT 1 FROM definitions)")
        .fetch_one(connection)
        .await
}

/// Appends records as they are, whether or not this version understands them.
pub(super) async fn restore_records(
    connection: &mut PgConnection,
    after: u64,
    records: &[StoredRecord],
) -> sqlx::Result<CopyStep> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    if !is_copying(&mut transaction).await? {
        transaction.rollback().await?;
        return Ok(CopyStep::NotMarked);
    }
    let head: i64 = sqlx::query_scalar("SELECT seq FROM head").fetch_one(&mut *transaction).await?;
    if head != to_bigint(after) {
        transaction.rollback().await?;
        return Ok(CopyStep::OtherHead);
    }
    insert_records(&mut transaction, records).await?;
    if let Some(last) = records.last() {
        sqlx::query("UPDATE head SET seq = $1").bind(to_bigint(last.seq)).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(CopyStep::Done)
}

/// Adds measurements. Not in one transaction: after an interruption, `begin_copy` removes them.
pub(super) async fn restore_measurements(
    connection: &mut PgConnection,
    restored: &Measurements,
) -> sqlx::Result<CopyStep> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    if !is_copying(&mut transaction).await? {
        transaction.rollback().await?;
        return Ok(CopyStep::NotMarked);
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
    Ok(CopyStep::Done)
}

/// Removes the mark.
pub(super) async fn finish_copy(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM meta WHERE key = $1").bind(COPYING_KEY).execute(connection).await.map(drop)
}

/// Returns the sources that have checks.
pub(super) async fn checked_sources(connection: &mut PgConnection) -> sqlx::Result<Vec<SourceId>> {
    let sources: Vec<String> =
        sqlx::query_scalar("SELECT source FROM checks GROUP BY source ORDER BY source COLLATE \"C\"")
            .fetch_all(connection)
            .await?;
    Ok(sources.iter().filter_map(|source| skip_damaged("check", source, SourceId::parse(source))).collect())
}
