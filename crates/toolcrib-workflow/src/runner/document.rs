//! The Arazzo document of a source: a local file, read for each call and parsed again only when it has changed.

use std::sync::Arc;

use serde_json::Value;
use toolcrib_connector::document::{DocumentLocation, DocumentVersion, MAX_DOCUMENT_BYTES, read_file, run_blocking};
use toolcrib_connector::secret::ReferenceValues;
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use toolcrib_openapi::parse_with_examples;
use url::Url;

use super::WorkflowConnector;
use crate::ArazzoDocument;

/// Text of the file and its version.
#[derive(Debug)]
pub(super) struct WorkflowFile {
    pub(super) url: Url,
    /// Content, not yet parsed.
    text: String,
    /// Hash of the content; files have no `ETag`.
    pub(super) version: DocumentVersion,
}

/// Parsed document with the version it was parsed from.
#[derive(Debug)]
pub(super) struct LoadedDocument {
    /// `file:` URL; relative source descriptions are resolved against it.
    pub(super) url: Url,
    version: DocumentVersion,
    pub(super) document: ArazzoDocument,
    /// Title, summary and description, for search.
    pub(super) about: Option<String>,
}

impl WorkflowConnector {
    /// Reads the configured file.
    pub(super) async fn read_workflow_file(&self, references: &ReferenceValues) -> Result<WorkflowFile> {
        let invalid = |message: &str| Error::new(Code::ConfigInvalid, message);
        let SourceKind::Workflow(workflow) = references.resolve_kind(&self.source.kind)? else {
            return Err(Error::new(Code::Internal, format!("`{}` is not a workflow source", self.source.id)));
        };
        let DocumentLocation::File(path) = DocumentLocation::parse(&workflow.document)? else {
            return Err(invalid("`workflow` must be a local file; download the document and give its path"));
        };
        let url = file_url(&path).ok_or_else(|| invalid("`workflow` is not a path to a file"))?;
        let (text, version) = read_file(path, MAX_DOCUMENT_BYTES).await?;
        Ok(WorkflowFile { url, text, version })
    }

    /// Returns the current document, parsed again if the file has changed.
    pub(super) async fn load_document(&self) -> Result<Arc<LoadedDocument>> {
        let file = self.read_workflow_file(&self.references.read().await).await?;
        // Reading a file is cheap, parsing is not: compare the hash first.
        let loaded = self.loaded.lock().clone();
        match loaded.filter(|loaded| loaded.version == file.version && loaded.url == file.url) {
            Some(loaded) => Ok(loaded),
            None => self.parse_file(file).await,
        }
    }

    /// Parses the file and stores the result. Two calls at once may both parse; the later result stays.
    pub(super) async fn parse_file(&self, file: WorkflowFile) -> Result<Arc<LoadedDocument>> {
        let loaded = run_blocking(move || {
            let WorkflowFile { url, text, version } = file;
            let value = parse_with_examples(&text)?;
            Ok(Arc::new(LoadedDocument {
                url,
                version,
                document: ArazzoDocument::parse(&value)?,
                about: describe_document(&value),
            }))
        });
        let loaded = loaded.await?;
        *self.loaded.lock() = Some(loaded.clone());
        Ok(loaded)
    }
}

/// Absolute `file:` URL of a path.
pub(super) fn file_url(path: &std::path::Path) -> Option<Url> {
    Url::from_file_path(std::path::absolute(path).ok()?).ok()
}

/// Self-description of the document.
fn describe_document(document: &Value) -> Option<String> {
    let text = |key: &str| document.get("info")?.get(key)?.as_str().map(|text| sanitize_truncated(text, 1000));
    let texts: Vec<String> = [text("title"), text("summary"), text("description")].into_iter().flatten().collect();
    Some(texts.join(". ")).filter(|text| !text.is_empty())
}
