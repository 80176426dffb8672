//! Filling an empty store, and removing rows that are not needed any more.

use std::collections::BTreeSet;

use sqlx::{Connection, PgConnection};
use toolcrib_core::SourceId;
use toolcrib_core::fingerprint::Fingerprint;

use super::journal::{insert_records, lock_head};
use super::{logins, measurements, schema, to_bigint};
use crate::store::administration::{COPYING_KEY, CopyStep};
use crate::store::rows::{encode_text, skip_damaged};
use crate::store::{Measurements, PruneMode, PruneReport, PruneSelection, StoredRecord};

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
    let refusal = if is_copying(&mut transaction).await? {
        let known_key = schema::read_key(&mut transaction).await?;
        (known_key != key).then_some(CopyStep::OtherKey)
    } else {
        has_content(&mut transaction).await?.then_some(CopyStep::Occupied)
    };
    if let Some(refusal) = refusal {
        transaction.rollback().await?;
        return Ok(refusal);
    }
    sqlx::query("TRUNCATE statuses, checks, call_counts, cache_counts, token_uses, logins, snapshots")
        .execute(&mut *transaction)
        .await?;
    schema::write_meta(&mut transaction, "key", &key).await?;
    schema::write_meta(&mut transaction, COPYING_KEY, &[]).await?;
    transaction.commit().await?;
    Ok(CopyStep::Done)
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
    transaction.commit().await?;
    measurements::add_counts(connection, &restored.call_counts, &restored.cache_counts).await?;
    measurements::record_token_uses(connection, &restored.token_uses).await?;
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

/// Removes, or counts, what is not in the selection. Counting removes too, and rolls back. The sets are parameters of
/// `unnest`, so that the database hashes them once.
pub(super) async fn prune(
    connection: &mut PgConnection,
    selection: &PruneSelection,
    mode: PruneMode,
) -> sqlx::Result<PruneReport> {
    let mut transaction = connection.begin().await?;
    schema::lift_statement_timeout(&mut transaction).await?;
    lock_head(&mut transaction).await?;
    let texts = |fingerprints: &BTreeSet<Fingerprint>| fingerprints.iter().map(ToString::to_string).collect::<Vec<_>>();
    let sources = |ids: &BTreeSet<SourceId>| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let checks = sqlx::query("DELETE FROM checks WHERE at < $1 OR source NOT IN (SELECT unnest($2::text[]))")
        .bind(selection.checks_since.0)
        .bind(sources(&selection.sources))
        .execute(&mut *transaction)
        .await?;
    let calls = sqlx::query(
        "DELETE FROM call_counts WHERE (source, tool) NOT IN (SELECT * FROM unnest($1::text[], $2::text[]))",
    )
    .bind(selection.counted_tools.iter().map(|tool| tool.source.to_string()).collect::<Vec<_>>())
    .bind(selection.counted_tools.iter().map(|tool| encode_text(&tool.name)).collect::<Vec<_>>())
    .execute(&mut *transaction)
    .await?;
    let lookups = sqlx::query("DELETE FROM cache_counts WHERE source NOT IN (SELECT unnest($1::text[]))")
        .bind(sources(&selection.counted_sources))
        .execute(&mut *transaction)
        .await?;
    let token_uses = sqlx::query("DELETE FROM token_uses WHERE token NOT IN (SELECT unnest($1::text[]))")
        .bind(selection.tokens.iter().cloned().collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await?;
    let logins = sqlx::query("DELETE FROM logins WHERE expires_at <= $1")
        .bind(selection.now.0)
        .execute(&mut *transaction)
        .await?;
    let definitions = sqlx::query(
        "DELETE FROM definitions
         WHERE stored_at <= now() - make_interval(secs => $1) AND name NOT IN (SELECT unnest($2::text[]))",
    )
    .bind(selection.min_age.as_secs_f64())
    .bind(texts(&selection.definitions))
    .execute(&mut *transaction)
    .await?;
    let manifests = sqlx::query(
        "DELETE FROM manifests
         WHERE stored_at <= now() - make_interval(secs => $1) AND fingerprint NOT IN (SELECT unnest($2::text[]))",
    )
    .bind(selection.min_age.as_secs_f64())
    .bind(texts(&selection.lists))
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
    match mode {
        PruneMode::Remove => transaction.commit().await?,
        PruneMode::Count => transaction.rollback().await?,
    }
    Ok(report)
}
