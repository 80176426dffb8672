//! CloudEvents 1.0, the JSON form in which other programs receive what happened: records of the journal, discoveries, and
//! live events.
//!
//! ```json
//! {"specversion": "1.0", "id": "7", "source": "urn:toolcrib:0af76519", "type": "toolcrib.ToolDisabled",
//!  "subject": "git:push", "time": "…", "datacontenttype": "application/json", "data": {"seq": 7, …}}
//! ```
//!
//! `source` and `id` together are unique: the first is the store, the second the sequence number of a record, or a text
//! for a measurement, which has none. `data` is what the same route or command returns without this format.

use serde::Serialize;
use toolcrib_core::{SourceId, Timestamp};

use crate::registry::HistoryRecord;
use crate::store::DiscoveryCheck;

/// Media type of one event.
pub const CLOUD_EVENT_TYPE: &str = "application/cloudevents+json";
/// Media type of a JSON array of events.
pub const CLOUD_EVENT_BATCH_TYPE: &str = "application/cloudevents-batch+json";

/// An event in the JSON format of CloudEvents 1.0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CloudEvent<'a, T> {
    specversion: &'static str,
    id: String,
    source: &'a str,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    time: Timestamp,
    datacontenttype: &'static str,
    data: T,
}

impl<'a, T> CloudEvent<'a, T> {
    /// Creates an event. `store` is the result of [`History::store_uri`](crate::registry::History::store_uri), `kind` the
    /// type without the prefix of Toolcrib's types.
    pub fn new(store: &'a str, id: String, kind: &str, time: Timestamp, data: T) -> CloudEvent<'a, T> {
        CloudEvent {
            specversion: "1.0",
            id,
            source: store,
            kind: format!("toolcrib.{kind}"),
            subject: None,
            time,
            datacontenttype: "application/json",
            data,
        }
    }

    /// Sets what the event is about.
    #[must_use]
    pub fn with_subject(self, subject: Option<String>) -> CloudEvent<'a, T> {
        CloudEvent { subject, ..self }
    }
}

impl<'a> CloudEvent<'a, &'a HistoryRecord> {
    /// Converts a record of the journal.
    pub fn from_record(store: &'a str, record: &'a HistoryRecord) -> CloudEvent<'a, &'a HistoryRecord> {
        let id = record.seq.to_string();
        CloudEvent::new(store, id, &record.kind, record.at, record).with_subject(record.subject())
    }
}

impl<'a> CloudEvent<'a, &'a DiscoveryCheck> {
    /// Converts a discovery: `source.failed` and `source.recovered` if it changed that, else `source.checked`.
    pub fn from_check(store: &'a str, check: &'a DiscoveryCheck) -> CloudEvent<'a, &'a DiscoveryCheck> {
        let outcome = check.transition.map_or("checked", |transition| transition.name());
        let id = format!("check-{}-{}", check.source, check.at.0);
        let subject = Some(SourceId::to_string(&check.source));
        CloudEvent::new(store, id, &format!("source.{outcome}"), check.at, check).with_subject(subject)
    }
}
