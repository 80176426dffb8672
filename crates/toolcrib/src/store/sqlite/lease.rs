//! Leases on discoveries, shared by all processes of this machine that have the store open.
//!
//! They go by the time since the machine was started, which counts on while it sleeps and cannot be set; a lease of an
//! earlier boot is void. A row also names the process behind it, so that one that was killed leaves no lease behind.

use std::sync::LazyLock;
use std::time::Duration;

use sqlx::{Connection, SqliteConnection};
use toolcrib_core::SourceId;

use super::content::skip_damaged;
use crate::process::ProcessIdentity;
use crate::store::Lease;

/// No holder asks for longer: what says otherwise is damaged.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(3600);

/// By which process, in which boot and until when a lease is held.
#[derive(Debug)]
struct LeaseRow {
    process: String,
    boot: String,
    until: i64,
}

pub(super) async fn acquire(
    connection: &mut SqliteConnection,
    source: &SourceId,
    holder: &str,
    duration: Duration,
) -> sqlx::Result<Lease> {
    // A waiting process asks again and again. While another holds the lease this only reads, and blocks no writer.
    if let Some(remaining) = remaining_of_other(connection, source, holder).await? {
        return Ok(Lease::HeldFor(remaining));
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Some(remaining) = remaining_of_other(&mut transaction, source, holder).await? {
        transaction.rollback().await?;
        return Ok(Lease::HeldFor(remaining));
    }
    let clock = BootClock::now();
    let until = clock.elapsed.saturating_add(duration.min(MAX_LEASE_DURATION));
    sqlx::query("INSERT OR REPLACE INTO leases (source, holder, process, boot, until) VALUES (?, ?, ?, ?, ?)")
        .bind(source.as_str())
        .bind(holder)
        .bind(ProcessIdentity::current().to_string())
        .bind(clock.boot)
        .bind(i64::try_from(until.as_millis()).unwrap_or(i64::MAX))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(Lease::Granted)
}

pub(super) async fn release(connection: &mut SqliteConnection, source: &SourceId, holder: &str) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("DELETE FROM leases WHERE source = ? AND holder = ?")
        .bind(source.as_str())
        .bind(holder)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

/// The sources that are being discovered, and how long their leases last.
pub(super) async fn active_leases(connection: &mut SqliteConnection) -> sqlx::Result<Vec<(SourceId, Duration)>> {
    let rows: Vec<(String, String, String, i64)> =
        sqlx::query_as("SELECT source, process, boot, until FROM leases").fetch_all(connection).await?;
    let clock = BootClock::now();
    let live = |(source, process, boot, until): (String, String, String, i64)| {
        let remaining = LeaseRow { process, boot, until }.remaining(&clock)?;
        Some((skip_damaged("lease", &source, SourceId::parse(&source))?, remaining))
    };
    Ok(rows.into_iter().filter_map(live).collect())
}

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
    /// How long the lease lasts; nothing when it is over or void.
    fn remaining(&self, clock: &BootClock) -> Option<Duration> {
        let until = Duration::from_millis(u64::try_from(self.until).ok()?);
        let remaining = until.checked_sub(clock.elapsed).filter(|remaining| !remaining.is_zero())?;
        let valid = self.boot == clock.boot && remaining <= MAX_LEASE_DURATION;
        (valid && !self.process.parse().is_ok_and(|process: ProcessIdentity| process.has_ended())).then_some(remaining)
    }
}

/// The time since this machine was started.
struct BootClock {
    /// Tells one boot from another.
    boot: String,
    elapsed: Duration,
}

impl BootClock {
    #[cfg(target_os = "linux")]
    fn now() -> BootClock {
        use rustix::time::{ClockId, clock_gettime};
        // Read once: without a file descriptor every lease would look like one of another boot.
        static BOOT: LazyLock<String> = LazyLock::new(|| {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            boot.trim().to_owned()
        });
        let elapsed = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        BootClock { boot: BOOT.clone(), elapsed }
    }

    /// Elsewhere the wall clock has to do; [`MAX_LEASE`] bounds what setting it can do.
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
