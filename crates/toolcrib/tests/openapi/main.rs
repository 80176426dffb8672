//! OpenAPI sources from outside, through the registry: a document is discovered, and calls arrive as it asks for.
#![expect(clippy::unwrap_used, reason = "what the tests share is a test too")]

#[path = "../../src/connector/openapi/tests/server.rs"]
mod server;
mod support;

mod documents;
mod recorded_documents;
mod requests;
mod serialization;
mod workflow;
