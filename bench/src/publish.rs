//! Publishing after one tool of many changed, against building everything: what costs by the tool is paid for one
//! source, what costs by the source stays small.

use std::sync::Arc;
use std::time::Instant;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::core::catalog::{Catalog, Manner, Part, Segment};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::manifest::Packed;
use toolcrib::registry::Notice;
use toolcrib::store::{self, Store};
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
    tokio::runtime::Runtime::new()?.block_on(measure(&lists, report))
}

async fn measure(lists: &[Listed], report: &mut Report) -> Result<()> {
    let sources = lists.len();
    let place = tempfile::tempdir()?;
    let store = store::open(&place.path().to_string_lossy()).await?;
    let registry = open(store.clone(), lists).await?;
    let began = Instant::now();
    for Listed { id, tools } in lists {
        registry.record(id, tools.clone()).await?;
    }
    let recording_all = began.elapsed();
    // Another registry on the same store has to publish what the first one records.
    let other = open(store.clone(), lists).await?;
    let mut notices = other.subscribe();
    let (mut recording, mut publishing, mut opening) = (Vec::new(), Vec::new(), Vec::new());
    let (mut events, mut segments) = (0, 0);
    for round in 0..ROUNDS {
        let Listed { id, tools } = &lists[round % sources];
        let changed = with_one_changed(tools, round)?;
        let began = Instant::now();
        registry.record(id, changed).await?;
        recording.push(began.elapsed());

        let before = other.catalog();
        let wish = Command::Enable(id.clone());
        let began = Instant::now();
        // It is enabled already: all that is done is to catch up.
        other.execute(wish, Actor::new("bench")).await?;
        publishing.push(began.elapsed());
        let after = other.catalog();
        segments +=
            before.parts().zip(after.parts()).filter(|(one, two)| !Arc::ptr_eq(&one.segment, &two.segment)).count();
        while let Ok(notice) = notices.try_recv() {
            events += usize::from(matches!(notice, Notice::Recorded(_)));
        }

        let began = Instant::now();
        let third = open(store.clone(), lists).await?;
        opening.push(began.elapsed());
        drop(third);
    }
    let stored: Vec<Stored> = other.catalog().parts().map(Stored::of).collect::<Result<_>>()?;
    let building = best(|| build(&stored));
    if other.catalog().hash() != build(&stored)?.hash() || events != ROUNDS {
        return Err(format!("{events} events in {ROUNDS} rounds, or the catalogue was built otherwise").into());
    }
    let (recording, publishing, opening) = (median(recording), median(publishing), median(opening));
    let what = format!("one of {TOOLS} tools in {sources} sources changed");
    report.row(Row {
        bench: "publish",
        measured: format!("{what}, from the journal to the catalogue: {}", shown(publishing)),
        against: format!("building all of it from stored manifests, nothing else: {}", shown(building)),
        ratio: ratio(publishing, building),
        bar: Bar::AtMost(MOST, "building all".into()),
    });
    report.row(Row {
        bench: "publish",
        measured: format!("the same: {}", shown(publishing)),
        against: format!("opening a registry on that store: {}", shown(opening)),
        ratio: ratio(publishing, opening),
        bar: Bar::AtMost(MOST, "building all".into()),
    });
    report.row(Row {
        bench: "publish",
        measured: format!(
            "the source's list of {EACH}, normalised, hashed, stored and published: {}",
            shown(recording)
        ),
        against: format!("the lists of all {sources} sources: {}", shown(recording_all)),
        ratio: ratio(recording, recording_all),
        bar: Bar::AtMost(MOST, "recording all".into()),
    });
    report.row(Row {
        bench: "publish",
        measured: format!("segments built in {ROUNDS} changes: {segments}; events: {events}"),
        against: format!("changes: {ROUNDS}"),
        ratio: segments as f64 / ROUNDS as f64,
        bar: Bar::Holds(segments == ROUNDS, "one segment and one event each".into()),
    });
    other.close().await;
    Ok(())
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
