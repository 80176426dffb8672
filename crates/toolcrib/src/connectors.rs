//! The connectors of all sources, created on first use, each with its circuit breaker; and the table of built-in tools.
//!
//! A slot lives as long as the connection that its source declares. When another one is declared, the slot is replaced
//! and its connector closed; changed limits are set on the slot that there is. Slots are created without connecting; a
//! connector connects when it is first asked for something.

pub(crate) mod builtin;
#[cfg(feature = "mcp")]
mod mcp;
mod source_events;
#[cfg(not(all(feature = "builtins", feature = "mcp", feature = "openapi", feature = "workflow")))]
mod unsupported;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Source, SourceId};

use crate::breaker::{Breaker, BreakerState, BreakerView, FailureStreak};
use crate::connector::Connector;
use crate::limits::CallLimiter;
use crate::metrics::LimitedCalls;
use crate::options::RegistryOptions;
use crate::redact::Redactor;
use crate::secret::{SecretFiles, SourceReferences};
use builtin::{BuiltinConnector, BuiltinTools};

pub use source_events::SourceEvents;

/// The connectors of all sources.
#[derive(Debug)]
pub(crate) struct Connectors {
    /// Slot of each source that was used. The lock is held for lookups and replacements, never across an await.
    slots: Mutex<BTreeMap<SourceId, Arc<ConnectorSlot>>>,
    builtins: Arc<BuiltinTools>,
    /// HTTP clients shared by MCP sources.
    #[cfg(feature = "mcp")]
    http_clients: Arc<mcp::McpHttpClients>,
    /// HTTP clients shared by OpenAPI sources.
    #[cfg(feature = "openapi")]
    api_clients: Arc<toolcrib_openapi::client::OpenApiClients>,
    /// Reads the files that references name, for all sources.
    secret_files: Arc<SecretFiles>,
    /// Settings that connectors need: clock, guard, log directory.
    options: Arc<RegistryOptions>,
    factory: ConnectorFactory,
    /// Receives what sources announce.
    pub(crate) source_events: SourceEvents,
}

/// Creates connectors in place of the real ones, for tests; the default replaces none. A connector reports
/// announcements of its source through the [`SourceEvents`].
#[derive(Clone, Default)]
#[cfg_attr(not(any(test, feature = "testkit")), expect(unreachable_pub, reason = "exported by the test kit only"))]
pub struct ConnectorFactory(pub(crate) Option<Arc<ConnectorFactoryFn>>);

/// Returns `None` for sources that get their real connector.
pub(crate) type ConnectorFactoryFn = dyn Fn(&Source, &SourceEvents) -> Option<Arc<dyn Connector>> + Send + Sync;

/// Maximum number of concurrent calls of one tool; further calls wait, so that a tool that hangs does not occupy its
/// whole source. Enough for a hundred clients that use one tool at once.
const MAX_CALLS_PER_TOOL: u32 = 128;

/// A source's connector with its circuit breaker and limits.
#[derive(Debug)]
pub(crate) struct ConnectorSlot {
    /// The declaration that the connector was created for. Its `limits` and `results` may be outdated.
    source: Source,
    pub(crate) connector: Arc<dyn Connector>,
    /// Resolves the references of this source, and knows the secrets that they resolved to.
    pub(crate) references: Arc<SourceReferences>,
    /// Starts closed with every new slot: failures of another declaration say nothing about this one.
    breaker: Mutex<Breaker>,
    /// Notified when a probe has ended, or the breaker was closed without one.
    pub(crate) probe_ended: Notify,
    /// Applies the configured limits of the source. Kept when the declaration changes, with the calls that it counts.
    pub(crate) limiter: Arc<CallLimiter>,
    /// Applies [`MAX_CALLS_PER_TOOL`] to each tool that was called, by original name.
    tool_limiters: Mutex<HashMap<String, Arc<CallLimiter>>>,
}

/// State of a source's connection and circuit breaker, for display.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SlotStatus {
    pub(crate) connected: bool,
    pub(crate) breaker: BreakerView,
    /// Number of counted call failures in a row.
    pub(crate) failures: u32,
    pub(crate) failure_streak: Option<FailureStreak>,
}

/// Slot statuses of all sources that were used, for comparison.
#[derive(Debug, PartialEq)]
pub(crate) struct SlotStatuses(Vec<(SourceId, SlotStatus)>);

/// Returns the path of the file with the stderr output of a source's server, in the directory of logs.
pub fn server_log_path(logs: &Path, id: &SourceId) -> PathBuf {
    logs.join(format!("{id}.log"))
}

impl Connectors {
    /// Creates the table without any connection.
    pub(crate) fn new(
        options: Arc<RegistryOptions>,
        factory: ConnectorFactory,
        source_events: SourceEvents,
    ) -> Connectors {
        Connectors {
            slots: Mutex::default(),
            builtins: Arc::new(BuiltinTools::new(&options)),
            #[cfg(feature = "mcp")]
            http_clients: Arc::default(),
            #[cfg(feature = "openapi")]
            api_clients: Arc::default(),
            secret_files: Arc::default(),
            options,
            factory,
            source_events,
        }
    }

    /// Returns the table of built-in tools.
    pub(crate) fn builtins(&self) -> &Arc<BuiltinTools> {
        &self.builtins
    }

    /// Returns the reader of the files that references name.
    pub(crate) fn secret_files(&self) -> &SecretFiles {
        &self.secret_files
    }

    /// Returns the slot of a source; replaces it if the declared connection has changed. Callers pass the effective
    /// source of their snapshot, so a call that still has an older snapshot may replace a newer slot; the next call with
    /// the newer one replaces it again. The limits of an existing slot stay: those of an older snapshot are outdated.
    pub(crate) fn slot(&self, source: &Source) -> Arc<ConnectorSlot> {
        let mut slots = self.slots.lock();
        match slots.get(&source.id) {
            Some(slot) if slot.source.has_same_connection(source) => slot.clone(),
            previous => {
                let slot = self.create_slot(source, previous);
                slots.insert(source.id.clone(), slot.clone());
                slot
            }
        }
    }

    /// Creates a slot. It takes over the limiter of the previous one, with the calls that it counts, and the
    /// subscriptions of clients.
    fn create_slot(&self, source: &Source, previous: Option<&Arc<ConnectorSlot>>) -> Arc<ConnectorSlot> {
        let references = Arc::new(SourceReferences::new(source.kind.clone(), self.secret_files.clone()));
        let connector = self.create_connector(source, &references);
        if let Some(previous) = previous {
            connector.restore_subscriptions(previous.connector.take_subscriptions());
        }
        let limiter = previous
            .map_or_else(|| Arc::new(CallLimiter::new(source.settings.limits)), |previous| previous.limiter.clone());
        Arc::new(ConnectorSlot {
            source: source.clone(),
            connector,
            references,
            breaker: Mutex::default(),
            probe_ended: Notify::new(),
            limiter,
            tool_limiters: Mutex::default(),
        })
    }

    /// Creates the connector for a source's kind. Makes no connection.
    fn create_connector(&self, source: &Source, references: &Arc<SourceReferences>) -> Arc<dyn Connector> {
        let replaced = self.factory.0.as_ref().and_then(|factory| factory(source, &self.source_events));
        if let Some(connector) = replaced {
            return connector;
        }
        #[cfg(not(any(feature = "mcp", feature = "openapi")))]
        let _ = (references, &self.options);
        match &source.kind {
            SourceKind::Builtin(_) => Arc::new(BuiltinConnector::new(source.clone(), self.builtins.clone())),
            #[cfg(feature = "openapi")]
            SourceKind::OpenApi(_) => {
                use toolcrib_openapi::client::OpenApiConnector;
                let clients = self.api_clients.clone();
                let clock = self.options.clock.clone();
                Arc::new(OpenApiConnector::new(source.clone(), clients, clock, references.clone()))
            }
            #[cfg(feature = "workflow")]
            SourceKind::Workflow(_) => {
                Arc::new(toolcrib_workflow::WorkflowConnector::new(source.clone(), references.clone()))
            }
            #[cfg(feature = "mcp")]
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => {
                let clients = self.http_clients.clone();
                let source_events = self.source_events.clone();
                let source = source.clone();
                Arc::new(mcp::McpConnector::new(
                    source,
                    self.options.clone(),
                    clients,
                    source_events,
                    references.clone(),
                ))
            }
            #[cfg(not(feature = "openapi"))]
            SourceKind::OpenApi(_) => Arc::new(unsupported::UnsupportedConnector { feature: "openapi" }),
            #[cfg(not(feature = "workflow"))]
            SourceKind::Workflow(_) => Arc::new(unsupported::UnsupportedConnector { feature: "workflow" }),
            #[cfg(not(feature = "mcp"))]
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => {
                Arc::new(unsupported::UnsupportedConnector { feature: "mcp" })
            }
        }
    }

    /// Removes the slots of sources that were removed, changed, or must not be connected to any more, such as disabled
    /// ones; returns their connectors, to be closed.
    /// Subscriptions of clients move to the new connector of a changed source. Sets the limits of all others. Called
    /// after every change of the inventory. The returned connectors may still have calls in flight; closing them is
    /// left to the caller.
    pub(crate) fn take_changed(
        &self,
        sources: &BTreeMap<SourceId, Arc<Source>>,
        may_connect: impl Fn(&SourceId) -> bool,
    ) -> Vec<Arc<dyn Connector>> {
        let mut slots = self.slots.lock();
        let ids: Vec<SourceId> = slots.keys().cloned().collect();
        let mut removed = Vec::new();
        for id in ids {
            let Some(source) = sources.get(&id).filter(|_| may_connect(&id)) else {
                removed.extend(slots.remove(&id).map(|slot| slot.connector.clone()));
                continue;
            };
            let Some(slot) = slots.get_mut(&id) else { continue };
            if !slot.source.has_same_connection(source) {
                let next = self.create_slot(source, Some(slot));
                removed.push(std::mem::replace(slot, next).connector.clone());
            }
            slot.limiter.set_limits(source.settings.limits);
        }
        removed
    }

    /// Returns the status of a source's slot. A source that was never used has no slot and counts as not connected,
    /// with a closed breaker.
    pub(crate) fn slot_status(&self, id: &SourceId) -> SlotStatus {
        let slot = self.slots.lock().get(id).cloned();
        slot.map_or(SlotStatus::UNUSED, |slot| slot.status(Instant::now()))
    }

    /// Returns the statuses of all slots that were used.
    pub(crate) fn slot_statuses(&self) -> SlotStatuses {
        let now = Instant::now();
        let slots = self.slots.lock();
        let statuses = slots.iter().map(|(id, slot)| (id.clone(), slot.status(now)));
        SlotStatuses(statuses.filter(|(_, status)| *status != SlotStatus::UNUSED).collect())
    }

    /// Returns the calls to each source that has limits and was used.
    pub(crate) fn limited_calls(&self) -> BTreeMap<SourceId, LimitedCalls> {
        let slots = self.slots.lock();
        slots.iter().filter_map(|(id, slot)| Some((id.clone(), slot.limiter.load()?))).collect()
    }

    /// Returns the connectors that exist now.
    pub(crate) fn connectors(&self) -> Vec<Arc<dyn Connector>> {
        self.slots.lock().values().map(|slot| slot.connector.clone()).collect()
    }

    /// Closes all connectors, in parallel. The caller bounds the wait.
    pub(crate) async fn close_all(&self) {
        let slots = std::mem::take(&mut *self.slots.lock());
        futures_util::future::join_all(slots.values().map(|slot| slot.connector.close())).await;
    }
}

impl fmt::Debug for ConnectorFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectorFactory")
    }
}

impl SlotStatus {
    /// Status of a source that was not called yet.
    const UNUSED: SlotStatus = SlotStatus {
        connected: false,
        breaker: BreakerView { state: BreakerState::Closed, retry_at: None },
        failures: 0,
        failure_streak: None,
    };
}

impl ConnectorSlot {
    /// Returns the redactor for the secrets of this source.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.references.redactor()
    }

    /// Returns the limiter of a tool. Limiters are never removed: their number is bounded by the tools of the source, and
    /// they go with the slot.
    pub(crate) fn tool_limiter(&self, tool: &str) -> Arc<CallLimiter> {
        let mut limiters = self.tool_limiters.lock();
        if let Some(limiter) = limiters.get(tool) {
            return limiter.clone();
        }
        let limiter = Arc::new(CallLimiter::for_tool(MAX_CALLS_PER_TOOL));
        limiters.insert(tool.to_owned(), limiter.clone());
        limiter
    }

    /// Closes the circuit breaker after a successful discovery of a server. For documents it does nothing: that a
    /// document could be read says nothing about the API it describes.
    pub(crate) fn record_discovery(&self) {
        let is_server = match &self.source.kind {
            SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) => true,
            SourceKind::OpenApi(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => false,
        };
        if is_server && self.breaker().close() {
            self.probe_ended.notify_waiters();
        }
    }

    /// Returns the status of the slot.
    fn status(&self, now: Instant) -> SlotStatus {
        let breaker = self.breaker();
        SlotStatus {
            connected: self.connector.is_connected(),
            breaker: breaker.view(now),
            failures: breaker.failures(),
            failure_streak: breaker.failure_streak().cloned(),
        }
    }

    /// Locks the circuit breaker. Not to be held across an await.
    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock()
    }
}
