//! The subscription of 2026-07-28: one request that never ends and brings the news of changed lists.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::ServerDescription;
use crate::{
    connection::{ConnectionEvent, OutgoingRequest, RequestContext, WireConnection, deadline_after},
    error::WireError,
    message::{RawObject, to_raw},
};

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Subscribes to the changes a server says it announces.
pub(super) fn start(connection: &Arc<WireConnection>, server: &ServerDescription) {
    let Some(capabilities) = RawObject::parse(&server.capabilities) else { return };
    let announces = |part: &str| {
        let changed = capabilities.get(part).and_then(RawObject::parse)?.get("listChanged")?.get() == "true";
        changed.then_some(true)
    };
    let filter =
        [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];
    let filter: serde_json::Map<_, _> =
        filter.iter().filter_map(|(part, key)| Some(((*key).to_owned(), announces(part)?.into()))).collect();
    if filter.is_empty() {
        return;
    }
    let Ok(params) = to_raw(&json!({ "notifications": filter })) else { return };
    let listening = connection.clone();
    connection.spawn(async move {
        let (method, headers) = ("subscriptions/listen", http::HeaderMap::new());
        let ask = OutgoingRequest { method, params: Some(&params), headers, relay: None };
        listen(&listening, &ask).await;
    });
}

async fn listen(connection: &Arc<WireConnection>, ask: &OutgoingRequest<'_>) {
    let mut pause = INITIAL_BACKOFF;
    loop {
        let begun = Instant::now();
        match connection.request(ask, &RequestContext::with_deadline(deadline_after(Duration::MAX))).await {
            Ok(_) | Err(WireError::Closed { .. } | WireError::Connect(_) | WireError::Timeout { .. }) => {}
            Err(WireError::Status { status, .. }) if status >= 500 => {}
            Err(error) => {
                tracing::debug!(error = error.kind(), "the server does not announce changes after all");
                return;
            }
        }
        pause = if begun.elapsed() > MAX_BACKOFF { INITIAL_BACKOFF } else { (pause * 2).min(MAX_BACKOFF) };
        sleep(pause).await;
        // What changed while nobody listened is not told again.
        connection.publish(ConnectionEvent::ToolsChanged);
    }
}
