//! What a service can tell and ask a client while it answers a request.

use std::sync::Arc;

use serde_json::{json, value::RawValue};
use tokio::time::timeout;

use super::{
    exchange::{Exchange, Way},
    feed::Weight,
    held::over,
    shared::Desk,
};
use crate::{
    connection::lock,
    error::RpcError,
    message::{self, RawObject, raw},
};

/// What a client can be told while its request is answered, and asked.
#[derive(Debug, Clone)]
pub struct Outlet {
    exchange: Arc<Exchange>,
}

impl Outlet {
    pub(super) fn new(exchange: Arc<Exchange>) -> Outlet {
        Outlet { exchange }
    }

    /// Whether the client asked to hear of progress.
    pub fn wants_progress(&self) -> bool {
        self.exchange.manner.talks && lock(&self.exchange.way).progress_token.is_some()
    }

    /// Tells of progress: the parameters of `notifications/progress`, whose token is put right on the way.
    pub fn progress(&self, params: &RawValue) {
        if !self.wants_progress() {
            return;
        }
        let Some(mut params) = RawObject::open(params) else { return };
        let write = |way: &Way| {
            if let Some(token) = &way.progress_token {
                params.set("progressToken", token.clone());
            }
            message::notification("notifications/progress", Some(&*params.close()?))
        };
        self.exchange.say(write, Weight::Droppable);
    }

    /// Any other notification that belongs to this request, such as `notifications/message`.
    pub fn notify(&self, method: &str, params: Option<&RawValue>) {
        // Since 2026 a client hears of logs only when it asks for them with the request.
        if method == "notifications/message" && self.exchange.is_modern() && !self.exchange.manner.logs {
            return;
        }
        self.exchange.say(|_| message::notification(method, params), Weight::Droppable);
    }

    /// Whether the client said that it answers such requests (`elicitation/create`, `sampling/createMessage`).
    pub fn can_ask(&self, method: &str) -> bool {
        let exchange = &self.exchange;
        let reachable = match exchange.is_modern() {
            true => matches!(exchange.method.as_str(), "tools/call" | "prompts/get" | "resources/read"),
            false => exchange.manner.talks && exchange.desk.is_some(),
        };
        let declared =
            capability(method).and_then(|key| RawObject::open(&exchange.peer.capabilities)?.get(key).map(drop));
        reachable && declared.is_some()
    }

    /// Asks the client: by a request of our own in the old versions, by an `input_required` result in the new one.
    pub async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let exchange = &self.exchange;
        if !self.can_ask(method) || !self.knows_mode(method, params) {
            return Err(cannot(method, params, exchange.is_modern()));
        }
        let limit = exchange.shared.options.ask_timeout;
        let asking = async {
            match (exchange.is_modern(), &exchange.desk) {
                (false, Some(desk)) => timeout(limit, self.ask_directly(desk, method, params)).await,
                // A held request has a deadline of its own.
                (true, _) | (false, None) => Ok(exchange.ask(method, params).await),
            }
        };
        tokio::select! {
            biased;
            answer = asking => answer.unwrap_or_else(|_| {
                let limit = limit.as_secs();
                Err(RpcError::new(RpcError::INTERNAL, format!("the client did not answer `{method}` in {limit} s")))
            }),
            () = exchange.cancel.cancelled() => Err(RpcError::new(RpcError::INTERNAL, "the request was taken back")),
        }
    }

    async fn ask_directly(
        &self,
        desk: &Arc<Desk>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, RpcError> {
        let (id, answer) = desk.question();
        let _open = Question { outlet: self, desk, id };
        let text = message::request(id, method, params).map_err(|_| over())?;
        if !self.exchange.tell(text, Weight::Needed).await {
            return Err(over());
        }
        let gone = |_| Err(RpcError::new(RpcError::INTERNAL, "the client is gone"));
        answer.await.unwrap_or_else(gone)
    }

    /// Elicitation by address is declared apart from forms.
    fn knows_mode(&self, method: &str, params: Option<&RawValue>) -> bool {
        if method != "elicitation/create" {
            return true;
        }
        let Some(declared) = RawObject::open(&self.exchange.peer.capabilities) else { return false };
        let Some(modes) = declared.get("elicitation").and_then(RawObject::open) else { return true };
        match mode(params) {
            "url" => modes.get("url").is_some(),
            _ => modes.get("form").is_some() || modes.get("url").is_none(),
        }
    }
}

/// A question that was put to the client. Who stops waiting for the answer says so.
struct Question<'a> {
    outlet: &'a Outlet,
    desk: &'a Arc<Desk>,
    id: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if self.desk.forget(self.id) {
            self.outlet.exchange.say(|_| message::cancelled(self.id), Weight::Needed);
        }
    }
}

fn capability(method: &str) -> Option<&'static str> {
    match method {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

fn mode(params: Option<&RawValue>) -> &'static str {
    let mode = params.and_then(RawObject::open).and_then(|params| params.text("mode"));
    if mode.as_deref() == Some("url") { "url" } else { "form" }
}

fn cannot(method: &str, params: Option<&RawValue>, modern: bool) -> RpcError {
    let message = format!("this needs an answer from the client to `{method}`, which it did not say it can give");
    let needed = match (modern, capability(method)) {
        (true, Some("elicitation")) => json!({ "elicitation": { mode(params): {} } }),
        (true, Some(key)) => json!({ key: {} }),
        (true, None) | (false, _) => return RpcError::new(RpcError::METHOD_NOT_FOUND, message),
    };
    let data = raw(&json!({ "requiredCapabilities": needed })).ok();
    RpcError { code: RpcError::MISSING_CAPABILITY, message, data }
}
