//! `subscriptions/listen` of 2026-07-28: one long-running request whose response stream carries list changes.
//!
//! Legacy servers send the same notifications without a subscription, so this runs in the modern era only. The task
//! belongs to the connection, which aborts it when it ends. Notifications on the stream take the usual path through
//! `WireConnection::dispatch_for_request`, so this module only keeps the request open:
//!
//! ```json
//! {"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}
//! ```

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::ServerDescription;
use crate::{
    connection::{ConnectionEvent, OutgoingRequest, WireConnection},
    error::WireError,
    message::{RawObject, to_raw},
    options::RequestOptions,
};

/// Delay before the subscription is renewed after one that lasted. One that ended within [`MAX_BACKOFF`] waits twice as
/// long as the attempt before it.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay between attempts. A subscription that lasted longer counts as healthy and resets the backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Starts a background task that subscribes to the list changes named in the server's capabilities, if any.
pub(super) fn start(connection: &Arc<WireConnection>, server: &ServerDescription) {
    let Some(capabilities) = RawObject::parse(&server.capabilities) else { return };
    let announces = |capability: &str| {
        let changed = capabilities.get(capability).and_then(RawObject::parse)?.get("listChanged")?.get() == "true";
        changed.then_some(true)
    };
    let lists =
        [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];
    let filter: serde_json::Map<_, _> =
        lists.iter().filter_map(|(capability, key)| Some(((*key).to_owned(), announces(capability)?.into()))).collect();
    // A server that announces no changes would send none, and may reject the request.
    if filter.is_empty() {
        return;
    }
    let Ok(params) = to_raw(&json!({ "notifications": filter })) else { return };
    let listening = connection.clone();
    connection.spawn(async move {
        listen(&listening, &OutgoingRequest::new("subscriptions/listen", Some(&params))).await;
    });
}

/// Keeps the subscription open, with exponential backoff, until the server rejects it.
async fn listen(connection: &Arc<WireConnection>, request: &OutgoingRequest<'_>) {
    let mut backoff = INITIAL_BACKOFF;
    loop {
        let started = Instant::now();
        match connection.request(request, &RequestOptions::new(Duration::MAX)).await {
            // An orderly end, a lost connection and a server error may all be temporary, for example a restart.
            Ok(_) | Err(WireError::Closed { .. } | WireError::Connect(_) | WireError::Timeout { .. }) => {}
            Err(WireError::Status { status, .. }) if status >= 500 => {}
            // Any other error is an answer of the server: it does not support subscriptions.
            Err(error) => {
                tracing::debug!(error = error.kind(), "the server rejected `subscriptions/listen`");
                return;
            }
        }
        backoff = if started.elapsed() > MAX_BACKOFF { INITIAL_BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
        sleep(backoff).await;
        // The server does not repeat changes made while no subscription was open, so assume that there were some.
        connection.publish(ConnectionEvent::ToolsChanged);
    }
}
