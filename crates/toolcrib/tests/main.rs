//! Tests of the library from outside.

#![expect(clippy::unwrap_used, clippy::panic, reason = "code shared by tests")]

mod support;

mod builtin;
mod examples;
mod formats;
mod guard;
mod openapi;
mod registry;
mod search;
mod store;
