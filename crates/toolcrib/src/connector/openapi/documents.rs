//! The documents of a source: the one it names, and those that lead from it. Bounded in number and size, and never from
//! a place that the source does not stand for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcrib_core::source::SourceKind;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::OpenApiConnector;
use super::fetch::{DocumentFetch, FetchedDocument, read_file, unreadable_error};
use super::resolved_source::{DocumentLocation, ResolvedSource};
use super::send::{display_url, strip_login};
use crate::connector::{DocumentVersion, DocumentVersions};
use crate::redact::Redactor;
use crate::trace::Trace;

/// Bytes of all documents of a source.
pub(super) const MAX_DOCUMENTS_BYTES: usize = 64 * 1024 * 1024;
const MAX_DOCUMENTS: usize = 64;
/// The host of made-up addresses, which no server can have.
const PLACEHOLDER_HOST: &str = "document.invalid";
/// Another version may make other tools of the same documents. The last number is raised whenever this one does.
const READER_VERSION: &str = concat!("openapi ", env!("CARGO_PKG_VERSION"), "/1");

/// The documents of one discovery. Who calls sees to it that reading them ends in time.
#[derive(Debug)]
pub(super) struct DocumentLoader<'a> {
    connector: &'a OpenApiConnector,
    resolved: &'a ResolvedSource,
    main_url: Url,
    redactor: Arc<Redactor>,
    /// What the discovery is part of.
    trace: Option<&'a Trace>,
    state: Mutex<LoadState>,
}

#[derive(Debug, Default)]
struct LoadState {
    /// What has been looked at and not been asked for yet.
    prefetched: BTreeMap<String, String>,
    versions: BTreeMap<String, DocumentVersion>,
    /// How many documents have been asked for, there or not, and their size.
    requested: usize,
    total_bytes: usize,
    /// Something that may be there next time was not.
    incomplete: bool,
}

impl<'a> DocumentLoader<'a> {
    pub(super) fn new(
        connector: &'a OpenApiConnector,
        settled: &'a ResolvedSource,
        trace: Option<&'a Trace>,
    ) -> Result<DocumentLoader<'a>> {
        let main = match &settled.document {
            DocumentLocation::File(path) => {
                let path = std::path::absolute(path).map_err(|error| unreadable_error(path, &error))?;
                let no_path = |()| Error::new(Code::ConfigInvalid, "`openapi` is no path to a file");
                Url::from_file_path(path).map_err(no_path)?
            }
            DocumentLocation::Remote(url) if has_reference(&connector.source.kind) => placeholder_url(url)?,
            DocumentLocation::Remote(url) => strip_secrets(url.clone()),
        };
        let redactor = connector.redactor.get(&connector.source.kind);
        Ok(DocumentLoader { connector, resolved: settled, main_url: main, redactor, trace, state: Mutex::default() })
    }

    /// Where the source's own document is, without what may be secret in it; made up where a reference is part of that.
    pub(super) fn main_url(&self) -> &Url {
        &self.main_url
    }

    /// What all was read from last time, if it is as it was. What is found changed is kept for the reading.
    pub(super) async fn check_unchanged(&self, known: &DocumentVersions) -> Result<Option<DocumentVersions>> {
        if known.reader != READER_VERSION || !known.documents.contains_key(self.main_url.as_str()) {
            return Ok(None);
        }
        let mut same = BTreeMap::new();
        for (place, mark) in &known.documents {
            let mark = match self.fetch_redacted(place, Some(mark)).await {
                Ok(FetchedDocument::Unchanged) => mark.clone(),
                Ok(FetchedDocument::Text { text, version: new }) => {
                    let changed = new.hash != mark.hash;
                    self.lock_state().prefetched.insert(place.clone(), text);
                    if changed {
                        return Ok(None);
                    }
                    new
                }
                Err(error) if place == self.main_url.as_str() => return Err(error),
                // What leads there says what becomes of it.
                Err(_) => return Ok(None),
            };
            same.insert(place.clone(), mark);
        }
        Ok(Some(DocumentVersions { reader: READER_VERSION.to_owned(), documents: same }))
    }

    /// The text of a document: the source's own, or one that leads from it and stands where it may be read.
    pub(super) async fn load(&self, address: &Url) -> Result<String> {
        let place = address.as_str();
        if let Some(text) = self.lock_state().prefetched.remove(place) {
            return Ok(text);
        }
        match self.fetch_redacted(place, None).await {
            Ok(FetchedDocument::Text { text, .. }) => Ok(text),
            Ok(FetchedDocument::Unchanged) => {
                Err(Error::new(Code::Internal, "a document is said to be as it never was"))
            }
            Err(error) => {
                self.lock_state().incomplete |= error.code != Code::Forbidden;
                Err(error)
            }
        }
    }

    /// What has been read, to be recognised next time; nothing where there may be more to read then.
    pub(super) fn versions(&self) -> Option<DocumentVersions> {
        let shelf = self.lock_state();
        (!shelf.incomplete)
            .then(|| DocumentVersions { reader: READER_VERSION.to_owned(), documents: shelf.versions.clone() })
    }

    async fn fetch_redacted(&self, place: &str, known: Option<&DocumentVersion>) -> Result<FetchedDocument> {
        // What an error says may be kept with what is set aside.
        self.fetch(place, known).await.map_err(|error| self.redactor.redact_error(error))
    }

    async fn fetch(&self, place: &str, known: Option<&DocumentVersion>) -> Result<FetchedDocument> {
        let own = place == self.main_url.as_str();
        let target =
            if own { self.resolved.document.clone() } else { self.real_location(DocumentLocation::parse(place)?) };
        let room = {
            let mut shelf = self.lock_state();
            if shelf.requested == MAX_DOCUMENTS {
                let message = format!("the document leads to more than {} others", MAX_DOCUMENTS - 1);
                return Err(Error::new(Code::ConfigInvalid, message));
            }
            shelf.requested += 1;
            MAX_DOCUMENTS_BYTES - shelf.total_bytes
        };
        let fetched = match target {
            DocumentLocation::File(path) => {
                let path = if own { path } else { self.check_file_allowed(&path).await? };
                read_file(path, room).await?
            }
            DocumentLocation::Remote(url) => {
                let own = (own || self.check_url_allowed(&url)?) && self.resolved.sends_credentials_to(&url);
                let fetch = DocumentFetch {
                    connector: self.connector,
                    resolved: self.resolved,
                    send_credentials: own,
                    max_bytes: room,
                    trace: self.trace,
                };
                fetch.fetch_url(url, known).await?
            }
        };
        let mut shelf = self.lock_state();
        match &fetched {
            // It is asked for once more where another has changed.
            FetchedDocument::Unchanged => shelf.requested -= 1,
            FetchedDocument::Text { text, version: mark } => {
                shelf.total_bytes = MAX_DOCUMENTS_BYTES.min(shelf.total_bytes + text.len());
                shelf.versions.insert(place.to_owned(), mark.clone());
            }
        }
        Ok(fetched)
    }

    /// Where a document is that leads from one whose address is made up.
    fn real_location(&self, place: DocumentLocation) -> DocumentLocation {
        let (DocumentLocation::Remote(url), Some(document)) = (&place, self.resolved.document.url()) else {
            return place;
        };
        if self.main_url.host_str() != Some(PLACEHOLDER_HOST) || url.origin() != self.main_url.origin() {
            return place;
        }
        let way = self.main_url.make_relative(url);
        way.and_then(|way| document.join(&way).ok()).map_or(place, DocumentLocation::Remote)
    }

    /// A file below the directory of the document, or below one that the source allows. Links are followed first.
    async fn check_file_allowed(&self, path: &Path) -> Result<PathBuf> {
        let real = tokio::fs::canonicalize(path).await.map_err(|error| unreadable_error(path, &error))?;
        let allowed =
            self.resolved.openapi.allow_refs.iter().filter_map(|place| match DocumentLocation::parse(place) {
                Ok(DocumentLocation::File(directory)) => Some(directory),
                Ok(DocumentLocation::Remote(_)) | Err(_) => None,
            });
        let mut directories: Vec<PathBuf> = allowed.collect();
        if let DocumentLocation::File(document) = &self.resolved.document
            && let Ok(real) = tokio::fs::canonicalize(document).await
        {
            directories.extend(real.parent().map(Path::to_owned));
        }
        for directory in directories {
            if tokio::fs::canonicalize(directory).await.is_ok_and(|directory| real.starts_with(directory)) {
                return Ok(real);
            }
        }
        Err(forbidden_location(&sanitize_truncated(&path.to_string_lossy(), 300)))
    }

    /// Whether an address has the document's origin; another must begin as the source allows.
    fn check_url_allowed(&self, url: &Url) -> Result<bool> {
        if self.resolved.document.url().is_some_and(|document| document.origin() == url.origin()) {
            return Ok(true);
        }
        let allowed = self.resolved.openapi.allow_refs.iter().any(|place| match DocumentLocation::parse(place) {
            Ok(DocumentLocation::Remote(beginning)) => is_below(url, &beginning),
            Ok(DocumentLocation::File(_)) | Err(_) => false,
        });
        if allowed { Ok(false) } else { Err(forbidden_location(&display_url(url))) }
    }

    fn lock_state(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an address is the other or below it: `/api` is no beginning of `/api-v2`.
fn is_below(url: &Url, beginning: &Url) -> bool {
    let rest = url.as_str().strip_prefix(beginning.as_str());
    rest.is_some_and(|rest| beginning.as_str().ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

fn has_reference(kind: &SourceKind) -> bool {
    matches!(kind, SourceKind::OpenApi(openapi) if openapi.document.contains("${"))
}

/// An address as deep as the real one, so that what is relative to the one is relative to the other, and with nothing
/// of it: manifests and marks are kept, and what a reference stands for is not.
fn placeholder_url(url: &Url) -> Result<Url> {
    let segments = url.path_segments().map_or(1, Iterator::count);
    let path = vec!["-"; segments].join("/");
    let text = format!("{}://{PLACEHOLDER_HOST}/{path}", url.scheme());
    Url::parse(&text).map_err(|_| Error::new(Code::Internal, "an address cannot be made up"))
}

fn strip_secrets(url: Url) -> Url {
    let mut url = strip_login(url);
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn forbidden_location(place: &str) -> Error {
    let message =
        format!("`{place}` is not where the document comes from; `allow_refs` of the source allows more places");
    Error::new(Code::Forbidden, message)
}
