//! The subscription of 2026-07-28: one request that never ends and brings the news of changed lists.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::ServerSays;
use crate::{
    connection::{Ask, Connection, Notice, Terms, after},
    error::WireError,
    message::{RawObject, raw},
};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Subscribes to the changes a server says it announces.
pub(super) fn start(connection: &Arc<Connection>, server: &ServerSays) {
    let Some(capabilities) = RawObject::open(&server.capabilities) else { return };
    let announces = |part: &str| {
        let changed = capabilities.get(part).and_then(RawObject::open)?.get("listChanged")?.get() == "true";
        changed.then_some(true)
    };
    let filter =
        [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];
    let filter: serde_json::Map<_, _> =
        filter.iter().filter_map(|(part, key)| Some(((*key).to_owned(), announces(part)?.into()))).collect();
    if filter.is_empty() {
        return;
    }
    let Ok(params) = raw(&json!({ "notifications": filter })) else { return };
    let listening = connection.clone();
    connection.spawn(async move {
        let (method, headers) = ("subscriptions/listen", http::HeaderMap::new());
        let ask = Ask { method, params: Some(&params), headers, relay: None };
        listen(&listening, &ask).await;
    });
}

async fn listen(connection: &Arc<Connection>, ask: &Ask<'_>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        match connection.request(ask, &Terms::until(after(Duration::MAX))).await {
            Ok(_) | Err(WireError::Closed { .. } | WireError::Connect(_) | WireError::Timeout { .. }) => {}
            Err(WireError::Status { status, .. }) if status >= 500 => {}
            Err(error) => {
                tracing::debug!(error = error.kind(), "the server does not announce changes after all");
                return;
            }
        }
        pause = if begun.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        sleep(pause).await;
        // What changed while nobody listened is not told again.
        connection.announce(Notice::ToolsChanged);
    }
}
