//! Publishing a catalogue after one of many tools changed, compared with building everything: costs per tool arise for
//! one source only, and costs per source stay small.
//!
//! One registry records the changes and a second one on the same store, the follower, publishes them. So recording and
//! publishing are measured apart, in memory and with SQLite. At the end the follower's catalogue must equal one that is
//! built from scratch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use toolcrib::catalog::{Catalog, CatalogSource, Segment, SourceOptions};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::manifest::PackedManifest;
use toolcrib::registry::RegistryNotice;
use toolcrib::store::{self, MemoryStore, Store};
use toolcrib::{Registry, RegistryOptions};

use crate::Result;
use crate::measure::{best_time, median, ratio};
use crate::recorded_tools::{SourceTools, parse_config, renamed_tools, split_into_sources};
use crate::report::{BenchReport, RatioRow, Threshold, format_duration};

/// Number of tools in the catalogue.
const TOOLS: usize = 10_000;
/// Number of tools of each source.
const TOOLS_PER_SOURCE: usize = 200;
/// Number of changes, each in another source.
const ROUNDS: usize = 25;
/// Maximum cost of one change relative to everything.
const MAX_RATIO: f64 = 0.05;

/// Compares one change with building, opening and recording everything.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let lists = split_into_sources(&renamed_tools(TOOLS)?, TOOLS_PER_SOURCE)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let directory = tempfile::tempdir()?;
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let in_memory = runtime.block_on(measure_publishing(async || Ok(memory.clone()), &lists))?;
    let file = directory.path().to_string_lossy();
    let on_disk = runtime.block_on(measure_publishing(async || Ok(store::open(&file).await?), &lists))?;

    let sources = lists.len();
    let building = best_time(|| build_catalog(&in_memory.stored));
    let label = format!("one of {TOOLS} tools in {sources} sources changed");
    report.add_row(RatioRow {
        bench: "publish",
        measured: format!("{label}, from the journal to the catalogue: {}", format_duration(in_memory.publishing)),
        baseline: format!("building all from stored text: {}", format_duration(building)),
        ratio: ratio(in_memory.publishing, building),
        threshold: Threshold::AtMost(MAX_RATIO, "building all".into()),
    });
    report.add_row(RatioRow {
        bench: "publish",
        measured: format!("the same with SQLite: {}", format_duration(on_disk.publishing)),
        baseline: format!("opening a registry on that file: {}", format_duration(on_disk.opening)),
        ratio: ratio(on_disk.publishing, on_disk.opening),
        threshold: Threshold::AtMost(MAX_RATIO, "building all".into()),
    });
    report.add_row(RatioRow {
        bench: "publish",
        measured: format!(
            "`Registry::record_tools` of that source's {TOOLS_PER_SOURCE} tools with SQLite: {}",
            format_duration(on_disk.recording)
        ),
        baseline: format!("of all {sources} sources: {}", format_duration(on_disk.recording_all)),
        ratio: ratio(on_disk.recording, on_disk.recording_all),
        threshold: Threshold::AtMost(MAX_RATIO, "recording all".into()),
    });
    let segments = in_memory.segments;
    let events = in_memory.events;
    report.add_row(RatioRow {
        bench: "publish",
        measured: format!("segments built: {segments}; events: {events}"),
        baseline: format!("changes: {ROUNDS}"),
        ratio: segments as f64 / ROUNDS as f64,
        threshold: Threshold::Condition(
            segments == ROUNDS && events == ROUNDS,
            "one segment and one event each".into(),
        ),
    });
    Ok(())
}

/// Times with one kind of store.
struct PublishMeasurement {
    /// Normalising, hashing, packing, storing and publishing one list by the registry that receives it.
    recording: Duration,
    /// The same for the first lists of all sources together.
    recording_all: Duration,
    /// Publishing by another registry on the same store, which reads the new record and its manifest.
    publishing: Duration,
    /// Opening a registry on that store, which publishes everything.
    opening: Duration,
    /// Number of segments that the follower registry built.
    segments: usize,
    /// Number of records that it was notified of.
    events: usize,
    stored: Vec<StoredCatalogSource>,
}

/// Measures recording and publishing with one kind of store. `store` opens another handle of the same store.
async fn measure_publishing(
    store: impl AsyncFn() -> Result<Arc<dyn Store>>,
    lists: &[SourceTools],
) -> Result<PublishMeasurement> {
    let registry = open_registry(store().await?, lists).await?;
    let began = Instant::now();
    for SourceTools { id, tools } in lists {
        registry.sources().record_tools(id, tools.clone()).await?;
    }
    let recording_all = began.elapsed();
    // Opened after the first lists were recorded, so that its first catalogue is complete.
    let follower = open_registry(store().await?, lists).await?;
    let mut notices = follower.subscribe();
    let mut recording = Vec::new();
    let mut publishing = Vec::new();
    let mut opening = Vec::new();
    let mut events = 0;
    let mut segments = 0;
    for (round, SourceTools { id, tools }) in lists.iter().cycle().take(ROUNDS).enumerate() {
        let changed = change_one_tool(tools, round)?;
        let began = Instant::now();
        registry.sources().record_tools(id, changed).await?;
        recording.push(began.elapsed());

        // The follower has not seen the change yet.
        let before = follower.unrestricted_catalog();
        let command = Command::Enable(id.clone());
        let began = Instant::now();
        // The source is enabled already, so the command only catches up with the journal.
        follower.execute(command, Actor::new("bench")).await?;
        publishing.push(began.elapsed());
        let after = follower.unrestricted_catalog();
        let parts = before.sources().zip(after.sources());
        // A segment that was not rebuilt is shared between both catalogues.
        segments += parts.filter(|(old, new)| !Arc::ptr_eq(&old.segment, &new.segment)).count();
        while let Ok(notice) = notices.try_recv() {
            events += usize::from(matches!(notice, RegistryNotice::RecordAppended(_)));
        }

        let store = store().await?;
        let began = Instant::now();
        let third = open_registry(store, lists).await?;
        opening.push(began.elapsed());
        third.close().await;
    }
    let catalog = follower.unrestricted_catalog();
    let stored: Vec<StoredCatalogSource> =
        catalog.sources().map(StoredCatalogSource::from_catalog_source).collect::<Result<_>>()?;
    // Fast but wrong would be worthless: incremental publishing must lead to the same catalogue.
    if catalog.hash() != build_catalog(&stored)?.hash() {
        return Err("the published catalogue differs from one built from scratch".into());
    }
    follower.close().await;
    registry.close().await;
    Ok(PublishMeasurement {
        recording: median(recording),
        recording_all,
        publishing: median(publishing),
        opening: median(opening),
        segments,
        events,
        stored,
    })
}

/// Opens a registry that does not follow the journal by itself, so that publishing happens only when measured. The
/// commands of its sources are never run.
async fn open_registry(store: Arc<dyn Store>, lists: &[SourceTools]) -> Result<Registry> {
    let commands: Vec<_> = lists.iter().map(|list| (list.id.to_string(), vec!["never-started".to_owned()])).collect();
    let options = RegistryOptions { store: Some(store), follow_writes: false, ..RegistryOptions::default() };
    Ok(Registry::open(parse_config(&commands, &Map::new())?, options).await?)
}

/// Changes the description of the first tool.
fn change_one_tool(tools: &[Box<RawValue>], round: usize) -> Result<Vec<Box<RawValue>>> {
    let mut tools = tools.to_vec();
    let tool = tools.first_mut().ok_or("a source has no tools")?;
    let mut changed: Value = serde_json::from_str(tool.get())?;
    changed["description"] = json!(format!("It changed {round} times"));
    *tool = to_raw_value(&changed)?;
    Ok(tools)
}

/// Stored manifest of a source, with its state and options.
struct StoredCatalogSource {
    fingerprint: Fingerprint,
    index: String,
    body: String,
    catalog_source: Arc<CatalogSource>,
}

impl StoredCatalogSource {
    /// Takes the stored form of a source out of a catalogue.
    fn from_catalog_source(part: &Arc<CatalogSource>) -> Result<StoredCatalogSource> {
        let packed = part.segment.packed();
        let index = packed.index_json()?;
        let body = packed.body.to_string();
        Ok(StoredCatalogSource { fingerprint: packed.fingerprint, index, body, catalog_source: part.clone() })
    }
}

/// Builds the whole catalogue from stored manifests.
fn build_catalog(stored: &[StoredCatalogSource]) -> Result<Catalog> {
    let parts = stored.iter().map(|StoredCatalogSource { fingerprint, index, body, catalog_source: part }| {
        let packed = PackedManifest::read(*fingerprint, index, body.clone())?;
        let (state, options): (_, SourceOptions) = (part.state.clone(), part.options.clone());
        Ok(Arc::new(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), state, options)))
    });
    Ok(Catalog::build(1, parts.collect::<Result<_>>()?))
}
