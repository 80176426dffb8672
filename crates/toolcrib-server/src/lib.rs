//! What agents and people reach: the MCP surface of a registry over HTTP and over a byte stream, REST, the console.

mod activity;
mod auth;
mod bodies;
mod bridge;
mod connections;
mod console;
mod http_metrics;
mod mcp;
mod middleware;
mod operations;
mod rest;
mod router;
mod serve;
mod state;

pub use bridge::Bridge;
pub use mcp::McpService;
pub use serve::{HttpServer, ServerLimits, bind};
pub use state::{AppState, ServerConfig};
