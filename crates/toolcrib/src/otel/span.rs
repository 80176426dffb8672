//! Conversion of finished spans to OpenTelemetry, with the attribute names of its semantic conventions for GenAI and MCP
//! where they exist and `toolcrib.*` elsewhere.
//!
//! Attributes have names of tools, sources and callers, and counts; never arguments, results or credentials.

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::spans::{FinishedSpan, SpanDetails, SpanSource};

/// The instrumentation scope of all spans.
pub(super) fn instrumentation_scope() -> InstrumentationScope {
    InstrumentationScope::builder("toolcrib").with_version(env!("CARGO_PKG_VERSION")).build()
}

/// Converts one finished span.
pub(super) fn to_span_data(span: &FinishedSpan, scope: &InstrumentationScope) -> SpanData {
    let FinishedSpan { trace, parent, ended_at, elapsed, details, error } = span;
    let (name, span_kind, mut attributes) = span_attributes(details);
    let milliseconds = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
    attributes.push(KeyValue::new("toolcrib.duration_ms", milliseconds));
    let status = match error {
        None => Status::Unset,
        Some(error) => {
            attributes.push(KeyValue::new("error.type", error.code));
            Status::error(error.message.clone().unwrap_or_else(|| error.code.to_owned()))
        }
    };
    // The sampling decision and the vendor state of the trace, as the caller sent them.
    let flags = if trace.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let state = trace.state().and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    let trace_id = TraceId::from(trace.id().0);
    let span_id = SpanId::from(trace.span_id());
    SpanData {
        span_context: SpanContext::new(trace_id, span_id, flags, false, state),
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: false,
        span_kind,
        name: name.into(),
        // Only the end is measured with the wall clock; the start follows from the monotonic duration.
        start_time: ended_at.checked_sub(*elapsed).unwrap_or(*ended_at),
        end_time: *ended_at,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: scope.clone(),
    }
}

/// Returns name, kind and attributes of a span. Names are built from known tools and commands only, so that their
/// number is bounded.
fn span_attributes(details: &SpanDetails) -> (String, SpanKind, Vec<KeyValue>) {
    match details {
        SpanDetails::Command { name } => {
            (format!("toolcrib {name}"), SpanKind::Internal, vec![KeyValue::new("toolcrib.command", *name)])
        }
        SpanDetails::Discovery { source, kind, tool_count, tools, cache_hit, hit_ratio } => {
            // Names of tools, never their arguments or results.
            let names = tools.iter().cloned().map(StringValue::from).collect();
            let mut attributes = vec![
                KeyValue::new("toolcrib.server_name", source.to_string()),
                KeyValue::new("toolcrib.source_kind", *kind),
                KeyValue::new("toolcrib.tool_count", i64::try_from(*tool_count).unwrap_or(i64::MAX)),
                KeyValue::new("toolcrib.tool_names", Value::Array(Array::String(names))),
                KeyValue::new("toolcrib.cache_hit", *cache_hit),
            ];
            attributes.extend(hit_ratio.map(|ratio| KeyValue::new("toolcrib.cache_hit_ratio", ratio)));
            ("tool-discovery".to_owned(), SpanKind::Client, attributes)
        }
        SpanDetails::Call { tool, source, caller } => {
            let mut attributes = vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", tool.clone()),
                KeyValue::new("toolcrib.caller", caller.clone()),
                // Langfuse shows the call as an observation of this type, and lists the callers as users.
                KeyValue::new("langfuse.observation.type", "tool"),
                KeyValue::new("user.id", caller.clone()),
            ];
            let Some(source) = source else {
                // An unknown tool: its name comes from the caller and must not become a span name, which backends
                // index (unbounded cardinality).
                return ("execute_tool".to_owned(), SpanKind::Internal, attributes);
            };
            attributes.push(KeyValue::new("toolcrib.server_name", source.id.to_string()));
            attributes.push(KeyValue::new("toolcrib.source_kind", source.kind));
            let (operation, span_kind) = call_attributes(source, &mut attributes);
            (format!("{operation} {tool}"), span_kind, attributes)
        }
    }
}

/// Adds the attributes of the called source's kind; returns the operation for the span name, and the span kind.
fn call_attributes(source: &SpanSource, attributes: &mut Vec<KeyValue>) -> (&'static str, SpanKind) {
    match source.kind {
        "mcp" => {
            attributes.push(KeyValue::new("gen_ai.tool.type", "extension"));
            attributes.push(KeyValue::new("mcp.method.name", "tools/call"));
            attributes.extend(source.protocol.clone().map(|version| KeyValue::new("mcp.protocol.version", version)));
            // A stdio server is reached through a pipe, HTTP and SSE over TCP.
            let transport = if source.transport == "stdio" { "pipe" } else { "tcp" };
            attributes.push(KeyValue::new("network.transport", transport));
            ("tools/call", SpanKind::Client)
        }
        "openapi" => {
            attributes.push(KeyValue::new("gen_ai.tool.type", "extension"));
            ("execute_tool", SpanKind::Client)
        }
        _ => {
            attributes.push(KeyValue::new("gen_ai.tool.type", "function"));
            ("execute_tool", SpanKind::Internal)
        }
    }
}
