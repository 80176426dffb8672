//! Tests the REST API over real HTTP: routes, invalid input, event streams, connections, and the OpenAPI document.

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
