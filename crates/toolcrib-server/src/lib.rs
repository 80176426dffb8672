//! Network front end of a registry: the MCP service over HTTP and over a byte stream, the REST API and the web console.
//!
//! A request passes `serve` (connection), `middleware` (host check, cache, metrics), `router` (route) and `auth` (role)
//! before its handler in `mcp`, `rest` or `console` runs.
//!
//! All three interfaces are thin: they parse a request, call the [`Registry`](toolcrib::Registry) and render its answer.
//! Policy, argument checks, the circuit breaker and the store are the registry's; the MCP wire format and its sessions
//! are those of `toolcrib_mcp`. This crate neither prints nor exits: that is left to `toolcrib-cli`.

mod serve;

mod bodies;
mod connections;
mod middleware;
mod position;
mod router;
mod state;

mod auth;

mod bridge;
mod mcp;

mod console;
mod page_cursor;
mod rest;
mod view_cache;

mod activity;
mod http_metrics;
mod metrics;

pub use bridge::Bridge;
pub use mcp::McpService;
pub use serve::{HttpServer, ServerLimits, bind};
pub use state::{AppState, ServerConfig};
