//! OAuth 2 tokens by the client credentials grant (RFC 6749, section 4.4): cached until they expire, fetched once for
//! all waiting callers, and never part of a message.
//!
//! A token is fetched when a call needs one, not in the background. Its entry stays locked meanwhile; callers that wait
//! share the token or the failure. A token that an API rejects with 401 is forgotten and fetched again, once per
//! request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;
use toolcrib_connector::document::parse_http_url;
use toolcrib_connector::secret::basic_credentials;
use toolcrib_core::source::OpenApiSource;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error};
use url::{Url, form_urlencoded};

use super::credentials::{AuthValue, OauthGrant};
use super::http_clients::OpenApiClients;
use super::resolved_source::header_value;
use super::result::json_text;
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse, display_origin};
use super::url_policy::UrlPolicy;

/// Maximum size of a response of the token endpoint.
const MAX_TOKEN_RESPONSE_BYTES: usize = 64 * 1024;
/// Lifetime of a token whose response has no `expires_in`, which RFC 6749 only recommends.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// Upper bound of `expires_in`, against overflow; a token that is revoked earlier is renewed after a 401.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// A token is renewed this long before it expires, or after 90 % of its lifetime if that is earlier.
const MAX_RENEWAL_MARGIN: Duration = Duration::from_secs(30);

/// Tokens of one source by grant. The inner lock is held while fetching, so that concurrent callers share one request.
#[derive(Debug, Default)]
pub(super) struct TokenCache(Mutex<BTreeMap<OauthGrant, Arc<tokio::sync::Mutex<CachedToken>>>>);

/// State of one grant.
#[derive(Default)]
struct CachedToken {
    /// Token and when it must be renewed.
    token: Option<(String, Instant)>,
    /// Time and error of the last failed request, shared with callers that waited for it.
    failure: Option<(Instant, OutboundError)>,
    /// The token endpoint accepts client id and secret only in the body, not as HTTP Basic. Learned from the first
    /// request.
    credentials_in_body: bool,
}

/// Successful response of a token endpoint.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// Required by RFC 6749, but a response without it is accepted; only `Bearer` is supported.
    token_type: Option<String>,
    /// Seconds.
    expires_in: Option<ExpiresIn>,
}

/// Some servers send `expires_in` as a string.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExpiresIn {
    Number(f64),
    Text(String),
}

/// Error response of a token endpoint.
#[derive(Deserialize, Default)]
struct TokenErrorResponse {
    /// Code such as `invalid_client`.
    error: Option<String>,
    /// Text for people.
    error_description: Option<String>,
}

impl TokenCache {
    /// Tokens for the OAuth 2 values among the credentials, in their order. `url_policy` is for token URLs of a document.
    pub(super) async fn tokens_for(
        &self,
        values: &[AuthValue],
        clients: &OpenApiClients,
        url_policy: &UrlPolicy,
        connect_timeout: Duration,
    ) -> Result<Vec<String>, OutboundError> {
        let mut tokens = Vec::new();
        for value in values {
            if let AuthValue::Oauth2(grant) = value {
                tokens.push(self.get(grant, clients, url_policy, connect_timeout).await?);
            }
        }
        Ok(tokens)
    }

    /// Returns a valid token, fetching one if necessary. The caller enforces the deadline.
    pub(super) async fn get(
        &self,
        grant: &OauthGrant,
        clients: &OpenApiClients,
        url_policy: &UrlPolicy,
        connect_timeout: Duration,
    ) -> Result<String, OutboundError> {
        // Before waiting for the lock, to recognise a failure that happened meanwhile.
        let began = Instant::now();
        let cached = self.entry(grant);
        let mut cached = cached.lock().await;
        if let Some((token, expires_at)) = &cached.token
            && Instant::now() < *expires_at
        {
            return Ok(token.clone());
        }
        // The request that this caller waited for has failed: do not repeat it.
        if let Some((at, error)) = &cached.failure
            && *at > began
        {
            return Err(error.clone_without_cause());
        }
        match fetch_token(grant, &mut cached.credentials_in_body, clients, url_policy, connect_timeout).await {
            Ok((token, expires_at)) => {
                cached.failure = None;
                cached.token = Some((token.clone(), expires_at));
                Ok(token)
            }
            Err(error) => {
                cached.token = None;
                cached.failure = Some((Instant::now(), error.clone_without_cause()));
                Err(error)
            }
        }
    }

    /// Forgets a token that an API rejected, unless it was replaced meanwhile.
    pub(super) async fn invalidate(&self, grant: &OauthGrant, token: &str) {
        let cached = self.entry(grant);
        let mut cached = cached.lock().await;
        if cached.token.as_ref().is_some_and(|(current, _)| current == token) {
            cached.token = None;
        }
    }

    /// Forgets all tokens.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Entry of a grant, created on first use.
    fn entry(&self, grant: &OauthGrant) -> Arc<tokio::sync::Mutex<CachedToken>> {
        let mut entries = self.0.lock();
        entries.entry(grant.clone()).or_default().clone()
    }
}

/// Requests a token. Returns it with the time when it must be renewed.
async fn fetch_token(
    grant: &OauthGrant,
    credentials_in_body: &mut bool,
    clients: &OpenApiClients,
    document_policy: &UrlPolicy,
    connect_timeout: Duration,
) -> Result<(String, Instant), OutboundError> {
    let url = parse_http_url(&grant.token_url, "token_url").map_err(OutboundError::Rejected)?;
    // A URL that the configuration names may be private.
    let configured_policy = UrlPolicy::new(&OpenApiSource::default(), None, Some(&url));
    let url_policy = if grant.is_document_url { document_policy } else { &configured_policy };
    let sender = OutboundSender { clients, url_policy, connect_timeout, max_response_bytes: MAX_TOKEN_RESPONSE_BYTES };
    // RFC 6749 prefers HTTP Basic; some servers accept the credentials in the body only.
    let mut received = sender.send(build_token_request(grant, &url, *credentials_in_body)?).await.map_err(as_unsent)?;
    if !*credentials_in_body && is_client_rejected(&received) {
        received = sender.send(build_token_request(grant, &url, true)?).await.map_err(as_unsent)?;
        // Remembered only after a success: a wrong secret is rejected in either place.
        *credentials_in_body = received.status.is_success();
    }
    parse_token(grant, &url, &received)
}

/// Error of a token request, seen from the tool call: that was not sent, so an interrupted token request counts as no
/// connection.
fn as_unsent(error: OutboundError) -> OutboundError {
    let is_rejected = matches!(error, OutboundError::Rejected(_));
    let error = error.into_unavailable();
    if is_rejected { OutboundError::Rejected(error) } else { OutboundError::Unreachable(error) }
}

/// Builds the request to the token endpoint.
fn build_token_request(
    grant: &OauthGrant,
    url: &Url,
    credentials_in_body: bool,
) -> Result<OutboundRequest, OutboundError> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !grant.scopes.is_empty() {
        form.append_pair("scope", &grant.scopes.join(" "));
    }
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if credentials_in_body {
        form.append_pair("client_id", &grant.client_id).append_pair("client_secret", &grant.client_secret);
    } else {
        // RFC 6749, section 2.3.1: both parts are form-encoded before Base64.
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let value = format!("Basic {}", basic_credentials(&encoded(&grant.client_id), &encoded(&grant.client_secret)));
        headers.insert(AUTHORIZATION, header_value("authorization", &value).map_err(OutboundError::Rejected)?);
    }
    // The key of the configuration, not the URL, which may contain a resolved reference.
    let label = "POST token_url".to_owned();
    let body = Some(form.finish().into());
    Ok(OutboundRequest { label, method: Method::POST, url: url.clone(), headers, body })
}

/// Whether the endpoint rejects the client authentication, as opposed to the grant.
fn is_client_rejected(received: &ReceivedResponse) -> bool {
    let is_rejected = matches!(received.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
    is_rejected && parse_error(received).error.as_deref() == Some("invalid_client")
}

/// Error fields of a response; empty if it has none.
fn parse_error(received: &ReceivedResponse) -> TokenErrorResponse {
    serde_json::from_slice(&json_text(&received.body)).unwrap_or_default()
}

/// Reads the token from a response, or explains why there is none without quoting secrets.
fn parse_token(grant: &OauthGrant, url: &Url, received: &ReceivedResponse) -> Result<(String, Instant), OutboundError> {
    let origin = display_origin(url);
    let redact = |text: &str| {
        let secrets = [basic_credentials(&grant.client_id, &grant.client_secret), grant.client_secret.clone()];
        let clean = secrets.iter().filter(|secret| !secret.is_empty());
        sanitize_truncated(&clean.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***")), 200)
    };
    // An error response: quote its reason without the secret that some servers echo.
    if !received.status.is_success() {
        let TokenErrorResponse { error, error_description } = parse_error(received);
        let reasons: Vec<String> = [error, error_description].into_iter().flatten().map(|text| redact(&text)).collect();
        let reason = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        let message = format!("`{origin}` issued no token: it answered {}{reason}", received.status);
        let error = Error::new(Code::ToolUnavailable, message);
        // A client error does not go away by retrying.
        let is_permanent = received.status.is_client_error() && received.status != StatusCode::TOO_MANY_REQUESTS;
        return Err(if is_permanent {
            OutboundError::Rejected(error.with_retryable(false))
        } else {
            OutboundError::Unreachable(error)
        });
    }
    let unusable_error = |reason: &str| {
        let message = format!("`{origin}` issued no usable token: {reason}");
        OutboundError::Rejected(Error::new(Code::ToolUnavailable, message).with_retryable(false))
    };
    // The body may contain a secret, so the error does not quote it.
    let response: TokenResponse = serde_json::from_slice(&json_text(&received.body))
        .map_err(|_| unusable_error("the response has no `access_token`"))?;
    if response.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(unusable_error("its type is not `Bearer`"));
    }
    if response.access_token.is_empty() || response.access_token.chars().any(char::is_control) {
        return Err(unusable_error("it is empty or has characters that HTTP does not allow"));
    }
    // Lenient: a token without a usable lifetime is still a token.
    let seconds = match response.expires_in {
        Some(ExpiresIn::Number(seconds)) => Some(seconds),
        Some(ExpiresIn::Text(text)) => text.trim().parse().ok(),
        None => None,
    };
    let lifetime =
        seconds.filter(|seconds| *seconds >= 0.0).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let lifetime = lifetime.unwrap_or(DEFAULT_TOKEN_LIFETIME).min(MAX_TOKEN_LIFETIME);
    Ok((response.access_token, Instant::now() + lifetime - MAX_RENEWAL_MARGIN.min(lifetime / 10)))
}

impl OutboundError {
    /// Duplicates the error for a caller that waited for the same request. The cause was logged with the first.
    fn clone_without_cause(&self) -> OutboundError {
        let without_cause =
            |error: &Error| Error::new(error.code, error.message.clone()).with_retryable(error.is_retryable());
        match self {
            OutboundError::Rejected(error) => OutboundError::Rejected(without_cause(error)),
            OutboundError::Unreachable(error) => OutboundError::Unreachable(without_cause(error)),
            OutboundError::Interrupted(error) => OutboundError::Interrupted(without_cause(error)),
        }
    }
}

impl std::fmt::Debug for CachedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedToken").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}
