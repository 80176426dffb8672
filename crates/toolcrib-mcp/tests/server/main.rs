//! Tests of the server side, with raw HTTP requests and lines and with our own client.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test helpers panic on failure")]

mod client;
mod client_requests;
mod http;
mod http_errors;
mod sessions;
mod stdio;
mod support;
