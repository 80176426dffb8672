//! Where the documents in a project's files lead to. Read from files alone: nothing is contacted to find out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toolcrib_core::arazzo::Document;
use toolcrib_core::config::{Config, LocalDocument, TrustedFile, names_its_servers};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::openapi::{Conversion, Library, convert, parse, parse_whole};
use toolcrib_core::source::{Kind, OpenApi};
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use url::Url;

use crate::connector::{Place, read_file_blocking};
use crate::secret::resolve;

/// Bytes and number of all files of a document, as when it is discovered.
const MAX_BYTES: usize = 64 * 1024 * 1024;
const MAX_FILES: usize = 64;

/// The documents of the project's sources. One whose files are as they were when it was trusted is not read again.
pub(super) fn documents(project: &Config, trusted: Option<&TrustedFile>) -> BTreeMap<SourceId, LocalDocument> {
    let known: BTreeMap<&SourceId, &LocalDocument> = trusted.into_iter().flat_map(TrustedFile::documents).collect();
    let sources = project.valid_sources().filter(|source| names_its_servers(source));
    let documents = sources.map(|source| {
        let unchanged =
            known.get(&source.id).filter(|document| is_unchanged(document)).map(|&document| document.clone());
        (source.id.clone(), unchanged.unwrap_or_else(|| read(source)))
    });
    documents.collect()
}

fn is_unchanged(document: &LocalDocument) -> bool {
    let same = |(path, hash): (&String, &Fingerprint)| {
        read_file_blocking(Path::new(path), MAX_BYTES).is_ok_and(|(_, now)| now == *hash)
    };
    !document.files.is_empty() && document.files.iter().all(same)
}

/// A document that cannot be read leads nowhere: what it leads to once it can be is asked about then.
fn read(source: &Source) -> LocalDocument {
    let mut files = Files::default();
    let servers = match &source.kind {
        Kind::OpenApi(openapi) => files.servers(&source.id, openapi),
        Kind::Workflow(workflow) => files.described_apis(&workflow.document),
        Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) | Kind::Builtin(_) => Ok(BTreeSet::new()),
    };
    LocalDocument { servers: servers.unwrap_or_default(), files: files.hashes }
}

/// The files that have been read for one source.
#[derive(Default)]
struct Files {
    hashes: BTreeMap<String, Fingerprint>,
    bytes: usize,
}

impl Files {
    fn servers(&mut self, id: &SourceId, openapi: &OpenApi) -> Result<BTreeSet<String>> {
        let path = file(&openapi.document)?;
        let address = Url::from_file_path(&path).map_err(|()| unreadable("it is no path to a file"))?;
        let mut library = Library::new(address.clone(), parse(&self.text(&path)?)?);
        let mut missing = library.missing_from(&address);
        while let Some(address) = missing.pop_first() {
            let document = self.referenced(&path, openapi, &address).and_then(|text| parse(&text));
            library.add(&address, document.map_err(|error| error.message));
            missing.extend(library.missing_from(&address));
        }
        Ok(convert(&library, Conversion { source: id, openapi })?.servers)
    }

    fn described_apis(&mut self, document: &str) -> Result<BTreeSet<String>> {
        let text = self.text(&file(document)?)?;
        Ok(Document::read(&parse_whole(&text)?)?.described_apis())
    }

    /// A file that the document refers to, below its own directory or one that the source allows.
    fn referenced(&mut self, document: &Path, openapi: &OpenApi, address: &Url) -> Result<String> {
        let path = address.to_file_path().map_err(|()| unreadable("it is not in a file"))?;
        let real = |path: &Path| path.canonicalize().map_err(|error| unreadable(&error.to_string()));
        let path = real(&path)?;
        let own = real(document)?.parent().map(Path::to_owned);
        let allowed = openapi.allow_refs.iter().filter_map(|place| real(&file(place).ok()?).ok());
        if own.into_iter().chain(allowed).any(|directory| path.starts_with(directory)) {
            self.text(&path)
        } else {
            Err(unreadable("it is outside of the directory of the document"))
        }
    }

    fn text(&mut self, path: &Path) -> Result<String> {
        if self.hashes.len() == MAX_FILES {
            return Err(unreadable("there are too many files"));
        }
        let (text, hash) = read_file_blocking(path, MAX_BYTES - self.bytes)?;
        self.bytes += text.len().min(MAX_BYTES - self.bytes);
        self.hashes.insert(path.to_string_lossy().into_owned(), hash);
        Ok(text)
    }
}

fn file(place: &str) -> Result<PathBuf> {
    match Place::parse(&resolve(place)?)? {
        Place::File(path) => std::path::absolute(path).map_err(|error| unreadable(&error.to_string())),
        Place::Address(_) => Err(unreadable("it is not in a file")),
    }
}

fn unreadable(reason: &str) -> Error {
    Error::new(Code::ConfigInvalid, reason)
}
