//! Renders registry notices as server-sent events.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use toolcrib::registry::{DiscoveryStatus, HistoryRecord, RegistryNotice};
use toolcrib::{Registry, SourceId};

/// A rendered event, shared by all listeners. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum FeedEvent {
    /// A journal record; its sequence number is the event id.
    Record { seq: u64, text: Bytes },
    /// A state or progress, which a slow listener may miss.
    Measurement(Bytes),
    /// Number of notices that the feed itself missed.
    Lost(u64),
}

/// Renders the events of a notice. A record or a finished discovery is followed by the new state of its source.
pub(super) fn render_notice(registry: &Registry, notice: &RegistryNotice) -> Vec<FeedEvent> {
    match notice {
        RegistryNotice::RecordAppended(record) => {
            // Rendered with the state after the record, which a listener would otherwise have to fetch.
            let source = record.event.source().map(|id| render_source(registry, id, None));
            let mut events = vec![render_record(&registry.history().describe(record))];
            events.extend(source);
            events
        }
        RegistryNotice::DiscoveryStarted(id) => vec![render_source(registry, id, Some(DiscoveryStatus::Discovering))],
        RegistryNotice::DiscoveryProgress { source, stage } => {
            let mut data = json!(stage);
            data["source"] = json!(source);
            vec![render_measurement("progress", &data)]
        }
        RegistryNotice::DiscoveryFinished(outcome) => {
            vec![render_measurement("discovered", &**outcome), render_source(registry, &outcome.source, None)]
        }
        RegistryNotice::CallFinished(call) => vec![render_measurement("call", &**call)],
        RegistryNotice::CatalogChanged => {
            let catalog = registry.unrestricted_catalog();
            let data = json!({ "inventory_hash": catalog.hash(), "version": catalog.version });
            vec![render_measurement("catalog", &data)]
        }
        // For MCP clients only, which get it through their own connection.
        RegistryNotice::SourceNotification { .. } => Vec::new(),
        _ => Vec::new(),
    }
}

/// Renders a journal record.
pub(super) fn render_record(record: &HistoryRecord) -> FeedEvent {
    FeedEvent::Record { seq: record.seq, text: format_event("record", Some(record.seq), record) }
}

/// Renders the event that tells a listener how many events it missed.
pub(super) fn render_lost(count: u64) -> Bytes {
    format_event("lost", None, &json!({ "count": count }))
}

/// Renders an event without an id: a client that reconnects does not get it again.
fn render_measurement(event: &str, data: &impl Serialize) -> FeedEvent {
    FeedEvent::Measurement(format_event(event, None, data))
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
    render_measurement("source", &data)
}

/// Formats a server-sent event. Compact JSON has no line breaks, so one `data` line suffices.
fn format_event(event: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {event}\n{id}data: {data}\n\n").into()
}
