//! Connector for workflows described by an Arazzo document: each workflow is a tool, and its steps are calls to tools
//! of other sources through a `ToolCaller`. It sends no requests itself, so every step is subject to policy, breaker
//! and statistics like any other call.
//!
//! The state machine of a workflow (which step is next, criteria, retries, outputs) is `run`, without I/O. This module reads the document, finds the tool that a step means, calls it, and feeds the response back.

mod run;
mod step;

mod arguments;
mod operations;
mod target;

mod document;
mod result;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::value::to_raw_value;
use toolcrib_connector::document::{DocumentVersions, discover_in_time, run_blocking};
use toolcrib_connector::secret::SourceReferences;
use toolcrib_connector::{CallFailure, Connector, Discovered, Discovery, ToolCall, ToolResult};
use toolcrib_core::{Code, Result, ResultExt, Source};

use crate::build_workflow_tool;
use document::LoadedDocument;
use operations::OperationLookup;

/// Version of the conversion from documents to tools. Raise the last number whenever the same document gives other
/// tools.
const READER_VERSION: &str = concat!("workflow ", env!("CARGO_PKG_VERSION"), "/2");

/// Connector of one workflow source.
#[derive(Debug)]
pub struct WorkflowConnector {
    /// As declared, with references unresolved.
    source: Source,
    references: Arc<SourceReferences>,
    /// Last parsed document, reused while the file is unchanged.
    loaded: Mutex<Option<Arc<LoadedDocument>>>,
    /// Finds the tools that steps refer to.
    operations: OperationLookup,
}

impl WorkflowConnector {
    pub fn new(source: Source, references: Arc<SourceReferences>) -> WorkflowConnector {
        WorkflowConnector { source, references, loaded: Mutex::default(), operations: OperationLookup::default() }
    }

    /// Reads the file and lists its workflows as tools, unless it is unchanged since the last discovery.
    async fn discover_tools(&self, discovery: &Discovery) -> Result<Discovered> {
        let file = self.read_workflow_file(&discovery.references).await?;
        let documents = [(file.url.to_string(), file.version.clone())].into();
        // The only document is the file itself; the APIs it refers to are sources of their own.
        let versions = Some(DocumentVersions { reader: READER_VERSION.to_owned(), documents });
        if discovery.known_versions == versions {
            return Ok(Discovered { unchanged: true, versions, ..Discovered::default() });
        }
        let loaded = self.parse_file(file).await?;
        let parsed = loaded.clone();
        let tools = run_blocking(move || {
            let tools = parsed.document.workflows.iter().map(|workflow| to_raw_value(&build_workflow_tool(workflow)));
            tools.collect::<Result<_, _>>().context(Code::Internal, "cannot serialize a tool")
        });
        let tools = tools.await?;
        Ok(Discovered {
            tools,
            skipped: loaded.document.skipped.clone(),
            about: loaded.about.clone(),
            servers: loaded.document.described_apis(),
            versions,
            ..Discovered::default()
        })
    }
}

#[async_trait]
impl Connector for WorkflowConnector {
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        discover_in_time(discovery.timeout, self.discover_tools(&discovery)).await
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        self.execute(call).await
    }
}
