//! Shared by both HTTP transports: the default HTTP client, bounded bodies, and the mapping of responses and failures
//! to [`WireError`].
//!
//! No error made here contains a header, a query or credentials of a URL: addresses pass through [`redact_url`], and of
//! an error of the HTTP client only its innermost cause is used.

use std::time::Duration;

use http::header;
use reqwest::{Client, Response, redirect};
use url::Url;

use super::challenge::parse_challenges;
use crate::{
    error::{WireError, sanitize_excerpt},
    message::{self, IncomingMessage},
    options::ClientOptions,
};

impl ClientOptions {
    /// Builds the HTTP client used when [`ClientOptions::http`] is empty: no Nagle delay (it costs 44 ms per call), and
    /// redirects only within one origin and only where they keep method and body, so that credentials reach no other
    /// server.
    pub fn http_client(connect_timeout: Duration) -> Result<Client, WireError> {
        // Fails when the program installed a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let policy = redirect::Policy::custom(|attempt| {
            // After 301 to 303 the client would send a GET without the message.
            let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
            let same_origin = attempt.previous().iter().all(|url| url.origin() == attempt.url().origin());
            if keeps_method && same_origin && attempt.previous().len() < 5 { attempt.follow() } else { attempt.stop() }
        });
        Client::builder()
            .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            // Finds a peer that vanished without closing the connection; an event stream may be silent for long.
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(policy)
            .build()
            .map_err(|error| WireError::Connect(format!("the HTTP client cannot be built: {}", root_cause(&error))))
    }
}

/// Whether the response is an event stream. Callers parse anything else as JSON, whatever its content type.
pub(crate) fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Reads a whole body of at most `limit` bytes. Invalid UTF-8 is replaced, so that it does not lose the message around
/// it.
pub(crate) async fn read_body(mut response: Response, limit: usize) -> Result<String, WireError> {
    let too_large = WireError::TooLarge { what: "an HTTP body (in bytes) from the server", limit };
    // Fail before the download where the length is known.
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large);
    }
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| interrupted_error(&error))?;
        let Some(chunk) = chunk else { break };
        if bytes.len() + chunk.len() > limit {
            return Err(too_large);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Maps an unsuccessful response to an error. A JSON-RPC error in the body is more specific than the status and takes
/// precedence, except for missing permission and rate limits, which callers handle by their status.
pub(crate) async fn error_from_response(response: Response, limit: usize) -> WireError {
    let status = response.status().as_u16();
    if matches!(status, 401 | 403) {
        let challenge = Box::new(parse_challenges(response.headers()));
        let login_helps = status == 401 || challenge.needs_more_scope;
        return WireError::Unauthorized { status, login_helps, challenge };
    }
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(sanitize_excerpt);
    let location = response.headers().get(header::LOCATION);
    let location = location.and_then(|location| response.url().join(location.to_str().ok()?).ok());
    // A body that cannot be read must not hide the status.
    let body = read_body(response, limit).await.unwrap_or_default();
    match message::parse(&body) {
        // The rate limit matters more to callers than the JSON-RPC error in the body.
        _ if status == 429 || (status == 503 && retry_after.is_some()) => {
            WireError::Status { status, body: sanitize_excerpt(&body), retry_after }
        }
        Some(IncomingMessage::Response { outcome: Err(error), .. } | IncomingMessage::ErrorWithoutId(error)) => {
            WireError::Rpc(error)
        }
        _ if (300..400).contains(&status) => {
            let location = location.map(|url| redact_url(&url)).unwrap_or_default();
            let body = format!("moved to {location}; use that address if you trust it");
            WireError::Status { status, body, retry_after }
        }
        _ => WireError::Status { status, body: sanitize_excerpt(&body), retry_after },
    }
}

/// Maps a request that got no response to an error.
pub(crate) fn request_error(error: &reqwest::Error, url: &Url) -> WireError {
    if error.is_connect() {
        return WireError::Connect(format!("`{}`: {}", redact_url(url), root_cause(error)));
    }
    interrupted_error(error)
}

/// The error of a connection that broke after the request may have been sent. Whether the server acted on it is
/// unknown.
fn interrupted_error(error: &reqwest::Error) -> WireError {
    WireError::Closed { sent: true, reason: root_cause(error) }
}

/// Returns the innermost cause. The outer errors repeat the URL with its query, which may contain secrets.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    let text = cause.map_or_else(|| "the request failed".to_owned(), ToString::to_string);
    sanitize_excerpt(&text)
}

/// Formats a URL without user, password, query and fragment.
pub(crate) fn redact_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}
