//! Tokens by OAuth 2 client credentials: kept while they hold, fetched once for all who wait, never in a message.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use tokio::time::Instant;
use toolcrib_core::source::OpenApi;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error};
use url::{Url, form_urlencoded};

use super::clients::Clients;
use super::credentials::{Grant, Proof};
use super::send::{Failed, Outgoing, Received, Sender, shown_origin};
use super::settled::{address, header_value};
use super::territory::Territory;
use crate::secret::basic;

const LARGEST: usize = 64 * 1024;
/// How long a token holds whose server does not say.
const USUAL_LIFE: Duration = Duration::from_secs(3600);
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// A token is fetched anew this long before it ends, or a tenth of its life where that is less.
const MARGIN: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<BTreeMap<Grant, Arc<tokio::sync::Mutex<Kept>>>>);

#[derive(Default)]
struct Kept {
    token: Option<(String, Instant)>,
    /// When fetching failed last, and how: whoever waited for it meanwhile need not try as well.
    failed: Option<(Instant, Failed)>,
    /// The server wants to find the credentials in the body.
    in_body: bool,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Number>,
}

/// Some servers write it as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(f64),
    Text(String),
}

#[derive(Deserialize, Default)]
struct Refusal {
    error: Option<String>,
    error_description: Option<String>,
}

impl Tokens {
    /// Those of the proofs that are had by asking for them, in their order.
    pub(super) async fn of(
        &self,
        proofs: &[Proof],
        clients: &Clients,
        connect: Duration,
    ) -> Result<Vec<String>, Failed> {
        let mut tokens = Vec::new();
        for proof in proofs {
            if let Proof::Oauth2(grant) = proof {
                tokens.push(self.get(grant, clients, connect).await?);
            }
        }
        Ok(tokens)
    }

    /// A token that holds. Who calls sees to it that this ends in time.
    pub(super) async fn get(&self, grant: &Grant, clients: &Clients, connect: Duration) -> Result<String, Failed> {
        let asked_at = Instant::now();
        let kept = self.kept(grant);
        let mut kept = kept.lock().await;
        if let Some((token, until)) = &kept.token
            && Instant::now() < *until
        {
            return Ok(token.clone());
        }
        if let Some((at, failed)) = &kept.failed
            && *at > asked_at
        {
            return Err(failed.again());
        }
        match fetch(grant, &mut kept.in_body, clients, connect).await {
            Ok((token, until)) => {
                kept.failed = None;
                kept.token = Some((token.clone(), until));
                Ok(token)
            }
            Err(failed) => {
                kept.token = None;
                kept.failed = Some((Instant::now(), failed.again()));
                Err(failed)
            }
        }
    }

    /// A token that a server did not take is not presented again.
    pub(super) async fn forget(&self, grant: &Grant, token: &str) {
        let kept = self.kept(grant);
        let mut kept = kept.lock().await;
        if kept.token.as_ref().is_some_and(|(known, _)| known == token) {
            kept.token = None;
        }
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn kept(&self, grant: &Grant) -> Arc<tokio::sync::Mutex<Kept>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(grant.clone()).or_default().clone()
    }
}

async fn fetch(
    grant: &Grant,
    in_body: &mut bool,
    clients: &Clients,
    connect_timeout: Duration,
) -> Result<(String, Instant), Failed> {
    let url = address(&grant.token_url, "token_url").map_err(Failed::Refused)?;
    // The configuration names this address, so that it may be any.
    let territory = Territory::new(&OpenApi::default(), None, Some(&url));
    let sender = Sender { clients, territory: &territory, connect_timeout, most: LARGEST };
    let mut received = sender.send(request(grant, &url, *in_body)?).await.map_err(before_the_call)?;
    if !*in_body && refuses_client(&received) {
        received = sender.send(request(grant, &url, true)?).await.map_err(before_the_call)?;
        *in_body = received.status.is_success();
    }
    read(grant, &url, &received)
}

/// Whatever became of the token, the call itself was not sent.
fn before_the_call(failed: Failed) -> Failed {
    let refused = matches!(failed, Failed::Refused(_));
    let error = failed.into_unavailable();
    if refused { Failed::Refused(error) } else { Failed::Unreached(error) }
}

fn request(grant: &Grant, url: &Url, in_body: bool) -> Result<Outgoing, Failed> {
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
        let value = format!("Basic {}", basic(&encoded(&grant.client_id), &encoded(&grant.client_secret)));
        headers.insert(AUTHORIZATION, header_value("authorization", &value).map_err(Failed::Refused)?);
    }
    let (label, body) = ("POST token_url".to_owned(), Some(form.finish().into()));
    Ok(Outgoing { label, method: Method::POST, url: url.clone(), headers, body })
}

fn refuses_client(received: &Received) -> bool {
    let refused = matches!(received.status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED);
    refused && said(received).error.as_deref() == Some("invalid_client")
}

fn said(received: &Received) -> Refusal {
    serde_json::from_slice(&received.body).unwrap_or_default()
}

fn read(grant: &Grant, url: &Url, received: &Received) -> Result<(String, Instant), Failed> {
    let place = shown_origin(url);
    let hidden = |text: &str| {
        let secrets = [basic(&grant.client_id, &grant.client_secret), grant.client_secret.clone()];
        let clean = secrets.iter().filter(|secret| !secret.is_empty());
        shown_short(&clean.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***")), 200)
    };
    if !received.status.is_success() {
        let Refusal { error, error_description } = said(received);
        let reasons: Vec<String> = [error, error_description].into_iter().flatten().map(|text| hidden(&text)).collect();
        let reason = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
        let message = format!("`{place}` gave no token: it answered {}{reason}", received.status);
        let error = Error::new(Code::ToolUnavailable, message);
        // The server is there and does not like what it got: the next try would not fare better.
        return Err(match received.status.is_client_error() && received.status != StatusCode::TOO_MANY_REQUESTS {
            true => Failed::Refused(error.with_retryable(false)),
            false => Failed::Unreached(error),
        });
    }
    let unusable = |why: &str| {
        let message = format!("`{place}` gave no token that can be used: {why}");
        Failed::Refused(Error::new(Code::ToolUnavailable, message).with_retryable(false))
    };
    // What it is instead may be secret, so nothing of it is told.
    let granted: Granted = serde_json::from_slice(&received.body).map_err(|_| unusable("the answer has none"))?;
    if granted.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(unusable("it is of another kind than `Bearer`"));
    }
    if granted.access_token.is_empty() || granted.access_token.chars().any(char::is_control) {
        return Err(unusable("it is empty or has characters that HTTP does not allow"));
    }
    let seconds = match granted.expires_in {
        Some(Number::Number(seconds)) => Some(seconds),
        Some(Number::Text(text)) => text.trim().parse().ok(),
        None => None,
    };
    let life = seconds.filter(|seconds| *seconds >= 0.0).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let life = life.unwrap_or(USUAL_LIFE).min(LONGEST_LIFE);
    Ok((granted.access_token, Instant::now() + life - MARGIN.min(life / 10)))
}

impl Failed {
    /// The same for somebody else.
    fn again(&self) -> Failed {
        let same = |error: &Error| Error::new(error.code, error.message.clone()).with_retryable(error.retryable());
        match self {
            Failed::Refused(error) => Failed::Refused(same(error)),
            Failed::Unreached(error) => Failed::Unreached(same(error)),
            Failed::Broken(error) => Failed::Broken(same(error)),
        }
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("token", &self.token.is_some()).finish_non_exhaustive()
    }
}
