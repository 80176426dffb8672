//! APIs that an OpenAPI document describes: the document is read, its operations become tools, and a call becomes the
//! request that the document asks for.

use async_trait::async_trait;
use serde_json::value::RawValue;
use toolcrib_core::{Code, Error, Result, Source};

use super::{Answer, Call, CallFailure, Connector, Discovery, Offer, Request};

#[derive(Debug)]
pub(crate) struct OpenApiConnector {
    source: Source,
}

impl OpenApiConnector {
    pub(crate) fn new(source: Source) -> OpenApiConnector {
        OpenApiConnector { source }
    }
}

#[async_trait]
impl Connector for OpenApiConnector {
    async fn discover(&self, _: Discovery) -> Result<Offer> {
        Err(Error::new(Code::ConfigInvalid, format!("`{}` cannot be read yet", self.source.id)))
    }

    async fn call(&self, _: Call) -> Result<Answer, CallFailure> {
        Err(CallFailure::Refused(Error::new(Code::ToolNotImplemented, "not yet")))
    }

    async fn request(&self, request: Request) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("`{}` is no MCP server and answers no `{}`", self.source.id, request.method);
        Err(CallFailure::Refused(Error::new(Code::ToolNotImplemented, message)))
    }

    fn connected(&self) -> bool {
        false
    }

    async fn close(&self) {}
}
