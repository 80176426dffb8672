//! One connector per source, made when first needed, with its breaker; and the table of built-in tools.

mod news;
mod origin;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use toolcrib_core::source::Kind;
use toolcrib_core::{Source, SourceId};

use crate::breaker::{Breaker, BreakerState, BreakerView, Failing};
use crate::connector::Connector;
use crate::connector::builtin::{BuiltinConnector, Builtins};
use crate::connector::mcp::{HttpClients, McpConnector};
use crate::connector::openapi::{Clients, OpenApiConnector};
use crate::connector::workflow::WorkflowConnector;
use crate::redact::{Redactor, SourceRedactor};
use crate::registry::Options;

pub use news::News;
pub(crate) use origin::Origin;

#[derive(Debug)]
pub(crate) struct Connections {
    slots: Mutex<BTreeMap<SourceId, Arc<Slot>>>,
    builtins: Arc<Builtins>,
    clients: Arc<HttpClients>,
    api_clients: Arc<Clients>,
    options: Options,
    pub(crate) news: News,
    pub(crate) origin: Origin,
}

/// Calls of one tool in flight; further ones wait, so that a tool that hangs leaves its source to the others.
pub(crate) const MAX_CALLS_PER_TOOL: usize = 128;

/// A source's connector and how its calls fare.
#[derive(Debug)]
pub(crate) struct Slot {
    source: Source,
    pub(crate) connector: Arc<dyn Connector>,
    redactor: Arc<SourceRedactor>,
    breaker: Mutex<Breaker>,
    /// Notified when a probe has ended, or the breaker was closed without one.
    pub(crate) probe_ended: Notify,
    /// Permits for calls, by the names of tools that were called.
    permits: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A source's connection and breaker, as they are shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    pub(crate) connected: bool,
    pub(crate) breaker: BreakerView,
    pub(crate) failures: u32,
    pub(crate) failing: Option<Failing>,
}

/// The links of all sources that were used, to be compared.
#[derive(Debug, PartialEq)]
pub(crate) struct Links(Vec<(SourceId, Link)>);

/// Makes a connector for a source, instead of the usual one; for tests. What it makes tells through
/// the news what its source says of its own accord.
#[derive(Clone)]
pub struct Connect(pub Arc<MakeConnector>);

/// The usual connector is made where this makes none.
pub type MakeConnector = dyn Fn(&Source, &News) -> Option<Arc<dyn Connector>> + Send + Sync;

impl Connections {
    pub(crate) fn new(options: &Options, news: News) -> Connections {
        Connections {
            slots: Mutex::default(),
            builtins: Arc::new(Builtins::new(options)),
            clients: Arc::default(),
            api_clients: Arc::default(),
            options: options.clone(),
            news,
            origin: Origin::default(),
        }
    }

    pub(crate) fn builtins(&self) -> &Arc<Builtins> {
        &self.builtins
    }

    /// The slot of a source as it is declared now.
    pub(crate) fn slot(&self, source: &Source) -> Arc<Slot> {
        let mut slots = self.slots();
        match slots.get(&source.id) {
            Some(slot) if slot.source == *source => slot.clone(),
            before => {
                let slot = self.new_slot(source, before);
                slots.insert(source.id.clone(), slot.clone());
                slot
            }
        }
    }

    /// A slot which takes over what clients watch from the one before, or its connector where that is declared alike.
    fn new_slot(&self, source: &Source, before: Option<&Arc<Slot>>) -> Arc<Slot> {
        let alike = before.filter(|before| before.source.connects_like(source));
        let redactor = alike.map_or_else(Arc::default, |alike| alike.redactor.clone());
        let connector = alike.map_or_else(|| self.connector(source, &redactor), |alike| alike.connector.clone());
        if let Some(before) = before.filter(|_| alike.is_none()) {
            connector.take_over(before.connector.hand_over());
        }
        Arc::new(Slot {
            source: source.clone(),
            connector,
            redactor,
            breaker: Mutex::default(),
            probe_ended: Notify::new(),
            permits: Mutex::default(),
        })
    }

    fn connector(&self, source: &Source, redactor: &Arc<SourceRedactor>) -> Arc<dyn Connector> {
        let instead = self.options.connect.as_ref();
        if let Some(connector) = instead.and_then(|connect| (connect.0)(source, &self.news)) {
            return connector;
        }
        match &source.kind {
            Kind::Builtin(_) => Arc::new(BuiltinConnector::new(source.clone(), self.builtins.clone())),
            Kind::OpenApi(_) => {
                let (clients, clock) = (self.api_clients.clone(), self.options.clock.clone());
                Arc::new(OpenApiConnector::new(source.clone(), clients, clock, redactor.clone()))
            }
            Kind::Workflow(_) => Arc::new(WorkflowConnector::new(source.clone(), self.origin.clone())),
            Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) => {
                let clients = self.clients.clone();
                let news = self.news.clone();
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
        let same =
            |id: &SourceId, slot: &Slot| enabled(id) && sources.get(id).is_some_and(|source| **source == slot.source);
        let ids: Vec<SourceId> = slots.iter().filter(|(id, slot)| !same(id, slot)).map(|(id, _)| id.clone()).collect();
        let mut taken = Vec::new();
        for id in ids {
            let Some(before) = slots.remove(&id) else { continue };
            if let Some(source) = sources.get(&id).filter(|_| enabled(&id)) {
                let slot = self.new_slot(source, Some(&before));
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

    pub(crate) fn link(&self, id: &SourceId) -> Link {
        let slot = self.slots().get(id).cloned();
        slot.map_or(Link::UNUSED, |slot| slot.link(Instant::now()))
    }

    pub(crate) fn links(&self) -> Links {
        let now = Instant::now();
        let slots = self.slots();
        let links = slots.iter().map(|(id, slot)| (id.clone(), slot.link(now)));
        Links(links.filter(|(_, link)| *link != Link::UNUSED).collect())
    }

    pub(crate) fn all(&self) -> Vec<Arc<dyn Connector>> {
        self.slots().values().map(|slot| slot.connector.clone()).collect()
    }

    pub(crate) async fn close_all(&self) {
        let slots = std::mem::take(&mut *self.slots());
        futures_util::future::join_all(slots.values().map(|slot| slot.connector.close())).await;
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<SourceId, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Of a source that was not called yet.
    const UNUSED: Link = Link {
        connected: false,
        breaker: BreakerView { state: BreakerState::Closed, retry_at: None },
        failures: 0,
        failing: None,
    };
}

impl Slot {
    /// Removes from texts what the source was given in confidence.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.redactor.get(&self.source.kind)
    }

    /// The permits for calls of one tool.
    pub(crate) fn permits(&self, tool: &str) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(crate) fn discovered(&self) {
        let answered = match &self.source.kind {
            Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) => true,
            Kind::OpenApi(_) | Kind::Workflow(_) | Kind::Builtin(_) => false,
        };
        if answered && self.breaker().close() {
            self.probe_ended.notify_waiters();
        }
    }

    fn link(&self, now: Instant) -> Link {
        let breaker = self.breaker();
        Link {
            connected: self.connector.connected(),
            breaker: breaker.view(now),
            failures: breaker.failures(),
            failing: breaker.failing().cloned(),
        }
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connect")
    }
}
