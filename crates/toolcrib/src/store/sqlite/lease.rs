//! Leases on discoveries, shared by all processes on this machine that have the store open.
//!
//! A lease is measured by the time since boot, which continues while the machine sleeps and cannot be set; a lease of
//! an earlier boot is void. A row also identifies its process, so that the lease of a killed process ends with it.
//!
//! ```text
//! source  holder                  process (id, start time, namespace)  boot     until (ms since boot)  invalidated
//! git     4711-9f3c0a5be1d27c44   …                                    6f1c…    815000                 0
//! ```

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::SourceId;

use super::process_identity::ProcessIdentity;
use crate::store::Lease;
use crate::store::measurements::HeldLease;
use crate::store::rows::skip_damaged;

/// Upper bound of every lease; a row that says otherwise is damaged. Far more than any real lease, which is seconds; it
/// limits the effect of a wrong row or clock to an hour.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(3600);

/// Columns of a lease: process and boot of its holder, and its end in milliseconds since boot.
#[derive(Debug)]
struct LeaseRow {
    process: String,
    boot: String,
    until: i64,
}

/// Acquires a lease. `HeldFor` is the time left unless the holder renews it.
pub(super) async fn acquire(
    connection: &mut SqliteConnection,
    source: &SourceId,
    holder: &str,
    duration: Duration,
) -> sqlx::Result<Lease> {
    // A waiting process asks repeatedly. While another one holds the lease this only reads, and blocks no writer.
    if let Some(remaining) = remaining_of_other(connection, source, holder).await? {
        return Ok(Lease::HeldFor(remaining));
    }
    // Check again under the write lock: another process may have acquired it in between.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Some(remaining) = remaining_of_other(&mut transaction, source, holder).await? {
        transaction.rollback().await?;
        return Ok(Lease::HeldFor(remaining));
    }
    let clock = BootClock::now();
    sqlx::query("INSERT OR REPLACE INTO leases (source, holder, process, boot, until) VALUES (?, ?, ?, ?, ?)")
        .bind(source.as_str())
        .bind(holder)
        .bind(ProcessIdentity::current().to_string())
        .bind(&clock.boot)
        .bind(clock.end_of(duration))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Lease::Granted)
}

/// Extends the lease of a holder. Returns false if another holder has acquired it since.
pub(super) async fn renew(
    connection: &mut SqliteConnection,
    source: &SourceId,
    holder: &str,
    duration: Duration,
) -> sqlx::Result<bool> {
    let clock = BootClock::now();
    let renewed = sqlx::query("UPDATE leases SET boot = ?, until = ? WHERE source = ? AND holder = ?")
        .bind(&clock.boot)
        .bind(clock.end_of(duration))
        .bind(source.as_str())
        .bind(holder)
        .execute(connection)
        .await?;
    Ok(renewed.rows_affected() > 0)
}

/// Returns the lease of `holder`, unless another holder has acquired it since; also if it has expired.
pub(super) async fn find_held(
    connection: &mut SqliteConnection,
    source: &SourceId,
    holder: &str,
) -> sqlx::Result<Option<HeldLease>> {
    let invalidated: Option<bool> =
        sqlx::query_scalar("SELECT invalidated FROM leases WHERE source = ? AND holder = ?")
            .bind(source.as_str())
            .bind(holder)
            .fetch_optional(connection)
            .await?;
    Ok(invalidated.map(|invalidated| HeldLease { invalidated }))
}

/// Releases the lease of a holder. Does nothing if another holder has taken over.
pub(super) async fn release(connection: &mut SqliteConnection, source: &SourceId, holder: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM leases WHERE source = ? AND holder = ?")
        .bind(source.as_str())
        .bind(holder)
        .execute(connection)
        .await
        .map(drop)
}

/// Returns the sources that are being discovered, with the remaining time of their leases.
pub(super) async fn active_leases(connection: &mut SqliteConnection) -> sqlx::Result<Vec<(SourceId, Duration)>> {
    let rows: Vec<(String, String, String, i64)> =
        sqlx::query_as("SELECT source, process, boot, until FROM leases").fetch_all(connection).await?;
    let clock = BootClock::now();
    let active = |(source, process, boot, until): (String, String, String, i64)| {
        let remaining = LeaseRow { process, boot, until }.remaining(&clock)?;
        Some((skip_damaged("lease", &source, SourceId::parse(&source))?, remaining))
    };
    Ok(rows.into_iter().filter_map(active).collect())
}

/// Returns the remaining time of another holder's lease.
async fn remaining_of_other(
    connection: &mut SqliteConnection,
    source: &SourceId,
    holder: &str,
) -> sqlx::Result<Option<Duration>> {
    let other: Option<(String, String, i64)> =
        sqlx::query_as("SELECT process, boot, until FROM leases WHERE source = ? AND holder <> ?")
            .bind(source.as_str())
            .bind(holder)
            .fetch_optional(connection)
            .await?;
    Ok(other.and_then(|(process, boot, until)| LeaseRow { process, boot, until }.remaining(&BootClock::now())))
}

impl LeaseRow {
    /// Returns the remaining time of the lease; `None` if it is over or void. A process that cannot be identified, e.g.
    /// of another namespace, is not known to have ended; its lease ends by time.
    fn remaining(&self, clock: &BootClock) -> Option<Duration> {
        let until = Duration::from_millis(u64::try_from(self.until).ok()?);
        let remaining = until.checked_sub(clock.elapsed).filter(|remaining| !remaining.is_zero())?;
        let is_valid = self.boot == clock.boot && remaining <= MAX_LEASE_DURATION;
        (is_valid && !self.process.parse().is_ok_and(|process: ProcessIdentity| process.has_ended()))
            .then_some(remaining)
    }
}

/// Time since this machine was started.
struct BootClock {
    /// Identifies the boot.
    boot: String,
    elapsed: Duration,
}

impl BootClock {
    /// Returns the end of a lease that begins now, in milliseconds since boot.
    fn end_of(&self, duration: Duration) -> i64 {
        let until = self.elapsed.saturating_add(duration.min(MAX_LEASE_DURATION));
        i64::try_from(until.as_millis()).unwrap_or(i64::MAX)
    }

    /// `CLOCK_BOOTTIME`, which continues during suspend.
    #[cfg(target_os = "linux")]
    fn now() -> BootClock {
        use rustix::time::{ClockId, clock_gettime};
        // Read once: if reading failed later for lack of file descriptors, every lease would look like one of another
        // boot.
        static BOOT: LazyLock<String> = LazyLock::new(|| {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            boot.trim().to_owned()
        });
        let elapsed = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        BootClock { boot: BOOT.clone(), elapsed }
    }

    /// Other systems use the wall clock; [`MAX_LEASE_DURATION`] bounds the effect of setting it.
    #[cfg(not(target_os = "linux"))]
    fn now() -> BootClock {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        BootClock { boot: String::new(), elapsed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease_row(process: String, boot: &str, until: Duration) -> LeaseRow {
        LeaseRow { process, boot: boot.into(), until: i64::try_from(until.as_millis()).unwrap() }
    }

    #[test]
    fn a_lease_is_void_after_a_restart_of_the_machine_or_when_it_lasts_too_long() {
        let clock = BootClock { boot: "b".into(), elapsed: Duration::from_secs(100) };
        let remaining = |boot, until| {
            lease_row(ProcessIdentity::current().to_string(), boot, Duration::from_secs(until)).remaining(&clock)
        };
        assert_eq!(remaining("b", 115), Some(Duration::from_secs(15)));
        assert_eq!(remaining("b", 100), None);
        assert_eq!(remaining("a", 115), None);
        assert_eq!(remaining("b", 100_000), None);
    }
}
