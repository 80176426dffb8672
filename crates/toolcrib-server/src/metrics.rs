//! `/metrics`, rendered from counters in memory, so that it works while the store or a source hangs. Label values are
//! fixed words, error codes, source ids and a bounded number of callers; tool names and texts of sources would make the
//! number of series unbounded.
//!
//! Names, labels and label values are read by dashboards and alerts. They are never renamed, even where the rest of the
//! program uses another word (`state="resting"` is an open circuit breaker).

mod prometheus;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use toolcrib::core::Timestamp;
use toolcrib::core::access::Role;
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::metrics::MetricsSnapshot;
use toolcrib::registry::{ConnectionState, DiscoveryStatus, SourceView, Visibility};
use toolcrib::store::StoreState;
use toolcrib::{Code, Principal};

use crate::auth::AuthorizedRequest;
use crate::position::stale_seconds;
use crate::state::AppState;
use prometheus::PrometheusText;

/// `GET /metrics`, about the sources and tools that the client may know of.
pub(crate) async fn get_metrics(AuthorizedRequest { app, client, .. }: AuthorizedRequest) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], render_metrics(&app, &client.principal)).into_response()
}

/// Renders all metrics as Prometheus text.
fn render_metrics(app: &AppState, principal: &Principal) -> String {
    let mut text = PrometheusText::default();
    let metrics = app.registry.statistics().metrics();
    let visibility = app.registry.visibility(principal);
    write_limit_metrics(&mut text, &metrics, &visibility, principal);
    write_work_metrics(&mut text, metrics, &visibility);
    write_catalog_metrics(&mut text, app, principal);
    write_http_metrics(&mut text, app);
    write_process_metrics(&mut text, app);
    text.text
}

/// Writes the metrics of discoveries, cache lookups and calls.
fn write_work_metrics(text: &mut PrometheusText, mut metrics: MetricsSnapshot, visibility: &Visibility) {
    metrics.cache_lookups.retain(|source, _| visibility.shows_source(source));
    metrics.calls.retain(|source, _| source.as_ref().is_none_or(|source| visibility.shows_source(source)));
    let mut total =
        text.counter("toolcrib_discoveries_total", "Discoveries that ended, by kind of source and outcome.");
    for ((kind, outcome), durations) in &metrics.discoveries {
        total.value(&[("kind", kind), ("outcome", outcome)], durations.count);
    }
    let mut took = text.histogram("toolcrib_discovery_duration_seconds", "How long discoveries took.");
    for ((kind, outcome), durations) in &metrics.discoveries {
        took.durations(&[("kind", kind), ("outcome", outcome)], durations);
    }
    let mut hits = text.counter("toolcrib_cache_hits_total", "Lookups of a source's tools answered from a fresh list.");
    for (source, (hit_count, _)) in &metrics.cache_lookups {
        hits.value(&[("source", source.as_str())], hit_count);
    }
    let mut misses =
        text.counter("toolcrib_cache_misses_total", "Lookups of a source's tools whose list was not fresh.");
    for (source, (_, miss_count)) in &metrics.cache_lookups {
        misses.value(&[("source", source.as_str())], miss_count);
    }
    // Calls of unknown tools have no source.
    let source_label =
        |source: &Option<toolcrib::SourceId>| source.as_ref().map(ToString::to_string).unwrap_or_default();
    let help = "Calls that ended, by source and code. No source: unknown tool, or refused before. by=\"tool\": reported by the tool.";
    let mut calls = text.counter("toolcrib_calls_total", help);
    for (source, call_metrics) in &metrics.calls {
        for (code, count) in &call_metrics.by_code {
            calls.value(&[("source", &source_label(source)), ("code", code)], count);
        }
        // The call succeeded and its result says `isError`. The label `by` separates it from failures of the
        // connection.
        if call_metrics.tool_errors > 0 {
            let code = Code::ToolExecutionFailed.as_str();
            calls.value(&[("source", &source_label(source)), ("code", code), ("by", "tool")], call_metrics.tool_errors);
        }
    }
    let mut took = text.histogram("toolcrib_call_duration_seconds", "How long calls took, by source.");
    for (source, call_metrics) in &metrics.calls {
        took.durations(&[("source", &source_label(source))], &call_metrics.durations);
    }
    if let Some(dropped) = metrics.dropped_spans {
        text.counter("toolcrib_spans_lost_total", "Spans that could not be exported.").value(&[], dropped);
    }
    text.gauge("toolcrib_calls_in_flight", "Calls in progress.").value(&[], metrics.calls_in_flight);
}

/// Writes the metrics of callers, and of sources with limits.
fn write_limit_metrics(
    text: &mut PrometheusText,
    metrics: &MetricsSnapshot,
    visibility: &Visibility,
    principal: &Principal,
) {
    // Names of callers may be those of people. An agent has no use for them; monitoring has, which reads with the role
    // `viewer` or as a local process.
    let is_remote_agent = principal.role() == Role::Agent && *principal.identity() != PrincipalIdentity::Local;
    if !is_remote_agent {
        let mut calls = text.counter("toolcrib_caller_calls_total", "Calls that ended, by caller and outcome.");
        for (caller, counts) in &metrics.callers {
            let outcomes = [("error", counts.failed), ("ok", counts.succeeded), ("rate_limited", counts.rate_limited)];
            for (outcome, count) in outcomes {
                calls.value(&[("caller", caller), ("outcome", outcome)], count);
            }
        }
    }
    let limited = || metrics.limited_sources.iter().filter(|(source, _)| visibility.shows_source(source));
    let help = "Calls in progress of sources with limits.";
    let mut in_flight = text.gauge("toolcrib_source_calls_in_flight", help);
    limited().for_each(|(source, calls)| in_flight.value(&[("source", source.as_str())], calls.in_flight));
    let mut waiting = text.gauge("toolcrib_source_calls_waiting", "Calls that wait for the limit of their source.");
    limited().for_each(|(source, calls)| waiting.value(&[("source", source.as_str())], calls.waiting));
}

/// Tools, sources, journal and store.
fn write_catalog_metrics(text: &mut PrometheusText, app: &AppState, principal: &Principal) {
    let view = app.registry.view(principal);
    let sources = app.registry.sources().list_for(principal);
    // Labels with a known set of values start at zero, so that a series does not vanish.
    let mut by_kind = BTreeMap::from(["builtin", "mcp", "openapi", "workflow"].map(|kind| (kind.to_owned(), 0)));
    for source in view.sources() {
        *by_kind.entry(source.options.kind.clone()).or_default() += view.listed_count(source.segment.source());
    }
    let mut tools = text.gauge("toolcrib_tools", "Tools in the catalogue, by kind of source.");
    for (kind, count) in &by_kind {
        tools.value(&[("kind", kind)], count);
    }
    let mut statuses = BTreeMap::from(["disabled", "discovering", "failed", "never", "success"].map(|name| (name, 0)));
    let mut states = BTreeMap::from(["connected", "none", "resting"].map(|name| (name, 0)));
    for source in &sources {
        // A disabled source counts as such alone, however its last discovery went.
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
    // A failed source stays down while it is being retried.
    let was_tried = |source: &&SourceView| source.last_checked.is_some() || source.last_error.is_some();
    for source in sources.iter().filter(|source| source.enabled).filter(was_tried) {
        up.value(&[("source", source.id.as_str())], u8::from(source.last_error.is_none()));
    }
    // Grows with every change; on several processes over one store, a lag between them shows here.
    let position = app.registry.inventory().version;
    text.gauge("toolcrib_journal_position", "Sequence number of the last record applied.").value(&[], position);
    let ready = u8::from(app.registry.store().check_ready().is_ok());
    text.gauge("toolcrib_ready", "Whether the registry is open and its store is neither damaged nor missing.")
        .value(&[], ready);
    let config_valid = u8::from(app.config_error.load().is_none());
    text.gauge("toolcrib_config_valid", "Whether the files of the configuration could be loaded the last time.")
        .value(&[], config_valid);
    let state = app.registry.store().health().state;
    let mut store = text.gauge("toolcrib_store", "The state of the store: 1 for the one that it is in.");
    for label in [StoreState::Ok, StoreState::Down, StoreState::Damaged, StoreState::Missing] {
        store.value(&[("state", label.as_str())], u8::from(label == state));
    }
    let stale = stale_seconds(&app.registry).unwrap_or(0);
    text.gauge("toolcrib_store_stale_seconds", "How long the store has been down; 0 while it is reached.")
        .value(&[], stale);
    if let Some(nodes) = app.registry.store().nodes_for(principal) {
        let alive = nodes.iter().filter(|node| node.alive).count();
        let mut gauge = text.gauge("toolcrib_nodes", "Nodes that share the store, by whether they report regularly.");
        gauge.value(&[("alive", "false")], nodes.len() - alive);
        gauge.value(&[("alive", "true")], alive);
    }
}

/// Requests, connections and event listeners.
fn write_http_metrics(text: &mut PrometheusText, app: &AppState) {
    let requests = app.http_metrics.snapshot();
    let mut total = text.counter("toolcrib_http_requests_total", "HTTP requests answered, by class of route.");
    for ((class, status), count) in &requests.by_status {
        total.value(&[("class", class.as_str()), ("status", &status.to_string())], count);
    }
    let mut took = text.histogram("toolcrib_http_request_duration_seconds", "Time until the head of the response.");
    requests.durations.iter().for_each(|(class, durations)| took.durations(&[("class", class.as_str())], durations));
    let connections = app.http_metrics.open_connections.load(Ordering::Relaxed);
    text.gauge("toolcrib_http_connections", "Open HTTP connections.").value(&[], connections);
    let listeners = app.event_feed.listener_count();
    text.gauge("toolcrib_event_listeners", "Listeners to the stream of events.").value(&[], listeners);
}

/// Version, start time and resource use of this process.
fn write_process_metrics(text: &mut PrometheusText, app: &AppState) {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    text.gauge("toolcrib_build_info", "Always 1; the label has the version.").value(&version, 1);
    let started_at = app.http_metrics.started_at;
    let uptime = app.registry.now().since(started_at).as_secs_f64();
    text.gauge("toolcrib_uptime_seconds", "Time since the server started.").value(&[], uptime);
    let start_time = started_at.since(Timestamp(0)).as_secs_f64();
    text.gauge("process_start_time_seconds", "Start of the server, in seconds since 1970.").value(&[], start_time);
    if let Some(bytes) = resident_memory_bytes() {
        text.gauge("process_resident_memory_bytes", "Memory in use.").value(&[], bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open files and sockets.").value(&[], open.count());
    }
}

/// Reads the resident memory from procfs; `None` on other systems. procfs has no disk behind it, so the blocking read is
/// harmless on an async thread.
fn resident_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
