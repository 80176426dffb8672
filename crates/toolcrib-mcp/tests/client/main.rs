//! The client against scripted servers that behave, misbehave and fall silent.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the servers here are tests, functions and all")]

mod http;
mod http_errors;
mod modern;
mod stdio;
mod stdio_errors;
mod support;
