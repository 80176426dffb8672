//! MCP client and server: every protocol version from 2024-11-05 to 2026-07-28, over a byte stream (stdio), Streamable
//! HTTP and legacy HTTP+SSE.
//!
//! The client side is [`McpClient`] over a `WireConnection` (request ids, pending requests, incoming messages) over one
//! of three transports (`stdio`, `http`, `http::legacy_sse`). The server side is a [`server::Service`] behind one of
//! two transports ([`server::McpEndpoint`], [`server::serve_stream`]). Both sides share the encoding of messages
//! (`message`), the headers that repeat parts of the body (`headers`) and the protocol versions (`era`).
//!
//! Results and parameters pass through as raw JSON, so unknown fields and deep values survive. Every wait has a
//! deadline, every queue and body a bound, and every task an owner that ends it. Starting processes, catalogues and
//! policies belong to the layers above.

mod client;
mod connection;
mod era;
mod error;
mod headers;
mod http;
mod message;
mod options;
pub mod server;
mod stdio;

pub use client::{
    McpClient, ServerDescription,
    lists::{ItemList, ListMethod},
    tools::ToolList,
};
pub use connection::ConnectionEvent;
pub use era::{Era, LegacyVersion};
pub use error::{RpcError, WireError};
pub use http::challenge::AuthChallenge;
pub use options::{
    ClientLimits, ClientOptions, ConnectTarget, NotificationHandler, ProgressHandler, Relay, RequestOptions,
    ServerRequest, ServerRequestHandler,
};
