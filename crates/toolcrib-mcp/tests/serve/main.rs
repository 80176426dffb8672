//! The server side: held to the protocol by raw requests and lines, and by our own client.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the service here is a test, functions and all"
)]

mod client;
mod client_requests;
mod http;
mod http_errors;
mod sessions;
mod stdio;
mod support;
