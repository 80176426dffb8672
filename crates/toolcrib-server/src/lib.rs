//! What agents and people reach: the MCP surface of a registry over HTTP and over a byte stream, REST, the console.

mod access;
mod activity;
mod api;
mod bodies;
mod bridge;
mod connections;
mod console;
mod door;
mod house;
mod http;
mod operations;
mod serve;
mod surface;
mod traffic;

pub use bridge::Bridge;
pub use house::{House, Setup};
pub use serve::{Limits, Serving, bind};
pub use surface::Surface;
