//! The body of a request, read whole and bounded, and as JSON of a known shape.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use toolcrib::core::text::shown_short;
use toolcrib::{Code, Error};

use super::fault::with_status;

/// The largest request.
const LARGEST: usize = 4 * 1024 * 1024;
/// How long a request may take to arrive.
const SLOWEST: Duration = Duration::from_secs(60);
/// Of one that is too large so much is read and thrown away: many clients hear an answer only once they have sent all.
const THROWN_AWAY: usize = 64 * 1024 * 1024;

/// A JSON body. An empty one is an empty object.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

/// All of a body, or the answer that refuses it.
pub(crate) async fn whole(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if told.is_some_and(|length| length > LARGEST) {
        let _cut_off = tokio::time::timeout(SLOWEST, throw_away(body)).await;
        return Err(too_large());
    }
    let late = |_| refusal(StatusCode::BAD_REQUEST, "the request did not arrive in time");
    tokio::time::timeout(SLOWEST, read(body)).await.map_err(late)?
}

async fn read(body: Body) -> Result<Bytes, Response> {
    let mut chunks = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| refusal(StatusCode::BAD_REQUEST, "the request broke off"))?;
        if whole.len() + chunk.len() > LARGEST {
            return Err(too_large());
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

async fn throw_away(body: Body) {
    let mut body = body.into_data_stream();
    let mut read = 0;
    while let Some(Ok(chunk)) = body.next().await {
        read += chunk.len();
        if read > THROWN_AWAY {
            return;
        }
    }
}

fn too_large() -> Response {
    refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request is over 4 MiB")
}

fn refusal(status: StatusCode, message: &str) -> Response {
    with_status(status, &Error::new(Code::BadRequest, message))
}

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Json<T>, Response> {
        let (parts, body) = request.into_parts();
        let bytes = whole(&parts.headers, body).await?;
        if !bytes.is_empty() && !is_json(&parts.headers) {
            let message = "send JSON, with `Content-Type: application/json`";
            return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(refusal(StatusCode::BAD_REQUEST, "the body is a JSON object, between `{` and `}`"));
        }
        let read = serde_json::from_slice(if bytes.is_empty() { b"{}" } else { &bytes });
        read.map(Json).map_err(|error| {
            let message = format!("the body cannot be used: {}", shown_short(&error.to_string(), 300));
            refusal(StatusCode::BAD_REQUEST, &message)
        })
    }
}

/// `application/json`, or one of the kinds that are JSON by their ending, such as `application/merge-patch+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}
