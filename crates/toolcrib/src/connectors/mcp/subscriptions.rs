//! Resource subscriptions of clients over one connection. A server forgets them when the connection ends, so the
//! connection is kept open while there are any, and a new connection subscribes again. Toolcrib sends
//! `resources/unsubscribe` when the last client of a resource has left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::{Instant, timeout};
use toolcrib_connector::SubscribersByUri;
use toolcrib_core::SourceId;
use toolcrib_mcp::RequestOptions;

use super::connection::McpConnection;
use crate::connector::ClientId;
use crate::connectors::SourceEvents;

/// Maximum number of subscriptions over one connection, counted per client.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// Maximum number of subscriptions of one client, so that a single client cannot use up all of them.
const MAX_CLIENT_SUBSCRIPTIONS: usize = 200;
/// Limit for one request that Toolcrib sends by itself: subscribe, unsubscribe or ping. Short, because such requests
/// are sent one after the other under the change lock.
pub(super) const SUBSCRIPTION_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for all requests of one run together. Subscriptions that were not renewed by then are tried by the next check.
pub(super) const RESUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Initial and maximum interval between attempts to restore a connection; doubled after each.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Subscriptions over one connection, by URI.
#[derive(Debug, Default)]
pub(super) struct SubscriptionSet {
    by_uri: Mutex<BTreeMap<String, ResourceSubscription>>,
    /// Serialises changes, so that the server receives them in the order in which they are stored here.
    pub(super) change_lock: tokio::sync::Mutex<()>,
    /// Time of the next check, and the interval after it.
    next_check: Mutex<Option<(Instant, Duration)>>,
}

/// Clients subscribed to one resource.
#[derive(Debug, Default)]
struct ResourceSubscription {
    /// `None` stands for callers without a client id.
    clients: BTreeSet<Option<ClientId>>,
    /// Connection over which the server confirmed the subscription last.
    connection: Weak<McpConnection>,
}

impl ResourceSubscription {
    /// Whether the server confirmed the subscription over this connection. Compares addresses: no upgrade needed.
    fn is_established_on(&self, connection: &Arc<McpConnection>) -> bool {
        Weak::as_ptr(&self.connection) == Arc::as_ptr(connection)
    }
}

impl SubscriptionSet {
    /// Whether there are any subscriptions.
    pub(super) fn has_any(&self) -> bool {
        !self.by_uri.lock().is_empty()
    }

    /// Whether some subscription is not confirmed over this connection. False while a change is in progress.
    pub(super) fn is_outdated_on(&self, connection: &Arc<McpConnection>) -> bool {
        self.change_lock.try_lock().is_ok()
            && self.by_uri.lock().values().any(|subscription| !subscription.is_established_on(connection))
    }

    /// Stores a subscription before the request is sent to the server. The guard removes it again unless committed.
    /// Fails with a description of the limit that is reached.
    pub(super) fn add<'a>(&'a self, uri: &'a str, client: Option<ClientId>) -> Result<PendingSubscription<'a>, String> {
        let mut by_uri = self.by_uri.lock();
        // A repeated subscription of the same client is no new one, and no limit applies to it.
        let is_new = !by_uri.get(uri).is_some_and(|subscription| subscription.clients.contains(&client));
        if is_new && by_uri.values().map(|subscription| subscription.clients.len()).sum::<usize>() >= MAX_SUBSCRIPTIONS
        {
            return Err(format!("{MAX_SUBSCRIPTIONS} subscriptions"));
        }
        if is_new
            && by_uri.values().filter(|subscription| subscription.clients.contains(&client)).count()
                >= MAX_CLIENT_SUBSCRIPTIONS
        {
            return Err(format!("{MAX_CLIENT_SUBSCRIPTIONS} subscriptions of this client"));
        }
        by_uri.entry(uri.to_owned()).or_default().clients.insert(client);
        Ok(PendingSubscription { subscriptions: self, uri, client, is_new })
    }

    /// Records that the server confirmed the subscription over this connection.
    pub(super) fn mark_established(&self, uri: &str, connection: &Arc<McpConnection>) {
        if let Some(subscription) = self.by_uri.lock().get_mut(uri) {
            subscription.connection = Arc::downgrade(connection);
        }
    }

    /// Removes a client's subscription. Returns whether it was the last one of this resource.
    pub(super) fn remove(&self, uri: &str, client: Option<ClientId>) -> bool {
        let mut by_uri = self.by_uri.lock();
        let removed = by_uri.get_mut(uri).is_some_and(|subscription| subscription.clients.remove(&client));
        let last = removed && by_uri.get(uri).is_some_and(|subscription| subscription.clients.is_empty());
        if last {
            by_uri.remove(uri);
        }
        last
    }

    /// Removes all subscriptions of a client. Returns the resources that have no subscriber left.
    pub(super) fn remove_client(&self, client: ClientId) -> Vec<String> {
        let is_orphaned = |subscription: &mut ResourceSubscription| {
            subscription.clients.remove(&Some(client)) && subscription.clients.is_empty()
        };
        self.by_uri.lock().extract_if(.., |_, subscription| is_orphaned(subscription)).map(|(uri, _)| uri).collect()
    }

    /// Whether this client is subscribed to the resource.
    pub(super) fn has_client(&self, uri: &str, client: Option<ClientId>) -> bool {
        self.by_uri.lock().get(uri).is_some_and(|subscription| subscription.clients.contains(&client))
    }

    /// Whether any client is subscribed to the resource.
    pub(super) fn contains(&self, uri: &str) -> bool {
        self.by_uri.lock().contains_key(uri)
    }

    /// Removes all subscriptions.
    pub(super) fn clear(&self) {
        self.by_uri.lock().clear();
    }

    /// Moves all subscriptions out.
    pub(super) fn take(&self) -> SubscribersByUri {
        let by_uri = std::mem::take(&mut *self.by_uri.lock());
        by_uri.into_iter().map(|(uri, subscription)| (uri, subscription.clients)).collect()
    }

    /// Adds subscriptions from another connection. They count as unconfirmed until renewed.
    pub(super) fn merge(&self, uris: SubscribersByUri) {
        let mut by_uri = self.by_uri.lock();
        for (uri, clients) in uris {
            by_uri.entry(uri).or_default().clients.extend(clients);
        }
    }

    /// Whether the connection should be checked now; if so, schedules the next check after a doubled interval. The
    /// interval starts over after a long time without problems.
    pub(super) fn begin_check_if_due(&self) -> bool {
        let now = Instant::now();
        let mut next = self.next_check.lock();
        // A check long after the scheduled time means that all was well in between: start over.
        let recent = next.filter(|(at, _)| now.saturating_duration_since(*at) <= MAX_CHECK_INTERVAL);
        // The first check is due at once.
        let (at, pause) = recent.unwrap_or((now, MIN_CHECK_INTERVAL));
        let due = at <= now;
        if due {
            *next = Some((now + pause, (pause * 2).min(MAX_CHECK_INTERVAL)));
        }
        due
    }

    /// Subscribes again to everything that is not confirmed over this connection. Updates in between were missed, so
    /// subscribers get an update notification for each resource.
    pub(super) async fn resubscribe(
        self: Arc<Self>,
        connection: Arc<McpConnection>,
        id: SourceId,
        source_events: SourceEvents,
    ) {
        let resubscribing = async {
            let _change_guard = self.change_lock.lock().await;
            let is_missing = |(uri, subscription): (&String, &ResourceSubscription)| {
                (!subscription.is_established_on(&connection)).then(|| uri.clone())
            };
            // Copy the URIs: the map must not stay locked during the requests.
            let uris: Vec<String> = self.by_uri.lock().iter().filter_map(is_missing).collect();
            // A client may have unsubscribed while the loop was waiting.
            for uri in uris.iter().filter(|uri| self.contains(uri)) {
                let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
                match connection
                    .client
                    .request("resources/subscribe", Some(&params), &RequestOptions::new(SUBSCRIPTION_REQUEST_TIMEOUT))
                    .await
                {
                    Ok(_) => {
                        self.mark_established(uri, &connection);
                        source_events.notify(&id, "notifications/resources/updated", Some(&params));
                    }
                    // A dead connection fails all further requests; the next connection tries again.
                    Err(_) if !connection.is_usable() => return,
                    Err(error) => {
                        tracing::debug!(server_name = %id, error = error.kind(), "resubscribing to a resource failed");
                    }
                }
            }
        };
        // Bounded as a whole: a server that answers each request slowly would otherwise hold the lock for long.
        let in_time = timeout(RESUBSCRIBE_TIMEOUT, resubscribing).await.is_ok();
        if !in_time || self.is_outdated_on(&connection) {
            tracing::warn!(server_name = %id, "not all resource subscriptions could be renewed; will be retried");
        }
    }
}

/// RAII guard of a subscription that the server has not confirmed yet. It is stored already, so that a reconnect renews
/// it, and removed on drop unless committed.
pub(super) struct PendingSubscription<'a> {
    subscriptions: &'a SubscriptionSet,
    uri: &'a str,
    client: Option<ClientId>,
    /// False if the client had the subscription before: then dropping the guard keeps it.
    pub(super) is_new: bool,
}

impl PendingSubscription<'_> {
    /// Keeps the subscription.
    pub(super) fn commit(mut self) {
        self.is_new = false;
    }
}

impl Drop for PendingSubscription<'_> {
    fn drop(&mut self) {
        if self.is_new {
            self.subscriptions.remove(self.uri, self.client);
        }
    }
}

#[cfg(test)]
mod tests;
