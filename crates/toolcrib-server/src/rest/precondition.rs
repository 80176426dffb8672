//! `If-Match`: a change is refused with 412 when the thing has changed since the client read it.
//!
//! ```text
//! GET /api/sources/docs                         → ETag: "0af7…"
//! PATCH /api/sources/docs, If-Match: "0af7…"    → 200, or 412 CONFLICT
//! ```

use axum::extract::FromRequestParts;
use axum::http::{HeaderValue, header};
use http::request::Parts;
use serde_json::json;
use toolcrib::registry::{SourceView, TokenView};
use toolcrib::{Code, Error, Registry, Result};

use super::error::ApiError;
use super::response::make_etag;

/// The `If-Match` headers of a request.
#[derive(Debug, Default)]
pub(super) struct IfMatch(Vec<HeaderValue>);

impl IfMatch {
    /// Whether the request has no such header.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails with `CONFLICT` (412) if the headers list neither the current tag nor `*`. `what` names the thing in the
    /// message. Weak tags never match, as RFC 9110 demands for changes.
    pub(super) fn check(&self, current: &HeaderValue, what: &str) -> Result<()> {
        let mut tags =
            self.0.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
        if self.0.is_empty() || tags.any(|tag| tag == b"*" || tag == current.as_bytes()) {
            return Ok(());
        }
        let etag = current.to_str().unwrap_or_default();
        let message = format!("{what} has changed since it was read (`If-Match`); read it again");
        Err(Error::new(Code::Conflict, message)
            .with_retryable(false)
            .with_details(json!({ "if_match": true, "etag": etag })))
    }
}

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfMatch, ApiError> {
        Ok(IfMatch(parts.headers.get_all(header::IF_MATCH).iter().cloned().collect()))
    }
}

/// Whether an error says that `If-Match` did not hold.
pub(super) fn is_failed_precondition(error: &Error) -> bool {
    let details = error.details.as_ref();
    error.code == Code::Conflict && details.is_some_and(|details| details.get("if_match").is_some())
}

/// Tag of a source for `If-Match`: it covers what a client can change, the declaration and whether it is enabled. Tools,
/// freshness and connection change all the time by themselves and would make every change fail.
pub(super) fn source_etag(registry: &Registry, source: &SourceView) -> HeaderValue {
    let inventory = registry.inventory();
    let text = match inventory.source(&source.id) {
        Some(state) => format!("{} {:?} {} {}", source.id, state.origin, state.definition, state.enabled),
        // An invalid declaration of the configuration: it changes with its error.
        None => format!("{} {:?}", source.id, source.last_error),
    };
    make_etag(text)
}

/// Tag of a token for `If-Match`.
pub(super) fn token_etag(token: &TokenView) -> HeaderValue {
    make_etag(format!("{} {} {:?} {:?}", token.id, token.name, token.role, token.expires_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_the_current_tag_or_any() {
        let etag = make_etag("x");
        let text = etag.to_str().unwrap();
        let check = |values: &[&str]| {
            let values = values.iter().map(|value| value.parse().unwrap());
            IfMatch(values.collect()).check(&etag, "the source `x`")
        };
        for values in [&[][..], &[text], &["*"], &["\"a\" , ", text], &[&format!("\"a\", {text},\"b\"")]] {
            assert!(check(values).is_ok(), "{values:?}");
        }
        for values in [&["\"a\""][..], &[""], &[&format!("W/{text}")], &[&text[1..]]] {
            let error = check(values).unwrap_err();
            assert!(is_failed_precondition(&error) && !error.is_retryable(), "{values:?}");
        }
    }
}
