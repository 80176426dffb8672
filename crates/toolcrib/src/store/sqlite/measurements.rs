//! Statuses and checks of sources. Losing a row costs a discovery, so damaged ones are skipped with a warning. The
//! table
//! `standings` (statuses) has the name of version 1, which existing stores depend on.

use std::collections::BTreeMap;

use sqlx::{Connection, SqliteConnection};
use tokio::time::Instant;
use toolcrib_core::{SourceId, Timestamp};

use super::journal::read_head;
use super::lease;
use crate::store::measurements::StoredStatus;
use crate::store::rows::{parse_json, skip_damaged, to_json};
use crate::store::{DiscoveryCheck, MAX_CHECKS_PER_SOURCE, Measurement, SourceStatus};

/// Returns the statuses. A source whose first discovery is running has a lease and no status yet. Leases are read with
/// them, so that every process shows which sources are being discovered.
pub(super) async fn source_statuses(
    connection: &mut SqliteConnection,
) -> sqlx::Result<BTreeMap<SourceId, SourceStatus>> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT source, body FROM standings").fetch_all(&mut *connection).await?;
    let status = |(source, body): (String, String)| {
        let id = skip_damaged("status", &source, SourceId::parse(&source))?;
        Some((id, parse_json("status", &source, &body)?))
    };
    let mut statuses: BTreeMap<SourceId, SourceStatus> = rows.into_iter().filter_map(status).collect();
    let now = Instant::now();
    for (source, remaining) in lease::active_leases(connection).await? {
        statuses.entry(source).or_default().discovering_until = Some(now + remaining);
    }
    Ok(statuses)
}

/// Writes the status of a source and the check of a discovery, and removes old checks. Returns false, and writes
/// nothing, if the measurement is superseded. Runs inside the transaction of a commit.
pub(super) async fn write_measurement(
    connection: &mut SqliteConnection,
    measurement: &Measurement<'_>,
    now: Timestamp,
) -> sqlx::Result<bool> {
    let source = measurement.source;
    let stored: Option<(i64, String)> = sqlx::query_as("SELECT started_at, body FROM standings WHERE source = ?")
        .bind(source.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    let stored = stored.map(|(started_at, body)| StoredStatus::parse(Timestamp(started_at), &body));
    let lease = match measurement.lease {
        Some(holder) => lease::find_held(connection, source, holder).await?,
        None => None,
    };
    let Some(status) = measurement.decide(stored.as_ref(), lease, now) else { return Ok(false) };
    if measurement.ends_lease(stored.as_ref()) {
        sqlx::query("DELETE FROM leases WHERE source = ?").bind(source.as_str()).execute(&mut *connection).await?;
    }
    put_status(connection, source, &status).await?;
    let Some(check) = measurement.check else { return Ok(true) };
    insert_check(connection, check).await?;
    // Only the newest checks are kept.
    sqlx::query(
        "DELETE FROM checks WHERE source = ?1
         AND id <= (SELECT id FROM checks WHERE source = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
    )
    .bind(check.source.as_str())
    .bind(MAX_CHECKS_PER_SOURCE as i64)
    .execute(connection)
    .await?;
    Ok(true)
}

/// Stores the status of a source.
pub(super) async fn put_status(
    connection: &mut SqliteConnection,
    source: &SourceId,
    status: &SourceStatus,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO standings (source, started_at, body) VALUES (?, ?, ?)
         ON CONFLICT (source) DO UPDATE SET started_at = excluded.started_at, body = excluded.body",
    )
    .bind(source.as_str())
    .bind(status.started_at.0)
    .bind(to_json(status)?)
    .execute(connection)
    .await
    .map(drop)
}

/// Adds a check.
pub(super) async fn insert_check(connection: &mut SqliteConnection, check: &DiscoveryCheck) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO checks (source, at, body) VALUES (?, ?, ?)")
        .bind(check.source.as_str())
        .bind(check.at.0)
        .bind(to_json(check)?)
        .execute(connection)
        .await
        .map(drop)
}

/// Returns the checks of a source, newest first.
pub(super) async fn checks(connection: &mut SqliteConnection, source: &SourceId) -> sqlx::Result<Vec<DiscoveryCheck>> {
    let rows: Vec<String> = sqlx::query_scalar("SELECT body FROM checks WHERE source = ? ORDER BY id DESC")
        .bind(source.as_str())
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().filter_map(|body| parse_json("check", source.as_str(), body)).collect())
}

/// Marks the status of a source as stale. Changes one field inside the stored JSON, so a status that another version
/// wrote keeps its other fields.
pub(super) async fn invalidate(connection: &mut SqliteConnection, source: &SourceId) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for statement in [
        "UPDATE standings SET body = json_set(body, '$.invalidated', json('true')) WHERE source = ?",
        // For a discovery that may have read the list before.
        "UPDATE leases SET invalidated = 1 WHERE source = ?",
    ] {
        sqlx::query(statement).bind(source.as_str()).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Removes the status of a source.
pub(super) async fn remove_source_status(
    connection: &mut SqliteConnection,
    source: &SourceId,
    head: u64,
) -> sqlx::Result<bool> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if read_head(&mut transaction).await? != head {
        return Ok(false);
    }
    sqlx::query("DELETE FROM standings WHERE source = ?").bind(source.as_str()).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}
