//! A discovery, as it is told to whoever exports spans.

use std::time::Duration;

use toolcrib_core::Source;

use super::Outcome;
use crate::registry::Shared;
use crate::spans::{Fault, Finished, Work, bounded};
use crate::trace::Trace;

impl Shared {
    /// A list that was recent enough is told as one that met its need from the cache.
    pub(super) fn tell_fresh(&self, source: &Source, outcome: &Outcome, parent: Option<&Trace>) {
        if self.options.spans.is_some() {
            let trace = self.begin_trace(parent);
            self.tell_discovery(source, outcome, Duration::ZERO, &trace, parent);
        }
    }

    pub(super) fn tell_discovery(
        &self,
        source: &Source,
        outcome: &Outcome,
        elapsed: Duration,
        trace: &Trace,
        parent: Option<&Trace>,
    ) {
        // To read what is at hand is no discovery.
        let discovered = trace.sampled() && !source.kind.is_builtin();
        let Some(spans) = self.options.spans.as_ref().filter(|_| discovered) else { return };
        let now = self.now.load();
        let entries = now.catalog.part(&source.id).map(|part| part.segment.entries()).unwrap_or_default();
        spans.tell(Finished {
            trace: trace.clone(),
            parent: self.parent(parent).map(Trace::span),
            ended: self.options.clock.moment(),
            elapsed,
            work: Work::Discovery {
                source: source.id.clone(),
                kind: source.kind.name(),
                tool_count: now.catalog.tool_count(&source.id),
                tools: bounded(entries.iter().map(|entry| entry.name.as_str())),
                cache_hit: outcome.status == super::Refreshed::Fresh,
                hit_ratio: self.meters.hit_ratio(&source.id),
            },
            failure: outcome
                .error
                .as_ref()
                .map(|failure| Fault { code: failure.code.as_str(), message: Some(failure.message.clone()) }),
        });
    }
}
