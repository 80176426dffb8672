//! Discovery of many slow sources, compared with a single one: discoveries must run concurrently.
//!
//! Each server delays its tool list, so the time is spent waiting and not computing; discovered one after the other,
//! the sources would take twenty times as long as one.

use std::time::Duration;

use serde_json::Map;
use toolcrib::refresh::RefreshStatus;
use toolcrib::{Refresh, Registry, RegistryOptions};

use crate::Result;
use crate::measure::{median, ratio};
use crate::recorded_tools::{parse_config, scripted_command};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of sources that are discovered at once.
const SOURCES: usize = 20;
/// Time that each server takes for its tool list.
const DELAY_MS: &str = "500";
/// Maximum time of all sources together, relative to the slowest one alone.
const MAX_RATIO: f64 = 1.5;
/// Number of measurements of each kind.
const ROUNDS: usize = 5;

/// Compares the discovery of all sources with that of one.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut alone = Duration::ZERO;
    let mut together = Vec::new();
    for _ in 0..ROUNDS {
        // The slowest of the single ones: all together cannot be faster than their slowest part.
        alone = alone.max(runtime.block_on(time_discovery(1))?);
        together.push(runtime.block_on(time_discovery(SOURCES))?);
    }
    let together = median(together);
    report.add_row(RatioRow {
        bench: "discovery",
        measured: format!(
            "{SOURCES} sources of {DELAY_MS} ms each, median of {ROUNDS} runs: {}",
            format_duration(together)
        ),
        baseline: format!("one of them alone, slowest of {ROUNDS}: {}", format_duration(alone)),
        ratio: ratio(together, alone),
        threshold: Threshold::AtMost(MAX_RATIO, "the slowest".into()),
    });
    Ok(())
}

/// Measures the discovery of new sources, each time with an empty store and new server processes.
async fn time_discovery(sources: usize) -> Result<Duration> {
    let commands: Vec<_> =
        (0..sources).map(|number| (format!("slow {number}"), scripted_command(&["--delay-ms", DELAY_MS]))).collect();
    let directory = tempfile::tempdir()?;
    let store = toolcrib::store::open(&directory.path().to_string_lossy()).await?;
    let registry = Registry::open(
        parse_config(&commands, &Map::new())?,
        RegistryOptions { store: Some(store), ..RegistryOptions::default() },
    )
    .await?;
    // Opening is not part of the measurement.
    let start = std::time::Instant::now();
    let outcomes = registry.refresh(Refresh::default()).await;
    let time = start.elapsed();
    registry.close().await;
    match outcomes.iter().find(|outcome| outcome.status != RefreshStatus::Success) {
        Some(failed) => Err(format!("`{}` was not discovered: {:?}", failed.source, failed.error).into()),
        None => Ok(time),
    }
}
