//! Where the documents in a project's files and the roots of its built-in tools lead to. Read from files alone: nothing is
//! contacted to find out.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use toolcrib_core::arazzo::ArazzoDocument;
use toolcrib_core::config::{Config, LocalDocument, TrustedFile};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::openapi::{ConversionOptions, DocumentSet, convert, parse, parse_with_examples};
use toolcrib_core::reference::{Reference, ReferencePart, split_references};
use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use url::Url;

use crate::connector::{DocumentLocation, read_file_blocking};
use crate::secret::resolve;

/// Bytes and number of all files of a document, as when it is discovered.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;
const MAX_DOCUMENT_FILES: usize = 64;

/// The documents of the project's sources that lie in files, and the files in its `directory` that references stand for.
/// A document whose files are as they were when it was trusted is not read again.
pub(super) fn read_local_documents(
    project: &Config,
    directory: &Path,
    trusted: Option<&TrustedFile>,
) -> BTreeMap<SourceId, LocalDocument> {
    let known: BTreeMap<&SourceId, &LocalDocument> = trusted.into_iter().flat_map(TrustedFile::documents).collect();
    let documents = project.valid_sources().filter_map(|source| {
        let unchanged = known.get(&source.id).filter(|document| is_unchanged(document));
        let document = unchanged.map_or_else(|| read_document(source), |&document| Some(document.clone()));
        let references = hash_file_references(source, directory);
        if document.is_none() && references.is_empty() {
            return None;
        }
        Some((source.id.clone(), LocalDocument { references, ..document.unwrap_or_default() }))
    });
    documents.collect()
}

/// Files elsewhere, a mounted secret say, are the user's and may change at any time.
fn hash_file_references(source: &Source, directory: &Path) -> BTreeMap<String, Fingerprint> {
    let mut found = BTreeMap::new();
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let collected: Result<SourceKind, Infallible> = source.kind.try_map_texts(|text| {
        for piece in split_references(text) {
            let ReferencePart::Reference(Reference::File { path }) = piece else { continue };
            // Where the link itself lies in the project, the project decides what it leads to.
            let inside = |path: &Path| path.starts_with(&directory);
            let real = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
            if inside(Path::new(path)) || inside(&real) {
                let hash = read_file_blocking(&real, MAX_DOCUMENT_BYTES).map(|(_, hash)| hash);
                found.insert(path.to_owned(), hash.unwrap_or_else(|_| Fingerprint::digest("")));
            }
        }
        Ok(String::new())
    });
    let Ok(_) = collected;
    found
}

fn is_unchanged(document: &LocalDocument) -> bool {
    let same = |(path, hash): (&String, &Fingerprint)| {
        read_file_blocking(Path::new(path), MAX_DOCUMENT_BYTES).is_ok_and(|(_, now)| now == *hash)
    };
    !document.files.is_empty() && document.files.iter().all(same)
}

/// Whether a document in a file says what a source contacts, and not its own declaration.
pub(super) fn has_local_document(source: &Source) -> bool {
    match &source.kind {
        SourceKind::OpenApi(openapi) => openapi.base_url.is_none() && !is_remote(&openapi.document),
        SourceKind::Workflow(_) => true,
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Builtin(_) => false,
    }
}

/// A document that cannot be read leads nowhere: what it leads to once it can be is asked about then.
fn read_document(source: &Source) -> Option<LocalDocument> {
    let mut files = DocumentReader::default();
    let servers = match &source.kind {
        SourceKind::OpenApi(_) if !has_local_document(source) => return None,
        SourceKind::OpenApi(openapi) => files.openapi_servers(&source.id, openapi),
        SourceKind::Workflow(workflow) => files.workflow_apis(&workflow.document),
        SourceKind::Builtin(builtin) if !builtin.roots.is_empty() => Ok(canonical_directories(&builtin.roots)),
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Builtin(_) => return None,
    };
    Some(LocalDocument { servers: servers.unwrap_or_default(), files: files.hashes, ..LocalDocument::default() })
}

fn is_remote(document: &str) -> bool {
    let place = resolve(document).and_then(|text| DocumentLocation::parse(&text));
    place.is_ok_and(|place| matches!(place, DocumentLocation::Remote(_)))
}

/// The directories that roots are, links followed: a link that is changed leads file tools elsewhere.
fn canonical_directories(roots: &[String]) -> BTreeSet<String> {
    let real = |root: &String| Path::new(root).canonicalize().ok().map(|path| path.to_string_lossy().into_owned());
    roots.iter().filter_map(real).collect()
}

/// The files that have been read for one source.
#[derive(Default)]
struct DocumentReader {
    hashes: BTreeMap<String, Fingerprint>,
    total_bytes: usize,
}

impl DocumentReader {
    fn openapi_servers(&mut self, id: &SourceId, openapi: &OpenApiSource) -> Result<BTreeSet<String>> {
        let path = resolve_path(&openapi.document)?;
        let address = Url::from_file_path(&path).map_err(|()| document_error("it is no path to a file"))?;
        let mut library = DocumentSet::new(address.clone(), parse(&self.read_text(&path)?)?);
        let mut missing = library.missing_from(&address);
        while let Some(address) = missing.pop_first() {
            let document = self.read_referenced(&path, openapi, &address).and_then(|text| parse(&text));
            library.add(&address, document.map_err(|error| error.message));
            missing.extend(library.missing_from(&address));
        }
        Ok(convert(&library, ConversionOptions { source: id, openapi })?.server_origins)
    }

    fn workflow_apis(&mut self, document: &str) -> Result<BTreeSet<String>> {
        let text = self.read_text(&resolve_path(document)?)?;
        Ok(ArazzoDocument::parse(&parse_with_examples(&text)?)?.described_apis())
    }

    /// A file that the document refers to, below its own directory or one that the source allows.
    fn read_referenced(&mut self, document: &Path, openapi: &OpenApiSource, address: &Url) -> Result<String> {
        let path = address.to_file_path().map_err(|()| document_error("it is not in a file"))?;
        let real = |path: &Path| path.canonicalize().map_err(|error| document_error(&error.to_string()));
        let path = real(&path)?;
        let own = real(document)?.parent().map(Path::to_owned);
        let allowed = openapi.allow_refs.iter().filter_map(|place| real(&resolve_path(place).ok()?).ok());
        if own.into_iter().chain(allowed).any(|directory| path.starts_with(directory)) {
            self.read_text(&path)
        } else {
            Err(document_error("it is outside of the directory of the document"))
        }
    }

    fn read_text(&mut self, path: &Path) -> Result<String> {
        if self.hashes.len() == MAX_DOCUMENT_FILES {
            return Err(document_error("there are too many files"));
        }
        let (text, hash) = read_file_blocking(path, MAX_DOCUMENT_BYTES - self.total_bytes)?;
        self.total_bytes += text.len().min(MAX_DOCUMENT_BYTES - self.total_bytes);
        self.hashes.insert(path.to_string_lossy().into_owned(), hash);
        Ok(text)
    }
}

fn resolve_path(place: &str) -> Result<PathBuf> {
    match DocumentLocation::parse(&resolve(place)?)? {
        DocumentLocation::File(path) => std::path::absolute(path).map_err(|error| document_error(&error.to_string())),
        DocumentLocation::Remote(_) => Err(document_error("it is not in a file")),
    }
}

fn document_error(reason: &str) -> Error {
    Error::new(Code::ConfigInvalid, reason)
}
