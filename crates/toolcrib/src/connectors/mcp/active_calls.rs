//! Calls in flight on one connection. Before the 2026 protocol, a server's own requests and notifications do not name
//! the call they belong to. They are routed to a client only while all calls in flight are from that client; otherwise
//! requests are declined and notifications dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Notify;
use toolcrib_core::json::RawFields;
use toolcrib_mcp::{RpcError, ServerRequest, ServerRequestHandler};

use crate::connector::{CallContext, ClientId, NotificationListener, QuestionError, QuestionHandler, SourceQuestion};

/// Server request that asks the user for input.
const ELICITATION_METHOD: &str = "elicitation/create";
/// Server request that asks the client's model for a completion.
const SAMPLING_METHOD: &str = "sampling/createMessage";

/// Capabilities announced to every server, regardless of the client, so that a server's tool list does not depend on
/// who is connected. A question for which no client can be found is declined; see `decline`.
const CLIENT_CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{}}"#;

/// Maximum size of the extensions that a client can have declared to a server.
const MAX_EXTENSIONS_BYTES: usize = 16 * 1024;

/// Returns the capabilities to declare to a server: those of Toolcrib, and the extensions of the only client that the
/// connection serves.
pub(super) fn client_capabilities(extensions: Option<&RawValue>) -> Box<RawValue> {
    let mut capabilities: RawFields = serde_json::from_str(CLIENT_CAPABILITIES).unwrap_or_default();
    if let Some(extensions) = extensions.filter(|extensions| extensions.get().len() <= MAX_EXTENSIONS_BYTES) {
        capabilities.insert("extensions", extensions.to_owned());
    }
    to_raw_value(&capabilities).unwrap_or_default()
}

/// Returns the capabilities to declare to a server of 2026-07-28 with a request of a client: of those that the client
/// declared, the ones that Toolcrib forwards.
pub(super) fn usable_capabilities(declared: &RawValue) -> Box<RawValue> {
    let declared = RawFields::parse(declared).unwrap_or_default();
    let mut usable = RawFields::default();
    for name in ["elicitation", "sampling"] {
        if let Some(capability) = declared.get(name) {
            usable.insert(name, capability.to_owned());
        }
    }
    let extensions = declared.get("extensions").filter(|extensions| RawFields::parse(extensions).is_some());
    if let Some(extensions) = extensions.filter(|extensions| extensions.get().len() <= MAX_EXTENSIONS_BYTES) {
        usable.insert("extensions", extensions.to_owned());
    }
    to_raw_value(&usable).unwrap_or_default()
}

/// Returns the extensions that a client declares. Most declare none, which a search in the text tells.
pub(super) fn declared_extensions(capabilities: &RawValue) -> Option<Box<RawValue>> {
    capabilities.get().contains(r#""extensions""#).then_some(())?;
    let extensions = RawFields::parse(capabilities)?.get("extensions")?.to_owned();
    RawFields::parse(&extensions)?;
    Some(extensions)
}

/// Registry of the calls in flight on one connection.
#[derive(Debug, Default)]
pub(super) struct ActiveCalls {
    /// In the order of their start, the newest last.
    calls: Mutex<Vec<ActiveCall>>,
    /// Number of the next call.
    next_number: AtomicU64,
    /// Notified whenever a call ends.
    call_ended: Notify,
}

/// One call in flight and how to reach its client.
struct ActiveCall {
    /// Identifies the call when its guard is dropped; unique on this connection.
    number: u64,
    /// `None` for calls of the embedding program. Such a call makes every question ambiguous.
    client: Option<ClientId>,
    /// `None` if the client cannot be asked; then no question is forwarded while this call is in flight.
    on_question: Option<QuestionHandler>,
    /// Receives log messages; `None` if the caller wants none.
    on_notification: Option<NotificationListener>,
    pending_questions: PendingQuestions,
}

/// RAII guard that keeps a call registered until dropped.
#[derive(Debug)]
pub(super) struct CallGuard {
    calls: Arc<ActiveCalls>,
    number: u64,
    /// Shared with the registered call.
    pub(super) pending_questions: PendingQuestions,
}

/// Number of questions to the user that a call waits for. A question that was cut off by the timeout still counts: it
/// explains why there was no response in time.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingQuestions(Arc<AtomicUsize>);

impl ActiveCalls {
    /// Registers a call for as long as the guard lives.
    pub(super) fn register(self: &Arc<Self>, context: &CallContext) -> CallGuard {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let pending_questions = PendingQuestions::default();
        self.calls.lock().push(ActiveCall {
            number,
            client: context.client,
            on_question: context.on_question.clone(),
            on_notification: context.on_notification.clone(),
            pending_questions: pending_questions.clone(),
        });
        CallGuard { calls: self.clone(), number, pending_questions }
    }

    /// Handler for server requests that do not name the call they belong to.
    pub(super) fn handler(self: &Arc<Self>) -> ServerRequestHandler {
        let active_calls = self.clone();
        Arc::new(move |request| {
            let active_calls = active_calls.clone();
            async move { active_calls.answer_server_request(request).await }.boxed()
        })
    }

    /// Forwards the request to the only client with calls in flight, or declines it.
    async fn answer_server_request(&self, request: ServerRequest) -> Result<Box<RawValue>, RpcError> {
        let method = request.method.clone();
        let Some((client, on_question, pending_questions)) = self.sole_client(&method) else {
            return decline(&method);
        };
        // The question counts for all calls of the client, since it may belong to any of them.
        pending_questions.iter().for_each(PendingQuestions::begin);
        let response = tokio::select! {
            response = ask_client(&on_question, request) => response,
            // The question ends with the last call that it can belong to.
            () = self.wait_for_client_calls_end(client) => return decline(&method),
        };
        pending_questions.iter().for_each(PendingQuestions::end);
        response
    }

    /// The only client with calls in flight, its request handler, and the question counters of its calls. `None` if
    /// several clients are being served, if one of the calls has no handler, or if the method is not forwarded.
    fn sole_client(&self, method: &str) -> Option<(ClientId, QuestionHandler, Vec<PendingQuestions>)> {
        let calls = self.calls.lock();
        // The newest call stands for all of them: below, all must be of the same client.
        let newest = calls.last().filter(|_| is_client_request(method))?;
        let client = newest.client?;
        let alone = calls.iter().all(|call| call.client == Some(client) && call.on_question.is_some());
        let pending_questions = calls.iter().map(|call| call.pending_questions.clone()).collect();
        Some((client, newest.on_question.clone().filter(|_| alone)?, pending_questions))
    }

    /// Forwards a notification to the only client with calls in flight; drops it if there are several.
    pub(super) fn forward_notification(&self, method: &str, params: Option<&RawValue>) {
        let calls = self.calls.lock();
        let Some(client) = calls.last().and_then(|newest| newest.client) else { return };
        if calls.iter().any(|call| call.client != Some(client)) {
            return;
        }
        let listener = calls.iter().rev().find_map(|call| call.on_notification.clone());
        drop(calls);
        if let Some(listener) = listener {
            listener(method, params);
        }
    }

    /// Resolves when the client has no call in flight.
    async fn wait_for_client_calls_end(&self, client: ClientId) {
        loop {
            let mut call_ended = std::pin::pin!(self.call_ended.notified());
            // Enable before checking, so that a call that ends in between is not missed.
            call_ended.as_mut().enable();
            if !self.calls.lock().iter().any(|calls| calls.client == Some(client)) {
                return;
            }
            call_ended.await;
        }
    }
}

/// Wakes questions that wait for this call: the last call of a client takes its open question with it.
impl Drop for CallGuard {
    fn drop(&mut self) {
        self.calls.calls.lock().retain(|calls| calls.number != self.number);
        self.calls.call_ended.notify_waiters();
    }
}

impl PendingQuestions {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a question is unanswered.
    pub(super) fn is_any_pending(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Handler for server requests that belong to one call (`input_required` results of the 2026 protocol). They always
    /// go to the caller of that call.
    pub(super) fn handler(&self, on_question: Option<QuestionHandler>) -> ServerRequestHandler {
        let pending_questions = self.clone();
        Arc::new(move |request: ServerRequest| {
            let pending_questions = pending_questions.clone();
            let on_question = on_question.clone().filter(|_| is_client_request(&request.method));
            async move {
                let Some(on_question) = on_question else { return decline(&request.method) };
                pending_questions.begin();
                let response = ask_client(&on_question, request).await;
                pending_questions.end();
                response
            }
            .boxed()
        })
    }
}

/// Passes a request of the server on to the client.
async fn ask_client(on_question: &QuestionHandler, request: ServerRequest) -> Result<Box<RawValue>, RpcError> {
    let answer = on_question(SourceQuestion { method: request.method, params: request.params }).await;
    answer.map_err(|QuestionError { code, message, data }| RpcError { code, message, data })
}

/// Whether Toolcrib forwards this server request to a client.
fn is_client_request(method: &str) -> bool {
    matches!(method, ELICITATION_METHOD | SAMPLING_METHOD)
}

/// Response to a server request that no client can answer.
fn decline(method: &str) -> Result<Box<RawValue>, RpcError> {
    // MCP specification: "User rejected sampling request".
    const USER_REJECTED: i64 = -1;
    match method {
        ELICITATION_METHOD => Ok(RawValue::from_string(r#"{"action":"decline"}"#.to_owned()).unwrap_or_default()),
        SAMPLING_METHOD => Err(RpcError::new(USER_REJECTED, "no client can be asked to sample for this call")),
        other => Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("this client does not support `{other}`"))),
    }
}

impl std::fmt::Debug for ActiveCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveCall").field("number", &self.number).field("client", &self.client).finish_non_exhaustive()
    }
}
