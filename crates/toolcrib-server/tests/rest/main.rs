//! REST over real HTTP: what routes answer, what bad input gets, what listeners hear, and what the document promises.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/raw_http.rs"]
mod raw_http;
mod support;

mod calls;
mod connections;
mod events;
mod history;
mod invalid_input;
mod openapi;
mod shutdown;
mod sources;
mod store_failure;
mod tools;
