//! Connector for HTTP APIs described by an OpenAPI document: discovery converts the operations of the document to tools
//! (`convert`, without I/O), and a call sends the HTTP request that the document describes.
//!
//! ```text
//! discovery   documents ▶ fetch ▶ (unchanged?) ▶ parse ▶ convert ▶ tools with execution specifications
//! call        execution specification, arguments ▶ request ▶ credentials ▶ url_policy ▶ send ▶ retry ▶ result, or poll
//! ```
//!
//! The document is untrusted. It names servers and other documents, but `url_policy` decides which addresses these may
//! have, and `resolved_source` whether they get credentials. The execution specification travels with the tool through
//! manifest and catalogue, so a call needs no document.

// From a call to its result.
mod call;
mod pagination;
mod poll;
mod request_builder;
mod request_outline;
mod result;
mod undeclared;

// Sending.
mod content_encoding;
mod error_response;
mod retry;
mod send;

// Configuration: credentials, address policy, HTTP clients.
mod credentials;
mod http_clients;
mod oauth_tokens;
mod resolved_source;
mod url_policy;

// Reading documents.
mod documents;
mod fetch;
mod local_documents;

use std::sync::Arc;

use toolcrib_connector::clock::Clock;
use toolcrib_connector::secret::SourceReferences;
use toolcrib_core::Source;

pub use http_clients::OpenApiClients;
pub use local_documents::{LocalDocumentReader, resolve_path};
use oauth_tokens::TokenCache;
pub use request_outline::outline_request;

/// Connector of one OpenAPI source. Stateless but for OAuth tokens; HTTP connections are pooled in the clients.
#[derive(Debug)]
pub struct OpenApiConnector {
    /// As declared, with references unresolved.
    source: Source,
    /// HTTP clients shared by all sources.
    clients: Arc<OpenApiClients>,
    tokens: TokenCache,
    clock: Clock,
    references: Arc<SourceReferences>,
}

impl OpenApiConnector {
    pub fn new(
        source: Source,
        clients: Arc<OpenApiClients>,
        clock: Clock,
        references: Arc<SourceReferences>,
    ) -> OpenApiConnector {
        OpenApiConnector { source, clients, tokens: TokenCache::default(), clock, references }
    }
}

#[cfg(test)]
mod tests;
