//! Manifests and definitions, by their fingerprints. A damaged one is left out and logged: it never harms another source.

use std::fmt::Display;

use futures_util::TryStreamExt;
use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Source, SourceId};

use super::errors::is_partial_damage;

/// Writes only what is not there yet, or was damaged.
pub(super) async fn put_manifest(connection: &mut SqliteConnection, manifest: &PackedManifest) -> sqlx::Result<()> {
    let index = manifest.index_json().map_err(|error| sqlx::Error::Encode(error.into()))?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(
        "INSERT INTO manifests (fingerprint, idx, body) VALUES (?, ?, ?)
         ON CONFLICT (fingerprint) DO UPDATE SET idx = excluded.idx, body = excluded.body
         WHERE idx <> excluded.idx OR body <> excluded.body",
    )
    .bind(manifest.fingerprint.to_string())
    .bind(index)
    .bind(manifest.body.as_str())
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

pub(super) async fn load_manifests(
    connection: &mut SqliteConnection,
    wanted: &[Fingerprint],
) -> sqlx::Result<Vec<PackedManifest>> {
    match read_manifests(connection, wanted).await {
        Err(error) if is_partial_damage(&error) => {}
        read => return read,
    }
    // A damaged page ends the whole query; one by one, it costs only the manifests that lie on it.
    let mut manifests = Vec::new();
    for fingerprint in wanted {
        match read_manifests(connection, std::slice::from_ref(fingerprint)).await {
            Err(error) if is_partial_damage(&error) => log_damaged("manifest", fingerprint, &error),
            read => manifests.append(&mut read?),
        }
    }
    Ok(manifests)
}

async fn read_manifests(
    connection: &mut SqliteConnection,
    wanted: &[Fingerprint],
) -> sqlx::Result<Vec<PackedManifest>> {
    let mut manifests = Vec::with_capacity(wanted.len());
    let mut rows = sqlx::query(
        "SELECT fingerprint, idx, body FROM manifests WHERE fingerprint IN (SELECT value FROM json_each(?))",
    )
    .bind(to_json(wanted)?)
    .fetch(connection);
    // Row by row, so that this thread reads indexes while SQLite's reads pages.
    while let Some(row) = rows.try_next().await? {
        let fingerprint: String = row.try_get(0)?;
        manifests.extend(skip_damaged("manifest", &fingerprint, parse_manifest(&fingerprint, &row)));
    }
    Ok(manifests)
}

fn parse_manifest(
    fingerprint: &str,
    row: &SqliteRow,
) -> Result<PackedManifest, Box<dyn std::error::Error + Send + Sync>> {
    Ok(PackedManifest::read(fingerprint.parse()?, row.try_get(1)?, row.try_get(2)?)?)
}

pub(super) async fn put_definition(
    connection: &mut SqliteConnection,
    name: Fingerprint,
    definition: &Source,
) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(
        "INSERT INTO definitions (name, body) VALUES (?, ?)
         ON CONFLICT (name) DO UPDATE SET body = excluded.body WHERE body <> excluded.body",
    )
    .bind(name.to_string())
    .bind(to_json(definition)?)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

pub(super) async fn load_definitions(
    connection: &mut SqliteConnection,
    wanted: &[Fingerprint],
) -> sqlx::Result<Vec<(Fingerprint, Source)>> {
    match read_definitions(connection, wanted).await {
        Err(error) if is_partial_damage(&error) => {}
        read => return read,
    }
    // As with manifests, damage costs only the definitions that it lies on.
    let mut definitions = Vec::new();
    for name in wanted {
        match read_definitions(connection, std::slice::from_ref(name)).await {
            Err(error) if is_partial_damage(&error) => log_damaged("definition", name, &error),
            read => definitions.append(&mut read?),
        }
    }
    Ok(definitions)
}

async fn read_definitions(
    connection: &mut SqliteConnection,
    wanted: &[Fingerprint],
) -> sqlx::Result<Vec<(Fingerprint, Source)>> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT name, body FROM definitions WHERE name IN (SELECT value FROM json_each(?))")
            .bind(to_json(wanted)?)
            .fetch_all(connection)
            .await?;
    let definition = |(name, body): (String, String)| {
        let definition = skip_damaged("definition", &name, serde_json::from_str(&body))?;
        Some((skip_damaged("definition", &name, name.parse())?, definition))
    };
    Ok(rows.into_iter().filter_map(definition).collect())
}

pub(super) async fn remove_definitions(
    connection: &mut SqliteConnection,
    source: &SourceId,
    but: Option<Fingerprint>,
) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("DELETE FROM definitions WHERE json_valid(body) AND json_extract(body, '$.id') = ? AND name <> ?")
        .bind(source.as_str())
        .bind(but.map(|name| name.to_string()).unwrap_or_default())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

pub(super) fn to_json<T: Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// What could be read, or nothing and a line in the log.
pub(super) fn skip_damaged<T, E: Display>(what: &str, name: &str, read: Result<T, E>) -> Option<T> {
    read.inspect_err(|error| log_damaged(what, &name, error)).ok()
}

fn log_damaged(what: &str, name: &dyn Display, error: &dyn Display) {
    tracing::warn!(%name, %error, "a stored {what} is damaged and left out");
}
