//! What both HTTP transports share: the client, bounded bodies, and refusals told apart.

use std::time::Duration;

use http::header;
use reqwest::{Client, Response, redirect};
use url::Url;

use crate::{
    error::{WireError, sanitize_excerpt},
    message::{self, IncomingMessage},
    options::ClientOptions,
};

impl ClientOptions {
    /// The HTTP client used when [`Options::http`] is empty: no Nagle delay, and redirects only within one origin and
    /// only where they keep method and body, so that credentials go nowhere else.
    pub fn http_client(connect_timeout: Duration) -> Result<Client, WireError> {
        // Refused when the program has chosen another provider already, which is as good.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let policy = redirect::Policy::custom(|attempt| {
            let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
            let same_origin = attempt.previous().iter().all(|url| url.origin() == attempt.url().origin());
            if keeps_method && same_origin && attempt.previous().len() < 5 { attempt.follow() } else { attempt.stop() }
        });
        Client::builder()
            .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(policy)
            .build()
            .map_err(|error| WireError::Connect(format!("no HTTP client: {}", root_cause(&error))))
    }
}

/// Anything else is taken for JSON, whatever it calls itself.
pub(crate) fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// A whole body, within its bound.
pub(crate) async fn read_body(mut response: Response, limit: usize) -> Result<String, WireError> {
    let too_large = WireError::TooLarge { what: "an HTTP body (in bytes) from the server", limit };
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

/// What an unsuccessful status means.
pub(crate) async fn error_from_response(response: Response, limit: usize) -> WireError {
    let status = response.status().as_u16();
    if matches!(status, 401 | 403) {
        let login_helps = status == 401 || needs_more_scope(&response);
        return WireError::Unauthorized { status, login_helps };
    }
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(sanitize_excerpt);
    let onward = response.headers().get(header::LOCATION).and_then(|to| response.url().join(to.to_str().ok()?).ok());
    let said = read_body(response, limit).await.unwrap_or_default();
    match message::parse(&said) {
        // That the server wants to be left alone says more than the error in its body.
        _ if status == 429 || (status == 503 && retry_after.is_some()) => {
            WireError::Status { status, body: sanitize_excerpt(&said), retry_after }
        }
        Some(IncomingMessage::Response { outcome: Err(error), .. } | IncomingMessage::ErrorWithoutId(error)) => {
            WireError::Rpc(error)
        }
        _ if (300..400).contains(&status) => {
            let to = onward.map(|url| redact_url(&url)).unwrap_or_default();
            let said = format!("moved to {to}; use that address if you trust it");
            WireError::Status { status, body: said, retry_after }
        }
        _ => WireError::Status { status, body: sanitize_excerpt(&said), retry_after },
    }
}

/// A challenge as in RFC 6750: the token is valid and may not do this.
fn needs_more_scope(response: &Response) -> bool {
    let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
    challenges.filter_map(|challenge| challenge.to_str().ok()).any(|challenge| challenge.contains("insufficient_scope"))
}

/// A request that got no response at all.
pub(crate) fn request_error(error: &reqwest::Error, url: &Url) -> WireError {
    if error.is_connect() {
        return WireError::Connect(format!("`{}`: {}", redact_url(url), root_cause(error)));
    }
    interrupted_error(error)
}

fn interrupted_error(error: &reqwest::Error) -> WireError {
    WireError::Closed { sent: true, reason: root_cause(error) }
}

/// The cause, which says more than what wraps it, and never the address with its query.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    let text = cause.map_or_else(|| "the request failed".to_owned(), ToString::to_string);
    sanitize_excerpt(&text)
}

/// An address without user, password, query and fragment.
pub(crate) fn redact_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}
