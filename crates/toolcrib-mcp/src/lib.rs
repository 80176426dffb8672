//! MCP on the wire, both sides: every protocol version from 2024-11-05 to 2026-07-28, over a byte stream (stdio),
//! Streamable HTTP and legacy HTTP+SSE.
//!
//! Results and parameters pass as raw JSON, so nothing a server says is lost or rejected here. Every wait has a
//! deadline, every queue and body a bound, every task an owner. Starting processes, catalogues and policies are for
//! the layers above.

mod client;
mod connection;
mod era;
mod error;
mod headers;
mod http;
mod message;
mod options;
mod pipe;
pub mod server;

pub use client::{Client, ServerSays, tools::ToolList};
pub use connection::Notice;
pub use era::{Era, Version};
pub use error::{RpcError, WireError};
pub use options::{Handler, Heard, Limits, Options, Relay, RequestOptions, ServerRequest, Target};
