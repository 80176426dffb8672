//! Workflows that an Arazzo document describes: each is a tool, and its steps are calls to tools of other sources, made
//! the way any caller makes them. From here nothing is sent, and no rule is got around.

mod result;
mod run;

mod step;

mod arguments;
mod operations;
mod target;

mod document;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::arazzo::build_workflow_tool;
use toolcrib_core::{Code, Result, ResultExt, Source};

use super::openapi::{discover_in_time, run_blocking, unsupported_request};
use super::{CallFailure, Connector, Discovered, Discovery, DocumentVersions, SourceRequest, ToolCall, ToolResult};
use crate::connections::WeakRegistry;
use document::LoadedDocument;
use operations::OperationLookup;

/// Another version may make other tools of the same document. The last number is raised whenever this one does.
const READER_VERSION: &str = concat!("workflow ", env!("CARGO_PKG_VERSION"), "/1");

#[derive(Debug)]
pub(crate) struct WorkflowConnector {
    source: Source,
    registry: WeakRegistry,
    /// The document as it was last read.
    loaded: Mutex<Option<Arc<LoadedDocument>>>,
    operations: OperationLookup,
}

impl WorkflowConnector {
    pub(crate) fn new(source: Source, origin: WeakRegistry) -> WorkflowConnector {
        WorkflowConnector { source, registry: origin, loaded: Mutex::default(), operations: OperationLookup::default() }
    }

    async fn discover_tools(&self, discovery: &Discovery) -> Result<Discovered> {
        let file = self.read_workflow_file().await?;
        let documents = [(file.url.to_string(), file.version.clone())].into();
        let marks = Some(DocumentVersions { reader: READER_VERSION.to_owned(), documents });
        if discovery.known_versions == marks {
            return Ok(Discovered { unchanged: true, versions: marks, ..Discovered::default() });
        }
        let held = self.parse_file(file).await?;
        let of = held.clone();
        let tools = run_blocking(move || {
            let tools = of.document.workflows.iter().map(|workflow| to_raw_value(&build_workflow_tool(workflow)));
            tools.collect::<Result<_, _>>().context(Code::Internal, "write a tool")
        });
        let tools = tools.await?;
        Ok(Discovered {
            tools,
            excluded: held.document.excluded.clone(),
            about: held.about.clone(),
            servers: held.document.described_apis(),
            versions: marks,
            ..Discovered::default()
        })
    }
}

#[async_trait]
impl Connector for WorkflowConnector {
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

    async fn close(&self) {}
}
