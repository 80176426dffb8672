//! One event as it goes over the wire, written once.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use toolcrib::registry::{HistoryRecord, Notice, Status};
use toolcrib::{Registry, SourceId};

/// An event for every listener. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Told {
    Record {
        seq: u64,
        text: Bytes,
    },
    Measure(Bytes),
    /// So many could not be passed on.
    Lost(u64),
}

/// What is told of a notice: often more than one thing.
pub(super) fn told(registry: &Registry, notice: &Notice) -> Vec<Told> {
    match notice {
        Notice::Recorded(record) => {
            let of = record.event.source().map(|id| source(registry, id, None));
            let mut told = vec![self::record(&registry.recorded(record))];
            told.extend(of);
            told
        }
        Notice::Discovering(id) => vec![source(registry, id, Some(Status::Discovering))],
        Notice::Progress { source, stage } => {
            let mut data = json!(stage);
            data["source"] = json!(source);
            vec![measure("progress", &data)]
        }
        Notice::Discovered(outcome) => {
            vec![measure("discovered", &**outcome), source(registry, &outcome.source, None)]
        }
        Notice::Called(called) => vec![measure("call", &**called)],
        Notice::CatalogChanged => {
            let catalog = registry.catalog();
            let data = json!({ "inventory_hash": catalog.hash(), "version": catalog.version });
            vec![measure("catalog", &data)]
        }
        // It concerns MCP clients, who hear of it another way.
        Notice::Said { .. } => Vec::new(),
    }
}

pub(super) fn record(record: &HistoryRecord) -> Told {
    Told::Record { seq: record.seq, text: written("record", Some(record.seq), record) }
}

pub(super) fn lost(count: u64) -> Bytes {
    written("lost", None, &json!({ "count": count }))
}

fn measure(event: &str, data: &impl Serialize) -> Told {
    Told::Measure(written(event, None, data))
}

/// How a source stands; one that is gone by now is told as such.
fn source(registry: &Registry, id: &SourceId, status: Option<Status>) -> Told {
    let data = match registry.source(id) {
        Some(mut view) => {
            view.status = status.unwrap_or(view.status);
            serde_json::to_value(view).unwrap_or(Value::Null)
        }
        None => json!({ "id": id, "removed": true }),
    };
    measure("source", &data)
}

/// JSON has no line breaks of its own.
fn written(event: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {event}\n{id}data: {data}\n\n").into()
}
