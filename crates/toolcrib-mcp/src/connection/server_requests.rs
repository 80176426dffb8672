//! Requests from the server to the client (elicitation, sampling, roots), answered by the caller's handler; and
//! cancellation of the client's own requests.
//!
//! Only legacy servers send requests; those of 2026-07-28 return `input_required` instead. A request on the response
//! stream of a call (over HTTP) is answered by the handler of that call, any other by the handler of the connection.
//! Each is answered in a task of its own, because a handler may wait for a person and reading must go on meanwhile.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{ClientTransport, WireConnection};
use crate::{
    era::Era,
    error::RpcError,
    message,
    options::{ServerRequest, ServerRequestHandler},
};

/// Maximum number of requests of one server answered concurrently; requests beyond it are ignored. Each costs a task
/// and may ask a person, so a server must not create them without bound.
const MAX_CONCURRENT_SERVER_REQUESTS: usize = 32;

/// Cancellation tokens of the server's requests being answered, by the raw JSON of their id.
#[derive(Default)]
pub(super) struct ActiveServerRequests(Mutex<HashMap<String, CancellationToken>>);

impl ActiveServerRequests {
    /// Cancels the handler of a request that the server cancelled.
    pub(super) fn cancel(&self, id: &str) {
        let mut active = self.0.lock();
        if let Some(cancel) = active.remove(id) {
            // Under the lock, so that `finish` sees either both or neither.
            cancel.cancel();
        }
    }

    /// Registers a request; `None` when there are too many or its id is in use.
    fn begin(&self, id: &str) -> Option<CancellationToken> {
        let mut active = self.0.lock();
        if active.len() >= MAX_CONCURRENT_SERVER_REQUESTS || active.contains_key(id) {
            return None;
        }
        let cancel = CancellationToken::new();
        active.insert(id.to_owned(), cancel.clone());
        Some(cancel)
    }

    /// Removes a request. After its cancellation the entry is gone, and another one may belong to a new request that
    /// uses the id again.
    fn finish(&self, id: &str, cancel: &CancellationToken) {
        let mut active = self.0.lock();
        if !cancel.is_cancelled() {
            active.remove(id);
        }
    }
}

impl WireConnection {
    /// Answers a request of the server in the background. `handler` is that of the request it belongs to, if known;
    /// otherwise the handler of the connection answers.
    pub(super) fn handle_server_request(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        handler: Option<ServerRequestHandler>,
    ) {
        if self.era() == Era::Modern {
            tracing::debug!(method, "ignored a request from the server: not allowed in 2026-07-28");
            return;
        }
        let Some(cancel) = self.server_requests.begin(id.get()) else {
            tracing::debug!(method, "ignored a request from the server: too many at once, or a duplicate id");
            return;
        };
        let request = ServerRequest { method: method.to_owned(), params: params.map(ToOwned::to_owned) };
        let connection = self.clone();
        let id = id.to_owned();
        self.spawn(async move {
            let handler = handler.as_ref().or(connection.options.handler.as_ref());
            let responding = connection.respond_to_server(&id, request, handler);
            // A cancelled request gets no response.
            let _ = cancel.run_until_cancelled(responding).await;
            connection.server_requests.finish(id.get(), &cancel);
        });
    }

    /// Computes the response and sends it to the server.
    async fn respond_to_server(
        self: &Arc<Self>,
        id: &RawValue,
        request: ServerRequest,
        handler: Option<&ServerRequestHandler>,
    ) {
        let outcome = match (request.method.as_str(), handler) {
            ("ping", _) => Ok(message::empty_object()),
            (_, Some(handler)) => call_handler(handler, request).await,
            (other, None) => Err(method_not_found(other)),
        };
        // A response has no method of its own.
        let sent = match message::encode_response(id, &outcome) {
            Ok(text) => self.send_message("", text).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(error = error.kind(), "a response did not reach the server");
        }
    }

    /// Notifies the server that a request is cancelled. Called from `drop`, so it does not wait.
    pub(super) fn notify_cancelled(self: &Arc<Self>, id: u64, reason: Option<&str>) {
        let Ok(text) = message::encode_cancelled(id, reason) else { return };
        match &self.transport {
            ClientTransport::Stdio(stdio) => stdio.try_send(text),
            // In 2026-07-28, closing the response stream cancels the request.
            ClientTransport::Http(_) if self.era() == Era::Modern => {}
            ClientTransport::Http(_) | ClientTransport::Sse(_) => {
                let connection = self.clone();
                self.spawn(async move {
                    // Best effort: without the notification, the server only computes a result that is discarded.
                    let _ = connection.send_message("notifications/cancelled", text).await;
                });
            }
        }
    }
}

/// Calls a handler and turns its panic into an error, so that the connection survives it.
pub(crate) async fn call_handler(
    handler: &ServerRequestHandler,
    request: ServerRequest,
) -> Result<Box<RawValue>, RpcError> {
    use futures_util::FutureExt;
    // The handler itself may panic before it returns a future, so it is called inside the caught one.
    let handling = std::panic::AssertUnwindSafe(async { handler(request).await });
    let outcome = handling.catch_unwind().await;
    outcome.unwrap_or_else(|_| Err(RpcError::new(RpcError::INTERNAL, "the client failed to answer")))
}

/// The error for a request that no handler answers.
pub(crate) fn method_not_found(method: &str) -> RpcError {
    RpcError::new(RpcError::METHOD_NOT_FOUND, format!("this client does not answer `{method}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the duplicate replaced the token of the first request, which could not be cancelled any more.
    #[test]
    fn a_duplicate_id_is_rejected_and_the_first_request_can_be_cancelled() {
        let active = ActiveServerRequests::default();
        let first = active.begin("1").unwrap();
        assert!(active.begin("1").is_none());
        active.cancel("1");
        assert!(first.is_cancelled());
    }

    /// Regression: the end of a cancelled request removed the entry of a later one with its id.
    #[test]
    fn the_id_of_a_cancelled_request_can_be_used_again() {
        let active = ActiveServerRequests::default();
        let first = active.begin("1").unwrap();
        active.cancel("1");
        let second = active.begin("1").unwrap();
        active.finish("1", &first);
        active.cancel("1");
        assert!(second.is_cancelled());
    }
}
