//! The snapshot of the inventory: one row.

use sqlx::SqliteConnection;

use crate::store::{JournalPosition, StoredSnapshot};

/// Replaces the snapshot, unless a later one of this journal is stored. A later one of another journal is of a time
/// before a backup was restored.
pub(super) async fn put(connection: &mut SqliteConnection, snapshot: &StoredSnapshot) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO snapshots (id, seq, record_checksum, version, body, checksum) VALUES (1, ?, ?, ?, ?, ?)
         ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, record_checksum = excluded.record_checksum,
             version = excluded.version, body = excluded.body, checksum = excluded.checksum
         WHERE snapshots.seq <= excluded.seq OR NOT EXISTS (
             SELECT 1 FROM journal WHERE journal.seq = snapshots.seq AND journal.checksum = snapshots.record_checksum
         )",
    )
    .bind(i64::try_from(snapshot.position.seq).unwrap_or(i64::MAX))
    .bind(&snapshot.position.checksum)
    .bind(&snapshot.version)
    .bind(&snapshot.body)
    .bind(&snapshot.checksum)
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the snapshot.
pub(super) async fn load(connection: &mut SqliteConnection) -> sqlx::Result<Option<StoredSnapshot>> {
    type SnapshotRow = (i64, String, String, String, String);
    let row: Option<SnapshotRow> =
        sqlx::query_as("SELECT seq, record_checksum, version, body, checksum FROM snapshots WHERE id = 1")
            .fetch_optional(connection)
            .await?;
    Ok(row.map(|(seq, record_checksum, version, body, checksum)| {
        let position = JournalPosition { seq: seq.unsigned_abs(), checksum: record_checksum };
        StoredSnapshot { position, version, body, checksum }
    }))
}
