//! The documents of a source: the one it names, and those that lead from it. Bounded in number and size, and never from
//! a place that the source does not stand for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::OpenApiConnector;
use super::fetch::{Fetch, Fetched, read_file, unreadable};
use super::send::shown_place;
use super::settled::{Place, Settled};
use crate::connector::{Mark, Marks};

/// Bytes of all documents of a source.
pub(super) const LARGEST: usize = 64 * 1024 * 1024;
const MOST_DOCUMENTS: usize = 64;
/// Another version may make other tools of the same documents.
const READER: &str = concat!("openapi ", env!("CARGO_PKG_VERSION"));

/// The documents of one discovery. Who calls sees to it that reading them ends in time.
#[derive(Debug)]
pub(super) struct Documents<'a> {
    connector: &'a OpenApiConnector,
    settled: &'a Settled,
    main: Url,
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
}

impl<'a> Documents<'a> {
    pub(super) fn new(connector: &'a OpenApiConnector, settled: &'a Settled) -> Result<Documents<'a>> {
        let main = match &settled.document {
            Place::File(path) => {
                let path = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
                let no_path = |()| Error::new(Code::ConfigInvalid, "`openapi` is no path to a file");
                Url::from_file_path(path).map_err(no_path)?
            }
            Place::Address(url) => without_secrets(url.clone()),
        };
        Ok(Documents { connector, settled, main, shelf: Mutex::default() })
    }

    /// Where the source's own document is, without what may be secret in it.
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
        match self.look(place, None).await? {
            Fetched::Text { text, .. } => Ok(text),
            Fetched::Same => Err(Error::new(Code::Internal, "a document is said to be as it never was")),
        }
    }

    /// What has been read, to be recognised next time.
    pub(super) fn marks(&self) -> Marks {
        Marks { reader: READER.to_owned(), documents: self.shelf().marks.clone() }
    }

    async fn look(&self, place: &str, known: Option<&Mark>) -> Result<Fetched> {
        let own = place == self.main.as_str();
        let target = if own { self.settled.document.clone() } else { Place::parse(place)? };
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
            Place::File(path) => {
                let path = if own { path } else { self.permitted_file(&path).await? };
                read_file(path, room).await?
            }
            Place::Address(url) => {
                let own = own || self.permitted_address(&url)?;
                let fetch = Fetch { connector: self.connector, settled: self.settled, own, room };
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

    /// A file below the directory of the document, or below one that the source allows. Links are followed first.
    async fn permitted_file(&self, path: &Path) -> Result<PathBuf> {
        let real = tokio::fs::canonicalize(path).await.map_err(|error| unreadable(path, &error))?;
        let allowed = self.settled.openapi.allow_refs.iter().filter_map(|place| match Place::parse(place) {
            Ok(Place::File(directory)) => Some(directory),
            Ok(Place::Address(_)) | Err(_) => None,
        });
        let mut directories: Vec<PathBuf> = allowed.collect();
        if let Place::File(document) = &self.settled.document
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
        let allowed = self.settled.openapi.allow_refs.iter().any(|place| match Place::parse(place) {
            Ok(Place::Address(beginning)) => url.as_str().starts_with(beginning.as_str()),
            Ok(Place::File(_)) | Err(_) => false,
        });
        if allowed { Ok(false) } else { Err(elsewhere(&shown_place(url))) }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn without_secrets(mut url: Url) -> Url {
    // These fail for addresses that cannot have a login, which have none then.
    let _none = url.set_username("");
    let _none = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn elsewhere(place: &str) -> Error {
    let message =
        format!("`{place}` is not where the document comes from; `allow_refs` of the source allows more places");
    Error::new(Code::ConfigInvalid, message)
}
