//! The one error of Toolcrib: a code for programs, a message for people, a cause for the log.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
pub struct Error {
    pub code: Code,
    /// For people: names the thing in backticks and, where known, the next step.
    pub message: String,
    /// More for programs: the faults of an argument, near names, candidates.
    pub details: Option<Value>,
    retryable: Option<bool>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What a caller can act on. Its names are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    ToolNotImplemented,
    ToolInvalidInput,
    ToolUnavailable,
    ToolExecutionFailed,
    ConfigInvalid,
    NotFound,
    Conflict,
    Unauthorized,
    Forbidden,
    StoreUnavailable,
    BadRequest,
    RateLimited,
    /// The source wants a login, or one that may do more.
    AuthRequired,
    Internal,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        match self {
            Code::ToolNotImplemented => "TOOL_NOT_IMPLEMENTED",
            Code::ToolInvalidInput => "TOOL_INVALID_INPUT",
            Code::ToolUnavailable => "TOOL_UNAVAILABLE",
            Code::ToolExecutionFailed => "TOOL_EXECUTION_FAILED",
            Code::ConfigInvalid => "CONFIG_INVALID",
            Code::NotFound => "NOT_FOUND",
            Code::Conflict => "CONFLICT",
            Code::Unauthorized => "UNAUTHORIZED",
            Code::Forbidden => "FORBIDDEN",
            Code::StoreUnavailable => "STORE_UNAVAILABLE",
            Code::BadRequest => "BAD_REQUEST",
            Code::RateLimited => "RATE_LIMITED",
            Code::AuthRequired => "AUTH_REQUIRED",
            Code::Internal => "INTERNAL",
        }
    }

    /// The default; an error may know better (an upstream's 503, say).
    pub fn is_retryable(self) -> bool {
        match self {
            Code::ToolUnavailable | Code::Conflict | Code::StoreUnavailable | Code::RateLimited => true,
            Code::ToolNotImplemented
            | Code::ToolInvalidInput
            | Code::ToolExecutionFailed
            | Code::ConfigInvalid
            | Code::NotFound
            | Code::Unauthorized
            | Code::Forbidden
            | Code::BadRequest
            | Code::AuthRequired
            | Code::Internal => false,
        }
    }
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, cause: None }
    }

    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    pub fn with_cause(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or(self.code.is_retryable())
    }

    /// The shape every surface answers with: `{"error":{"code","message","retryable","details"}}`.
    pub fn envelope(&self) -> Value {
        json!({ "error": {
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.is_retryable(),
            "details": self.details,
        }})
    }

    /// The cause, with its own causes, as one line for a log.
    pub fn cause_chain(&self) -> Option<String> {
        let mut cause: &dyn std::error::Error = self.cause.as_deref()?;
        let mut chain = cause.to_string();
        while let Some(next) = cause.source() {
            chain = format!("{chain}: {next}");
            cause = next;
        }
        Some(chain)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// Puts a code and a message on a foreign error, which becomes the cause.
pub trait ResultExt<T> {
    fn context(self, code: Code, message: impl Into<String>) -> Result<T>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> ResultExt<T> for std::result::Result<T, E> {
    fn context(self, code: Code, message: impl Into<String>) -> Result<T> {
        self.map_err(|cause| Error::new(code, message).with_cause(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_has_every_field() {
        let error = Error::new(Code::ToolUnavailable, "`git` is down").with_retryable(false);
        assert_eq!(
            error.envelope().to_string(),
            r#"{"error":{"code":"TOOL_UNAVAILABLE","message":"`git` is down","retryable":false,"details":null}}"#
        );
    }

    #[test]
    fn a_code_is_written_as_it_is_serialised() {
        for code in
            [Code::ToolNotImplemented, Code::StoreUnavailable, Code::RateLimited, Code::AuthRequired, Code::Internal]
        {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
