//! One request on its way: over the client that may reach its address, through redirects that may be followed, and
//! back with an answer of bounded size.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Method, StatusCode};
use toolcrib_core::text::shown_short;
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error};
use url::Url;

use super::clients::{Clients, Reach};
use super::territory::Territory;
use crate::network::refusal;

const MOST_REDIRECTS: usize = 5;

#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    /// For messages: `GET /pets/{id}`.
    pub(super) label: String,
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
}

#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Where it came from, in the end.
    pub(super) url: Url,
    /// The same, fit to be shown.
    pub(super) place: String,
    pub(super) body: Vec<u8>,
    /// The body went on beyond its bound.
    pub(super) cut: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// It may not be sent, or the answer points where nothing may be sent.
    Refused(Error),
    /// No connection: nothing was sent.
    Unreached(Error),
    /// It was sent, and no whole answer came.
    Broken(Error),
}

/// What sends the requests of one source.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    pub(super) clients: &'a Clients,
    pub(super) territory: &'a Territory,
    pub(super) connect_timeout: Duration,
    /// Bytes of an answer.
    pub(super) most: usize,
}

impl Sender<'_> {
    /// Sends a request and reads its answer.
    pub(super) async fn send(&self, mut outgoing: Outgoing) -> Result<Received, Failed> {
        let mut reach = self.territory.reach(&outgoing.url).map_err(|refused| forbidden(&outgoing, &refused))?;
        for _ in 0..=MOST_REDIRECTS {
            let response = self.once(&outgoing, reach).await?;
            let Some(target) = redirect(&response) else { return self.receive(&outgoing, response).await };
            let target = target.ok_or_else(|| failed(&outgoing, "was redirected to no valid address"))?;
            reach = self.follow(&mut outgoing, response.status(), target, reach)?;
        }
        Err(failed(&outgoing, &format!("was redirected more than {MOST_REDIRECTS} times")))
    }

    /// The same, but an answer that points elsewhere is the answer.
    pub(super) async fn send_and_stay(&self, outgoing: Outgoing) -> Result<Received, Failed> {
        let reach = self.territory.reach(&outgoing.url).map_err(|refused| forbidden(&outgoing, &refused))?;
        let response = self.once(&outgoing, reach).await?;
        self.receive(&outgoing, response).await
    }

    async fn once(&self, outgoing: &Outgoing, reach: Reach) -> Result<reqwest::Response, Failed> {
        let client = self.clients.get(reach, self.connect_timeout).map_err(Failed::Refused)?;
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
        request.send().await.map_err(|error| self.explain(outgoing, error))
    }

    /// Makes the request one to where its answer points, as browsers do, or says why not.
    fn follow(&self, outgoing: &mut Outgoing, status: StatusCode, target: Url, reach: Reach) -> Result<Reach, Failed> {
        let same = target.origin() == outgoing.url.origin();
        let refuse = |why: &str| failed(outgoing, &format!("was redirected to `{}`, {why}", shown_place(&target)));
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
            self.territory
                .reach_beyond(&target)
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

    async fn receive(&self, outgoing: &Outgoing, mut response: reqwest::Response) -> Result<Received, Failed> {
        let (status, headers) = (response.status(), response.headers().clone());
        let (mut body, mut cut) = (Vec::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(|error| self.explain(outgoing, error))? {
            let room = self.most - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                cut = true;
                break;
            }
        }
        let place = shown_place(&outgoing.url);
        Ok(Received { status, headers, url: outgoing.url.clone(), place, body, cut })
    }

    /// Without the address: its query may hold a key.
    fn explain(&self, outgoing: &Outgoing, error: reqwest::Error) -> Failed {
        if let Some(refused) = refusal(&error) {
            return forbidden(outgoing, refused);
        }
        let (label, place) = (&outgoing.label, shown_origin(&outgoing.url));
        let error = error.without_url();
        let reason = shown_short(&innermost(&error), 200);
        if error.is_builder() {
            let message = format!("`{label}` cannot be sent: {reason}");
            return Failed::Refused(Error::new(Code::ToolInvalidInput, message));
        }
        if error.is_connect() {
            let message = match error.is_timeout() {
                true => format!("`{place}` cannot be reached within {}", format_duration(self.connect_timeout)),
                false => format!("`{place}` cannot be reached: {reason}"),
            };
            return Failed::Unreached(Error::new(Code::ToolUnavailable, message).with_cause(error));
        }
        let message = format!("the answer to `{label}` from `{place}` broke off: {reason}");
        Failed::Broken(Error::new(Code::ToolExecutionFailed, message).with_cause(error))
    }
}

impl Failed {
    pub(super) fn into_error(self) -> Error {
        match self {
            Failed::Refused(error) | Failed::Unreached(error) | Failed::Broken(error) => error,
        }
    }

    /// Of a request that is no call, so that no tool was asked for anything.
    pub(super) fn into_unavailable(self) -> Error {
        let refused = matches!(self, Failed::Refused(_));
        let mut error = self.into_error();
        error.code = Code::ToolUnavailable;
        error.with_retryable(!refused)
    }
}

/// Where an answer points, if it does; inside, nothing where that is no address.
fn redirect(response: &reqwest::Response) -> Option<Option<Url>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(LOCATION)?;
    let target = location.to_str().ok().and_then(|location| response.url().join(location).ok());
    Some(target.filter(|target| matches!(target.scheme(), "http" | "https")).map(without_login))
}

pub(super) fn without_login(mut url: Url) -> Url {
    // These fail for addresses that cannot have a login, which have none then.
    let _none = url.set_username("");
    let _none = url.set_password(None);
    url
}

fn failed(outgoing: &Outgoing, what: &str) -> Failed {
    Failed::Refused(Error::new(Code::ToolExecutionFailed, format!("`{}` {what}", outgoing.label)))
}

fn forbidden(outgoing: &Outgoing, refused: &crate::network::Refused) -> Failed {
    let message = format!("`{}` is not sent: {refused}", outgoing.label);
    Failed::Refused(Error::new(Code::ToolUnavailable, message).with_retryable(false))
}

/// An address without what may be secret in it.
pub(super) fn shown_place(url: &Url) -> String {
    shown_short(&format!("{}{}", shown_origin(url), url.path()), 300)
}

pub(super) fn shown_origin(url: &Url) -> String {
    shown_short(&url.origin().ascii_serialization(), 200)
}

fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use toolcrib_core::source::OpenApi;

    use super::*;

    #[test]
    fn what_is_followed_is_never_less_safe_than_what_was_asked() {
        let check = |method: Method, status: u16, from: &str, to: &str| {
            let territory = Territory::new(&OpenApi { allow_private: true, ..OpenApi::default() }, None, None);
            let clients = Clients::default();
            let sender = Sender { clients: &clients, territory: &territory, connect_timeout: Duration::ZERO, most: 0 };
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("a/b"))]);
            let url = Url::parse(from).unwrap();
            let mut outgoing = Outgoing { label: "x".into(), method, url, headers, body: Some(Bytes::new()) };
            let status = StatusCode::from_u16(status).unwrap();
            let followed = sender.follow(&mut outgoing, status, Url::parse(to).unwrap(), Reach::Anywhere);
            assert_eq!(outgoing.headers.len(), 1);
            followed.ok().map(|_| outgoing.method.to_string())
        };
        let (safe, open, other) = ("https://a/", "http://a/", "https://b/");
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
