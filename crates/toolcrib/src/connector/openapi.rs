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
mod templates;
mod territory;
mod tokens;

mod documents;
mod fetch;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::RawValue;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source};

use super::{Answer, Call, CallFailure, Connector, Discovery, Offer, Request};
use crate::clock::Clock;
use documents::Documents;
use settled::Settled;
use tokens::Tokens;

pub(crate) use clients::Clients;
pub(crate) use templates::filled;

#[derive(Debug)]
pub(crate) struct OpenApiConnector {
    source: Source,
    clients: Arc<Clients>,
    tokens: Tokens,
    clock: Clock,
}

impl OpenApiConnector {
    pub(crate) fn new(source: Source, clients: Arc<Clients>, clock: Clock) -> OpenApiConnector {
        OpenApiConnector { source, clients, tokens: Tokens::default(), clock }
    }

    async fn look(&self, discovery: &Discovery) -> Result<Offer> {
        let settled = Settled::of(&self.source)?;
        let documents = Documents::new(self, &settled);
        if let Some(known) = &discovery.known
            && let Some(marks) = documents.unchanged(known).await?
        {
            return Ok(Offer { unchanged: true, marks: Some(marks), ..Offer::default() });
        }
        let offer = read(&documents).await?;
        Ok(Offer { marks: Some(documents.marks()), ..offer })
    }
}

/// From the documents to what the source offers. The lead's conversion comes here.
async fn read(documents: &Documents<'_>) -> Result<Offer> {
    let _text = documents.load(documents.main()).await?;
    let _where_references_lead = documents::beside;
    Err(Error::new(Code::ConfigInvalid, "OpenAPI documents cannot be read yet"))
}

#[async_trait]
impl Connector for OpenApiConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Offer> {
        let late = |_| {
            let message = format!("the document was not read within {}", format_duration(discovery.timeout));
            Error::new(Code::ToolUnavailable, message)
        };
        tokio::time::timeout(discovery.timeout, self.look(&discovery)).await.map_err(late)?
    }

    async fn call(&self, call: Call) -> Result<Answer, CallFailure> {
        self.carry_out(&call).await
    }

    async fn request(&self, request: Request) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("`{}` is no MCP server and answers no `{}`", self.source.id, request.method);
        Err(CallFailure::Refused(Error::new(Code::ToolNotImplemented, message)))
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
