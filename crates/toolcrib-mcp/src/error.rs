//! What can go wrong on the wire, as a small enum the layer above branches on.
//!
//! Messages are for people. They never hold headers, query strings or other places where secrets live.

use std::fmt;

use serde_json::value::RawValue;

#[derive(Debug, Clone)]
pub enum WireError {
    /// No connection came about; nothing was sent.
    Connect(String),
    /// HTTP 401 or 403: the server wants a token, or another one.
    Unauthorized {
        status: u16,
        /// 401, or 403 with `insufficient_scope`: a login, or one with more rights, would help.
        login_helps: bool,
    },
    /// Any other refusal by HTTP status, with the beginning of what was said.
    Status {
        status: u16,
        body: String,
        /// The `Retry-After` header as it came.
        retry_after: Option<String>,
    },
    /// Something answers there, but it does not speak MCP.
    NotMcp(String),
    Timeout {
        sent: bool,
    },
    Closed {
        sent: bool,
        reason: String,
    },
    TooLarge {
        what: &'static str,
        limit: usize,
    },
    /// The server's own error, as it is.
    Rpc(RpcError),
    /// The server broke the protocol.
    Protocol(String),
    Cancelled {
        sent: bool,
    },
}

/// A JSON-RPC error, from a server or from a [`Handler`](crate::Handler).
#[derive(Debug, Clone)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Box<RawValue>>,
}

impl WireError {
    /// What kind of error it is, for logs: without the server's own words, which may repeat its credentials.
    pub fn kind(&self) -> &'static str {
        match self {
            WireError::Connect(_) => "no connection",
            WireError::Unauthorized { .. } => "unauthorized",
            WireError::Status { .. } => "refused by its HTTP status",
            WireError::NotMcp(_) => "not an MCP server",
            WireError::Timeout { .. } => "timeout",
            WireError::Closed { .. } => "connection closed",
            WireError::TooLarge { .. } => "message too large",
            WireError::Rpc(_) => "JSON-RPC error",
            WireError::Protocol(_) => "protocol violation",
            WireError::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether the server may have acted on the request. When not, trying again is safe.
    pub fn was_sent(&self) -> bool {
        match self {
            WireError::Connect(_) | WireError::Unauthorized { .. } => false,
            WireError::Status { status, .. } => *status >= 500,
            WireError::Timeout { sent } | WireError::Closed { sent, .. } | WireError::Cancelled { sent } => *sent,
            WireError::NotMcp(_) | WireError::TooLarge { .. } | WireError::Rpc(_) | WireError::Protocol(_) => true,
        }
    }
}

impl RpcError {
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INTERNAL: i64 = -32603;
    pub const HEADER_MISMATCH: i64 = -32020;
    pub const MISSING_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;

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
            WireError::Status { status, body: said, .. } if said.is_empty() => {
                write!(f, "the server answered HTTP {status}")
            }
            WireError::Status { status, body: said, .. } => write!(f, "the server answered HTTP {status}: `{said}`"),
            WireError::NotMcp(said) => write!(f, "this does not look like an MCP server: {said}"),
            WireError::Timeout { sent: true } => write!(f, "the server did not answer in time"),
            WireError::Timeout { sent: false } => write!(f, "the server did not even take the request in time"),
            WireError::Closed { reason, .. } => write!(f, "the connection is closed: {reason}"),
            WireError::TooLarge { what, limit } => write!(f, "{what} is over the limit of {limit}"),
            WireError::Rpc(error) => error.fmt(f),
            WireError::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
            WireError::Cancelled { .. } => write!(f, "the request was cancelled"),
        }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered with error {}: `{}`", self.code, sanitize_excerpt(&self.message))
    }
}

/// For servers: what cannot be written or read here is our fault, not the client's.
impl From<WireError> for RpcError {
    /// The other side's own error stays what it is.
    fn from(error: WireError) -> RpcError {
        if let WireError::Rpc(error) = error {
            return error;
        }
        RpcError::new(RpcError::INTERNAL, error.to_string())
    }
}

impl std::error::Error for WireError {}
impl std::error::Error for RpcError {}

/// The beginning of what somebody said, on one line and fit for a message.
pub(crate) fn sanitize_excerpt(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 200;
    let mut short: String =
        text.chars().take(MAX_EXCERPT_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        short.push('…');
    }
    short.trim().to_owned()
}
