//! Which connection serves whom: one for all, or with `lifecycle: per_client` one for each client that stays.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::time::Instant;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error, Result, Source};

use super::connection::McpConnection;
use super::subscriptions::{SubscriptionSet, SubscriptionsByUri};
use crate::call::ClientId;
use crate::connector::{CallContext, CallFailure};

/// How many clients may have a connection of their own.
const MAX_CLIENT_CONNECTIONS: usize = 64;

/// A place for one connection, and what is watched over it.
#[derive(Debug, Default)]
pub(super) struct PooledConnection {
    /// Locked while one is made, so that one is made for all who wait.
    pub(super) connection: tokio::sync::Mutex<Option<Arc<McpConnection>>>,
    pub(super) subscriptions: Arc<SubscriptionSet>,
    /// Why there was no connection the last time, and when.
    failure: Mutex<Option<(Instant, CallFailure)>>,
}

impl PooledConnection {
    pub(super) fn record_failure(&self, failure: &CallFailure) {
        *self.lock_failure() = Some((Instant::now(), failure.clone_without_cause()));
    }

    /// Why no connection came about, if that was found out since `began`.
    pub(super) fn failure_since(&self, began: Instant) -> Option<CallFailure> {
        let failure = self.lock_failure();
        let (_, failure) = failure.as_ref().filter(|(at, _)| *at > began)?;
        // A caller that waited for less time than the source may take says nothing to the others.
        (!matches!(failure, CallFailure::Inconclusive(_))).then(|| failure.clone_without_cause())
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<(Instant, CallFailure)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_connected(&self) -> bool {
        // Somebody is connecting when the lock is taken.
        self.connection.try_lock().is_ok_and(|live| live.as_ref().is_some_and(|live| live.is_usable()))
    }

    /// Whether somebody listens to what is said over it, and the server knows what is watched; or it is about to be so.
    pub(super) fn is_receiving_updates(&self) -> bool {
        let heard = |live: &Arc<McpConnection>| {
            live.is_usable() && live.client.is_listening() && !self.subscriptions.is_outdated_on(live)
        };
        self.connection.try_lock().map_or(true, |live| live.as_ref().is_some_and(heard))
    }
}

#[derive(Debug, Default)]
pub(super) struct ConnectionPool {
    pub(super) shared: Arc<PooledConnection>,
    per_client: Mutex<HashMap<ClientId, Arc<PooledConnection>>>,
}

/// What is watched over each connection of a source: the one of all, and those of single clients.
#[derive(Debug, Default)]
pub struct SourceSubscriptions(Vec<(Option<ClientId>, SubscriptionsByUri)>);

impl SourceSubscriptions {
    pub(super) fn uris(&self) -> BTreeSet<&String> {
        self.0.iter().flat_map(|(_, uris)| uris.keys()).collect()
    }
}

impl ConnectionPool {
    /// Where a caller's connection is, or will be.
    pub(super) fn select(&self, source: &Source, terms: &CallContext) -> Result<Arc<PooledConnection>> {
        let client = match (source.settings.lifecycle(), terms.client) {
            (Lifecycle::PerClient, Some(client)) if !terms.stateless => client,
            (Lifecycle::PerClient | Lifecycle::Shared | Lifecycle::Transient, _) => return Ok(self.shared.clone()),
        };
        let mut own = self.lock_per_client();
        if let Some(line) = own.get(&client) {
            return Ok(line.clone());
        }
        if own.len() >= MAX_CLIENT_CONNECTIONS {
            own.retain(|_, line| is_in_use(line));
        }
        if own.len() >= MAX_CLIENT_CONNECTIONS {
            let message = format!(
                "`{}` serves {MAX_CLIENT_CONNECTIONS} clients already, each with a server of its own (`lifecycle: per_client`); try again when one has left",
                source.id
            );
            return Err(Error::new(Code::ToolUnavailable, message));
        }
        Ok(own.entry(client).or_default().clone())
    }

    /// Ends the connection of a client that has left. Nobody waits for its calls any more.
    pub(super) async fn close_client(&self, client: ClientId) {
        let line = self.lock_per_client().remove(&client);
        let Some(line) = line else { return };
        // First, so that nobody who looks after it connects again.
        line.subscriptions.clear();
        if let Some(live) = line.connection.lock().await.take() {
            live.close().await;
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.shared.is_connected() || self.lock_per_client().values().any(|line| line.is_connected())
    }

    pub(super) fn connections(&self) -> Vec<Arc<PooledConnection>> {
        let own = self.lock_per_client();
        std::iter::once(&self.shared).chain(own.values()).cloned().collect()
    }

    pub(super) fn take_subscriptions(&self) -> SourceSubscriptions {
        let own = self.lock_per_client();
        let own = own.iter().map(|(client, line)| (Some(*client), &line.subscriptions));
        let all = std::iter::once((None, &self.shared.subscriptions)).chain(own);
        SourceSubscriptions(
            all.map(|(client, watched)| (client, watched.take())).filter(|(_, uris)| !uris.is_empty()).collect(),
        )
    }

    /// `whose` says whose connection takes the place of a client's, or of the one of all.
    pub(super) fn restore_subscriptions(
        &self,
        watches: SourceSubscriptions,
        whose: impl Fn(Option<ClientId>) -> Option<ClientId>,
    ) {
        for (client, uris) in watches.0 {
            match whose(client) {
                Some(client) => self.lock_per_client().entry(client).or_default().subscriptions.merge(uris),
                None => self.shared.subscriptions.merge(uris),
            }
        }
    }

    /// Ends all, once the calls in flight are done.
    pub(super) async fn drain(&self) {
        let mut lines: Vec<Arc<PooledConnection>> = self.lock_per_client().drain().map(|(_, line)| line).collect();
        lines.push(self.shared.clone());
        join_all(lines.iter().map(async |line| {
            line.subscriptions.clear();
            if let Some(live) = line.connection.lock().await.take() {
                live.drain().await;
            }
        }))
        .await;
    }

    fn lock_per_client(&self) -> MutexGuard<'_, HashMap<ClientId, Arc<PooledConnection>>> {
        self.per_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line that somebody holds may get a connection yet.
fn is_in_use(line: &Arc<PooledConnection>) -> bool {
    let stands = line.connection.try_lock().map_or(true, |live| live.as_ref().is_some_and(|live| live.is_usable()));
    stands || line.subscriptions.has_any() || Arc::strong_count(line) > 1
}
