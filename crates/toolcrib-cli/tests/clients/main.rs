//! Toolcrib with real MCP clients: the official SDKs, the Inspector, and many agents at once, over HTTP and stdio.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod official;

mod inspector;

mod agents;
mod bridge;

mod guide;

#[path = "../support/mod.rs"]
mod support;
