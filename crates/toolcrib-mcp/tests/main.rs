//! Tests of the MCP client and of the MCP server, each against scripted and against real counterparts.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test helpers panic on failure")]

mod client;
mod server;
