//! What agents reach: the MCP surface of a registry, over HTTP and over a byte stream.

mod bridge;
mod http;
mod serve;
mod surface;

pub use bridge::Bridge;
pub use http::router;
pub use serve::{Serving, bind};
pub use surface::Surface;
