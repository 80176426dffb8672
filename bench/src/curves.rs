//! How costs grow from 100 to 50,000 tools: linear or better, and a lookup hardly at all.

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
use crate::measure::{best, exponent};
use crate::report::{Curve, Report};

const SIZES: [usize; 4] = [100, 1_000, 10_000, 50_000];
/// Where growth is judged from: below, the fixed costs of an operation hide it.
const JUDGED_FROM: usize = 1_000;
/// A larger catalogue has more sources, not only larger ones.
const EACH: usize = 200;
const LOOKUPS: usize = 100;
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
        for (row, point) in points(offered.get(..size).unwrap_or(&offered))?.into_iter().enumerate() {
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

fn points(offered: &[Box<RawValue>]) -> Result<Vec<Point>> {
    let size = offered.len();
    let bounds = Bounds::default();
    let per_tool = |name, time: Duration| Point { name, bar: LINEAR, time, each: time.div_f64(size as f64) };
    let mut points = Vec::new();

    // One source with all of them.
    let id = source_id(0)?;
    let pack = |offered: &[Box<RawValue>]| Packed::new(&Manifest::new(&id, offered, Vec::new(), &bounds));
    points.push(per_tool("manifest: normalise, hash, pack", best(|| pack(offered))));
    let packed = Arc::new(pack(offered)?);
    let (index, body) = (packed.index()?, packed.body.to_string());
    points.push(per_tool("manifest: read", best(|| Packed::read(packed.fingerprint, &index, body.clone()))));
    points.push(per_tool("segment: build", best(|| Segment::prefixed(packed.clone()))));
    let changed = pack(&with_one_changed(offered)?)?;
    points.push(per_tool("delta: one tool changed", best(|| Delta::between(Some(&packed), &changed))));
    drop((packed, changed, index, body));

    // As many sources as it takes.
    let mut parts = Vec::new();
    for list in cut(offered, EACH)? {
        let packed = Packed::new(&Manifest::new(&list.id, &list.tools, Vec::new(), &bounds))?;
        let state = Arc::new(state(&packed));
        let manner = Manner { kind: "mcp".into(), ..Manner::default() };
        parts.push(Arc::new(Part::new(Arc::new(Segment::prefixed(Arc::new(packed))), state, manner)));
    }
    points.push(per_tool("catalogue: build from segments", best(|| Catalog::build(1, parts.clone()))));
    let catalog = Arc::new(Catalog::build(1, parts));
    let view = View { catalog: catalog.clone(), caller: Caller { name: "bench".into() } };
    points.push(per_tool("render: json", best(|| view.render(Format::Json))));

    let per_lookup = |name, bar, times: usize, total: Duration| {
        let time = total.div_f64(times as f64);
        Point { name, bar, time, each: time }
    };
    let stride = size / LOOKUPS;
    let names: Vec<String> = catalog.tools().step_by(stride).map(|tool| tool.name().to_string()).collect();
    let found = || names.iter().filter(|name| catalog.find(name).is_ok()).count();
    if found() != names.len() {
        return Err("a tool was not found by its name".into());
    }
    points.push(per_lookup("find: by name", HARDLY, names.len(), best(found)));
    // Three are enough: each compares with every name.
    let slips: Vec<String> = names.iter().take(3).map(|name| format!("{name}x")).collect();
    let missed = || slips.iter().filter(|name| catalog.find(name).is_err()).count();
    points.push(per_lookup("find: unknown, with near names", LINEAR, slips.len(), best(missed)));
    Ok(points)
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
        declared_enabled: true,
        enabled: true,
        removed: false,
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), ToolState::default())).collect(),
    }
}
