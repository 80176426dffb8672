//! The other direction: requests a server makes of us, answered by the caller's handler.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{ClientTransport, WireConnection, lock};
use crate::{
    era::Era,
    error::RpcError,
    message,
    options::{ServerRequest, ServerRequestHandler},
};

/// How many requests of one server are answered at once.
const MAX_CONCURRENT_SERVER_REQUESTS: usize = 32;

/// The server's requests being answered, by their id.
#[derive(Default)]
pub(super) struct ActiveServerRequests(Mutex<HashMap<String, CancellationToken>>);

impl ActiveServerRequests {
    /// The server takes a request back.
    pub(super) fn cancel(&self, id: &str) {
        if let Some(cancel) = lock(&self.0).remove(id) {
            cancel.cancel();
        }
    }

    fn begin(&self, id: &str) -> Option<CancellationToken> {
        let mut serving = lock(&self.0);
        let cancel = CancellationToken::new();
        (serving.len() < MAX_CONCURRENT_SERVER_REQUESTS && serving.insert(id.to_owned(), cancel.clone()).is_none())
            .then_some(cancel)
    }
}

impl WireConnection {
    /// Answers a request of the server, by `handler` where it is known what it is about.
    pub(super) fn handle_server_request(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        handler: Option<ServerRequestHandler>,
    ) {
        if self.era() == Era::Modern {
            tracing::debug!(method, "ignored a request, which servers of 2026 do not make");
            return;
        }
        let Some(cancel) = self.server_requests.begin(id.get()) else {
            tracing::debug!(method, "ignored a request: too many at once, or one id twice");
            return;
        };
        let request = ServerRequest { method: method.to_owned(), params: params.map(ToOwned::to_owned) };
        let (connection, id) = (self.clone(), id.to_owned());
        self.spawn(async move {
            let answering =
                connection.respond_to_server(&id, request, handler.as_ref().or(connection.options.handler.as_ref()));
            let _taken_back = cancel.run_until_cancelled(answering).await;
            lock(&connection.server_requests.0).remove(id.get());
        });
    }

    async fn respond_to_server(
        self: &Arc<Self>,
        id: &RawValue,
        request: ServerRequest,
        handler: Option<&ServerRequestHandler>,
    ) {
        let outcome = match (request.method.as_str(), handler) {
            ("ping", _) => Ok(RawValue::from_string("{}".to_owned()).unwrap_or_default()),
            (_, Some(handler)) => call_handler(handler, request).await,
            (other, None) => Err(method_not_found(other)),
        };
        let sent = match message::encode_response(id, &outcome) {
            Ok(text) => self.send_message("", text).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(error = error.kind(), "an answer did not reach the server");
        }
    }

    /// Tells the server that nobody waits for an answer any more, without waiting for it to hear.
    pub(super) fn notify_cancelled(self: &Arc<Self>, id: u64) {
        let Ok(text) = message::encode_cancelled(id) else { return };
        match &self.transport {
            ClientTransport::Stdio(pipe) => pipe.try_send(text),
            // To the modern era the closed response stream says it all.
            ClientTransport::Http(_) if self.era() == Era::Modern => {}
            ClientTransport::Http(_) | ClientTransport::Sse(_) => {
                let connection = self.clone();
                self.spawn(async move {
                    let _best_effort = connection.send_message("notifications/cancelled", text).await;
                });
            }
        }
    }
}

/// Asks a handler, which may panic without taking the connection along.
pub(crate) async fn call_handler(
    handler: &ServerRequestHandler,
    request: ServerRequest,
) -> Result<Box<RawValue>, RpcError> {
    use futures_util::FutureExt;
    let answering = std::panic::AssertUnwindSafe(async { handler(request).await });
    let outcome = answering.catch_unwind().await;
    outcome.unwrap_or_else(|_| Err(RpcError::new(RpcError::INTERNAL, "the client failed to answer")))
}

pub(crate) fn method_not_found(method: &str) -> RpcError {
    RpcError::new(RpcError::METHOD_NOT_FOUND, format!("this client does not answer `{method}`"))
}
