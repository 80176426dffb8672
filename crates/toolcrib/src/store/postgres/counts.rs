//! Counts of calls and cache lookups, and last uses of tokens. They do not touch the head, so they delay no commit.

use sqlx::{Connection, PgConnection};
use toolcrib_core::{SourceId, Timestamp};

use super::changes::{ChangedPart, count_change};
use super::to_bigint;
use crate::store::rows::{COUNT_BATCH_RETENTION, decode_text, encode_text, parse_json, skip_damaged, to_json};
use crate::store::{CacheCount, CallCount, CountBatch, TokenUse};

/// Maximum number of rows that one statement writes.
const ROWS_PER_STATEMENT: usize = 1_000;

/// Whether a batch was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    Applied,
    /// It was applied before: the writer did not get the answer.
    Repeated,
}

/// Adds a batch to the counts, unless it was added before.
pub(super) async fn add_batch(
    connection: &mut PgConnection,
    batch: &CountBatch,
    calls: &[CallCount],
    lookups: &[CacheCount],
) -> sqlx::Result<BatchOutcome> {
    let mut transaction = connection.begin().await?;
    count_change(&mut transaction, ChangedPart::Counts).await?;
    let claimed = sqlx::query(
        "WITH forgotten AS (
             DELETE FROM count_batches WHERE writer <> $1 AND written_at < now() - make_interval(secs => $3)
         )
         INSERT INTO count_batches AS stored (writer, number, written_at) VALUES ($1, $2, now())
         ON CONFLICT (writer) DO UPDATE SET number = excluded.number, written_at = excluded.written_at
         WHERE stored.number < excluded.number",
    )
    .bind(&batch.writer)
    .bind(to_bigint(batch.number))
    .bind(COUNT_BATCH_RETENTION.as_secs_f64())
    .execute(&mut *transaction)
    .await?;
    if claimed.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(BatchOutcome::Repeated);
    }
    add_counts(&mut transaction, calls, lookups).await?;
    transaction.commit().await?;
    Ok(BatchOutcome::Applied)
}

/// Adds increments to the counts. Adds in SQL, because other nodes add to the same rows.
pub(super) async fn add_counts(
    transaction: &mut PgConnection,
    calls: &[CallCount],
    lookups: &[CacheCount],
) -> sqlx::Result<()> {
    for calls in calls.chunks(ROWS_PER_STATEMENT) {
        let errors = calls.iter().map(|call| call.last_error.as_ref().map(to_json).transpose());
        let errors: Vec<Option<String>> = errors.collect::<sqlx::Result<_>>()?;
        sqlx::query(
            "INSERT INTO call_counts AS stored (source, tool, calls, errors, last_called, last_error)
             SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
             ON CONFLICT (source, tool) DO UPDATE SET
                 calls = stored.calls + excluded.calls,
                 errors = stored.errors + excluded.errors,
                 last_called = greatest(stored.last_called, excluded.last_called),
                 last_error = coalesce(excluded.last_error, stored.last_error)",
        )
        .bind(calls.iter().map(|call| call.source.as_str().to_owned()).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| encode_text(&call.tool)).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| to_bigint(call.calls)).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| to_bigint(call.errors)).collect::<Vec<_>>())
        .bind(calls.iter().map(|call| call.last_called.map(|called| called.0)).collect::<Vec<_>>())
        .bind(errors)
        .execute(&mut *transaction)
        .await?;
    }
    for lookups in lookups.chunks(ROWS_PER_STATEMENT) {
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
    Ok(())
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
    count_change(&mut transaction, ChangedPart::TokenUses).await?;
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
