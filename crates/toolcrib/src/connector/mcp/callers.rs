//! Who has requests in flight on one connection. What its server asks or says by itself does not name a request, so it
//! reaches a client only while that client alone is being served; where there are several, it is declined.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::sync::mpsc;
use toolcrib_mcp::{Handler, RpcError, ServerRequest};

use crate::call::{ClientId, Said};
use crate::connector::Terms;

const ELICITATION: &str = "elicitation/create";
const SAMPLING: &str = "sampling/createMessage";

/// What we say we can do, to every server and always, so that its list does not depend on who asks.
pub(super) const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{}}"#;

#[derive(Debug, Default)]
pub(super) struct Callers {
    present: Mutex<Vec<Present>>,
    next: AtomicU64,
    left: Notify,
}

struct Present {
    number: u64,
    client: Option<ClientId>,
    back: Option<Handler>,
    said: Option<mpsc::Sender<Said>>,
    asking: Asking,
}

/// One who is present, until dropped.
#[derive(Debug)]
pub(super) struct Seat {
    callers: Arc<Callers>,
    number: u64,
    pub(super) asking: Asking,
}

/// How many questions wait for the person behind a call. One that was cut off in mid-question still counts: it is why
/// there was no answer in time.
#[derive(Debug, Clone, Default)]
pub(super) struct Asking(Arc<AtomicUsize>);

impl Callers {
    pub(super) fn enter(self: &Arc<Self>, terms: &Terms) -> Seat {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let asking = Asking::default();
        self.present().push(Present {
            number,
            client: terms.client,
            back: terms.back.clone(),
            said: terms.said.clone(),
            asking: asking.clone(),
        });
        Seat { callers: self.clone(), number, asking }
    }

    /// Answers what the server asks without saying for which request.
    pub(super) fn handler(self: &Arc<Self>) -> Handler {
        let callers = self.clone();
        Arc::new(move |request| {
            let callers = callers.clone();
            async move { callers.answer(request).await }.boxed()
        })
    }

    async fn answer(&self, request: ServerRequest) -> Result<Box<RawValue>, RpcError> {
        let method = request.method.clone();
        let Some((client, back, asking)) = self.only_client(&method) else { return declined(&method) };
        asking.iter().for_each(Asking::begin);
        let answer = tokio::select! {
            answer = back(request) => answer,
            // The question ends with the last call it can belong to.
            () = self.until_left(client) => return declined(&method),
        };
        asking.iter().for_each(Asking::end);
        answer
    }

    /// The one client that is being served, how to ask it, and which calls of its wait for that.
    fn only_client(&self, method: &str) -> Option<(ClientId, Handler, Vec<Asking>)> {
        let present = self.present();
        let newest = present.last().filter(|_| askable(method))?;
        let client = newest.client?;
        let alone = present.iter().all(|other| other.client == Some(client) && other.back.is_some());
        let asking = present.iter().map(|other| other.asking.clone()).collect();
        Some((client, newest.back.clone().filter(|_| alone)?, asking))
    }

    /// Passes on what the server says, to the one client that is being served.
    pub(super) fn tell(&self, method: &str, params: Option<&RawValue>) {
        let present = self.present();
        let Some(client) = present.last().and_then(|newest| newest.client) else { return };
        if present.iter().any(|other| other.client != Some(client)) {
            return;
        }
        if let Some(said) = present.iter().rev().find_map(|other| other.said.as_ref()) {
            let said_now = Said { method: method.to_owned(), params: params.map(ToOwned::to_owned) };
            let _full_or_gone = said.try_send(said_now);
        }
    }

    async fn until_left(&self, client: ClientId) {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            if !self.present().iter().any(|present| present.client == Some(client)) {
                return;
            }
            left.await;
        }
    }

    fn present(&self) -> MutexGuard<'_, Vec<Present>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.callers.present().retain(|present| present.number != self.number);
        self.callers.left.notify_waiters();
    }
}

impl Asking {
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Answers what the server asks for one request and says so (`input_required`): that is always its caller's.
    pub(super) fn handler(&self, back: Option<Handler>) -> Handler {
        let asking = self.clone();
        Arc::new(move |request: ServerRequest| {
            let (asking, back) = (asking.clone(), back.clone().filter(|_| askable(&request.method)));
            async move {
                let Some(back) = back else { return declined(&request.method) };
                asking.begin();
                let answer = back(request).await;
                asking.end();
                answer
            }
            .boxed()
        })
    }
}

fn askable(method: &str) -> bool {
    matches!(method, ELICITATION | SAMPLING)
}

/// What a server gets where nobody can be asked.
fn declined(method: &str) -> Result<Box<RawValue>, RpcError> {
    const REJECTED: i64 = -1;
    match method {
        ELICITATION => Ok(RawValue::from_string(r#"{"action":"decline"}"#.to_owned()).unwrap_or_default()),
        SAMPLING => Err(RpcError::new(REJECTED, "no client can be asked to sample for this call")),
        other => Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("this client does not answer `{other}`"))),
    }
}

impl std::fmt::Debug for Present {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Present").field("number", &self.number).field("client", &self.client).finish_non_exhaustive()
    }
}
