//! The registry from outside: discovery, calls, built-ins, bad input, real servers, other processes, trouble with the store.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what the tests share is a test too")]

mod support;

mod builtins;
mod calls;
mod discovery;
mod freshness;
mod lifecycle;
mod sources;
