//! What the scripted servers have in common: their flags, their list of tools, what their tools do, and the
//! answers to the methods of MCP. How messages travel, and the faults of that, is up to each binary.

mod flags;
mod list;
mod server;
mod tools;

pub use flags::{ArgumentReader, HangPoint, ServerFlags};
pub use server::{FakeReply, FakeServer, append_line};
pub use tools::{FakeCallResult, call_tool, text_result};
