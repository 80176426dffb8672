//! JSON responses, with or without an `ETag` for conditional requests.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use toolcrib::core::ResultExt;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Code, Error, Result};

use super::error::ApiResult;

/// Without a charset: JSON is UTF-8.
const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
/// `Cache-Control` of tagged responses: only the client may cache them, and it must revalidate before each use.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");
/// Start of a weak tag.
const WEAK_PREFIX: &str = "W/";

/// A JSON body with its tag; can be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct TaggedResponse {
    pub(super) body: Bytes,
    pub(super) etag: HeaderValue,
    /// `Link` to the next page, for a JSON array that has no place for a cursor.
    pub(super) link: Option<HeaderValue>,
}

/// Builds a JSON response without a tag.
pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Result<Response> {
    Ok((status, [(header::CONTENT_TYPE, JSON_CONTENT_TYPE)], to_json_bytes(value)?).into_response())
}

/// Builds the response of a handler that succeeded.
pub(super) fn ok_json(value: &impl Serialize) -> ApiResult {
    Ok(json_response(StatusCode::OK, value)?)
}

/// Builds the response of a handler that succeeded, with the tag of what it returns.
pub(super) fn tagged_json(value: &impl Serialize, etag: HeaderValue) -> ApiResult {
    let mut response = json_response(StatusCode::OK, value)?;
    response.headers_mut().insert(header::ETAG, etag);
    Ok(response)
}

/// Builds the response of a handler that created a resource at this path.
pub(super) fn created_json(value: &impl Serialize, path: &str) -> ApiResult {
    let mut response = json_response(StatusCode::CREATED, value)?;
    // The paths consist of ids, which are ASCII letters, digits and `_`, so this never fails.
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Renders a response on a blocking thread: what looks at every tool takes too long for an async worker.
pub(super) async fn render_blocking<T: Send + 'static>(
    render: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let failed = |error| Error::new(Code::Internal, "rendering the response failed").with_cause(error);
    tokio::task::spawn_blocking(render).await.map_err(failed)?
}

/// Serialises a response body.
pub(super) fn to_json_bytes(value: &impl Serialize) -> Result<Bytes> {
    Ok(serde_json::to_vec(value).context(Code::Internal, "serialise a response")?.into())
}

/// Derives a strong tag from a text that identifies the content.
pub(super) fn make_etag(text: impl AsRef<[u8]>) -> HeaderValue {
    format_etag("", text.as_ref())
}

/// Derives a weak tag from a text that identifies what matters of the content.
pub(super) fn make_weak_etag(text: impl AsRef<[u8]>) -> HeaderValue {
    format_etag(WEAK_PREFIX, text.as_ref())
}

fn format_etag(prefix: &str, text: &[u8]) -> HeaderValue {
    // 128 bits of the digest: enough that two contents never share a tag.
    let etag = format!("{prefix}\"{}\"", Fingerprint::digest(text).short_hex(32));
    // Quoted hexadecimal digits are always a valid header value.
    HeaderValue::from_str(&etag).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

impl TaggedResponse {
    /// Tags a body by its content.
    pub(super) fn from_body(body: Bytes) -> TaggedResponse {
        TaggedResponse { etag: make_etag(&body), body, link: None }
    }

    /// Builds the response: the body, or 304 if the client has it.
    pub(super) fn to_response(&self, request_headers: &HeaderMap) -> Response {
        if matches_etag(request_headers, &self.etag) {
            return not_modified(&self.etag);
        }
        let mut response = Response::new(Body::from(self.body.clone()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, JSON_CONTENT_TYPE);
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::CACHE_CONTROL, REVALIDATE);
        if let Some(link) = &self.link {
            headers.insert(header::LINK, link.clone());
        }
        response
    }
}

/// Builds a 304 response. Repeats the headers that RFC 9110 wants on a 304; a body and its type are left out.
pub(super) fn not_modified(etag: &HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(header::ETAG, etag.clone());
    response.headers_mut().insert(header::CACHE_CONTROL, REVALIDATE);
    response
}

/// True when `If-None-Match` lists the tag or is `*`.
fn matches_etag(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    lists_etag(headers, etag) || headers.get_all(header::IF_NONE_MATCH).iter().any(|value| value == "*")
}

/// True when `If-None-Match` lists this very tag, strong or weak (RFC 9110, "weak comparison"). It then proves that the
/// response is valid: the client can know the tag only from an earlier response.
pub(super) fn lists_etag(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let etag = strip_weak_prefix(etag.as_bytes());
    let mut values = headers.get_all(header::IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    values.any(|value| {
        let mut tags = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        value == etag || tags.any(|tag| strip_weak_prefix(tag) == etag)
    })
}

fn strip_weak_prefix(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(WEAK_PREFIX.as_bytes()).unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_matches_in_every_form_of_if_none_match() {
        let etag = make_etag("x");
        let text = etag.to_str().unwrap().to_owned();
        let weak_etag = make_weak_etag("x");
        assert_eq!(weak_etag, format!("W/{text}"));
        let matches = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            let is_match = matches_etag(&headers, &etag);
            assert_eq!(matches_etag(&headers, &weak_etag), is_match, "{value}");
            is_match
        };
        for value in
            [text.clone(), format!("W/{text}"), format!("\"a\", {text}"), format!("\"a\",W/{text} "), "*".into()]
        {
            assert!(matches(&value), "{value}");
        }
        for value in ["\"a\"", "", "a", &text[1..]] {
            assert!(!matches(value), "{value}");
        }
    }
}
