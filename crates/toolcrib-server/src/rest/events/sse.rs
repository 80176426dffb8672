//! Renders registry notices as server-sent events: as they are, or each as a CloudEvent.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::cloud_event::CloudEvent;
use toolcrib::core::Timestamp;
use toolcrib::registry::{DiscoveryStatus, HistoryRecord, RegistryNotice};
use toolcrib::{Registry, SourceId};

/// An event, shared by all listeners. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum FeedEvent {
    /// A journal record; its sequence number is the event id.
    Record { seq: u64, event: Arc<SseEvent> },
    /// A state or progress, which a slow listener may miss.
    Measurement(Arc<SseEvent>),
    /// Number of notices that the feed itself missed.
    Lost(u64),
}

/// An event that was rendered once, for all listeners.
#[derive(Debug)]
pub(super) struct SseEvent {
    name: &'static str,
    /// Sequence number of a record; measurements have none.
    seq: Option<u64>,
    at: Timestamp,
    /// Subject of the event: a source, or a tool as `source:tool`.
    subject: Option<String>,
    /// Type of a CloudEvent, without the prefix.
    kind: String,
    data: Box<RawValue>,
    text: Bytes,
}

impl SseEvent {
    /// Renders an event.
    fn new(name: &'static str, seq: Option<u64>, at: Timestamp, data: &impl Serialize) -> SseEvent {
        // Compact JSON has no line breaks, so one `data` line suffices.
        let data = serde_json::value::to_raw_value(data).unwrap_or_default();
        let text = format_event(name, seq, data.get());
        SseEvent { name, seq, at, subject: None, kind: name.to_owned(), data, text }
    }

    /// Returns the text of the event.
    pub(super) fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// Returns the text of the event as a CloudEvent. `store` is its source.
    pub(super) fn cloud_text(&self, store: &str) -> Bytes {
        // A measurement has no number of its own, and another id for every listener: none is sent again.
        let id = self.seq.map_or_else(|| format!("{:016x}", rand::random::<u64>()), |seq| seq.to_string());
        let event = CloudEvent::new(store, id, &self.kind, self.at, &self.data).with_subject(self.subject.clone());
        format_event(self.name, self.seq, &serde_json::to_string(&event).unwrap_or_default())
    }
}

/// Renders the events of a notice. A record or a finished discovery is followed by the new state of its source.
pub(super) fn render_notice(registry: &Registry, notice: &RegistryNotice) -> Vec<FeedEvent> {
    let measurement = |name, data: &Value| FeedEvent::measurement(name, registry.now(), None, data);
    match notice {
        RegistryNotice::RecordAppended(record) => {
            // Rendered with the state after the record, which a listener would otherwise have to fetch.
            let source = record.event.source().map(|id| render_source(registry, id, None));
            let mut events = vec![FeedEvent::record(&registry.history().describe(record))];
            events.extend(source);
            events
        }
        RegistryNotice::DiscoveryStarted(id) => vec![render_source(registry, id, Some(DiscoveryStatus::Discovering))],
        RegistryNotice::DiscoveryProgress { source, stage } => {
            let mut data = json!(stage);
            data["source"] = json!(source);
            vec![FeedEvent::measurement("progress", registry.now(), Some(source.to_string()), &data)]
        }
        RegistryNotice::DiscoveryFinished(outcome) => {
            let subject = Some(outcome.source.to_string());
            let discovered = FeedEvent::measurement("discovered", registry.now(), subject, &**outcome);
            vec![discovered, render_source(registry, &outcome.source, None)]
        }
        RegistryNotice::SourceTransition(notice) => {
            let (name, subject) = (notice.transition.name(), Some(notice.source.to_string()));
            let event =
                SseEvent { subject, kind: format!("source.{name}"), ..SseEvent::new(name, None, notice.at, &**notice) };
            vec![FeedEvent::Measurement(Arc::new(event))]
        }
        RegistryNotice::CallFinished(call) => {
            vec![FeedEvent::measurement("call", call.at, Some(call.tool.clone()), &**call)]
        }
        RegistryNotice::CatalogChanged => {
            let catalog = registry.unrestricted_catalog();
            let data = json!({ "inventory_hash": catalog.hash(), "version": catalog.version });
            vec![measurement("catalog", &data)]
        }
        // For MCP clients only, which get it through their own connection. The record of changed prompts and resources is
        // an event already.
        RegistryNotice::SourceNotification { .. } | RegistryNotice::FeaturesChanged => Vec::new(),
        _ => Vec::new(),
    }
}

impl FeedEvent {
    /// Renders a journal record.
    pub(super) fn record(record: &HistoryRecord) -> FeedEvent {
        let event = SseEvent::new("record", Some(record.seq), record.at, record);
        let event = SseEvent { subject: record.subject(), kind: record.kind.clone(), ..event };
        FeedEvent::Record { seq: record.seq, event: Arc::new(event) }
    }

    /// Renders an event without an id: a client that reconnects does not get it again.
    fn measurement(name: &'static str, at: Timestamp, subject: Option<String>, data: &impl Serialize) -> FeedEvent {
        FeedEvent::Measurement(Arc::new(SseEvent { subject, ..SseEvent::new(name, None, at, data) }))
    }
}

/// Renders the event that tells a listener how many events it missed.
pub(super) fn render_lost(count: u64, at: Timestamp) -> SseEvent {
    SseEvent::new("lost", None, at, &json!({ "count": count }))
}

/// Renders the current state of a source, with `status` instead of its own if given. A source that no longer exists is
/// rendered as removed.
fn render_source(registry: &Registry, id: &SourceId, status: Option<DiscoveryStatus>) -> FeedEvent {
    let data = match registry.sources().get(id) {
        Some(mut view) => {
            view.status = status.unwrap_or(view.status);
            serde_json::to_value(view).unwrap_or(Value::Null)
        }
        None => json!({ "id": id, "removed": true }),
    };
    FeedEvent::measurement("source", registry.now(), Some(id.to_string()), &data)
}

/// Formats a server-sent event with one line of data.
fn format_event(name: &str, id: Option<u64>, data: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}
