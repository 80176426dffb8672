//! Toolcrib with real MCP clients: the official SDKs, the Inspector, and many agents at once, over HTTP and stdio.
#![cfg(target_os = "linux")]

mod official;

mod inspector;

mod agents;
mod bridge;

mod guide;
