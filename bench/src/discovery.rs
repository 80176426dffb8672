//! Discovery of many slow sources, against the slowest of them alone.

use std::time::Duration;

use toolcrib::refresh::Refreshed;
use toolcrib::{Options, Refresh, Registry};

use crate::Result;
use crate::material::{config, scripted};
use crate::measure::{median, ratio};
use crate::report::{Bar, Report, Row, shown};

const SOURCES: usize = 20;
const DELAY_MS: &str = "500";
const MOST: f64 = 1.5;
const ROUNDS: usize = 5;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut alone = Duration::ZERO;
    let mut together = Vec::new();
    for _ in 0..ROUNDS {
        alone = alone.max(runtime.block_on(discover(1))?);
        together.push(runtime.block_on(discover(SOURCES))?);
    }
    let together = median(together);
    report.row(Row {
        bench: "discovery",
        measured: format!("{SOURCES} sources of {DELAY_MS} ms each, median of {ROUNDS} runs: {}", shown(together)),
        against: format!("one of them alone, slowest of {ROUNDS}: {}", shown(alone)),
        ratio: ratio(together, alone),
        bar: Bar::AtMost(MOST, "the slowest".into()),
    });
    Ok(())
}

/// How long it takes to discover so many sources that were never seen before.
async fn discover(sources: usize) -> Result<Duration> {
    let commands: Vec<_> =
        (0..sources).map(|number| (format!("slow {number}"), scripted(&["--delay-ms", DELAY_MS]))).collect();
    let place = tempfile::tempdir()?;
    let store = toolcrib::store::open(&place.path().to_string_lossy()).await?;
    let registry = Registry::open(config(&commands)?, Options { store: Some(store), ..Options::default() }).await?;
    let start = std::time::Instant::now();
    let outcomes = registry.refresh(Refresh::default()).await;
    let time = start.elapsed();
    registry.close().await;
    match outcomes.iter().find(|outcome| outcome.status != Refreshed::Success) {
        Some(failed) => Err(format!("`{}` was not discovered: {:?}", failed.source, failed.error).into()),
        None => Ok(time),
    }
}
