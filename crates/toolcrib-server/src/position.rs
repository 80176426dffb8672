//! Positions of the journal in requests and responses, so that a client of several nodes reads its own writes, and the
//! mark of responses that may be stale.
//!
//! Every response has the header `x-toolcrib-position`, and `x-toolcrib-stale` while the store is down. A request with
//! `?min_position=N` waits until this node has applied the record with that number
//! ([`await_min_position`](crate::auth::await_min_position)). The parameter is removed from the URI before anything else
//! sees it: it changes neither the response nor its cache key and tag.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use serde_json::json;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::store::StoreState;
use toolcrib::{Code, Error, Registry, Result};

use crate::http_metrics::RouteClass;

/// Sequence number of the last record that the response shows, or a later one for a response to a change.
pub(crate) const POSITION_HEADER: HeaderName = HeaderName::from_static("x-toolcrib-position");
/// Seconds since the store was last reached; absent while it is reached.
pub(crate) const STALE_HEADER: HeaderName = HeaderName::from_static("x-toolcrib-stale");
/// Query parameter of all routes: the response must show the record with this sequence number.
pub(crate) const MIN_POSITION_PARAM: &str = "min_position";

/// How long a request waits for its position.
pub(crate) const POSITION_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay after which a client whose position was not reached may try again.
const RETRY_DELAY_MS: u64 = 1000;

/// Response extension: position of the catalogue that the body was rendered from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentPosition(pub(crate) u64);

/// Request extension by which a handler reports the position of the catalogue that it renders, if it does not build the
/// response itself. Of several responses in one body, the lowest position counts.
#[derive(Debug, Clone)]
pub(crate) struct PositionReport(Arc<AtomicU64>);

impl PositionReport {
    pub(crate) fn new() -> PositionReport {
        PositionReport(Arc::new(AtomicU64::new(u64::MAX)))
    }

    pub(crate) fn record(&self, position: u64) {
        self.0.fetch_min(position, Ordering::Relaxed);
    }

    /// Returns the response with the reported position, if there is one.
    pub(crate) fn apply(&self, response: Response) -> Response {
        match self.0.load(Ordering::Relaxed) {
            u64::MAX => response,
            position => with_content_position(response, position),
        }
    }
}

/// When the position of a response is read, if the response does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PositionReading {
    /// Before the handler: the body is at least as new.
    BeforeHandler,
    /// After the handler: the position includes the records that it wrote.
    AfterHandler,
}

impl PositionReading {
    /// All MCP requests are reads in this sense: none of them changes the journal on behalf of its client.
    pub(crate) fn for_request(class: RouteClass, method: &Method) -> PositionReading {
        if class == RouteClass::Mcp || method.is_safe() {
            PositionReading::BeforeHandler
        } else {
            PositionReading::AfterHandler
        }
    }
}

/// Sets the position of a response. `before` is the position before the handler ran.
pub(crate) fn set_position(registry: &Registry, response: &mut Response, before: u64, reading: PositionReading) {
    let position = match (response.extensions().get(), reading) {
        (Some(ContentPosition(position)), _) => *position,
        (None, PositionReading::BeforeHandler) => before,
        (None, PositionReading::AfterHandler) => registry.position(),
    };
    response.headers_mut().insert(POSITION_HEADER, HeaderValue::from(position));
}

/// Returns for how many whole seconds the store has been down, at least 1; `None` while it is reached.
pub(crate) fn stale_seconds(registry: &Registry) -> Option<u64> {
    let health = registry.store().health();
    let is_down = health.state == StoreState::Down;
    is_down.then(|| health.since.map_or(0, |since| registry.now().since(since).as_secs()).max(1))
}

/// Tells how long the store has been down. Responses come from memory meanwhile and may be stale.
pub(crate) fn set_staleness(registry: &Registry, headers: &mut HeaderMap) {
    if let Some(seconds) = stale_seconds(registry) {
        headers.insert(STALE_HEADER, HeaderValue::from(seconds));
    }
}

/// Returns the response with the position of its body, for a handler that reads whatever its method is.
pub(crate) fn with_content_position(mut response: Response, position: u64) -> Response {
    response.extensions_mut().insert(ContentPosition(position));
    response
}

/// Removes the position that a request requires from its URI and returns it; `None` without one. Fails with `BAD_REQUEST`
/// if it is no number.
pub(crate) fn take_min_position(request: &mut Request) -> Result<Option<u64>> {
    let Some((position, uri)) = split_min_position(request.uri())? else { return Ok(None) };
    *request.uri_mut() = uri;
    Ok(Some(position))
}

/// Error for a request whose position was not reached.
pub(crate) fn position_error(registry: &Registry, position: u64) -> Error {
    let reached = registry.position();
    let message = format!("this node has applied the records up to {reached} and not yet {position}; try again");
    let details = json!({ "position": reached, MIN_POSITION_PARAM: position, "retry_after_ms": RETRY_DELAY_MS });
    Error::new(Code::StoreUnavailable, message).with_retryable(true).with_details(details)
}

/// Returns the required position and the URI without it; `None` without the parameter.
fn split_min_position(uri: &Uri) -> Result<Option<(u64, Uri)>> {
    let Some(query) = uri.query().filter(|query| query.contains(MIN_POSITION_PARAM)) else { return Ok(None) };
    let value_of = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name == MIN_POSITION_PARAM).then(|| value.to_owned())
    };
    let mut values = query.split('&').filter_map(value_of);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Error::new(Code::BadRequest, format!("`{MIN_POSITION_PARAM}` is given twice")));
    }
    // `parse` alone would accept a sign.
    let position = value.parse().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
    let position = position.ok_or_else(|| {
        let message = format!("`{MIN_POSITION_PARAM}` is a whole number, not `{}`", sanitize_truncated(&value, 40));
        Error::new(Code::BadRequest, message)
    })?;
    let rest: Vec<&str> = query.split('&').filter(|pair| value_of(pair).is_none()).collect();
    let path = uri.path();
    let path_and_query = if rest.is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) };
    let mut parts = uri.clone().into_parts();
    // A part of a valid URI is valid.
    let invalid = |error| Error::new(Code::BadRequest, "the URL is malformed").with_cause(error);
    parts.path_and_query = Some(PathAndQuery::try_from(path_and_query).map_err(invalid)?);
    let invalid = |error| Error::new(Code::BadRequest, "the URL is malformed").with_cause(error);
    Ok(Some((position, Uri::from_parts(parts).map_err(invalid)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_removed_from_the_uri() {
        let check = |uri: &str, expected: Option<(u64, &str)>| {
            let split = split_min_position(&uri.parse().unwrap()).unwrap();
            assert_eq!(split, expected.map(|(position, rest)| (position, rest.parse().unwrap())), "{uri}");
        };
        check("/api/tools?min_position=7", Some((7, "/api/tools")));
        check("/api/tools?a=%20&min_position=7&b=x+y", Some((7, "/api/tools?a=%20&b=x+y")));
        check("http://host/mcp?min_position=0&mode=full", Some((0, "http://host/mcp?mode=full")));
        check("/api/search?q=min_position", None);
        check(
            "/api/search?q=min_position&min_position=18446744073709551615",
            Some((u64::MAX, "/api/search?q=min_position")),
        );
        check("/api/tools?xmin_position=7", None);
        check("/api/tools", None);
    }

    #[test]
    fn a_position_that_is_no_number_is_refused() {
        for query in [
            "min_position=",
            "min_position",
            "min_position=-1",
            "min_position=+1",
            "min_position=1.5",
            "min_position=x",
            "min_position=18446744073709551616",
            "min_position=%37",
            "min_position=1&min_position=1",
        ] {
            let error = split_min_position(&format!("/?{query}").parse().unwrap()).unwrap_err();
            assert_eq!(error.code, Code::BadRequest, "{query}");
        }
    }
}
