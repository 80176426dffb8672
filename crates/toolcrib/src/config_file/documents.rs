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
use toolcrib_core::source::SourceKind;
use toolcrib_core::{Result, Source, SourceId};
#[cfg(feature = "openapi")]
use toolcrib_openapi::client::LocalDocumentReader;
#[cfg(feature = "workflow")]
use toolcrib_openapi::client::resolve_path;
#[cfg(feature = "workflow")]
use toolcrib_workflow::read_described_apis;

use crate::connector::document::{DocumentLocation, MAX_DOCUMENT_BYTES, read_file_blocking};
use crate::secret;

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
    let collected: Result<SourceKind, Infallible> = source.kind.try_map_texts(|text| {
        hashes.extend(hash_files_in(text, directory));
        Ok(String::new())
    });
    let Ok(_) = collected;
    hashes
}

/// Hashes the files within the project that references in a text name.
pub(super) fn hash_files_in(text: &str, directory: &Path) -> BTreeMap<String, Fingerprint> {
    let mut hashes = BTreeMap::new();
    // Most texts have none.
    if !text.contains("${file:") {
        return hashes;
    }
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
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
    match &source.kind {
        SourceKind::OpenApi(_) if !has_local_document(source) => None,
        #[cfg(feature = "openapi")]
        SourceKind::OpenApi(openapi) => Some(local_document(|reader| reader.servers(&source.id, openapi))),
        #[cfg(feature = "workflow")]
        SourceKind::Workflow(workflow) => Some(local_document(|reader| {
            read_described_apis(&resolve_path(&workflow.document)?, |path| reader.read_text(path))
        })),
        SourceKind::Builtin(builtin) if !builtin.roots.is_empty() => {
            Some(LocalDocument { servers: canonical_directories(&builtin.roots), ..LocalDocument::default() })
        }
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Builtin(_) => None,
        // Without its connector a source is never contacted.
        #[cfg(not(feature = "openapi"))]
        SourceKind::OpenApi(_) => None,
        #[cfg(not(feature = "workflow"))]
        SourceKind::Workflow(_) => None,
    }
}

/// Reads the servers of a document, and the hashes of its files.
#[cfg(feature = "openapi")]
fn local_document(read: impl FnOnce(&mut LocalDocumentReader) -> Result<BTreeSet<String>>) -> LocalDocument {
    let mut reader = LocalDocumentReader::default();
    let servers = read(&mut reader).unwrap_or_default();
    LocalDocument { servers, files: reader.hashes, ..LocalDocument::default() }
}

/// Whether a document is fetched over HTTP.
fn is_remote(document: &str) -> bool {
    let location = secret::resolve_path(document).and_then(|text| DocumentLocation::parse(&text));
    location.is_ok_and(|location| matches!(location, DocumentLocation::Remote(_)))
}

/// Returns the directories behind roots, with links resolved: a changed link would lead file tools elsewhere.
fn canonical_directories(roots: &[String]) -> BTreeSet<String> {
    let resolve = |root: &String| {
        let path = PathBuf::from(secret::resolve_path(root).ok()?).canonicalize().ok()?;
        Some(path.to_string_lossy().into_owned())
    };
    roots.iter().filter_map(resolve).collect()
}
