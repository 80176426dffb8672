//! Tests the REST API over real HTTP: routes, invalid input, event streams, connections, and the OpenAPI document.

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
