//! The MCP surface as a client sees it, over a byte stream, with scripted sources behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asking;
mod calls;
mod costs;
mod lists;
mod subscriptions;
mod support;
