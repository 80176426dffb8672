//! Tests of the server over real HTTP and MCP connections.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod test_server;

mod auth;
mod mcp;
mod rest;
