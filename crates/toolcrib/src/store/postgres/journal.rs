//! The journal table and its head: consecutive sequence numbers, appended only by a writer that knows the last one.
//!
//! The row of `head` is locked from the check of the expected version to the commit, so writers of all nodes follow each
//! other, and records become visible in their order.

use std::cmp::Ordering;

use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use toolcrib_core::Timestamp;
use toolcrib_core::inventory::{Actor, compare_versions, event_type};

use super::changes::NoticeSender;
use super::{lease, measurements, schema, to_bigint};
use crate::store::rows::{decode_text, encode_text};
use crate::store::{Commit, CommitOutcome, SourceStatus, StoredRecord};

/// Result of an attempt to commit.
pub(super) enum CommitAttempt {
    Ended(CommitOutcome),
    /// A record is of a type (`event`) that Toolcrib `contracted` does not know, whose nodes may still use the store.
    NeedsContract {
        event: String,
        contracted: String,
    },
    /// The commit was sent, and its answer was lost.
    Unanswered(sqlx::Error),
}

/// Returns records in order.
pub(super) async fn read_records(
    connection: &mut PgConnection,
    after: u64,
    limit: usize,
) -> sqlx::Result<Vec<StoredRecord>> {
    sqlx::query(
        "SELECT seq, at, actor, body, critical, since, checksum FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2",
    )
    .bind(to_bigint(after))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .try_map(|row: PgRow| {
        Ok(StoredRecord {
            seq: row.try_get::<i64, _>(0)?.unsigned_abs(),
            at: Timestamp(row.try_get(1)?),
            actor: Actor::new(decode_text(row.try_get(2)?)),
            body: row.try_get(3)?,
            critical: row.try_get(4)?,
            min_version: row.try_get(5)?,
            checksum: row.try_get(6)?,
        })
    })
    .fetch_all(connection)
    .await
}

/// Returns a number that every write increments which other nodes must notice.
pub(super) async fn read_change_counter(connection: &mut PgConnection) -> sqlx::Result<u64> {
    let changes: i64 = sqlx::query_scalar("SELECT changes FROM head").fetch_one(connection).await?;
    Ok(changes.unsigned_abs())
}

/// Locks the head, and counts a change. The first statement of every transaction that other nodes must notice.
pub(super) async fn lock_head(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("UPDATE head SET changes = changes + 1").execute(connection).await.map(drop)
}

/// Appends events and a measurement. `records` are those of `commit`. See [`Store::commit`](crate::store::Store::commit).
pub(super) async fn commit(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    records: &[StoredRecord],
    sender: NoticeSender<'_>,
) -> sqlx::Result<CommitAttempt> {
    let mut transaction = connection.begin().await?;
    let head: i64 = sqlx::query_scalar("SELECT seq FROM head FOR UPDATE").fetch_one(&mut *transaction).await?;
    if head != to_bigint(commit.expected_head) {
        transaction.rollback().await?;
        return Ok(CommitAttempt::Ended(CommitOutcome::Conflict));
    }
    if let Some(measurement) = &commit.measurement {
        // Leases change under the lock of the head, so this stays true until the commit.
        if let Some(holder) = measurement.lease
            && !lease::is_held(&mut transaction, measurement.source, holder).await?
        {
            transaction.rollback().await?;
            return Ok(CommitAttempt::Ended(CommitOutcome::Superseded));
        }
        // A discovery that started earlier but ended later must not replace a newer result.
        let newest = measurements::last_started_at(&mut transaction, measurement.source).await?;
        let newest = newest.map(|started_at| SourceStatus { started_at, ..SourceStatus::default() });
        if newest.is_some_and(|newest| newest.supersedes(measurement.status, commit.at)) {
            transaction.rollback().await?;
            return Ok(CommitAttempt::Ended(CommitOutcome::Superseded));
        }
        measurements::write_measurement(&mut transaction, measurement).await?;
    }
    if let Some(newest) = records.iter().max_by(|a, b| compare_versions(&a.min_version, &b.min_version)) {
        let contracted = schema::read_contracted(&mut transaction).await?;
        if compare_versions(&newest.min_version, &contracted) == Ordering::Greater {
            transaction.rollback().await?;
            let event = event_type(&newest.body).unwrap_or_default();
            return Ok(CommitAttempt::NeedsContract { event, contracted });
        }
    }
    insert_records(&mut transaction, records).await?;
    let last = records.last().map_or(head, |record| to_bigint(record.seq));
    sqlx::query("UPDATE head SET seq = $1, changes = changes + 1").bind(last).execute(&mut *transaction).await?;
    sender.send(&mut transaction).await?;
    Ok(match transaction.commit().await {
        Ok(()) => CommitAttempt::Ended(CommitOutcome::Committed),
        Err(error) => CommitAttempt::Unanswered(error),
    })
}

/// Inserts records in one statement. The primary key on `seq` is the last guard against two writers.
pub(super) async fn insert_records(connection: &mut PgConnection, records: &[StoredRecord]) -> sqlx::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let column = |text: fn(&StoredRecord) -> String| records.iter().map(text).collect::<Vec<_>>();
    sqlx::query(
        "INSERT INTO journal (seq, at, actor, body, critical, since, checksum)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::boolean[], $6::text[], $7::text[])",
    )
    .bind(records.iter().map(|record| to_bigint(record.seq)).collect::<Vec<_>>())
    .bind(records.iter().map(|record| record.at.0).collect::<Vec<_>>())
    .bind(column(|record| encode_text(record.actor.as_str())))
    .bind(column(|record| record.body.clone()))
    .bind(records.iter().map(|record| record.critical).collect::<Vec<_>>())
    .bind(column(|record| record.min_version.clone()))
    .bind(records.iter().map(|record| record.checksum.clone()).collect::<Vec<_>>())
    .execute(connection)
    .await
    .map(drop)
}
