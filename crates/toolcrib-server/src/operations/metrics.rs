//! Everything that `/metrics` tells, from what is at hand. Labels are our own words, codes and ids of sources: none holds
//! the name of a tool or any text of a source.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use toolcrib::Code;
use toolcrib::core::Timestamp;
use toolcrib::registry::{ConnectionState, DiscoveryStatus, SourceView};
use toolcrib::store::StoreState;

use super::prometheus::PrometheusText;
use crate::state::AppState;

pub(super) fn render_metrics(house: &AppState) -> String {
    let mut text = PrometheusText::default();
    write_work_metrics(&mut text, house);
    write_catalog_metrics(&mut text, house);
    write_http_metrics(&mut text, house);
    write_process_metrics(&mut text, house);
    text.into_text()
}

fn write_work_metrics(text: &mut PrometheusText, house: &AppState) {
    let measures = house.registry.metrics();
    let mut total =
        text.counter("toolcrib_discoveries_total", "Discoveries that ended, by kind of source and outcome.");
    for ((kind, outcome), durations) in &measures.discoveries {
        total.value(&[("kind", kind), ("outcome", outcome)], durations.count);
    }
    let mut took = text.histogram("toolcrib_discovery_duration_seconds", "How long discoveries took.");
    for ((kind, outcome), durations) in &measures.discoveries {
        took.durations(&[("kind", kind), ("outcome", outcome)], durations);
    }
    let mut hits = text.counter("toolcrib_cache_hits_total", "Needs for a source's tools met from a fresh list.");
    for (source, (met, _)) in &measures.cache_lookups {
        hits.value(&[("source", source.as_str())], met);
    }
    let mut misses =
        text.counter("toolcrib_cache_misses_total", "Needs for a source's tools whose list was not fresh.");
    for (source, (_, missed)) in &measures.cache_lookups {
        misses.value(&[("source", source.as_str())], missed);
    }
    let named = |source: &Option<toolcrib::SourceId>| source.as_ref().map(ToString::to_string).unwrap_or_default();
    let about = "Calls that ended, by source and code; no source: no such tool; by the tool: its own answer.";
    let mut calls = text.counter("toolcrib_calls_total", about);
    for (source, called) in &measures.calls {
        for (code, count) in &called.by_code {
            calls.value(&[("source", &named(source)), ("code", code)], count);
        }
        if called.tool_errors > 0 {
            let failed = Code::ToolExecutionFailed.as_str();
            calls.value(&[("source", &named(source)), ("code", failed), ("by", "tool")], called.tool_errors);
        }
    }
    let mut took = text.histogram("toolcrib_call_duration_seconds", "How long calls took, by source.");
    for (source, called) in &measures.calls {
        took.durations(&[("source", &named(source))], &called.durations);
    }
    if let Some(lost) = measures.dropped_spans {
        text.counter("toolcrib_spans_lost_total", "Spans that could not be exported.").value(&[], lost);
    }
    text.gauge("toolcrib_calls_in_flight", "Calls under way.").value(&[], measures.calls_in_flight);
}

fn write_catalog_metrics(text: &mut PrometheusText, house: &AppState) {
    let (catalog, sources) = (house.registry.catalog(), house.registry.sources());
    let mut by_kind = BTreeMap::from(["builtin", "mcp", "openapi", "workflow"].map(|kind| (kind.to_owned(), 0)));
    for part in catalog.sources() {
        *by_kind.entry(part.options.kind.clone()).or_default() += catalog.tool_count(part.segment.source());
    }
    let mut tools = text.gauge("toolcrib_tools", "Tools in the catalogue, by kind of source.");
    for (kind, count) in &by_kind {
        tools.value(&[("kind", kind)], count);
    }
    let mut statuses = BTreeMap::from(["disabled", "discovering", "failed", "never", "success"].map(|name| (name, 0)));
    let mut states = BTreeMap::from(["connected", "none", "resting"].map(|name| (name, 0)));
    for source in &sources {
        let status = match source.status {
            _ if !source.enabled => "disabled",
            DiscoveryStatus::Never => "never",
            DiscoveryStatus::Discovering => "discovering",
            DiscoveryStatus::Success => "success",
            DiscoveryStatus::Failed => "failed",
        };
        let state = match source.connection {
            ConnectionState::None => "none",
            ConnectionState::Connected => "connected",
            ConnectionState::BreakerOpen => "resting",
        };
        *statuses.entry(status).or_default() += 1;
        *states.entry(state).or_default() += 1;
    }
    let mut gauge = text.gauge("toolcrib_sources", "Sources, by how their last discovery went.");
    statuses.iter().for_each(|(status, count)| gauge.value(&[("status", status)], count));
    let mut gauge = text.gauge("toolcrib_source_connections", "Sources, by the state of their connection.");
    states.iter().for_each(|(state, count)| gauge.value(&[("state", state)], count));
    let mut up = text.gauge("toolcrib_source_up", "Whether a source's last discovery succeeded.");
    // One that failed is down while it is tried again, too.
    let tried = |source: &&SourceView| source.last_checked.is_some() || source.last_error.is_some();
    for source in sources.iter().filter(|source| source.enabled).filter(tried) {
        up.value(&[("source", source.id.as_str())], u8::from(source.last_error.is_none()));
    }
    let position = house.registry.inventory().version;
    text.gauge("toolcrib_journal_position", "The number of the last record taken in.").value(&[], position);
    let ready = u8::from(house.registry.check_ready().is_ok());
    text.gauge("toolcrib_ready", "Whether the registry is open and its store is neither damaged nor missing.")
        .value(&[], ready);
    let state = house.registry.store_health().state;
    let mut store = text.gauge("toolcrib_store", "The state of the store: 1 for the one that it is in.");
    for known in [StoreState::Ok, StoreState::Down, StoreState::Damaged, StoreState::Missing] {
        store.value(&[("state", known.as_str())], u8::from(known == state));
    }
}

fn write_http_metrics(text: &mut PrometheusText, house: &AppState) {
    let requests = house.http_metrics.snapshot();
    let mut total = text.counter("toolcrib_http_requests_total", "HTTP requests answered, by what they are for.");
    for ((class, status), count) in &requests.by_status {
        total.value(&[("class", class.as_str()), ("status", &status.to_string())], count);
    }
    let mut took = text.histogram("toolcrib_http_request_duration_seconds", "How long answers took to begin.");
    requests.durations.iter().for_each(|(class, durations)| took.durations(&[("class", class.as_str())], durations));
    let connections = house.http_metrics.open_connections.load(Ordering::Relaxed);
    text.gauge("toolcrib_http_connections", "Open HTTP connections.").value(&[], connections);
    let listeners = house.event_feed.listener_count();
    text.gauge("toolcrib_event_listeners", "Listeners to the stream of events.").value(&[], listeners);
}

fn write_process_metrics(text: &mut PrometheusText, house: &AppState) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.gauge("toolcrib_build_info", "Always 1; the label tells the version.").value(&version, 1);
    let started = house.http_metrics.started_at;
    let uptime = house.registry.now().since(started).as_secs_f64();
    text.gauge("toolcrib_uptime_seconds", "How long it has been serving.").value(&[], uptime);
    let since = started.since(Timestamp(0)).as_secs_f64();
    text.gauge("process_start_time_seconds", "When it began to serve, in seconds since 1970.").value(&[], since);
    if let Some(bytes) = resident_memory_bytes() {
        text.gauge("process_resident_memory_bytes", "Memory in use.").value(&[], bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open files and sockets.").value(&[], open.count());
    }
}

/// Where the system tells; a file that is none on disk, so nobody waits for it.
fn resident_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
