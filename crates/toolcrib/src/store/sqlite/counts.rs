//! Counts of calls and cache lookups, and last uses of tokens. The table `need_counts` (cache lookups) has the name of
//! version 1, which existing stores depend on.

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::{SourceId, Timestamp};

use crate::store::rows::{COUNT_BATCH_RETENTION, parse_json, skip_damaged, to_json};
use crate::store::{CacheCount, CallCount, CountBatch, TokenUse};

/// Adds a batch to the counts, unless it was added before: then the writer did not get the answer.
pub(super) async fn add_batch(
    connection: &mut SqliteConnection,
    batch: &CountBatch,
    calls: &[CallCount],
    lookups: &[CacheCount],
) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("DELETE FROM count_batches WHERE writer <> ? AND written_at < unixepoch() - ?")
        .bind(&batch.writer)
        .bind(COUNT_BATCH_RETENTION.as_secs() as i64)
        .execute(&mut *transaction)
        .await?;
    let claimed = sqlx::query(
        "INSERT INTO count_batches (writer, number, written_at) VALUES (?, ?, unixepoch())
         ON CONFLICT (writer) DO UPDATE SET number = excluded.number, written_at = excluded.written_at
         WHERE number < excluded.number",
    )
    .bind(&batch.writer)
    .bind(i64::try_from(batch.number).unwrap_or(i64::MAX))
    .execute(&mut *transaction)
    .await?;
    if claimed.rows_affected() == 0 {
        return transaction.rollback().await;
    }
    add_counts(&mut transaction, calls, lookups).await?;
    transaction.commit().await
}

/// Adds increments to the counts. Adds in SQL, because other processes add to the same rows.
pub(super) async fn add_counts(
    transaction: &mut SqliteConnection,
    calls: &[CallCount],
    lookups: &[CacheCount],
) -> sqlx::Result<()> {
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
    Ok(())
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
