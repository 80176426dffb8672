//! The document of a source of workflows: a file, read whenever it is needed and parsed when it is another.

use std::sync::{Arc, PoisonError};

use serde_json::Value;
use toolcrib_core::arazzo::ArazzoDocument;
use toolcrib_core::openapi::parse_with_examples;
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::WorkflowConnector;
use crate::connector::DocumentVersion;
use crate::connector::openapi::{DocumentLocation, FetchedDocument, read_file, run_blocking};
use crate::secret::resolve_kind;

/// Bytes of a document.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct WorkflowFile {
    pub(super) url: Url,
    text: String,
    pub(super) version: DocumentVersion,
}

/// What was made of a file.
#[derive(Debug)]
pub(super) struct LoadedDocument {
    pub(super) url: Url,
    version: DocumentVersion,
    pub(super) document: ArazzoDocument,
    pub(super) about: Option<String>,
}

impl WorkflowConnector {
    pub(super) async fn read_workflow_file(&self) -> Result<WorkflowFile> {
        let wrong = |message: &str| Error::new(Code::ConfigInvalid, message);
        let SourceKind::Workflow(workflow) = resolve_kind(&self.source.kind)? else {
            return Err(Error::new(Code::Internal, format!("`{}` is no source of workflows", self.source.id)));
        };
        let DocumentLocation::File(path) = DocumentLocation::parse(&workflow.document)? else {
            return Err(wrong("`workflow` is a file; fetch the document and name it there"));
        };
        let place = file_url(&path).ok_or_else(|| wrong("`workflow` is no path to a file"))?;
        match read_file(path, MAX_DOCUMENT_BYTES).await? {
            FetchedDocument::Text { text, version: mark } => Ok(WorkflowFile { url: place, text, version: mark }),
            FetchedDocument::Unchanged => Err(Error::new(Code::Internal, "a document is said to be as it never was")),
        }
    }

    /// What the file says now.
    pub(super) async fn load_document(&self) -> Result<Arc<LoadedDocument>> {
        let file = self.read_workflow_file().await?;
        let held = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match held.filter(|held| held.version == file.version && held.url == file.url) {
            Some(held) => Ok(held),
            None => self.parse_file(file).await,
        }
    }

    pub(super) async fn parse_file(&self, file: WorkflowFile) -> Result<Arc<LoadedDocument>> {
        let held = run_blocking(move || {
            let WorkflowFile { url: place, text, version: mark } = file;
            let value = parse_with_examples(&text)?;
            Ok(Arc::new(LoadedDocument {
                url: place,
                version: mark,
                document: ArazzoDocument::parse(&value)?,
                about: describe_document(&value),
            }))
        });
        let held = held.await?;
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(held.clone());
        Ok(held)
    }
}

pub(super) fn file_url(path: &std::path::Path) -> Option<Url> {
    Url::from_file_path(std::path::absolute(path).ok()?).ok()
}

fn describe_document(document: &Value) -> Option<String> {
    let text = |key: &str| document.get("info")?.get(key)?.as_str().map(|text| sanitize_truncated(text, 1000));
    let texts: Vec<String> = [text("title"), text("summary"), text("description")].into_iter().flatten().collect();
    Some(texts.join(". ")).filter(|text| !text.is_empty())
}
