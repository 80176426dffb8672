//! Executes a tool call: from the tool's execution specification to an HTTP request, and from the response to a result.
//!
//! Failures are classified by the phase they happen in: before anything is sent they are inconclusive, because they say
//! nothing about the API; after that, by what the API answered. The order for each attempt to send is fixed: token, copy
//! of the request, credentials, address check, send. Everything that is shown to a caller (label, URL, error body) is
//! free of credentials or redacted.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use serde_json::{Map, Value, json};
use toolcrib_connector::clock::format_limit;
use toolcrib_connector::document::{discover_in_time, run_blocking};
use toolcrib_connector::{
    CallFailure, Connector, Discovered, Discovery, RedirectMode, ToolCall, ToolResult, UndeclaredParameters,
};
use toolcrib_core::execution::{BodyAlternative, ExecutionMode, ExecutionSpec, Operation, ParameterLocation};
use toolcrib_core::json::parse_exact;
use toolcrib_core::source::{ArgumentValidation, PollSettings};
use toolcrib_core::text::{did_you_mean, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::OpenApiConnector;
use super::credentials::{AuthValue, SelectedAuth, apply_auth, resolve_token_urls, select_auth};
use super::error_response::response_error;
use super::pagination::PageArguments;
use super::poll::Poller;
use super::request_builder::{self, build_request, operation_label};
use super::resolved_source::ResolvedSource;
use super::result::{MAX_RESPONSE_BYTES, build_result, to_arazzo_response};
use super::retry::{RetryState, retry_after_header};
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse};
use super::undeclared::add_undeclared;
use crate::request::prepare;

#[async_trait]
impl Connector for OpenApiConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        discover_in_time(discovery.timeout, self.discover_tools(&discovery)).await
    }

    /// Executes a call until it finishes, its timeout expires, or its caller cancels.
    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        let (mut operation, poll) = parse_execution(call).map_err(CallFailure::Inconclusive)?;
        if self.source.settings.validate() == ArgumentValidation::Lenient {
            make_optional(&mut operation);
        }
        // Cancellation first: a call that is cancelled before it starts must not send anything.
        // One timer for everything, so that no request needs a timeout of its own.
        tokio::select! {
            biased;
            () = call.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            result = self.execute_operation(call, &operation, poll.as_ref()) => result,
            () = tokio::time::sleep_until(call.deadline.at) => Err(self.timeout_failure(&operation_label(&operation), call)),
        }
    }

    /// Forgets the tokens. Calls in flight keep theirs until they end.
    async fn close(&self) {
        self.tokens.clear();
    }
}

impl OpenApiConnector {
    /// Builds the request, sends it, and polls if the operation starts a job. Errors before sending are inconclusive:
    /// they say nothing about the API.
    async fn execute_operation(
        &self,
        call: &ToolCall<'_>,
        operation: &Operation,
        poll: Option<&PollSettings>,
    ) -> Result<ToolResult, CallFailure> {
        // Collect everything the request needs. None of these steps contacts the API.
        let validation = self.source.settings.validate();
        let (arguments, note) = parse_arguments(call, operation, validation).map_err(CallFailure::Inconclusive)?;
        // A workflow step may send more than the operation declares.
        let undeclared = call.response_recorder.map(|recorder| &recorder.undeclared);
        let has_undeclared_values = undeclared.is_some_and(UndeclaredParameters::has_values);
        let (operation, arguments) = match undeclared.filter(|undeclared| !undeclared.is_empty()) {
            Some(undeclared) => add_undeclared(undeclared, operation, arguments, &self.references),
            None => (Cow::Borrowed(operation), arguments),
        };
        let operation = operation.as_ref();
        let references = self.references.read().await;
        let resolved = ResolvedSource::resolve(&self.source, &references).map_err(CallFailure::Inconclusive)?;
        let base_url = request_builder::base_url(&resolved, operation).map_err(CallFailure::Inconclusive)?;
        // Separator of multipart bodies; random, so that no argument can contain it.
        let boundary = format!("toolcrib-{:032x}", rand::random::<u128>());
        let prepared =
            prepare(operation, base_url.as_str(), &arguments, &boundary).map_err(CallFailure::Inconclusive)?;
        let request = build_request(prepared, operation, &resolved, &base_url).map_err(CallFailure::Inconclusive)?;
        let mut auth = select_auth(operation, &resolved.credentials).map_err(CallFailure::Inconclusive)?;
        resolve_token_urls(&mut auth, &resolved, &base_url).map_err(CallFailure::Inconclusive)?;
        // Headers and undeclared values may carry credentials too.
        if !auth.values.is_empty() || !resolved.headers.is_empty() || has_undeclared_values {
            resolved.check_credentials_allowed(&base_url).map_err(CallFailure::Inconclusive)?;
        }

        // Send, with retries and token renewal.
        let client = ApiClient { connector: self, resolved: &resolved, auth: &auth, call };
        let received = client.send_with_retries(&request, call.is_idempotent).await?;
        let result = match poll {
            // Large bodies take time to convert: keep that off the async workers.
            None => {
                let pages = client.page_arguments(operation, &request);
                let label = request.label;
                run_blocking(move || build_result(&label, &received, &pages)).await.map_err(CallFailure::Rejected)
            }
            // The response only started a job: its result comes from the status URL.
            Some(poll) => {
                let poller = Poller { client: &client, base_url: &base_url, poll, request: &request };
                poller.poll_until_done(operation, &arguments, received).await
            }
        }?;
        Ok(match note {
            Some(note) => result.with_note(&note),
            None => result,
        })
    }

    /// A timeout shorter than the source's own call timeout does not count against the source.
    fn timeout_failure(&self, label: &str, call: &ToolCall<'_>) -> CallFailure {
        let message = format!("`{label}` timed out after {}", format_limit(call.deadline.limit));
        let error = Error::new(Code::ToolExecutionFailed, message).with_retryable(call.is_idempotent);
        call.deadline.timeout_failure(error)
    }
}

/// Reads the execution specification that discovery attached to the tool. A refresh attaches it again if it cannot be
/// read.
fn parse_execution(call: &ToolCall<'_>) -> Result<(Operation, Option<PollSettings>)> {
    let unknown = || {
        let message =
            format!("the execution specification of `{}` is missing or invalid; refresh its source", call.tool);
        Error::new(Code::ToolUnavailable, message)
    };
    let spec = call.execution_spec.ok_or_else(unknown)?;
    let spec: ExecutionSpec = serde_json::from_str(spec.get()).map_err(|error| unknown().with_cause(error))?;
    match spec.execution {
        ExecutionMode::SyncHttp(operation) => Ok((operation, None)),
        ExecutionMode::AsyncPoll { operation, poll } => Ok((operation, Some(poll))),
        ExecutionMode::McpCall | ExecutionMode::Workflow { .. } => Err(unknown()),
    }
}

/// Makes everything optional but the parameters of the path, without which there is no URL.
fn make_optional(operation: &mut Operation) {
    let parameters = operation.parameters.iter_mut();
    for parameter in parameters.filter(|parameter| parameter.location != ParameterLocation::Path) {
        parameter.required = false;
    }
    if let Some(body) = &mut operation.body {
        body.required = false;
        body.fields.values_mut().for_each(|field| field.required = false);
    }
    let alternatives = operation.body_choice.iter_mut().flat_map(|choice| &mut choice.alternatives);
    for BodyAlternative { body, .. } in alternatives {
        body.required = false;
        body.fields.values_mut().for_each(|field| field.required = false);
    }
}

/// Parses the arguments. Each must map to a part of the request: an argument that is silently dropped hides a mistake
/// of the caller. With lenient validation, unknown ones are dropped with a note.
fn parse_arguments(
    call: &ToolCall<'_>,
    operation: &Operation,
    validation: ArgumentValidation,
) -> Result<(Map<String, Value>, Option<String>)> {
    let mut arguments: Map<String, Value> =
        parse_exact(call.arguments.get()).context(Code::ToolInvalidInput, "the arguments are not an object")?;
    // Every name the operation knows: its parameters and, under a name of its own, the request body.
    let parameters = operation.parameters.iter().map(|parameter| parameter.argument.as_str());
    let body = operation.body.as_ref().map(|body| body.argument.as_str());
    let choice = operation.body_choice.as_ref().map(|choice| choice.argument.as_str());
    let known: Vec<&str> = parameters.chain(body).chain(choice).collect();
    let Some(unknown) = arguments.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok((arguments, None));
    };
    if validation == ArgumentValidation::Lenient {
        let unknown: Vec<String> = arguments.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect();
        arguments.retain(|name, _| known.contains(&name.as_str()));
        let names: Vec<String> = unknown.iter().map(|name| format!("`{}`", sanitize_truncated(name, 80))).collect();
        let note = format!("not sent, since they are not arguments of this tool: {}", names.join(", "));
        return Ok((arguments, Some(sanitize_truncated(&note, 1_000))));
    }
    let suggestion = did_you_mean(unknown, known.iter().copied());
    let message = format!("`{}` is not an argument of `{}`{suggestion}", sanitize_truncated(unknown, 80), call.tool);
    let fault = json!({ "path": format!("/{unknown}"), "message": "is not an argument of this tool" });
    Err(Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": [fault] })))
}

/// Sends the requests of one call, a job that is polled several: adds credentials, retries where that is safe, renews
/// OAuth tokens, and classifies failures.
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
                    wait.ok_or_else(|| to_call_failure(error.with_repeatable(is_idempotent)))
                }
            };
            // `wait` is an error if there is no retry; otherwise it ends before the deadline.
            tokio::time::sleep(wait?).await;
        }
    }

    /// Arguments with which the next page of a response is requested.
    pub(super) fn page_arguments(&self, operation: &Operation, request: &OutboundRequest) -> PageArguments {
        let redactor = self.connector.references.redactor();
        PageArguments::new(operation, &request.url, self.call.input_schema, redactor)
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
        let redirects = self.call.response_recorder.map_or(RedirectMode::Follow, |recorder| recorder.redirects);
        let mut received = match redirects {
            RedirectMode::Follow => sender.send(authorized).await?,
            RedirectMode::Return => sender.send_without_redirects(authorized).await?,
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
        let connect_timeout = source.settings.connect_timeout();
        let url_policy = &self.resolved.url_policy;
        let tokens = tokens.tokens_for(&self.auth.values, clients, url_policy, connect_timeout).await?;
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
