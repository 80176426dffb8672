//! The journal: dense sequence numbers, and a writer who must know the head.

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::inventory::Actor;
use toolcrib_core::{SourceId, Timestamp};

use super::content::json;
use crate::store::{CHECKS_KEPT, Check, Commit, Committed, Standing, StoredRecord};

/// How many records come in one piece.
const BATCH: usize = 2_000;

pub(super) async fn records(
    connection: &mut SqliteConnection,
    after: u64,
    limit: usize,
) -> sqlx::Result<Vec<StoredRecord>> {
    let mut records = batch(connection, after, limit.min(BATCH)).await?;
    let mut more = records.len() == BATCH;
    while let Some(last) = records.last().filter(|_| more) {
        let next = batch(connection, last.seq, (limit - records.len()).min(BATCH)).await?;
        more = next.len() == BATCH;
        records.extend(next);
    }
    Ok(records)
}

/// A row costs more on its way between the threads than its JSON does, so a batch travels as one text:
/// 10,000 records in 14 ms instead of 35.
async fn batch(connection: &mut SqliteConnection, after: u64, limit: usize) -> sqlx::Result<Vec<StoredRecord>> {
    let batch: String = sqlx::query_scalar(
        "SELECT json_group_array(json_array(seq, at, actor, body, critical, since))
         FROM (SELECT seq, at, actor, body, critical, since FROM journal WHERE seq > ? ORDER BY seq LIMIT ?)",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_one(connection)
    .await?;
    let rows: Vec<(u64, i64, Actor, String, i64, String)> =
        serde_json::from_str(&batch).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let record = |(seq, at, actor, body, critical, since)| StoredRecord {
        seq,
        at: Timestamp(at),
        actor,
        body,
        critical: critical != 0,
        since,
    };
    let mut records: Vec<StoredRecord> = rows.into_iter().map(record).collect();
    // They come in order, but an aggregate does not promise it.
    records.sort_unstable_by_key(|record| record.seq);
    Ok(records)
}

pub(super) async fn commit(connection: &mut SqliteConnection, commit: &Commit<'_>) -> sqlx::Result<Committed> {
    // The lock on the file is taken first, so what is read from here on stays true until the end.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let head: i64 =
        sqlx::query_scalar("SELECT coalesce(max(seq), 0) FROM journal").fetch_one(&mut *transaction).await?;
    if head.unsigned_abs() != commit.expected {
        transaction.rollback().await?;
        return Ok(Committed::Conflict);
    }
    if let Some((check, standing)) = commit.check {
        let newest = started_at(&mut transaction, &check.source).await?;
        let newest = newest.map(|started_at| Standing { started_at, ..Standing::default() });
        if newest.is_some_and(|newest| newest.supersedes(standing, commit.at)) {
            transaction.rollback().await?;
            return Ok(Committed::Superseded);
        }
        measure(&mut transaction, check, standing).await?;
    }
    for (seq, event) in (head + 1..).zip(commit.events) {
        sqlx::query("INSERT INTO journal (seq, at, actor, body, critical, since) VALUES (?, ?, ?, ?, ?, ?)")
            .bind(seq)
            .bind(commit.at.0)
            .bind(commit.actor.as_str())
            .bind(json(event)?)
            .bind(event.critical())
            .bind(event.since())
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(Committed::Done)
}

async fn started_at(connection: &mut SqliteConnection, source: &SourceId) -> sqlx::Result<Option<Timestamp>> {
    let found: Option<i64> = sqlx::query_scalar("SELECT started_at FROM standings WHERE source = ?")
        .bind(source.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(found.map(Timestamp))
}

async fn measure(connection: &mut SqliteConnection, check: &Check, standing: &Standing) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO standings (source, started_at, body) VALUES (?, ?, ?)
         ON CONFLICT (source) DO UPDATE SET started_at = excluded.started_at, body = excluded.body",
    )
    .bind(check.source.as_str())
    .bind(standing.started_at.0)
    .bind(json(standing)?)
    .execute(&mut *connection)
    .await?;
    sqlx::query("INSERT INTO checks (source, at, body) VALUES (?, ?, ?)")
        .bind(check.source.as_str())
        .bind(check.at.0)
        .bind(json(check)?)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "DELETE FROM checks WHERE source = ?1
         AND id <= (SELECT id FROM checks WHERE source = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
    )
    .bind(check.source.as_str())
    .bind(CHECKS_KEPT as i64)
    .execute(connection)
    .await?;
    Ok(())
}
