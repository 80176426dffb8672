//! Sends one HTTP request: with the client for its network scope, through permitted redirects, reading a response of
//! bounded size.
//!
//! No retries and no credentials here: `call` adds both. Redirects are followed here and not by the HTTP client,
//! because each target must be checked and loses the headers that are for the first server.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};
use toolcrib_connector::address_policy::{BlockedAddress, NetworkScope, find_blocked_address};
use toolcrib_connector::document::run_blocking;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error};
use url::Url;

use super::content_encoding::{ACCEPTED_ENCODINGS, Compression, ContentEncoding, DecodedBody, decode};
use super::http_clients::OpenApiClients;
use super::url_policy::UrlPolicy;

/// Redirects followed for one request; login pages that redirect to themselves end here.
const MAX_REDIRECTS: usize = 5;

/// Bytes of a compressed body that are read before its decoded size is checked for the first time.
const FIRST_DECODED_BYTES: usize = 16 * 1024;

/// HTTP request ready to send.
#[derive(Debug, Clone)]
pub(super) struct OutboundRequest {
    /// For messages: `GET /pets/{id}`.
    pub(super) label: String,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// Shared between attempts without a copy.
    pub(super) body: Option<Bytes>,
}

/// Response with its body, which is decoded and may be cut at the limit.
#[derive(Debug)]
pub(super) struct ReceivedResponse {
    pub(super) status: StatusCode,
    /// Without `Content-Encoding` and `Content-Length` if the body was decoded.
    pub(super) headers: HeaderMap,
    /// URL after redirects, with credentials if they are in the query.
    pub(super) url: Url,
    /// The same without login, query and fragment, for results and messages.
    pub(super) shown_url: String,
    pub(super) body: Vec<u8>,
    /// The body was longer than the limit.
    pub(super) is_truncated: bool,
}

/// Failure without a response. The variants decide about retries.
#[derive(Debug)]
pub(super) enum OutboundError {
    /// Not sent because a rule forbids it, or redirected to where nothing may be sent.
    Rejected(Error),
    /// No connection; nothing was sent.
    Unreachable(Error),
    /// Sent, but the response is missing or incomplete.
    Interrupted(Error),
}

/// Sends requests of one source.
#[derive(Debug)]
pub(super) struct OutboundSender<'a> {
    pub(super) clients: &'a OpenApiClients,
    /// Decides about the first URL and about redirects to other servers.
    pub(super) url_policy: &'a UrlPolicy,
    pub(super) connect_timeout: Duration,
    /// Maximum size of a response body, as sent and after decoding.
    pub(super) max_response_bytes: usize,
}

impl OutboundSender<'_> {
    /// Sends a request, follows redirects and reads the response.
    pub(super) async fn send(&self, mut request: OutboundRequest) -> Result<ReceivedResponse, OutboundError> {
        // The scope is decided anew for each other origin on the way.
        let mut scope =
            self.url_policy.scope_for(&request.url).map_err(|blocked| forbidden_error(&request, &blocked))?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&request, scope).await?;
            let Some(target) = redirect_target(&response) else { return self.read_response(&request, response).await };
            let target = target.ok_or_else(|| rejected_error(&request, "was redirected to an invalid URL"))?;
            scope = self.follow_redirect(&mut request, response.status(), target, scope)?;
        }
        Err(rejected_error(&request, &format!("was redirected more than {MAX_REDIRECTS} times")))
    }

    /// Sends a request and reads the response, even if that is a redirect.
    pub(super) async fn send_without_redirects(
        &self,
        request: OutboundRequest,
    ) -> Result<ReceivedResponse, OutboundError> {
        let scope = self.url_policy.scope_for(&request.url).map_err(|blocked| forbidden_error(&request, &blocked))?;
        let response = self.send_once(&request, scope).await?;
        self.read_response(&request, response).await
    }

    /// Sends the request once over the client of the given scope.
    async fn send_once(
        &self,
        request: &OutboundRequest,
        scope: NetworkScope,
    ) -> Result<reqwest::Response, OutboundError> {
        let client = self.clients.get(scope, self.connect_timeout).map_err(OutboundError::Rejected)?;
        let mut builder = client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        // Methods whose requests have a body by definition, if only an empty one.
        let has_length = matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
        match &request.body {
            Some(body) if !body.is_empty() => builder = builder.body(body.clone()),
            // reqwest omits the header for an empty body, and some servers then wait for one.
            Some(_) => builder = builder.header(CONTENT_LENGTH, 0),
            None if has_length => builder = builder.header(CONTENT_LENGTH, 0),
            None => {}
        }
        // A source or an argument may ask for another encoding, or for none.
        if !request.headers.contains_key(ACCEPT_ENCODING) {
            builder = builder.header(ACCEPT_ENCODING, ACCEPTED_ENCODINGS);
        }
        builder.send().await.map_err(|error| self.classify_error(request, error))
    }

    /// Turns the request into one to the redirect target, as browsers do, and returns the scope for it. Fails if the
    /// redirect must not be followed.
    fn follow_redirect(
        &self,
        request: &mut OutboundRequest,
        status: StatusCode,
        target: Url,
        scope: NetworkScope,
    ) -> Result<NetworkScope, OutboundError> {
        let is_same_origin = target.origin() == request.url.origin();
        let not_followed =
            |reason: &str| rejected_error(request, &format!("was redirected to `{}`, {reason}", display_url(&target)));
        let next_scope = if is_same_origin {
            scope
        } else {
            // 303 See Other explicitly asks for a GET elsewhere; other redirects would resend the body to another
            // server.
            if !matches!(request.method, Method::GET | Method::HEAD) && status != StatusCode::SEE_OTHER {
                return Err(not_followed("which is another server: only GET is sent there"));
            }
            if request.url.scheme() == "https" && target.scheme() == "http" {
                return Err(not_followed("which is not encrypted"));
            }
            self.url_policy
                .scope_for_redirect(&target)
                .map_err(|blocked| not_followed(&format!("where nothing is sent: {blocked}")))?
        };
        // Browsers change POST to GET on 301 and 302 as well.
        let becomes_get = match status.as_u16() {
            303 => request.method != Method::HEAD,
            301 | 302 => request.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            request.method = Method::GET;
            request.body = None;
            request.headers.remove(CONTENT_TYPE);
        }
        if !is_same_origin {
            // Credentials, cookies and argument headers are for the declared server only.
            let accept = request.headers.remove(ACCEPT);
            request.headers = accept.map(|accept| (ACCEPT, accept)).into_iter().collect();
        }
        request.url = target;
        Ok(next_scope)
    }

    /// Reads the body up to the limit and decodes it.
    async fn read_response(
        &self,
        request: &OutboundRequest,
        mut response: reqwest::Response,
    ) -> Result<ReceivedResponse, OutboundError> {
        let status = response.status();
        let mut headers = response.headers().clone();
        let encoding = ContentEncoding::from_headers(&headers);
        let mut body = Vec::new();
        // Stop at the limit without reading the rest: the connection is dropped instead of reused.
        let mut is_truncated = false;
        let mut next_check = FIRST_DECODED_BYTES;
        while let Some(chunk) = response.chunk().await.map_err(|error| self.classify_error(request, error))? {
            let remaining = self.max_response_bytes - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
            if chunk.len() > remaining {
                is_truncated = true;
                break;
            }
            // A compressed body may pass the limit, or never end, while its bytes as sent are few. The intervals double,
            // so that decoding from the start takes no more than twice the time of decoding once.
            if let ContentEncoding::Compressed(compressions) = &encoding
                && body.len() >= next_check
            {
                next_check = 2 * body.len();
                (body, is_truncated) = self.check_decoded_size(body, compressions.clone()).await?;
                if is_truncated {
                    break;
                }
            }
        }
        // Responses to HEAD, and those without content, name an encoding and have no body.
        if let ContentEncoding::Compressed(compressions) = encoding
            && !body.is_empty()
        {
            let decoded = self.decode_body(request, body, compressions, is_truncated).await?;
            DecodedBody { bytes: body, is_truncated } = decoded;
            headers.remove(CONTENT_ENCODING);
            headers.remove(CONTENT_LENGTH);
        }
        let shown_url = display_url(&request.url);
        Ok(ReceivedResponse { status, headers, url: request.url.clone(), shown_url, body, is_truncated })
    }

    /// Returns the body, and whether the part that was read exceeds the limit when it is decoded.
    async fn check_decoded_size(
        &self,
        body: Vec<u8>,
        compressions: Vec<Compression>,
    ) -> Result<(Vec<u8>, bool), OutboundError> {
        let max_bytes = self.max_response_bytes;
        let check = move || {
            // The part ends too early, or is invalid: then the whole body fails in the end.
            let is_truncated = decode(&body, &compressions, max_bytes).is_ok_and(|decoded| decoded.is_truncated);
            Ok((body, is_truncated))
        };
        run_blocking(check).await.map_err(OutboundError::Rejected)
    }

    /// Decodes a body on a blocking thread. Nothing remains of a body that was cut before it was decoded.
    async fn decode_body(
        &self,
        request: &OutboundRequest,
        body: Vec<u8>,
        compressions: Vec<Compression>,
        is_truncated: bool,
    ) -> Result<DecodedBody, OutboundError> {
        if is_truncated {
            return Ok(DecodedBody { bytes: Vec::new(), is_truncated });
        }
        let max_bytes = self.max_response_bytes;
        let decoded = run_blocking(move || Ok(decode(&body, &compressions, max_bytes))).await;
        let encoding_error = |reason: &str| {
            let message = format!("the response to `{}` cannot be decoded: {reason}", request.label);
            Error::new(Code::ToolExecutionFailed, message)
        };
        match decoded.map_err(OutboundError::Rejected)? {
            Ok(decoded) => Ok(decoded),
            // The only sign of a lost connection when the response has no length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(OutboundError::Interrupted(encoding_error("its compressed body is incomplete").with_cause(error)))
            }
            Err(error) => {
                let error = encoding_error("its body is not what its `Content-Encoding` says").with_cause(error);
                Err(OutboundError::Rejected(error))
            }
        }
    }

    /// Classifies an error of the HTTP client. The URL is removed from it: its query may contain a key.
    fn classify_error(&self, request: &OutboundRequest, error: reqwest::Error) -> OutboundError {
        // Our own resolver refused the address; reqwest reports that as a failed connection.
        if let Some(blocked) = find_blocked_address(&error) {
            return forbidden_error(request, blocked);
        }
        let label = &request.label;
        let shown_url = display_origin(&request.url);
        // The cause is logged: remove the URL before anything reads the error.
        let error = error.without_url();
        let reason = sanitize_truncated(&root_cause(&error), 200);
        if error.is_builder() {
            let message = format!("`{label}` cannot be sent: {reason}");
            return OutboundError::Rejected(Error::new(Code::ToolInvalidInput, message));
        }
        if error.is_connect() {
            let message = if error.is_timeout() {
                format!("`{shown_url}` cannot be reached within {}", format_duration(self.connect_timeout))
            } else {
                format!("`{shown_url}` cannot be reached: {reason}")
            };
            return OutboundError::Unreachable(Error::new(Code::ToolUnavailable, message).with_cause(error));
        }
        // Sent, or partly sent: the API may have acted on it.
        let message = format!("the response to `{label}` from `{shown_url}` was interrupted: {reason}");
        OutboundError::Interrupted(Error::new(Code::ToolExecutionFailed, message).with_cause(error))
    }
}

impl OutboundError {
    /// Sets whether the caller may repeat a request that was sent without getting a complete response.
    pub(super) fn with_repeatable(self, is_idempotent: bool) -> OutboundError {
        match self {
            OutboundError::Interrupted(error) => OutboundError::Interrupted(error.with_retryable(is_idempotent)),
            OutboundError::Rejected(_) | OutboundError::Unreachable(_) => self,
        }
    }

    /// Drops the classification.
    pub(super) fn into_error(self) -> Error {
        match self {
            OutboundError::Rejected(error) | OutboundError::Unreachable(error) | OutboundError::Interrupted(error) => {
                error
            }
        }
    }

    /// Error for a request that is not the tool call itself, such as fetching a document or token.
    pub(super) fn into_unavailable(self) -> Error {
        let is_rejected = matches!(self, OutboundError::Rejected(_));
        let mut error = self.into_error();
        error.code = Code::ToolUnavailable;
        error.with_retryable(!is_rejected)
    }
}

/// Redirect target of a response: `None` if it is no redirect, `Some(None)` if the target is no http URL.
fn redirect_target(response: &reqwest::Response) -> Option<Option<Url>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let target = location.to_str().ok().and_then(|location| response.url().join(location).ok());
    Some(target.filter(|target| matches!(target.scheme(), "http" | "https")).map(strip_login))
}

/// Removes user and password from a URL.
pub(super) fn strip_login(mut url: Url) -> Url {
    // Fails for URLs that cannot have a login, which is fine.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// Error for a request that was sent and cannot be continued.
fn rejected_error(request: &OutboundRequest, what: &str) -> OutboundError {
    OutboundError::Rejected(Error::new(Code::ToolExecutionFailed, format!("`{}` {what}", request.label)))
}

/// Error for a request that the address policy blocks.
fn forbidden_error(request: &OutboundRequest, blocked: &BlockedAddress) -> OutboundError {
    let message = format!("`{}` is not sent: {blocked}", request.label);
    OutboundError::Rejected(Error::new(Code::ToolUnavailable, message).with_retryable(false))
}

/// URL for messages: origin and path, without the parts that may be secret.
pub(super) fn display_url(url: &Url) -> String {
    sanitize_truncated(&format!("{}{}", display_origin(url), url.path()), 300)
}

/// Scheme, host and port of a URL, for messages.
pub(super) fn display_origin(url: &Url) -> String {
    sanitize_truncated(&url.origin().ascii_serialization(), 200)
}

/// Innermost cause, which says more than reqwest's own message.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use toolcrib_core::source::OpenApiSource;

    use super::*;

    #[test]
    fn redirects_never_weaken_the_request() {
        let check = |method: Method, status: u16, from: &str, to: &str| {
            let url_policy =
                UrlPolicy::new(&OpenApiSource { allow_private: true, ..OpenApiSource::default() }, None, None);
            let clients = OpenApiClients::default();
            let sender = OutboundSender {
                clients: &clients,
                url_policy: &url_policy,
                connect_timeout: Duration::ZERO,
                max_response_bytes: 0,
            };
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("a/b"))]);
            let url = Url::parse(from).unwrap();
            let mut request = OutboundRequest { label: "x".into(), method, url, headers, body: Some(Bytes::new()) };
            let status = StatusCode::from_u16(status).unwrap();
            let followed =
                sender.follow_redirect(&mut request, status, Url::parse(to).unwrap(), NetworkScope::Anywhere);
            assert_eq!(request.headers.len(), 1);
            followed.ok().map(|_| request.method.to_string())
        };
        let safe = "https://a/";
        let open = "http://a/";
        let other = "https://b/";
        for (method, status, from, to, expected) in [
            (Method::GET, 302, safe, open, None),
            (Method::GET, 302, open, safe, Some("GET")),
            (Method::GET, 302, safe, other, Some("GET")),
            (Method::HEAD, 303, safe, other, Some("HEAD")),
            (Method::POST, 302, safe, other, None),
            (Method::POST, 307, safe, other, None),
            (Method::POST, 303, safe, other, Some("GET")),
            (Method::POST, 303, safe, open, None),
            (Method::PUT, 302, safe, safe, Some("PUT")),
            (Method::DELETE, 303, safe, safe, Some("GET")),
        ] {
            assert_eq!(check(method.clone(), status, from, to).as_deref(), expected, "{method} {status} {from} {to}");
        }
    }
}
