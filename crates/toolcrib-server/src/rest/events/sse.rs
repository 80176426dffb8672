//! Renders registry notices as server-sent events: as they are, or each as a CloudEvent, and as far as the listener may know
//! of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::call::CallFinished;
use toolcrib::cloud_event::CloudEvent;
use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::Record;
use toolcrib::registry::{DiscoveryStage, DiscoveryStatus, HistoryRecord, RegistryNotice, SourceTransitionNotice};
use toolcrib::{Principal, RefreshOutcome, Registry, SourceId};

use crate::auth::Role;

/// An event, shared by all listeners. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum FeedEvent {
    /// A journal record; its sequence number is the event id.
    Record { seq: u64, event: Arc<ScopedEvent> },
    /// A state or progress, which a slow listener may miss.
    Measurement(Arc<ScopedEvent>),
    /// The tool lists or the rules have changed. Sent to the listeners whose own list has changed.
    CatalogChanged(Arc<ScopedEvent>),
    /// Number of notices that the feed itself missed.
    Lost(u64),
}

/// An event that each listener gets as far as it may know of it. Rendered once for each distinct scope, when the first
/// listener with that scope gets to it. Without rules there are two: that of administrators and that of all others.
#[derive(Debug)]
pub(super) struct ScopedEvent {
    content: EventContent,
    at: Timestamp,
    /// Renderings by scope and role.
    rendered: Mutex<BTreeMap<(Fingerprint, Role), RenderedEvent>>,
}

/// An event for the listeners with one scope; `None` if they may not know of it.
type RenderedEvent = Option<Arc<SseEvent>>;

/// Subject of an event, from which it is rendered.
#[derive(Debug)]
enum EventContent {
    Record(Arc<Record>),
    /// The current state of a source, with this status instead of its own if given. A source that no longer exists is
    /// rendered as removed.
    Source(SourceId, Option<DiscoveryStatus>),
    Progress(SourceId, DiscoveryStage),
    Discovered(Arc<RefreshOutcome>),
    Transition(Arc<SourceTransitionNotice>),
    Call(Arc<CallFinished>),
    Catalog,
}

impl ScopedEvent {
    fn new(content: EventContent, at: Timestamp) -> Arc<ScopedEvent> {
        Arc::new(ScopedEvent { content, at, rendered: Mutex::default() })
    }

    /// Returns the event as a principal may know of it now; `None` if it may not. A listener that lags behind, or whose
    /// groups have changed meanwhile, gets what the rules in force allow.
    pub(super) fn for_principal(&self, registry: &Registry, principal: &Principal) -> RenderedEvent {
        let key = (registry.scope(principal).key(), principal.role());
        if let Some(rendered) = self.rendered.lock().get(&key) {
            return rendered.clone();
        }
        // Rendered without the lock: of two listeners that come at the same time, both may render.
        let rendered = self.content.render(registry, principal, self.at).map(Arc::new);
        self.rendered.lock().entry(key).or_insert(rendered).clone()
    }
}

impl EventContent {
    fn render(&self, registry: &Registry, principal: &Principal, at: Timestamp) -> Option<SseEvent> {
        let visibility = registry.visibility(principal);
        match self {
            EventContent::Record(record) => {
                registry.history_for(principal).describe_visible(record).map(|record| SseEvent::record(&record))
            }
            EventContent::Source(id, status) => {
                let data = match registry.sources().get_for(principal, id) {
                    Some(mut view) => {
                        view.status = status.unwrap_or(view.status);
                        serde_json::to_value(view).unwrap_or(Value::Null)
                    }
                    None if visibility.shows_source(id) => json!({ "id": id, "removed": true }),
                    None => return None,
                };
                Some(SseEvent::measurement("source", at, Some(id.to_string()), &data))
            }
            EventContent::Progress(source, stage) => {
                let mut data = json!(stage);
                data["source"] = json!(source);
                // The number of tools that the source sent is not that of the visible ones.
                if visibility.restricts(source)
                    && let Some(data) = data.as_object_mut()
                {
                    data.shift_remove("tools");
                }
                let event = SseEvent::measurement("progress", at, Some(source.to_string()), &data);
                visibility.shows_source(source).then_some(event)
            }
            EventContent::Discovered(outcome) => {
                let outcome = visibility.restrict_outcome((**outcome).clone())?;
                Some(SseEvent::measurement("discovered", at, Some(outcome.source.to_string()), &outcome))
            }
            EventContent::Transition(notice) => {
                let notice = visibility.restrict_transition(notice)?;
                let (name, subject) = (notice.transition.name(), Some(notice.source.to_string()));
                let event = SseEvent::measurement(name, at, subject, &*notice);
                Some(SseEvent { kind: format!("source.{name}"), ..event })
            }
            EventContent::Call(call) => {
                let is_visible = visibility.shows_call(call);
                is_visible.then(|| SseEvent::measurement("call", at, Some(call.tool.clone()), &**call))
            }
            EventContent::Catalog => {
                let (hash, version) = (visibility.view().hash(), registry.unrestricted_catalog().version);
                let event =
                    SseEvent::measurement("catalog", at, None, &json!({ "inventory_hash": hash, "version": version }));
                Some(SseEvent { inventory_hash: Some(hash), ..event })
            }
        }
    }
}

/// An event that was rendered once, for all listeners with the same scope.
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
    /// Digest of the tool list that an event `catalog` tells.
    inventory_hash: Option<Fingerprint>,
    data: Box<RawValue>,
    text: Bytes,
}

impl SseEvent {
    /// Renders an event.
    fn new(name: &'static str, seq: Option<u64>, at: Timestamp, data: &impl Serialize) -> SseEvent {
        // Compact JSON has no line breaks, so one `data` line suffices.
        let data = serde_json::value::to_raw_value(data).unwrap_or_default();
        let text = format_event(name, seq, data.get());
        SseEvent { name, seq, at, subject: None, kind: name.to_owned(), inventory_hash: None, data, text }
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

    /// Returns the digest of the tool list that an event `catalog` tells.
    pub(super) fn inventory_hash(&self) -> Option<Fingerprint> {
        self.inventory_hash
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

/// Returns the events of a notice. A record or a finished discovery is followed by the new state of its source.
pub(super) fn notice_events(notice: &RegistryNotice, now: Timestamp) -> Vec<FeedEvent> {
    let measurement = |content, at| FeedEvent::Measurement(ScopedEvent::new(content, at));
    let source_state = |id: &SourceId, status| measurement(EventContent::Source(id.clone(), status), now);
    match notice {
        RegistryNotice::RecordAppended(record) => {
            let event = ScopedEvent::new(EventContent::Record(record.clone()), record.at);
            let source = record.event.source().map(|id| source_state(id, None));
            [FeedEvent::Record { seq: record.seq, event }].into_iter().chain(source).collect()
        }
        RegistryNotice::DiscoveryStarted(id) => vec![source_state(id, Some(DiscoveryStatus::Discovering))],
        RegistryNotice::DiscoveryProgress { source, stage } => {
            vec![measurement(EventContent::Progress(source.clone(), *stage), now)]
        }
        RegistryNotice::DiscoveryFinished(outcome) => {
            let discovered = measurement(EventContent::Discovered(outcome.clone()), now);
            vec![discovered, source_state(&outcome.source, None)]
        }
        RegistryNotice::SourceTransition(notice) => {
            vec![measurement(EventContent::Transition(notice.clone()), notice.at)]
        }
        RegistryNotice::CallFinished(call) => vec![measurement(EventContent::Call(call.clone()), call.at)],
        RegistryNotice::CatalogChanged | RegistryNotice::RulesChanged => {
            vec![FeedEvent::CatalogChanged(ScopedEvent::new(EventContent::Catalog, now))]
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

/// Formats a server-sent event with one line of data.
fn format_event(name: &str, id: Option<u64>, data: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}
