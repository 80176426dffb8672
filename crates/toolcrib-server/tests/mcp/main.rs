//! The MCP surface as a client sees it, over a byte stream, with scripted sources behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod lists;
mod server_requests;
mod subscriptions;
mod support;
mod token_costs;
