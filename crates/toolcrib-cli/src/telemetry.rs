//! What a command's work is part of, for its log and for those it asks.

use toolcrib::Trace;

#[derive(Debug, Clone, Default)]
pub(crate) struct Telemetry {
    /// The command itself; none for what serves others, whose work is part of what they do.
    pub(crate) trace: Option<Trace>,
}

impl Telemetry {
    pub(crate) fn start(stays: bool) -> Telemetry {
        let trace = (!stays).then(|| around().as_ref().map_or_else(Trace::quiet, Trace::child));
        Telemetry { trace }
    }
}

/// What whoever started us is at, as shells and build tools tell it.
fn around() -> Option<Trace> {
    let parent = std::env::var("TRACEPARENT").ok()?;
    Trace::parse(parent.trim(), std::env::var("TRACESTATE").ok().as_deref())
}
