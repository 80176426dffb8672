//! Statuses and checks of sources. Losing a row costs a discovery, so damaged ones are skipped with a warning.

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use toolcrib_core::{SourceId, Timestamp};

use super::changes::NoticeSender;
use super::journal::{is_head, lock_head};
use super::lease;
use crate::store::measurements::{HeldLease, StoredStatus};
use crate::store::rows::{parse_json, skip_damaged, to_json};
use crate::store::{DiscoveryCheck, MAX_CHECKS_PER_SOURCE, Measurement, SourceStatus};

/// Returns the statuses. A source whose first discovery is running has a lease and no status yet. Leases are read with
/// them, so that every node shows which sources are being discovered.
pub(super) async fn source_statuses(connection: &mut PgConnection) -> sqlx::Result<BTreeMap<SourceId, SourceStatus>> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT source, body FROM statuses").fetch_all(&mut *connection).await?;
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
/// nothing, if the measurement is superseded. Runs inside the transaction of a commit, with the head locked.
pub(super) async fn write_measurement(
    connection: &mut PgConnection,
    measurement: &Measurement<'_>,
    now: Timestamp,
) -> sqlx::Result<bool> {
    let source = measurement.source.as_str();
    let (started_at, body, invalidated): (Option<i64>, Option<String>, Option<bool>) = sqlx::query_as(
        "SELECT statuses.started_at, statuses.body, leases.invalidated FROM (VALUES ($1::text)) AS wanted (source)
         LEFT JOIN statuses ON statuses.source = wanted.source
         LEFT JOIN leases ON leases.source = wanted.source AND leases.holder = $2",
    )
    .bind(source)
    .bind(measurement.lease)
    .fetch_one(&mut *connection)
    .await?;
    let stored = started_at.map(|started_at| StoredStatus::parse(Timestamp(started_at), &body.unwrap_or_default()));
    let lease = invalidated.map(|invalidated| HeldLease { invalidated });
    let Some(status) = measurement.decide(stored.as_ref(), lease, now) else { return Ok(false) };
    if measurement.ends_lease(stored.as_ref()) {
        sqlx::query("DELETE FROM leases WHERE source = $1").bind(source).execute(&mut *connection).await?;
    }
    let Some(check) = measurement.check else {
        put_status(connection, measurement.source, &status).await?;
        return Ok(true);
    };
    // In one statement, because all other writers wait. Its parts do not see the new check, so one more is removed.
    sqlx::query(
        "WITH new_status AS (
             INSERT INTO statuses (source, started_at, body) VALUES ($1, $2, $3)
             ON CONFLICT (source) DO UPDATE SET started_at = excluded.started_at, body = excluded.body
         ), new_check AS (
             INSERT INTO checks (source, at, body) VALUES ($4, $5, $6)
         )
         DELETE FROM checks WHERE source = $4
         AND id <= (SELECT id FROM checks WHERE source = $4 ORDER BY id DESC LIMIT 1 OFFSET $7)",
    )
    .bind(source)
    .bind(status.started_at.0)
    .bind(to_json(&status)?)
    .bind(check.source.as_str())
    .bind(check.at.0)
    .bind(to_json(check)?)
    .bind(MAX_CHECKS_PER_SOURCE as i64 - 1)
    .execute(connection)
    .await?;
    Ok(true)
}

/// Whether the newest check of a source is this one.
pub(super) async fn is_last_check(connection: &mut PgConnection, check: &DiscoveryCheck) -> sqlx::Result<bool> {
    let last: Option<String> = sqlx::query_scalar("SELECT body FROM checks WHERE source = $1 ORDER BY id DESC LIMIT 1")
        .bind(check.source.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(last == Some(to_json(check)?))
}

/// Stores the status of a source.
pub(super) async fn put_status(
    connection: &mut PgConnection,
    source: &SourceId,
    status: &SourceStatus,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO statuses (source, started_at, body) VALUES ($1, $2, $3)
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
pub(super) async fn insert_check(connection: &mut PgConnection, check: &DiscoveryCheck) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO checks (source, at, body) VALUES ($1, $2, $3)")
        .bind(check.source.as_str())
        .bind(check.at.0)
        .bind(to_json(check)?)
        .execute(connection)
        .await
        .map(drop)
}

/// Returns the checks of a source, newest first.
pub(super) async fn checks(connection: &mut PgConnection, source: &SourceId) -> sqlx::Result<Vec<DiscoveryCheck>> {
    let rows: Vec<String> = sqlx::query_scalar("SELECT body FROM checks WHERE source = $1 ORDER BY id DESC")
        .bind(source.as_str())
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().filter_map(|body| parse_json("check", source.as_str(), body)).collect())
}

/// Marks the status of a source as stale. Changes one field of the stored JSON, so a status that another version wrote
/// keeps its other fields. Not with `jsonb`, which refuses the character U+0000 in texts.
pub(super) async fn invalidate(
    connection: &mut PgConnection,
    source: &SourceId,
    sender: NoticeSender<'_>,
) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    // For a discovery that may have read the list before.
    sqlx::query("UPDATE leases SET invalidated = true WHERE source = $1")
        .bind(source.as_str())
        .execute(&mut *transaction)
        .await?;
    let body: Option<String> = sqlx::query_scalar("SELECT body FROM statuses WHERE source = $1")
        .bind(source.as_str())
        .fetch_optional(&mut *transaction)
        .await?;
    if let Some(mut status) = body.and_then(|body| parse_json::<Value>("status", source.as_str(), &body)) {
        status["invalidated"] = Value::Bool(true);
        sqlx::query("UPDATE statuses SET body = $2 WHERE source = $1")
            .bind(source.as_str())
            .bind(to_json(&status)?)
            .execute(&mut *transaction)
            .await?;
    }
    sender.send(&mut transaction).await?;
    transaction.commit().await
}

/// Removes the status of a source.
pub(super) async fn remove_source_status(
    connection: &mut PgConnection,
    source: &SourceId,
    head: u64,
    sender: NoticeSender<'_>,
) -> sqlx::Result<bool> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    if !is_head(&mut transaction, head).await? {
        transaction.rollback().await?;
        return Ok(false);
    }
    sqlx::query("DELETE FROM statuses WHERE source = $1").bind(source.as_str()).execute(&mut *transaction).await?;
    sender.send(&mut transaction).await?;
    transaction.commit().await?;
    Ok(true)
}
