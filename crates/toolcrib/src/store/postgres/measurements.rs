//! Measurements, where the last write wins: statuses and checks of sources, counts of calls and cache lookups, last uses
//! of tokens. Losing a row costs a discovery or a count, so damaged ones are skipped with a warning.

use std::collections::BTreeMap;

use serde_json::Value;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use toolcrib_core::{SourceId, Timestamp};

use super::changes::NoticeSender;
use super::journal::lock_head;
use super::{lease, to_bigint};
use crate::store::rows::{decode_text, encode_text, parse_json, skip_damaged, to_json};
use crate::store::{CacheCount, CallCount, DiscoveryCheck, MAX_CHECKS_PER_SOURCE, Measurement, SourceStatus, TokenUse};

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

/// Returns the start of the newest discovery of a source that has ended.
pub(super) async fn last_started_at(
    connection: &mut PgConnection,
    source: &SourceId,
) -> sqlx::Result<Option<Timestamp>> {
    let started_at: Option<i64> = sqlx::query_scalar("SELECT started_at FROM statuses WHERE source = $1")
        .bind(source.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(started_at.map(Timestamp))
}

/// Writes the status of a source and the check of a discovery, and removes old checks. Runs inside the transaction of a
/// commit.
pub(super) async fn write_measurement(
    connection: &mut PgConnection,
    measurement: &Measurement<'_>,
) -> sqlx::Result<()> {
    let Measurement { source, status, check, lease: _ } = measurement;
    let stored = match check {
        Some(_) => None,
        None => stored_status(&mut *connection, source, status.started_at).await?,
    };
    let completed = stored.map(|stored| stored.with_lists(status));
    let status = completed.as_ref().unwrap_or(status);
    put_status(connection, source, status).await?;
    let Some(check) = check else { return Ok(()) };
    insert_check(connection, check).await?;
    // Only the newest checks are kept.
    sqlx::query(
        "DELETE FROM checks WHERE source = $1
         AND id <= (SELECT id FROM checks WHERE source = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)",
    )
    .bind(check.source.as_str())
    .bind(MAX_CHECKS_PER_SOURCE as i64)
    .execute(connection)
    .await?;
    Ok(())
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

/// Returns the status of the discovery that started at this time; `None` if there is another one, or if it is damaged.
async fn stored_status(
    connection: &mut PgConnection,
    source: &SourceId,
    started_at: Timestamp,
) -> sqlx::Result<Option<SourceStatus>> {
    let body: Option<String> = sqlx::query_scalar("SELECT body FROM statuses WHERE source = $1 AND started_at = $2")
        .bind(source.as_str())
        .bind(started_at.0)
        .fetch_optional(connection)
        .await?;
    Ok(body.and_then(|body| serde_json::from_str(&body).ok()))
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
    sender: NoticeSender<'_>,
) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    sqlx::query("DELETE FROM statuses WHERE source = $1").bind(source.as_str()).execute(&mut *transaction).await?;
    sender.send(&mut transaction).await?;
    transaction.commit().await
}

/// Adds increments to the counts. Adds in SQL, because other nodes add to the same rows.
pub(super) async fn add_counts(
    connection: &mut PgConnection,
    calls: &[CallCount],
    lookups: &[CacheCount],
) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    for call in calls {
        sqlx::query(
            "INSERT INTO call_counts AS stored (source, tool, calls, errors, last_called, last_error)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (source, tool) DO UPDATE SET
                 calls = stored.calls + excluded.calls,
                 errors = stored.errors + excluded.errors,
                 last_called = greatest(stored.last_called, excluded.last_called),
                 last_error = coalesce(excluded.last_error, stored.last_error)",
        )
        .bind(call.source.as_str())
        .bind(encode_text(&call.tool))
        .bind(to_bigint(call.calls))
        .bind(to_bigint(call.errors))
        .bind(call.last_called.map(|called| called.0))
        .bind(call.last_error.as_ref().map(to_json).transpose()?)
        .execute(&mut *transaction)
        .await?;
    }
    if !lookups.is_empty() {
        sqlx::query(
            "INSERT INTO cache_counts AS stored (source, hits, misses)
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
             ON CONFLICT (source) DO UPDATE SET
                 hits = stored.hits + excluded.hits, misses = stored.misses + excluded.misses",
        )
        .bind(lookups.iter().map(|count| count.source.as_str().to_owned()).collect::<Vec<_>>())
        .bind(lookups.iter().map(|count| to_bigint(count.hits)).collect::<Vec<_>>())
        .bind(lookups.iter().map(|count| to_bigint(count.misses)).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await
}

/// Returns the call counts of every tool.
pub(super) async fn call_counts(connection: &mut PgConnection) -> sqlx::Result<Vec<CallCount>> {
    type CallCountRow = (String, String, i64, i64, Option<i64>, Option<String>);
    let rows: Vec<CallCountRow> = sqlx::query_as(
        "SELECT source, tool, calls, errors, last_called, last_error FROM call_counts
         ORDER BY source COLLATE \"C\", tool COLLATE \"C\"",
    )
    .fetch_all(connection)
    .await?;
    let call_count = |(source, tool, calls, errors, last_called, last_error): CallCountRow| {
        Some(CallCount {
            last_error: last_error.and_then(|error| parse_json("failure", &source, &error)),
            source: skip_damaged("counter", &source, SourceId::parse(&source))?,
            tool: decode_text(&tool),
            calls: calls.unsigned_abs(),
            errors: errors.unsigned_abs(),
            last_called: last_called.map(Timestamp),
        })
    };
    Ok(rows.into_iter().filter_map(call_count).collect())
}

/// Returns the cache counts of every source.
pub(super) async fn cache_counts(connection: &mut PgConnection) -> sqlx::Result<Vec<CacheCount>> {
    let rows: Vec<(String, i64, i64)> =
        sqlx::query_as("SELECT source, hits, misses FROM cache_counts ORDER BY source COLLATE \"C\"")
            .fetch_all(connection)
            .await?;
    let cache_count = |(source, hits, misses): (String, i64, i64)| {
        let source = skip_damaged("counter", &source, SourceId::parse(&source))?;
        Some(CacheCount { source, hits: hits.unsigned_abs(), misses: misses.unsigned_abs() })
    };
    Ok(rows.into_iter().filter_map(cache_count).collect())
}

/// Stores the last uses of tokens in one statement. Compares in SQL, because other nodes write the same rows.
pub(super) async fn record_token_uses(connection: &mut PgConnection, uses: &[TokenUse]) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    sqlx::query(
        "INSERT INTO token_uses AS stored (token, last_used) SELECT * FROM unnest($1::text[], $2::bigint[])
         ON CONFLICT (token) DO UPDATE SET last_used = greatest(stored.last_used, excluded.last_used)",
    )
    .bind(uses.iter().map(|token_use| token_use.token.clone()).collect::<Vec<_>>())
    .bind(uses.iter().map(|token_use| token_use.last_used.0).collect::<Vec<_>>())
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

/// Returns the last uses of tokens.
pub(super) async fn token_uses(connection: &mut PgConnection) -> sqlx::Result<Vec<TokenUse>> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT token, last_used FROM token_uses ORDER BY token COLLATE \"C\"")
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().map(|(token, last_used)| TokenUse { token, last_used: Timestamp(last_used) }).collect())
}
