//! One request on its way: over the client that may reach its address, through redirects that may be followed, and
//! back with an answer of bounded size.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error};
use url::Url;

use super::http_clients::{NetworkScope, OpenApiClients};
use super::url_policy::UrlPolicy;
use crate::address_policy::find_blocked_address;

const MAX_REDIRECTS: usize = 5;

#[derive(Debug, Clone)]
pub(super) struct OutboundRequest {
    /// For messages: `GET /pets/{id}`.
    pub(super) label: String,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct ReceivedResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Where it came from, in the end.
    pub(super) url: Url,
    /// The same, fit to be shown.
    pub(super) shown_url: String,
    pub(super) body: Vec<u8>,
    /// The body went on beyond its bound.
    pub(super) is_truncated: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum OutboundError {
    /// It may not be sent, or the answer points where nothing may be sent.
    Rejected(Error),
    /// No connection: nothing was sent.
    Unreachable(Error),
    /// It was sent, and no whole answer came.
    Interrupted(Error),
}

/// What sends the requests of one source.
#[derive(Debug)]
pub(super) struct OutboundSender<'a> {
    pub(super) clients: &'a OpenApiClients,
    pub(super) url_policy: &'a UrlPolicy,
    pub(super) connect_timeout: Duration,
    /// Bytes of an answer.
    pub(super) max_response_bytes: usize,
}

impl OutboundSender<'_> {
    /// Sends a request and reads its answer.
    pub(super) async fn send(&self, mut outgoing: OutboundRequest) -> Result<ReceivedResponse, OutboundError> {
        let mut reach =
            self.url_policy.scope_for(&outgoing.url).map_err(|refused| forbidden_error(&outgoing, &refused))?;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&outgoing, reach).await?;
            let Some(target) = redirect_target(&response) else { return self.read_response(&outgoing, response).await };
            let target = target.ok_or_else(|| rejected_error(&outgoing, "was redirected to no valid address"))?;
            reach = self.follow_redirect(&mut outgoing, response.status(), target, reach)?;
        }
        Err(rejected_error(&outgoing, &format!("was redirected more than {MAX_REDIRECTS} times")))
    }

    /// The same, but an answer that points elsewhere is the answer.
    pub(super) async fn send_without_redirects(
        &self,
        outgoing: OutboundRequest,
    ) -> Result<ReceivedResponse, OutboundError> {
        let reach = self.url_policy.scope_for(&outgoing.url).map_err(|refused| forbidden_error(&outgoing, &refused))?;
        let response = self.send_once(&outgoing, reach).await?;
        self.read_response(&outgoing, response).await
    }

    async fn send_once(
        &self,
        outgoing: &OutboundRequest,
        reach: NetworkScope,
    ) -> Result<reqwest::Response, OutboundError> {
        let client = self.clients.get(reach, self.connect_timeout).map_err(OutboundError::Rejected)?;
        let mut request =
            client.request(outgoing.method.clone(), outgoing.url.clone()).headers(outgoing.headers.clone());
        let has_length = matches!(outgoing.method, Method::POST | Method::PUT | Method::PATCH);
        match &outgoing.body {
            Some(body) if !body.is_empty() => request = request.body(body.clone()),
            // Said in so many words, for some servers wait for a body otherwise.
            Some(_) => request = request.header(CONTENT_LENGTH, 0),
            None if has_length => request = request.header(CONTENT_LENGTH, 0),
            None => {}
        }
        request.send().await.map_err(|error| self.classify_error(outgoing, error))
    }

    /// Makes the request one to where its answer points, as browsers do, or says why not.
    fn follow_redirect(
        &self,
        outgoing: &mut OutboundRequest,
        status: StatusCode,
        target: Url,
        reach: NetworkScope,
    ) -> Result<NetworkScope, OutboundError> {
        let same = target.origin() == outgoing.url.origin();
        let refuse =
            |why: &str| rejected_error(outgoing, &format!("was redirected to `{}`, {why}", display_url(&target)));
        let next_reach = if same {
            reach
        } else {
            // 303 says in so many words that this is another thing to look at; the others, that it has moved.
            if !matches!(outgoing.method, Method::GET | Method::HEAD) && status != StatusCode::SEE_OTHER {
                return Err(refuse("which is another server: only GET is sent there"));
            }
            if outgoing.url.scheme() == "https" && target.scheme() == "http" {
                return Err(refuse("which is not encrypted"));
            }
            self.url_policy
                .scope_for_redirect(&target)
                .map_err(|refused| refuse(&format!("where nothing is sent: {refused}")))?
        };
        let becomes_get = match status.as_u16() {
            303 => outgoing.method != Method::HEAD,
            301 | 302 => outgoing.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            outgoing.method = Method::GET;
            outgoing.body = None;
            outgoing.headers.remove(CONTENT_TYPE);
        }
        if !same {
            // Everything else was meant for the declared server: credentials, cookies, arguments.
            let accept = outgoing.headers.remove(ACCEPT);
            outgoing.headers = accept.map(|accept| (ACCEPT, accept)).into_iter().collect();
        }
        outgoing.url = target;
        Ok(next_reach)
    }

    async fn read_response(
        &self,
        outgoing: &OutboundRequest,
        mut response: reqwest::Response,
    ) -> Result<ReceivedResponse, OutboundError> {
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = Vec::new();
        let mut cut = false;
        while let Some(chunk) = response.chunk().await.map_err(|error| self.classify_error(outgoing, error))? {
            let room = self.max_response_bytes - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                cut = true;
                break;
            }
        }
        let place = display_url(&outgoing.url);
        Ok(ReceivedResponse { status, headers, url: outgoing.url.clone(), shown_url: place, body, is_truncated: cut })
    }

    /// Without the address: its query may hold a key.
    fn classify_error(&self, outgoing: &OutboundRequest, error: reqwest::Error) -> OutboundError {
        if let Some(refused) = find_blocked_address(&error) {
            return forbidden_error(outgoing, refused);
        }
        let label = &outgoing.label;
        let place = display_origin(&outgoing.url);
        let error = error.without_url();
        let reason = sanitize_truncated(&root_cause(&error), 200);
        if error.is_builder() {
            let message = format!("`{label}` cannot be sent: {reason}");
            return OutboundError::Rejected(Error::new(Code::ToolInvalidInput, message));
        }
        if error.is_connect() {
            let message = match error.is_timeout() {
                true => format!("`{place}` cannot be reached within {}", format_duration(self.connect_timeout)),
                false => format!("`{place}` cannot be reached: {reason}"),
            };
            return OutboundError::Unreachable(Error::new(Code::ToolUnavailable, message).with_cause(error));
        }
        let message = format!("the answer to `{label}` from `{place}` broke off: {reason}");
        OutboundError::Interrupted(Error::new(Code::ToolExecutionFailed, message).with_cause(error))
    }
}

impl OutboundError {
    pub(super) fn into_error(self) -> Error {
        match self {
            OutboundError::Rejected(error) | OutboundError::Unreachable(error) | OutboundError::Interrupted(error) => {
                error
            }
        }
    }

    /// Of a request that is no call, so that no tool was asked for anything.
    pub(super) fn into_unavailable(self) -> Error {
        let refused = matches!(self, OutboundError::Rejected(_));
        let mut error = self.into_error();
        error.code = Code::ToolUnavailable;
        error.with_retryable(!refused)
    }
}

/// Where an answer points, if it does; inside, nothing where that is no address.
fn redirect_target(response: &reqwest::Response) -> Option<Option<Url>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let target = location.to_str().ok().and_then(|location| response.url().join(location).ok());
    Some(target.filter(|target| matches!(target.scheme(), "http" | "https")).map(strip_login))
}

pub(super) fn strip_login(mut url: Url) -> Url {
    // These fail for addresses that cannot have a login, which have none then.
    let _none = url.set_username("");
    let _none = url.set_password(None);
    url
}

fn rejected_error(outgoing: &OutboundRequest, what: &str) -> OutboundError {
    OutboundError::Rejected(Error::new(Code::ToolExecutionFailed, format!("`{}` {what}", outgoing.label)))
}

fn forbidden_error(outgoing: &OutboundRequest, refused: &crate::address_policy::BlockedAddress) -> OutboundError {
    let message = format!("`{}` is not sent: {refused}", outgoing.label);
    OutboundError::Rejected(Error::new(Code::ToolUnavailable, message).with_retryable(false))
}

/// An address without what may be secret in it.
pub(super) fn display_url(url: &Url) -> String {
    sanitize_truncated(&format!("{}{}", display_origin(url), url.path()), 300)
}

pub(super) fn display_origin(url: &Url) -> String {
    sanitize_truncated(&url.origin().ascii_serialization(), 200)
}

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
    fn what_is_followed_is_never_less_safe_than_what_was_asked() {
        let check = |method: Method, status: u16, from: &str, to: &str| {
            let territory =
                UrlPolicy::new(&OpenApiSource { allow_private: true, ..OpenApiSource::default() }, None, None);
            let clients = OpenApiClients::default();
            let sender = OutboundSender {
                clients: &clients,
                url_policy: &territory,
                connect_timeout: Duration::ZERO,
                max_response_bytes: 0,
            };
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("a/b"))]);
            let url = Url::parse(from).unwrap();
            let mut outgoing = OutboundRequest { label: "x".into(), method, url, headers, body: Some(Bytes::new()) };
            let status = StatusCode::from_u16(status).unwrap();
            let followed =
                sender.follow_redirect(&mut outgoing, status, Url::parse(to).unwrap(), NetworkScope::Anywhere);
            assert_eq!(outgoing.headers.len(), 1);
            followed.ok().map(|_| outgoing.method.to_string())
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
