//! Tests of the library from outside.

#![expect(clippy::unwrap_used, clippy::panic, reason = "code shared by tests")]

mod support;

mod builtin;
mod examples;
mod formats;
mod guard;
/// OpenAPI and workflow sources through the registry: documents are discovered, and calls send the described requests.
mod openapi {
    mod support;

    mod documents;
    mod long_integers;
    mod recorded_documents;
    mod requests;
    mod serialization;
    mod workflow;
}
mod registry;
mod search;
mod store;
