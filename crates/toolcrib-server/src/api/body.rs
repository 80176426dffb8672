//! The body of a request, read whole and bounded, and as JSON of a known shape.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use toolcrib::Code;
use toolcrib::core::json::mistake;
use toolcrib::core::text::shown_short;

use super::fault::refusal;

const MEBIBYTE: usize = 1024 * 1024;
/// The largest request, and the largest with a lockfile: one of ten thousand tools must fit.
const LARGEST: usize = 4 * MEBIBYTE;
pub(super) const LARGEST_LOCK: usize = 16 * MEBIBYTE;
/// How long a request may take to arrive.
const SLOWEST: Duration = Duration::from_secs(60);

/// A JSON body of at most so many bytes. An empty one is an empty object.
#[derive(Debug)]
pub(super) struct Json<T, const MOST: usize = LARGEST>(pub(super) T);

/// All of a body, or the answer that refuses it.
pub(crate) async fn whole(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    within(LARGEST, headers, body).await
}

async fn within(most: usize, headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    if let Some(message) = not_plain(headers) {
        return Err(unsupported(message));
    }
    // Refused before any of it is read.
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    let late = |_| wrong("the request did not arrive in time");
    tokio::time::timeout(SLOWEST, read(most, body)).await.map_err(late)?
}

async fn read(most: usize, body: Body) -> Result<Bytes, Response> {
    let mut chunks = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| wrong("the request broke off"))?;
        if whole.len() + chunk.len() > most {
            return Err(too_large(most));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

fn too_large(most: usize) -> Response {
    let message = format!("the request is over {} MiB", most / MEBIBYTE);
    refusal(StatusCode::PAYLOAD_TOO_LARGE, Code::BadRequest, &message)
}

fn unsupported(message: &str) -> Response {
    refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message)
}

fn wrong(message: &str) -> Response {
    refusal(StatusCode::BAD_REQUEST, Code::BadRequest, message)
}

/// What is packed, or spelled in other bytes than we read, is told apart from what is written wrongly.
fn not_plain(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings =
        headers.get_all(header::CONTENT_ENCODING).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Some("send the body as it is, without `Content-Encoding`");
    }
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    let mut parameters = kind.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let charset =
        parameters.find_map(|one| one.split_at_checked(8).filter(|(name, _)| name.eq_ignore_ascii_case(b"charset=")));
    let charset = charset.map(|(_, value)| String::from_utf8_lossy(value).trim_matches('"').to_ascii_lowercase())?;
    let known = ["utf-8", "utf8", "us-ascii"].contains(&charset.as_str());
    (!known).then_some("send the body in UTF-8; no other `charset` is read")
}

impl<S: Sync, T: DeserializeOwned, const MOST: usize> FromRequest<S> for Json<T, MOST> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Json<T, MOST>, Response> {
        let (parts, body) = request.into_parts();
        let bytes = within(MOST, &parts.headers, body).await?;
        if !bytes.is_empty() && !is_json(&parts.headers) {
            return Err(unsupported("send JSON, with `Content-Type: application/json`"));
        }
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(wrong("the body is a JSON object, between `{` and `}`"));
        }
        let read = serde_json::from_slice(if bytes.is_empty() { b"{}" } else { &bytes });
        read.map(Json)
            .map_err(|error| wrong(&format!("the body cannot be used: {}", shown_short(&mistake(&error), 300))))
    }
}

/// `application/json`, or one of the kinds that are JSON by their ending, such as `application/merge-patch+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}
