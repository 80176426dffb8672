//! One request of a call and its answer: with credentials, made again where that is safe, and what a failure says about
//! the source.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use toolcrib_core::Code;

use super::OpenApiConnector;
use super::credentials::{AuthValue, SelectedAuth, apply_auth};
use super::error_response::response_error;
use super::resolved_source::ResolvedSource;
use super::result::{MAX_RESPONSE_BYTES, to_arazzo_response};
use super::retry::{RetryState, retry_after_header};
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse};
use crate::connector::{CallFailure, ResponseRecorder};
use crate::trace::Trace;

#[derive(Debug)]
pub(super) struct ApiClient<'a> {
    pub(super) connector: &'a OpenApiConnector,
    pub(super) resolved: &'a ResolvedSource,
    pub(super) auth: &'a SelectedAuth,
    pub(super) deadline: Instant,
    pub(super) response_recorder: Option<&'a ResponseRecorder>,
    pub(super) trace: Option<&'a Trace>,
}

impl ApiClient<'_> {
    /// The answer, if it is below 400. Who calls sees to it that this ends in time.
    pub(super) async fn send_with_retries(
        &self,
        draft: &OutboundRequest,
        repeatable: bool,
    ) -> Result<ReceivedResponse, CallFailure> {
        let mut tries = RetryState::new(repeatable);
        let mut renewed = false;
        loop {
            let tokens = self.fetch_tokens().await.map_err(to_call_failure)?;
            let wait = match self.send_once(draft, &tokens).await {
                Ok(received) if received.status.as_u16() < 400 => {
                    self.record_response(draft, &received);
                    return Ok(received);
                }
                // It may have been taken back before its time, once.
                Ok(received) if received.status == StatusCode::UNAUTHORIZED && !tokens.is_empty() && !renewed => {
                    renewed = true;
                    self.invalidate_tokens(&tokens).await;
                    continue;
                }
                Ok(received) => {
                    let asked = retry_after_header(&received.headers, self.connector.clock.now());
                    let wait = tries.after_status(received.status, asked, self.remaining());
                    wait.ok_or_else(|| {
                        self.record_response(draft, &received);
                        self.rejection(draft, &received, asked)
                    })
                }
                Err(failed) => {
                    let wait = match &failed {
                        OutboundError::Rejected(_) => None,
                        OutboundError::Unreachable(_) => tries.after_connect_failure(self.remaining()),
                        OutboundError::Interrupted(_) => tries.after_interrupted_response(self.remaining()),
                    };
                    wait.ok_or_else(|| to_call_failure(failed))
                }
            };
            tokio::time::sleep(wait?).await;
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn record_response(&self, draft: &OutboundRequest, received: &ReceivedResponse) {
        if let Some(witness) = self.response_recorder {
            witness.record(to_arazzo_response(draft, received));
        }
    }

    async fn send_once(&self, draft: &OutboundRequest, tokens: &[String]) -> Result<ReceivedResponse, OutboundError> {
        let mut outgoing = draft.clone();
        apply_auth(&self.auth.values, tokens, &mut outgoing.url, &mut outgoing.headers)
            .map_err(OutboundError::Rejected)?;
        if let Some(trace) = self.trace {
            trace.add_to_headers(&mut outgoing.headers);
        }
        let sender = OutboundSender {
            clients: &self.connector.clients,
            url_policy: &self.resolved.url_policy,
            connect_timeout: self.connector.source.settings.connect_timeout(),
            max_response_bytes: MAX_RESPONSE_BYTES,
        };
        let mut received = match self.response_recorder.is_some_and(|witness| witness.keep_redirects) {
            true => sender.send_without_redirects(outgoing).await?,
            false => sender.send(outgoing).await?,
        };
        let OpenApiConnector { source, redactor, .. } = self.connector;
        if let Cow::Owned(redacted) = redactor.get(&source.kind).redact(&received.shown_url) {
            received.shown_url = redacted;
        }
        Ok(received)
    }

    async fn fetch_tokens(&self) -> Result<Vec<String>, OutboundError> {
        let OpenApiConnector { source, clients, tokens, redactor, .. } = self.connector;
        let tokens = tokens.tokens_for(&self.auth.values, clients, source.settings.connect_timeout()).await?;
        tokens.iter().for_each(|token| redactor.add_credential(token));
        Ok(tokens)
    }

    async fn invalidate_tokens(&self, tokens: &[String]) {
        let grants = self.auth.values.iter().filter_map(|proof| match proof {
            AuthValue::Oauth2(grant) => Some(grant),
            AuthValue::Bearer(_) | AuthValue::Basic { .. } | AuthValue::ApiKey { .. } => None,
        });
        for (grant, token) in grants.zip(tokens) {
            self.connector.tokens.invalidate(grant, token).await;
        }
    }

    fn rejection(&self, draft: &OutboundRequest, received: &ReceivedResponse, asked: Option<Duration>) -> CallFailure {
        let error = response_error(&draft.label, received, asked, self.auth.missing.as_deref());
        // A server may repeat what it got.
        let OpenApiConnector { source, redactor, .. } = self.connector;
        let error = redactor.get(&source.kind).redact_error(error);
        match received.status.as_u16() {
            502..=504 if error.code != Code::RateLimited => CallFailure::Unavailable(error),
            _ => CallFailure::Rejected(error),
        }
    }
}

fn to_call_failure(failed: OutboundError) -> CallFailure {
    match failed {
        OutboundError::Rejected(error) => CallFailure::Rejected(error),
        OutboundError::Unreachable(error) | OutboundError::Interrupted(error) => CallFailure::Unavailable(error),
    }
}
