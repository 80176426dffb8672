//! Manifests, lists of prompts and resources, and definitions. Their names are hashes of their content, so a row is
//! never changed, and no lock of the head is needed to write one.

use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use toolcrib_core::features::{FeatureList, FeatureSummary};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Source, SourceId};

use super::journal::is_head;
use super::schema::lift_statement_timeout;
use crate::store::rows::{STORED_AT_PRECISION, skip_damaged, to_json};

/// Maximum number of lists that one statement reads.
const LISTS_PER_STATEMENT: usize = 100;
/// Maximum number of definitions that one statement reads.
const DEFINITIONS_PER_STATEMENT: usize = 1_000;

/// Stores a manifest if it is missing, or different because it was damaged or stored by an older version. The first of
/// several that differ in the order of keys stays: other nodes may have read it.
pub(super) async fn put_manifest(connection: &mut PgConnection, manifest: &PackedManifest) -> sqlx::Result<()> {
    let index = manifest.index_json().map_err(|error| sqlx::Error::Encode(error.into()))?;
    let inserted = sqlx::query(
        "INSERT INTO manifests (fingerprint, idx, body, stored_at) VALUES ($1, $2, $3, now())
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

/// Stores a list of prompts, resources and instructions. Shares the table of the manifests: fingerprints of different
/// content never collide.
pub(super) async fn put_features(connection: &mut PgConnection, features: &FeatureList) -> sqlx::Result<()> {
    let encode = |error: toolcrib_core::Error| sqlx::Error::Encode(error.into());
    let summary = features.summary.to_json().map_err(encode)?;
    let items = features.items_text().map_err(encode)?;
    put_list(connection, features.summary.fingerprint, summary, &items).await
}

/// Writes a row of `manifests`. One that is stored already is written again only to keep `stored_at` recent.
async fn put_list(
    connection: &mut PgConnection,
    fingerprint: Fingerprint,
    index: String,
    body: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO manifests (fingerprint, idx, body, stored_at) VALUES ($1, $2, $3, now())
         ON CONFLICT (fingerprint) DO UPDATE SET idx = excluded.idx, body = excluded.body, stored_at = excluded.stored_at
         WHERE manifests.idx <> excluded.idx OR manifests.body <> excluded.body
             OR manifests.stored_at < now() - make_interval(secs => $4)",
    )
    .bind(fingerprint.to_string())
    .bind(index)
    .bind(body)
    .bind(STORED_AT_PRECISION as f64)
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the manifests that exist and can be read. Missing fingerprints are not an error; the caller compares.
pub(super) async fn load_manifests(
    connection: &mut PgConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<PackedManifest>> {
    load_lists(connection, ("manifest", QUERY_WITH_BODY), fingerprints, PackedManifest::read).await
}

/// Returns the lists of prompts and resources that exist and can be read.
pub(super) async fn load_features(
    connection: &mut PgConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<FeatureList>> {
    let parse = |fingerprint, summary: &str, items: String| FeatureList::read(fingerprint, summary, &items);
    load_lists(connection, ("list of prompts and resources", QUERY_WITH_BODY), fingerprints, parse).await
}

/// Returns the summaries of the lists of prompts and resources that exist and can be read.
pub(super) async fn load_feature_summaries(
    connection: &mut PgConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<FeatureSummary>> {
    let parse = |fingerprint, summary: &str, _: String| FeatureSummary::read(fingerprint, summary);
    load_lists(connection, ("summary of prompts and resources", QUERY_SUMMARY), fingerprints, parse).await
}

const QUERY_WITH_BODY: &str = "SELECT fingerprint, idx, body FROM manifests WHERE fingerprint = ANY($1)";
const QUERY_SUMMARY: &str = "SELECT fingerprint, idx, '' FROM manifests WHERE fingerprint = ANY($1)";

/// Returns the lists that exist and can be read. Row by row, so that one large text at a time is in memory twice. The
/// time limit is that of the whole operation, because the transfer of large lists counts as a part of the statement.
async fn load_lists<T>(
    connection: &mut PgConnection,
    (what, query): (&'static str, &'static str),
    fingerprints: &[Fingerprint],
    parse: fn(Fingerprint, &str, String) -> toolcrib_core::Result<T>,
) -> sqlx::Result<Vec<T>> {
    let mut lists = Vec::with_capacity(fingerprints.len());
    let mut transaction = connection.begin().await?;
    lift_statement_timeout(&mut transaction).await?;
    for fingerprints in fingerprints.chunks(LISTS_PER_STATEMENT) {
        let mut rows = sqlx::query(query).bind(names(fingerprints)).fetch(&mut *transaction);
        while let Some(row) = rows.try_next().await? {
            let fingerprint: String = row.try_get(0)?;
            lists.extend(skip_damaged(what, &fingerprint, parse_list(&fingerprint, &row, parse)));
        }
    }
    transaction.rollback().await?;
    Ok(lists)
}

/// Parses a row of `manifests`.
fn parse_list<T>(
    fingerprint: &str,
    row: &PgRow,
    parse: fn(Fingerprint, &str, String) -> toolcrib_core::Result<T>,
) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
    Ok(parse(fingerprint.parse()?, row.try_get(1)?, row.try_get(2)?)?)
}

/// Stores the definition of a source. An unchanged definition is written again only to keep `stored_at` recent.
pub(super) async fn put_definition(
    connection: &mut PgConnection,
    name: Fingerprint,
    definition: &Source,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO definitions (name, source, body, stored_at) VALUES ($1, $2, $3, now())
         ON CONFLICT (name) DO UPDATE SET body = excluded.body, stored_at = excluded.stored_at
         WHERE definitions.body <> excluded.body OR definitions.stored_at < now() - make_interval(secs => $4)",
    )
    .bind(name.to_string())
    .bind(definition.id.as_str())
    .bind(to_json(definition)?)
    .bind(STORED_AT_PRECISION as f64)
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the definitions that exist and can be read.
pub(super) async fn load_definitions(
    connection: &mut PgConnection,
    fingerprints: &[Fingerprint],
) -> sqlx::Result<Vec<(Fingerprint, Source)>> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for fingerprints in fingerprints.chunks(DEFINITIONS_PER_STATEMENT) {
        let read = sqlx::query_as("SELECT name, body FROM definitions WHERE name = ANY($1)").bind(names(fingerprints));
        rows.extend(read.fetch_all(&mut *connection).await?);
    }
    let parse = |(name, body): (String, String)| {
        let definition = skip_damaged("definition", &name, serde_json::from_str(&body))?;
        Some((skip_damaged("definition", &name, name.parse())?, definition))
    };
    Ok(rows.into_iter().filter_map(parse).collect())
}

/// Removes a source's definitions except `keep`, if `head` is the last record.
pub(super) async fn remove_definitions(
    connection: &mut PgConnection,
    source: &SourceId,
    keep: Option<Fingerprint>,
    head: u64,
) -> sqlx::Result<bool> {
    let mut transaction = connection.begin().await?;
    if !is_head(&mut transaction, head).await? {
        transaction.rollback().await?;
        return Ok(false);
    }
    sqlx::query("DELETE FROM definitions WHERE source = $1 AND name <> $2")
        .bind(source.as_str())
        .bind(keep.map(|name| name.to_string()).unwrap_or_default())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(true)
}

/// Fingerprints as a parameter.
fn names(fingerprints: &[Fingerprint]) -> Vec<String> {
    fingerprints.iter().map(Fingerprint::to_string).collect()
}
