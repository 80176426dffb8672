//! Console sessions and login links.

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::Timestamp;
use toolcrib_core::fingerprint::Fingerprint;

use crate::store::Login;
use crate::store::rows::{LoginRow, login_from_row};

/// Stores a session or link, and removes expired ones.
pub(super) async fn put(connection: &mut SqliteConnection, login: &Login) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("DELETE FROM logins WHERE expires_at <= ?").bind(login.created_at.0).execute(&mut *transaction).await?;
    insert(&mut transaction, login).await?;
    transaction.commit().await
}

/// Stores a session or link; replaces one with the same digest.
pub(super) async fn insert(connection: &mut SqliteConnection, login: &Login) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT OR REPLACE INTO logins (digest, kind, credential, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(login.digest.to_string())
    .bind(login.kind.as_str())
    .bind(&login.credential)
    .bind(login.created_at.0)
    .bind(login.expires_at.0)
    .execute(connection)
    .await
    .map(drop)
}

/// Removes a session or link; returns whether it was there.
pub(super) async fn remove(connection: &mut SqliteConnection, digest: Fingerprint) -> sqlx::Result<bool> {
    let removed =
        sqlx::query("DELETE FROM logins WHERE digest = ?").bind(digest.to_string()).execute(connection).await?;
    Ok(removed.rows_affected() > 0)
}

/// Returns the sessions and links that have not expired.
pub(super) async fn list(connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<Vec<Login>> {
    let rows: Vec<LoginRow> =
        sqlx::query_as("SELECT digest, kind, credential, created_at, expires_at FROM logins WHERE expires_at > ?")
            .bind(now.0)
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().filter_map(login_from_row).collect())
}
