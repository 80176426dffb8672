//! Removing rows that are not needed any more, while nodes go on writing.
//!
//! The names of all rows are read first and compared here, because the sets of what is needed may be large. Rows are
//! removed in small batches, each in a short transaction that checks their age again: what was stored meanwhile stays.
//! The head is never locked.

use std::collections::BTreeSet;

use sqlx::{Connection, PgConnection};

use super::changes::{ChangedPart, count_change};
use crate::store::rows::encode_text;
use crate::store::{PruneMode, PruneReport, PruneSelection};

/// Number of rows that one statement removes.
const BATCH_SIZE: usize = 500;

/// Removes, or counts, what is not in the selection.
pub(super) async fn prune(
    connection: &mut PgConnection,
    selection: &PruneSelection,
    mode: PruneMode,
) -> sqlx::Result<PruneReport> {
    let sources = texts(&selection.sources);
    let counted_sources = texts(&selection.counted_sources);
    let counted_tools: BTreeSet<(String, String)> =
        selection.counted_tools.iter().map(|tool| (tool.source.to_string(), encode_text(&tool.name))).collect();
    let age = selection.min_age.as_secs_f64();
    let used_before = selection.used_before().0;

    // Reading the names of a large table may take longer. An error closes the connection.
    sqlx::raw_sql("SET statement_timeout = 0").execute(&mut *connection).await?;
    let checks = prune_checks(connection, selection, &sources, mode).await?;
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT source, tool FROM call_counts WHERE last_called IS NULL OR last_called < $1")
            .bind(used_before)
            .fetch_all(&mut *connection)
            .await?;
    let unneeded: Vec<_> = rows.into_iter().filter(|tool| !counted_tools.contains(tool)).collect();
    let calls = remove_call_counts(connection, unneeded, used_before, mode).await?;
    let lookups = CACHE_COUNTS.prune(connection, age, &counted_sources, mode).await?;
    let token_uses = TOKEN_USES.prune(connection, used_before as f64, &selection.tokens, mode).await?;
    let logins = prune_logins(connection, selection.now.0, mode).await?;
    let definitions = DEFINITIONS.prune(connection, age, &texts(&selection.definitions), mode).await?;
    let manifests = MANIFESTS.prune(connection, age, &texts(&selection.lists), mode).await?;
    if mode == PruneMode::Remove {
        // It is written again when enough records follow.
        sqlx::query("DELETE FROM snapshots").execute(&mut *connection).await?;
    }
    sqlx::raw_sql("RESET statement_timeout").execute(connection).await?;
    Ok(PruneReport { checks, counts: calls + lookups, token_uses, logins, definitions, manifests })
}

/// Texts of a set, as the database has them.
fn texts<T: ToString>(set: &BTreeSet<T>) -> BTreeSet<String> {
    set.iter().map(ToString::to_string).collect()
}

/// A table whose rows have one name and may be recent. `$1` is the minimum age in seconds, or the time of the last use
/// before which a row is removed, `$2` the names to remove.
struct NamedRows {
    select: &'static str,
    delete: &'static str,
    /// Counter of the changes of this table.
    part: Option<ChangedPart>,
}

const CACHE_COUNTS: NamedRows = NamedRows {
    select: "SELECT source FROM cache_counts WHERE $1::float8 IS NOT NULL",
    delete: "DELETE FROM cache_counts WHERE $1::float8 IS NOT NULL AND source = ANY ($2)",
    part: Some(ChangedPart::Counts),
};
const TOKEN_USES: NamedRows = NamedRows {
    select: "SELECT token FROM token_uses WHERE last_used < $1",
    delete: "DELETE FROM token_uses WHERE last_used < $1 AND token = ANY ($2)",
    part: Some(ChangedPart::TokenUses),
};
const DEFINITIONS: NamedRows = NamedRows {
    select: "SELECT name FROM definitions WHERE stored_at <= now() - make_interval(secs => $1)",
    delete: "DELETE FROM definitions WHERE stored_at <= now() - make_interval(secs => $1) AND name = ANY ($2)",
    part: None,
};
const MANIFESTS: NamedRows = NamedRows {
    select: "SELECT fingerprint FROM manifests WHERE stored_at <= now() - make_interval(secs => $1)",
    delete: "DELETE FROM manifests WHERE stored_at <= now() - make_interval(secs => $1) AND fingerprint = ANY ($2)",
    part: None,
};

impl NamedRows {
    /// Removes, or counts, the rows that are old enough and not needed.
    async fn prune(
        &self,
        connection: &mut PgConnection,
        bound: f64,
        needed: &BTreeSet<String>,
        mode: PruneMode,
    ) -> sqlx::Result<u64> {
        let mut names: Vec<String> = sqlx::query_scalar(self.select).bind(bound).fetch_all(&mut *connection).await?;
        names.retain(|name| !needed.contains(name));
        if mode == PruneMode::Count {
            return Ok(names.len() as u64);
        }
        let mut removed = 0;
        for names in names.chunks(BATCH_SIZE) {
            let mut transaction = connection.begin().await?;
            if let Some(part) = self.part {
                count_change(&mut transaction, part).await?;
            }
            let deleted = sqlx::query(self.delete).bind(bound).bind(names).execute(&mut *transaction).await?;
            transaction.commit().await?;
            removed += deleted.rows_affected();
        }
        Ok(removed)
    }
}

/// Removes, or counts, rows of `call_counts`, whose names have two parts.
async fn remove_call_counts(
    connection: &mut PgConnection,
    tools: Vec<(String, String)>,
    used_before: i64,
    mode: PruneMode,
) -> sqlx::Result<u64> {
    if mode == PruneMode::Count {
        return Ok(tools.len() as u64);
    }
    let mut removed = 0;
    for tools in tools.chunks(BATCH_SIZE) {
        let (sources, tools): (Vec<String>, Vec<String>) = tools.iter().cloned().unzip();
        let mut transaction = connection.begin().await?;
        count_change(&mut transaction, ChangedPart::Counts).await?;
        let deleted = sqlx::query(
            "DELETE FROM call_counts WHERE (source, tool) IN (SELECT * FROM unnest($1::text[], $2::text[]))
                 AND (last_called IS NULL OR last_called < $3)",
        )
        .bind(sources)
        .bind(tools)
        .bind(used_before)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        removed += deleted.rows_affected();
    }
    Ok(removed)
}

/// Removes, or counts, checks that are old or of a source that is gone. Rows that a commit is removing at the moment
/// are left to it.
async fn prune_checks(
    connection: &mut PgConnection,
    selection: &PruneSelection,
    sources: &BTreeSet<String>,
    mode: PruneMode,
) -> sqlx::Result<u64> {
    let (since, used_before) = (selection.checks_since.0, selection.used_before().0);
    let mut gone: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT source FROM checks").fetch_all(&mut *connection).await?;
    gone.retain(|source| !sources.contains(source));
    if mode == PruneMode::Count {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM checks WHERE at < $1 OR (source = ANY ($2) AND at < $3)")
                .bind(since)
                .bind(gone)
                .bind(used_before)
                .fetch_one(connection)
                .await?;
        return Ok(count.unsigned_abs());
    }
    let mut removed = 0;
    loop {
        let deleted = sqlx::query(
            "DELETE FROM checks WHERE id IN (
                 SELECT id FROM checks WHERE at < $1 OR (source = ANY ($2) AND at < $3)
                 ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED
             )",
        )
        .bind(since)
        .bind(&gone)
        .bind(used_before)
        .bind(BATCH_SIZE as i64)
        .execute(&mut *connection)
        .await?;
        removed += deleted.rows_affected();
        if deleted.rows_affected() < BATCH_SIZE as u64 {
            return Ok(removed);
        }
    }
}

/// Removes, or counts, logins that have expired. No node uses them, so none has to notice.
async fn prune_logins(connection: &mut PgConnection, now: i64, mode: PruneMode) -> sqlx::Result<u64> {
    match mode {
        PruneMode::Remove => {
            let deleted =
                sqlx::query("DELETE FROM logins WHERE expires_at <= $1").bind(now).execute(connection).await?;
            Ok(deleted.rows_affected())
        }
        PruneMode::Count => {
            let count: i64 = sqlx::query_scalar("SELECT count(*) FROM logins WHERE expires_at <= $1")
                .bind(now)
                .fetch_one(connection)
                .await?;
            Ok(count.unsigned_abs())
        }
    }
}
