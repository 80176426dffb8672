//! Tokens by OAuth 2 client credentials: kept while they hold, fetched once for all who wait, never in a message.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use tokio::time::Instant;
use toolcrib_core::source::OpenApiSource;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error};
use url::{Url, form_urlencoded};

use super::credentials::{AuthValue, OauthGrant};
use super::http_clients::OpenApiClients;
use super::resolved_source::{header_value, parse_http_url};
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse, display_origin};
use super::url_policy::UrlPolicy;
use crate::secret::basic_credentials;

const MAX_TOKEN_RESPONSE_BYTES: usize = 64 * 1024;
/// How long a token holds whose server does not say.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// A token is fetched anew this long before it ends, or a tenth of its life where that is less.
const MAX_RENEWAL_MARGIN: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct TokenCache(Mutex<BTreeMap<OauthGrant, Arc<tokio::sync::Mutex<CachedToken>>>>);

#[derive(Default)]
struct CachedToken {
    token: Option<(String, Instant)>,
    /// When fetching failed last, and how: whoever waited for it meanwhile need not try as well.
    failure: Option<(Instant, OutboundError)>,
    /// The server wants to find the credentials in the body.
    credentials_in_body: bool,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<ExpiresIn>,
}

/// Some servers write it as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExpiresIn {
    Number(f64),
    Text(String),
}

#[derive(Deserialize, Default)]
struct TokenErrorResponse {
    error: Option<String>,
    error_description: Option<String>,
}

impl TokenCache {
    /// Those of the proofs that are had by asking for them, in their order.
    pub(super) async fn tokens_for(
        &self,
        proofs: &[AuthValue],
        clients: &OpenApiClients,
        connect: Duration,
    ) -> Result<Vec<String>, OutboundError> {
        let mut tokens = Vec::new();
        for proof in proofs {
            if let AuthValue::Oauth2(grant) = proof {
                tokens.push(self.get(grant, clients, connect).await?);
            }
        }
        Ok(tokens)
    }

    /// A token that holds. Who calls sees to it that this ends in time.
    pub(super) async fn get(
        &self,
        grant: &OauthGrant,
        clients: &OpenApiClients,
        connect: Duration,
    ) -> Result<String, OutboundError> {
        let asked_at = Instant::now();
        let kept = self.entry(grant);
        let mut kept = kept.lock().await;
        if let Some((token, until)) = &kept.token
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        if let Some((at, failed)) = &kept.failure
            && *at > asked_at
        {
            return Err(failed.clone_without_cause());
        }
        match fetch_token(grant, &mut kept.credentials_in_body, clients, connect).await {
            Ok((token, until)) => {
                kept.failure = None;
                kept.token = Some((token.clone(), until));
                Ok(token)
            }
            Err(failed) => {
                kept.token = None;
                kept.failure = Some((Instant::now(), failed.clone_without_cause()));
                Err(failed)
            }
        }
    }

    /// A token that a server did not take is not presented again.
    pub(super) async fn invalidate(&self, grant: &OauthGrant, token: &str) {
        let kept = self.entry(grant);
        let mut kept = kept.lock().await;
        if kept.token.as_ref().is_some_and(|(known, _)| known == token) {
            kept.token = None;
        }
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn entry(&self, grant: &OauthGrant) -> Arc<tokio::sync::Mutex<CachedToken>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(grant.clone()).or_default().clone()
    }
}

async fn fetch_token(
    grant: &OauthGrant,
    in_body: &mut bool,
    clients: &OpenApiClients,
    connect_timeout: Duration,
) -> Result<(String, Instant), OutboundError> {
    let url = parse_http_url(&grant.token_url, "token_url").map_err(OutboundError::Rejected)?;
    // The configuration names this address, so that it may be any.
    let territory = UrlPolicy::new(&OpenApiSource::default(), None, Some(&url));
    let sender = OutboundSender {
        clients,
        url_policy: &territory,
        connect_timeout,
        max_response_bytes: MAX_TOKEN_RESPONSE_BYTES,
    };
    let mut received = sender.send(build_token_request(grant, &url, *in_body)?).await.map_err(as_unsent)?;
    if !*in_body && is_client_rejected(&received) {
        received = sender.send(build_token_request(grant, &url, true)?).await.map_err(as_unsent)?;
        *in_body = received.status.is_success();
    }
    parse_token(grant, &url, &received)
}

/// Whatever became of the token, the call itself was not sent.
fn as_unsent(failed: OutboundError) -> OutboundError {
    let refused = matches!(failed, OutboundError::Rejected(_));
    let error = failed.into_unavailable();
    if refused { OutboundError::Rejected(error) } else { OutboundError::Unreachable(error) }
}

fn build_token_request(grant: &OauthGrant, url: &Url, in_body: bool) -> Result<OutboundRequest, OutboundError> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !grant.scopes.is_empty() {
        form.append_pair("scope", &grant.scopes.join(" "));
    }
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if in_body {
        form.append_pair("client_id", &grant.client_id).append_pair("client_secret", &grant.client_secret);
    } else {
        // RFC 6749, section 2.3.1: each is written as in a form first.
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let value = format!("Basic {}", basic_credentials(&encoded(&grant.client_id), &encoded(&grant.client_secret)));
        headers.insert(AUTHORIZATION, header_value("authorization", &value).map_err(OutboundError::Rejected)?);
    }
    let label = "POST token_url".to_owned();
    let body = Some(form.finish().into());
    Ok(OutboundRequest { label, method: Method::POST, url: url.clone(), headers, body })
}

fn is_client_rejected(received: &ReceivedResponse) -> bool {
    let refused = matches!(received.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
    refused && parse_error(received).error.as_deref() == Some("invalid_client")
}

fn parse_error(received: &ReceivedResponse) -> TokenErrorResponse {
    serde_json::from_slice(&received.body).unwrap_or_default()
}

fn parse_token(grant: &OauthGrant, url: &Url, received: &ReceivedResponse) -> Result<(String, Instant), OutboundError> {
    let place = display_origin(url);
    let hidden = |text: &str| {
        let secrets = [basic_credentials(&grant.client_id, &grant.client_secret), grant.client_secret.clone()];
        let clean = secrets.iter().filter(|secret| !secret.is_empty());
        sanitize_truncated(&clean.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***")), 200)
    };
    if !received.status.is_success() {
        let TokenErrorResponse { error, error_description } = parse_error(received);
        let reasons: Vec<String> = [error, error_description].into_iter().flatten().map(|text| hidden(&text)).collect();
        let reason = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        let message = format!("`{place}` gave no token: it answered {}{reason}", received.status);
        let error = Error::new(Code::ToolUnavailable, message);
        // The server is there and does not like what it got: the next try would not fare better.
        return Err(match received.status.is_client_error() && received.status != StatusCode::TOO_MANY_REQUESTS {
            true => OutboundError::Rejected(error.with_retryable(false)),
            false => OutboundError::Unreachable(error),
        });
    }
    let unusable = |why: &str| {
        let message = format!("`{place}` gave no token that can be used: {why}");
        OutboundError::Rejected(Error::new(Code::ToolUnavailable, message).with_retryable(false))
    };
    // What it is instead may be secret, so nothing of it is told.
    let granted: TokenResponse = serde_json::from_slice(&received.body).map_err(|_| unusable("the answer has none"))?;
    if granted.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(unusable("it is of another kind than `Bearer`"));
    }
    if granted.access_token.is_empty() || granted.access_token.chars().any(char::is_control) {
        return Err(unusable("it is empty or has characters that HTTP does not allow"));
    }
    let seconds = match granted.expires_in {
        Some(ExpiresIn::Number(seconds)) => Some(seconds),
        Some(ExpiresIn::Text(text)) => text.trim().parse().ok(),
        None => None,
    };
    let life = seconds.filter(|seconds| *seconds >= 0.0).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let life = life.unwrap_or(DEFAULT_TOKEN_LIFETIME).min(MAX_TOKEN_LIFETIME);
    Ok((granted.access_token, Instant::now() + life - MAX_RENEWAL_MARGIN.min(life / 10)))
}

impl OutboundError {
    /// The same for somebody else.
    fn clone_without_cause(&self) -> OutboundError {
        let same = |error: &Error| Error::new(error.code, error.message.clone()).with_retryable(error.is_retryable());
        match self {
            OutboundError::Rejected(error) => OutboundError::Rejected(same(error)),
            OutboundError::Unreachable(error) => OutboundError::Unreachable(same(error)),
            OutboundError::Interrupted(error) => OutboundError::Interrupted(same(error)),
        }
    }
}

impl std::fmt::Debug for CachedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}
