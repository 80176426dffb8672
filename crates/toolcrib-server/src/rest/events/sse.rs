//! Renders registry notices as server-sent events: as they are, or each as a CloudEvent.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::cloud_event::CloudEvent;
use toolcrib::core::Timestamp;
use toolcrib::registry::{DiscoveryStatus, HistoryRecord, RegistryNotice};
use toolcrib::{Principal, Registry, SourceId};

use crate::auth::Role;

/// An event, shared by all listeners. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum FeedEvent {
    /// A journal record; its sequence number is the event id.
    Record { seq: u64, event: RestrictedEvent },
    /// A state or progress, which a slow listener may miss.
    Measurement(RestrictedEvent),
    /// Number of notices that the feed itself missed.
    Lost(u64),
}

/// An event as each role may see it; `None` for a role that may not know of it.
#[derive(Debug, Clone)]
pub(super) struct RestrictedEvent {
    admin: Option<Arc<SseEvent>>,
    others: Option<Arc<SseEvent>>,
}

impl RestrictedEvent {
    /// Renders an event for administrators and for others.
    fn render(mut render: impl FnMut(&Principal) -> Option<SseEvent>) -> RestrictedEvent {
        let mut render = |principal| render(principal).map(Arc::new);
        RestrictedEvent { admin: render(&ADMIN), others: render(&OTHERS) }
    }

    /// Returns the event as a role may see it.
    pub(super) fn for_role(&self, role: Role) -> Option<&Arc<SseEvent>> {
        match role {
            Role::Admin => self.admin.as_ref(),
            Role::Agent | Role::Viewer => self.others.as_ref(),
        }
    }
}

/// Stands for all administrators.
static ADMIN: LazyLock<Principal> = LazyLock::new(|| Principal::local("events").with_role(Role::Admin));
/// Stands for all other listeners: what they may know of does not depend on anything but their role.
static OTHERS: LazyLock<Principal> = LazyLock::new(|| Principal::local("events"));

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

    /// Renders a journal record.
    pub(super) fn record(record: &HistoryRecord) -> SseEvent {
        let event = SseEvent::new("record", Some(record.seq), record.at, record);
        SseEvent { subject: record.subject(), kind: record.kind.clone(), ..event }
    }

    /// Renders an event without an id: a client that reconnects does not get it again.
    fn measurement(name: &'static str, at: Timestamp, subject: Option<String>, data: &impl Serialize) -> SseEvent {
        SseEvent { subject, ..SseEvent::new(name, None, at, data) }
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
    match notice {
        RegistryNotice::RecordAppended(record) => {
            // Rendered with the state after the record, which a listener would otherwise have to fetch.
            let source = record.event.source().map(|id| render_source(registry, id, None));
            let event = RestrictedEvent::render(|principal| {
                registry.history_for(principal).describe_visible(record).map(|record| SseEvent::record(&record))
            });
            let mut events = vec![FeedEvent::Record { seq: record.seq, event }];
            events.extend(source);
            events
        }
        RegistryNotice::DiscoveryStarted(id) => vec![render_source(registry, id, Some(DiscoveryStatus::Discovering))],
        RegistryNotice::DiscoveryProgress { source, stage } => {
            let event = RestrictedEvent::render(|principal| {
                let visibility = registry.visibility(principal);
                let mut data = json!(stage);
                data["source"] = json!(source);
                // The number of tools that the source sent is not that of the visible ones.
                if visibility.restricts(source)
                    && let Some(data) = data.as_object_mut()
                {
                    data.shift_remove("tools");
                }
                let event = SseEvent::measurement("progress", registry.now(), Some(source.to_string()), &data);
                visibility.shows_source(source).then_some(event)
            });
            vec![FeedEvent::Measurement(event)]
        }
        RegistryNotice::DiscoveryFinished(outcome) => {
            let discovered = RestrictedEvent::render(|principal| {
                let subject = Some(outcome.source.to_string());
                let outcome = registry.visibility(principal).restrict_outcome((**outcome).clone())?;
                Some(SseEvent::measurement("discovered", registry.now(), subject, &outcome))
            });
            vec![FeedEvent::Measurement(discovered), render_source(registry, &outcome.source, None)]
        }
        RegistryNotice::SourceTransition(notice) => {
            let event = RestrictedEvent::render(|principal| {
                let (name, subject) = (notice.transition.name(), Some(notice.source.to_string()));
                let event = SseEvent::measurement(name, notice.at, subject, &**notice);
                let is_visible = registry.visibility(principal).shows_source(&notice.source);
                is_visible.then(|| SseEvent { kind: format!("source.{name}"), ..event })
            });
            vec![FeedEvent::Measurement(event)]
        }
        RegistryNotice::CallFinished(call) => {
            let event = RestrictedEvent::render(|principal| {
                let is_visible = registry.visibility(principal).shows_call(call);
                is_visible.then(|| SseEvent::measurement("call", call.at, Some(call.tool.clone()), &**call))
            });
            vec![FeedEvent::Measurement(event)]
        }
        RegistryNotice::CatalogChanged => {
            let version = registry.unrestricted_catalog().version;
            let event = RestrictedEvent::render(|principal| {
                let data = json!({ "inventory_hash": registry.view(principal).hash(), "version": version });
                Some(SseEvent::measurement("catalog", registry.now(), None, &data))
            });
            vec![FeedEvent::Measurement(event)]
        }
        // For MCP clients only, which get it through their own connection. The record of changed prompts and resources is
        // an event already.
        RegistryNotice::SourceNotification { .. } | RegistryNotice::FeaturesChanged => Vec::new(),
        _ => Vec::new(),
    }
}

/// Renders the event that tells a listener how many events it missed.
pub(super) fn render_lost(count: u64, at: Timestamp) -> SseEvent {
    SseEvent::new("lost", None, at, &json!({ "count": count }))
}

/// Renders the current state of a source, with `status` instead of its own if given. A source that no longer exists is
/// rendered as removed.
fn render_source(registry: &Registry, id: &SourceId, status: Option<DiscoveryStatus>) -> FeedEvent {
    let event = RestrictedEvent::render(|principal| {
        let data = match registry.sources().get_for(principal, id) {
            Some(mut view) => {
                view.status = status.unwrap_or(view.status);
                serde_json::to_value(view).unwrap_or(Value::Null)
            }
            None if registry.visibility(principal).shows_source(id) => json!({ "id": id, "removed": true }),
            None => return None,
        };
        Some(SseEvent::measurement("source", registry.now(), Some(id.to_string()), &data))
    });
    FeedEvent::Measurement(event)
}

/// Formats a server-sent event with one line of data.
fn format_event(name: &str, id: Option<u64>, data: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}
