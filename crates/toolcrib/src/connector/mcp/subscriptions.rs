//! The resources that clients watch over one connection. A server forgets them with its connection: so that one is kept
//! open while there are any, a new one asks for them again, and when the last client that watches one leaves, the
//! server hears of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::{Instant, timeout};
use toolcrib_core::SourceId;
use toolcrib_mcp::RequestOptions;

use super::connection::McpConnection;
use crate::call::ClientId;
use crate::connections::SourceEvents;

/// How many watches there may be over one connection, and how many of them one client's.
const MAX_SUBSCRIPTIONS: usize = 1000;
const MAX_CLIENT_SUBSCRIPTIONS: usize = 200;
/// For what is asked on nobody's behalf, one by one and in all.
pub(super) const SUBSCRIPTION_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const RESUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at a connection that is not as it should be.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct SubscriptionSet {
    by_uri: Mutex<SubscriptionsByUri>,
    /// One change at a time, so that the server hears of them in the order in which they are kept here.
    pub(super) change_lock: tokio::sync::Mutex<()>,
    /// When to look again, and how long to wait after that.
    next_check: Mutex<Option<(Instant, Duration)>>,
}

pub(super) type SubscriptionsByUri = BTreeMap<String, ResourceSubscription>;

#[derive(Debug, Default)]
pub(super) struct ResourceSubscription {
    clients: BTreeSet<Option<ClientId>>,
    /// The connection over which the server agreed to it last.
    connection: Weak<McpConnection>,
}

impl ResourceSubscription {
    fn is_established_on(&self, live: &Arc<McpConnection>) -> bool {
        Weak::as_ptr(&self.connection) == Arc::as_ptr(live)
    }
}

impl SubscriptionSet {
    pub(super) fn has_any(&self) -> bool {
        !self.lock_by_uri().is_empty()
    }

    /// Whether the server did not agree, over this connection, to all that is watched; not while it is being asked.
    pub(super) fn is_outdated_on(&self, live: &Arc<McpConnection>) -> bool {
        self.change_lock.try_lock().is_ok() && self.lock_by_uri().values().any(|watch| !watch.is_established_on(live))
    }

    /// Keeps what is about to be asked for; why not, when there are too many.
    pub(super) fn add<'a>(&'a self, uri: &'a str, client: Option<ClientId>) -> Result<PendingSubscription<'a>, String> {
        let mut by_uri = self.lock_by_uri();
        let new = !by_uri.get(uri).is_some_and(|watch| watch.clients.contains(&client));
        if new && by_uri.values().map(|watch| watch.clients.len()).sum::<usize>() >= MAX_SUBSCRIPTIONS {
            return Err(format!("{MAX_SUBSCRIPTIONS} resources"));
        }
        if new && by_uri.values().filter(|watch| watch.clients.contains(&client)).count() >= MAX_CLIENT_SUBSCRIPTIONS {
            return Err(format!("{MAX_CLIENT_SUBSCRIPTIONS} resources, as many as one client may watch,"));
        }
        by_uri.entry(uri.to_owned()).or_default().clients.insert(client);
        Ok(PendingSubscription { subscriptions: self, uri, client, is_new: new })
    }

    pub(super) fn mark_established(&self, uri: &str, live: &Arc<McpConnection>) {
        if let Some(watch) = self.lock_by_uri().get_mut(uri) {
            watch.connection = Arc::downgrade(live);
        }
    }

    /// Whether it was the last that watched this.
    pub(super) fn remove(&self, uri: &str, client: Option<ClientId>) -> bool {
        let mut by_uri = self.lock_by_uri();
        let removed = by_uri.get_mut(uri).is_some_and(|watch| watch.clients.remove(&client));
        let last = removed && by_uri.get(uri).is_some_and(|watch| watch.clients.is_empty());
        if last {
            by_uri.remove(uri);
        }
        last
    }

    /// Forgets a client; what nobody watches any more.
    pub(super) fn remove_client(&self, client: ClientId) -> Vec<String> {
        let its = |watch: &mut ResourceSubscription| watch.clients.remove(&Some(client)) && watch.clients.is_empty();
        self.lock_by_uri().extract_if(.., |_, watch| its(watch)).map(|(uri, _)| uri).collect()
    }

    pub(super) fn contains(&self, uri: &str) -> bool {
        self.lock_by_uri().contains_key(uri)
    }

    pub(super) fn clear(&self) {
        self.take();
    }

    pub(super) fn take(&self) -> SubscriptionsByUri {
        std::mem::take(&mut *self.lock_by_uri())
    }

    /// Watches also what was watched elsewhere.
    pub(super) fn merge(&self, uris: SubscriptionsByUri) {
        let mut by_uri = self.lock_by_uri();
        for (uri, watch) in uris {
            by_uri.entry(uri).or_default().clients.extend(watch.clients);
        }
    }

    /// Whether it is time to look at the connection again; the next time is later. What was well for long begins anew.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut next = self.next_check.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = next.filter(|(at, _)| now.saturating_duration_since(*at) <= MAX_CHECK_INTERVAL);
        let (at, pause) = recent.unwrap_or((now, MIN_CHECK_INTERVAL));
        let due = at <= now;
        if due {
            *next = Some((now + pause, (pause * 2).min(MAX_CHECK_INTERVAL)));
        }
        due
    }

    /// Asks over a connection for what is watched and was asked for over another, or in vain. What changed in between
    /// was not told, so all of it may have.
    pub(super) async fn resubscribe(self: Arc<Self>, live: Arc<McpConnection>, id: SourceId, news: SourceEvents) {
        let renewing = async {
            let _turn = self.change_lock.lock().await;
            let lost =
                |(uri, watch): (&String, &ResourceSubscription)| (!watch.is_established_on(&live)).then(|| uri.clone());
            let uris: Vec<String> = self.lock_by_uri().iter().filter_map(lost).collect();
            for uri in uris.iter().filter(|uri| self.contains(uri)) {
                let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
                match live
                    .client
                    .request("resources/subscribe", Some(&params), &RequestOptions::new(SUBSCRIPTION_REQUEST_TIMEOUT))
                    .await
                {
                    Ok(_) => {
                        self.mark_established(uri, &live);
                        news.notify(&id, "notifications/resources/updated", Some(&params));
                    }
                    Err(_) if !live.is_usable() => return,
                    Err(error) => {
                        tracing::debug!(server_name = %id, error = error.kind(), "a resource is not watched now");
                    }
                }
            }
        };
        let in_time = timeout(RESUBSCRIBE_TIMEOUT, renewing).await.is_ok();
        if !in_time || self.is_outdated_on(&live) {
            tracing::warn!(server_name = %id, "not all resources could be watched again; tried again later");
        }
    }

    fn lock_by_uri(&self) -> MutexGuard<'_, SubscriptionsByUri> {
        self.by_uri.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch that is being asked for: kept already, so that it is renewed with the connection, and not kept without
/// the server's consent.
pub(super) struct PendingSubscription<'a> {
    subscriptions: &'a SubscriptionSet,
    uri: &'a str,
    client: Option<ClientId>,
    pub(super) is_new: bool,
}

impl PendingSubscription<'_> {
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
