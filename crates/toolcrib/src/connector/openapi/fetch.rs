//! Reads one document from a regular file or over HTTP, with the version by which it is recognised next time.
//!
//! Which document may be read is decided in `documents`; this module only reads it, bounded in size.

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

/// Formats an OpenAPI document may have; servers that ignore `Accept` are fine, too.
const ACCEPT_HEADER: &str = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.8";
/// Longer tags are not stored; the content hash serves instead.
const MAX_ETAG_LEN: usize = 1024;

/// Outcome of reading a document.
pub(in crate::connector) enum FetchedDocument {
    /// The server confirmed the known version (304 Not Modified).
    Unchanged,
    /// Content, with the version to recognise it by next time.
    Text { text: String, version: DocumentVersion },
}

/// Request for one remote document.
#[derive(Debug)]
pub(super) struct DocumentFetch<'a> {
    pub(super) connector: &'a OpenApiConnector,
    pub(super) resolved: &'a ResolvedSource,
    /// Whether the URL has the main document's origin, which the credentials are for.
    pub(super) send_credentials: bool,
    /// Size limit: what is left of the total for all documents.
    pub(super) max_bytes: usize,
    pub(super) trace: Option<&'a Trace>,
}

impl DocumentFetch<'_> {
    /// Fetches the document, conditionally if a version is known.
    pub(super) async fn fetch_url(&self, mut url: Url, known: Option<&DocumentVersion>) -> Result<FetchedDocument> {
        let shown_url = display_url(&url);
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(ACCEPT_HEADER))]);
        if let Some(etag) = known.and_then(|version| HeaderValue::try_from(version.etag.as_deref()?).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        // The document may be protected like the API itself.
        if self.send_credentials {
            headers.extend(self.resolved.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
            let values = document_auth(&self.resolved.credentials)?;
            let OpenApiConnector { source, clients, tokens, .. } = self.connector;
            let tokens = tokens.tokens_for(&values, clients, source.settings.connect_timeout()).await;
            apply_auth(&values, &tokens.map_err(OutboundError::into_error)?, &mut url, &mut headers)?;
        }
        if let Some(trace) = self.trace {
            trace.add_to_headers(&mut headers);
        }
        // The configuration permits this URL itself. The policy has no configured origins, so that redirects are
        // checked.
        let url_policy = UrlPolicy::new(&self.resolved.openapi, None, None);
        let connect_timeout = self.connector.source.settings.connect_timeout();
        let clients = &self.connector.clients;
        let sender =
            OutboundSender { clients, url_policy: &url_policy, connect_timeout, max_response_bytes: self.max_bytes };
        let request =
            OutboundRequest { label: format!("GET {shown_url}"), method: Method::GET, url, headers, body: None };
        let received = sender.send(request).await.map_err(OutboundError::into_unavailable)?;
        match received.status {
            // Only if a version was sent; an unconditional request must not be answered like this.
            StatusCode::NOT_MODIFIED if known.is_some() => Ok(FetchedDocument::Unchanged),
            StatusCode::OK => parse_response(&shown_url, received),
            status => {
                let message = format!("`{shown_url}` answered {status} instead of a document");
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }
}

/// Reads a file of at most `max_bytes` bytes.
pub(in crate::connector) async fn read_file(path: PathBuf, max_bytes: usize) -> Result<FetchedDocument> {
    // File systems block: keep them off the async workers.
    let read = tokio::task::spawn_blocking(move || {
        let (text, hash) = read_file_blocking(&path, max_bytes)?;
        Ok(FetchedDocument::Text { text, version: DocumentVersion { etag: None, hash } })
    });
    read.await.context(Code::Internal, "reading a file was interrupted")?
}

/// Reads a text file of at most `max_bytes` bytes, and its hash.
pub(crate) fn read_file_blocking(path: &Path, max_bytes: usize) -> Result<(String, Fingerprint)> {
    let shown_url = sanitize_truncated(&path.to_string_lossy(), 300);
    let metadata = std::fs::metadata(path).map_err(|error| unreadable_error(path, &error))?;
    // Check before opening: opening a named pipe would block until a process writes to it.
    if !metadata.is_file() {
        return Err(Error::new(Code::ConfigInvalid, format!("`{shown_url}` is not a regular file")));
    }
    if metadata.len() > max_bytes as u64 {
        return Err(too_large_error(&shown_url));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable_error(path, &error))?;
    // The file may have grown since its size was read, so the limit is enforced while reading, too.
    let mut bytes = Vec::new();
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable_error(path, &error))?;
    if bytes.len() > max_bytes {
        return Err(too_large_error(&shown_url));
    }
    let hash = Fingerprint::digest(&bytes);
    Ok((decode_text(&shown_url, bytes)?, hash))
}

/// Text and version of a successful response.
fn parse_response(shown_url: &str, received: ReceivedResponse) -> Result<FetchedDocument> {
    if received.is_truncated {
        return Err(too_large_error(shown_url));
    }
    let etag = received.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
    let etag = etag.filter(|etag| etag.len() <= MAX_ETAG_LEN).map(str::to_owned);
    // The hash covers the bytes as received: a server without `ETag` is compared by it.
    let hash = Fingerprint::digest(&received.body);
    Ok(FetchedDocument::Text { text: decode_text(shown_url, received.body)?, version: DocumentVersion { etag, hash } })
}

/// Decodes UTF-8 with or without byte order mark. Single invalid bytes are replaced, since old documents contain
/// Latin-1 in descriptions; binary content is an error.
fn decode_text(shown_url: &str, bytes: Vec<u8>) -> Result<String> {
    let invalid = |what: &str| Error::new(Code::ConfigInvalid, format!("`{shown_url}` is {what}"));
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(invalid("compressed with gzip; decompress it"));
    }
    if bytes.iter().take(1024).any(|byte| *byte == 0) {
        return Err(invalid("not UTF-8 text"));
    }
    let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn too_large_error(shown_url: &str) -> Error {
    Error::new(
        Code::ConfigInvalid,
        format!("`{shown_url}` is larger than 64 MiB, together with the documents read before it"),
    )
}

/// Error for a file that cannot be opened or read.
pub(super) fn unreadable_error(path: &Path, error: &std::io::Error) -> Error {
    let shown_url = sanitize_truncated(&path.to_string_lossy(), 300);
    Error::new(Code::ConfigInvalid, format!("`{shown_url}` cannot be read: {error}"))
}
