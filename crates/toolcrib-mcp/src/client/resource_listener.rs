//! Subscriptions to resources at a server of 2026-07-28. That version has no `resources/subscribe`: one
//! `subscriptions/listen` request names all resources, and another one replaces it when they change.
//!
//! ```json
//! {"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["file:///notes/todo.md"]}}}
//! ```
//!
//! Updates on the stream take the usual path to the handler of the connection.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::McpClient;
use crate::{
    connection::{OutgoingRequest, WireConnection},
    error::{RpcError, WireError, sanitize_excerpt},
    message::{self, RawObject, to_raw},
    options::{NotificationHandler, RequestOptions},
};

/// Maximum number of resources of one connection; all of them are part of each `subscriptions/listen` request.
const MAX_RESOURCES: usize = 1000;
/// Delay before a subscription is renewed that the server ended; doubled up to [`MAX_BACKOFF`] while that goes on.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum delay between attempts. A subscription that lasted longer resets the backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The subscription of one connection.
#[derive(Default)]
pub(super) struct ResourceListener(tokio::sync::Mutex<ListenState>);

#[derive(Default)]
struct ListenState {
    uris: BTreeSet<String>,
    /// Ends the `subscriptions/listen` request when it is replaced or dropped.
    _listening: Option<DropGuard>,
}

/// Parameters of `notifications/subscriptions/acknowledged`.
#[derive(Deserialize)]
struct Acknowledgement {
    notifications: GrantedResources,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GrantedResources {
    #[serde(default)]
    resource_subscriptions: Vec<String>,
}

/// The resources that the server agreed to watch, or why it refused.
type Granted = Result<Vec<String>, WireError>;

impl McpClient {
    /// Handles `resources/subscribe` and `resources/unsubscribe` within the deadline of the request.
    pub(super) async fn change_resource_subscription(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: &RequestOptions<'_>,
    ) -> Result<Box<RawValue>, WireError> {
        let uri = params.and_then(RawObject::parse).and_then(|params| params.get_string("uri"));
        let invalid = |message: &str| WireError::Rpc(RpcError::new(RpcError::INVALID_PARAMS, message));
        let uri = uri.ok_or_else(|| invalid("`uri` is missing"))?;
        tokio::select! {
            biased;
            changed = self.change_resources(method == "resources/subscribe", uri) => changed,
            () = options.cancelled() => return Err(WireError::Cancelled { sent: true }),
            () = tokio::time::sleep_until(options.deadline) => return Err(WireError::Timeout { sent: true }),
        }?;
        Ok(message::empty_object())
    }

    /// Adds or removes a resource, and replaces the subscription if that changes it. The old one ends after the new one
    /// was acknowledged, so that no update is missed. If this fails or is dropped, the old one stays.
    async fn change_resources(&self, is_added: bool, uri: String) -> Result<(), WireError> {
        let mut state = self.resource_listener.0.lock().await;
        let mut uris = state.uris.clone();
        let is_changed = if is_added { uris.insert(uri.clone()) } else { uris.remove(&uri) };
        if !is_changed {
            return Ok(());
        }
        let rejected = |code, message: String| WireError::Rpc(RpcError::new(code, message));
        if is_added && !self.offers_resource_subscriptions() {
            let message = "the server offers no subscriptions to resources".to_owned();
            return Err(rejected(RpcError::METHOD_NOT_FOUND, message));
        }
        if uris.len() > MAX_RESOURCES {
            let message = format!("more than {MAX_RESOURCES} resources are subscribed over this connection");
            return Err(rejected(RpcError::INVALID_PARAMS, message));
        }
        if uris.is_empty() {
            *state = ListenState::default();
            return Ok(());
        }
        let (listening, acknowledged) = start_listening(&self.connection.0, &uris)?;
        let ended = || WireError::Protocol("the subscription ended before it was acknowledged".to_owned());
        let granted = acknowledged.await.unwrap_or_else(|_| Err(ended()))?;
        if is_added && !granted.contains(&uri) {
            let message = format!("the server does not send updates of `{}`", sanitize_excerpt(&uri));
            return Err(rejected(RpcError::INVALID_PARAMS, message));
        }
        *state = ListenState { uris, _listening: Some(listening) };
        Ok(())
    }

    /// Whether the server announces `resources.subscribe`.
    fn offers_resource_subscriptions(&self) -> bool {
        let capabilities = RawObject::parse(&self.server.capabilities).unwrap_or_default();
        let resources = capabilities.get("resources").and_then(RawObject::parse);
        resources.is_some_and(|resources| resources.get("subscribe").is_some_and(|value| value.get() == "true"))
    }
}

/// Starts a task that keeps a `subscriptions/listen` request for these resources open until the guard is dropped.
fn start_listening(
    connection: &Arc<WireConnection>,
    uris: &BTreeSet<String>,
) -> Result<(DropGuard, oneshot::Receiver<Granted>), WireError> {
    let params = to_raw(&json!({ "notifications": { "resourceSubscriptions": uris } }))?;
    let (sender, acknowledged) = oneshot::channel();
    let end = CancellationToken::new();
    let task = listen(connection.clone(), params, uris.clone(), sender);
    let ended = end.clone();
    connection.spawn(async move {
        let _ = ended.run_until_cancelled(task).await;
    });
    Ok((end.drop_guard(), acknowledged))
}

/// Keeps the request open, with exponential backoff. The result of the first attempt goes to `acknowledged`; if it
/// failed, the task ends.
async fn listen(
    connection: Arc<WireConnection>,
    params: Box<RawValue>,
    uris: BTreeSet<String>,
    acknowledged: oneshot::Sender<Granted>,
) {
    let acknowledged = Arc::new(Mutex::new(Some(acknowledged)));
    let handler = acknowledgement_handler(&connection, acknowledged.clone());
    let request = OutgoingRequest::new("subscriptions/listen", Some(&params));
    let mut backoff = INITIAL_BACKOFF;
    loop {
        let started = Instant::now();
        let options = RequestOptions { on_notification: Some(&handler), ..RequestOptions::new(Duration::MAX) };
        let outcome = connection.request(&request, &options).await;
        if let Some(waiting) = acknowledged.lock().take() {
            // The receiver is gone when the caller gave up.
            let _ = waiting.send(outcome.map(|_| Vec::new()));
            return;
        }
        backoff = if started.elapsed() > MAX_BACKOFF { INITIAL_BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
        sleep(backoff).await;
        // The server does not repeat updates that were made while no subscription was open.
        for uri in &uris {
            let params = to_raw(&json!({ "uri": uri })).ok();
            connection.on_notification("notifications/resources/updated", params.as_deref(), || None);
        }
    }
}

/// Handler for the notifications of the request: reports the acknowledgement, and passes all others on to the handler of
/// the connection.
fn acknowledgement_handler(
    connection: &Arc<WireConnection>,
    acknowledged: Arc<Mutex<Option<oneshot::Sender<Granted>>>>,
) -> NotificationHandler {
    // Weak, because the table of pending requests, which holds the handler, is part of the connection.
    let connection: Weak<WireConnection> = Arc::downgrade(connection);
    Arc::new(move |method, params| {
        if method != "notifications/subscriptions/acknowledged" {
            let connection = connection.upgrade();
            if let Some(handler) =
                connection.as_ref().and_then(|connection| connection.options.on_notification.as_ref())
            {
                handler(method, params);
            }
            return;
        }
        let granted: Option<Acknowledgement> = params.and_then(|params| serde_json::from_str(params.get()).ok());
        let granted = granted.map(|granted| granted.notifications.resource_subscriptions).unwrap_or_default();
        if let Some(waiting) = acknowledged.lock().take() {
            let _ = waiting.send(Ok(granted));
        }
    })
}
