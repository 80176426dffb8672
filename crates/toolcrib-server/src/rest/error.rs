//! Error responses: the JSON envelope, and the only mapping from error codes to HTTP statuses.
//!
//! ```json
//! { "error": { "code": "NOT_FOUND", "message": "…", "retryable": false, "details": … } }
//! ```

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use toolcrib::core::json::to_exact_string;
use toolcrib::{Code, Error};

use super::precondition::is_failed_precondition;
use super::route::schema_ref;

/// Default `Retry-After` of 429 responses, in seconds: the window of the token rate limit.
pub(crate) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("60");

/// Error of a handler; becomes a response with the error envelope.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

/// Result of a handler.
pub(crate) type ApiResult = Result<Response, ApiError>;

impl From<Error> for ApiError {
    fn from(error: Error) -> ApiError {
        ApiError(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // The cause may contain internals of a source, so it goes into the log and not to the client.
        if let Some(cause) = self.0.cause_chain() {
            tracing::debug!(code = self.0.code.as_str(), %cause, "a request failed");
        }
        envelope_response(http_status(&self.0), &self.0)
    }
}

/// Extension of an error response: the message for a page of the console, without a next step that names a route.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleMessage(pub(crate) String);

/// Builds a response with the envelope of an error.
fn envelope_response(status: StatusCode, error: &Error) -> Response {
    let mut envelope = error.envelope();
    envelope["error"]["message"] = error.rest_message().into();
    let body = to_exact_string(&envelope).unwrap_or_default();
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    response.extensions_mut().insert(ConsoleMessage(error.message_without_next_step().to_owned()));
    if let Some(retry_after) = retry_after(status, error) {
        response.headers_mut().insert(header::RETRY_AFTER, retry_after);
    }
    response
}

/// Returns the `Retry-After` of an error: the one in its details, or the default for 429. An error that a source reported
/// (`by`) without a delay gets none.
fn retry_after(status: StatusCode, error: &Error) -> Option<HeaderValue> {
    let detail = |name: &str| error.details.as_ref().and_then(|details| details.get(name));
    match detail("retry_after_ms").and_then(Value::as_u64) {
        Some(millis) => Some(HeaderValue::from(millis.div_ceil(1000))),
        None if detail("by").is_some() => None,
        None => (status == StatusCode::TOO_MANY_REQUESTS).then_some(RETRY_AFTER),
    }
}

/// Builds an error response with a status other than that of its code, such as 405, 413 or 415 for `BAD_REQUEST`.
pub(crate) fn error_response(status: StatusCode, code: Code, message: &str) -> Response {
    envelope_response(status, &Error::new(code, message))
}

/// Error of a request that is aborted by the shutdown of the server.
pub(crate) fn stopping_error() -> Error {
    Error::new(Code::ToolUnavailable, "Toolcrib is stopping; try again")
}

/// Schema of an error code: what a client can act on.
pub(super) fn code_schema() -> Value {
    json!({
        "type": "string",
        "description": "Error code; later versions may add others",
        "enum": Code::ALL.map(Code::as_str),
    })
}

/// Schema of the error envelope.
pub(super) fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "retryable", "details"],
            "properties": {
                "code": schema_ref("Code"),
                "message": { "type": "string" },
                "retryable": { "type": "boolean" },
                "details": {},
            },
        } },
    })
}

/// Maps an error to an HTTP status, by its code.
fn http_status(error: &Error) -> StatusCode {
    match error.code {
        Code::ToolNotImplemented | Code::NotFound => StatusCode::NOT_FOUND,
        Code::ToolInvalidInput | Code::ConfigInvalid | Code::BadRequest => StatusCode::BAD_REQUEST,
        Code::ToolUnavailable | Code::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::ToolExecutionFailed => StatusCode::BAD_GATEWAY,
        Code::Conflict if is_failed_precondition(error) => StatusCode::PRECONDITION_FAILED,
        Code::Conflict => StatusCode::CONFLICT,
        // The client could not be identified at the moment; credentials are not what it lacks.
        Code::Unauthorized if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::AuthRequired => StatusCode::FAILED_DEPENDENCY,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
