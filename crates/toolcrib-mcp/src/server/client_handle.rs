//! The service's handle to the client during a request: progress, notifications, and questions (elicitation, sampling,
//! roots).
//!
//! A service asks in the same way in both eras. To a legacy client the question is a JSON-RPC request on the stream of
//! the request in progress, and the answer a separate message; to a client of 2026-07-28 it is an `input_required`
//! result (`input_required`), and the answer part of the repeated request.

use std::sync::{Arc, OnceLock};

use serde_json::{json, value::RawValue};
use tokio::time::timeout;

use super::{
    client_requests::ClientRequests,
    event_buffer::MessagePriority,
    request::{Request, request_cancelled_error, request_ended_error},
};
use crate::{
    error::RpcError,
    message::{self, RawObject, to_raw},
};

/// Sends messages to the client of one request. It may outlive the request; then it does nothing.
#[derive(Debug, Clone)]
pub struct ClientHandle {
    request: Arc<Request>,
}

impl ClientHandle {
    /// Creates the handle of a request.
    pub(super) fn new(request: Arc<Request>) -> ClientHandle {
        ClientHandle { request }
    }

    /// Returns the client's reason for cancelling the request; it is set before the request's token fires.
    pub fn cancel_reason(&self) -> Arc<OnceLock<String>> {
        self.request.cancel_reason().clone()
    }

    /// Whether the client sent a progress token and can receive progress.
    pub fn wants_progress(&self) -> bool {
        self.request.wants_progress()
    }

    /// Sends `notifications/progress` with these parameters; their token is replaced with that of the client. Dropped
    /// when the client did not ask for progress or does not read: progress must never slow down the work.
    pub fn report_progress(&self, params: &RawValue) {
        if !self.wants_progress() {
            return;
        }
        let Some(mut params) = RawObject::parse(params) else { return };
        let encode = |token: Option<&RawValue>| {
            if let Some(token) = token {
                params.set("progressToken", token.to_owned());
            }
            message::encode_notification("notifications/progress", Some(&*params.to_raw()?))
        };
        self.request.try_send(encode, MessagePriority::Droppable);
    }

    /// Sends any other notification that belongs to this request, such as `notifications/message`. Dropped when the
    /// client does not read.
    pub fn notify(&self, method: &str, params: Option<&RawValue>) {
        // In 2026-07-28 a client gets log messages only if the request asks for them.
        if method == "notifications/message" && self.request.is_modern() && !self.request.wants_logs() {
            return;
        }
        self.request.try_send(|_| message::encode_notification(method, params), MessagePriority::Droppable);
    }

    /// Whether the client can answer requests of this method now: it declared the capability (`elicitation/create`,
    /// `sampling/createMessage`, `roots/list`), and the protocol allows to ask during this request.
    pub fn supports_request(&self, method: &str) -> bool {
        let request = &self.request;
        // A modern client can be asked through a result, for the methods that allow one. A legacy client needs a stream
        // to receive the question and a session to which its answer can be addressed.
        let is_reachable = if request.is_modern() {
            matches!(request.method(), "tools/call" | "prompts/get" | "resources/read")
        } else {
            request.can_stream() && request.client_requests().is_some()
        };
        let declared = required_capability(method)
            .and_then(|key| RawObject::parse(&request.peer().capabilities)?.get(key).map(drop));
        is_reachable && declared.is_some()
    }

    /// Sends a request to the client and waits for its answer: as a JSON-RPC request in the legacy era, as an
    /// `input_required` result in 2026-07-28. Fails when the client cannot answer it, does not answer within
    /// [`ServerOptions::ask_timeout`](super::ServerOptions::ask_timeout), or cancels the request in progress.
    pub async fn send_request(&self, method: &str, params: Option<&RawValue>) -> Result<Box<RawValue>, RpcError> {
        let request = &self.request;
        if !self.supports_request(method) || !self.supports_elicitation_mode(method, params) {
            return Err(unsupported_request(method, params, request.is_modern()));
        }
        let limit = request.shared().options.ask_timeout;
        let asking = async {
            match (request.is_modern(), request.client_requests()) {
                (false, Some(client_requests)) => {
                    timeout(limit, self.send_legacy_request(client_requests, method, params)).await
                }
                // A suspended request has its own deadline.
                (true, _) | (false, None) => Ok(request.ask(method, params).await),
            }
        };
        tokio::select! {
            biased;
            answer = asking => answer.unwrap_or_else(|_| {
                let limit = limit.as_secs();
                Err(RpcError::new(RpcError::INTERNAL, format!("the client did not answer `{method}` in {limit} s")))
            }),
            () = request.cancellation().cancelled() => Err(request_cancelled_error()),
        }
    }

    /// Sends a JSON-RPC request on the stream of the client's request. The answer arrives as a separate message. If
    /// this future is dropped, the guard withdraws the question.
    async fn send_legacy_request(
        &self,
        client_requests: &Arc<ClientRequests>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Box<RawValue>, RpcError> {
        let (id, answer) = client_requests.open_question();
        let _guard = ClientQuestionGuard { client: self, client_requests, id };
        let text = message::encode_request(id, method, params).map_err(|_| request_ended_error())?;
        if !self.request.send(text, MessagePriority::Required).await {
            return Err(request_ended_error());
        }
        let disconnected = |_| Err(RpcError::new(RpcError::INTERNAL, "the client disconnected"));
        answer.await.unwrap_or_else(disconnected)
    }

    /// Whether the client declared the mode of an elicitation. An empty declaration means forms only.
    fn supports_elicitation_mode(&self, method: &str, params: Option<&RawValue>) -> bool {
        if method != "elicitation/create" {
            return true;
        }
        let Some(declared) = RawObject::parse(&self.request.peer().capabilities) else { return false };
        let Some(modes) = declared.get("elicitation").and_then(RawObject::parse) else { return true };
        match elicitation_mode(params) {
            "url" => modes.get("url").is_some(),
            _ => modes.get("form").is_some() || modes.get("url").is_none(),
        }
    }
}

/// RAII guard for a question to a legacy client. If dropped before the answer, it cancels the question on the client.
struct ClientQuestionGuard<'a> {
    client: &'a ClientHandle,
    client_requests: &'a Arc<ClientRequests>,
    id: u64,
}

impl Drop for ClientQuestionGuard<'_> {
    fn drop(&mut self) {
        if self.client_requests.close_question(self.id) {
            self.client.request.try_send(|_| message::encode_cancelled(self.id, None), MessagePriority::Required);
        }
    }
}

/// Returns the client capability that a request needs; `None` for methods that servers may not call.
fn required_capability(method: &str) -> Option<&'static str> {
    match method {
        "elicitation/create" => Some("elicitation"),
        "sampling/createMessage" => Some("sampling"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}

/// Returns the mode of an elicitation; `form` is the default.
fn elicitation_mode(params: Option<&RawValue>) -> &'static str {
    let mode = params.and_then(RawObject::parse).and_then(|params| params.get_string("mode"));
    if mode.as_deref() == Some("url") { "url" } else { "form" }
}

/// The error for a request that the client cannot answer. In 2026-07-28 its data names the missing capability, so that
/// a client can declare it and repeat the request.
fn unsupported_request(method: &str, params: Option<&RawValue>, modern: bool) -> RpcError {
    let message = format!("this request needs an answer of the client to `{method}`, which it does not support");
    let required = match (modern, required_capability(method)) {
        (true, Some("elicitation")) => json!({ "elicitation": { elicitation_mode(params): {} } }),
        (true, Some(key)) => json!({ key: {} }),
        (true, None) | (false, _) => return RpcError::new(RpcError::METHOD_NOT_FOUND, message),
    };
    let data = to_raw(&json!({ "requiredCapabilities": required })).ok();
    RpcError { code: RpcError::MISSING_CAPABILITY, message, data }
}
