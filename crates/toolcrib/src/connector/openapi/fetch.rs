//! The text of one document, from a plain file or from an address, with what it is recognised by next time.

use std::io::Read;
use std::path::{Path, PathBuf};

use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt};
use url::Url;

use super::OpenApiConnector;
use super::credentials::{apply_auth, document_auth};
use super::resolved_source::ResolvedSource;
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse, display_url};
use super::url_policy::UrlPolicy;
use crate::connector::DocumentVersion;
use crate::trace::Trace;

const ACCEPT_HEADER: &str = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.8";
const MAX_ETAG_LEN: usize = 1024;

pub(in crate::connector) enum FetchedDocument {
    /// As it was when it was marked.
    Unchanged,
    Text {
        text: String,
        version: DocumentVersion,
    },
}

#[derive(Debug)]
pub(super) struct DocumentFetch<'a> {
    pub(super) connector: &'a OpenApiConnector,
    pub(super) resolved: &'a ResolvedSource,
    /// It has the origin of the source's own document, and credentials are for that.
    pub(super) send_credentials: bool,
    /// How many bytes it may have.
    pub(super) max_bytes: usize,
    pub(super) trace: Option<&'a Trace>,
}

impl DocumentFetch<'_> {
    pub(super) async fn fetch_url(&self, mut url: Url, known: Option<&DocumentVersion>) -> Result<FetchedDocument> {
        let shown = display_url(&url);
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(ACCEPT_HEADER))]);
        if let Some(etag) = known.and_then(|mark| HeaderValue::try_from(mark.etag.as_deref()?).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        if self.send_credentials {
            headers.extend(self.resolved.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
            let proofs = document_auth(&self.resolved.credentials)?;
            let OpenApiConnector { source, clients, tokens, .. } = self.connector;
            let tokens = tokens.tokens_for(&proofs, clients, source.settings.connect_timeout()).await;
            apply_auth(&proofs, &tokens.map_err(OutboundError::into_error)?, &mut url, &mut headers)?;
        }
        if let Some(trace) = self.trace {
            trace.add_to_headers(&mut headers);
        }
        // The source itself says that it may be read, so that only where it points to is in question.
        let territory = UrlPolicy::new(&self.resolved.openapi, None, None);
        let connect_timeout = self.connector.source.settings.connect_timeout();
        let clients = &self.connector.clients;
        let sender =
            OutboundSender { clients, url_policy: &territory, connect_timeout, max_response_bytes: self.max_bytes };
        let outgoing = OutboundRequest { label: format!("GET {shown}"), method: Method::GET, url, headers, body: None };
        let received = sender.send(outgoing).await.map_err(OutboundError::into_unavailable)?;
        match received.status {
            StatusCode::NOT_MODIFIED if known.is_some() => Ok(FetchedDocument::Unchanged),
            StatusCode::OK => parse_response(&shown, received),
            status => {
                let message = format!("`{shown}` gives no document: it answered {status}");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }
}

pub(in crate::connector) async fn read_file(path: PathBuf, room: usize) -> Result<FetchedDocument> {
    // Looking at a file may wait for a disk: not on a thread that others wait for.
    let read = tokio::task::spawn_blocking(move || {
        let (text, hash) = read_file_blocking(&path, room)?;
        Ok(FetchedDocument::Text { text, version: DocumentVersion { etag: None, hash } })
    });
    read.await.context(Code::Internal, "a file could not be read")?
}

/// The text of a file of at most `room` bytes, and its hash.
pub(crate) fn read_file_blocking(path: &Path, room: usize) -> Result<(String, Fingerprint)> {
    let shown = sanitize_truncated(&path.to_string_lossy(), 300);
    let about = std::fs::metadata(path).map_err(|error| unreadable_error(path, &error))?;
    // Before it is opened: opening a pipe would wait until a process writes to it.
    if !about.is_file() {
        return Err(Error::new(Code::ConfigInvalid, format!("`{shown}` is not a plain file")));
    }
    if about.len() > room as u64 {
        return Err(too_large_error(&shown));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable_error(path, &error))?;
    let mut bytes = Vec::new();
    file.take(room as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable_error(path, &error))?;
    if bytes.len() > room {
        return Err(too_large_error(&shown));
    }
    let hash = Fingerprint::digest(&bytes);
    Ok((decode_text(&shown, bytes)?, hash))
}

fn parse_response(shown: &str, received: ReceivedResponse) -> Result<FetchedDocument> {
    if received.is_truncated {
        return Err(too_large_error(shown));
    }
    let etag = received.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
    let etag = etag.filter(|etag| etag.len() <= MAX_ETAG_LEN).map(str::to_owned);
    let hash = Fingerprint::digest(&received.body);
    Ok(FetchedDocument::Text { text: decode_text(shown, received.body)?, version: DocumentVersion { etag, hash } })
}

/// A stray byte of another alphabet costs no document; what is no text at all does.
fn decode_text(shown: &str, bytes: Vec<u8>) -> Result<String> {
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

fn too_large_error(shown: &str) -> Error {
    Error::new(Code::ConfigInvalid, format!("`{shown}` is larger than 64 MiB, with what was read before it"))
}

pub(super) fn unreadable_error(path: &Path, error: &std::io::Error) -> Error {
    let shown = sanitize_truncated(&path.to_string_lossy(), 300);
    Error::new(Code::ConfigInvalid, format!("`{shown}` cannot be read: {error}"))
}
