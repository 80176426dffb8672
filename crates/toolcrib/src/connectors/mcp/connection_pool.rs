//! Connections of one source: a shared one, one more for clients of the other protocol era, and with
//! `lifecycle: per_client` one for each client that has a session.
//!
//! The pool decides which connection serves a caller; it does not open any. Opening happens in `McpConnector` under the
//! lock of the pool entry, so that callers of the same entry share one attempt and one failure. Subscriptions belong to
//! an entry and not to its connection, because they are renewed when the connection is replaced.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use toolcrib_connector::{EraPreference, SourceSubscriptions};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error, Result, Source};
use toolcrib_mcp::Era;

use super::active_calls::declared_extensions;
use super::connection::McpConnection;
use super::subscriptions::SubscriptionSet;
use crate::connector::{CallContext, CallFailure, ClientId};

/// Maximum number of client connections per source; each may be a process of its own. At the limit, a further client is
/// refused: sharing a connection with it would mix the state that `per_client` keeps apart.
const MAX_CLIENT_CONNECTIONS: usize = 64;

/// Era of a connection to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EraChoice {
    /// This one if the server speaks it.
    Preferred(EraPreference),
    /// No other than this one.
    Only(Era),
}

impl Default for EraChoice {
    fn default() -> EraChoice {
        EraChoice::Preferred(EraPreference::Any)
    }
}

/// Pool entry: at most one open connection, and the resource subscriptions over it.
#[derive(Debug, Default)]
pub(super) struct PooledConnection {
    /// Locked while connecting, so that concurrent callers share one attempt.
    pub(super) connection: tokio::sync::Mutex<Option<Arc<McpConnection>>>,
    /// Outlive the connection, which is replaced when it breaks.
    pub(super) subscriptions: Arc<SubscriptionSet>,
    /// Extensions of the only client that the entry serves. Never set for a shared one: no client decides what others
    /// get.
    extensions: OnceLock<Option<Box<RawValue>>>,
    /// Era of the last attempt to connect, for reconnecting without a caller.
    era: Mutex<EraChoice>,
    /// Time and reason of the last failed attempt to connect.
    failure: Mutex<Option<(Instant, CallFailure)>>,
}

impl PooledConnection {
    /// Era of the last attempt to connect.
    pub(super) fn era(&self) -> EraChoice {
        *self.era.lock()
    }

    /// Extensions to declare when connecting.
    pub(super) fn extensions(&self) -> Option<&RawValue> {
        self.extensions.get()?.as_deref()
    }

    /// Returns the entry of a client, with the extensions that the client declared. They never change.
    fn with_extensions(self: &Arc<Self>, context: &CallContext) -> Arc<PooledConnection> {
        if let Some(capabilities) = &context.capabilities {
            self.extensions.get_or_init(|| declared_extensions(capabilities));
        }
        self.clone()
    }

    /// Records the era of an attempt to connect.
    pub(super) fn set_era(&self, era: EraChoice) {
        *self.era.lock() = era;
    }

    /// Stores the reason why connecting failed, for callers that wait for the same attempt.
    pub(super) fn record_failure(&self, failure: &CallFailure) {
        *self.failure.lock() = Some((Instant::now(), failure.clone_without_cause()));
    }

    /// Returns the failure of an attempt to connect that ended after `began`.
    pub(super) fn failure_since(&self, began: Instant) -> Option<CallFailure> {
        let failure = self.failure.lock();
        let (_, failure) = failure.as_ref().filter(|(at, _)| *at > began)?;
        // A timeout shorter than the source's own concerns one caller only.
        (!matches!(failure, CallFailure::Inconclusive(_))).then(|| failure.clone_without_cause())
    }

    /// Whether a connection is open. False while one is being established.
    pub(super) fn is_connected(&self) -> bool {
        // The lock is held while connecting.
        self.connection
            .try_lock()
            .is_ok_and(|connection| connection.as_ref().is_some_and(|connection| connection.is_usable()))
    }

    /// Whether the connection listens for notifications and the server has confirmed all subscriptions. True while
    /// connecting: the new connection renews them by itself.
    pub(super) fn is_receiving_updates(&self) -> bool {
        let is_current = |connection: &Arc<McpConnection>| {
            connection.is_usable() && connection.client.is_listening() && !self.subscriptions.is_outdated_on(connection)
        };
        self.connection.try_lock().map_or(true, |connection| connection.as_ref().is_some_and(is_current))
    }
}

/// All connections of a source.
#[derive(Debug, Default)]
pub(super) struct ConnectionPool {
    /// Used by all clients that have no connection of their own.
    pub(super) shared: Arc<PooledConnection>,
    /// In the other era than `shared`, for clients that need it. Opened on demand; see `McpConnector::connection_for`.
    pub(super) other_era: Arc<PooledConnection>,
    /// Created on demand; entries of disconnected clients are removed.
    per_client: Mutex<HashMap<ClientId, Arc<PooledConnection>>>,
}

impl ConnectionPool {
    /// Returns the pool entry that serves a caller. Stateless clients share one even with `lifecycle: per_client`: they
    /// would never disconnect.
    pub(super) fn select(&self, source: &Source, context: &CallContext) -> Result<Arc<PooledConnection>> {
        // Everything but `per_client` with a known, stateful client uses the shared connection.
        let client = match (source.settings.lifecycle(), context.client) {
            (Lifecycle::PerClient, Some(client)) if !context.stateless => client,
            (Lifecycle::PerClient | Lifecycle::Shared | Lifecycle::Transient, _) => return Ok(self.shared.clone()),
        };
        // Find, make room and insert under one lock, so that two first calls of a client get the same entry.
        let mut per_client = self.per_client.lock();
        if let Some(pooled) = per_client.get(&client) {
            return Ok(pooled.with_extensions(context));
        }
        // At the limit, drop entries without connection and subscriptions first.
        if per_client.len() >= MAX_CLIENT_CONNECTIONS {
            per_client.retain(|_, pooled| is_in_use(pooled));
        }
        if per_client.len() >= MAX_CLIENT_CONNECTIONS {
            let message = format!(
                "`{}` serves {MAX_CLIENT_CONNECTIONS} clients already, each with a server of its own (`lifecycle: per_client`); try again when one has disconnected",
                source.id
            );
            return Err(Error::new(Code::ToolUnavailable, message));
        }
        Ok(per_client.entry(client).or_default().with_extensions(context))
    }

    /// Closes the connection of a client that has disconnected. Its calls are not waited for.
    pub(super) async fn close_client(&self, client: ClientId) {
        let pooled = self.per_client.lock().remove(&client);
        let Some(pooled) = pooled else { return };
        // Clear first, so that maintenance does not reconnect for these subscriptions.
        pooled.subscriptions.clear();
        if let Some(connection) = pooled.connection.lock().await.take() {
            connection.close().await;
        }
    }

    /// Whether any connection is open.
    pub(super) fn is_connected(&self) -> bool {
        self.shared.is_connected()
            || self.other_era.is_connected()
            || self.per_client.lock().values().any(|pooled| pooled.is_connected())
    }

    /// All pool entries, the shared one first. A snapshot: entries may be added or removed meanwhile.
    pub(super) fn connections(&self) -> Vec<Arc<PooledConnection>> {
        let per_client = self.per_client.lock();
        [&self.shared, &self.other_era].into_iter().chain(per_client.values()).cloned().collect()
    }

    /// Moves all subscriptions out, of the shared connection and of each client's own.
    pub(super) fn take_subscriptions(&self) -> SourceSubscriptions {
        let per_client = self.per_client.lock();
        let per_client = per_client.iter().map(|(client, pooled)| (Some(*client), &pooled.subscriptions));
        let shared = [&self.shared, &self.other_era].map(|pooled| (None, &pooled.subscriptions));
        let all = shared.into_iter().chain(per_client);
        SourceSubscriptions(
            all.map(|(client, set)| (client, set.take())).filter(|(_, uris)| !uris.is_empty()).collect(),
        )
    }

    /// Adds subscriptions of a previous connector. `owner_of` maps a client to the client whose connection carries them
    /// now, `None` for the shared one.
    pub(super) fn restore_subscriptions(
        &self,
        subscriptions: SourceSubscriptions,
        owner_of: impl Fn(Option<ClientId>) -> Option<ClientId>,
    ) {
        for (client, uris) in subscriptions.0 {
            match owner_of(client) {
                Some(client) => self.per_client.lock().entry(client).or_default().subscriptions.merge(uris),
                None => self.shared.subscriptions.merge(uris),
            }
        }
    }

    /// Closes all connections, each once its calls in flight have ended.
    pub(super) async fn drain(&self) {
        // Remove the entries first, so that no new call finds them.
        let mut all: Vec<Arc<PooledConnection>> = self.per_client.lock().drain().map(|(_, pooled)| pooled).collect();
        all.extend([self.shared.clone(), self.other_era.clone()]);
        join_all(all.iter().map(async |pooled| {
            pooled.subscriptions.clear();
            if let Some(connection) = pooled.connection.lock().await.take() {
                connection.drain().await;
            }
        }))
        .await;
    }
}

/// Whether a pool entry must stay: it is connected or connecting, has subscriptions, or is held by a caller that may
/// still connect. The map itself holds one reference, hence the comparison with 1.
fn is_in_use(pooled: &Arc<PooledConnection>) -> bool {
    let may_be_open = pooled
        .connection
        .try_lock()
        .map_or(true, |connection| connection.as_ref().is_some_and(|connection| connection.is_usable()));
    may_be_open || pooled.subscriptions.has_any() || Arc::strong_count(pooled) > 1
}
