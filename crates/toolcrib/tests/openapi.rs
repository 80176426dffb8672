//! OpenAPI and workflow sources through the registry: documents are discovered, and calls send the described requests.

mod support;

mod documents;
mod recorded_documents;
mod requests;
mod serialization;
mod workflow;
