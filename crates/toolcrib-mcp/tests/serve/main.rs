//! The server side: held to the protocol by raw requests and lines, and by our own client.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the service here is a test, functions and all"
)]

mod asking;
mod client;
mod http;
mod http_faults;
mod sessions;
mod stream;
mod support;
