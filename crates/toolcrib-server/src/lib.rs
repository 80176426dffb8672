//! Network front end of a registry: the MCP service over HTTP and over a byte stream, the REST API and the web console.
//!
//! A request passes `serve` (connection), `middleware` (host check, cache, metrics), `router` (route) and `auth` (role)
//! before its handler in `mcp`, `rest` or `console` runs.

mod serve;

mod bodies;
mod connections;
mod middleware;
mod router;
mod state;

mod auth;

mod bridge;
mod mcp;

mod console;
mod rest;

mod activity;
mod http_metrics;
mod operations;

pub use bridge::Bridge;
pub use mcp::McpService;
pub use serve::{HttpServer, ServerLimits, bind};
pub use state::{AppState, ServerConfig};
