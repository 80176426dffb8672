//! Logging: `tracing` events on stderr, as text or JSON, with the trace id of the command they belong to.
//!
//! The log is for operators. What a user must know is printed by the command, so one-shot commands turn off the events
//! of discovery that they report themselves. A line of `-v`:
//!
//! ```text
//! 2026-11-15T20:14:20.123456Z  INFO command{command="call" trace_id=4bf9…}: … tools.call.finished …
//! ```

use toolcrib::Trace;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::arguments::CommonArguments;
use crate::output;

/// Installs the subscriber. Warnings by default; `-v` adds discovery and call events, `-vv` and `-vvv` more, `-q` turns
/// the log off. `TOOLCRIB_LOG` overrides these with a filter of its own; `TOOLCRIB_LOG_FORMAT=json` writes one JSON
/// object per line.
pub(crate) fn init(common: &CommonArguments, is_long_running: bool) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => "off",
        (false, 0) if is_long_running => "warn",
        // One-shot commands print failed discoveries themselves.
        (false, 0) => "warn,toolcrib::refresh=off,toolcrib_mcp=off",
        (false, 1) => "toolcrib=info,toolcrib_mcp=warn,warn",
        (false, 2) => "toolcrib=debug,toolcrib_mcp=debug,info",
        (false, _) => "trace",
    };
    // A filter that cannot be parsed is ignored.
    let filter = std::env::var("TOOLCRIB_LOG").ok().and_then(|filter| EnvFilter::try_new(filter).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(level));
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(output::is_stderr_colored());
    let layer = match std::env::var("TOOLCRIB_LOG_FORMAT").as_deref() {
        Ok("json") => layer.json().flatten_event(true).boxed(),
        _ => layer.with_target(false).boxed(),
    };
    // Both filters apply: `TOOLCRIB_LOG=trace` shows no debug events of other crates.
    let layer = layer.with_filter(filter).with_filter(filter_fn(is_own_or_warning));
    tracing_subscriber::registry().with(layer).init();
}

/// Drops debug events of other crates whatever the filter says: HTTP clients log headers and URLs, which may contain
/// credentials.
fn is_own_or_warning(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("toolcrib") || *metadata.level() <= Level::WARN
}

/// Returns the span of one command, with the trace id that its events share. A long-running command has none, because
/// each request it serves has its own trace.
pub(crate) fn command_span(command: &str, trace: Option<&Trace>) -> tracing::Span {
    match trace {
        Some(trace) => tracing::info_span!("command", command, trace_id = %trace.id()),
        None => tracing::info_span!("command", command),
    }
}
