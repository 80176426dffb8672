//! Connector for HTTP APIs described by an OpenAPI document: discovery converts the operations of the document to tools
//! (the conversion is in `toolcrib_openapi`), and a call sends the HTTP request that the document describes.
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
mod api_client;
mod call;
mod poll;
mod request_builder;
mod result;

// Sending.
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

use async_trait::async_trait;
use serde_json::value::RawValue;
use toolcrib_connector::clock::Clock;
use toolcrib_connector::document::{discover_in_time, run_blocking, unsupported_request};
use toolcrib_connector::secret::SourceReferences;
use toolcrib_connector::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Result, Source};

use crate::{ConversionOptions, ConvertedDocument, DocumentSet, convert, parse};
use documents::DocumentLoader;
pub use http_clients::OpenApiClients;
pub use local_documents::{LocalDocumentReader, resolve_path};
use oauth_tokens::TokenCache;
use resolved_source::ResolvedSource;

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

    /// Reads the documents and converts their operations, unless nothing has changed since the last discovery.
    async fn discover_tools(&self, discovery: &Discovery) -> Result<Discovered> {
        // Ask the servers of all known documents for changes before parsing anything.
        let resolved = ResolvedSource::resolve(&self.source, &discovery.references)?;
        let documents = DocumentLoader::new(self, &resolved, discovery.trace.as_ref())?;
        if let Some(known) = &discovery.known_versions
            && let Some(versions) = documents.check_unchanged(known).await?
        {
            return Ok(Discovered { unchanged: true, versions: Some(versions), ..Discovered::default() });
        }
        // Load and parse everything, then convert.
        let set = load_documents(&documents).await?;
        // On a blocking thread: the largest known documents have more than a thousand operations.
        let source = self.source.clone();
        let converted = run_blocking(move || {
            // From the declared source: resolved references must not reach the manifest.
            let SourceKind::OpenApi(openapi) = &source.kind else { return Ok(ConvertedDocument::default()) };
            convert(&set, ConversionOptions { source: &source.id, openapi })
        });
        let converted = converted.await?;
        let ConvertedDocument { tools, skipped, summary: about, server_origins: servers } = converted;
        Ok(Discovered { tools, skipped, about, servers, versions: documents.versions(), ..Discovered::default() })
    }
}

/// Loads the main document and everything it references. A referenced document that cannot be loaded is recorded with
/// its error; only the operations that need it are skipped.
async fn load_documents(documents: &DocumentLoader<'_>) -> Result<DocumentSet> {
    // The main document is required.
    let text = documents.load(documents.main_url()).await?;
    let url = documents.main_url().clone();
    // `missing` are the documents that the ones read so far refer to; sorted, so that the order is the same each time.
    let (mut set, mut missing) = run_blocking(move || {
        let set = DocumentSet::new(url.clone(), parse(&text)?);
        let missing = set.missing_from(&url);
        Ok((set, missing))
    })
    .await?;
    // Referenced documents are optional; each may reference more.
    while let Some(url) = missing.pop_first() {
        let text = documents.load(&url).await;
        let found;
        (set, found) = run_blocking(move || {
            let document = text.and_then(|text| parse(&text));
            set.add(&url, document.map_err(|error| error.message));
            let found = set.missing_from(&url);
            Ok((set, found))
        })
        .await?;
        missing.extend(found);
    }
    Ok(set)
}

#[async_trait]
impl Connector for OpenApiConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        discover_in_time(discovery.timeout, self.discover_tools(&discovery)).await
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        self.execute(call).await
    }

    async fn request(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        Err(unsupported_request(&self.source.id, request))
    }

    /// HTTP connections are pooled by the clients and belong to no source.
    fn is_connected(&self) -> bool {
        false
    }

    /// Forgets the tokens. Calls in flight keep theirs until they end.
    async fn close(&self) {
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests;
