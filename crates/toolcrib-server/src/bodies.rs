//! The bodies of requests and responses as a connection sees them: what a handler leaves unread of a request is read and
//! thrown away, and a response keeps its connection busy until its end.

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

/// So much of an unread body is read and thrown away, for so long, and with such pauses.
const MAX_DISCARDED_BYTES: u64 = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);
const DISCARD_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads what is left of request bodies in the background: many clients read a response only once they have sent all of
/// their request, and closing a connection with unread data would take the response away from them.
#[derive(Debug, Clone)]
pub(crate) struct BodyDiscarder {
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl BodyDiscarder {
    pub(crate) fn wrap_request_body(&self, headers: &HeaderMap, body: Incoming) -> Body {
        // A client that asks before it sends the body (`Expect: 100-continue`) would be told to go on by the first read.
        if hyper::body::Body::is_end_stream(&body) || headers.contains_key(header::EXPECT) {
            return Body::new(body);
        }
        Body::new(DiscardingBody { body: Some(body), discard: self.clone() })
    }

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
            let _in_time = timeout(DISCARD_TIMEOUT, reading).await;
        };
        self.tasks.spawn(self.closing.clone().run_until_cancelled_owned(limited));
    }
}

struct DiscardingBody {
    body: Option<Incoming>,
    discard: BodyDiscarder,
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
            self.discard.discard(body);
        }
    }
}

/// A response's body, whose connection is busy until it is written or dropped.
pub(crate) struct ResponseBody {
    body: Body,
    _active: ActiveRequest,
}

impl ResponseBody {
    pub(crate) fn new(body: Body, active: ActiveRequest) -> ResponseBody {
        ResponseBody { body, _active: active }
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
