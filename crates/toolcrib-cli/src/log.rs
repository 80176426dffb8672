//! Structured log events on stderr, each with the id of the trace it belongs to, where there is one.

use toolcrib::Trace;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::arguments::CommonArguments;
use crate::output;

/// Warnings by default; `-v` shows the events of discovery and calls, `-vv` more, `-q` errors alone.
/// `TOOLCRIB_LOG` takes a filter of its own, `TOOLCRIB_LOG_FORMAT=json` one JSON object a line.
pub(crate) fn init(common: &CommonArguments, stays: bool) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => "off",
        (false, 0) if stays => "warn",
        // What failed to be discovered, the commands say themselves.
        (false, 0) => "warn,toolcrib::refresh=off,toolcrib_mcp=off",
        (false, 1) => "toolcrib=info,toolcrib_mcp=warn,warn",
        (false, 2) => "toolcrib=debug,toolcrib_mcp=debug,info",
        (false, _) => "trace",
    };
    let filter = std::env::var("TOOLCRIB_LOG").ok().and_then(|filter| EnvFilter::try_new(filter).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(level));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(output::is_stderr_colored());
    let layer = match std::env::var("TOOLCRIB_LOG_FORMAT").as_deref() {
        Ok("json") => layer.json().flatten_event(true).boxed(),
        _ => layer.with_target(false).boxed(),
    };
    let layer = layer.with_filter(filter).with_filter(filter_fn(is_own_or_warning));
    tracing_subscriber::registry().with(layer).init();
}

/// Whatever filter is asked for: HTTP clients log headers and addresses in detail, and those hold credentials.
fn is_own_or_warning(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("toolcrib") || *metadata.level() <= Level::WARN
}

/// The span of one command, with an id that ties its events together. What serves others does work of many traces.
pub(crate) fn command_span(command: &str, trace: Option<&Trace>) -> tracing::Span {
    match trace {
        Some(trace) => tracing::info_span!("command", command, trace_id = %trace.id()),
        None => tracing::info_span!("command", command),
    }
}
