//! The resources a server was asked to tell about. It forgets them with its session, so a new one asks for them again.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{json, value::RawValue};

use super::{OutgoingRequest, RequestContext, WireConnection, deadline_after, lock};
use crate::message::{RawObject, to_raw};

/// How many are remembered.
const MAX_RESOURCE_SUBSCRIPTIONS: usize = 10_000;
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Before what was refused is asked for again; twice as long each time.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct SubscribedResources(Mutex<BTreeSet<String>>);

impl WireConnection {
    /// Remembers what a request that was granted asked for.
    pub(crate) fn track_subscription(&self, method: &str, params: Option<&RawValue>) {
        if !matches!(method, "resources/subscribe" | "resources/unsubscribe") {
            return;
        }
        let Some(uri) = params.and_then(RawObject::parse).and_then(|params| params.get_string("uri")) else { return };
        let mut watched = lock(&self.subscribed_resources.0);
        if method == "resources/unsubscribe" {
            watched.remove(&uri);
        } else if watched.len() < MAX_RESOURCE_SUBSCRIPTIONS {
            watched.insert(uri);
        }
    }

    /// Asks for all of it in a new session, and again for what was refused. What changed in between was not told, so all
    /// of it may have.
    pub(super) fn resubscribe(self: &Arc<Self>) {
        let connection = self.clone();
        self.spawn(async move {
            let session = connection.transport.session();
            let (mut lost, mut pause) = (lock(&connection.subscribed_resources.0).clone(), INITIAL_BACKOFF);
            loop {
                for uri in std::mem::take(&mut lost) {
                    if !lock(&connection.subscribed_resources.0).contains(&uri) {
                        continue;
                    }
                    let Ok(params) = to_raw(&json!({ "uri": uri })) else { continue };
                    let (method, headers) = ("resources/subscribe", http::HeaderMap::new());
                    let ask = OutgoingRequest { method, params: Some(&params), headers, relay: None };
                    match connection
                        .request_once(&ask, &RequestContext::with_deadline(deadline_after(SUBSCRIBE_TIMEOUT)))
                        .await
                    {
                        Ok(Some(_)) => {
                            connection.on_notification("notifications/resources/updated", Some(&params), || None)
                        }
                        Ok(None) => return,
                        Err(error) => {
                            tracing::debug!(
                                error = error.kind(),
                                "a resource is not watched now; asked for again later"
                            );
                            lost.insert(uri);
                        }
                    }
                }
                if lost.is_empty() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_BACKOFF);
                // The next session has somebody who asks for all of it.
                if connection.transport.session() != session {
                    return;
                }
            }
        });
    }
}
