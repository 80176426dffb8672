//! One connector per source, made when first needed, with its breaker; and the table of built-in tools.

mod source_events;
mod weak_registry;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Source, SourceId};

use crate::breaker::{Breaker, BreakerState, BreakerView, FailureStreak};
use crate::connector::Connector;
use crate::connector::builtin::{BuiltinConnector, BuiltinTools};
use crate::connector::mcp::{McpConnector, McpHttpClients};
use crate::connector::openapi::{OpenApiClients, OpenApiConnector};
use crate::connector::workflow::WorkflowConnector;
use crate::redact::{Redactor, SourceRedactor};
use crate::registry::RegistryOptions;

pub use source_events::SourceEvents;
pub(crate) use weak_registry::WeakRegistry;

#[derive(Debug)]
pub(crate) struct Connectors {
    slots: Mutex<BTreeMap<SourceId, Arc<ConnectorSlot>>>,
    builtins: Arc<BuiltinTools>,
    http_clients: Arc<McpHttpClients>,
    api_clients: Arc<OpenApiClients>,
    options: RegistryOptions,
    pub(crate) source_events: SourceEvents,
    pub(crate) registry: WeakRegistry,
}

/// Calls of one tool in flight; further ones wait, so that a tool that hangs leaves its source to the others.
pub(crate) const MAX_CALLS_PER_TOOL: usize = 128;

/// A source's connector and how its calls fare.
#[derive(Debug)]
pub(crate) struct ConnectorSlot {
    source: Source,
    pub(crate) connector: Arc<dyn Connector>,
    redactor: Arc<SourceRedactor>,
    breaker: Mutex<Breaker>,
    /// Notified when a probe has ended, or the breaker was closed without one.
    pub(crate) probe_ended: Notify,
    /// Permits for calls, by the names of tools that were called.
    call_permits: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A source's connection and breaker, as they are shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SlotStatus {
    pub(crate) connected: bool,
    pub(crate) breaker: BreakerView,
    pub(crate) failures: u32,
    pub(crate) failure_streak: Option<FailureStreak>,
}

/// The links of all sources that were used, to be compared.
#[derive(Debug, PartialEq)]
pub(crate) struct SlotStatuses(Vec<(SourceId, SlotStatus)>);

/// Makes a connector for a source, instead of the usual one; for tests. What it makes tells through
/// the news what its source says of its own accord.
#[derive(Clone)]
pub struct ConnectorFactory(pub Arc<ConnectorFactoryFn>);

/// The usual connector is made where this makes none.
pub type ConnectorFactoryFn = dyn Fn(&Source, &SourceEvents) -> Option<Arc<dyn Connector>> + Send + Sync;

impl Connectors {
    pub(crate) fn new(options: &RegistryOptions, news: SourceEvents) -> Connectors {
        Connectors {
            slots: Mutex::default(),
            builtins: Arc::new(BuiltinTools::new(options)),
            http_clients: Arc::default(),
            api_clients: Arc::default(),
            options: options.clone(),
            source_events: news,
            registry: WeakRegistry::default(),
        }
    }

    pub(crate) fn builtins(&self) -> &Arc<BuiltinTools> {
        &self.builtins
    }

    /// The slot of a source as it is declared now.
    pub(crate) fn slot(&self, source: &Source) -> Arc<ConnectorSlot> {
        let mut slots = self.slots();
        match slots.get(&source.id) {
            Some(slot) if slot.source == *source => slot.clone(),
            before => {
                let slot = self.create_slot(source, before);
                slots.insert(source.id.clone(), slot.clone());
                slot
            }
        }
    }

    /// A slot which takes over what clients watch from the one before, or its connector where that is declared alike.
    fn create_slot(&self, source: &Source, before: Option<&Arc<ConnectorSlot>>) -> Arc<ConnectorSlot> {
        let alike = before.filter(|before| before.source.has_same_connection(source));
        let redactor = alike.map_or_else(Arc::default, |alike| alike.redactor.clone());
        let connector = alike.map_or_else(|| self.create_connector(source, &redactor), |alike| alike.connector.clone());
        if let Some(before) = before.filter(|_| alike.is_none()) {
            connector.restore_subscriptions(before.connector.take_subscriptions());
        }
        Arc::new(ConnectorSlot {
            source: source.clone(),
            connector,
            redactor,
            breaker: Mutex::default(),
            probe_ended: Notify::new(),
            call_permits: Mutex::default(),
        })
    }

    fn create_connector(&self, source: &Source, redactor: &Arc<SourceRedactor>) -> Arc<dyn Connector> {
        let instead = self.options.connector_factory.as_ref();
        if let Some(connector) = instead.and_then(|connect| (connect.0)(source, &self.source_events)) {
            return connector;
        }
        match &source.kind {
            SourceKind::Builtin(_) => Arc::new(BuiltinConnector::new(source.clone(), self.builtins.clone())),
            SourceKind::OpenApi(_) => {
                let (clients, clock) = (self.api_clients.clone(), self.options.clock.clone());
                Arc::new(OpenApiConnector::new(source.clone(), clients, clock, redactor.clone()))
            }
            SourceKind::Workflow(_) => Arc::new(WorkflowConnector::new(source.clone(), self.registry.clone())),
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => {
                let clients = self.http_clients.clone();
                let news = self.source_events.clone();
                Arc::new(McpConnector::new(source.clone(), &self.options, clients, news, redactor.clone()))
            }
        }
    }

    /// Takes out the connectors of sources that are gone or declared otherwise now, to be closed. What clients watch is
    /// watched on as the source is declared now.
    pub(crate) fn take_changed(
        &self,
        sources: &BTreeMap<SourceId, Arc<Source>>,
        enabled: impl Fn(&SourceId) -> bool,
    ) -> Vec<Arc<dyn Connector>> {
        let mut slots = self.slots();
        let same = |id: &SourceId, slot: &ConnectorSlot| {
            enabled(id) && sources.get(id).is_some_and(|source| **source == slot.source)
        };
        let ids: Vec<SourceId> = slots.iter().filter(|(id, slot)| !same(id, slot)).map(|(id, _)| id.clone()).collect();
        let mut taken = Vec::new();
        for id in ids {
            let Some(before) = slots.remove(&id) else { continue };
            if let Some(source) = sources.get(&id).filter(|_| enabled(&id)) {
                let slot = self.create_slot(source, Some(&before));
                let is_same_connector = Arc::ptr_eq(&slot.connector, &before.connector);
                slots.insert(id, slot);
                if is_same_connector {
                    continue;
                }
            }
            taken.push(before.connector.clone());
        }
        taken
    }

    pub(crate) fn slot_status(&self, id: &SourceId) -> SlotStatus {
        let slot = self.slots().get(id).cloned();
        slot.map_or(SlotStatus::UNUSED, |slot| slot.status(Instant::now()))
    }

    pub(crate) fn slot_statuses(&self) -> SlotStatuses {
        let now = Instant::now();
        let slots = self.slots();
        let links = slots.iter().map(|(id, slot)| (id.clone(), slot.status(now)));
        SlotStatuses(links.filter(|(_, link)| *link != SlotStatus::UNUSED).collect())
    }

    pub(crate) fn connectors(&self) -> Vec<Arc<dyn Connector>> {
        self.slots().values().map(|slot| slot.connector.clone()).collect()
    }

    pub(crate) async fn close_all(&self) {
        let slots = std::mem::take(&mut *self.slots());
        futures_util::future::join_all(slots.values().map(|slot| slot.connector.close())).await;
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<SourceId, Arc<ConnectorSlot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotStatus {
    /// Of a source that was not called yet.
    const UNUSED: SlotStatus = SlotStatus {
        connected: false,
        breaker: BreakerView { state: BreakerState::Closed, retry_at: None },
        failures: 0,
        failure_streak: None,
    };
}

impl ConnectorSlot {
    /// Removes from texts what the source was given in confidence.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.redactor.get(&self.source.kind)
    }

    /// The permits for calls of one tool.
    pub(crate) fn call_permits(&self, tool: &str) -> Arc<Semaphore> {
        let mut permits = self.call_permits.lock().unwrap_or_else(PoisonError::into_inner);
        match permits.get(tool) {
            Some(permits) => permits.clone(),
            None => {
                let new = Arc::new(Semaphore::new(MAX_CALLS_PER_TOOL));
                permits.insert(tool.to_owned(), new.clone());
                new
            }
        }
    }

    /// The source answered a discovery, so calls may go there again. That a document could be read says nothing about
    /// the API it describes.
    pub(crate) fn record_discovery(&self) {
        let answered = match &self.source.kind {
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => true,
            SourceKind::OpenApi(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => false,
        };
        if answered && self.breaker().close() {
            self.probe_ended.notify_waiters();
        }
    }

    fn status(&self, now: Instant) -> SlotStatus {
        let breaker = self.breaker();
        SlotStatus {
            connected: self.connector.is_connected(),
            breaker: breaker.view(now),
            failures: breaker.failures(),
            failure_streak: breaker.failure_streak().cloned(),
        }
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectorFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}
