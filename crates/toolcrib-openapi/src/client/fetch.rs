//! Reads one document from a regular file or over HTTP, with the version by which it is recognised next time.
//!
//! Which document may be read is decided in `documents`; this module only reads it, bounded in size.

use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::json;
use toolcrib_connector::HttpRejection;
use toolcrib_connector::document::{DocumentVersion, decode_text, too_large_error};
use toolcrib_connector::trace::Trace;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::OpenApiConnector;
use super::credentials::{apply_auth, document_auth};
use super::error_response::classify_rejection;
use super::resolved_source::ResolvedSource;
use super::retry::retry_after_header;
use super::send::{OutboundError, OutboundRequest, OutboundSender, ReceivedResponse, display_url};
use super::url_policy::UrlPolicy;

/// Formats an OpenAPI document may have; servers that ignore `Accept` are fine, too.
const ACCEPT_HEADER: &str = "application/json, application/yaml, application/vnd.oai.openapi+json, */*;q=0.8";
/// Longer tags are not stored; the content hash serves instead.
const MAX_ETAG_LEN: usize = 1024;

/// Outcome of reading a document.
#[derive(Debug)]
pub(super) enum FetchedDocument {
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
            let url_policy = &self.resolved.url_policy;
            let tokens = tokens.tokens_for(&values, clients, url_policy, source.settings.connect_timeout()).await;
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
            _ => Err(self.refusal(&shown_url, &received)),
        }
    }
}

impl DocumentFetch<'_> {
    /// Error for a response without a document, as for the endpoint of an MCP server.
    fn refusal(&self, shown_url: &str, received: &ReceivedResponse) -> Error {
        let status = received.status.as_u16();
        let message = format!("`{shown_url}` answered {} instead of a document", received.status);
        let retry_after = retry_after_header(&received.headers, self.connector.clock.now());
        let rejection = match status {
            404 | 405 | 410 => Some(HttpRejection::NoEndpoint),
            _ => classify_rejection(received, retry_after),
        };
        match rejection {
            Some(rejection) => rejection.to_error(status, message, json!({})),
            None => {
                let is_transient = matches!(status, 408 | 425) || received.status.is_server_error();
                Error::new(Code::ToolUnavailable, message).with_retryable(is_transient)
            }
        }
    }
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
