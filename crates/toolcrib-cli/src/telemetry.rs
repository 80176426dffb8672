//! What a command's work is part of, and its export as OpenTelemetry spans where the environment asks for that.
//! Exporting never holds up the work: a collector that is slow or gone costs its spans alone.

mod client;
mod export;
mod settings;
mod span;

use std::time::{Duration, Instant, SystemTime};

use toolcrib::spans::{Fault, Finished, Spans, Work};
use toolcrib::{Result, Trace};

use crate::exit::Done;
use export::Exporting;
use settings::Wanted;

/// Spans that wait to be exported.
const ROOM: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(crate) struct Telemetry {
    /// The command itself; none for what serves others, whose work is part of what they do.
    pub(crate) trace: Option<Trace>,
    pub(crate) spans: Option<Spans>,
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Underway {
    name: &'static str,
    began: Instant,
    parent: Option<Trace>,
    telemetry: Telemetry,
    exporting: Option<Exporting>,
}

impl Telemetry {
    /// For what goes on, or for a command that is done in a moment. Must be called where tasks can be spawned.
    pub(crate) fn start(name: &'static str, stays: bool) -> (Telemetry, Underway) {
        let (spans, exporting) = exporting().unzip();
        let parent = around().filter(|_| !stays);
        let own = || match &spans {
            Some(spans) => Spans::begin(spans, parent.as_ref()),
            None => parent.as_ref().map_or_else(Trace::quiet, Trace::child),
        };
        let telemetry = Telemetry { trace: (!stays).then(own), spans };
        let underway = Underway { name, began: Instant::now(), parent, telemetry: telemetry.clone(), exporting };
        (telemetry, underway)
    }
}

impl Underway {
    /// The command has ended so; what is left to export is exported, for a moment.
    pub(crate) async fn end(self, result: &Result<Done>) {
        let Some(exporting) = self.exporting else { return };
        if let (Some(trace), Some(spans)) = (self.telemetry.trace, &self.telemetry.spans) {
            let failure = match result {
                Ok(Done::Well) => None,
                Ok(Done::Failed) => Some("FAILED"),
                Err(error) => Some(error.code.as_str()),
            };
            spans.tell(Finished {
                trace,
                parent: self.parent.as_ref().map(Trace::span),
                ended: SystemTime::now(),
                elapsed: self.began.elapsed(),
                work: Work::Command { name: self.name },
                failure: failure.map(|code| Fault { code, message: None }),
            });
        }
        exporting.finish(Duration::from_secs(2)).await;
    }
}

fn exporting() -> Option<(Spans, Exporting)> {
    let sampler = match settings::wanted(|name| std::env::var(name).ok()) {
        Wanted::Not => return None,
        Wanted::Impossible(why) => {
            tracing::warn!("traces are not exported: {why}");
            return None;
        }
        Wanted::Sampled(sampler) => sampler,
    };
    let (spans, told) = Spans::channel(ROOM, sampler);
    match Exporting::start(spans.clone(), told) {
        Ok(exporting) => Some((spans, exporting)),
        Err(why) => {
            tracing::warn!("traces are not exported: {why}");
            None
        }
    }
}

/// What whoever started us is at, as shells and build tools tell it.
fn around() -> Option<Trace> {
    let parent = std::env::var("TRACEPARENT").ok()?;
    Trace::parse(parent.trim(), std::env::var("TRACESTATE").ok().as_deref())
}
