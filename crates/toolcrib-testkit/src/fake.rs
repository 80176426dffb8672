//! Shared implementation of the scripted MCP servers: flags, tool list, tools, and responses to MCP methods. Transport,
//! and faults of the transport, belong to the binaries.
//!
//! It is written without the code of `toolcrib-mcp`, so that a misunderstanding of the protocol there is not repeated
//! here.

mod features;
mod flags;
mod list;
mod server;
mod tools;

pub use flags::{ArgumentReader, HangPoint, ServerFlags};
pub use server::{FakeReply, FakeServer, append_line};
pub use tools::{FakeCallResult, call_tool, text_result};
