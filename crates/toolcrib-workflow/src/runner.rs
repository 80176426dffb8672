//! Connector for workflows described by an Arazzo document: each workflow is a tool, and its steps are calls to tools
//! of other sources through a `ToolCaller`. It sends no requests itself, so every step is subject to policy, breaker
//! and statistics like any other call.
//!
//! The state machine of a workflow (which step is next, criteria, retries, outputs) is `run`, without I/O. This module reads the document, finds the tool that a step means, calls it, and feeds the response back.

mod run;
mod step;

mod arguments;
mod nested_inputs;
mod operations;
mod target;

mod document;
mod result;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use toolcrib_connector::document::{discover_in_time, run_blocking};
use toolcrib_connector::secret::SourceReferences;
use toolcrib_connector::{CallFailure, Connector, Discovered, Discovery, ToolCall, ToolResult};
use toolcrib_core::json::to_exact_raw;
use toolcrib_core::{Code, Result, ResultExt, Source};

use crate::build_workflow_tool;
pub use document::read_described_apis;
use document::{LoadedDocument, is_current, load};
use operations::OperationLookup;

/// Version of the conversion from documents to tools. Raise the last number whenever the same document gives other
/// tools.
const READER_VERSION: &str = concat!("workflow ", env!("CARGO_PKG_VERSION"), "/5");

/// Connector of one workflow source.
#[derive(Debug)]
pub struct WorkflowConnector {
    /// As declared, with references unresolved.
    source: Source,
    references: Arc<SourceReferences>,
    /// Last parsed documents, reused while their files are unchanged.
    loaded: Mutex<Option<Arc<LoadedDocument>>>,
    /// Finds the tools that steps refer to.
    operations: OperationLookup,
    /// One validation of nested inputs at a time: it cannot be interrupted, and may outlive its call.
    validation_permit: Arc<Semaphore>,
}

impl WorkflowConnector {
    pub fn new(source: Source, references: Arc<SourceReferences>) -> WorkflowConnector {
        WorkflowConnector {
            source,
            references,
            loaded: Mutex::default(),
            operations: OperationLookup::default(),
            validation_permit: Arc::new(Semaphore::new(1)),
        }
    }

    /// Reads the documents and lists the workflows of the first as tools, unless all are unchanged since the last
    /// discovery.
    async fn discover_tools(&self, discovery: &Discovery) -> Result<Discovered> {
        // The documents are files; the APIs that they refer to are sources of their own.
        let path = self.document_path(&discovery.references)?;
        let known = discovery.known_versions.clone();
        let discovered = run_blocking(move || {
            if let Some(known) = known.filter(|known| is_current(&path, known)) {
                return Ok((None, Discovered { unchanged: true, versions: Some(known), ..Discovered::default() }));
            }
            let loaded = load(&path)?;
            let main = loaded.documents.main();
            let tools = main.workflows.iter().map(|workflow| to_exact_raw(&build_workflow_tool(workflow)));
            let discovered = Discovered {
                tools: tools.collect::<Result<_, _>>().context(Code::Internal, "cannot serialize a tool")?,
                skipped: main.skipped.clone(),
                about: loaded.about.clone(),
                servers: loaded.described_apis(),
                versions: Some(loaded.versions.clone()),
                ..Discovered::default()
            };
            Ok((Some(loaded), discovered))
        });
        let (loaded, discovered) = discovered.await?;
        if let Some(loaded) = loaded {
            *self.loaded.lock() = Some(Arc::new(loaded));
        }
        Ok(discovered)
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
