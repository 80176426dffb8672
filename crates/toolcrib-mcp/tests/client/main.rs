//! Tests of the client against scripted servers, with correct and with faulty behaviour.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers panic on failure")]

mod http;
mod http_errors;
mod modern;
mod stdio;
mod stdio_errors;
mod support;
