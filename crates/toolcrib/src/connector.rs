//! How a source is spoken to: discover, call, close. What lies behind knows no catalogue and makes no policy.

pub mod builtin;
pub mod mcp;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib_core::manifest::SetAside;
use toolcrib_core::{Code, Error, Result};

/// Speaks one source's protocol. It keeps no catalogue, makes no policy, and ends every wait at the deadline it is given.
#[async_trait]
pub trait Connector: Send + Sync + std::fmt::Debug {
    async fn discover(&self, discovery: Discovery) -> Result<Offer>;
    async fn call(&self, call: Call) -> Result<Answer, CallFailure>;
    /// Whether a connection stands now.
    fn connected(&self) -> bool;
    /// Ends the connection and everything behind it.
    async fn close(&self);
}

#[derive(Debug, Clone)]
pub struct Discovery {
    pub timeout: Duration,
    /// The protocol version found last time.
    pub era: Option<String>,
    /// Whether a call follows, so that the connection is worth keeping.
    pub keep: bool,
}

/// What a source offers, tool by tool, as it came.
#[derive(Debug, Default)]
pub struct Offer {
    pub tools: Vec<Box<RawValue>>,
    pub excluded: Vec<SetAside>,
    pub era: Option<String>,
    /// What the source says about itself, for search.
    pub about: Option<String>,
}

#[derive(Debug)]
pub struct Call {
    /// The source's own name.
    pub tool: String,
    pub arguments: Box<RawValue>,
    pub input_schema: Box<RawValue>,
    pub timeout: Duration,
    pub progress: Option<mpsc::Sender<Box<RawValue>>>,
    pub cancel: CancellationToken,
    /// Whether it does no harm when it happens twice.
    pub repeatable: bool,
}

/// Why a call has no answer, and what that says about the source.
#[derive(Debug)]
pub enum CallFailure {
    /// The source is alive and refused: an error of its own, or one found before it was asked.
    Refused(Error),
    /// No answer came: no connection, a dead one, a deadline of the source's own.
    Lost(Error),
    /// It says nothing about the source: the caller left, or was in a greater hurry than the source allows.
    Undecided(Error),
}

impl CallFailure {
    pub fn into_error(self) -> Error {
        match self {
            CallFailure::Refused(error) | CallFailure::Lost(error) | CallFailure::Undecided(error) => error,
        }
    }

    pub fn cancelled() -> CallFailure {
        CallFailure::Undecided(Error::new(Code::ToolExecutionFailed, "the call was cancelled"))
    }
}

/// What a tool answered: `content`, `structuredContent`, `isError` and `_meta`, as raw JSON.
#[derive(Debug, Clone)]
pub struct Answer {
    pub content: Box<RawValue>,
    pub structured: Option<Box<RawValue>>,
    pub meta: Option<Box<RawValue>>,
    pub is_error: bool,
}
