//! Console sessions and login links.

use sqlx::{Connection, PgConnection};
use toolcrib_core::Timestamp;
use toolcrib_core::fingerprint::Fingerprint;

use super::changes::{ChangedPart, NoticeSender, count_change};
use crate::store::Login;
use crate::store::rows::{LoginRow, login_from_row};

/// Stores a session or link, and removes expired ones.
pub(super) async fn put(connection: &mut PgConnection, login: &Login, sender: NoticeSender<'_>) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    count_change(&mut transaction, ChangedPart::Logins).await?;
    sqlx::query("DELETE FROM logins WHERE expires_at <= $1")
        .bind(login.created_at.0)
        .execute(&mut *transaction)
        .await?;
    insert(&mut transaction, login).await?;
    sender.send(&mut transaction).await?;
    transaction.commit().await
}

/// Stores a session or link; replaces one with the same digest.
pub(super) async fn insert(connection: &mut PgConnection, login: &Login) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO logins (digest, kind, credential, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (digest) DO UPDATE SET kind = excluded.kind, credential = excluded.credential,
             created_at = excluded.created_at, expires_at = excluded.expires_at",
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
pub(super) async fn remove(
    connection: &mut PgConnection,
    digest: Fingerprint,
    sender: NoticeSender<'_>,
) -> sqlx::Result<bool> {
    let mut transaction = connection.begin().await?;
    count_change(&mut transaction, ChangedPart::Logins).await?;
    let removed =
        sqlx::query("DELETE FROM logins WHERE digest = $1").bind(digest.to_string()).execute(&mut *transaction).await?;
    sender.send(&mut transaction).await?;
    transaction.commit().await?;
    Ok(removed.rows_affected() > 0)
}

/// Returns the sessions and links that have not expired.
pub(super) async fn list(connection: &mut PgConnection, now: Timestamp) -> sqlx::Result<Vec<Login>> {
    let rows: Vec<LoginRow> =
        sqlx::query_as("SELECT digest, kind, credential, created_at, expires_at FROM logins WHERE expires_at > $1")
            .bind(now.0)
            .fetch_all(connection)
            .await?;
    Ok(rows.into_iter().filter_map(login_from_row).collect())
}
