//! What travels: a request before and after it is written down, on which terms somebody waits for its answer, and what
//! came of it.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::call::Ticket;
use crate::options::{Handler, Heard, Relay, RequestOptions};

/// A request to be made, before it has an id.
#[derive(Clone)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) headers: HeaderMap,
    pub(crate) relay: Option<&'a Relay>,
}

/// On which terms somebody waits.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) deadline: Instant,
    pub(crate) progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) handler: Option<Handler>,
    pub(crate) heard: Option<Heard>,
}

/// A written message on its way out. Without an id it expects no answer.
pub(crate) struct Mail<'a> {
    pub(crate) id: Option<u64>,
    pub(crate) method: &'a str,
    pub(crate) text: String,
    pub(crate) headers: HeaderMap,
    pub(crate) ticket: Arc<Ticket>,
}

/// How far a transport got with a message.
pub(crate) enum Delivered {
    Sent,
    /// The server no longer knows our session and has not looked at the message.
    SessionLost,
}

/// What an incoming text was.
pub(crate) enum Seen {
    Answer(u64),
    Refusal(crate::error::RpcError),
    Other,
    Junk,
}

impl Seen {
    /// In a batch, an answer is what counts.
    pub(super) fn or_other(self) -> Seen {
        match self {
            Seen::Answer(_) | Seen::Refusal(_) => self,
            Seen::Other | Seen::Junk => Seen::Other,
        }
    }
}

impl Terms {
    pub(crate) fn new(options: &RequestOptions) -> Terms {
        let deadline = after(options.timeout);
        let (handler, heard) = (options.handler.clone(), options.heard.clone());
        Terms { deadline, progress: options.progress.clone(), cancel: options.cancel.clone(), handler, heard }
    }

    pub(crate) fn until(deadline: Instant) -> Terms {
        Terms { deadline, progress: None, cancel: CancellationToken::new(), handler: None, heard: None }
    }
}

/// A moment from now, however far.
pub(crate) fn after(duration: Duration) -> Instant {
    const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    Instant::now() + duration.min(YEARS)
}
