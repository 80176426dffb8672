//! Calls that a server runs as a task: the first response only names the task, and the client polls until the result is
//! there. The caller of [`McpClient::call_tool`] gets an ordinary result.
//!
//! ```text
//! 2025-11-25                                         2026-07-28, extension `io.modelcontextprotocol/tasks`
//! tools/call + task {}     ▶ {"task": {"taskId"}}    tools/call               ▶ {"resultType": "task", "taskId"}
//! tasks/get                ▶ working                 tasks/get                ▶ working
//! tasks/result             ▶ the result, and the     tasks/get                ▶ input_required, inputRequests
//!                            server's requests       tasks/update + answers   ▶ {}
//!                                                    tasks/get                ▶ completed, with the result
//! ```
//!
//! In the older version the client asks for the task; in the newer one the server decides, if the client declares the
//! extension. It is declared only to a server that rejected the call without it: a task costs additional requests.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::time::sleep;

use super::{McpClient, input_required};
use crate::{
    connection::{OutgoingRequest, WireConnection},
    era::Era,
    error::{RpcError, WireError, sanitize_excerpt},
    message::{RawObject, empty_object, to_raw},
    options::{RequestOptions, ServerRequestHandler},
};

/// Extension of 2026-07-28 in the client capabilities.
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Bounds of the interval between two polls, whatever the server asks for.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Interval if the server asks for none.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of times in a row that the state of a task is asked for again after an internal error.
const MAX_POLL_FAILURES: u32 = 3;
/// Maximum time for `tasks/cancel`, which runs in the background.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a task id in bytes; it is sent back with each poll.
const MAX_TASK_ID_LEN: usize = 1024;

/// The fields of a task that the client needs, in both versions. In 2026-07-28 they are part of the result itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskState<'a> {
    #[serde(default)]
    task_id: Option<String>,
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    /// In milliseconds; a value of another type counts as none.
    #[serde(borrow, default, alias = "pollIntervalMs")]
    poll_interval: Option<&'a RawValue>,
    /// 2026-07-28, when the task is completed.
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    /// 2026-07-28, when the task has failed.
    #[serde(borrow, default)]
    error: Option<TaskError<'a>>,
    /// 2026-07-28, when the task requires input.
    #[serde(borrow, default)]
    input_requests: Option<RawObject<'a>>,
}

/// JSON-RPC error of a failed task.
#[derive(Deserialize)]
struct TaskError<'a> {
    #[serde(default)]
    code: Option<i64>,
    #[serde(default)]
    message: String,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// RAII guard of a task that runs on the server. Cancels it there when the caller gives up.
struct RunningTask<'a> {
    connection: &'a Arc<WireConnection>,
    id: String,
    /// Capabilities that the call declared; later requests about the task need them too.
    capabilities: Option<Box<RawValue>>,
    is_modern: bool,
    has_ended: bool,
}

impl McpClient {
    /// Whether a server of 2025-11-25 accepts `tools/call` as a task.
    pub(super) fn offers_tool_tasks(&self) -> bool {
        let object = |raw: Option<&RawValue>, key: &str| -> Option<Box<RawValue>> {
            RawObject::parse(raw?)?.get(key).map(ToOwned::to_owned)
        };
        let tasks = object(Some(&self.server.capabilities), "tasks");
        let requests = object(tasks.as_deref(), "requests");
        matches!(self.era, Era::Legacy(_)) && object(object(requests.as_deref(), "tools").as_deref(), "call").is_some()
    }

    /// Sends `tools/call`, waits for the task if the server made one, and returns the result of the tool.
    pub(super) async fn call_with_tasks(
        &self,
        request: &OutgoingRequest<'_>,
        options: &RequestOptions<'_>,
        handler: Option<&ServerRequestHandler>,
    ) -> Result<Box<RawValue>, WireError> {
        let connection = &self.connection.0;
        let is_modern = self.era == Era::Modern || options.modern;
        let first = input_required::request_with_input(connection, request, options, handler).await;
        let (result, capabilities) = match first {
            Err(WireError::Rpc(error)) if is_modern && requires_tasks_extension(&error) => {
                let declared = || options.relay.map_or(&*connection.options.capabilities, |relay| relay.capabilities);
                let capabilities = with_tasks_extension(options.capabilities.unwrap_or_else(declared))?;
                let options = RequestOptions { capabilities: Some(&capabilities), ..options.clone() };
                let result = input_required::request_with_input(connection, request, &options, handler).await?;
                (result, Some(capabilities))
            }
            first => (first?, None),
        };
        if is_modern {
            // The text search spares parsing the result of a call that is no task.
            if !result.get().contains("\"task\"") || !is_modern_task(&result) {
                return Ok(result);
            }
            return self.await_task(&parse_state(&result)?, capabilities, is_modern, options, handler).await;
        }
        // A server may run the tool at once all the same.
        match RawObject::parse(&result).filter(|_| options.as_task).as_ref().and_then(|fields| fields.get("task")) {
            Some(task) => self.await_task(&parse_state(task)?, None, is_modern, options, handler).await,
            None => Ok(result),
        }
    }

    /// Polls a task until it ends and returns its result. A task may have ended when it is created. Cancels the task if the
    /// caller cancels, drops this future, or the deadline passes.
    async fn await_task(
        &self,
        created: &TaskState<'_>,
        capabilities: Option<Box<RawValue>>,
        is_modern: bool,
        options: &RequestOptions<'_>,
        handler: Option<&ServerRequestHandler>,
    ) -> Result<Box<RawValue>, WireError> {
        let id = created.task_id.clone().filter(|id| !id.is_empty() && id.len() <= MAX_TASK_ID_LEN);
        let id = id.ok_or_else(|| WireError::Protocol("a task has no valid `taskId`".to_owned()))?;
        let connection = &self.connection.0;
        let mut running = RunningTask { connection, id, capabilities, is_modern, has_ended: false };
        let mut response: Option<Box<RawValue>> = None;
        let mut polls = 0;
        loop {
            let polled = response.as_deref().map(parse_state).transpose()?;
            let state = polled.as_ref().unwrap_or(created);
            if polled.is_some() {
                polls += 1;
                report_status(polls, state, options);
            }
            match state.status.as_str() {
                "working" | "submitted" => {}
                // The response that creates a task of 2026-07-28 need not have what its state comes with.
                "input_required" | "completed" | "failed" | "cancelled" if is_modern && polled.is_none() => {
                    response = Some(running.poll(Duration::ZERO, options).await?);
                    continue;
                }
                // The server sends its questions on the stream of `tasks/result`, which ends with the result.
                "input_required" | "completed" | "failed" if !is_modern => {
                    let result = running.request("tasks/result", &[], options).await;
                    running.has_ended = result.is_ok() || matches!(result, Err(WireError::Rpc(_)));
                    return result;
                }
                "input_required" => {
                    let answers = input_required::answer_requests(&state.input_requests, options, handler).await?;
                    running.request("tasks/update", &[("inputResponses", &answers)], options).await?;
                }
                "completed" => {
                    running.has_ended = true;
                    let no_result = || WireError::Protocol("a completed task has no result".to_owned());
                    return state.result.map(ToOwned::to_owned).ok_or_else(no_result);
                }
                "failed" => {
                    running.has_ended = true;
                    return Err(WireError::Rpc(state.to_error("the task failed")));
                }
                "cancelled" => {
                    running.has_ended = true;
                    return Err(WireError::Rpc(state.to_error("the server cancelled the task")));
                }
                other => {
                    return Err(WireError::Protocol(format!("unknown task status `{}`", sanitize_excerpt(other))));
                }
            }
            response = Some(running.poll(state.poll_interval(), options).await?);
        }
    }
}

impl RunningTask<'_> {
    /// Reads the state of the task after an interval. A server that fails internally is asked again: the task may go on.
    async fn poll(&self, interval: Duration, options: &RequestOptions<'_>) -> Result<Box<RawValue>, WireError> {
        let mut interval = interval;
        let mut failures = 0;
        loop {
            wait(interval, options).await?;
            match self.request("tasks/get", &[], options).await {
                Err(WireError::Rpc(error)) if error.code == RpcError::INTERNAL && failures < MAX_POLL_FAILURES => {
                    failures += 1;
                    interval = interval.max(DEFAULT_POLL_INTERVAL);
                }
                response => return response,
            }
        }
    }

    /// Sends a request about the task.
    async fn request(
        &self,
        method: &str,
        params: &[(&str, &RawValue)],
        options: &RequestOptions<'_>,
    ) -> Result<Box<RawValue>, WireError> {
        let mut fields = RawObject::default();
        fields.set("taskId", to_raw(&self.id)?);
        params.iter().for_each(|(key, value)| fields.set_borrowed(key, value));
        let params = fields.to_raw()?;
        let request = OutgoingRequest { method, params: Some(&params), headers: options.headers.clone() };
        let capabilities = self.capabilities.as_deref().or(options.capabilities);
        let options = RequestOptions { capabilities, progress: None, ..options.clone() };
        self.connection.request(&request, &options).await
    }
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let connection = self.connection.clone();
        let capabilities = self.capabilities.take();
        let is_modern = self.is_modern;
        let params = to_raw(&json!({ "taskId": self.id }));
        self.connection.spawn(async move {
            let Ok(params) = params else { return };
            let request = OutgoingRequest::new("tasks/cancel", Some(&params));
            let options = RequestOptions {
                capabilities: capabilities.as_deref(),
                modern: is_modern,
                ..RequestOptions::new(CANCEL_TIMEOUT)
            };
            // Best effort: the server ends the task at its time to live.
            let _ = connection.request(&request, &options).await;
        });
    }
}

impl TaskState<'_> {
    /// Interval until the next poll, within bounds.
    fn poll_interval(&self) -> Duration {
        let millis = self.poll_interval.and_then(|millis| millis.get().parse::<u64>().ok());
        let interval = millis.map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis);
        interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
    }

    /// Error of a task that has no result; `reason` if the server gives none.
    fn to_error(&self, reason: &str) -> RpcError {
        let reason = self.status_message.clone().unwrap_or_else(|| reason.to_owned());
        match &self.error {
            Some(error) => RpcError {
                code: error.code.unwrap_or(RpcError::INTERNAL),
                message: if error.message.is_empty() { reason } else { error.message.clone() },
                data: error.data.map(ToOwned::to_owned),
            },
            None => RpcError::new(RpcError::INTERNAL, reason),
        }
    }
}

/// Waits until the next poll, the cancellation or the deadline.
async fn wait(interval: Duration, options: &RequestOptions<'_>) -> Result<(), WireError> {
    tokio::select! {
        biased;
        () = options.cancelled() => Err(WireError::Cancelled { sent: true }),
        () = tokio::time::sleep_until(options.deadline) => Err(WireError::Timeout { sent: true }),
        () = sleep(interval) => Ok(()),
    }
}

/// Passes the status text of a task on as progress: what the task does is all that is known about how far it has come.
fn report_status(polls: u32, state: &TaskState<'_>, options: &RequestOptions<'_>) {
    let (Some(progress), Some(message)) = (options.progress, &state.status_message) else { return };
    if let Ok(params) = to_raw(&json!({ "progress": polls, "message": sanitize_excerpt(message) })) {
        progress(&params);
    }
}

/// Parses a task.
fn parse_state(task: &RawValue) -> Result<TaskState<'_>, WireError> {
    serde_json::from_str(task.get()).map_err(|_| WireError::Protocol("a task has no status".to_owned()))
}

/// Whether a result of 2026-07-28 is a task.
fn is_modern_task(result: &RawValue) -> bool {
    RawObject::parse(result).and_then(|fields| fields.get_string("resultType")).is_some_and(|kind| kind == "task")
}

/// Whether a server rejected a call because the client did not declare the extension.
fn requires_tasks_extension(error: &RpcError) -> bool {
    let data = error.data.as_ref().map_or("", |data| data.get());
    error.code == RpcError::MISSING_CAPABILITY && data.contains(TASKS_EXTENSION)
}

/// Adds the extension to client capabilities.
fn with_tasks_extension(capabilities: &RawValue) -> Result<Box<RawValue>, WireError> {
    let mut capabilities = RawObject::parse(capabilities).unwrap_or_default();
    let declared = capabilities.take("extensions");
    let mut extensions = declared.as_deref().and_then(RawObject::parse).unwrap_or_default();
    extensions.set(TASKS_EXTENSION, empty_object());
    capabilities.set("extensions", extensions.to_raw()?);
    capabilities.to_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poll_interval_of_a_server_is_bounded() {
        for (state, expected) in [
            (r#"{"status":"working"}"#, 1000),
            (r#"{"status":"working","pollInterval":0}"#, 100),
            (r#"{"status":"working","pollIntervalMs":250}"#, 250),
            (r#"{"status":"working","pollInterval":86400000}"#, 5000),
            (r#"{"status":"working","pollInterval":"soon"}"#, 1000),
        ] {
            let state = RawValue::from_string(state.to_owned()).unwrap();
            assert_eq!(parse_state(&state).unwrap().poll_interval().as_millis(), expected, "{state}");
        }
    }

    #[test]
    fn the_extension_is_added_to_what_a_client_declares() {
        let declared = RawValue::from_string(r#"{"sampling":{},"extensions":{"x/y":{"a":1}}}"#.to_owned()).unwrap();
        let expected = r#"{"sampling":{},"extensions":{"x/y":{"a":1},"io.modelcontextprotocol/tasks":{}}}"#;
        assert_eq!(with_tasks_extension(&declared).unwrap().get(), expected);
    }
}
