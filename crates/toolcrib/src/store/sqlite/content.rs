//! Manifests, feature lists and definitions, by their fingerprints. A damaged one is skipped and logged, so that it
//! affects no other source.
//!
//! Content is addressed by its fingerprint (manifests) or a keyed hash (definitions), so writing it twice is harmless
//! and needs no coordination between processes. Manifests are two texts: a small index that a start parses, and the
//! body, out of which tools are cut when they are needed.

use futures_util::TryStreamExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Source, SourceId};

use super::errors::is_partial_damage;
use super::journal::read_head;
use crate::store::rows::{STORED_AT_PRECISION, log_damaged, skip_damaged, to_json};

/// Stores a manifest if it is missing, or different because it was damaged or stored by an older version. The first of
/// several that differ in the order of keys stays: other nodes may have read it.
pub(super) async fn put_manifest(connection: &mut SqliteConnection, manifest: &PackedManifest) -> sqlx::Result<()> {
    let index = manifest.index_json().map_err(|error| sqlx::Error::Encode(error.into()))?;
    let inserted = sqlx::query(
        "INSERT INTO manifests (fingerprint, idx, body, stored_at) VALUES (?, ?, ?, unixepoch())
         ON CONFLICT (fingerprint) DO NOTHING",
    )
    .bind(manifest.fingerprint.to_string())
    .bind(&index)
    .bind(manifest.body.as_str())
    .execute(&mut *connection)
    .await?;
    if inserted.rows_affected() > 0 {
        return Ok(());
    }
    let stored = load_manifests(&mut *connection, &[manifest.fingerprint]).await?.pop();
    match stored.filter(|stored| stored.has_same_content(manifest) && stored.body != manifest.body) {
        Some(stored) => {
            let index = stored.index_json().map_err(|error| sqlx::Error::Encode(error.into()))?;
            put_list(connection, stored.fingerprint, index, &stored.body).await
        }
        None => put_list(connection, manifest.fingerprint, index, &manifest.body).await,
    }
}

/// Stores a list of prompts and resources like a manifest, in the same table: it has the same shape, and a version that
/// does not know such lists reads only the manifests that it knows of. Its summary takes the place of the index.
pub(super) async fn put_features(connection: &mut SqliteConnection, features: &FeatureList) -> sqlx::Result<()> {
    let encode = |error: toolcrib_core::Error| sqlx::Error::Encode(error.into());
    let summary = features.summary.to_json().map_err(encode)?;
    let items = features.items_text().map_err(encode)?;
    put_list(connection, features.summary.fingerprint, summary, &items).await
}

/// Writes a row of `manifests`. One that is stored already is written again only to keep `stored_at` recent.
async fn put_list(
    connection: &mut SqliteConnection,
    fingerprint: Fingerprint,
    index: String,
    body: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO manifests (fingerprint, idx, body, stored_at) VALUES (?, ?, ?, unixepoch())
         ON CONFLICT (fingerprint) DO UPDATE SET idx = excluded.idx, body = excluded.body, stored_at = excluded.stored_at
         WHERE idx <> excluded.idx OR body <> excluded.body OR stored_at < excluded.stored_at - ?",
    )
    .bind(fingerprint.to_string())
    .bind(index)
    .bind(body)
    .bind(STORED_AT_PRECISION)
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the manifests that exist and can be read. Missing fingerprints are not an error; the caller compares.
pub(super) async fn load_manifests(
    connection: &mut SqliteConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<PackedManifest>> {
    load_lists(connection, MANIFEST, fingerprints, PackedManifest::read).await
}

/// Returns the lists of prompts and resources that exist and can be read.
pub(super) async fn load_features(
    connection: &mut SqliteConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<FeatureList>> {
    let parse = |fingerprint, summary: &str, items: String| FeatureList::read(fingerprint, summary, &items);
    load_lists(connection, FEATURE_LIST, fingerprints, parse).await
}

/// Returns the summaries of the lists of prompts and resources that exist and can be read. `body` is not read: SQLite
/// leaves the pages behind the columns that a query names.
pub(super) async fn load_feature_summaries(
    connection: &mut SqliteConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<FeatureSummary>> {
    let parse = |fingerprint, summary: &str, _: String| FeatureSummary::read(fingerprint, summary);
    load_lists(connection, FEATURE_SUMMARY, fingerprints, parse).await
}

/// Name of the content, for messages, and the query that reads it.
type ListQuery = (&'static str, &'static str);
const MANIFEST: ListQuery = ("manifest", QUERY_WITH_BODY);
const FEATURE_LIST: ListQuery = ("list of prompts and resources", QUERY_WITH_BODY);
const FEATURE_SUMMARY: ListQuery = (
    "summary of prompts and resources",
    "SELECT fingerprint, idx, '' FROM manifests WHERE fingerprint IN (SELECT value FROM json_each(?))",
);
const QUERY_WITH_BODY: &str =
    "SELECT fingerprint, idx, body FROM manifests WHERE fingerprint IN (SELECT value FROM json_each(?))";

/// Makes a list of the index and the body of its row.
type ParseList<T> = fn(Fingerprint, &str, String) -> toolcrib_core::Result<T>;

/// Returns the lists that exist and can be read.
async fn load_lists<T>(
    connection: &mut SqliteConnection,
    list: ListQuery,
    fingerprints: &[Fingerprint],
    parse: ParseList<T>,
) -> sqlx::Result<Vec<T>> {
    match read_lists(connection, list, fingerprints, parse).await {
        Err(error) if is_partial_damage(&error) => {}
        result => return result,
    }
    // A damaged page fails the whole query; read one by one, only the lists on that page are lost.
    let mut lists = Vec::new();
    for fingerprint in fingerprints {
        match read_lists(connection, list, std::slice::from_ref(fingerprint), parse).await {
            Err(error) if is_partial_damage(&error) => log_damaged(list.0, fingerprint, &error),
            result => lists.append(&mut result?),
        }
    }
    Ok(lists)
}

/// Reads lists in one query.
async fn read_lists<T>(
    connection: &mut SqliteConnection,
    (what, query): ListQuery,
    fingerprints: &[Fingerprint],
    parse: ParseList<T>,
) -> sqlx::Result<Vec<T>> {
    let mut lists = Vec::with_capacity(fingerprints.len());
    // One parameter for any number of fingerprints: SQLite limits the number of parameters.
    let mut rows = sqlx::query(query).bind(to_json(fingerprints)?).fetch(connection);
    // Row by row, so that parsing here overlaps with SQLite's thread reading pages.
    while let Some(row) = rows.try_next().await? {
        let fingerprint: String = row.try_get(0)?;
        lists.extend(skip_damaged(what, &fingerprint, parse_list(&fingerprint, &row, parse)));
    }
    Ok(lists)
}

/// Parses a row of `manifests`.
fn parse_list<T>(
    fingerprint: &str,
    row: &SqliteRow,
    parse: ParseList<T>,
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(parse(fingerprint.parse()?, row.try_get(1)?, row.try_get(2)?)?)
}

/// Stores the definition of a source. An unchanged definition is written again only to keep `stored_at` recent.
pub(super) async fn put_definition(
    connection: &mut SqliteConnection,
    name: Fingerprint,
    definition: &Source,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO definitions (name, body, stored_at) VALUES (?, ?, unixepoch())
         ON CONFLICT (name) DO UPDATE SET body = excluded.body, stored_at = excluded.stored_at
         WHERE body <> excluded.body OR stored_at < excluded.stored_at - ?",
    )
    .bind(name.to_string())
    .bind(to_json(definition)?)
    .bind(STORED_AT_PRECISION)
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the definitions that exist and can be read.
pub(super) async fn load_definitions(
    connection: &mut SqliteConnection,
    names: &[Fingerprint],
) -> sqlx::Result<Vec<(Fingerprint, Source)>> {
    match read_definitions(connection, names).await {
        Err(error) if is_partial_damage(&error) => {}
        result => return result,
    }
    // As with manifests: read one by one, only the damaged definitions are lost.
    let mut definitions = Vec::new();
    for name in names {
        match read_definitions(connection, std::slice::from_ref(name)).await {
            Err(error) if is_partial_damage(&error) => log_damaged("definition", name, &error),
            result => definitions.append(&mut result?),
        }
    }
    Ok(definitions)
}

/// Reads definitions in one query.
async fn read_definitions(
    connection: &mut SqliteConnection,
    names: &[Fingerprint],
) -> sqlx::Result<Vec<(Fingerprint, Source)>> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT name, body FROM definitions WHERE name IN (SELECT value FROM json_each(?))")
            .bind(to_json(names)?)
            .fetch_all(connection)
            .await?;
    let parse = |(name, body): (String, String)| {
        let definition = skip_damaged("definition", &name, serde_json::from_str(&body))?;
        Some((skip_damaged("definition", &name, name.parse())?, definition))
    };
    Ok(rows.into_iter().filter_map(parse).collect())
}

/// Removes a source's definitions except `keep`, if `head` is the last record. A definition that is no valid JSON has no
/// source and stays.
pub(super) async fn remove_definitions(
    connection: &mut SqliteConnection,
    source: &SourceId,
    keep: Option<Fingerprint>,
    head: u64,
) -> sqlx::Result<bool> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if read_head(&mut transaction).await? != head {
        return Ok(false);
    }
    sqlx::query("DELETE FROM definitions WHERE json_valid(body) AND json_extract(body, '$.id') = ? AND name <> ?")
        .bind(source.as_str())
        .bind(keep.map(|name| name.to_string()).unwrap_or_default())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(true)
}
