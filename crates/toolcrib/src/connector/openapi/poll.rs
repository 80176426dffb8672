//! What a request started is looked at again and again, on the same server and with the same credentials, until its
//! status says that it is done or has failed.

use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use toolcrib_core::execution::{Operation, ParameterLocation};
use toolcrib_core::expression::{self, Scope, evaluate, is_expression};
use toolcrib_core::openapi::request::percent_encode;
use toolcrib_core::source::PollSettings;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::api_client::ApiClient;
use super::call::header_pairs;
use super::error_response::{find_reason, truncate_body};
use super::request_builder::{build_get, check_plain_url, parse_declared_url};
use super::result::{build_result, build_result_from};
use super::retry::retry_after_header;
use super::send::{OutboundRequest, ReceivedResponse};
use crate::connector::{CallFailure, ToolResult};

const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of what an answer says for an address.
const MAX_URL_VALUE_LEN: usize = 8 * 1024;

#[derive(Debug)]
pub(super) struct Poller<'a> {
    pub(super) client: &'a ApiClient<'a>,
    pub(super) base_url: &'a Url,
    pub(super) poll: &'a PollSettings,
    /// The request that started it.
    pub(super) request: &'a OutboundRequest,
    pub(super) progress: Option<&'a mpsc::Sender<Box<RawValue>>>,
}

/// How it goes.
enum JobState {
    Done(Value),
    Failed(String, Value),
    /// With its status, where it has one.
    Running(Option<String>),
}

impl Poller<'_> {
    pub(super) async fn poll_until_done(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        started: ReceivedResponse,
    ) -> Result<ToolResult, CallFailure> {
        let url = self.status_url(operation, arguments, &started).map_err(CallFailure::Rejected)?;
        let look = build_get(url, self.client.resolved).map_err(CallFailure::Rejected)?;
        let mut interval = self.poll.interval.unwrap_or(DEFAULT_POLL_INTERVAL);
        let mut last = started;
        let mut status = None;
        for times in 1u64.. {
            let asked = retry_after_header(&last.headers, self.client.connector.clock.now());
            self.sleep_interval(asked.unwrap_or(interval), status.as_deref()).await?;
            interval = interval.mul_f64(1.5).min(MAX_POLL_INTERVAL.max(interval));
            last = self.client.send_with_retries(&look, true).await?;
            status = match self.parse_state(&last).map_err(CallFailure::Rejected)? {
                JobState::Done(body) => return self.build_job_result(&body, &last).map_err(CallFailure::Rejected),
                JobState::Failed(status, body) => return Err(CallFailure::Rejected(self.failure_error(&status, body))),
                JobState::Running(status) => status,
            };
            self.report_progress(times, status.as_deref());
        }
        Err(CallFailure::Rejected(self.job_error("was looked at for ever")))
    }

    /// Where to look: on the declared server, whatever the answer says.
    fn status_url(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        started: &ReceivedResponse,
    ) -> Result<Url> {
        let sent = SentArguments::new(operation, arguments);
        let body: Option<Value> = serde_json::from_slice(&started.body).ok();
        let headers = header_pairs(&started.headers);
        let scope = Scope {
            request: Some(sent.to_expression_request(self.request)),
            response: Some(expression::ResponseScope {
                status: started.status.as_u16(),
                headers: &headers,
                body: body.as_ref(),
            }),
            ..Scope::default()
        };
        let refuse = |why: String| self.job_error(&format!("cannot be looked at: {why}"));
        let template = self.poll.url.trim();
        // What an answer points to is an address, relative to where it came from.
        if let Some(pointed) = as_single_expression(template) {
            let pointed = value_text(&evaluate(pointed, &scope)?);
            check_plain_url(&pointed).map_err(refuse)?;
            let address = match Url::parse(&pointed) {
                Ok(_) => pointed,
                Err(_) => started.url.join(&pointed).map(String::from).unwrap_or_default(),
            };
            return parse_declared_url(&address, self.base_url).map_err(refuse);
        }
        // What is written down is relative to the server, and values are parts of it.
        let filled = fill_template(template, &scope)?;
        let address = match Url::parse(&filled) {
            Ok(_) => filled,
            Err(_) => {
                let server = self.base_url.as_str().split(['?', '#']).next().unwrap_or_default();
                format!("{}/{}", server.trim_end_matches('/'), filled.trim_start_matches('/'))
            }
        };
        parse_declared_url(&address, self.base_url).map_err(refuse)
    }

    async fn sleep_interval(&self, interval: Duration, status: Option<&str>) -> Result<(), CallFailure> {
        if interval >= self.client.remaining() {
            let status = status.map(|status| format!("; its status is `{status}`")).unwrap_or_default();
            return Err(CallFailure::Rejected(self.job_error(&format!("is not done in time{status}"))));
        }
        tokio::time::sleep(interval).await;
        Ok(())
    }

    fn parse_state(&self, received: &ReceivedResponse) -> Result<JobState> {
        if received.body.is_empty() {
            return Ok(JobState::Running(None));
        }
        let body: Value = serde_json::from_slice(&received.body)
            .map_err(|_| self.job_error("has a status that is not JSON, so that nobody knows how it goes"))?;
        let Some(status) = body.pointer(&self.poll.status).map(value_text) else { return Ok(JobState::Running(None)) };
        let shown = sanitize_truncated(&status, 80);
        Ok(match () {
            () if self.poll.done.contains(&status) => JobState::Done(body),
            () if self.poll.failed.contains(&status) => JobState::Failed(shown, body),
            () => JobState::Running(Some(shown)),
        })
    }

    fn build_job_result(&self, body: &Value, received: &ReceivedResponse) -> Result<ToolResult> {
        match self.poll.result.as_deref() {
            None | Some("") => build_result(&self.request.label, received),
            Some(pointer) => {
                let missing = || {
                    self.job_error(&format!("is done, and there is no result at `{}`", sanitize_truncated(pointer, 80)))
                };
                let result = body.pointer(pointer).ok_or_else(missing)?;
                if let Some(witness) = self.client.response_recorder {
                    witness.record_body(result);
                }
                build_result_from(result, received)
            }
        }
    }

    fn failure_error(&self, status: &str, body: Value) -> Error {
        let reason = find_reason(&body).map(|reason| format!(": {reason}")).unwrap_or_default();
        let details = json!({ "poll_status": status, "body": truncate_body(body) });
        self.job_error(&format!("ended as `{status}`{reason}")).with_details(details)
    }

    fn job_error(&self, what: &str) -> Error {
        Error::new(Code::ToolExecutionFailed, format!("`{}` {what}", self.request.label))
    }

    /// One that does not keep up misses some.
    fn report_progress(&self, times: u64, status: Option<&str>) {
        let Some(progress) = self.progress else { return };
        let said = json!({ "progress": times, "message": status.unwrap_or("under way") });
        if let Ok(said) = to_raw_value(&said) {
            let _missed = progress.try_send(said);
        }
    }
}

/// The arguments as the request had them, by their names on the wire.
#[derive(Default)]
struct SentArguments<'a> {
    path: Map<String, Value>,
    query: Map<String, Value>,
    headers: Map<String, Value>,
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
                ParameterLocation::Cookie | ParameterLocation::Querystring => continue,
            };
            values.insert(parameter.name.clone(), value.clone());
        }
        sent.body = operation.body.as_ref().and_then(|body| arguments.get(&body.argument));
        sent
    }

    fn to_expression_request<'b>(&'b self, draft: &'b OutboundRequest) -> expression::RequestScope<'b> {
        expression::RequestScope {
            url: Some(draft.url.as_str()),
            method: Some(draft.method.as_str()),
            path: Some(&self.path),
            query: Some(&self.query),
            headers: Some(&self.headers),
            body: self.body,
        }
    }
}

/// The expression that a template is and nothing besides.
fn as_single_expression(template: &str) -> Option<&str> {
    let inside = template.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(template);
    (is_expression(inside) && !inside.contains('}')).then_some(inside)
}

/// A template with the value of each `{$…}` in it, encoded so that it is no more than that.
fn fill_template(template: &str, scope: &Scope<'_>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(start) = rest.find("{$") {
        let Some(length) = rest[start..].find('}') else { break };
        let value = value_text(&evaluate(&rest[start + 1..start + length], scope)?);
        if value.len() > MAX_URL_VALUE_LEN {
            let message = format!("a value of the address to look at is longer than {MAX_URL_VALUE_LEN} bytes");
            return Err(Error::new(Code::ToolExecutionFailed, message));
        }
        filled.push_str(&rest[..start]);
        filled.push_str(&percent_encode(&value));
        rest = &rest[start + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// A value as it is compared and written into addresses.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
