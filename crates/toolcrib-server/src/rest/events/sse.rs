//! One event as it goes over the wire, written once.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use toolcrib::registry::{DiscoveryStatus, HistoryRecord, RegistryNotice};
use toolcrib::{Registry, SourceId};

/// An event for every listener. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum FeedEvent {
    Record {
        seq: u64,
        text: Bytes,
    },
    Measurement(Bytes),
    /// So many could not be passed on.
    Lost(u64),
}

/// What is told of a notice: often more than one thing.
pub(super) fn render_notice(registry: &Registry, notice: &RegistryNotice) -> Vec<FeedEvent> {
    match notice {
        RegistryNotice::RecordAppended(record) => {
            let of = record.event.source().map(|id| render_source(registry, id, None));
            let mut told = vec![self::render_record(&registry.history_record(record))];
            told.extend(of);
            told
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
        RegistryNotice::CallFinished(called) => vec![render_measurement("call", &**called)],
        RegistryNotice::CatalogChanged => {
            let catalog = registry.catalog();
            let data = json!({ "inventory_hash": catalog.hash(), "version": catalog.version });
            vec![render_measurement("catalog", &data)]
        }
        // It concerns MCP clients, who hear of it another way.
        RegistryNotice::SourceNotification { .. } => Vec::new(),
    }
}

pub(super) fn render_record(record: &HistoryRecord) -> FeedEvent {
    FeedEvent::Record { seq: record.seq, text: format_event("record", Some(record.seq), record) }
}

pub(super) fn render_lost(count: u64) -> Bytes {
    format_event("lost", None, &json!({ "count": count }))
}

fn render_measurement(event: &str, data: &impl Serialize) -> FeedEvent {
    FeedEvent::Measurement(format_event(event, None, data))
}

/// How a source stands; one that is gone by now is told as such.
fn render_source(registry: &Registry, id: &SourceId, status: Option<DiscoveryStatus>) -> FeedEvent {
    let data = match registry.source(id) {
        Some(mut view) => {
            view.status = status.unwrap_or(view.status);
            serde_json::to_value(view).unwrap_or(Value::Null)
        }
        None => json!({ "id": id, "removed": true }),
    };
    render_measurement("source", &data)
}

/// JSON has no line breaks of its own.
fn format_event(event: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {event}\n{id}data: {data}\n\n").into()
}
