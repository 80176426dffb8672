//! Leases on discoveries, shared by all nodes. They end by the clock of the database, which no node can set, and not by
//! the locks of its sessions, which a connection pooler does not keep.
//!
//! `clock_timestamp()` and not `now()`: a transaction may have waited for the lock of the head since it began.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use toolcrib_core::SourceId;

use super::journal::lock_head;
use crate::store::Lease;
use crate::store::rows::skip_damaged;

/// Acquires a lease. `HeldFor` is the time left unless the holder renews it.
pub(super) async fn acquire(
    connection: &mut PgConnection,
    source: &SourceId,
    holder: &str,
    duration: Duration,
) -> sqlx::Result<Lease> {
    // A waiting node asks repeatedly. While another one holds the lease this only reads, and blocks no writer.
    if let Some(remaining) = remaining_of_other(connection, source, holder).await? {
        return Ok(Lease::HeldFor(remaining));
    }
    // Check again under the lock: another node may have acquired it in between.
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    if let Some(remaining) = remaining_of_other(&mut transaction, source, holder).await? {
        transaction.rollback().await?;
        return Ok(Lease::HeldFor(remaining));
    }
    // And in the statement: a renewal does not lock the head.
    let granted = sqlx::query(
        "INSERT INTO leases AS stored (source, holder, until)
         VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
         ON CONFLICT (source) DO UPDATE SET holder = excluded.holder, until = excluded.until, invalidated = false
         WHERE stored.holder = excluded.holder OR stored.until <= clock_timestamp()",
    )
    .bind(source.as_str())
    .bind(holder)
    .bind(duration.as_secs_f64())
    .execute(&mut *transaction)
    .await?;
    if granted.rows_affected() == 0 {
        let remaining = remaining_of_other(&mut transaction, source, holder).await?;
        transaction.rollback().await?;
        return Ok(Lease::HeldFor(remaining.unwrap_or_default()));
    }
    transaction.commit().await?;
    Ok(Lease::Granted)
}

/// Extends the lease of a holder. Returns false if another holder has acquired it since. Needs no lock of the head:
/// only the holder itself changes its row in this way.
pub(super) async fn renew(
    connection: &mut PgConnection,
    source: &SourceId,
    holder: &str,
    duration: Duration,
) -> sqlx::Result<bool> {
    let renewed = sqlx::query(
        "UPDATE leases SET until = clock_timestamp() + make_interval(secs => $3) WHERE source = $1 AND holder = $2",
    )
    .bind(source.as_str())
    .bind(holder)
    .bind(duration.as_secs_f64())
    .execute(connection)
    .await?;
    Ok(renewed.rows_affected() > 0)
}

/// Releases the lease of a holder. Does nothing if another holder has taken over.
pub(super) async fn release(connection: &mut PgConnection, source: &SourceId, holder: &str) -> sqlx::Result<()> {
    let mut transaction = connection.begin().await?;
    lock_head(&mut transaction).await?;
    sqlx::query("DELETE FROM leases WHERE source = $1 AND holder = $2")
        .bind(source.as_str())
        .bind(holder)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

/// Returns the sources that are being discovered, with the remaining time of their leases.
pub(super) async fn active_leases(connection: &mut PgConnection) -> sqlx::Result<Vec<(SourceId, Duration)>> {
    let rows: Vec<(String, f64)> = sqlx::query_as(
        "SELECT source, extract(epoch FROM until - clock_timestamp())::float8 FROM leases WHERE until > clock_timestamp()",
    )
    .fetch_all(connection)
    .await?;
    let active = |(source, remaining): (String, f64)| {
        Some((skip_damaged("lease", &source, SourceId::parse(&source))?, seconds(remaining)?))
    };
    Ok(rows.into_iter().filter_map(active).collect())
}

/// Returns the remaining time of another holder's lease.
async fn remaining_of_other(
    connection: &mut PgConnection,
    source: &SourceId,
    holder: &str,
) -> sqlx::Result<Option<Duration>> {
    let remaining: Option<f64> = sqlx::query_scalar(
        "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM leases
         WHERE source = $1 AND holder <> $2 AND until > clock_timestamp()",
    )
    .bind(source.as_str())
    .bind(holder)
    .fetch_optional(connection)
    .await?;
    Ok(remaining.and_then(seconds))
}

/// Converts seconds; `None` if the time is over.
fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}
