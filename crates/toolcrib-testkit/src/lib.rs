//! Test kit: locates the external programs that tests of Toolcrib need, and implements scripted MCP servers that show
//! faults on demand. `cargo xtask test` fetches the external programs.

pub mod fake;
pub mod http_response;
pub mod programs;
