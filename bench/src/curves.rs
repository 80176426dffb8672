//! Growth of costs from 100 to 50,000 tools: at most linear, and almost constant for a lookup.
//!
//! Every size processes the same 50,000 tools, as 500 lists of 100 or as one list of 50,000, and keeps the results. So
//! caches, allocator and page faults have the same effect on all sizes, and only growth remains.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::catalog::render::Format;
use toolcrib::catalog::{Catalog, CatalogSource, Segment, SourceOptions, View};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Origin, SourceState, ToolState};
use toolcrib::core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib::diff::compare::compare_manifests;

use crate::Result;
use crate::measure::{best_time, growth_exponent, measure_time};
use crate::recorded_tools::{renamed_tools, source_id, split_into_sources};
use crate::report::{BenchReport, GrowthCurve};

/// Numbers of tools; the largest is also the number of tools that each measurement processes.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 50_000];
/// Smallest size for the exponent: below it, fixed costs of an operation hide the growth.
const MIN_JUDGED_SIZE: usize = 1_000;
/// Number of tools per source, so that a larger catalogue has more sources and not larger ones.
const TOOLS_PER_SOURCE: usize = 200;
/// Every n-th name is looked up.
const LOOKUP_STEP: usize = 25;
/// Number of lookups of unknown names.
const MISSPELLED_LOOKUPS: usize = 20;
/// Number of repetitions of the read benchmark, of which the fastest counts.
const READ_ROUNDS: usize = 5;
/// Threshold for linear growth, with a margin since larger lists exceed the CPU caches.
const MAX_LINEAR_EXPONENT: f64 = 1.15;
/// Threshold for lookups, which should hardly depend on the size: 0.3 allows a factor of about 3 from 1,000 to 50,000
/// tools.
const MAX_LOOKUP_EXPONENT: f64 = 0.3;

/// Measurement of one operation at one size.
struct CurvePoint {
    name: &'static str,
    max_exponent: f64,
    /// Time of the whole operation, from which the exponent is computed.
    time: Duration,
    /// Time per tool or per lookup, for the report.
    per_item: Duration,
}

/// Measures all operations at all sizes and adds one curve per operation.
pub(crate) fn run(report: &mut BenchReport) -> Result<()> {
    let offered = renamed_tools(SIZES.into_iter().max().unwrap_or_default())?;
    let mut curves: Vec<Vec<(usize, CurvePoint)>> = Vec::new();
    for size in SIZES {
        for (row, point) in measure_points(&offered, size)?.into_iter().enumerate() {
            match curves.get_mut(row) {
                Some(curve) => curve.push((size, point)),
                None => curves.push(vec![(size, point)]),
            }
        }
    }
    for curve in curves {
        let from = curve.iter().find(|(size, _)| *size == MIN_JUDGED_SIZE);
        if let (Some((small, fast)), Some((large, slow))) = (from, curve.last()) {
            report.add_curve(GrowthCurve {
                name: slow.name,
                per_item: curve.iter().map(|(size, point)| (*size, point.per_item)).collect(),
                exponent: growth_exponent((*small, fast.time), (*large, slow.time)),
                max_exponent: slow.max_exponent,
            });
        }
    }
    Ok(())
}

/// Measures every operation on lists of one size.
fn measure_points(offered: &[Box<RawValue>], size: usize) -> Result<Vec<CurvePoint>> {
    let lists: Vec<&[Box<RawValue>]> = offered.chunks(size).collect();
    let per_tool = |name, all: Duration| {
        let time = all.div_f64(lists.len() as f64);
        CurvePoint { name, max_exponent: MAX_LINEAR_EXPONENT, time, per_item: time.div_f64(size as f64) }
    };
    let mut points = Vec::new();

    // First part: each list is one source.
    let pack = |list: &[Box<RawValue>]| {
        Ok(PackedManifest::new(&Manifest::new(&source_id(0)?, list, Vec::new(), &ToolLimits::default()))?)
    };
    let pack_all = || lists.iter().map(|list| Ok(Arc::new(pack(list)?))).collect::<Result<Vec<Arc<PackedManifest>>>>();
    points.push(per_tool("manifest: normalise, hash, pack", best_time(pack_all)));
    let packed = pack_all()?;
    let stored: Vec<(String, String)> =
        packed.iter().map(|packed| Ok((packed.index_json()?, packed.body.to_string()))).collect::<Result<_>>()?;
    let mut reads = Vec::new();
    for _ in 0..READ_ROUNDS {
        let stored = stored.clone();
        let read = || {
            stored
                .into_iter()
                .zip(&packed)
                .map(|((index, body), packed)| PackedManifest::read(packed.fingerprint, &index, body))
        };
        let (time, _manifests) = measure_time(|| read().collect::<Vec<_>>());
        reads.push(time);
    }
    points.push(per_tool("manifest: read", reads.into_iter().min().unwrap_or_default()));
    drop(stored);
    let segments = || packed.iter().map(|packed| Segment::with_prefix(packed.clone())).collect::<Vec<_>>();
    points.push(per_tool("segment: build", best_time(segments)));
    let changed: Vec<PackedManifest> = lists.iter().map(|list| pack(&change_one_tool(list)?)).collect::<Result<_>>()?;
    let deltas = || packed.iter().zip(&changed).map(|(old, new)| compare_manifests(Some(old), new)).collect::<Vec<_>>();
    points.push(per_tool("delta: one tool changed", best_time(deltas)));
    drop((packed, changed));

    // Second part: each list is one catalogue of many sources.
    let parts: Vec<Vec<Arc<CatalogSource>>> = lists.iter().map(|list| build_sources(list)).collect::<Result<_>>()?;
    let build = || parts.iter().map(|parts| Catalog::build(1, parts.clone())).collect::<Vec<_>>();
    points.push(per_tool("catalogue: build from segments", best_time(build)));
    let views: Vec<View> = build().into_iter().map(|catalog| View::full(Arc::new(catalog))).collect();
    let render = || views.iter().map(|view| view.render(Format::Json)).collect::<Vec<_>>();
    points.push(per_tool("render: json", best_time(render)));

    let lookup = |name, max_exponent, times: usize, all: Duration| {
        let time = all.div_f64(times as f64);
        CurvePoint { name, max_exponent, time, per_item: time }
    };
    let mut lookups: Vec<(&View, String)> = Vec::new();
    for view in &views {
        let names = view.tools().step_by(LOOKUP_STEP).map(|tool| tool.name().to_string());
        lookups.extend(names.map(|name| (view, name)));
    }
    let found = || lookups.iter().filter(|(view, name)| view.find(name).is_ok()).count();
    if found() != lookups.len() {
        return Err("a tool was not found by its name".into());
    }
    points.push(lookup("find: by name", MAX_LOOKUP_EXPONENT, lookups.len(), best_time(found)));
    // A few are enough: each is compared with every name for suggestions.
    let misspelled: Vec<(&View, String)> = lookups
        .iter()
        .step_by(lookups.len() / MISSPELLED_LOOKUPS)
        .map(|(view, name)| (*view, format!("{name}x")))
        .collect();
    let missed = || misspelled.iter().filter(|(view, name)| view.find(name).is_err()).count();
    if missed() != misspelled.len() {
        return Err("an unknown name was found".into());
    }
    points.push(lookup("find: unknown, with near names", MAX_LINEAR_EXPONENT, misspelled.len(), best_time(missed)));
    Ok(points)
}

/// Builds the catalogue sources of one list.
fn build_sources(list: &[Box<RawValue>]) -> Result<Vec<Arc<CatalogSource>>> {
    let parts = split_into_sources(list, TOOLS_PER_SOURCE)?.into_iter().map(|list| {
        let packed = PackedManifest::new(&Manifest::new(&list.id, &list.tools, Vec::new(), &ToolLimits::default()))?;
        let state = Arc::new(source_state(&packed));
        let options = SourceOptions { kind: "mcp".into(), ..SourceOptions::default() };
        Ok(Arc::new(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), state, options)))
    });
    parts.collect()
}

/// Changes the description of the tool in the middle.
fn change_one_tool(offered: &[Box<RawValue>]) -> Result<Vec<Box<RawValue>>> {
    let mut offered = offered.to_vec();
    let middle = offered.len() / 2;
    let mut changed: Value = serde_json::from_str(offered[middle].get())?;
    changed["description"] = json!("It changed");
    offered[middle] = to_raw_value(&changed)?;
    Ok(offered)
}

/// State of the source as the inventory would have it.
fn source_state(packed: &PackedManifest) -> SourceState {
    SourceState {
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), ToolState::default())).collect(),
        ..SourceState::new("mcp", Origin::Config, Fingerprint::digest(packed.source.as_str()), None)
    }
}
