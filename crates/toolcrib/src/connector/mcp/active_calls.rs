//! Who has requests in flight on one connection. What its server asks or says by itself does not name a request, so it
//! reaches a client only while that client alone is being served; where there are several, it is declined.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use toolcrib_mcp::{RpcError, ServerRequest, ServerRequestHandler};

use crate::call::{CallNotification, ClientId};
use crate::connector::CallContext;

const ELICITATION_METHOD: &str = "elicitation/create";
const SAMPLING_METHOD: &str = "sampling/createMessage";

/// What we say we can do, to every server and always, so that its list does not depend on who asks.
pub(super) const CLIENT_CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{}}"#;

#[derive(Debug, Default)]
pub(super) struct ActiveCalls {
    calls: Mutex<Vec<ActiveCall>>,
    next_number: AtomicU64,
    call_ended: Notify,
}

struct ActiveCall {
    number: u64,
    client: Option<ClientId>,
    on_server_request: Option<ServerRequestHandler>,
    notifications: Option<mpsc::Sender<CallNotification>>,
    pending_questions: PendingQuestions,
}

/// One who is present, until dropped.
#[derive(Debug)]
pub(super) struct CallGuard {
    calls: Arc<ActiveCalls>,
    number: u64,
    pub(super) pending_questions: PendingQuestions,
}

/// How many questions wait for the person behind a call. One that was cut off in mid-question still counts: it is why
/// there was no answer in time.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingQuestions(Arc<AtomicUsize>);

impl ActiveCalls {
    pub(super) fn register(self: &Arc<Self>, terms: &CallContext) -> CallGuard {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let asking = PendingQuestions::default();
        self.lock_calls().push(ActiveCall {
            number,
            client: terms.client,
            on_server_request: terms.on_server_request.clone(),
            notifications: terms.notifications.clone(),
            pending_questions: asking.clone(),
        });
        CallGuard { calls: self.clone(), number, pending_questions: asking }
    }

    /// Answers what the server asks without saying for which request.
    pub(super) fn handler(self: &Arc<Self>) -> ServerRequestHandler {
        let callers = self.clone();
        Arc::new(move |request| {
            let callers = callers.clone();
            async move { callers.answer_server_request(request).await }.boxed()
        })
    }

    async fn answer_server_request(&self, request: ServerRequest) -> Result<Box<RawValue>, RpcError> {
        let method = request.method.clone();
        let Some((client, back, asking)) = self.sole_client(&method) else { return decline(&method) };
        asking.iter().for_each(PendingQuestions::begin);
        let answer = tokio::select! {
            answer = back(request) => answer,
            // The question ends with the last call it can belong to.
            () = self.wait_for_client_calls_end(client) => return decline(&method),
        };
        asking.iter().for_each(PendingQuestions::end);
        answer
    }

    /// The one client that is being served, how to ask it, and which calls of its wait for that.
    fn sole_client(&self, method: &str) -> Option<(ClientId, ServerRequestHandler, Vec<PendingQuestions>)> {
        let present = self.lock_calls();
        let newest = present.last().filter(|_| is_client_request(method))?;
        let client = newest.client?;
        let alone = present.iter().all(|other| other.client == Some(client) && other.on_server_request.is_some());
        let asking = present.iter().map(|other| other.pending_questions.clone()).collect();
        Some((client, newest.on_server_request.clone().filter(|_| alone)?, asking))
    }

    /// Passes on what the server says, to the one client that is being served.
    pub(super) fn forward_notification(&self, method: &str, params: Option<&RawValue>) {
        let present = self.lock_calls();
        let Some(client) = present.last().and_then(|newest| newest.client) else { return };
        if present.iter().any(|other| other.client != Some(client)) {
            return;
        }
        if let Some(said) = present.iter().rev().find_map(|other| other.notifications.as_ref()) {
            let said_now = CallNotification { method: method.to_owned(), params: params.map(ToOwned::to_owned) };
            let _full_or_gone = said.try_send(said_now);
        }
    }

    async fn wait_for_client_calls_end(&self, client: ClientId) {
        loop {
            let mut left = std::pin::pin!(self.call_ended.notified());
            left.as_mut().enable();
            if !self.lock_calls().iter().any(|present| present.client == Some(client)) {
                return;
            }
            left.await;
        }
    }

    fn lock_calls(&self) -> MutexGuard<'_, Vec<ActiveCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.calls.lock_calls().retain(|present| present.number != self.number);
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

    pub(super) fn is_any_pending(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Answers what the server asks for one request and says so (`input_required`): that is always its caller's.
    pub(super) fn handler(&self, back: Option<ServerRequestHandler>) -> ServerRequestHandler {
        let asking = self.clone();
        Arc::new(move |request: ServerRequest| {
            let asking = asking.clone();
            let back = back.clone().filter(|_| is_client_request(&request.method));
            async move {
                let Some(back) = back else { return decline(&request.method) };
                asking.begin();
                let answer = back(request).await;
                asking.end();
                answer
            }
            .boxed()
        })
    }
}

fn is_client_request(method: &str) -> bool {
    matches!(method, ELICITATION_METHOD | SAMPLING_METHOD)
}

/// What a server gets where nobody can be asked.
fn decline(method: &str) -> Result<Box<RawValue>, RpcError> {
    const USER_REJECTED: i64 = -1;
    match method {
        ELICITATION_METHOD => Ok(RawValue::from_string(r#"{"action":"decline"}"#.to_owned()).unwrap_or_default()),
        SAMPLING_METHOD => Err(RpcError::new(USER_REJECTED, "no client can be asked to sample for this call")),
        other => Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("this client does not answer `{other}`"))),
    }
}

impl std::fmt::Debug for ActiveCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Present").field("number", &self.number).field("client", &self.client).finish_non_exhaustive()
    }
}
