//! Tests the MCP service through a real client over a byte stream, with scripted sources.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod lists;
mod server_requests;
mod subscriptions;
mod support;
mod token_costs;
