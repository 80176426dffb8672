//! The snapshot of the inventory: one row.

use sqlx::SqliteConnection;

use crate::store::{JournalPosition, StoredSnapshot};

/// Replaces the snapshot.
pub(super) async fn put(connection: &mut SqliteConnection, snapshot: &StoredSnapshot) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT OR REPLACE INTO snapshots (id, seq, record_checksum, version, body, checksum) VALUES (1, ?, ?, ?, ?, ?)",
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
