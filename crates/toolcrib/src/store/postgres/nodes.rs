//! Reports of the nodes that are running, by the clock of the database.

use sqlx::PgConnection;

use super::to_bigint;
use crate::store::nodes::{NODE_RETENTION, NODE_TIMEOUT};
use crate::store::{NodeReport, NodeStatus};

/// Stores a report, and forgets nodes that ended long ago without saying so.
pub(super) async fn report(connection: &mut PgConnection, report: &NodeReport) -> sqlx::Result<()> {
    sqlx::query(
        "WITH forgotten AS (
             DELETE FROM nodes WHERE id <> $1 AND last_seen < clock_timestamp() - make_interval(secs => $5)
         )
         INSERT INTO nodes (id, label, version, position, last_seen) VALUES ($1, $2, $3, $4, clock_timestamp())
         ON CONFLICT (id) DO UPDATE SET label = excluded.label, version = excluded.version, position = excluded.position,
             last_seen = excluded.last_seen",
    )
    .bind(&report.id)
    .bind(&report.label)
    .bind(&report.version)
    .bind(to_bigint(report.position))
    .bind(NODE_RETENTION.as_secs_f64())
    .execute(connection)
    .await
    .map(drop)
}

/// Removes the report of a node.
pub(super) async fn remove(connection: &mut PgConnection, id: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM nodes WHERE id = $1").bind(id).execute(connection).await.map(drop)
}

/// Returns the nodes, ordered by label and id.
pub(super) async fn list(connection: &mut PgConnection) -> sqlx::Result<Vec<NodeStatus>> {
    type NodeRow = (String, String, String, i64, i64, f64);
    let rows: Vec<NodeRow> = sqlx::query_as(
        "SELECT id, label, version, position, greatest((SELECT seq FROM head) - position, 0),
             greatest(extract(epoch FROM clock_timestamp() - last_seen)::float8, 0)
         FROM nodes WHERE last_seen >= clock_timestamp() - make_interval(secs => $1)
         ORDER BY label COLLATE \"C\", id COLLATE \"C\"",
    )
    .bind(NODE_RETENTION.as_secs_f64())
    .fetch_all(connection)
    .await?;
    let node = |(id, label, version, position, lag, seconds): NodeRow| NodeStatus {
        id,
        label,
        version,
        position: position.unsigned_abs(),
        lag: lag.unsigned_abs(),
        last_seen_ms: (seconds * 1000.0) as u64,
        alive: seconds < NODE_TIMEOUT.as_secs_f64(),
    };
    Ok(rows.into_iter().map(node).collect())
}
