//! A call that ended, as it is told to whoever exports spans.

use std::time::{Duration, SystemTime};

use toolcrib_core::ToolId;
use toolcrib_core::text::shown_short;

use crate::registry::Shared;
use crate::spans::{CalledSource, Fault, Finished, Work};
use crate::trace::Trace;

/// How a call went.
pub(super) struct Ended<'a> {
    /// As it was asked for.
    pub(super) name: &'a str,
    /// Of a call that came so far as to know it.
    pub(super) called: Option<&'a ToolId>,
    pub(super) caller: &'a str,
    /// `OK`, or what went wrong.
    pub(super) code: &'static str,
    /// By the tool's own word.
    pub(super) tool_error: bool,
    pub(super) elapsed: Duration,
}

impl Shared {
    pub(super) fn tell_call(&self, ended: &Ended<'_>, trace: &Trace, parent: Option<&Trace>) {
        let Some(spans) = self.options.spans.as_ref().filter(|_| trace.sampled()) else { return };
        let now = self.now.load();
        let source = ended.called.map(|id| {
            let source = now.sources.get(&id.source);
            CalledSource {
                id: id.source.clone(),
                // A tool of the embedding host is behind no connection.
                kind: source.map_or("builtin", |source| source.kind.name()),
                transport: source.map_or("builtin", |source| source.kind.transport()),
                protocol: now.standings.get(&id.source).and_then(|standing| standing.era.clone()),
            }
        });
        let known = ended.called.and_then(|_| now.catalog.find(ended.name).ok());
        let tool = known.map_or_else(|| shown_short(ended.name, 200), |tool| tool.name().to_string());
        let code = if ended.tool_error { "tool_error" } else { ended.code };
        spans.tell(Finished {
            trace: trace.clone(),
            parent: self.parent(parent).map(Trace::span),
            ended: SystemTime::now(),
            elapsed: ended.elapsed,
            work: Work::Call { tool, source, caller: ended.caller.to_owned() },
            // What a source says of its failure may repeat what it was given.
            failure: (ended.code != "OK").then_some(Fault { code, message: None }),
        });
    }
}
