//! APIs that an OpenAPI document describes: the document is read, its operations become tools, and a call becomes the
//! request that the document asks for.

mod call;
mod exchange;
mod outgoing;
mod poll;
mod result;

mod again;
mod refusal;
mod send;

mod clients;
mod credentials;
mod settled;
mod territory;
mod tokens;

mod documents;
mod fetch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use toolcrib_core::openapi::{Conversion, Converted, Library, convert, parse};
use toolcrib_core::source::Kind;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use super::{Answer, Call, CallFailure, Connector, Discovery, Offer, Request};
use crate::clock::Clock;
use crate::redact::SourceRedactor;
use documents::Documents;
use settled::Settled;
use tokens::Tokens;

pub(crate) use clients::Clients;
pub(crate) use fetch::read_file_blocking;
pub(super) use fetch::{Fetched, read_file};
pub(crate) use settled::DocumentLocation;

#[derive(Debug)]
pub(crate) struct OpenApiConnector {
    source: Source,
    clients: Arc<Clients>,
    tokens: Tokens,
    clock: Clock,
    redactor: Arc<SourceRedactor>,
}

impl OpenApiConnector {
    pub(crate) fn new(
        source: Source,
        clients: Arc<Clients>,
        clock: Clock,
        redactor: Arc<SourceRedactor>,
    ) -> OpenApiConnector {
        OpenApiConnector { source, clients, tokens: Tokens::default(), clock, redactor }
    }

    /// The source with its references filled, at the moment of use.
    fn settle(&self) -> Result<Settled> {
        let settled = Settled::of(&self.source);
        self.redactor.update(&self.source.kind);
        settled
    }

    async fn look(&self, discovery: &Discovery) -> Result<Offer> {
        let settled = self.settle()?;
        let documents = Documents::new(self, &settled, discovery.trace.as_ref())?;
        if let Some(known) = &discovery.known
            && let Some(marks) = documents.unchanged(known).await?
        {
            return Ok(Offer { unchanged: true, marks: Some(marks), ..Offer::default() });
        }
        let library = read(&documents).await?;
        let source = self.source.clone();
        let converted = apart(move || {
            // As it is declared: what a reference stands for belongs in no manifest.
            let Kind::OpenApi(openapi) = &source.kind else { return Ok(Converted::default()) };
            convert(&library, Conversion { source: &source.id, openapi })
        });
        let converted = converted.await?;
        let Converted { tools, set_aside, about, servers } = converted;
        Ok(Offer { tools, excluded: set_aside, about, servers, marks: documents.marks(), ..Offer::default() })
    }
}

/// The document with all that it leads to. What cannot be had of the latter is known by its reason.
async fn read(documents: &Documents<'_>) -> Result<Library> {
    let (text, address) = (documents.load(documents.main()).await?, documents.main().clone());
    let (mut library, mut missing) = apart(move || {
        let library = Library::new(address.clone(), parse(&text)?);
        let missing = library.missing_from(&address);
        Ok((library, missing))
    })
    .await?;
    while let Some(address) = missing.pop_first() {
        let text = documents.load(&address).await;
        let found;
        (library, found) = apart(move || {
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
pub(super) async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context(Code::Internal, "a document could not be read")?
}

/// A document is read within the time of its discovery.
pub(super) async fn in_time(timeout: Duration, look: impl Future<Output = Result<Offer>>) -> Result<Offer> {
    let late = |_| {
        let message = format!("the document was not read within {}", format_duration(timeout));
        Error::new(Code::ToolUnavailable, message)
    };
    tokio::time::timeout(timeout, look).await.map_err(late)?
}

/// What a source that a document describes answers to requests of MCP.
pub(super) fn no_mcp_server(id: &SourceId, request: &Request) -> CallFailure {
    let message = format!("`{id}` is no MCP server and answers no `{}`", request.method);
    CallFailure::Refused(Error::new(Code::ToolNotImplemented, message))
}

#[async_trait]
impl Connector for OpenApiConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Offer> {
        in_time(discovery.timeout, self.look(&discovery)).await
    }

    async fn call(&self, call: Call) -> Result<Answer, CallFailure> {
        self.carry_out(&call).await
    }

    async fn request(&self, request: Request) -> Result<Box<RawValue>, CallFailure> {
        Err(no_mcp_server(&self.source.id, &request))
    }

    fn connected(&self) -> bool {
        false
    }

    async fn close(&self) {
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests;
