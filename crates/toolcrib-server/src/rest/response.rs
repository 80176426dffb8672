//! Answers: JSON, and JSON with a tag by which a client asks whether it has changed.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use toolcrib::core::ResultExt;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Code, Result};

const JSON_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json");
/// Kept by nobody but who asked, and only used again after asking whether it still holds.
const REVALIDATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// An answer that can be given many times.
#[derive(Debug, Clone)]
pub(super) struct TaggedResponse {
    pub(super) body: Bytes,
    pub(super) etag: HeaderValue,
    /// Where the next page is, for a list that has no room for a cursor of its own.
    pub(super) link: Option<HeaderValue>,
}

pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Result<Response> {
    Ok((status, [(header::CONTENT_TYPE, JSON_CONTENT_TYPE)], to_json_bytes(value)?).into_response())
}

pub(super) fn to_json_bytes(value: &impl Serialize) -> Result<Bytes> {
    Ok(serde_json::to_vec(value).context(Code::Internal, "write an answer as JSON")?.into())
}

/// A strong tag for what is known by a text.
pub(super) fn make_etag(text: impl AsRef<[u8]>) -> HeaderValue {
    let quoted = format!("\"{}\"", Fingerprint::digest(text).short_hex(32));
    // Hexadecimal digits between quotes are always a legal value.
    HeaderValue::from_str(&quoted).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

impl TaggedResponse {
    /// Tagged by its own content.
    pub(super) fn from_body(body: Bytes) -> TaggedResponse {
        TaggedResponse { etag: make_etag(&body), body, link: None }
    }

    /// The whole, or that the client has it already.
    pub(super) fn to_response(&self, params: &HeaderMap) -> Response {
        if matches_etag(params, &self.etag) {
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

pub(super) fn not_modified(tag: &HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(header::ETAG, tag.clone());
    response.headers_mut().insert(header::CACHE_CONTROL, REVALIDATE);
    response
}

/// `If-None-Match`: a list of tags, weak ones too, or `*`.
fn matches_etag(params: &HeaderMap, tag: &HeaderValue) -> bool {
    lists_etag(params, tag) || params.get_all(header::IF_NONE_MATCH).iter().any(|given| given == "*")
}

/// Whether `If-None-Match` has this very tag, so that there is such an answer.
pub(super) fn lists_etag(params: &HeaderMap, tag: &HeaderValue) -> bool {
    let tag = tag.as_bytes();
    let mut given = params.get_all(header::IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    given.any(|given| {
        let mut each = given.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        given == tag || each.any(|one| one.strip_prefix(b"W/").unwrap_or(one) == tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_in_every_spelling() {
        let ours = make_etag("x");
        let text = ours.to_str().unwrap().to_owned();
        let known = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, given.parse().unwrap());
            matches_etag(&headers, &ours)
        };
        for given in
            [text.clone(), format!("W/{text}"), format!("\"a\", {text}"), format!("\"a\",W/{text} "), "*".into()]
        {
            assert!(known(&given), "{given}");
        }
        for given in ["\"a\"", "", "a", &text[1..]] {
            assert!(!known(given), "{given}");
        }
    }
}
