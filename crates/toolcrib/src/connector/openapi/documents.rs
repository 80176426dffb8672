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
    main: String,
    shelf: Mutex<Shelf>,
}

/// What has been read.
#[derive(Debug, Default)]
struct Shelf {
    texts: BTreeMap<String, String>,
    marks: BTreeMap<String, Mark>,
    bytes: usize,
}

impl<'a> Documents<'a> {
    pub(super) fn new(connector: &'a OpenApiConnector, settled: &'a Settled) -> Documents<'a> {
        let main = match &settled.document {
            Place::File(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).to_string_lossy().into(),
            Place::Address(url) => shown_place(url),
        };
        Documents { connector, settled, main, shelf: Mutex::default() }
    }

    /// The place of the source's own document: its path, or its address without what may be secret in it.
    pub(super) fn main(&self) -> &str {
        &self.main
    }

    /// What all was read from last time, if it is as it was. What is found changed is kept for the reading.
    pub(super) async fn unchanged(&self, known: &Marks) -> Result<Option<Marks>> {
        if known.reader != READER || !known.documents.contains_key(&self.main) {
            return Ok(None);
        }
        let mut same = BTreeMap::new();
        for (place, mark) in &known.documents {
            let mark = match self.look(place, Some(mark)).await {
                Ok(Fetched::Same) => mark.clone(),
                Ok(Fetched::Text { text, mark: new }) => {
                    let changed = new.hash != mark.hash;
                    self.keep(place, text, new.clone())?;
                    if changed {
                        return Ok(None);
                    }
                    new
                }
                Err(error) if *place == self.main => return Err(error),
                // What leads there says what becomes of it.
                Err(_) => return Ok(None),
            };
            same.insert(place.clone(), mark);
        }
        Ok(Some(Marks { reader: READER.to_owned(), documents: same }))
    }

    /// The text of a document: the source's own, or one that leads from it and stands where it may be read.
    pub(super) async fn load(&self, place: &str) -> Result<String> {
        if let Some(text) = self.shelf().texts.get(place) {
            return Ok(text.clone());
        }
        match self.look(place, None).await? {
            Fetched::Text { text, mark } => {
                self.keep(place, text.clone(), mark)?;
                Ok(text)
            }
            Fetched::Same => Err(Error::new(Code::Internal, "a document is said to be as it never was")),
        }
    }

    /// What has been read, to be recognised next time.
    pub(super) fn marks(&self) -> Marks {
        Marks { reader: READER.to_owned(), documents: self.shelf().marks.clone() }
    }

    async fn look(&self, place: &str, known: Option<&Mark>) -> Result<Fetched> {
        let own = place == self.main;
        let target = if own { self.settled.document.clone() } else { Place::parse(place)? };
        let room = {
            let shelf = self.shelf();
            if shelf.texts.len() >= MOST_DOCUMENTS {
                let message = format!("the document leads to more than {} others", MOST_DOCUMENTS - 1);
                return Err(Error::new(Code::ConfigInvalid, message));
            }
            LARGEST.saturating_sub(shelf.bytes)
        };
        match target {
            Place::File(path) => {
                let path = if own { path } else { self.permitted_file(&path).await? };
                read_file(path, room).await
            }
            Place::Address(url) => {
                let own = own || self.permitted_address(&url)?;
                let fetch = Fetch { connector: self.connector, settled: self.settled, own, room };
                fetch.address(url, known).await
            }
        }
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

    fn keep(&self, place: &str, text: String, mark: Mark) -> Result<()> {
        let mut shelf = self.shelf();
        shelf.bytes += text.len();
        if shelf.bytes > LARGEST {
            return Err(Error::new(Code::ConfigInvalid, "the document and those it leads to are larger than 64 MiB"));
        }
        shelf.marks.insert(place.to_owned(), mark);
        shelf.texts.insert(place.to_owned(), text);
        Ok(())
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place that a reference in the document at `from` leads to, without its fragment.
pub(super) fn beside(from: &str, reference: &str) -> Result<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    let wrong = || {
        Error::new(Code::ConfigInvalid, format!("`{}` leads to no file and no address", shown_short(reference, 200)))
    };
    if reference.is_empty() {
        return Ok(from.to_owned());
    }
    let from = match Place::parse(from)? {
        Place::File(path) => Url::from_file_path(path).map_err(|()| wrong())?,
        Place::Address(url) => url,
    };
    let target = from.join(reference).map_err(|_| wrong())?;
    match target.scheme() {
        "http" | "https" => Ok(target.into()),
        "file" if from.scheme() == "file" => Ok(target.to_file_path().map_err(|()| wrong())?.to_string_lossy().into()),
        _ => Err(wrong()),
    }
}

fn elsewhere(place: &str) -> Error {
    let message =
        format!("`{place}` is not where the document comes from; `allow_refs` of the source allows more places");
    Error::new(Code::ConfigInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_relative_to_the_document_it_stands_in() {
        for (from, reference, expected) in [
            ("/specs/api.yaml", "#/components/x", Some("/specs/api.yaml")),
            ("/specs/api.yaml", "pet.yaml#/Pet", Some("/specs/pet.yaml")),
            ("/specs/api.yaml", "./a/../b%20c.yaml", Some("/specs/b c.yaml")),
            ("/specs/api.yaml", "../../../etc/passwd", Some("/etc/passwd")),
            ("/specs/api.yaml", "https://h/x.yaml#/a", Some("https://h/x.yaml")),
            ("https://h/v1/api.yaml", "pet.yaml", Some("https://h/v1/pet.yaml")),
            ("https://h/v1/api.yaml", "/pet.yaml?x=1", Some("https://h/pet.yaml?x=1")),
            ("https://h/v1/api.yaml", "//evil/pet.yaml", Some("https://evil/pet.yaml")),
            ("https://h/v1/api.yaml", "file:///etc/passwd", None),
            ("https://h/v1/api.yaml", "gopher://h/", None),
        ] {
            assert_eq!(beside(from, reference).ok().as_deref(), expected, "{from} {reference}");
        }
    }
}
