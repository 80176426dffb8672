//! Determines where the local documents of a project's sources send requests, and which directories its built-in tools
//! may access. Only reads files; makes no network requests.
//!
//! Trust in a file must cover what the file leads to. A declaration that names a local OpenAPI or Arazzo document
//! leaves it to the document where requests go; a symbolic link as a root of the file tools leaves it to the link. So
//! servers and directories are stored with the trust and compared when the file is loaded again. The same servers are
//! checked once more where a discovery reads the document.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use toolcrib_config::reference::{Reference, ReferencePart, split_references};
use toolcrib_config::{Config, LocalDocument, TrustedFile};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use toolcrib_openapi::{ConversionOptions, DocumentSet, convert, parse, parse_with_examples};
use toolcrib_workflow::ArazzoDocument;
use url::Url;

use crate::connector::{DocumentLocation, read_file_blocking};
use crate::secret::resolve;

/// Limits on the files of one document, the same as for its discovery. A document that exceeds them counts as
/// unreadable and names no servers.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;
/// The main document counts as one.
const MAX_DOCUMENT_FILES: usize = 64;

/// Reads the local documents of a project's sources, and hashes the files in its `directory` that their references
/// name. A document whose files are unchanged since it was trusted is not parsed again. Sources without a local
/// document and without such references have no entry. Runs at every load of a project's file, so hashing must be
/// enough in the common case.
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

/// Hashes the files within the project that references of a source name. Files elsewhere, e.g. a mounted secret, belong
/// to the user and may change at any time.
fn hash_file_references(source: &Source, directory: &Path) -> BTreeMap<String, Fingerprint> {
    let mut hashes = BTreeMap::new();
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let collected: Result<SourceKind, Infallible> = source.kind.try_map_texts(|text| {
        for piece in split_references(text) {
            let ReferencePart::Reference(Reference::File { path }) = piece else { continue };
            // A symbolic link inside the project counts too: the project decides where it leads.
            let is_inside = |path: &Path| path.starts_with(&directory);
            let real = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
            if is_inside(Path::new(path)) || is_inside(&real) {
                let hash = read_file_blocking(&real, MAX_DOCUMENT_BYTES).map(|(_, hash)| hash);
                // A file that cannot be read counts as empty: it needs trust once it exists.
                hashes.insert(path.to_owned(), hash.unwrap_or_else(|_| Fingerprint::digest("")));
            }
        }
        Ok(String::new())
    });
    let Ok(_) = collected;
    hashes
}

/// Whether all files of a document have the hashes they had when it was trusted. False for an entry without files,
/// which is read again.
fn is_unchanged(document: &LocalDocument) -> bool {
    let is_same = |(path, hash): (&String, &Fingerprint)| {
        read_file_blocking(Path::new(path), MAX_DOCUMENT_BYTES).is_ok_and(|(_, current)| current == *hash)
    };
    !document.files.is_empty() && document.files.iter().all(is_same)
}

/// Whether a local document, and not the declaration itself, decides which servers a source contacts.
pub(super) fn has_local_document(source: &Source) -> bool {
    match &source.kind {
        SourceKind::OpenApi(openapi) => openapi.base_url.is_none() && !is_remote(&openapi.document),
        SourceKind::Workflow(_) => true,
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Builtin(_) => false,
    }
}

/// Reads where a source's local document sends requests. A document that cannot be read sends none; once it can be
/// read, its servers need trust.
fn read_document(source: &Source) -> Option<LocalDocument> {
    let mut reader = DocumentReader::default();
    let servers = match &source.kind {
        SourceKind::OpenApi(_) if !has_local_document(source) => return None,
        SourceKind::OpenApi(openapi) => reader.openapi_servers(&source.id, openapi),
        SourceKind::Workflow(workflow) => reader.workflow_apis(&workflow.document),
        SourceKind::Builtin(builtin) if !builtin.roots.is_empty() => Ok(canonical_directories(&builtin.roots)),
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Builtin(_) => return None,
    };
    Some(LocalDocument { servers: servers.unwrap_or_default(), files: reader.hashes, ..LocalDocument::default() })
}

/// Whether a document is fetched over HTTP.
fn is_remote(document: &str) -> bool {
    let location = resolve(document).and_then(|text| DocumentLocation::parse(&text));
    location.is_ok_and(|location| matches!(location, DocumentLocation::Remote(_)))
}

/// Returns the directories behind roots, with links resolved: a changed link would lead file tools elsewhere.
fn canonical_directories(roots: &[String]) -> BTreeSet<String> {
    let resolve = |root: &String| Path::new(root).canonicalize().ok().map(|path| path.to_string_lossy().into_owned());
    roots.iter().filter_map(resolve).collect()
}

/// Reads the files of one source's document, within the limits.
#[derive(Default)]
struct DocumentReader {
    /// Hash of each file that was read.
    hashes: BTreeMap<String, Fingerprint>,
    total_bytes: usize,
}

impl DocumentReader {
    /// Returns the servers of an OpenAPI document, with all documents it refers to.
    fn openapi_servers(&mut self, id: &SourceId, openapi: &OpenApiSource) -> Result<BTreeSet<String>> {
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

    /// Returns the URLs of the API descriptions that a workflow document names. Arazzo calls them `sourceDescriptions`.
    fn workflow_apis(&mut self, document: &str) -> Result<BTreeSet<String>> {
        let text = self.read_text(&resolve_path(document)?)?;
        Ok(ArazzoDocument::parse(&parse_with_examples(&text)?)?.described_apis())
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

/// Returns the absolute path of a local document.
fn resolve_path(location: &str) -> Result<PathBuf> {
    match DocumentLocation::parse(&resolve(location)?)? {
        DocumentLocation::File(path) => std::path::absolute(path).map_err(|error| document_error(&error.to_string())),
        DocumentLocation::Remote(_) => Err(document_error("it is not in a file")),
    }
}

/// Error of a document that cannot be read; it is not shown, see `read_document`.
fn document_error(reason: &str) -> Error {
    Error::new(Code::ConfigInvalid, reason)
}
