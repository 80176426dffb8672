//! Errors of the wire, as a small enum that callers match on.
//!
//! Messages are for people. They never contain headers, query strings or other places where secrets occur. Text of the
//! server may be part of a message, shortened and without control characters; [`WireError::kind`] is the form for logs.
//!
//! The distinction that callers depend on is [`WireError::was_sent`]: a request that did not reach the server may be
//! repeated even if the tool is not idempotent.

use std::fmt;

use serde_json::value::RawValue;

use crate::http::challenge::AuthChallenge;

/// Failure of a request or of a connection. `sent` fields tell whether the server may have received the request.
#[derive(Debug, Clone)]
pub enum WireError {
    /// The connection could not be established; nothing was sent. The text is the reason.
    Connect(String),
    /// HTTP 401 or 403: a token is missing, invalid or lacks permission.
    Unauthorized {
        status: u16,
        /// 401, or 403 with `insufficient_scope`: logging in, or again with more scopes, would help.
        login_helps: bool,
        /// The login that the server wants.
        challenge: Box<AuthChallenge>,
    },
    /// Any other unsuccessful HTTP status.
    Status {
        status: u16,
        /// The beginning of the response body.
        body: String,
        /// The `Retry-After` header as the server sent it.
        retry_after: Option<String>,
    },
    /// The peer answers, but not with MCP. The text is the reason and may quote the response.
    NotMcp(String),
    /// The deadline of the request or of the handshake passed.
    Timeout { sent: bool },
    /// The connection ended before the response, or was closed already.
    Closed { sent: bool, reason: String },
    /// A message or list of the server exceeds its bound in [`ClientLimits`](crate::ClientLimits).
    TooLarge {
        /// The thing that is too large, with its unit.
        what: &'static str,
        limit: usize,
    },
    /// A JSON-RPC error of the server, unchanged. The request was received and answered, so the connection is healthy.
    Rpc(RpcError),
    /// The server violated the protocol.
    Protocol(String),
    /// The caller cancelled the request with [`RequestOptions::cancel`](crate::RequestOptions).
    Cancelled { sent: bool },
}

/// A JSON-RPC error, from a server or from a [`ServerRequestHandler`](crate::ServerRequestHandler).
#[derive(Debug, Clone)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    /// Additional data as the peer sent it.
    pub data: Option<Box<RawValue>>,
}

impl WireError {
    /// Returns the kind of error for logs, without text from the server, which may repeat credentials.
    pub fn kind(&self) -> &'static str {
        match self {
            WireError::Connect(_) => "no connection",
            WireError::Unauthorized { .. } => "unauthorized",
            WireError::Status { .. } => "unsuccessful HTTP status",
            WireError::NotMcp(_) => "not an MCP server",
            WireError::Timeout { .. } => "timeout",
            WireError::Closed { .. } => "connection closed",
            WireError::TooLarge { .. } => "message too large",
            WireError::Rpc(_) => "JSON-RPC error",
            WireError::Protocol(_) => "protocol violation",
            WireError::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether the server may have acted on the request. If not, retrying is safe even when the tool is not idempotent.
    pub fn was_sent(&self) -> bool {
        match self {
            WireError::Connect(_) | WireError::Unauthorized { .. } => false,
            // A client error (4xx) or a redirect is a rejection of the request. Behind a 5xx, the server or a proxy may
            // have failed halfway through the work.
            WireError::Status { status, .. } => *status >= 500,
            WireError::Timeout { sent } | WireError::Closed { sent, .. } | WireError::Cancelled { sent } => *sent,
            // Each of these is a reaction to a request that arrived.
            WireError::NotMcp(_) | WireError::TooLarge { .. } | WireError::Rpc(_) | WireError::Protocol(_) => true,
        }
    }
}

impl RpcError {
    // The first five codes are those of JSON-RPC, the others those of MCP 2026-07-28.
    /// The text is not JSON.
    pub const PARSE: i64 = -32700;
    /// Valid JSON, but not a message that the protocol allows here.
    pub const INVALID_REQUEST: i64 = -32600;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INTERNAL: i64 = -32603;
    /// A header that must repeat a part of the body is missing or differs from it.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a client capability that the client did not declare; the data names it.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The data lists the supported versions.
    pub const UNSUPPORTED_VERSION: i64 = -32022;

    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Connect(reason) => write!(f, "no connection: {reason}"),
            WireError::Unauthorized { status, .. } => {
                write!(f, "the server answered HTTP {status}: it needs a token, or this one is not allowed")
            }
            WireError::Status { status, body, .. } if body.is_empty() => {
                write!(f, "the server answered HTTP {status}")
            }
            WireError::Status { status, body, .. } => write!(f, "the server answered HTTP {status}: `{body}`"),
            WireError::NotMcp(reason) => write!(f, "this does not look like an MCP server: {reason}"),
            WireError::Timeout { sent: true } => write!(f, "the server did not answer in time"),
            WireError::Timeout { sent: false } => {
                write!(f, "the request could not be sent in time")
            }
            WireError::Closed { reason, .. } => write!(f, "the connection is closed: {reason}"),
            WireError::TooLarge { what, limit } => write!(f, "{what} is over the limit of {limit}"),
            WireError::Rpc(error) => error.fmt(f),
            WireError::Protocol(reason) => write!(f, "the server violated the protocol: {reason}"),
            WireError::Cancelled { .. } => write!(f, "the request was cancelled"),
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with error {}: `{}`", self.code, sanitize_excerpt(&self.message))
    }
}

/// For the server side: a failure to encode or decode is an internal error, not the client's fault.
impl From<WireError> for RpcError {
    /// Keeps a JSON-RPC error of the peer as it is.
    fn from(error: WireError) -> RpcError {
        if let WireError::Rpc(error) = error {
            return error;
        }
        RpcError::new(RpcError::INTERNAL, error.to_string())
    }
}

impl std::error::Error for WireError {}
impl std::error::Error for RpcError {}

/// Returns the beginning of untrusted text on one line, without control characters, for use in an error message.
pub(crate) fn sanitize_excerpt(text: &str) -> String {
    // A sentence or two: the excerpt becomes part of a message on one line.
    const MAX_EXCERPT_CHARS: usize = 200;
    let mut short: String =
        text.chars().take(MAX_EXCERPT_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        short.push('…');
    }
    short.trim().to_owned()
}
