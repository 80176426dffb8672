//! News of changes: to a session or stream of old as they come, to a subscription of 2026-07-28 as far as it asked.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures_util::{StreamExt, future::join_all};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use tokio_util::sync::CancellationToken;

use super::{
    ChangeNotification, ClientHandle, McpRequest, event_buffer::MessagePriority, handshake, request_state::RequestState,
};
use crate::{
    error::{RpcError, WireError},
    message::{self, RawObject, to_raw},
};

const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// A change as a notification, with what it says about its subscription.
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

/// What a subscription wants to hear of.
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
    fn parse(params: Option<&RawValue>) -> Result<SubscriptionFilter, RpcError> {
        let invalid =
            || RpcError::new(RpcError::INVALID_PARAMS, "`notifications` says what to listen to, and is an object");
        let params = params.and_then(RawObject::parse).ok_or_else(invalid)?;
        let filter = params.get("notifications").ok_or_else(invalid)?;
        serde_json::from_str(filter.get()).map_err(|_| invalid())
    }

    /// Without what the server does not announce.
    fn restrict_to(mut self, capabilities: &RawValue) -> SubscriptionFilter {
        let capabilities = RawObject::parse(capabilities).unwrap_or_default();
        let says = |part: &str, key: &str| {
            let part = capabilities.get(part).and_then(RawObject::parse);
            part.is_some_and(|part| part.get(key).is_some_and(|says| says.get() == "true"))
        };
        self.tools_list_changed &= says("tools", "listChanged");
        self.prompts_list_changed &= says("prompts", "listChanged");
        self.resources_list_changed &= says("resources", "listChanged");
        if !says("resources", "subscribe") {
            self.resource_subscriptions.clear();
        }
        self
    }

    fn matches(&self, change: &ChangeNotification) -> bool {
        match change {
            ChangeNotification::Tools => self.tools_list_changed,
            ChangeNotification::Prompts => self.prompts_list_changed,
            ChangeNotification::Resources => self.resources_list_changed,
            ChangeNotification::Resource { uri } => self.resource_subscriptions.contains(uri),
        }
    }
}

/// The resources of one subscription. The service is asked as clients of old ask, one by one, so that it need not know
/// that there are two ways; and hears at the end of those that no other subscription of the client holds.
struct ResourceSubscriptionGuard {
    exchange: Arc<RequestState>,
    uris: BTreeSet<String>,
}

impl ResourceSubscriptionGuard {
    /// As many of the resources as the service agrees to watch.
    async fn subscribe(exchange: &Arc<RequestState>, uris: Vec<String>) -> ResourceSubscriptionGuard {
        const MAX_RESOURCES_PER_SUBSCRIPTION: usize = 100;
        let uris: BTreeSet<String> = uris.into_iter().take(MAX_RESOURCES_PER_SUBSCRIPTION).collect();
        let mut holding = ResourceSubscriptionGuard { exchange: exchange.clone(), uris: BTreeSet::new() };
        if exchange.peer.is_stateless {
            holding.uris = holding.request_resources(uris).await;
            return holding;
        }
        let mut listened = exchange.shared.resource_subscribers.lock().await;
        uris.iter().for_each(|uri| *listened.entry(uri.clone()).or_default() += 1);
        // Whoever drops this on the way gives all of them back.
        holding.uris.clone_from(&uris);
        let granted = holding.request_resources(uris).await;
        for refused in holding.uris.difference(&granted) {
            release_resource(&mut listened, refused);
        }
        drop(listened);
        holding.uris = granted;
        holding
    }

    async fn request_resources(&self, uris: BTreeSet<String>) -> BTreeSet<String> {
        let asked = uris.into_iter().map(|uri| async move {
            let cancel = self.exchange.cancel.clone();
            call_service(&self.exchange, "resources/subscribe", &uri, cancel).await.then_some(uri)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}

impl Drop for ResourceSubscriptionGuard {
    fn drop(&mut self) {
        let (exchange, uris) = (self.exchange.clone(), std::mem::take(&mut self.uris));
        // A client that is its one subscription leaves with it; and all leave soon when the server does.
        if exchange.peer.is_stateless || uris.is_empty() || exchange.shared.draining.is_cancelled() {
            return;
        }
        let closing = exchange.shared.closing.clone();
        self.exchange.shared.tasks.spawn(closing.run_until_cancelled_owned(async move {
            let mut listened = exchange.shared.resource_subscribers.lock().await;
            let last: Vec<&String> = uris.iter().filter(|uri| release_resource(&mut listened, uri)).collect();
            // The request itself may be cancelled.
            let cancel = || exchange.shared.closing.child_token();
            join_all(last.into_iter().map(|uri| call_service(&exchange, "resources/unsubscribe", uri, cancel()))).await;
        }));
    }
}

/// Whether nobody else holds it.
fn release_resource(listened: &mut HashMap<String, usize>, uri: &str) -> bool {
    let Some(holders) = listened.get_mut(uri) else { return false };
    *holders -= 1;
    let last = *holders == 0;
    if last {
        listened.remove(uri);
    }
    last
}

async fn call_service(exchange: &Arc<RequestState>, method: &str, uri: &str, cancel: CancellationToken) -> bool {
    let request = McpRequest {
        method: method.to_owned(),
        params: to_raw(&json!({ "uri": uri })).ok(),
        peer: exchange.peer.clone(),
        cancel,
        client: ClientHandle::new(exchange.clone()),
        extensions: http::Extensions::new(),
    };
    exchange.shared.service.handle_request(request).await.is_ok()
}

/// `subscriptions/listen`: acknowledges, then tells of changes until either side ends it.
pub(super) async fn run_subscription(
    exchange: Arc<RequestState>,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, RpcError> {
    if !exchange.stream_options.can_stream {
        return Err(RpcError::new(
            RpcError::INVALID_REQUEST,
            "a subscription needs a client that accepts event streams",
        ));
    }
    let filter = SubscriptionFilter::parse(params.as_deref())?;
    let (shared, peer) = (&exchange.shared, &exchange.peer);
    // Before the acknowledgement, so that nothing that changes after it is missed.
    let mut changes = shared.service.changes(peer);
    let mut filter = filter.restrict_to(&handshake::describe_service(shared, peer).await?.capabilities);
    let holding =
        ResourceSubscriptionGuard::subscribe(&exchange, std::mem::take(&mut filter.resource_subscriptions)).await;
    filter.resource_subscriptions = holding.uris.iter().cloned().collect();
    let id = crate::connection::lock(&exchange.channel).id.clone();
    let meta = json!({ SUBSCRIPTION_KEY: id });
    let acknowledged = to_raw(&json!({ "notifications": filter, "_meta": meta }))
        .and_then(|params| message::encode_notification("notifications/subscriptions/acknowledged", Some(&params)));
    exchange.send(acknowledged?, MessagePriority::Required).await;
    loop {
        let change = tokio::select! {
            biased;
            () = shared.draining.cancelled() => None,
            () = exchange.cancel.cancelled() => None,
            change = changes.next() => change,
        };
        match change {
            Some(change) if filter.matches(&change) => {
                exchange.send(encode_change(&change, Some(&meta))?, MessagePriority::Deduplicated).await;
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(to_raw(&json!({ "_meta": meta }))?)
}
