//! Workflows that an Arazzo document describes: each is a tool, and its steps are calls to tools of other sources, made
//! the way any caller makes them. From here nothing is sent, and no rule is got around.

mod journey;
mod result;

mod step;

mod arguments;
mod operations;
mod sources;

mod document;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::arazzo::tool_of;
use toolcrib_core::{Code, Result, ResultExt, Source};

use super::openapi::{apart, in_time, no_mcp_server};
use super::{Answer, Call, CallFailure, Connector, Discovery, Marks, Offer, Request};
use crate::connections::Origin;
use document::Held;
use operations::Operations;

/// Another version may make other tools of the same document. The last number is raised whenever this one does.
const READER: &str = concat!("workflow ", env!("CARGO_PKG_VERSION"), "/1");

#[derive(Debug)]
pub(crate) struct WorkflowConnector {
    source: Source,
    origin: Origin,
    /// The document as it was last read.
    held: Mutex<Option<Arc<Held>>>,
    operations: Operations,
}

impl WorkflowConnector {
    pub(crate) fn new(source: Source, origin: Origin) -> WorkflowConnector {
        WorkflowConnector { source, origin, held: Mutex::default(), operations: Operations::default() }
    }

    async fn look(&self, discovery: &Discovery) -> Result<Offer> {
        let file = self.file().await?;
        let documents = [(file.place.to_string(), file.mark.clone())].into();
        let marks = Some(Marks { reader: READER.to_owned(), documents });
        if discovery.known == marks {
            return Ok(Offer { unchanged: true, marks, ..Offer::default() });
        }
        let held = self.read(file).await?;
        let of = held.clone();
        let tools = apart(move || {
            let tools = of.document.workflows.iter().map(|workflow| to_raw_value(&tool_of(workflow)));
            tools.collect::<Result<_, _>>().context(Code::Internal, "write a tool")
        });
        let tools = tools.await?;
        Ok(Offer {
            tools,
            excluded: held.document.set_aside.clone(),
            about: held.about.clone(),
            servers: held.document.described_apis(),
            marks,
            ..Offer::default()
        })
    }
}

#[async_trait]
impl Connector for WorkflowConnector {
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

    async fn close(&self) {}
}
