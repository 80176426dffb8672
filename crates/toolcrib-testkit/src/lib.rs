//! Test kit of all crates: [`programs`] locates the external programs that tests need, [`fake`] implements scripted MCP
//! servers that show faults on demand, [`http_server`] is an HTTP server whose replies a test defines, [`raw_http`]
//! encodes requests and parses responses, [`postgres`] starts database servers, and [`observe`] waits for conditions and
//! inspects files and processes. `cargo xtask test` fetches the external programs.
//!
//! Only a scripted source without a process is elsewhere: `toolcrib::testkit`, because connectors are private to the
//! crate `toolcrib`.
//!
//! Real servers are preferred where they can show a behaviour; the scripted ones are for what a real server cannot be
//! made to do, such as a crash during a call, a list that never ends, or invalid UTF-8. Binaries: `scripted-server`
//! (stdio), `scripted-http` (Streamable HTTP), and `rmcp-server` (official Rust SDK, behind a feature because of its
//! dependencies).

pub mod fake;
pub mod http_server;
pub mod observe;
pub mod postgres;
pub mod programs;
pub mod raw_http;
