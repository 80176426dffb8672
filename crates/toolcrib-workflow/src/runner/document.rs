//! The Arazzo documents of a source: a local file and those whose workflows it runs. Read for each call and parsed again
//! only when one has changed.
//!
//! Other documents must be files below the directory of the first, like those that an OpenAPI document refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolcrib_connector::document::{
    DocumentLocation, DocumentVersion, DocumentVersions, MAX_DOCUMENT_BYTES, read_file_blocking, run_blocking,
};
use toolcrib_connector::secret::ReferenceValues;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use toolcrib_openapi::parse_with_examples;
use url::Url;

use super::{READER_VERSION, WorkflowConnector};
use crate::{ArazzoDocument, LinkedDocuments};

/// Parsed documents with the versions they were parsed from.
#[derive(Debug)]
pub(super) struct LoadedDocument {
    pub(super) documents: LinkedDocuments,
    /// Title, summary and description of the main document, for search.
    pub(super) about: Option<String>,
    /// Of all documents, also of those that cannot be read.
    pub(super) versions: DocumentVersions,
}

impl LoadedDocument {
    /// Names and URLs of the APIs that steps may call, in all documents.
    pub(super) fn described_apis(&self) -> BTreeSet<String> {
        described_apis(&self.documents)
    }
}

impl WorkflowConnector {
    /// Returns the path of the configured file.
    pub(super) fn document_path(&self, references: &ReferenceValues) -> Result<PathBuf> {
        let SourceKind::Workflow(workflow) = references.resolve_kind(&self.source.kind)? else {
            return Err(Error::new(Code::Internal, format!("`{}` is not a workflow source", self.source.id)));
        };
        match DocumentLocation::parse(&workflow.document)? {
            DocumentLocation::File(path) => Ok(path),
            DocumentLocation::Remote(_) => {
                let message = "`workflow` must be a local file; download the document and give its path";
                Err(Error::new(Code::ConfigInvalid, message))
            }
        }
    }

    /// Returns the current documents, parsed again if a file has changed.
    pub(super) async fn load_document(&self) -> Result<Arc<LoadedDocument>> {
        let path = self.document_path(&self.references.read().await)?;
        let loaded = self.loaded.lock().clone();
        let loaded = run_blocking(move || match loaded.filter(|loaded| is_current(&path, &loaded.versions)) {
            Some(loaded) => Ok(loaded),
            None => load(&path).map(Arc::new),
        });
        let loaded = loaded.await?;
        // Two calls at once may both parse; the later result stays.
        *self.loaded.lock() = Some(loaded.clone());
        Ok(loaded)
    }
}

/// Names and URLs of the APIs of all documents.
fn described_apis(documents: &LinkedDocuments) -> BTreeSet<String> {
    documents.documents().iter().flat_map(|linked| linked.document.described_apis()).collect()
}

/// Reads the documents of a workflow source and returns the names and URLs of the APIs that steps may call. `read` reads
/// one file.
pub fn read_described_apis(path: &Path, mut read: impl FnMut(&Path) -> Result<String>) -> Result<BTreeSet<String>> {
    let (url, directory) = locate(path)?;
    let document = ArazzoDocument::parse(&parse_with_examples(&read(path)?)?)?;
    let documents = LinkedDocuments::load(url, document, |url| {
        ArazzoDocument::parse(&parse_with_examples(&read(&permitted_path(url, &directory)?)?)?)
    });
    Ok(described_apis(&documents))
}

/// Whether all files have the versions that they had. Blocking.
pub(super) fn is_current(path: &Path, known: &DocumentVersions) -> bool {
    let Ok((main_url, directory)) = locate(path) else { return false };
    let mut reader = VersionedReader::new(directory);
    let is_unchanged = |reader: &mut VersionedReader, url: &Url| {
        let _ = if *url == main_url { reader.read_main(url, path) } else { reader.read_linked(url) };
        reader.versions.get(url.as_str()) == known.documents.get(url.as_str())
    };
    let has_main = known.reader == READER_VERSION && known.documents.contains_key(main_url.as_str());
    let mut urls = known.documents.keys();
    has_main && urls.all(|url| Url::parse(url).is_ok_and(|url| is_unchanged(&mut reader, &url)))
}

/// Reads and parses the documents. Blocking.
pub(super) fn load(path: &Path) -> Result<LoadedDocument> {
    let (url, directory) = locate(path)?;
    let mut reader = VersionedReader::new(directory);
    let value = parse_with_examples(&reader.read_main(&url, path)?)?;
    let main = ArazzoDocument::parse(&value)?;
    let documents =
        LinkedDocuments::load(url, main, |url| ArazzoDocument::parse(&parse_with_examples(&reader.read_linked(url)?)?));
    let versions = DocumentVersions { reader: READER_VERSION.to_owned(), documents: reader.versions };
    Ok(LoadedDocument { documents, about: describe_document(&value), versions })
}

/// URL of the main document, and the directory that others must be in.
fn locate(path: &Path) -> Result<(Url, PathBuf)> {
    let invalid = || Error::new(Code::ConfigInvalid, "`workflow` is not a path to a file");
    let url = file_url(path).ok_or_else(invalid)?;
    let directory = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    Ok((url, directory.ok_or_else(invalid)?))
}

/// Path of another document, if it may be read: a file below the directory, also after symbolic links are followed.
fn permitted_path(url: &Url, directory: &Path) -> Result<PathBuf> {
    let invalid = |reason: String| Error::new(Code::ConfigInvalid, reason);
    let path = url.to_file_path().map_err(|()| invalid("it is not a local file; download it".into()))?;
    let path = path.canonicalize().map_err(|error| invalid(format!("it cannot be read: {error}")))?;
    let directory = directory.canonicalize().map_err(|error| invalid(format!("it cannot be read: {error}")))?;
    if path.starts_with(directory) {
        Ok(path)
    } else {
        Err(invalid("it is outside of the directory of the workflow document".into()))
    }
}

/// Reads files within a total size, and remembers their versions.
struct VersionedReader {
    directory: PathBuf,
    bytes_left: usize,
    /// By URL. A file that cannot be read has the version of an empty one, so that it is noticed when it appears.
    versions: BTreeMap<String, DocumentVersion>,
}

impl VersionedReader {
    fn new(directory: PathBuf) -> VersionedReader {
        VersionedReader { directory, bytes_left: MAX_DOCUMENT_BYTES, versions: BTreeMap::new() }
    }

    fn read_main(&mut self, url: &Url, path: &Path) -> Result<String> {
        self.read(url, Ok(path.to_owned()))
    }

    fn read_linked(&mut self, url: &Url) -> Result<String> {
        let path = permitted_path(url, &self.directory);
        self.read(url, path)
    }

    fn read(&mut self, url: &Url, path: Result<PathBuf>) -> Result<String> {
        let read = path.and_then(|path| read_file_blocking(&path, self.bytes_left));
        let hash = read.as_ref().map_or_else(|_| Fingerprint::digest(""), |(_, hash)| *hash);
        self.versions.insert(url.to_string(), DocumentVersion { etag: None, hash });
        read.map(|(text, _)| {
            self.bytes_left = self.bytes_left.saturating_sub(text.len());
            text
        })
    }
}

/// Absolute `file:` URL of a path.
pub(super) fn file_url(path: &Path) -> Option<Url> {
    Url::from_file_path(std::path::absolute(path).ok()?).ok()
}

/// Self-description of the document.
fn describe_document(document: &Value) -> Option<String> {
    let text = |key: &str| document.get("info")?.get(key)?.as_str().map(|text| sanitize_truncated(text, 1000));
    let texts: Vec<String> = [text("title"), text("summary"), text("description")].into_iter().flatten().collect();
    Some(texts.join(". ")).filter(|text| !text.is_empty())
}
