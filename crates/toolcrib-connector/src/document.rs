//! Documents that describe a source, for the connectors that read one: their location, versions and text, within
//! bounds.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt};
use url::Url;

use crate::connector::Discovered;

/// Maximum size of the documents of a source, together.
pub const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;

/// Location of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentLocation {
    /// Path as configured; relative to the working directory if it is relative.
    File(PathBuf),
    /// http or https, with login and query as configured.
    Remote(Url),
}

/// Versions of the documents a tool list was read from, by document URL. Stored as a row beside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DocumentVersions {
    /// Name and version of the converter. Another version may derive other tools from the same documents.
    pub reader: String,
    /// Versions by URL, without credentials.
    pub documents: BTreeMap<String, DocumentVersion>,
}

/// Identifies the content of one document: by HTTP `ETag` where the server sends one, else by hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentVersion {
    /// Sent back as `If-None-Match`.
    pub etag: Option<String>,
    /// SHA-256 of the content.
    pub hash: Fingerprint,
}

impl DocumentLocation {
    /// Parses a URL or a path, as configured.
    pub fn parse(text: &str) -> Result<DocumentLocation> {
        let scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if scheme("http://") || scheme("https://") {
            return Ok(DocumentLocation::Remote(parse_http_url(text, "openapi")?));
        }
        if scheme("file:") {
            let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
            return path
                .map(DocumentLocation::File)
                .ok_or_else(|| Error::new(Code::ConfigInvalid, "the `file:` URL is invalid"));
        }
        // Anything else is a path.
        Ok(DocumentLocation::File(PathBuf::from(text)))
    }

    /// URL of a remote document.
    pub fn url(&self) -> Option<&Url> {
        match self {
            DocumentLocation::File(_) => None,
            DocumentLocation::Remote(url) => Some(url),
        }
    }
}

/// Parses an http or https URL. The error omits the text, which may contain a resolved reference.
pub fn parse_http_url(text: &str, key: &str) -> Result<Url> {
    let invalid = || Error::new(Code::ConfigInvalid, format!("`{key}` is not a valid http or https address"));
    let url = Url::parse(text).map_err(|_| invalid())?;
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    if is_http { Ok(url) } else { Err(invalid()) }
}

/// Reads a file of at most `max_bytes` bytes.
pub async fn read_file(path: PathBuf, max_bytes: usize) -> Result<(String, DocumentVersion)> {
    // File systems block: keep them off the async workers.
    run_blocking(move || {
        let (text, hash) = read_file_blocking(&path, max_bytes)?;
        Ok((text, DocumentVersion { etag: None, hash }))
    })
    .await
}

/// Reads a text file of at most `max_bytes` bytes, and its hash.
pub fn read_file_blocking(path: &Path, max_bytes: usize) -> Result<(String, Fingerprint)> {
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

/// Decodes UTF-8 with or without byte order mark. Single invalid bytes are replaced, since old documents contain
/// Latin-1 in descriptions; binary content is an error.
pub fn decode_text(shown_url: &str, bytes: Vec<u8>) -> Result<String> {
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

/// Error for a document that exceeds the limit on its size.
pub fn too_large_error(shown_url: &str) -> Error {
    Error::new(
        Code::ConfigInvalid,
        format!("`{shown_url}` is larger than 64 MiB, together with the documents read before it"),
    )
}

/// Error for a file that cannot be opened or read.
pub fn unreadable_error(path: &Path, error: &std::io::Error) -> Error {
    let shown_url = sanitize_truncated(&path.to_string_lossy(), 300);
    Error::new(Code::ConfigInvalid, format!("`{shown_url}` cannot be read: {error}"))
}

/// Runs work that takes long, such as parsing a large document, on the blocking thread pool, not on an async worker.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context(Code::Internal, "work on a blocking thread was interrupted")?
}

/// Bounds a discovery that reads a document.
pub async fn discover_in_time(
    timeout: Duration,
    discovery: impl Future<Output = Result<Discovered>>,
) -> Result<Discovered> {
    let timed_out = |_| {
        let message = format!("the document was not read within {}", format_duration(timeout));
        Error::new(Code::ToolUnavailable, message)
    };
    tokio::time::timeout(timeout, discovery).await.map_err(timed_out)?
}
