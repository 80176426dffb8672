//! What a service can tell and ask a client while it answers a request.

use std::sync::Arc;

use serde_json::{json, value::RawValue};
use tokio::time::timeout;

use super::{
    event_buffer::MessagePriority,
    input_required::request_ended_error,
    request_state::{RequestState, ResponseChannel},
    shared::ClientRequests,
};
use crate::{
    connection::lock,
    error::RpcError,
    message::{self, RawObject, to_raw},
};

/// What a client can be told while its request is answered, and asked.
#[derive(Debug, Clone)]
pub struct ClientHandle {
    request_state: Arc<RequestState>,
}

impl ClientHandle {
    pub(super) fn new(exchange: Arc<RequestState>) -> ClientHandle {
        ClientHandle { request_state: exchange }
    }

    /// Whether the client asked to hear of progress.
    pub fn wants_progress(&self) -> bool {
        self.request_state.stream_options.can_stream && lock(&self.request_state.channel).progress_token.is_some()
    }

    /// Tells of progress: the parameters of `notifications/progress`, whose token is put right on the way.
    pub fn report_progress(&self, params: &RawValue) {
        if !self.wants_progress() {
            return;
        }
        let Some(mut params) = RawObject::parse(params) else { return };
        let write = |way: &ResponseChannel| {
            if let Some(token) = &way.progress_token {
                params.set("progressToken", token.clone());
            }
            message::encode_notification("notifications/progress", Some(&*params.to_raw()?))
        };
        self.request_state.try_send(write, MessagePriority::Droppable);
    }

    /// Any other notification that belongs to this request, such as `notifications/message`.
    pub fn notify(&self, method: &str, params: Option<&RawValue>) {
        // Since 2026 a client hears of logs only when it asks for them with the request.
        if method == "notifications/message"
            && self.request_state.is_modern()
            && !self.request_state.stream_options.wants_logs
        {
            return;
        }
        self.request_state.try_send(|_| message::encode_notification(method, params), MessagePriority::Droppable);
    }

    /// Whether the client said that it answers such requests (`elicitation/create`, `sampling/createMessage`).
    pub fn supports_request(&self, method: &str) -> bool {
        let exchange = &self.request_state;
        let reachable = match exchange.is_modern() {
            true => matches!(exchange.method.as_str(), "tools/call" | "prompts/get" | "resources/read"),
            false => exchange.stream_options.can_stream && exchange.client_requests.is_some(),
        };
        let declared = required_capability(method)
            .and_then(|key| RawObject::parse(&exchange.peer.capabilities)?.get(key).map(drop));
        reachable && declared.is_some()
    }

    /// Asks the client: by a request of our own in the old versions, by an `input_required` result in the new one.
    pub async fn send_request(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let exchange = &self.request_state;
        if !self.supports_request(method) || !self.supports_elicitation_mode(method, params) {
            return Err(unsupported_request(method, params, exchange.is_modern()));
        }
        let limit = exchange.shared.options.ask_timeout;
        let asking = async {
            match (exchange.is_modern(), &exchange.client_requests) {
                (false, Some(desk)) => timeout(limit, self.send_legacy_request(desk, method, params)).await,
                // A held request has a deadline of its own.
                (true, _) | (false, None) => Ok(exchange.ask_client(method, params).await),
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

    async fn send_legacy_request(
        &self,
        desk: &Arc<ClientRequests>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, RpcError> {
        let (id, answer) = desk.open_question();
        let _open = ClientQuestionGuard { client: self, client_requests: desk, id };
        let text = message::encode_request(id, method, params).map_err(|_| request_ended_error())?;
        if !self.request_state.send(text, MessagePriority::Required).await {
            return Err(request_ended_error());
        }
        let gone = |_| Err(RpcError::new(RpcError::INTERNAL, "the client is gone"));
        answer.await.unwrap_or_else(gone)
    }

    /// Elicitation by address is declared apart from forms.
    fn supports_elicitation_mode(&self, method: &str, params: Option<&RawValue>) -> bool {
        if method != "elicitation/create" {
            return true;
        }
        let Some(declared) = RawObject::parse(&self.request_state.peer.capabilities) else { return false };
        let Some(modes) = declared.get("elicitation").and_then(RawObject::parse) else { return true };
        match elicitation_mode(params) {
            "url" => modes.get("url").is_some(),
            _ => modes.get("form").is_some() || modes.get("url").is_none(),
        }
    }
}

/// A question that was put to the client. Who stops waiting for the answer says so.
struct ClientQuestionGuard<'a> {
    client: &'a ClientHandle,
    client_requests: &'a Arc<ClientRequests>,
    id: u64,
}

impl Drop for ClientQuestionGuard<'_> {
    fn drop(&mut self) {
        if self.client_requests.close_question(self.id) {
            self.client.request_state.try_send(|_| message::encode_cancelled(self.id), MessagePriority::Required);
        }
    }
}

fn required_capability(method: &str) -> Option<&'static str> {
    match method {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

fn elicitation_mode(params: Option<&RawValue>) -> &'static str {
    let mode = params.and_then(RawObject::parse).and_then(|params| params.get_string("mode"));
    if mode.as_deref() == Some("url") { "url" } else { "form" }
}

fn unsupported_request(method: &str, params: Option<&RawValue>, modern: bool) -> RpcError {
    let message = format!("this needs an answer from the client to `{method}`, which it did not say it can give");
    let needed = match (modern, required_capability(method)) {
        (true, Some("elicitation")) => json!({ "elicitation": { elicitation_mode(params): {} } }),
        (true, Some(key)) => json!({ key: {} }),
        (true, None) | (false, _) => return RpcError::new(RpcError::METHOD_NOT_FOUND, message),
    };
    let data = to_raw(&json!({ "requiredCapabilities": needed })).ok();
    RpcError { code: RpcError::MISSING_CAPABILITY, message, data }
}
