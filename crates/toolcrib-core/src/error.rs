//! The error type of Toolcrib: a code for programs, a message for people, a cause for the log.
//!
//! ```json
//! {"error": {"code": "TOOL_NOT_IMPLEMENTED", "message": "no tool named `git_push`; did you mean `github__push`?",
//!            "retryable": false, "details": {"near": ["github__push"]}}}
//! ```
//!
//! The three parts have different readers. Code, message and details reach agents and network clients, so they contain
//! neither secrets nor internals of an upstream; the cause may, and is written to the log alone. HTTP statuses,
//! JSON-RPC errors and exit codes are derived from the code where they are needed, in the crates of the server and the
//! command.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Result with [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of any Toolcrib operation.
#[derive(Debug)]
pub struct Error {
    /// Decides about the HTTP status and the exit code.
    pub code: Code,
    /// For people: names the thing in backticks and the next step, if known. Must not contain secrets.
    pub message: String,
    /// For programs: violations of an argument schema, similar names, candidates.
    pub details: Option<Value>,
    /// Overrides the default of the code.
    retryable: Option<bool>,
    /// Parts that few errors have, in a box so that results stay small.
    extra: Option<Box<ErrorExtra>>,
}

/// Parts of an [`Error`] that few errors have.
#[derive(Debug, Default)]
struct ErrorExtra {
    /// The command that the message proposes, and the REST route that does the same.
    next_step: Option<NextStep>,
    /// For the log; may contain upstream details that clients must not see.
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A next step in all of its forms. Messages contain the command; REST responses name the route instead.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NextStep {
    command: String,
    route: String,
    /// Meta tool of MCP that does the same, if there is one.
    meta_tool: Option<String>,
}

/// Error code that callers can act on. The names are part of the public contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Code {
    /// No such tool, or it is hidden or disabled.
    ToolNotImplemented,
    /// The arguments do not match the schema, or the name is malformed or ambiguous. Nothing was sent.
    ToolInvalidInput,
    /// The source cannot be reached at the moment, or its circuit breaker is open.
    ToolUnavailable,
    /// The call was sent and failed, or its result is unknown.
    ToolExecutionFailed,
    /// A configuration or a declaration of a source is wrong.
    ConfigInvalid,
    /// The named thing does not exist, such as a source or a token.
    NotFound,
    /// The state changed meanwhile, or a name is taken.
    Conflict,
    /// A client of Toolcrib has no valid credentials.
    Unauthorized,
    /// The policy or the role of the client does not allow it.
    Forbidden,
    /// The store cannot be read or written at the moment.
    StoreUnavailable,
    /// The request itself is malformed.
    BadRequest,
    /// A limit on requests was reached: of the source (`by` in the details is `source`) or of this server.
    RateLimited,
    /// The source requires a login, or one with more permissions.
    AuthRequired,
    /// An unexpected state, such as damaged stored data. The log has the cause.
    Internal,
}

impl Code {
    /// Every code, in the order of the documentation.
    pub const ALL: [Code; 14] = [
        Code::ToolNotImplemented,
        Code::ToolInvalidInput,
        Code::ToolUnavailable,
        Code::ToolExecutionFailed,
        Code::ConfigInvalid,
        Code::NotFound,
        Code::Conflict,
        Code::Unauthorized,
        Code::Forbidden,
        Code::StoreUnavailable,
        Code::BadRequest,
        Code::RateLimited,
        Code::AuthRequired,
        Code::Internal,
    ];

    /// Name in JSON, equal to the serialised form.
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

    /// Whether a retry may succeed, by default; an error can override this, e.g. after status 503 of an upstream.
    /// Says nothing about whether a repeated call has side effects: that is decided by the hints of the tool.
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
    /// Creates an error without details and cause. The message has no full stop and names things in backticks.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None, extra: None }
    }

    /// Adds details for programs.
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Appends a next step to the message: a command and what it does, such as `toolcrib sources` and `lists them`.
    /// REST clients read the route in place of the command.
    pub fn with_next_step(mut self, command: &str, route: &str, effect: &str) -> Self {
        self.message = format!("{}; `{command}` {effect}", self.message);
        let step = NextStep { command: format!("`{command}`"), route: format!("`{route}`"), meta_tool: None };
        self.extra.get_or_insert_default().next_step = Some(step);
        self
    }

    /// Names the meta tool of MCP that does what the command of the next step does.
    pub fn with_meta_tool(mut self, name: &str) -> Self {
        if let Some(step) = self.extra.as_mut().and_then(|extra| extra.next_step.as_mut()) {
            step.meta_tool = Some(format!("`{name}`"));
        }
        self
    }

    /// The message for an agent on MCP: with the meta tool instead of the command, or without the next step, since an
    /// agent has no command line.
    pub fn agent_message(&self) -> String {
        let step = self.extra.as_ref().and_then(|extra| extra.next_step.as_ref());
        match step.and_then(|step| Some((step, step.meta_tool.as_ref()?))) {
            Some((step, meta_tool)) => self.message.replace(&step.command, meta_tool),
            None => self.message_without_next_step().to_owned(),
        }
    }

    /// The message for a REST client: with the route of the next step instead of the command.
    pub fn rest_message(&self) -> String {
        match self.extra.as_ref().and_then(|extra| extra.next_step.as_ref()) {
            Some(step) => self.message.replace(&step.command, &step.route),
            None => self.message.clone(),
        }
    }

    /// The message without the next step, for the console, which offers neither commands nor routes.
    pub fn message_without_next_step(&self) -> &str {
        let step = self.extra.as_ref().and_then(|extra| extra.next_step.as_ref());
        let split = step.and_then(|step| self.message.rsplit_once(&format!("; {}", step.command)));
        split.map_or(&self.message, |(message, _)| message)
    }

    /// Overrides whether a retry may succeed. For example for a name that is taken: `CONFLICT` is retryable, but this
    /// one would fail again.
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// Adds the cause for the log. Replaces an earlier one.
    pub fn with_cause(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.extra.get_or_insert_default().cause = Some(Box::new(cause));
        self
    }

    /// Whether a retry of the same request may succeed.
    pub fn is_retryable(&self) -> bool {
        self.retryable.unwrap_or(self.code.is_retryable())
    }

    /// JSON form in all APIs: `{"error":{"code","message","retryable","details"}}`.
    /// The cause is not part of it.
    pub fn envelope(&self) -> Value {
        json!({ "error": {
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.is_retryable(),
            "details": self.details,
        }})
    }

    /// Formats the cause and its causes as one line for the log.
    /// `None` without a cause. May contain secrets of an upstream; the library redacts it before it is logged.
    pub fn cause_chain(&self) -> Option<String> {
        let mut cause: &dyn std::error::Error = self.extra.as_ref()?.cause.as_deref()?;
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
        self.extra.as_ref()?.cause.as_deref().map(|cause| cause as _)
    }
}

/// Converts foreign errors to [`Error`]: adds a code and a message, and keeps the foreign error as the cause.
pub trait ResultExt<T> {
    /// Adds a code and a message.
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
    fn the_envelope_has_all_fields() {
        let error = Error::new(Code::ToolUnavailable, "`git` is down").with_retryable(false);
        assert_eq!(
            error.envelope().to_string(),
            r#"{"error":{"code":"TOOL_UNAVAILABLE","message":"`git` is down","retryable":false,"details":null}}"#
        );
    }

    #[test]
    fn a_next_step_is_a_command_for_people_a_route_for_rest_clients_and_a_meta_tool_for_agents() {
        let error = Error::new(Code::NotFound, "no source named `x`");
        assert_eq!(error.rest_message(), "no source named `x`");
        let error = error.with_next_step("toolcrib sources", "GET /api/sources", "lists them");
        assert_eq!(error.message, "no source named `x`; `toolcrib sources` lists them");
        assert_eq!(error.rest_message(), "no source named `x`; `GET /api/sources` lists them");
        assert_eq!(error.message_without_next_step(), "no source named `x`");
        assert_eq!(error.agent_message(), "no source named `x`");
        assert_eq!(
            error.with_meta_tool("list_sources").agent_message(),
            "no source named `x`; `list_sources` lists them"
        );
    }

    #[test]
    fn as_str_equals_the_serialised_code() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
