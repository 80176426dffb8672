//! News of changes: to a session or stream of old as they come, to a subscription of 2026-07-28 as far as it asked.

use std::sync::Arc;

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::{Change, Outlet, Request, exchange::Exchange, feed::Weight, greet};
use crate::{
    error::{RpcError, WireError},
    message::{self, RawObject, raw},
};

const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// A change as a notification, with what it says about its subscription.
pub(super) fn notification(change: &Change, meta: Option<&serde_json::Value>) -> Result<String, WireError> {
    let (method, uri) = match change {
        Change::Tools => ("notifications/tools/list_changed", None),
        Change::Prompts => ("notifications/prompts/list_changed", None),
        Change::Resources => ("notifications/resources/list_changed", None),
        Change::Resource { uri } => ("notifications/resources/updated", Some(uri)),
    };
    let mut params = serde_json::Map::new();
    params.extend(uri.map(|uri| ("uri".to_owned(), json!(uri))));
    params.extend(meta.map(|meta| ("_meta".to_owned(), meta.clone())));
    let params = if params.is_empty() { None } else { Some(raw(&params)?) };
    message::notification(method, params.as_deref())
}

/// What a subscription wants to hear of.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tools_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    prompts_list_changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_subscriptions: Vec<String>,
}

impl Filter {
    fn read(params: Option<&RawValue>) -> Result<Filter, RpcError> {
        let invalid =
            || RpcError::new(RpcError::INVALID_PARAMS, "`notifications` says what to listen to, and is an object");
        let params = params.and_then(RawObject::open).ok_or_else(invalid)?;
        let filter = params.get("notifications").ok_or_else(invalid)?;
        serde_json::from_str(filter.get()).map_err(|_| invalid())
    }

    /// Without what the server does not announce.
    fn within(mut self, capabilities: &RawValue) -> Filter {
        let capabilities = RawObject::open(capabilities).unwrap_or_default();
        let says = |part: &str, key: &str| {
            let part = capabilities.get(part).and_then(RawObject::open);
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

    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools_list_changed,
            Change::Prompts => self.prompts_list_changed,
            Change::Resources => self.resources_list_changed,
            Change::Resource { uri } => self.resource_subscriptions.contains(uri),
        }
    }
}

/// Those of the resources that the service agrees to watch. It is asked as clients of old ask, one by one, so that a
/// service need not know that there are two ways.
async fn watched(exchange: &Arc<Exchange>, uris: Vec<String>) -> Vec<String> {
    const MOST: usize = 100;
    let asked = uris.into_iter().take(MOST).map(|uri| async move {
        let request = Request {
            method: "resources/subscribe".to_owned(),
            params: raw(&json!({ "uri": uri })).ok(),
            peer: exchange.peer.clone(),
            cancel: exchange.cancel.clone(),
            outlet: Outlet::new(exchange.clone()),
        };
        exchange.shared.service.request(request).await.is_ok().then_some(uri)
    });
    futures_util::future::join_all(asked).await.into_iter().flatten().collect()
}

/// `subscriptions/listen`: acknowledges, then tells of changes until either side ends it.
pub(super) async fn subscription(
    exchange: Arc<Exchange>,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, RpcError> {
    if !exchange.manner.talks {
        return Err(RpcError::new(
            RpcError::INVALID_REQUEST,
            "a subscription needs a client that accepts event streams",
        ));
    }
    let filter = Filter::read(params.as_deref())?;
    let (shared, peer) = (&exchange.shared, &exchange.peer);
    // Before the acknowledgement, so that nothing that changes after it is missed.
    let mut changes = shared.service.changes(peer);
    let mut filter = filter.within(&greet::greeting(shared, peer).await?.capabilities);
    filter.resource_subscriptions = watched(&exchange, filter.resource_subscriptions).await;
    let id = crate::connection::lock(&exchange.way).id.clone();
    let meta = json!({ SUBSCRIPTION_KEY: id });
    let acknowledged = raw(&json!({ "notifications": filter, "_meta": meta }))
        .and_then(|params| message::notification("notifications/subscriptions/acknowledged", Some(&params)));
    exchange.tell(acknowledged?, Weight::Needed).await;
    loop {
        let change = tokio::select! {
            biased;
            () = shared.draining.cancelled() => None,
            () = exchange.cancel.cancelled() => None,
            change = changes.next() => change,
        };
        match change {
            Some(change) if filter.wants(&change) => {
                exchange.tell(notification(&change, Some(&meta))?, Weight::Once).await;
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(raw(&json!({ "_meta": meta }))?)
}
