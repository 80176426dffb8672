//! Discovery: loads the documents of a source, the one it names and those referenced from it, and has them converted.
//! Bounded in number and size, and restricted to the origin or directory of the main document and to `allow_refs`.
//!
//! Two passes. [`DocumentLoader::check_unchanged`] asks for every document of the last discovery with its `ETag`, or
//! compares hashes; if nothing has changed, nothing is parsed. Otherwise [`DocumentLoader::load`] is called for the
//! main document and then for each reference that the parsed ones contain.
//!
//! URLs are the keys of stored versions and part of manifests, so they must not contain secrets. A configured URL with
//! a `${…}` reference is therefore replaced by a placeholder of the same depth, and mapped back when it is fetched:
//!
//! ```text
//! https://api.example/${env:KEY}/v1/api.yaml  ▶  https://document.invalid/-/-/-
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use toolcrib_connector::document::{
    DocumentLocation, DocumentVersion, DocumentVersions, MAX_DOCUMENT_BYTES, read_file, run_blocking, unreadable_error,
};
use toolcrib_connector::redact::Redactor;
use toolcrib_connector::trace::Trace;
use toolcrib_connector::{Discovered, Discovery};
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::OpenApiConnector;
use super::fetch::{DocumentFetch, FetchedDocument};
use super::resolved_source::ResolvedSource;
use super::send::{display_url, strip_login};
use crate::{ConversionOptions, ConvertedDocument, DocumentSet, convert, parse};

/// Maximum number of documents of a source, the main one included. Each is a request, and a server could make up new
/// references without end.
pub(super) const MAX_DOCUMENTS: usize = 64;
/// Host of placeholder URLs. The `invalid` top-level domain is reserved (RFC 2606), so no server can have it.
const PLACEHOLDER_HOST: &str = "document.invalid";
/// Version of the conversion from documents to tools. Raise the last number whenever the same documents give other
/// tools: stored versions of another reader count as outdated.
const READER_VERSION: &str = concat!("openapi ", env!("CARGO_PKG_VERSION"), "/4");

impl OpenApiConnector {
    /// Reads the documents and converts their operations, unless nothing has changed since the last discovery.
    pub(super) async fn discover_tools(&self, discovery: &Discovery) -> Result<Discovered> {
        // Ask the servers of all known documents for changes before parsing anything.
        let resolved = ResolvedSource::resolve(&self.source, &discovery.references)?;
        let documents = DocumentLoader::new(self, &resolved, discovery.trace.as_ref())?;
        if let Some(known) = &discovery.known_versions
            && let Some(versions) = documents.check_unchanged(known).await?
        {
            return Ok(Discovered { unchanged: true, versions: Some(versions), ..Discovered::default() });
        }
        // Load and parse everything, then convert.
        let set = load_documents(&documents).await?;
        // On a blocking thread: the largest known documents have more than a thousand operations.
        let source = self.source.clone();
        let converted = run_blocking(move || {
            // From the declared source: resolved references must not reach the manifest.
            let SourceKind::OpenApi(openapi) = &source.kind else { return Ok(ConvertedDocument::default()) };
            convert(&set, ConversionOptions { source: &source.id, openapi })
        });
        let converted = converted.await?;
        let ConvertedDocument { tools, skipped, summary: about, server_origins: servers } = converted;
        Ok(Discovered { tools, skipped, about, servers, versions: documents.versions(), ..Discovered::default() })
    }
}

/// Loads the main document and everything it references. A referenced document that cannot be loaded is recorded with
/// its error; only the operations that need it are skipped.
async fn load_documents(documents: &DocumentLoader<'_>) -> Result<DocumentSet> {
    // The main document is required.
    let text = documents.load(documents.main_url()).await?;
    let url = documents.main_url().clone();
    // `missing` are the documents that the ones read so far refer to; sorted, so that the order is the same each time.
    let (mut set, mut missing) = run_blocking(move || {
        let set = DocumentSet::new(url.clone(), parse(&text)?);
        let missing = set.missing_from(&url);
        Ok((set, missing))
    })
    .await?;
    // Referenced documents are optional; each may reference more.
    while let Some(url) = missing.pop_first() {
        let text = documents.load(&url).await;
        let found;
        (set, found) = run_blocking(move || {
            let document = text.and_then(|text| parse(&text));
            set.add(&url, document.map_err(|error| error.message));
            let found = set.missing_from(&url);
            Ok((set, found))
        })
        .await?;
        missing.extend(found);
    }
    Ok(set)
}

/// Loads the documents of one discovery. The caller bounds the time.
#[derive(Debug)]
pub(super) struct DocumentLoader<'a> {
    connector: &'a OpenApiConnector,
    resolved: &'a ResolvedSource,
    /// Identifies the main document in manifests and stored versions; see [`DocumentLoader::main_url`].
    main_url: Url,
    redactor: Arc<Redactor>,
    /// Trace of the discovery, propagated in requests.
    trace: Option<&'a Trace>,
    state: Mutex<LoadState>,
}

/// Progress of one discovery.
#[derive(Debug, Default)]
struct LoadState {
    /// Texts that the check for changes has fetched already, by URL.
    prefetched: BTreeMap<String, String>,
    /// Versions of the documents read so far, by URL.
    versions: BTreeMap<String, DocumentVersion>,
    /// Documents requested so far, found or not.
    requested: usize,
    /// Bytes read so far.
    total_bytes: usize,
    /// A document failed to load that may be available next time.
    incomplete: bool,
}

impl<'a> DocumentLoader<'a> {
    pub(super) fn new(
        connector: &'a OpenApiConnector,
        resolved: &'a ResolvedSource,
        trace: Option<&'a Trace>,
    ) -> Result<DocumentLoader<'a>> {
        // Files by their absolute path; URLs without what may be secret.
        let main_url = match &resolved.document {
            DocumentLocation::File(path) => {
                let path = std::path::absolute(path).map_err(|error| unreadable_error(path, &error))?;
                let no_path = |()| Error::new(Code::ConfigInvalid, "`openapi` is not a path to a file");
                Url::from_file_path(path).map_err(no_path)?
            }
            DocumentLocation::Remote(url) if has_reference(&connector.source.kind) => placeholder_url(url)?,
            DocumentLocation::Remote(url) => strip_secrets(url.clone()),
        };
        let redactor = connector.references.redactor();
        Ok(DocumentLoader { connector, resolved, main_url, redactor, trace, state: Mutex::default() })
    }

    /// URL of the main document without login, query and fragment. A placeholder if the configured URL contains a
    /// reference: manifests are stored, and resolved references must not be.
    pub(super) fn main_url(&self) -> &Url {
        &self.main_url
    }

    /// Returns the current versions if every document is unchanged since the last discovery. Texts that were fetched
    /// for the comparison are kept for [`DocumentLoader::load`].
    pub(super) async fn check_unchanged(&self, known: &DocumentVersions) -> Result<Option<DocumentVersions>> {
        if known.reader != READER_VERSION || !known.documents.contains_key(self.main_url.as_str()) {
            return Ok(None);
        }
        // All documents must be unchanged; the first change ends the check.
        let mut unchanged = BTreeMap::new();
        for (url_text, version) in &known.documents {
            let version = match self.fetch_redacted(url_text, Some(version)).await {
                Ok(FetchedDocument::Unchanged) => version.clone(),
                Ok(FetchedDocument::Text { text, version: new_version }) => {
                    let changed = new_version.hash != version.hash;
                    self.state.lock().prefetched.insert(url_text.clone(), text);
                    if changed {
                        return Ok(None);
                    }
                    new_version
                }
                Err(error) if url_text == self.main_url.as_str() => return Err(error),
                // The document that references it reports the error.
                Err(_) => return Ok(None),
            };
            unchanged.insert(url_text.clone(), version);
        }
        Ok(Some(DocumentVersions { reader: READER_VERSION.to_owned(), documents: unchanged }))
    }

    /// Returns the text of the main document or of a permitted referenced one.
    pub(super) async fn load(&self, url: &Url) -> Result<String> {
        let url_text = url.as_str();
        if let Some(text) = self.state.lock().prefetched.remove(url_text) {
            return Ok(text);
        }
        match self.fetch_redacted(url_text, None).await {
            Ok(FetchedDocument::Text { text, .. }) => Ok(text),
            Ok(FetchedDocument::Unchanged) => {
                Err(Error::new(Code::Internal, "internal error: 304 Not Modified for a document that was never cached"))
            }
            Err(error) => {
                // A forbidden document stays forbidden, so the result can be reused next time.
                self.state.lock().incomplete |= error.code != Code::Forbidden;
                Err(error)
            }
        }
    }

    /// Versions of everything read, for the next discovery. `None` if a document is missing that may be available then.
    pub(super) fn versions(&self) -> Option<DocumentVersions> {
        let state = self.state.lock();
        (!state.incomplete)
            .then(|| DocumentVersions { reader: READER_VERSION.to_owned(), documents: state.versions.clone() })
    }

    /// Fetches a document; errors are redacted, because they are stored with the tools they exclude.
    async fn fetch_redacted(&self, url_text: &str, known: Option<&DocumentVersion>) -> Result<FetchedDocument> {
        self.fetch(url_text, known).await.map_err(|error| self.redactor.redact_error(error))
    }

    /// Fetches a document within the remaining limits and records its version.
    async fn fetch(&self, url_text: &str, known: Option<&DocumentVersion>) -> Result<FetchedDocument> {
        let is_main = url_text == self.main_url.as_str();
        // The main document is at the configured location, whatever URL stands for it in manifests.
        let target = if is_main {
            self.resolved.document.clone()
        } else {
            // A login in a reference is the author's, not one that the user configured.
            self.real_location(match DocumentLocation::parse(url_text)? {
                DocumentLocation::Remote(url) => DocumentLocation::Remote(strip_login(url)),
                file @ DocumentLocation::File(_) => file,
            })
        };
        // Count before fetching: documents that cannot be loaded count as well.
        let max_bytes = {
            let mut state = self.state.lock();
            if state.requested == MAX_DOCUMENTS {
                let message = format!("the document references more than {} others", MAX_DOCUMENTS - 1);
                return Err(Error::new(Code::ConfigInvalid, message));
            }
            state.requested += 1;
            MAX_DOCUMENT_BYTES - state.total_bytes
        };
        // The main document is configured by the user and needs no check.
        let fetched = match target {
            DocumentLocation::File(path) => {
                let path = if is_main { path } else { self.check_file_allowed(&path).await? };
                let (text, version) = read_file(path, max_bytes).await?;
                FetchedDocument::Text { text, version }
            }
            DocumentLocation::Remote(url) => {
                let send_credentials =
                    (is_main || self.check_url_allowed(&url)?) && self.resolved.sends_credentials_to(&url);
                let fetch = DocumentFetch {
                    connector: self.connector,
                    resolved: self.resolved,
                    send_credentials,
                    max_bytes,
                    trace: self.trace,
                };
                fetch.fetch_url(url, known).await?
            }
        };
        let mut state = self.state.lock();
        match &fetched {
            // The document is requested again if another one has changed, so this request does not count.
            FetchedDocument::Unchanged => state.requested -= 1,
            FetchedDocument::Text { text, version } => {
                state.total_bytes = MAX_DOCUMENT_BYTES.min(state.total_bytes + text.len());
                state.versions.insert(url_text.to_owned(), version.clone());
            }
        }
        Ok(fetched)
    }

    /// Maps a URL relative to the placeholder back to the real location.
    fn real_location(&self, url_text: DocumentLocation) -> DocumentLocation {
        let (DocumentLocation::Remote(url), Some(document)) = (&url_text, self.resolved.document.url()) else {
            return url_text;
        };
        if self.main_url.host_str() != Some(PLACEHOLDER_HOST) || url.origin() != self.main_url.origin() {
            return url_text;
        }
        // The relative path from placeholder to placeholder is the one from document to document.
        let relative = self.main_url.make_relative(url);
        relative.and_then(|relative| document.join(&relative).ok()).map_or(url_text, DocumentLocation::Remote)
    }

    /// Returns the canonical path if it is below the directory of the document or one in `allow_refs`. Symbolic links
    /// are resolved first.
    async fn check_file_allowed(&self, path: &Path) -> Result<PathBuf> {
        let canonical = tokio::fs::canonicalize(path).await.map_err(|error| unreadable_error(path, &error))?;
        let allowed =
            self.resolved.openapi.allow_refs.iter().filter_map(|url_text| match DocumentLocation::parse(url_text) {
                Ok(DocumentLocation::File(directory)) => Some(directory),
                Ok(DocumentLocation::Remote(_)) | Err(_) => None,
            });
        // A remote document has no directory; then only `allow_refs` permits files.
        let mut directories: Vec<PathBuf> = allowed.collect();
        if let DocumentLocation::File(document) = &self.resolved.document
            && let Ok(canonical) = tokio::fs::canonicalize(document).await
        {
            directories.extend(canonical.parent().map(Path::to_owned));
        }
        // Both sides canonical: a link in `allow_refs` or in the document's own path must not matter.
        for directory in directories {
            if tokio::fs::canonicalize(directory).await.is_ok_and(|directory| canonical.starts_with(directory)) {
                return Ok(canonical);
            }
        }
        Err(forbidden_location(&sanitize_truncated(&path.to_string_lossy(), 300)))
    }

    /// Returns whether the URL has the document's origin, so that credentials may be sent. Another origin must be below
    /// a URL in `allow_refs`.
    fn check_url_allowed(&self, url: &Url) -> Result<bool> {
        if self.resolved.document.url().is_some_and(|document| document.origin() == url.origin()) {
            return Ok(true);
        }
        let allowed = self.resolved.openapi.allow_refs.iter().any(|url_text| match DocumentLocation::parse(url_text) {
            Ok(DocumentLocation::Remote(prefix)) => is_below(url, &prefix),
            Ok(DocumentLocation::File(_)) | Err(_) => false,
        });
        if allowed { Ok(false) } else { Err(forbidden_location(&display_url(url))) }
    }
}

/// Whether a URL equals the other or is below it: `/api` permits `/api/x` but not `/api-v2`.
fn is_below(url: &Url, prefix: &Url) -> bool {
    let rest = url.as_str().strip_prefix(prefix.as_str());
    rest.is_some_and(|rest| prefix.as_str().ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

/// Whether the configured location contains a `${…}` reference.
fn has_reference(kind: &SourceKind) -> bool {
    matches!(kind, SourceKind::OpenApi(openapi) if openapi.document.contains("${"))
}

/// Placeholder with as many path segments as the real URL, so that relative references resolve alike, and with none of
/// its content.
fn placeholder_url(url: &Url) -> Result<Url> {
    let segments = url.path_segments().map_or(1, Iterator::count);
    let path = vec!["-"; segments].join("/");
    let text = format!("{}://{PLACEHOLDER_HOST}/{path}", url.scheme());
    Url::parse(&text).map_err(|_| Error::new(Code::Internal, "internal error: no placeholder URL for the document"))
}

/// Removes the parts of a URL that often hold credentials.
fn strip_secrets(url: Url) -> Url {
    let mut url = strip_login(url);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Error for a referenced document outside the permitted locations.
fn forbidden_location(url_text: &str) -> Error {
    let message =
        format!("`{url_text}` is outside the document's own directory or origin; add it to `allow_refs` of the source");
    Error::new(Code::Forbidden, message)
}
