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
use toolcrib::core::json::describe_error;
use toolcrib::core::text::sanitize_truncated;

use super::error::error_response;

const MEBIBYTE: usize = 1024 * 1024;
/// The largest request, and the largest with a lockfile: one of ten thousand tools must fit.
const MAX_BODY_BYTES: usize = 4 * MEBIBYTE;
pub(super) const MAX_LOCKFILE_BYTES: usize = 16 * MEBIBYTE;
/// How long a request may take to arrive.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A JSON body of at most so many bytes. An empty one is an empty object.
#[derive(Debug)]
pub(super) struct JsonBody<T, const MAX_BYTES: usize = MAX_BODY_BYTES>(pub(super) T);

/// All of a body, or the answer that refuses it.
pub(crate) async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    read_limited_body(MAX_BODY_BYTES, headers, body).await
}

async fn read_limited_body(most: usize, headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    if let Some(message) = encoding_error(headers) {
        return Err(unsupported_media_type(message));
    }
    // Refused before any of it is read.
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    let late = |_| bad_request("the request did not arrive in time");
    tokio::time::timeout(BODY_READ_TIMEOUT, collect_body(most, body)).await.map_err(late)?
}

async fn collect_body(most: usize, body: Body) -> Result<Bytes, Response> {
    let mut chunks = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| bad_request("the request broke off"))?;
        if whole.len() + chunk.len() > most {
            return Err(too_large(most));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

fn too_large(most: usize) -> Response {
    let message = format!("the request is over {} MiB", most / MEBIBYTE);
    error_response(StatusCode::PAYLOAD_TOO_LARGE, Code::BadRequest, &message)
}

fn unsupported_media_type(message: &str) -> Response {
    error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message)
}

fn bad_request(message: &str) -> Response {
    error_response(StatusCode::BAD_REQUEST, Code::BadRequest, message)
}

/// What is packed, or spelled in other bytes than we read, is told apart from what is written wrongly.
fn encoding_error(headers: &HeaderMap) -> Option<&'static str> {
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

impl<S: Sync, T: DeserializeOwned, const MAX_BYTES: usize> FromRequest<S> for JsonBody<T, MAX_BYTES> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<JsonBody<T, MAX_BYTES>, Response> {
        let (parts, body) = request.into_parts();
        let bytes = read_limited_body(MAX_BYTES, &parts.headers, body).await?;
        if !bytes.is_empty() && !has_json_content_type(&parts.headers) {
            return Err(unsupported_media_type("send JSON, with `Content-Type: application/json`"));
        }
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(bad_request("the body is a JSON object, between `{` and `}`"));
        }
        let read = serde_json::from_slice(if bytes.is_empty() { b"{}" } else { &bytes });
        read.map(JsonBody).map_err(|error| {
            bad_request(&format!("the body cannot be used: {}", sanitize_truncated(&describe_error(&error), 300)))
        })
    }
}

/// `application/json`, or one of the kinds that are JSON by their ending, such as `application/merge-patch+json`.
fn has_json_content_type(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}
