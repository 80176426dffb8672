//! Measurements, where the last write wins: statuses and checks of sources, counts of calls and cache lookups, last uses
//! of tokens.
//!
//! Losing a row costs a discovery or a count, so damaged ones are skipped with a warning. The tables `standings`
//! (statuses) and `need_counts` (cache lookups) have the names of version 1, which existing stores depend on.

use std::collections::BTreeMap;

use sqlx::{Connection, SqliteConnection};
use tokio::time::Instant;
use toolcrib_core::{SourceId, Timestamp};

use super::lease;
use crate::store::rows::{parse_json, skip_damaged, to_json};
use crate::store::{CacheCount, CallCount, DiscoveryCheck, SourceStatus, TokenUse};

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
    sqlx::query("UPDATE standings SET body = json_set(body, '$.invalidated', json('true')) WHERE source = ?")
        .bind(source.as_str())
        .execute(connection)
        .await
        .map(drop)
}

/// Removes the status of a source.
pub(super) async fn remove_source_status(connection: &mut SqliteConnection, source: &SourceId) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM standings WHERE source = ?").bind(source.as_str()).execute(connection).await.map(drop)
}

/// Adds increments to the counts. Adds in SQL, because other processes add to the same rows.
pub(super) async fn add_counts(
    connection: &mut SqliteConnection,
    calls: &[CallCount],
    lookups: &[CacheCount],
) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for call in calls {
        sqlx::query(
            "INSERT INTO call_counts (source, tool, calls, errors, last_called, last_error) VALUES (?, ?, ?, ?, ?, ?)
             ON CONFLICT (source, tool) DO UPDATE SET
                 calls = calls + excluded.calls,
                 errors = errors + excluded.errors,
                 last_called = coalesce(max(last_called, excluded.last_called), last_called, excluded.last_called),
                 last_error = coalesce(excluded.last_error, last_error)",
        )
        .bind(call.source.as_str())
        .bind(&call.tool)
        .bind(call.calls as i64)
        .bind(call.errors as i64)
        .bind(call.last_called.map(|called| called.0))
        .bind(call.last_error.as_ref().map(to_json).transpose()?)
        .execute(&mut *transaction)
        .await?;
    }
    if !lookups.is_empty() {
        // One statement for all sources: listing tools counts a lookup of each, and every command ends with this write.
        let lookups: Vec<_> = lookups.iter().map(|count| (count.source.as_str(), count.hits, count.misses)).collect();
        sqlx::query(
            "INSERT INTO need_counts (source, hits, misses)
             SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
             ON CONFLICT (source) DO UPDATE SET hits = hits + excluded.hits, misses = misses + excluded.misses",
        )
        .bind(to_json(&lookups)?)
        .execute(&mut *transaction)
        .await?;
    }
    transaction.commit().await
}

/// Returns the call counts of every tool.
pub(super) async fn call_counts(connection: &mut SqliteConnection) -> sqlx::Result<Vec<CallCount>> {
    type CallCountRow = (String, String, i64, i64, Option<i64>, Option<String>);
    let rows: Vec<CallCountRow> = sqlx::query_as(
        "SELECT source, tool, calls, errors, last_called, last_error FROM call_counts ORDER BY source, tool",
    )
    .fetch_all(connection)
    .await?;
    let call_count = |(source, tool, calls, errors, last_called, last_error): CallCountRow| {
        Some(CallCount {
            last_error: last_error.and_then(|error| parse_json("failure", &source, &error)),
            source: skip_damaged("counter", &source, SourceId::parse(&source))?,
            tool,
            calls: calls.unsigned_abs(),
            errors: errors.unsigned_abs(),
            last_called: last_called.map(Timestamp),
        })
    };
    Ok(rows.into_iter().filter_map(call_count).collect())
}

/// Returns the cache counts of every source.
pub(super) async fn cache_counts(connection: &mut SqliteConnection) -> sqlx::Result<Vec<CacheCount>> {
    let rows: Vec<(String, i64, i64)> =
        sqlx::query_as("SELECT source, hits, misses FROM need_counts ORDER BY source").fetch_all(connection).await?;
    let cache_count = |(source, hits, misses): (String, i64, i64)| {
        let source = skip_damaged("counter", &source, SourceId::parse(&source))?;
        Some(CacheCount { source, hits: hits.unsigned_abs(), misses: misses.unsigned_abs() })
    };
    Ok(rows.into_iter().filter_map(cache_count).collect())
}

/// Stores the last uses of tokens in one statement. Compares in SQL, because other processes write the same rows.
pub(super) async fn record_token_uses(connection: &mut SqliteConnection, uses: &[TokenUse]) -> sqlx::Result<()> {
    let uses: Vec<_> = uses.iter().map(|TokenUse { token, last_used }| (token.as_str(), last_used.0)).collect();
    sqlx::query(
        "INSERT INTO token_uses (token, last_used) SELECT value ->> 0, value ->> 1 FROM json_each(?) WHERE true
         ON CONFLICT (token) DO UPDATE SET last_used = max(last_used, excluded.last_used)",
    )
    .bind(to_json(&uses)?)
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the last uses of tokens.
pub(super) async fn token_uses(connection: &mut SqliteConnection) -> sqlx::Result<Vec<TokenUse>> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT token, last_used FROM token_uses ORDER BY token").fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(token, last_used)| TokenUse { token, last_used: Timestamp(last_used) }).collect())
}
