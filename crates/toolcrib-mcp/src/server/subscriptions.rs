//! Subscriptions of clients of 2026-07-28: `subscriptions/listen` with its filter.
//!
//! A subscription is a request that is answered when it ends: first `notifications/subscriptions/acknowledged` with the
//! part of the filter that is granted, then the changes, each with the id of the subscription in `_meta`.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures_util::{StreamExt, future::join_all};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use tokio_util::sync::CancellationToken;

use super::{
    ChangeNotification, ClientHandle, McpRequest,
    change_notifications::encode_change,
    event_buffer::MessagePriority,
    handshake,
    request::{Request, request_ended_error},
};
use crate::{
    connection::SUBSCRIPTION_KEY,
    error::RpcError,
    message::{self, RawObject, to_raw},
};

/// The changes that a subscription asks for, and in the acknowledgement those that it gets. Unknown keys are ignored.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct SubscriptionFilter {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tools_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    prompts_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_subscriptions: Vec<String>,
}

impl SubscriptionFilter {
    /// Parses the parameters of `subscriptions/listen`.
    fn parse(params: Option<&RawValue>) -> Result<SubscriptionFilter, RpcError> {
        let message = "`notifications` must be an object that names the changes to listen for";
        let invalid = || RpcError::new(RpcError::INVALID_PARAMS, message);
        let params = params.and_then(RawObject::parse).ok_or_else(invalid)?;
        let filter = params.get("notifications").ok_or_else(invalid)?;
        serde_json::from_str(filter.get()).map_err(|_| invalid())
    }

    /// Removes the changes that the server capabilities do not announce.
    fn restrict_to(mut self, capabilities: &RawValue) -> SubscriptionFilter {
        let capabilities = RawObject::parse(capabilities).unwrap_or_default();
        let announces = |capability: &str, key: &str| {
            let capability = capabilities.get(capability).and_then(RawObject::parse);
            capability.is_some_and(|capability| capability.get(key).is_some_and(|value| value.get() == "true"))
        };
        self.tools_list_changed &= announces("tools", "listChanged");
        self.prompts_list_changed &= announces("prompts", "listChanged");
        self.resources_list_changed &= announces("resources", "listChanged");
        if !announces("resources", "subscribe") {
            self.resource_subscriptions.clear();
        }
        self
    }

    /// Whether the subscription asks for this change.
    fn matches(&self, change: &ChangeNotification) -> bool {
        match change {
            ChangeNotification::Tools => self.tools_list_changed,
            ChangeNotification::Prompts => self.prompts_list_changed,
            ChangeNotification::Resources => self.resources_list_changed,
            ChangeNotification::Resource { uri } => self.resource_subscriptions.contains(uri),
        }
    }
}

/// Number of subscriptions per resource URI, on a byte stream, which has one client. Locked while the service is called,
/// so that it gets subscribe and unsubscribe of one resource in order.
#[derive(Debug, Default)]
pub(super) struct ResourceSubscribers(tokio::sync::Mutex<HashMap<String, usize>>);

/// RAII guard for the resources of one subscription. It calls the service with `resources/subscribe` and
/// `resources/unsubscribe`, as a legacy client would, so that the service has one code path; on drop it unsubscribes
/// from resources that no other subscription of the client needs.
struct ResourceSubscriptionGuard {
    request: Arc<Request>,
    /// Resources that the service agreed to watch.
    uris: BTreeSet<String>,
}

impl ResourceSubscriptionGuard {
    /// Subscribes to the resources; those that the service rejects are left out. A byte stream counts its subscribers
    /// per resource, because all subscriptions share one peer; a stateless peer has one subscription only.
    async fn subscribe(request: &Arc<Request>, uris: Vec<String>) -> ResourceSubscriptionGuard {
        // Each resource costs a call of the service; those beyond the bound are not acknowledged.
        const MAX_RESOURCES_PER_SUBSCRIPTION: usize = 100;
        let uris: BTreeSet<String> = uris.into_iter().take(MAX_RESOURCES_PER_SUBSCRIPTION).collect();
        let mut guard = ResourceSubscriptionGuard { request: request.clone(), uris: BTreeSet::new() };
        if request.peer().is_stateless {
            guard.uris = guard.request_resources(uris).await;
            return guard;
        }
        let mut subscribers = request.shared().resource_subscribers.0.lock().await;
        uris.iter().for_each(|uri| *subscribers.entry(uri.clone()).or_default() += 1);
        // If this future is dropped while the service works, the guard releases all of them.
        guard.uris.clone_from(&uris);
        let accepted = guard.request_resources(uris).await;
        for rejected in guard.uris.difference(&accepted) {
            release_resource(&mut subscribers, rejected);
        }
        drop(subscribers);
        guard.uris = accepted;
        guard
    }

    /// Calls the service for all resources concurrently; returns those it accepted.
    async fn request_resources(&self, uris: BTreeSet<String>) -> BTreeSet<String> {
        let requests = uris.into_iter().map(|uri| async move {
            let cancel = self.request.cancellation().clone();
            call_service(&self.request, "resources/subscribe", &uri, cancel).await.then_some(uri)
        });
        join_all(requests).await.into_iter().flatten().collect()
    }
}

impl Drop for ResourceSubscriptionGuard {
    fn drop(&mut self) {
        let request = self.request.clone();
        let uris = std::mem::take(&mut self.uris);
        // A stateless peer disconnects with its subscription, and all peers when the server stops; `on_disconnect` then
        // releases their resources.
        if request.peer().is_stateless || uris.is_empty() || request.shared().draining.is_cancelled() {
            return;
        }
        let closing = request.shared().closing.clone();
        self.request.shared().tasks.spawn(closing.run_until_cancelled_owned(async move {
            let mut subscribers = request.shared().resource_subscribers.0.lock().await;
            let unused: Vec<&String> = uris.iter().filter(|uri| release_resource(&mut subscribers, uri)).collect();
            // The token of the subscription may have fired already.
            let cancel = || request.shared().closing.child_token();
            let requests = unused.into_iter().map(|uri| call_service(&request, "resources/unsubscribe", uri, cancel()));
            join_all(requests).await;
        }));
    }
}

/// Decrements the subscriber count of a resource; returns whether that was the last subscriber.
fn release_resource(subscribers: &mut HashMap<String, usize>, uri: &str) -> bool {
    let Some(count) = subscribers.get_mut(uri) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        subscribers.remove(uri);
    }
    is_last
}

/// Calls the service with a legacy subscription request; returns whether it succeeded.
async fn call_service(request: &Arc<Request>, method: &str, uri: &str, cancel: CancellationToken) -> bool {
    let call = McpRequest {
        method: method.to_owned(),
        params: to_raw(&json!({ "uri": uri })).ok(),
        peer: request.peer().clone(),
        cancel,
        client: ClientHandle::new(request.clone()),
        extensions: request.peer().extensions(),
    };
    request.shared().service.handle_request(call).await.is_ok()
}

/// Answers `subscriptions/listen`: acknowledges the filter, then sends changes until either side ends the subscription.
pub(super) async fn run_subscription(
    request: Arc<Request>,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, RpcError> {
    if !request.can_stream() {
        let message = "`subscriptions/listen` needs a client that accepts `text/event-stream`";
        return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
    }
    let filter = SubscriptionFilter::parse(params.as_deref())?;
    let shared = request.shared();
    let peer = request.peer();
    // Start before the acknowledgement, so that no change after it is missed.
    let mut changes = shared.service.changes(peer);
    let mut filter = filter.restrict_to(&handshake::describe_service(shared, peer).await?.capabilities);
    let uris = std::mem::take(&mut filter.resource_subscriptions);
    let guard = ResourceSubscriptionGuard::subscribe(&request, uris).await;
    filter.resource_subscriptions = guard.uris.iter().cloned().collect();
    let id = request.id().ok_or_else(request_ended_error)?;
    let meta = json!({ SUBSCRIPTION_KEY: id });
    let acknowledged = to_raw(&json!({ "notifications": filter, "_meta": meta }))
        .and_then(|params| message::encode_notification("notifications/subscriptions/acknowledged", Some(&params)));
    request.send(acknowledged?, MessagePriority::Required).await;
    loop {
        let change = tokio::select! {
            biased;
            () = shared.draining.cancelled() => None,
            () = request.cancellation().cancelled() => None,
            change = changes.next() => change,
        };
        match change {
            Some(change) if filter.matches(&change) => {
                request.send(encode_change(&change, Some(&meta))?, MessagePriority::Deduplicated).await;
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(to_raw(&json!({ "_meta": meta }))?)
}
