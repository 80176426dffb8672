//! The document of a source of workflows: a file, read whenever it is needed and parsed when it is another.

use std::sync::{Arc, PoisonError};

use serde_json::Value;
use toolcrib_core::arazzo::Document;
use toolcrib_core::openapi::parse_whole;
use toolcrib_core::source::Kind;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::WorkflowConnector;
use crate::connector::Mark;
use crate::connector::openapi::{DocumentLocation, Fetched, apart, read_file};
use crate::secret::resolve_kind;

/// Bytes of a document.
const LARGEST: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct File {
    pub(super) place: Url,
    text: String,
    pub(super) mark: Mark,
}

/// What was made of a file.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) place: Url,
    mark: Mark,
    pub(super) document: Document,
    pub(super) about: Option<String>,
}

impl WorkflowConnector {
    pub(super) async fn file(&self) -> Result<File> {
        let wrong = |message: &str| Error::new(Code::ConfigInvalid, message);
        let Kind::Workflow(workflow) = resolve_kind(&self.source.kind)? else {
            return Err(Error::new(Code::Internal, format!("`{}` is no source of workflows", self.source.id)));
        };
        let DocumentLocation::File(path) = DocumentLocation::parse(&workflow.document)? else {
            return Err(wrong("`workflow` is a file; fetch the document and name it there"));
        };
        let place = file_url(&path).ok_or_else(|| wrong("`workflow` is no path to a file"))?;
        match read_file(path, LARGEST).await? {
            Fetched::Text { text, mark } => Ok(File { place, text, mark }),
            Fetched::Same => Err(Error::new(Code::Internal, "a document is said to be as it never was")),
        }
    }

    /// What the file says now.
    pub(super) async fn document(&self) -> Result<Arc<Held>> {
        let file = self.file().await?;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match held.filter(|held| held.mark == file.mark && held.place == file.place) {
            Some(held) => Ok(held),
            None => self.read(file).await,
        }
    }

    pub(super) async fn read(&self, file: File) -> Result<Arc<Held>> {
        let held = apart(move || {
            let File { place, text, mark } = file;
            let value = parse_whole(&text)?;
            Ok(Arc::new(Held { place, mark, document: Document::read(&value)?, about: about(&value) }))
        });
        let held = held.await?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held.clone());
        Ok(held)
    }
}

pub(super) fn file_url(path: &std::path::Path) -> Option<Url> {
    Url::from_file_path(std::path::absolute(path).ok()?).ok()
}

fn about(document: &Value) -> Option<String> {
    let text = |key: &str| document.get("info")?.get(key)?.as_str().map(|text| shown_short(text, 1000));
    let texts: Vec<String> = [text("title"), text("summary"), text("description")].into_iter().flatten().collect();
    Some(texts.join(". ")).filter(|text| !text.is_empty())
}
