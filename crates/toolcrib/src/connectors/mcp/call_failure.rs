//! Errors of requests to an MCP server: the message for the caller, and what a failure says about the source.
//!
//! How a failure of the wire becomes a [`CallFailure`]:
//!
//! ```text
//! JSON-RPC error, 401, 403, 404, 429 …    Rejected       the server answered; does not count for the circuit breaker
//! no answer within the source's timeout   TimedOut       counts, if no other call succeeded meanwhile
//! no answer within a shorter timeout      Inconclusive   also while the user is being asked, and after cancellation
//! connection closed, protocol violated    Unavailable    counts
//! ```

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_connector::{CallFailure, HttpRejection, parse_retry_after};
use toolcrib_core::text::{sanitize, sanitize_truncated};
use toolcrib_core::{Code, Error, Timestamp};
use toolcrib_mcp::{RpcError, WireError};

use super::connection::McpConnection;
use super::{FailedAttempt, McpConnector, UpstreamRequest};
use crate::clock::format_limit;

/// Error data larger than this is left out of the details, which are stored and shown with the error.
const MAX_ERROR_DATA_BYTES: usize = 16 * 1024;

impl McpConnector {
    /// Builds the error for the caller and classifies the failure. If a stdio server has exited, waits for its exit
    /// status, at most until the deadline.
    pub(super) async fn to_call_failure(
        &self,
        FailedAttempt { error, pending_questions }: &FailedAttempt,
        request: &UpstreamRequest<'_>,
        connection: &Arc<McpConnection>,
    ) -> CallFailure {
        let id = &self.source.id;
        let name = request.name();
        let deadline = request.deadline();
        match error {
            WireError::Cancelled { .. } => CallFailure::cancelled(),
            // A JSON-RPC error is a response: the source is alive, and its own message says more than ours could.
            WireError::Rpc(rpc) => {
                let message = format!("`{name}` of `{id}` failed: {}", sanitize_truncated(&rpc.message, 400));
                CallFailure::Rejected(
                    Error::new(Code::ToolExecutionFailed, message).with_details(rpc_error_details(rpc)),
                )
            }
            // The user did not answer an elicitation in time; the server could not do better.
            WireError::Timeout { .. } if pending_questions.is_any_pending() => {
                let message = format!(
                    "`{name}` of `{id}` asked the user for input and got no answer within {}",
                    format_limit(deadline.limit)
                );
                CallFailure::Inconclusive(Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::Timeout { .. } => {
                let limit = format_limit(deadline.limit);
                let message = format!("`{name}` of `{id}` timed out after {limit}");
                deadline.timeout_failure(Error::new(Code::ToolExecutionFailed, message))
            }
            // The server violates the protocol or a limit, which is a fault of the source.
            WireError::TooLarge { .. } | WireError::Protocol(_) => {
                CallFailure::Unavailable(Error::new(Code::ToolExecutionFailed, sanitize(&format!("`{id}`: {error}"))))
            }
            WireError::Connect(_)
            | WireError::Unauthorized { .. }
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Closed { .. } => {
                // Transport failures: some statuses are rejections, such as 401 or 429; the rest counts against the
                // source.
                let exit =
                    tokio::time::timeout_at(deadline.at, connection.describe_exit(self, error)).await.ok().flatten();
                let login = tokio::time::timeout_at(deadline.at, self.explain_login(error)).await.ok().flatten();
                let (message, details) = match (exit, login) {
                    (Some(exit), _) => (format!("`{name}` of `{id}` failed: {exit}"), json!({})),
                    (None, Some((text, details))) => (format!("`{id}`: {text}"), details),
                    (None, None) => (format!("`{id}`: {error}"), json!({})),
                };
                let message = sanitize(&message);
                if let Some(rejection) = rejection_error(error, &message, details, self.options.clock.now()) {
                    return CallFailure::Rejected(rejection);
                }
                let code = if error.was_sent() { Code::ToolExecutionFailed } else { Code::ToolUnavailable };
                CallFailure::Unavailable(Error::new(code, message))
            }
        }
    }
}

/// Maps a rejection by HTTP status to an error with `details`; `None` for all other failures. `now` is needed for a
/// `Retry-After` that is a date.
pub(super) fn rejection_error(error: &WireError, message: &str, details: Value, now: Timestamp) -> Option<Error> {
    let (status, rejection) = match error {
        WireError::Unauthorized { status, login_helps: true, .. } => (*status, HttpRejection::LoginRequired),
        WireError::Unauthorized { status, login_helps: false, .. } => (*status, HttpRejection::Forbidden),
        WireError::Status { status: status @ (404 | 405 | 410), .. } => (*status, HttpRejection::NoEndpoint),
        WireError::Status { status, retry_after: header, .. } => {
            let wait = header.as_deref().and_then(|header| parse_retry_after(header, now));
            (*status, HttpRejection::from_rate_limit(*status, wait)?)
        }
        WireError::Connect(_)
        | WireError::NotMcp(_)
        | WireError::Timeout { .. }
        | WireError::Closed { .. }
        | WireError::TooLarge { .. }
        | WireError::Rpc(_)
        | WireError::Protocol(_)
        | WireError::Cancelled { .. } => return None,
    };
    Some(rejection.to_error(status, message.to_owned(), details))
}

/// Details with the server's own JSON-RPC error, for clients that pass it on.
fn rpc_error_details(rpc: &RpcError) -> Value {
    let mut details = json!({ "rpc_code": rpc.code, "rpc_message": sanitize_truncated(&rpc.message, 2000) });
    let data = rpc.data.as_ref().filter(|data| data.get().len() <= MAX_ERROR_DATA_BYTES);
    if let Some(data) = data.and_then(|data| serde_json::from_str::<Value>(data.get()).ok()) {
        details["rpc_data"] = data;
    }
    details
}
