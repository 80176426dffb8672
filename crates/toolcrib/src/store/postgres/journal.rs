//! The journal table and its head: consecutive sequence numbers, appended only by a writer that knows the last one.
//!
//! The row of `head` is locked from the check of the expected version to the commit, so writers of all nodes follow
//! each other, and records become visible in their order.

use std::cmp::Ordering;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgConnection, Postgres, Row, Transaction};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use toolcrib_core::Timestamp;
use toolcrib_core::inventory::{Actor, compare_versions, event_type};

use super::changes::{CHANNEL, NoticeSender};
use super::{measurements, to_bigint};
use crate::store::rows::{decode_text, encode_text};
use crate::store::{ChangeCounters, Commit, CommitOutcome, StoredRecord};

/// Maximum time of the last step of a commit.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Size of the records that one statement reads, so that it ends within the time that the database allows. One record
/// may be larger.
const MAX_BATCH_BYTES: i64 = 8 * 1024 * 1024;

/// Returns records in order: fewer than `limit` if they are large.
pub(super) async fn read_records(
    connection: &mut PgConnection,
    after: u64,
    limit: usize,
) -> sqlx::Result<Vec<StoredRecord>> {
    sqlx::query(
        "SELECT seq, at, actor, body, critical, since, checksum
         FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS bytes_before
               FROM (SELECT * FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2) AS batch) AS sized
         WHERE bytes_before < $3 ORDER BY seq",
    )
    .bind(to_bigint(after))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .bind(MAX_BATCH_BYTES)
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

/// Returns the sequence number of the last record, as it was when that was committed.
pub(super) async fn read_head(connection: &mut PgConnection) -> sqlx::Result<u64> {
    let head: i64 = sqlx::query_scalar("SELECT seq FROM head").fetch_one(connection).await?;
    Ok(head.unsigned_abs())
}

/// Returns the number of changes of each part. The number in `head` counts those of records, statuses and leases. A
/// journal that has lost its last record counts as changed, so that every node reads it and notices.
pub(super) async fn read_change_counters(connection: &mut PgConnection) -> sqlx::Result<ChangeCounters> {
    let (journal, is_complete, counts, logins, token_uses): (i64, bool, i64, i64, i64) = sqlx::query_as(
        "SELECT changes, seq = 0 OR EXISTS (SELECT 1 FROM journal WHERE journal.seq = head.seq),
             (SELECT number FROM changes WHERE part = 'counts'),
             (SELECT number FROM changes WHERE part = 'logins'), (SELECT number FROM changes WHERE part = 'token_uses')
         FROM head",
    )
    .fetch_one(connection)
    .await?;
    let [journal, counts, logins, token_uses] = [journal, counts, logins, token_uses].map(i64::unsigned_abs);
    let journal = if is_complete { journal } else { u64::MAX };
    Ok(ChangeCounters { journal, counts, logins, token_uses })
}

/// Locks the head, and counts a change. The first statement of every transaction that changes statuses or leases.
pub(super) async fn lock_head(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("UPDATE head SET changes = changes + 1").execute(connection).await.map(drop)
}

/// Locks the head without a change, and returns whether it is this record.
pub(super) async fn is_head(connection: &mut PgConnection, head: u64) -> sqlx::Result<bool> {
    let current: i64 = sqlx::query_scalar("SELECT seq FROM head FOR UPDATE").fetch_one(connection).await?;
    Ok(current == to_bigint(head))
}

/// Appends events and a measurement. `records` are those of `commit`. See
/// [`Store::commit`](crate::store::Store::commit).
///
/// Writes within `limit`; the final `COMMIT` has a limit of its own, so that a lost answer is told apart from a write
/// that has not happened.
pub(super) async fn commit(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    records: &[StoredRecord],
    sender: NoticeSender<'_>,
    limit: Duration,
) -> Result<sqlx::Result<CommitAttempt>, Elapsed> {
    let transaction = match timeout(limit, write(connection, commit, records, sender)).await? {
        Ok(WriteStep::Written(transaction)) => transaction,
        Ok(WriteStep::Refused(attempt)) => return Ok(Ok(attempt)),
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(match timeout(COMMIT_TIMEOUT, transaction.commit()).await {
        Ok(Ok(())) => CommitAttempt::Ended(CommitOutcome::Committed),
        Ok(Err(error)) => CommitAttempt::Unanswered(error),
        Err(_) => CommitAttempt::Unanswered(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }))
}

/// Result of everything before the final `COMMIT`.
enum WriteStep<'c> {
    Written(Transaction<'c, Postgres>),
    Refused(CommitAttempt),
}

/// Writes a commit in a transaction that is left open. While the head is locked, all other writers wait, so there are
/// few statements. What may change until the head is locked is read in a statement after that: the one that waits for a
/// lock reads all other rows as they were before the wait.
async fn write<'c>(
    connection: &'c mut PgConnection,
    commit: &Commit<'_>,
    records: &[StoredRecord],
    sender: NoticeSender<'_>,
) -> sqlx::Result<WriteStep<'c>> {
    let mut transaction = connection.begin().await?;
    // `contracted` only grows, so an outdated one is on the safe side.
    let (head, contracted): (i64, Option<Vec<u8>>) = sqlx::query_as(LOCK_HEAD).fetch_one(&mut *transaction).await?;
    let refusal = if head != to_bigint(commit.expected_head) {
        Some(CommitAttempt::Ended(CommitOutcome::Conflict))
    } else {
        find_unknown_type(records, contracted)
    };
    if let Some(refusal) = refusal {
        transaction.rollback().await?;
        return Ok(WriteStep::Refused(refusal));
    }
    if let Some(measurement) = &commit.measurement
        && !measurements::write_measurement(&mut transaction, measurement, commit.at).await?
    {
        transaction.rollback().await?;
        return Ok(WriteStep::Refused(CommitAttempt::Ended(CommitOutcome::Superseded)));
    }
    append_records(&mut transaction, head, records, sender).await?;
    Ok(WriteStep::Written(transaction))
}

/// Locks the head without a change, and reads its position and the version whose record types may be written.
const LOCK_HEAD: &str = "SELECT seq, (SELECT value FROM meta WHERE key = 'contracted') FROM head FOR UPDATE";

/// Returns a refusal if a record is of a type that may not be written yet.
fn find_unknown_type(records: &[StoredRecord], contracted: Option<Vec<u8>>) -> Option<CommitAttempt> {
    let newest = records.iter().max_by(|a, b| compare_versions(&a.min_version, &b.min_version))?;
    let contracted = String::from_utf8_lossy(&contracted.unwrap_or_default()).into_owned();
    let event = || event_type(&newest.body).unwrap_or_default();
    (compare_versions(&newest.min_version, &contracted) == Ordering::Greater)
        .then(|| CommitAttempt::NeedsContract { event: event(), contracted })
}

/// Finds out whether a commit was executed whose answer was lost. With the head locked, no transaction is still about
/// to write it.
pub(super) async fn find_commit(
    connection: &mut PgConnection,
    commit: &Commit<'_>,
    records: &[StoredRecord],
) -> sqlx::Result<CommitOutcome> {
    let mut transaction = connection.begin().await?;
    sqlx::query(LOCK_HEAD).execute(&mut *transaction).await?;
    let is_written = match (records.first(), commit.measurement.and_then(|measurement| measurement.check)) {
        (Some(first), _) => is_written(&mut transaction, first.seq.saturating_sub(1), records).await?,
        (None, Some(check)) => measurements::is_last_check(&mut transaction, check).await?,
        // A status alone can be written again.
        (None, None) => false,
    };
    transaction.rollback().await?;
    // Nothing was written: the caller decides again on what is there now.
    Ok(if is_written { CommitOutcome::Committed } else { CommitOutcome::Conflict })
}

/// Whether the journal has these records after `after`, by content, time, actor and checksum.
async fn is_written(connection: &mut PgConnection, mut after: u64, mut records: &[StoredRecord]) -> sqlx::Result<bool> {
    while !records.is_empty() {
        let batch = read_records(connection, after, records.len()).await?;
        let Some(last) = batch.last() else { return Ok(false) };
        after = last.seq;
        match records.strip_prefix(&*batch) {
            Some(rest) => records = rest,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Inserts records, moves the head, counts a change and notifies the other nodes, in one statement. The primary key on
/// `seq` is the last guard against two writers.
async fn append_records(
    connection: &mut PgConnection,
    head: i64,
    records: &[StoredRecord],
    sender: NoticeSender<'_>,
) -> sqlx::Result<()> {
    let last = records.last().map_or(head, |record| to_bigint(record.seq));
    let append = sqlx::query(
        "WITH appended AS (
             INSERT INTO journal (seq, at, actor, body, critical, since, checksum)
             SELECT * FROM unnest(
                 $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::boolean[], $6::text[], $7::text[]
             )
         )
         UPDATE head SET seq = $8, changes = changes + 1 RETURNING pg_notify($9, $10)",
    );
    let append = bind_records(append, records).bind(last).bind(CHANNEL).bind(sender.name());
    append.execute(connection).await.map(drop)
}

/// Inserts records as they are.
pub(super) async fn insert_records(connection: &mut PgConnection, records: &[StoredRecord]) -> sqlx::Result<()> {
    let insert = sqlx::query(
        "INSERT INTO journal (seq, at, actor, body, critical, since, checksum)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::boolean[], $6::text[], $7::text[])",
    );
    bind_records(insert, records).execute(connection).await.map(drop)
}

type PgQuery<'q> = Query<'q, Postgres, PgArguments>;

/// Binds a parameter for each column of `journal`, with the values of all records.
fn bind_records<'q>(query: PgQuery<'q>, records: &[StoredRecord]) -> PgQuery<'q> {
    let column = |text: fn(&StoredRecord) -> String| records.iter().map(text).collect::<Vec<_>>();
    query
        .bind(records.iter().map(|record| to_bigint(record.seq)).collect::<Vec<_>>())
        .bind(records.iter().map(|record| record.at.0).collect::<Vec<_>>())
        .bind(column(|record| encode_text(record.actor.as_str())))
        .bind(column(|record| record.body.clone()))
        .bind(records.iter().map(|record| record.critical).collect::<Vec<_>>())
        .bind(column(|record| record.min_version.clone()))
        .bind(records.iter().map(|record| record.checksum.clone()).collect::<Vec<_>>())
}
