//! Publishing after one tool of many changed, against building everything: what costs by the tool is paid for one
//! source, what costs by the source stays small.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::core::catalog::{Catalog, Manner, Part, Segment};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::manifest::Packed;
use toolcrib::registry::Notice;
use toolcrib::store::{self, MemoryStore, Store};
use toolcrib::{Options, Registry};

use crate::Result;
use crate::material::{Listed, config, cut, tools};
use crate::measure::{best, median, ratio};
use crate::report::{Bar, Report, Row, shown};

const TOOLS: usize = 10_000;
const EACH: usize = 200;
const ROUNDS: usize = 25;
const MOST: f64 = 0.05;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let lists = cut(&tools(TOOLS)?, EACH)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let place = tempfile::tempdir()?;
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let in_memory = runtime.block_on(measure(async || Ok(memory.clone()), &lists))?;
    let file = place.path().to_string_lossy();
    let on_disk = runtime.block_on(measure(async || Ok(store::open(&file).await?), &lists))?;

    let sources = lists.len();
    let building = best(|| build(&in_memory.stored));
    let what = format!("one of {TOOLS} tools in {sources} sources changed");
    report.row(Row {
        bench: "publish",
        measured: format!("{what}, from the journal to the catalogue: {}", shown(in_memory.publishing)),
        against: format!("building all from stored text: {}", shown(building)),
        ratio: ratio(in_memory.publishing, building),
        bar: Bar::AtMost(MOST, "building all".into()),
    });
    report.row(Row {
        bench: "publish",
        measured: format!("the same with SQLite: {}", shown(on_disk.publishing)),
        against: format!("opening a registry on that file: {}", shown(on_disk.opening)),
        ratio: ratio(on_disk.publishing, on_disk.opening),
        bar: Bar::AtMost(MOST, "building all".into()),
    });
    report.row(Row {
        bench: "publish",
        measured: format!("`Registry::record` of that source's {EACH} tools with SQLite: {}", shown(on_disk.recording)),
        against: format!("of all {sources} sources: {}", shown(on_disk.recording_all)),
        ratio: ratio(on_disk.recording, on_disk.recording_all),
        bar: Bar::AtMost(MOST, "recording all".into()),
    });
    let (segments, events) = (in_memory.segments, in_memory.events);
    report.row(Row {
        bench: "publish",
        measured: format!("segments built: {segments}; events: {events}"),
        against: format!("changes: {ROUNDS}"),
        ratio: segments as f64 / ROUNDS as f64,
        bar: Bar::Holds(segments == ROUNDS && events == ROUNDS, "one segment and one event each".into()),
    });
    Ok(())
}

struct Measured {
    /// A list, normalised, hashed, packed, stored and published by the registry that was given it.
    recording: Duration,
    /// The same for the first list of every source.
    recording_all: Duration,
    /// Published by another registry on the same store, which only reads the journal and what it names.
    publishing: Duration,
    /// A registry opened on that store, which publishes everything.
    opening: Duration,
    segments: usize,
    events: usize,
    stored: Vec<Stored>,
}

async fn measure(store: impl AsyncFn() -> Result<Arc<dyn Store>>, lists: &[Listed]) -> Result<Measured> {
    let registry = open(store().await?, lists).await?;
    let began = Instant::now();
    for Listed { id, tools } in lists {
        registry.record(id, tools.clone()).await?;
    }
    let recording_all = began.elapsed();
    let other = open(store().await?, lists).await?;
    let mut notices = other.subscribe();
    let (mut recording, mut publishing, mut opening) = (Vec::new(), Vec::new(), Vec::new());
    let (mut events, mut segments) = (0, 0);
    for (round, Listed { id, tools }) in lists.iter().cycle().take(ROUNDS).enumerate() {
        let changed = with_one_changed(tools, round)?;
        let began = Instant::now();
        registry.record(id, changed).await?;
        recording.push(began.elapsed());

        let (before, wish) = (other.catalog(), Command::Enable(id.clone()));
        let began = Instant::now();
        // It is enabled already: all that is done is to catch up.
        other.execute(wish, Actor::new("bench")).await?;
        publishing.push(began.elapsed());
        let after = other.catalog();
        let parts = before.parts().zip(after.parts());
        segments += parts.filter(|(one, two)| !Arc::ptr_eq(&one.segment, &two.segment)).count();
        while let Ok(notice) = notices.try_recv() {
            events += usize::from(matches!(notice, Notice::Recorded(_)));
        }

        let store = store().await?;
        let began = Instant::now();
        let third = open(store, lists).await?;
        opening.push(began.elapsed());
        third.close().await;
    }
    let catalog = other.catalog();
    let stored: Vec<Stored> = catalog.parts().map(Stored::of).collect::<Result<_>>()?;
    if catalog.hash() != build(&stored)?.hash() {
        return Err("the catalogue that was published is not the one that is built".into());
    }
    other.close().await;
    registry.close().await;
    Ok(Measured {
        recording: median(recording),
        recording_all,
        publishing: median(publishing),
        opening: median(opening),
        segments,
        events,
        stored,
    })
}

async fn open(store: Arc<dyn Store>, lists: &[Listed]) -> Result<Registry> {
    let commands: Vec<_> = lists.iter().map(|list| (list.id.to_string(), vec!["never-started".to_owned()])).collect();
    let options = Options { store: Some(store), follow: false, ..Options::default() };
    Ok(Registry::open(config(&commands)?, options).await?)
}

fn with_one_changed(tools: &[Box<RawValue>], round: usize) -> Result<Vec<Box<RawValue>>> {
    let mut tools = tools.to_vec();
    let tool = tools.first_mut().ok_or("a source without tools")?;
    let mut changed: Value = serde_json::from_str(tool.get())?;
    changed["description"] = json!(format!("It changed {round} times"));
    *tool = to_raw_value(&changed)?;
    Ok(tools)
}

/// A manifest as it lies in a store, and what else its part is made of.
struct Stored {
    fingerprint: Fingerprint,
    index: String,
    body: String,
    part: Arc<Part>,
}

impl Stored {
    fn of(part: &Arc<Part>) -> Result<Stored> {
        let packed = part.segment.packed();
        let (index, body) = (packed.index()?, packed.body.to_string());
        Ok(Stored { fingerprint: packed.fingerprint, index, body, part: part.clone() })
    }
}

fn build(stored: &[Stored]) -> Result<Catalog> {
    let parts = stored.iter().map(|Stored { fingerprint, index, body, part }| {
        let packed = Packed::read(*fingerprint, index, body.clone())?;
        let (state, manner): (_, Manner) = (part.state.clone(), part.manner.clone());
        Ok(Arc::new(Part::new(Arc::new(Segment::prefixed(Arc::new(packed))), state, manner)))
    });
    Ok(Catalog::build(1, parts.collect::<Result<_>>()?))
}
