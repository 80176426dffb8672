//! Change notifications (`list_changed`, `resources/updated`): their encoding, and sending them to legacy clients.
//!
//! A legacy client gets all changes without a filter, on the notification stream of its session or on its byte stream.
//! A client of 2026-07-28 gets those that it subscribed to (`subscriptions`).

use futures_util::{StreamExt, stream::BoxStream};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{ChangeNotification, event_buffer::MessagePriority, sink::Sink};
use crate::{
    error::WireError,
    message::{self, to_raw},
};

/// Sends all changes to a legacy client until `draining` fires.
pub(super) async fn send_changes(
    mut changes: BoxStream<'static, ChangeNotification>,
    sink: Sink,
    draining: CancellationToken,
) {
    while let Some(Some(change)) = draining.run_until_cancelled(changes.next()).await {
        if let Ok(text) = encode_change(&change, None) {
            // Fails when the writer of a byte stream ended; `closing` fires then.
            let _ = sink.send(text, MessagePriority::Deduplicated).await;
        }
    }
}

/// Encodes a change as a notification. `meta` names the subscription; legacy clients get none.
pub(super) fn encode_change(
    change: &ChangeNotification,
    meta: Option<&serde_json::Value>,
) -> Result<String, WireError> {
    let (method, uri) = match change {
        ChangeNotification::Tools => ("notifications/tools/list_changed", None),
        ChangeNotification::Prompts => ("notifications/prompts/list_changed", None),
        ChangeNotification::Resources => ("notifications/resources/list_changed", None),
        ChangeNotification::Resource { uri } => ("notifications/resources/updated", Some(uri)),
    };
    let mut params = serde_json::Map::new();
    params.extend(uri.map(|uri| ("uri".to_owned(), json!(uri))));
    params.extend(meta.map(|meta| ("_meta".to_owned(), meta.clone())));
    let params = if params.is_empty() { None } else { Some(to_raw(&params)?) };
    message::encode_notification(method, params.as_deref())
}
