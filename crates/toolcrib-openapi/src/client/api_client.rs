//! Sends the requests of one tool call: adds credentials, retries where that is safe, renews OAuth tokens, and
//! classifies failures.
//!
//! One [`ApiClient`] serves one call; a job that is polled sends several requests through it. The order for each
//! attempt is fixed: token, copy of the request, credentials, address check, send. Everything that is shown to a caller
//! (label, URL, error body) is free of credentials or redacted.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use toolcrib_connector::{CallFailure, ToolCall};
use toolcrib_core::Code;

use super::OpenApiConnector;
use super::credentials::{AuthValue, SelectedAuth, apply_auth};
use super::error_response::response_error;
use super::resolved_source::ResolvedSource;
use super::result::{MAX_RESPONSE_BYTES, to_arazzo_response};
use super::retry::{RetryState, retry_after_header};
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse};

/// Everything the requests of one call share.
#[derive(Debug)]
pub(super) struct ApiClient<'a> {
    pub(super) connector: &'a OpenApiConnector,
    pub(super) resolved: &'a ResolvedSource,
    /// Added to a copy of each request just before sending.
    pub(super) auth: &'a SelectedAuth,
    /// Retries stop before its deadline.
    pub(super) call: &'a ToolCall<'a>,
}

impl ApiClient<'_> {
    /// Sends a request until it gets a final response and returns it if its status is below 400. The caller enforces
    /// the deadline.
    pub(super) async fn send_with_retries(
        &self,
        request: &OutboundRequest,
        is_idempotent: bool,
    ) -> Result<ReceivedResponse, CallFailure> {
        let mut retries = RetryState::new(is_idempotent);
        let mut has_renewed = false;
        loop {
            // For each attempt: a token may expire while waiting for a retry. It usually comes from the cache.
            let tokens = self.fetch_tokens().await.map_err(to_call_failure)?;
            let wait = match self.send_once(request, &tokens).await {
                Ok(received) if received.status.as_u16() < 400 => {
                    self.record_response(request, &received);
                    return Ok(received);
                }
                // A token may be revoked before it expires: renew it once.
                Ok(received) if received.status == StatusCode::UNAUTHORIZED && !tokens.is_empty() && !has_renewed => {
                    has_renewed = true;
                    self.invalidate_tokens(&tokens).await;
                    continue;
                }
                Ok(received) => {
                    let retry_after = retry_after_header(&received.headers, self.connector.clock.now());
                    let wait = retries.after_status(received.status, retry_after, self.remaining());
                    wait.ok_or_else(|| {
                        self.record_response(request, &received);
                        self.rejection(request, &received, retry_after)
                    })
                }
                Err(error) => {
                    let wait = match &error {
                        OutboundError::Rejected(_) => None,
                        OutboundError::Unreachable(_) => retries.after_connect_failure(self.remaining()),
                        OutboundError::Interrupted(_) => retries.after_interrupted_response(self.remaining()),
                    };
                    wait.ok_or_else(|| to_call_failure(error))
                }
            };
            // `wait` is an error if there is no retry; otherwise it ends before the deadline.
            tokio::time::sleep(wait?).await;
        }
    }

    /// Time until the deadline.
    pub(super) fn remaining(&self) -> Duration {
        self.call.deadline.remaining()
    }

    /// Hands the response to the workflow step, if there is one.
    fn record_response(&self, request: &OutboundRequest, received: &ReceivedResponse) {
        if let Some(recorder) = self.call.response_recorder {
            recorder.record(to_arazzo_response(request, received));
        }
    }

    /// Adds credentials and trace headers, and sends the request once.
    async fn send_once(&self, request: &OutboundRequest, tokens: &[String]) -> Result<ReceivedResponse, OutboundError> {
        // A copy: credentials must not remain in the request, which is used again for retries and messages.
        let mut authorized = request.clone();
        apply_auth(&self.auth.values, tokens, &mut authorized.url, &mut authorized.headers)
            .map_err(OutboundError::Rejected)?;
        if let Some(trace) = self.call.span {
            trace.add_to_headers(&mut authorized.headers);
        }
        // Credentials are added before the policy is checked, because they may change the URL.
        let sender = OutboundSender {
            clients: &self.connector.clients,
            url_policy: &self.resolved.url_policy,
            connect_timeout: self.connector.source.settings.connect_timeout(),
            max_response_bytes: MAX_RESPONSE_BYTES,
        };
        let keep_redirects = self.call.response_recorder.is_some_and(|recorder| recorder.keep_redirects);
        let mut received = if keep_redirects {
            sender.send_without_redirects(authorized).await?
        } else {
            sender.send(authorized).await?
        };
        // The URL appears in the result, and a path may contain a secret.
        if let Cow::Owned(redacted) = self.connector.references.redactor().redact(&received.shown_url) {
            received.shown_url = redacted;
        }
        Ok(received)
    }

    /// OAuth tokens for the request, from the cache or the token endpoint. Adds them to the redactor.
    async fn fetch_tokens(&self) -> Result<Vec<String>, OutboundError> {
        let OpenApiConnector { source, clients, tokens, references, .. } = self.connector;
        let tokens = tokens.tokens_for(&self.auth.values, clients, source.settings.connect_timeout()).await?;
        tokens.iter().for_each(|token| references.add_credential(token));
        Ok(tokens)
    }

    /// Drops rejected tokens from the cache.
    async fn invalidate_tokens(&self, tokens: &[String]) {
        let grants = self.auth.values.iter().filter_map(|value| match value {
            AuthValue::Oauth2(grant) => Some(grant),
            AuthValue::Bearer(_) | AuthValue::Basic { .. } | AuthValue::ApiKey { .. } => None,
        });
        // Tokens are in the order of the OAuth values.
        for (grant, token) in grants.zip(tokens) {
            self.connector.tokens.invalidate(grant, token).await;
        }
    }

    /// Builds the error for a final response of 400 and above. Gateway errors count against the source, others do not.
    fn rejection(
        &self,
        request: &OutboundRequest,
        received: &ReceivedResponse,
        retry_after: Option<Duration>,
    ) -> CallFailure {
        let error = response_error(&request.label, received, retry_after, self.auth.missing.as_deref());
        // An API may echo credentials in its error.
        let error = self.connector.references.redactor().redact_error(error);
        match received.status.as_u16() {
            // A gateway in front of the API says that the API does not respond, unless it asks to wait.
            502..=504 if error.code != Code::RateLimited => CallFailure::Unavailable(error),
            _ => CallFailure::Rejected(error),
        }
    }
}

/// Classifies a request without a response.
fn to_call_failure(error: OutboundError) -> CallFailure {
    match error {
        OutboundError::Rejected(error) => CallFailure::Rejected(error),
        OutboundError::Unreachable(error) | OutboundError::Interrupted(error) => CallFailure::Unavailable(error),
    }
}
