//! Reads documents in files without a connector, to determine which servers they lead to before anything is contacted.
//! Makes no requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toolcrib_connector::document::{DocumentLocation, MAX_DOCUMENT_BYTES, read_file_blocking};
use toolcrib_connector::secret;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::source::OpenApiSource;
use toolcrib_core::{Code, Error, Result, SourceId};
use url::Url;

use super::documents::MAX_DOCUMENTS;
use crate::{ConversionOptions, DocumentSet, convert, parse};

/// Reads the files of one source's document, within the limits.
#[derive(Debug, Default)]
pub struct LocalDocumentReader {
    /// Hash of each file that was read, by path.
    pub hashes: BTreeMap<String, Fingerprint>,
    total_bytes: usize,
}

impl LocalDocumentReader {
    /// Returns the servers of an OpenAPI document in a file, with all documents it refers to.
    pub fn servers(&mut self, id: &SourceId, openapi: &OpenApiSource) -> Result<BTreeSet<String>> {
        let path = resolve_path(&openapi.document)?;
        let url = Url::from_file_path(&path).map_err(|()| document_error("it is no path to a file"))?;
        let mut documents = DocumentSet::new(url.clone(), parse(&self.read_text(&path)?)?);
        let mut missing = documents.missing_from(&url);
        // Documents may refer to each other in cycles; `missing_from` returns only what was not read yet.
        while let Some(url) = missing.pop_first() {
            let document = self.read_referenced(&path, openapi, &url).and_then(|text| parse(&text));
            documents.add(&url, document.map_err(|error| error.message));
            missing.extend(documents.missing_from(&url));
        }
        Ok(convert(&documents, ConversionOptions { source: id, openapi })?.server_origins)
    }

    /// Reads a file that a document refers to. It must be below the document's directory or one that the source allows.
    fn read_referenced(&mut self, document: &Path, openapi: &OpenApiSource, url: &Url) -> Result<String> {
        let path = url.to_file_path().map_err(|()| document_error("it is not in a file"))?;
        let canonicalize = |path: &Path| path.canonicalize().map_err(|error| document_error(&error.to_string()));
        let path = canonicalize(&path)?;
        let document_directory = canonicalize(document)?.parent().map(Path::to_owned);
        let allowed = openapi.allow_refs.iter().filter_map(|location| canonicalize(&resolve_path(location).ok()?).ok());
        if document_directory.into_iter().chain(allowed).any(|directory| path.starts_with(directory)) {
            self.read_text(&path)
        } else {
            Err(document_error("it is outside of the directory of the document"))
        }
    }

    /// Reads a file and adds its hash.
    pub fn read_text(&mut self, path: &Path) -> Result<String> {
        if self.hashes.len() == MAX_DOCUMENTS {
            return Err(document_error("there are too many files"));
        }
        let (text, hash) = read_file_blocking(path, MAX_DOCUMENT_BYTES - self.total_bytes)?;
        self.total_bytes += text.len().min(MAX_DOCUMENT_BYTES - self.total_bytes);
        self.hashes.insert(path.to_string_lossy().into_owned(), hash);
        Ok(text)
    }
}

/// Returns the absolute path of a local document.
pub fn resolve_path(location: &str) -> Result<PathBuf> {
    match DocumentLocation::parse(&secret::resolve_path(location)?)? {
        DocumentLocation::File(path) => std::path::absolute(path).map_err(|error| document_error(&error.to_string())),
        DocumentLocation::Remote(_) => Err(document_error("it is not in a file")),
    }
}

/// Error of a document that cannot be read; callers do not show it.
fn document_error(reason: &str) -> Error {
    Error::new(Code::ConfigInvalid, reason)
}
