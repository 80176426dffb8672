//! Tests the MCP service through a real client over a byte stream, with scripted sources.

mod calls;
mod lists;
mod server_requests;
mod subscriptions;
mod support;
mod token_costs;
