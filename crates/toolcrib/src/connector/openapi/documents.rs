//! The documents of a source: the one it names, and those that lead from it. Bounded in number and size, and never from
//! a place that the source does not stand for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcrib_core::source::Kind;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::OpenApiConnector;
use super::fetch::{Fetch, Fetched, read_file, unreadable};
use super::send::{shown_place, without_login};
use super::settled::{DocumentLocation, Settled};
use crate::connector::{Mark, Marks};
use crate::redact::Redactor;
use crate::trace::Trace;

/// Bytes of all documents of a source.
pub(super) const LARGEST: usize = 64 * 1024 * 1024;
const MOST_DOCUMENTS: usize = 64;
/// The host of made-up addresses, which no server can have.
const STAND_IN: &str = "document.invalid";
/// Another version may make other tools of the same documents. The last number is raised whenever this one does.
const READER: &str = concat!("openapi ", env!("CARGO_PKG_VERSION"), "/1");

/// The documents of one discovery. Who calls sees to it that reading them ends in time.
#[derive(Debug)]
pub(super) struct Documents<'a> {
    connector: &'a OpenApiConnector,
    settled: &'a Settled,
    main: Url,
    redactor: Arc<Redactor>,
    /// What the discovery is part of.
    trace: Option<&'a Trace>,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// What has been looked at and not been asked for yet.
    texts: BTreeMap<String, String>,
    marks: BTreeMap<String, Mark>,
    /// How many documents have been asked for, there or not, and their size.
    asked: usize,
    bytes: usize,
    /// Something that may be there next time was not.
    incomplete: bool,
}

impl<'a> Documents<'a> {
    pub(super) fn new(
        connector: &'a OpenApiConnector,
        settled: &'a Settled,
        trace: Option<&'a Trace>,
    ) -> Result<Documents<'a>> {
        let main = match &settled.document {
            DocumentLocation::File(path) => {
                let path = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
                let no_path = |()| Error::new(Code::ConfigInvalid, "`openapi` is no path to a file");
                Url::from_file_path(path).map_err(no_path)?
            }
            DocumentLocation::Address(url) if refers(&connector.source.kind) => stand_in(url)?,
            DocumentLocation::Address(url) => without_secrets(url.clone()),
        };
        let redactor = connector.redactor.get(&connector.source.kind);
        Ok(Documents { connector, settled, main, redactor, trace, shelf: Mutex::default() })
    }

    /// Where the source's own document is, without what may be secret in it; made up where a reference is part of that.
    pub(super) fn main(&self) -> &Url {
        &self.main
    }

    /// What all was read from last time, if it is as it was. What is found changed is kept for the reading.
    pub(super) async fn unchanged(&self, known: &Marks) -> Result<Option<Marks>> {
        if known.reader != READER || !known.documents.contains_key(self.main.as_str()) {
            return Ok(None);
        }
        let mut same = BTreeMap::new();
        for (place, mark) in &known.documents {
            let mark = match self.look(place, Some(mark)).await {
                Ok(Fetched::Same) => mark.clone(),
                Ok(Fetched::Text { text, mark: new }) => {
                    let changed = new.hash != mark.hash;
                    self.shelf().texts.insert(place.clone(), text);
                    if changed {
                        return Ok(None);
                    }
                    new
                }
                Err(error) if place == self.main.as_str() => return Err(error),
                // What leads there says what becomes of it.
                Err(_) => return Ok(None),
            };
            same.insert(place.clone(), mark);
        }
        Ok(Some(Marks { reader: READER.to_owned(), documents: same }))
    }

    /// The text of a document: the source's own, or one that leads from it and stands where it may be read.
    pub(super) async fn load(&self, address: &Url) -> Result<String> {
        let place = address.as_str();
        if let Some(text) = self.shelf().texts.remove(place) {
            return Ok(text);
        }
        match self.look(place, None).await {
            Ok(Fetched::Text { text, .. }) => Ok(text),
            Ok(Fetched::Same) => Err(Error::new(Code::Internal, "a document is said to be as it never was")),
            Err(error) => {
                self.shelf().incomplete |= error.code != Code::Forbidden;
                Err(error)
            }
        }
    }

    /// What has been read, to be recognised next time; nothing where there may be more to read then.
    pub(super) fn marks(&self) -> Option<Marks> {
        let shelf = self.shelf();
        (!shelf.incomplete).then(|| Marks { reader: READER.to_owned(), documents: shelf.marks.clone() })
    }

    async fn look(&self, place: &str, known: Option<&Mark>) -> Result<Fetched> {
        // What an error says may be kept with what is set aside.
        self.fetch(place, known).await.map_err(|error| self.redactor.redact_error(error))
    }

    async fn fetch(&self, place: &str, known: Option<&Mark>) -> Result<Fetched> {
        let own = place == self.main.as_str();
        let target = if own { self.settled.document.clone() } else { self.real(DocumentLocation::parse(place)?) };
        let room = {
            let mut shelf = self.shelf();
            if shelf.asked == MOST_DOCUMENTS {
                let message = format!("the document leads to more than {} others", MOST_DOCUMENTS - 1);
                return Err(Error::new(Code::ConfigInvalid, message));
            }
            shelf.asked += 1;
            LARGEST - shelf.bytes
        };
        let fetched = match target {
            DocumentLocation::File(path) => {
                let path = if own { path } else { self.permitted_file(&path).await? };
                read_file(path, room).await?
            }
            DocumentLocation::Address(url) => {
                let own = (own || self.permitted_address(&url)?) && self.settled.shows_itself_to(&url);
                let fetch = Fetch { connector: self.connector, settled: self.settled, own, room, trace: self.trace };
                fetch.address(url, known).await?
            }
        };
        let mut shelf = self.shelf();
        match &fetched {
            // It is asked for once more where another has changed.
            Fetched::Same => shelf.asked -= 1,
            Fetched::Text { text, mark } => {
                shelf.bytes = LARGEST.min(shelf.bytes + text.len());
                shelf.marks.insert(place.to_owned(), mark.clone());
            }
        }
        Ok(fetched)
    }

    /// Where a document is that leads from one whose address is made up.
    fn real(&self, place: DocumentLocation) -> DocumentLocation {
        let (DocumentLocation::Address(url), Some(document)) = (&place, self.settled.document.address()) else {
            return place;
        };
        if self.main.host_str() != Some(STAND_IN) || url.origin() != self.main.origin() {
            return place;
        }
        let way = self.main.make_relative(url);
        way.and_then(|way| document.join(&way).ok()).map_or(place, DocumentLocation::Address)
    }

    /// A file below the directory of the document, or below one that the source allows. Links are followed first.
    async fn permitted_file(&self, path: &Path) -> Result<PathBuf> {
        let real = tokio::fs::canonicalize(path).await.map_err(|error| unreadable(path, &error))?;
        let allowed = self.settled.openapi.allow_refs.iter().filter_map(|place| match DocumentLocation::parse(place) {
            Ok(DocumentLocation::File(directory)) => Some(directory),
            Ok(DocumentLocation::Address(_)) | Err(_) => None,
        });
        let mut directories: Vec<PathBuf> = allowed.collect();
        if let DocumentLocation::File(document) = &self.settled.document
            && let Ok(real) = tokio::fs::canonicalize(document).await
        {
            directories.extend(real.parent().map(Path::to_owned));
        }
        for directory in directories {
            if tokio::fs::canonicalize(directory).await.is_ok_and(|directory| real.starts_with(directory)) {
                return Ok(real);
            }
        }
        Err(elsewhere(&shown_short(&path.to_string_lossy(), 300)))
    }

    /// Whether an address has the document's origin; another must begin as the source allows.
    fn permitted_address(&self, url: &Url) -> Result<bool> {
        if self.settled.document.address().is_some_and(|document| document.origin() == url.origin()) {
            return Ok(true);
        }
        let allowed = self.settled.openapi.allow_refs.iter().any(|place| match DocumentLocation::parse(place) {
            Ok(DocumentLocation::Address(beginning)) => begins(url, &beginning),
            Ok(DocumentLocation::File(_)) | Err(_) => false,
        });
        if allowed { Ok(false) } else { Err(elsewhere(&shown_place(url))) }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an address is the other or below it: `/api` is no beginning of `/api-v2`.
fn begins(url: &Url, beginning: &Url) -> bool {
    let rest = url.as_str().strip_prefix(beginning.as_str());
    rest.is_some_and(|rest| beginning.as_str().ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?', '#']))
}

fn refers(kind: &Kind) -> bool {
    matches!(kind, Kind::OpenApi(openapi) if openapi.document.contains("${"))
}

/// An address as deep as the real one, so that what is relative to the one is relative to the other, and with nothing
/// of it: manifests and marks are kept, and what a reference stands for is not.
fn stand_in(url: &Url) -> Result<Url> {
    let segments = url.path_segments().map_or(1, Iterator::count);
    let path = vec!["-"; segments].join("/");
    let text = format!("{}://{STAND_IN}/{path}", url.scheme());
    Url::parse(&text).map_err(|_| Error::new(Code::Internal, "an address cannot be made up"))
}

fn without_secrets(url: Url) -> Url {
    let mut url = without_login(url);
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn elsewhere(place: &str) -> Error {
    let message =
        format!("`{place}` is not where the document comes from; `allow_refs` of the source allows more places");
    Error::new(Code::Forbidden, message)
}
