//! What travels: a request before and after it is written down, on which terms somebody waits for its answer, and what
//! came of it.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::in_flight::SendState;
use crate::options::{NotificationHandler, Relay, RequestOptions, ServerRequestHandler};

/// A request to be made, before it has an id.
#[derive(Clone)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) headers: HeaderMap,
    pub(crate) relay: Option<&'a Relay>,
}

/// On which terms somebody waits.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) deadline: Instant,
    pub(crate) progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) handler: Option<ServerRequestHandler>,
    pub(crate) on_notification: Option<NotificationHandler>,
}

/// A written message on its way out. Without an id it expects no answer.
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) id: Option<u64>,
    pub(crate) method: &'a str,
    pub(crate) text: String,
    pub(crate) headers: HeaderMap,
    pub(crate) send_state: Arc<SendState>,
}

/// How far a transport got with a message.
pub(crate) enum DeliveryStatus {
    Sent,
    /// The server no longer knows our session and has not looked at the message.
    SessionLost,
}

/// What an incoming text was.
pub(crate) enum DispatchOutcome {
    Response(u64),
    ErrorWithoutId(crate::error::RpcError),
    Other,
    Ignored,
}

impl DispatchOutcome {
    /// In a batch, an answer is what counts.
    pub(super) fn or_other(self) -> DispatchOutcome {
        match self {
            DispatchOutcome::Response(_) | DispatchOutcome::ErrorWithoutId(_) => self,
            DispatchOutcome::Other | DispatchOutcome::Ignored => DispatchOutcome::Other,
        }
    }
}

impl RequestContext {
    pub(crate) fn new(options: &RequestOptions) -> RequestContext {
        let deadline = deadline_after(options.timeout);
        let (handler, heard) = (options.handler.clone(), options.on_notification.clone());
        RequestContext {
            deadline,
            progress: options.progress.clone(),
            cancel: options.cancel.clone(),
            handler,
            on_notification: heard,
        }
    }

    pub(crate) fn with_deadline(deadline: Instant) -> RequestContext {
        RequestContext {
            deadline,
            progress: None,
            cancel: CancellationToken::new(),
            handler: None,
            on_notification: None,
        }
    }
}

/// A moment from now, however far.
pub(crate) fn deadline_after(duration: Duration) -> Instant {
    const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    Instant::now() + duration.min(MAX_WAIT)
}
