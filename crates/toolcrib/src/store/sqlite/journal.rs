//! The journal table: consecutive sequence numbers, appended only by a writer that knows the last one.
//!
//! Reading is tolerant in three stages, from fast to careful: a batch as one JSON text; on damage, row by row as bytes;
//! and an early end at a page that cannot be read. The caller sees damaged records as records with an invalid body, and
//! a lost page as the end of the batch followed by an error.

use futures_util::TryStreamExt;
use sqlx::{Connection, QueryBuilder, Row, Sqlite, SqliteConnection};
use toolcrib_core::Timestamp;
use toolcrib_core::inventory::Actor;

use super::errors::is_partial_damage;
use super::measurements;
use crate::store::{Commit, CommitOutcome, StoredRecord};

/// Number of records read in one statement. Each batch is one JSON text in memory; one with damage is read again row by
/// row.
const BATCH_SIZE: usize = 2_000;

/// Returns records in batches; ends early, without an error, at a damaged page after the first batch. Fails if the
/// first record after `after` is on a damaged page.
pub(super) async fn read_records(
    connection: &mut SqliteConnection,
    after: u64,
    limit: usize,
) -> sqlx::Result<Vec<StoredRecord>> {
    let mut records = read_batch_tolerant(connection, after, limit.min(BATCH_SIZE)).await?;
    // A short batch is the end, or is followed by damage, which the next call of the caller finds.
    let mut has_more = records.len() == BATCH_SIZE;
    while let Some(last) = records.last().filter(|_| has_more) {
        let next = match read_batch_tolerant(connection, last.seq, (limit - records.len()).min(BATCH_SIZE)).await {
            Err(error) if is_partial_damage(&error) => return Ok(records),
            next => next?,
        };
        has_more = next.len() == BATCH_SIZE;
        records.extend(next);
    }
    Ok(records)
}

/// Reads a batch; falls back to single rows, because one invalid UTF-8 text fails the whole batch and a damaged page
/// ends it.
async fn read_batch_tolerant(
    connection: &mut SqliteConnection,
    after: u64,
    limit: usize,
) -> sqlx::Result<Vec<StoredRecord>> {
    match read_batch(connection, after, limit).await {
        Err(error) if is_partial_damage(&error) => read_rows(connection, after, limit).await,
        result => result,
    }
}

/// Reads row by row up to the first row on a damaged page; fails only if that is the first row.
async fn read_rows(connection: &mut SqliteConnection, after: u64, limit: usize) -> sqlx::Result<Vec<StoredRecord>> {
    let mut records = Vec::new();
    // As blobs, because SQLite returns texts that are not valid UTF-8, and decoding them would fail.
    let mut rows = sqlx::query(
        "SELECT seq, at, CAST(actor AS BLOB), CAST(body AS BLOB), critical, CAST(since AS BLOB), CAST(checksum AS BLOB)
         FROM journal WHERE seq > ? ORDER BY seq LIMIT ?",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch(connection);
    loop {
        let row = match rows.try_next().await {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(records),
            Err(error) if is_partial_damage(&error) && !records.is_empty() => return Ok(records),
            Err(error) => return Err(error),
        };
        let bytes = |column: usize| row.try_get::<Option<Vec<u8>>, _>(column).map(Option::unwrap_or_default);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let [actor, body, min_version] = [bytes(2)?, bytes(3)?, bytes(5)?];
        let is_text = [&actor, &body, &min_version].iter().all(|bytes| std::str::from_utf8(bytes).is_ok());
        let checksum: Option<Vec<u8>> = row.try_get(6)?;
        records.push(StoredRecord {
            // Damaged numbers are read as they are; the checksum and the sequence reveal them.
            seq: row.try_get::<i64, _>(0)?.unsigned_abs(),
            at: Timestamp(row.try_get(1)?),
            actor: Actor::new(text(&actor)),
            // Invalid UTF-8 is damage: an empty body is never valid, even for a record without checksum.
            body: if is_text { text(&body) } else { String::new() },
            critical: row.try_get::<i64, _>(4)? != 0,
            min_version: text(&min_version),
            checksum: checksum.map(|checksum| text(&checksum)),
        });
    }
}

/// A row of `journal`, as JSON array.
type JournalRow = (i64, i64, Actor, String, i64, String, Option<String>);

/// Reads a batch as one JSON text: passing a row between SQLite's thread and this one costs more than its JSON. 10,000
/// records take 14 ms instead of 35.
async fn read_batch(connection: &mut SqliteConnection, after: u64, limit: usize) -> sqlx::Result<Vec<StoredRecord>> {
    let batch: String = sqlx::query_scalar(
        "SELECT json_group_array(json_array(seq, at, actor, body, critical, since, checksum))
         FROM (SELECT seq, at, actor, body, critical, since, checksum FROM journal WHERE seq > ? ORDER BY seq LIMIT ?)",
    )
    .bind(i64::try_from(after).unwrap_or(i64::MAX))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_one(connection)
    .await?;
    // A damaged text can make the JSON invalid: the caller then reads row by row.
    let rows: Vec<JournalRow> = serde_json::from_str(&batch).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let record = |(seq, at, actor, body, critical, min_version, checksum): JournalRow| StoredRecord {
        seq: seq.unsigned_abs(),
        at: Timestamp(at),
        actor,
        body,
        critical: critical != 0,
        min_version,
        checksum,
    };
    let mut records: Vec<StoredRecord> = rows.into_iter().map(record).collect();
    // They are in order in practice, but SQL does not guarantee the order within an aggregate.
    records.sort_unstable_by_key(|record| record.seq);
    Ok(records)
}

/// Appends events and a measurement. See [`Store::commit`](crate::store::Store::commit).
pub(super) async fn commit(connection: &mut SqliteConnection, commit: &Commit<'_>) -> sqlx::Result<CommitOutcome> {
    // `IMMEDIATE` takes the write lock first, so what is read from here on stays true until the commit.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if read_head(&mut transaction).await? != commit.expected_head {
        transaction.rollback().await?;
        return Ok(CommitOutcome::Conflict);
    }
    if let Some(measurement) = &commit.measurement
        && !measurements::write_measurement(&mut transaction, measurement, commit.at).await?
    {
        transaction.rollback().await?;
        return Ok(CommitOutcome::Superseded);
    }
    for record in commit.records().map_err(|error| sqlx::Error::Encode(error.into()))? {
        insert_record(&mut transaction, &record).await?;
    }
    transaction.commit().await?;
    Ok(CommitOutcome::Committed)
}

/// Returns the sequence number of the last record; 0 without any.
pub(super) async fn read_head(connection: &mut SqliteConnection) -> sqlx::Result<u64> {
    let head: i64 = sqlx::query_scalar("SELECT coalesce(max(seq), 0) FROM journal").fetch_one(connection).await?;
    Ok(head.unsigned_abs())
}

/// Inserts a record as it is. The primary key on `seq` is the last guard against two writers.
async fn insert_record(connection: &mut SqliteConnection, record: &StoredRecord) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO journal (seq, at, actor, body, critical, since, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)")
        .bind(i64::try_from(record.seq).unwrap_or(i64::MAX))
        .bind(record.at.0)
        .bind(record.actor.as_str())
        .bind(&record.body)
        .bind(record.critical)
        .bind(&record.min_version)
        .bind(record.checksum.as_deref())
        .execute(connection)
        .await
        .map(drop)
}

/// Inserts records as they are, in one statement. There must be at least one.
pub(super) async fn insert_records(connection: &mut SqliteConnection, records: &[StoredRecord]) -> sqlx::Result<()> {
    let mut query: QueryBuilder<Sqlite> =
        QueryBuilder::new("INSERT INTO journal (seq, at, actor, body, critical, since, checksum) ");
    query.push_values(records, |mut row, record| {
        row.push_bind(i64::try_from(record.seq).unwrap_or(i64::MAX))
            .push_bind(record.at.0)
            .push_bind(record.actor.as_str())
            .push_bind(&record.body)
            .push_bind(record.critical)
            .push_bind(&record.min_version)
            .push_bind(record.checksum.as_deref());
    });
    query.build().execute(connection).await.map(drop)
}

/// Adds checksums to the records of a version without them. Unreadable records stay without one. Part of the migration,
/// in its transaction.
pub(super) async fn add_checksums(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let mut after = 0;
    loop {
        let records = read_batch_tolerant(connection, after, BATCH_SIZE).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = last.seq;
        for record in &records {
            sqlx::query("UPDATE journal SET checksum = ? WHERE seq = ? AND checksum IS NULL")
                .bind(record.compute_checksum())
                .bind(i64::try_from(record.seq).unwrap_or(i64::MAX))
                .execute(&mut *connection)
                .await?;
        }
    }
}
