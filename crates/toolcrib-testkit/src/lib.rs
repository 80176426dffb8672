//! Test kit: locates the external programs that tests of Toolcrib need, and implements scripted MCP servers that show
//! faults on demand. `cargo xtask test` fetches the external programs.
//!
//! Real servers are preferred where they can show a behaviour; the scripted ones are for what a real server cannot be
//! made to do, such as a crash during a call, a list that never ends, or invalid UTF-8. Binaries: `scripted-server`
//! (stdio), `scripted-http` (Streamable HTTP), and `rmcp-server` (official Rust SDK, behind a feature because of its
//! dependencies).

pub mod fake;
pub mod http_response;
pub mod programs;
