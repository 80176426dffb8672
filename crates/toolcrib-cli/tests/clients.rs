//! Toolcrib with real MCP clients: the official SDKs, the Inspector, FastMCP, mcporter, and many agents at once, over HTTP and stdio.
#![cfg(target_os = "linux")]

mod official;

mod inspector;
mod other;

mod agents;
mod bridge;

mod guide;
