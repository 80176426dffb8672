//! APIs that an OpenAPI document describes: the document is read, its operations become tools, and a call becomes the
//! request that the document asks for.

mod api_client;
mod call;
mod poll;
mod request_builder;
mod result;

mod error_response;
mod retry;
mod send;

mod credentials;
mod http_clients;
mod resolved_source;
mod tokens;
mod url_policy;

mod documents;
mod fetch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use toolcrib_core::openapi::{ConversionOptions, ConvertedDocument, DocumentSet, convert, parse};
use toolcrib_core::source::SourceKind;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use super::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};
use crate::clock::Clock;
use crate::redact::SourceRedactor;
use documents::DocumentLoader;
use resolved_source::ResolvedSource;
use tokens::TokenCache;

pub(crate) use fetch::read_file_blocking;
pub(super) use fetch::{FetchedDocument, read_file};
pub(crate) use http_clients::OpenApiClients;
pub(crate) use resolved_source::DocumentLocation;

#[derive(Debug)]
pub(crate) struct OpenApiConnector {
    source: Source,
    clients: Arc<OpenApiClients>,
    tokens: TokenCache,
    clock: Clock,
    redactor: Arc<SourceRedactor>,
}

impl OpenApiConnector {
    pub(crate) fn new(
        source: Source,
        clients: Arc<OpenApiClients>,
        clock: Clock,
        redactor: Arc<SourceRedactor>,
    ) -> OpenApiConnector {
        OpenApiConnector { source, clients, tokens: TokenCache::default(), clock, redactor }
    }

    /// The source with its references filled, at the moment of use.
    fn resolve_source(&self) -> Result<ResolvedSource> {
        let settled = ResolvedSource::resolve(&self.source);
        self.redactor.update(&self.source.kind);
        settled
    }

    async fn discover_tools(&self, discovery: &Discovery) -> Result<Discovered> {
        let settled = self.resolve_source()?;
        let documents = DocumentLoader::new(self, &settled, discovery.trace.as_ref())?;
        if let Some(known) = &discovery.known_versions
            && let Some(marks) = documents.check_unchanged(known).await?
        {
            return Ok(Discovered { unchanged: true, versions: Some(marks), ..Discovered::default() });
        }
        let library = load_documents(&documents).await?;
        let source = self.source.clone();
        let converted = run_blocking(move || {
            // As it is declared: what a reference stands for belongs in no manifest.
            let SourceKind::OpenApi(openapi) = &source.kind else { return Ok(ConvertedDocument::default()) };
            convert(&library, ConversionOptions { source: &source.id, openapi })
        });
        let converted = converted.await?;
        let ConvertedDocument { tools, excluded: set_aside, summary: about, server_origins: servers } = converted;
        Ok(Discovered {
            tools,
            excluded: set_aside,
            about,
            servers,
            versions: documents.versions(),
            ..Discovered::default()
        })
    }
}

/// The document with all that it leads to. What cannot be had of the latter is known by its reason.
async fn load_documents(documents: &DocumentLoader<'_>) -> Result<DocumentSet> {
    let text = documents.load(documents.main_url()).await?;
    let address = documents.main_url().clone();
    let (mut library, mut missing) = run_blocking(move || {
        let library = DocumentSet::new(address.clone(), parse(&text)?);
        let missing = library.missing_from(&address);
        Ok((library, missing))
    })
    .await?;
    while let Some(address) = missing.pop_first() {
        let text = documents.load(&address).await;
        let found;
        (library, found) = run_blocking(move || {
            let document = text.and_then(|text| parse(&text));
            library.add(&address, document.map_err(|error| error.message));
            let found = library.missing_from(&address);
            Ok((library, found))
        })
        .await?;
        missing.extend(found);
    }
    Ok(library)
}

/// Large documents take a while: not on a thread that others wait for.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context(Code::Internal, "a document could not be read")?
}

/// A document is read within the time of its discovery.
pub(super) async fn discover_in_time(
    timeout: Duration,
    look: impl Future<Output = Result<Discovered>>,
) -> Result<Discovered> {
    let late = |_| {
        let message = format!("the document was not read within {}", format_duration(timeout));
        Error::new(Code::ToolUnavailable, message)
    };
    tokio::time::timeout(timeout, look).await.map_err(late)?
}

/// What a source that a document describes answers to requests of MCP.
pub(super) fn unsupported_request(id: &SourceId, request: &SourceRequest) -> CallFailure {
    let message = format!("`{id}` is no MCP server and answers no `{}`", request.method);
    CallFailure::Rejected(Error::new(Code::ToolNotImplemented, message))
}

#[async_trait]
impl Connector for OpenApiConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        discover_in_time(discovery.timeout, self.discover_tools(&discovery)).await
    }

    async fn call(&self, call: ToolCall) -> Result<ToolResult, CallFailure> {
        self.execute(&call).await
    }

    async fn request(&self, request: SourceRequest) -> Result<Box<RawValue>, CallFailure> {
        Err(unsupported_request(&self.source.id, &request))
    }

    fn is_connected(&self) -> bool {
        false
    }

    async fn close(&self) {
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests;
