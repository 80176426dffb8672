//! Reads request bodies completely, with limits on size and time, and parses them as JSON.
//!
//! Rejections are complete responses, because their statuses (413, 415) have no error code of their own.

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
/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 4 * MEBIBYTE;
/// Maximum size of a lockfile: one of ten thousand tools must fit.
pub(super) const MAX_LOCKFILE_BYTES: usize = 16 * MEBIBYTE;
/// How long a client may take to send a body. Bounds a client that sends a byte at a time, which never runs into a
/// limit on size.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Extractor for a JSON object of at most `MAX_BYTES` bytes. An empty body counts as an empty object.
#[derive(Debug)]
pub(super) struct JsonBody<T, const MAX_BYTES: usize = MAX_BODY_BYTES>(pub(super) T);

/// Extractor for a JSON object that must be sent: an empty group, say, would open what a policy on the group denies.
#[derive(Debug)]
pub(super) struct RequiredJsonBody<T>(pub(super) T);

/// Reads a body of up to [`MAX_BODY_BYTES`]. The error is the response that rejects the request.
pub(crate) async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    read_limited_body(MAX_BODY_BYTES, headers, body).await
}

/// Checks the headers and the announced size before it reads anything.
async fn read_limited_body(max_bytes: usize, headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    if let Some(message) = encoding_error(headers) {
        return Err(unsupported_media_type(message));
    }
    // A body that is announced as too large is rejected before it is read.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    let timed_out = |_| bad_request("timeout while reading the request body");
    tokio::time::timeout(BODY_READ_TIMEOUT, collect_body(max_bytes, body)).await.map_err(timed_out)?
}

/// Collects the chunks of a body; fails as soon as there are more than `max_bytes`.
async fn collect_body(max_bytes: usize, body: Body) -> Result<Bytes, Response> {
    let mut chunks = body.into_data_stream();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| bad_request("the connection closed before the end of the request body"))?;
        // Checked again while reading: a chunked body announces no size.
        if bytes.len() + chunk.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// 413, with the limit in the message.
fn too_large(max_bytes: usize) -> Response {
    let message = format!("the request body is over {} MiB", max_bytes / MEBIBYTE);
    error_response(StatusCode::PAYLOAD_TOO_LARGE, Code::BadRequest, &message)
}

/// 415.
fn unsupported_media_type(message: &str) -> Response {
    error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::BadRequest, message)
}

/// 400.
fn bad_request(message: &str) -> Response {
    error_response(StatusCode::BAD_REQUEST, Code::BadRequest, message)
}

/// Returns an error message for a compressed body or one that is not UTF-8. Without it, such a body would be reported as
/// malformed JSON.
fn encoding_error(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings =
        headers.get_all(header::CONTENT_ENCODING).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    if codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Some("send the body uncompressed, without `Content-Encoding`");
    }
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    let mut parameters = kind.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let charset = parameters
        .find_map(|parameter| parameter.split_at_checked(8).filter(|(name, _)| name.eq_ignore_ascii_case(b"charset=")));
    let charset = charset.map(|(_, value)| String::from_utf8_lossy(value).trim_matches('"').to_ascii_lowercase())?;
    let is_supported = ["utf-8", "utf8", "us-ascii"].contains(&charset.as_str());
    (!is_supported).then_some("send the body in UTF-8; no other `charset` is supported")
}

impl<S: Sync, T: DeserializeOwned, const MAX_BYTES: usize> FromRequest<S> for JsonBody<T, MAX_BYTES> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<JsonBody<T, MAX_BYTES>, Response> {
        let bytes = read_json_body(MAX_BYTES, request).await?;
        let parsed = parse_object(if bytes.is_empty() { b"{}" } else { &bytes });
        parsed.map(JsonBody).map_err(|message| bad_request(&message))
    }
}

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for RequiredJsonBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<RequiredJsonBody<T>, Response> {
        let parsed = parse_object(&read_json_body(MAX_BODY_BYTES, request).await?);
        parsed.map(RequiredJsonBody).map_err(|message| bad_request(&message))
    }
}

/// Reads a body, which is empty or says that it is JSON.
async fn read_json_body(max_bytes: usize, request: Request) -> Result<Bytes, Response> {
    let (parts, body) = request.into_parts();
    let bytes = read_limited_body(max_bytes, &parts.headers, body).await?;
    // Without this check, a form on a page of another site could post JSON as `text/plain` without a preflight
    // request.
    if !bytes.is_empty() && !has_json_content_type(&parts.headers) {
        return Err(unsupported_media_type("send JSON, with `Content-Type: application/json`"));
    }
    Ok(bytes)
}

/// Parses a JSON object. The error is a message.
fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    // serde would accept an array as the fields of a struct in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err("the body must be a JSON object".to_owned());
    }
    serde_json::from_slice(bytes)
        .map_err(|error| format!("invalid body: {}", sanitize_truncated(&describe_error(&error), 300)))
}

/// True for `application/json` and for types with the suffix `+json`, such as `application/merge-patch+json`.
fn has_json_content_type(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}
