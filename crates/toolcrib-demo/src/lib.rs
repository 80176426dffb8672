//! The sample sources of `toolcrib demo`, and the sandbox in which they are used. The guided tour itself, its arguments
//! and its output are the command's.
//!
//! Both samples are real: [`mcp_server`] is a process that speaks MCP over stdio, [`rest_api`] an HTTP server with an
//! OpenAPI document. Neither shares code with the client that calls it, so that the two check each other.

pub mod sandbox;

pub mod mcp_server;
pub mod rest_api;
