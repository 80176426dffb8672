//! News of changes: to a session or stream of old as they come, to a subscription of 2026-07-28 as far as it asked.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures_util::{StreamExt, future::join_all};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use tokio_util::sync::CancellationToken;

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

/// The resources of one subscription. The service is asked as clients of old ask, one by one, so that it need not know
/// that there are two ways; and hears at the end of those that no other subscription of the client holds.
struct Holding {
    exchange: Arc<Exchange>,
    uris: BTreeSet<String>,
}

impl Holding {
    /// As many of the resources as the service agrees to watch.
    async fn begin(exchange: &Arc<Exchange>, uris: Vec<String>) -> Holding {
        const MOST: usize = 100;
        let uris: BTreeSet<String> = uris.into_iter().take(MOST).collect();
        let mut holding = Holding { exchange: exchange.clone(), uris: BTreeSet::new() };
        if exchange.peer.fleeting {
            holding.uris = holding.granted(uris).await;
            return holding;
        }
        let mut listened = exchange.shared.listened.lock().await;
        uris.iter().for_each(|uri| *listened.entry(uri.clone()).or_default() += 1);
        // Whoever drops this on the way gives all of them back.
        holding.uris.clone_from(&uris);
        let granted = holding.granted(uris).await;
        for refused in holding.uris.difference(&granted) {
            release(&mut listened, refused);
        }
        drop(listened);
        holding.uris = granted;
        holding
    }

    async fn granted(&self, uris: BTreeSet<String>) -> BTreeSet<String> {
        let asked = uris.into_iter().map(|uri| async move {
            let cancel = self.exchange.cancel.clone();
            ask(&self.exchange, "resources/subscribe", &uri, cancel).await.then_some(uri)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let (exchange, uris) = (self.exchange.clone(), std::mem::take(&mut self.uris));
        // A client that is its one subscription leaves with it; and all leave soon when the server does.
        if exchange.peer.fleeting || uris.is_empty() || exchange.shared.draining.is_cancelled() {
            return;
        }
        let closing = exchange.shared.closing.clone();
        self.exchange.shared.tasks.spawn(closing.run_until_cancelled_owned(async move {
            let mut listened = exchange.shared.listened.lock().await;
            let last: Vec<&String> = uris.iter().filter(|uri| release(&mut listened, uri)).collect();
            // The request itself may be cancelled.
            let cancel = || exchange.shared.closing.child_token();
            join_all(last.into_iter().map(|uri| ask(&exchange, "resources/unsubscribe", uri, cancel()))).await;
        }));
    }
}

/// Whether nobody else holds it.
fn release(listened: &mut HashMap<String, usize>, uri: &str) -> bool {
    let Some(holders) = listened.get_mut(uri) else { return false };
    *holders -= 1;
    let last = *holders == 0;
    if last {
        listened.remove(uri);
    }
    last
}

async fn ask(exchange: &Arc<Exchange>, method: &str, uri: &str, cancel: CancellationToken) -> bool {
    let request = Request {
        method: method.to_owned(),
        params: raw(&json!({ "uri": uri })).ok(),
        peer: exchange.peer.clone(),
        cancel,
        outlet: Outlet::new(exchange.clone()),
        extensions: http::Extensions::new(),
    };
    exchange.shared.service.request(request).await.is_ok()
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
    let holding = Holding::begin(&exchange, std::mem::take(&mut filter.resource_subscriptions)).await;
    filter.resource_subscriptions = holding.uris.iter().cloned().collect();
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
