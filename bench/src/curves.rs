//! How costs grow from 100 to 50,000 tools: linear or better, and a lookup hardly at all.
//!
//! Every size works through the same 50,000 tools, as many lists of 100 or as one of 50,000, and keeps what it makes:
//! so caches, allocator and page faults weigh the same on all sizes, and what is left is growth.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::Caller;
use toolcrib::core::catalog::{Catalog, Manner, Part, Segment, View};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Origin, SourceState, ToolState};
use toolcrib::core::manifest::{Bounds, Delta, Manifest, Packed};
use toolcrib::core::render::Format;

use crate::Result;
use crate::material::{cut, source_id, tools};
use crate::measure::{best, exponent, timed};
use crate::report::{Curve, Report};

const SIZES: [usize; 4] = [100, 1_000, 10_000, 50_000];
/// Where growth is judged from: below, the fixed costs of an operation hide it.
const JUDGED_FROM: usize = 1_000;
/// A larger catalogue has more sources, not only larger ones.
const EACH: usize = 200;
/// Every so many names are looked up.
const LOOKED_UP: usize = 25;
const SLIPS: usize = 20;
const READS: usize = 5;
/// Linear, and a little for caches that a larger list no longer fits.
const LINEAR: f64 = 1.15;
const HARDLY: f64 = 0.3;

/// One operation at one size.
struct Point {
    name: &'static str,
    bar: f64,
    /// Its growth is judged.
    time: Duration,
    /// This is shown: per tool, or per lookup.
    each: Duration,
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let offered = tools(SIZES.into_iter().max().unwrap_or_default())?;
    let mut curves: Vec<Vec<(usize, Point)>> = Vec::new();
    for size in SIZES {
        for (row, point) in points(&offered, size)?.into_iter().enumerate() {
            match curves.get_mut(row) {
                Some(curve) => curve.push((size, point)),
                None => curves.push(vec![(size, point)]),
            }
        }
    }
    for curve in curves {
        let from = curve.iter().find(|(size, _)| *size == JUDGED_FROM);
        if let (Some((small, fast)), Some((large, slow))) = (from, curve.last()) {
            report.curve(Curve {
                name: slow.name,
                each: curve.iter().map(|(size, point)| (*size, point.each)).collect(),
                exponent: exponent((*small, fast.time), (*large, slow.time)),
                bar: slow.bar,
            });
        }
    }
    Ok(())
}

/// Every operation on lists of one size.
fn points(offered: &[Box<RawValue>], size: usize) -> Result<Vec<Point>> {
    let lists: Vec<&[Box<RawValue>]> = offered.chunks(size).collect();
    let per_tool = |name, all: Duration| {
        let time = all.div_f64(lists.len() as f64);
        Point { name, bar: LINEAR, time, each: time.div_f64(size as f64) }
    };
    let mut points = Vec::new();

    // One source for each list.
    let pack =
        |list: &[Box<RawValue>]| Ok(Packed::new(&Manifest::new(&source_id(0)?, list, Vec::new(), &Bounds::default()))?);
    let pack_all = || lists.iter().map(|list| Ok(Arc::new(pack(list)?))).collect::<Result<Vec<Arc<Packed>>>>();
    points.push(per_tool("manifest: normalise, hash, pack", best(pack_all)));
    let packed = pack_all()?;
    let stored: Vec<(String, String)> =
        packed.iter().map(|packed| Ok((packed.index()?, packed.body.to_string()))).collect::<Result<_>>()?;
    let mut reads = Vec::new();
    for _ in 0..READS {
        let stored = stored.clone();
        let read = || {
            stored
                .into_iter()
                .zip(&packed)
                .map(|((index, body), packed)| Packed::read(packed.fingerprint, &index, body))
        };
        let (time, _kept) = timed(|| read().collect::<Vec<_>>());
        reads.push(time);
    }
    points.push(per_tool("manifest: read", reads.into_iter().min().unwrap_or_default()));
    drop(stored);
    let segments = || packed.iter().map(|packed| Segment::prefixed(packed.clone())).collect::<Vec<_>>();
    points.push(per_tool("segment: build", best(segments)));
    let changed: Vec<Packed> = lists.iter().map(|list| pack(&with_one_changed(list)?)).collect::<Result<_>>()?;
    let deltas = || packed.iter().zip(&changed).map(|(old, new)| Delta::between(Some(old), new)).collect::<Vec<_>>();
    points.push(per_tool("delta: one tool changed", best(deltas)));
    drop((packed, changed));

    // One catalogue for each list, of as many sources as it takes.
    let parts: Vec<Vec<Arc<Part>>> = lists.iter().map(|list| parts(list)).collect::<Result<_>>()?;
    let build = || parts.iter().map(|parts| Catalog::build(1, parts.clone())).collect::<Vec<_>>();
    points.push(per_tool("catalogue: build from segments", best(build)));
    let caller = Caller { name: "bench".into() };
    let views: Vec<View> =
        build().into_iter().map(|catalog| View { catalog: Arc::new(catalog), caller: caller.clone() }).collect();
    let render = || views.iter().map(|view| view.render(Format::Json)).collect::<Vec<_>>();
    points.push(per_tool("render: json", best(render)));

    let lookup = |name, bar, times: usize, all: Duration| {
        let time = all.div_f64(times as f64);
        Point { name, bar, time, each: time }
    };
    let mut wanted: Vec<(&Catalog, String)> = Vec::new();
    for view in &views {
        let names = view.catalog.tools().step_by(LOOKED_UP).map(|tool| tool.name().to_string());
        wanted.extend(names.map(|name| (&*view.catalog, name)));
    }
    let found = || wanted.iter().filter(|(catalog, name)| catalog.find(name).is_ok()).count();
    if found() != wanted.len() {
        return Err("a tool was not found by its name".into());
    }
    points.push(lookup("find: by name", HARDLY, wanted.len(), best(found)));
    // A few are enough: each compares with every name.
    let slips: Vec<(&Catalog, String)> =
        wanted.iter().step_by(wanted.len() / SLIPS).map(|(catalog, name)| (*catalog, format!("{name}x"))).collect();
    let missed = || slips.iter().filter(|(catalog, name)| catalog.find(name).is_err()).count();
    if missed() != slips.len() {
        return Err("a name was found that nobody has".into());
    }
    points.push(lookup("find: unknown, with near names", LINEAR, slips.len(), best(missed)));
    Ok(points)
}

fn parts(list: &[Box<RawValue>]) -> Result<Vec<Arc<Part>>> {
    let parts = cut(list, EACH)?.into_iter().map(|list| {
        let packed = Packed::new(&Manifest::new(&list.id, &list.tools, Vec::new(), &Bounds::default()))?;
        let state = Arc::new(state(&packed));
        let manner = Manner { kind: "mcp".into(), ..Manner::default() };
        Ok(Arc::new(Part::new(Arc::new(Segment::prefixed(Arc::new(packed))), state, manner)))
    });
    parts.collect()
}

fn with_one_changed(offered: &[Box<RawValue>]) -> Result<Vec<Box<RawValue>>> {
    let mut offered = offered.to_vec();
    let middle = offered.len() / 2;
    let mut changed: Value = serde_json::from_str(offered[middle].get())?;
    changed["description"] = json!("It changed");
    offered[middle] = to_raw_value(&changed)?;
    Ok(offered)
}

/// The source as the journal tells of it.
fn state(packed: &Packed) -> SourceState {
    SourceState {
        kind: "mcp".into(),
        origin: Origin::Config,
        definition: Fingerprint::of(packed.source.as_str()),
        declared_enabled: None,
        enabled: true,
        removed: false,
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), ToolState::default())).collect(),
    }
}
