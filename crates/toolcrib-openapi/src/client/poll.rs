//! Polls the job that a request started: GET on the same server with the same credentials, until the configured status
//! field reports success or failure.
//!
//! Configured with `poll` of a source (see `PollSettings`). The job is followed within the one call, as long as its
//! timeout allows; a job that takes longer ends in an error that names its last status. An example:
//!
//! ```text
//! POST /exports  ▶ 202 {"id":"7"}          the request of the tool
//! GET /exports/7 ▶ {"state":"running"}     `url: /exports/{$response.body#/id}`, `status: /state`
//! GET /exports/7 ▶ {"state":"done", …}     `done: [done]`; the result is this response, or `result` in it
//! ```

use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};
use toolcrib_connector::{CallFailure, ToolResult};
use toolcrib_core::execution::{Operation, ParameterLocation};
use toolcrib_core::json::plain_text;
use toolcrib_core::source::PollSettings;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, percent};
use url::Url;

use super::call::ApiClient;
use super::error_response::{find_reason, truncate_body};
use super::request_builder::{build_get, check_plain_url, parse_declared_url};
use super::result::{build_result, build_result_from, header_pairs, parse_json};
use super::retry::retry_after_header;
use super::send::{OutboundRequest, ReceivedResponse};
use crate::expression::{self, Scope, evaluate, is_expression};

/// Interval before the first poll, unless configured; grows by half after each. `Retry-After` of a response takes its
/// place for the next poll.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Upper bound of the growing interval.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum length of a value of the first response that is inserted into the status URL.
const MAX_URL_VALUE_LEN: usize = 8 * 1024;

/// Polls one job.
#[derive(Debug)]
pub(super) struct Poller<'a> {
    /// Sends the polls with the credentials of the first request.
    pub(super) client: &'a ApiClient<'a>,
    /// The status URL must stay on this server.
    pub(super) base_url: &'a Url,
    pub(super) poll: &'a PollSettings,
    /// Request that started the job.
    pub(super) request: &'a OutboundRequest,
}

/// State of the job according to a response.
enum JobState {
    /// Finished, with the body of the response.
    Done(Value),
    /// Failed, with its status and the body of the response.
    Failed(String, Value),
    /// Not finished, with its status if the response has one.
    Running(Option<String>),
}

impl Poller<'_> {
    /// Polls until the job has finished or failed, or the deadline is too close for another poll. `started` is the
    /// response to the request that started the job.
    pub(super) async fn poll_until_done(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        started: ReceivedResponse,
    ) -> Result<ToolResult, CallFailure> {
        let url = self.status_url(operation, arguments, &started).map_err(CallFailure::Rejected)?;
        let status_request = build_get(url, self.client.resolved).map_err(CallFailure::Rejected)?;
        let mut interval = self.poll.interval.unwrap_or(DEFAULT_POLL_INTERVAL);
        // The first response may carry `Retry-After` as well.
        let mut last = started;
        let mut status = None;
        for attempt in 1u64.. {
            let retry_after = retry_after_header(&last.headers, self.client.connector.clock.now());
            self.sleep_interval(retry_after.unwrap_or(interval), status.as_deref()).await?;
            // Back off, but never below a configured interval.
            interval = interval.mul_f64(1.5).min(MAX_POLL_INTERVAL.max(interval));
            // Reading a status is idempotent, whatever started the job.
            last = self.client.send_with_retries(&status_request, true).await?;
            status = match self.parse_state(&last).map_err(CallFailure::Rejected)? {
                JobState::Done(body) => {
                    return self.build_job_result(operation, &body, &last).map_err(CallFailure::Rejected);
                }
                JobState::Failed(status, body) => return Err(CallFailure::Rejected(self.failure_error(&status, body))),
                JobState::Running(status) => status,
            };
            // Progress also tells the client that the call is alive.
            self.report_progress(attempt, status.as_deref());
        }
        Err(CallFailure::Rejected(self.job_error("exceeded the polling limit")))
    }

    /// Builds the URL to poll from the configured template. Always on the declared server, whatever the response says.
    fn status_url(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        started: &ReceivedResponse,
    ) -> Result<Url> {
        let sent = SentArguments::new(operation, arguments);
        let body = parse_json(&started.body);
        let headers = header_pairs(&started.headers);
        // Expressions may refer to the request that started the job and to its response.
        let scope = Scope {
            request: Some(sent.to_expression_request(self.request)),
            response: Some(expression::ResponseScope {
                status: started.status.as_u16(),
                headers: &headers,
                body: body.as_ref(),
            }),
            ..Scope::default()
        };
        let not_pollable = |reason: String| self.job_error(&format!("cannot be polled: {reason}"));
        let template = self.poll.url.trim();
        // A template that is a single expression is a URL from the response, such as `Location`: relative to the
        // response's own URL.
        if let Some(expression) = as_single_expression(template) {
            let pointed = plain_text(&evaluate(expression, &scope)?).into_owned();
            check_plain_url(&pointed).map_err(not_pollable)?;
            let url = match Url::parse(&pointed) {
                Ok(_) => pointed,
                Err(_) => started.url.join(&pointed).map(String::from).unwrap_or_default(),
            };
            return parse_declared_url(&url, self.base_url).map_err(not_pollable);
        }
        // Any other template is relative to the server; values are percent-encoded parts of it.
        let filled = fill_template(template, &scope)?;
        let url = match Url::parse(&filled) {
            Ok(_) => filled,
            Err(_) => {
                let server = self.base_url.as_str().split(['?', '#']).next().unwrap_or_default();
                format!("{}/{}", server.trim_end_matches('/'), filled.trim_start_matches('/'))
            }
        };
        parse_declared_url(&url, self.base_url).map_err(not_pollable)
    }

    /// Sleeps, or fails at once if the interval would exceed the deadline.
    async fn sleep_interval(&self, interval: Duration, status: Option<&str>) -> Result<(), CallFailure> {
        if interval >= self.client.remaining() {
            let status = status.map(|status| format!("; its status is `{status}`")).unwrap_or_default();
            return Err(CallFailure::Rejected(self.job_error(&format!("did not finish in time{status}"))));
        }
        tokio::time::sleep(interval).await;
        Ok(())
    }

    /// Reads the status field. A response without body or status counts as still running.
    fn parse_state(&self, received: &ReceivedResponse) -> Result<JobState> {
        if received.body.is_empty() {
            return Ok(JobState::Running(None));
        }
        let not_json = || self.job_error("returned a status that is not JSON");
        let body = parse_json(&received.body).ok_or_else(not_json)?;
        let Some(status) = body.pointer(&self.poll.status).map(|status| plain_text(status).into_owned()) else {
            return Ok(JobState::Running(None));
        };
        let shown_status = sanitize_truncated(&status, 80);
        Ok(if self.poll.done.contains(&status) {
            JobState::Done(body)
        } else if self.poll.failed.contains(&status) {
            JobState::Failed(shown_status, body)
        } else {
            JobState::Running(Some(shown_status))
        })
    }

    /// Result of a finished job: the whole response, or the part that the configuration points to.
    fn build_job_result(&self, operation: &Operation, body: &Value, received: &ReceivedResponse) -> Result<ToolResult> {
        match self.poll.result.as_deref() {
            None | Some("") => {
                build_result(&self.request.label, received, &self.client.page_arguments(operation, self.request))
            }
            Some(pointer) => {
                let missing =
                    || self.job_error(&format!("finished without a result at `{}`", sanitize_truncated(pointer, 80)));
                let result = body.pointer(pointer).ok_or_else(missing)?;
                if let Some(recorder) = self.client.call.response_recorder {
                    recorder.record_body(result);
                }
                build_result_from(result, received, &self.client.connector.references.redactor())
            }
        }
    }

    /// Error for a job that reports failure, with the reason found in the response.
    fn failure_error(&self, status: &str, body: Value) -> Error {
        let reason = find_reason(&body).map(|reason| format!(": {reason}")).unwrap_or_default();
        let details = json!({ "poll_status": status, "body": truncate_body(body) });
        self.job_error(&format!("ended as `{status}`{reason}")).with_details(details)
    }

    /// Error whose message begins with the request that started the job.
    fn job_error(&self, what: &str) -> Error {
        Error::new(Code::ToolExecutionFailed, format!("`{}` {what}", self.request.label))
    }

    /// Sends a progress notification. Calls the listener, which must not block.
    fn report_progress(&self, attempt: u64, status: Option<&str>) {
        let Some(on_progress) = &self.client.call.context.on_progress else { return };
        let message = json!({ "progress": attempt, "message": status.unwrap_or("in progress") });
        if let Ok(message) = to_raw_value(&message) {
            on_progress(&message);
        }
    }
}

/// Arguments of the request that started the job, by parameter location and wire name, for expressions over
/// `$request`.
#[derive(Default)]
struct SentArguments<'a> {
    /// `$request.path.NAME`
    path: Map<String, Value>,
    /// `$request.query.NAME`
    query: Map<String, Value>,
    /// `$request.header.NAME`
    headers: Map<String, Value>,
    /// `$request.body`
    body: Option<&'a Value>,
}

impl<'a> SentArguments<'a> {
    fn new(operation: &Operation, arguments: &'a Map<String, Value>) -> SentArguments<'a> {
        let mut sent = SentArguments::default();
        for parameter in &operation.parameters {
            let Some(value) = arguments.get(&parameter.argument) else { continue };
            let values = match parameter.location {
                ParameterLocation::Path => &mut sent.path,
                ParameterLocation::Query => &mut sent.query,
                ParameterLocation::Header => &mut sent.headers,
                // Expressions have no names for these.
                ParameterLocation::Cookie | ParameterLocation::Querystring => continue,
            };
            values.insert(parameter.name.clone(), value.clone());
        }
        sent.body = operation.body.as_ref().and_then(|body| arguments.get(&body.argument));
        sent
    }

    /// The sent request as expressions see it.
    fn to_expression_request<'b>(&'b self, request: &'b OutboundRequest) -> expression::RequestScope<'b> {
        expression::RequestScope {
            url: Some(request.url.as_str()),
            method: Some(request.method.as_str()),
            path: Some(&self.path),
            query: Some(&self.query),
            headers: Some(&self.headers),
            body: self.body,
        }
    }
}

/// Returns the expression if the template consists of nothing else, with or without braces.
fn as_single_expression(template: &str) -> Option<&str> {
    let inner = template.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(template);
    (is_expression(inner) && !inner.contains('}')).then_some(inner)
}

/// Replaces each `{$…}` in a template by its percent-encoded value, so that a value cannot add path segments or a
/// query.
fn fill_template(template: &str, scope: &Scope<'_>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(start) = rest.find("{$") {
        let Some(length) = rest[start..].find('}') else { break };
        let value = evaluate(&rest[start + 1..start + length], scope)?;
        let value = plain_text(&value);
        if value.len() > MAX_URL_VALUE_LEN {
            let message = format!("a value for the status URL is longer than {MAX_URL_VALUE_LEN} bytes");
            return Err(Error::new(Code::ToolExecutionFailed, message));
        }
        filled.push_str(&rest[..start]);
        filled.push_str(&percent::encode(&value));
        rest = &rest[start + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}
