//! What agents and people reach: the MCP surface of a registry over HTTP and over a byte stream, REST, the console.

mod access;
mod activity;
mod api;
mod bridge;
mod console;
mod house;
mod http;
mod serve;
mod surface;

pub use bridge::Bridge;
pub use house::{House, Setup};
pub use serve::{Serving, bind};
pub use surface::Surface;
