//! Resources subscribed with `resources/subscribe`. A legacy server loses the subscriptions together with the session,
//! so the client subscribes again in the new session.
//!
//! Only requests that the server accepted are tracked, by the URI alone. Servers of 2026-07-28 have no session that
//! could be lost.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{json, value::RawValue};

use super::{OutgoingRequest, WireConnection};
use crate::{
    message::{RawObject, to_raw},
    options::RequestOptions,
};

/// Maximum number of tracked subscriptions. Those beyond it work, but do not survive a lost session. The URIs come from
/// outside, so the table must not grow without bound.
const MAX_RESOURCE_SUBSCRIPTIONS: usize = 10_000;
/// Maximum time for one `resources/subscribe` in a new session.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before rejected subscriptions are tried again; doubled after each round up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay between rounds.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// URIs of the subscribed resources.
#[derive(Default)]
pub(super) struct SubscribedResources(Mutex<BTreeSet<String>>);

impl WireConnection {
    /// Records the effect of a request that the server accepted, if it is a subscription.
    pub(crate) fn track_subscription(&self, method: &str, params: Option<&RawValue>) {
        if !matches!(method, "resources/subscribe" | "resources/unsubscribe") {
            return;
        }
        let Some(uri) = params.and_then(RawObject::parse).and_then(|params| params.get_string("uri")) else { return };
        let mut subscribed = self.subscribed_resources.0.lock();
        if method == "resources/unsubscribe" {
            subscribed.remove(&uri);
        } else if subscribed.len() < MAX_RESOURCE_SUBSCRIPTIONS {
            subscribed.insert(uri);
        }
    }

    /// Subscribes to all tracked resources in a new session, in the background, and retries those the server rejects.
    /// Publishes an update for each, because the client may have missed one in between.
    pub(super) fn resubscribe(self: &Arc<Self>) {
        let connection = self.clone();
        self.spawn(async move {
            // A lost session ends this task: its successor has a task of its own.
            let session = connection.transport.session();
            let mut remaining = connection.subscribed_resources.0.lock().clone();
            let mut backoff = INITIAL_BACKOFF;
            loop {
                for uri in std::mem::take(&mut remaining) {
                    // The caller may have unsubscribed meanwhile.
                    if !connection.subscribed_resources.0.lock().contains(&uri) {
                        continue;
                    }
                    let Ok(params) = to_raw(&json!({ "uri": uri })) else { continue };
                    let request = OutgoingRequest::new("resources/subscribe", Some(&params));
                    match connection.request_once(&request, &RequestOptions::new(SUBSCRIBE_TIMEOUT)).await {
                        Ok(Some(_)) => {
                            connection.on_notification("notifications/resources/updated", Some(&params), || None)
                        }
                        // This session is lost too; its renewal subscribes again.
                        Ok(None) => return,
                        Err(error) => {
                            // A server that was restarted just now may not be ready.
                            tracing::debug!(error = error.kind(), "subscribing to a resource failed; retrying later");
                            remaining.insert(uri);
                        }
                    }
                }
                if remaining.is_empty() {
                    return;
                }
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                // A newer session has its own task that subscribes to everything.
                if connection.transport.session() != session {
                    return;
                }
            }
        });
    }
}
