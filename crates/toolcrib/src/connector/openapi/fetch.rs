//! The text of one document, from a plain file or from an address, with what it is recognised by next time.

use std::io::Read;
use std::path::{Path, PathBuf};

use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result, ResultExt};
use url::Url;

use super::OpenApiConnector;
use super::credentials::{always, present};
use super::send::{Failed, Outgoing, Received, Sender, shown_place};
use super::settled::Settled;
use super::territory::Territory;
use crate::connector::Mark;
use crate::trace::Trace;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.8";
const LONGEST_ETAG: usize = 1024;

pub(in crate::connector) enum Fetched {
    /// As it was when it was marked.
    Same,
    Text {
        text: String,
        mark: Mark,
    },
}

#[derive(Debug)]
pub(super) struct Fetch<'a> {
    pub(super) connector: &'a OpenApiConnector,
    pub(super) settled: &'a Settled,
    /// It has the origin of the source's own document, and credentials are for that.
    pub(super) own: bool,
    /// How many bytes it may have.
    pub(super) room: usize,
    pub(super) trace: Option<&'a Trace>,
}

impl Fetch<'_> {
    pub(super) async fn address(&self, mut url: Url, known: Option<&Mark>) -> Result<Fetched> {
        let shown = shown_place(&url);
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(ACCEPTED))]);
        if let Some(etag) = known.and_then(|mark| HeaderValue::try_from(mark.etag.as_deref()?).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        if self.own {
            headers.extend(self.settled.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
            let proofs = always(&self.settled.given)?;
            let OpenApiConnector { source, clients, tokens, .. } = self.connector;
            let tokens = tokens.of(&proofs, clients, source.settings.connect_timeout()).await;
            present(&proofs, &tokens.map_err(Failed::into_error)?, &mut url, &mut headers)?;
        }
        if let Some(trace) = self.trace {
            trace.add_to(&mut headers);
        }
        // The source itself says that it may be read, so that only where it points to is in question.
        let territory = Territory::new(&self.settled.openapi, None, None);
        let connect_timeout = self.connector.source.settings.connect_timeout();
        let clients = &self.connector.clients;
        let sender = Sender { clients, territory: &territory, connect_timeout, most: self.room };
        let outgoing = Outgoing { label: format!("GET {shown}"), method: Method::GET, url, headers, body: None };
        let received = sender.send(outgoing).await.map_err(Failed::into_unavailable)?;
        match received.status {
            StatusCode::NOT_MODIFIED if known.is_some() => Ok(Fetched::Same),
            StatusCode::OK => text(&shown, received),
            status => {
                let message = format!("`{shown}` gives no document: it answered {status}");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }
}

pub(in crate::connector) async fn read_file(path: PathBuf, room: usize) -> Result<Fetched> {
    // Looking at a file may wait for a disk: not on a thread that others wait for.
    let read = tokio::task::spawn_blocking(move || {
        let (text, hash) = read_file_blocking(&path, room)?;
        Ok(Fetched::Text { text, mark: Mark { etag: None, hash } })
    });
    read.await.context(Code::Internal, "a file could not be read")?
}

/// The text of a file of at most `room` bytes, and its hash.
pub(crate) fn read_file_blocking(path: &Path, room: usize) -> Result<(String, Fingerprint)> {
    let shown = shown_short(&path.to_string_lossy(), 300);
    let about = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    // Before it is opened: opening a pipe would wait until a process writes to it.
    if !about.is_file() {
        return Err(Error::new(Code::ConfigInvalid, format!("`{shown}` is not a plain file")));
    }
    if about.len() > room as u64 {
        return Err(too_large(&shown));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut bytes = Vec::new();
    file.take(room as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() > room {
        return Err(too_large(&shown));
    }
    let hash = Fingerprint::of(&bytes);
    Ok((readable(&shown, bytes)?, hash))
}

fn text(shown: &str, received: Received) -> Result<Fetched> {
    if received.cut {
        return Err(too_large(shown));
    }
    let etag = received.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
    let etag = etag.filter(|etag| etag.len() <= LONGEST_ETAG).map(str::to_owned);
    let hash = Fingerprint::of(&received.body);
    Ok(Fetched::Text { text: readable(shown, received.body)?, mark: Mark { etag, hash } })
}

/// A stray byte of another alphabet costs no document; what is no text at all does.
fn readable(shown: &str, bytes: Vec<u8>) -> Result<String> {
    let wrong = |what: &str| Error::new(Code::ConfigInvalid, format!("`{shown}` is {what}"));
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(wrong("packed with gzip; unpack it"));
    }
    if bytes.iter().take(1024).any(|byte| *byte == 0) {
        return Err(wrong("not a text in UTF-8"));
    }
    let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn too_large(shown: &str) -> Error {
    Error::new(Code::ConfigInvalid, format!("`{shown}` is larger than 64 MiB, with what was read before it"))
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let shown = shown_short(&path.to_string_lossy(), 300);
    Error::new(Code::ConfigInvalid, format!("`{shown}` cannot be read: {error}"))
}
