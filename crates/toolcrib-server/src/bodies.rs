//! Wrappers around request and response bodies. The rest of a request body that a handler did not read is discarded in
//! the background; a response body marks its connection as busy until it is written.
//!
//! Both rely on `Drop`: a body is dropped at the end of its request or response, however that ended.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::ActiveRequest;

/// Maximum size of an unread rest that is discarded. Beyond it the connection is closed. Four times the largest body
/// that a route accepts, a lockfile, so a client that sends a little too much gets its error response.
const MAX_DISCARDED_BYTES: u64 = 64 * 1024 * 1024;
/// How long discarding one body may take in all. Bounds a client that sends slowly but steadily.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long discarding waits for the next data. Bounds a client that stopped sending.
const DISCARD_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the rest of request bodies in the background. Many clients read a response only after they have sent the whole
/// request; closing a connection with unread data resets it, and such a client would lose the response.
#[derive(Debug, Clone)]
pub(crate) struct BodyDiscarder {
    /// Owns the background reads; shared with the connections.
    pub(crate) tasks: TaskTracker,
    /// Ends the background reads when the shutdown begins.
    pub(crate) closing: CancellationToken,
}

impl BodyDiscarder {
    /// Wraps a request body so that dropping it unread discards the rest.
    pub(crate) fn wrap_request_body(&self, headers: &HeaderMap, body: Incoming) -> Body {
        // With `Expect: 100-continue` the first read would tell the client to send the body that nothing will use.
        if hyper::body::Body::is_end_stream(&body) || headers.contains_key(header::EXPECT) {
            return Body::new(body);
        }
        Body::new(DiscardingBody { body: Some(body), discarder: self.clone() })
    }

    /// Reads and drops the rest of a body in a task, within the limits above. The tracker of the connections owns the
    /// task, so that a shutdown waits for it, and `closing` ends it.
    fn discard(&self, mut body: Incoming) {
        let reading = async move {
            let mut discarded = 0;
            while discarded <= MAX_DISCARDED_BYTES {
                let frame = std::future::poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut body), context));
                let Ok(Some(Ok(frame))) = timeout(DISCARD_READ_TIMEOUT, frame).await else { return };
                discarded += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
        };
        let limited = async move {
            // On a timeout the body is dropped, and hyper closes the connection.
            let _ = timeout(DISCARD_TIMEOUT, reading).await;
        };
        self.tasks.spawn(self.closing.clone().run_until_cancelled_owned(limited));
    }
}

/// Request body that passes what is left of it to [`BodyDiscarder`] when it is dropped.
struct DiscardingBody {
    /// `None` after the last frame or an error.
    body: Option<Incoming>,
    discarder: BodyDiscarder,
}

impl hyper::body::Body for DiscardingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        // After the end or an error there is nothing left to discard.
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), hyper::body::Body::size_hint)
    }
}

impl Drop for DiscardingBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !hyper::body::Body::is_end_stream(body)) {
            self.discarder.discard(body);
        }
    }
}

/// Response body that keeps its connection marked as busy until it is completely written or dropped.
pub(crate) struct ResponseBody {
    body: Body,
    /// Held only for its `Drop`.
    _active_request: ActiveRequest,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, active_request: ActiveRequest) -> ResponseBody {
        ResponseBody { body, _active_request: active_request }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
