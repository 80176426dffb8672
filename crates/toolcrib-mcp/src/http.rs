//! The client's Streamable HTTP transport: every message is a POST, and the response is a JSON body or an event stream.
//!
//! A legacy server may interrupt a response stream, which the client resumes, and has one more event stream (GET) for
//! messages that belong to no request. Servers of 2026-07-28 have neither; there, closing the response stream cancels
//! the request.
//!
//! ```text
//! POST request       200 application/json    the response
//!                    200 text/event-stream   notifications, requests of the server, then the response
//! POST notification  202
//! GET (legacy)       200 text/event-stream   messages that belong to no request
//!                                            with Last-Event-ID: the rest of an interrupted stream
//! DELETE (legacy)    200                     the session ends
//! ```
//!
//! Parsing of events is in `sse`, the mapping of statuses to errors in `response`, the transport of 2024-11-05 in
//! `legacy_sse`.

pub(crate) mod challenge;
pub(crate) mod legacy_sse;
pub(crate) mod response;
pub(crate) mod sse;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::RwLock;
use reqwest::{Method, Response};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};
use url::Url;

use self::{
    response::{error_from_response, is_event_stream, read_body, request_error},
    sse::EventStreamParser,
};
use crate::{
    connection::{DeliveryStatus, DispatchOutcome, OutgoingMessage, WireConnection, closed_error},
    era::Era,
    error::{WireError, sanitize_excerpt},
};

/// Header with the session id of legacy servers.
const SESSION_HEADER: &str = "mcp-session-id";
/// Maximum number of consecutive attempts to resume or reopen a stream without receiving an event. Each event sets the
/// count back, so a server that closes its streams regularly is followed for as long as it makes progress.
const MAX_RESUME_ATTEMPTS: u32 = 5;
/// Maximum delay between attempts, also when the server asks for more in `retry`. A caller waits for a resumed
/// response.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Minimum delay between GET streams, also when the server asks for less in `retry`: no request waits for them.
const MIN_LISTEN_DELAY: Duration = Duration::from_millis(500);
/// A GET stream that lasted longer counts as healthy even without an event, so that one which is closed while idle is
/// opened again.
const STABLE_STREAM_DURATION: Duration = Duration::from_secs(10);
/// Maximum time to read the rest of a response stream after the response. The HTTP connection is reused if the server
/// ends the stream within it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Connection state of one server URL.
pub(crate) struct HttpTransport {
    client: reqwest::Client,
    url: Url,
    /// The caller's headers, sent with every request.
    headers: HeaderMap,
    /// Maximum size of a body or an event in bytes.
    max_body_bytes: usize,
    /// Session id from the response to `initialize`; `None` if the server has no sessions.
    session: RwLock<Option<HeaderValue>>,
    /// Whether a task reads the GET stream or tries to open it. The task may outlive a session.
    listening: AtomicBool,
}

/// Position in an event stream, for resuming it with `Last-Event-ID`.
#[derive(Default)]
struct StreamPosition {
    last_event_id: Option<HeaderValue>,
    /// Reconnection delay requested by the server.
    retry: Option<Duration>,
    /// Consecutive attempts without an event.
    failed_attempts: u32,
}

/// Why reading a stream stopped.
enum StreamStop {
    /// The response to the request was dispatched.
    ResponseReceived,
    /// The stream ended, or its connection broke, before the response.
    Interrupted,
}

impl HttpTransport {
    /// Creates the transport without any request. Credentials in the URL become a header.
    pub(crate) fn new(client: reqwest::Client, url: Url, headers: HeaderMap, max_body_bytes: usize) -> HttpTransport {
        let (url, headers) = move_credentials_to_header(&client, url, headers);
        HttpTransport {
            client,
            url,
            headers,
            max_body_bytes,
            session: RwLock::default(),
            listening: AtomicBool::new(false),
        }
    }

    /// Claims the GET stream; returns `false` when a task has claimed it already.
    pub(crate) fn try_start_listening(&self) -> bool {
        !self.listening.swap(true, Ordering::SeqCst)
    }

    /// Whether a task reads the GET stream or tries to open it.
    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::SeqCst)
    }

    /// Returns the current session id.
    pub(crate) fn session(&self) -> Option<HeaderValue> {
        self.session.read().clone()
    }

    /// POSTs a message and dispatches everything in its response, until the response to the request arrived.
    pub(crate) async fn send(
        &self,
        connection: &Arc<WireConnection>,
        message: &mut OutgoingMessage<'_>,
    ) -> Result<DeliveryStatus, WireError> {
        // The server may have received any part of the POST, so it counts as sent from here on.
        message.send_state.mark_sent();
        let response = self.post(connection.era(), message).await?;
        let status = response.status();
        if !status.is_success() {
            return self.handle_error_status(connection.era(), message, response).await;
        }
        // Stored even when it is absent: a server without sessions must not get the id of an earlier one.
        if message.method == "initialize" {
            let session = response.headers().get(SESSION_HEADER).cloned();
            *self.session.write() = session;
        }
        // A notification or a response: the body, if there is one, has no meaning.
        let Some(id) = message.id else { return Ok(DeliveryStatus::Sent) };
        if is_event_stream(&response) {
            return self.follow_response_stream(connection, response, id).await;
        }
        let text = read_body(response, self.max_body_bytes).await?;
        match connection.dispatch(&text) {
            DispatchOutcome::Response(answered) if answered == id => Ok(DeliveryStatus::Sent),
            DispatchOutcome::ErrorWithoutId(error) => Err(WireError::Rpc(error)),
            DispatchOutcome::Response(_) | DispatchOutcome::Other => {
                Err(WireError::Protocol("the body does not answer the request".to_owned()))
            }
            DispatchOutcome::Ignored => {
                let excerpt = sanitize_excerpt(&text);
                Err(WireError::NotMcp(format!("it answered a request with HTTP {} and `{excerpt}`", status.as_u16())))
            }
        }
    }

    /// Builds and executes the POST. The connection's headers come first, so that they cannot replace the protocol's.
    /// Fails only when no response arrives; the status is for the caller to judge.
    async fn post(&self, era: Era, message: &mut OutgoingMessage<'_>) -> Result<Response, WireError> {
        let mut request = reqwest::Request::new(Method::POST, self.url.clone());
        let headers = request.headers_mut();
        headers.reserve(self.headers.len() + message.headers.len() + 8);
        headers.extend(self.headers.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.extend(std::mem::take(&mut message.headers));
        // Before the handshake there is neither a negotiated version nor a session.
        if message.method != "initialize" {
            self.add_protocol_headers(era, headers);
        }
        *request.body_mut() = Some(std::mem::take(&mut message.text).into());
        self.client.execute(request).await.map_err(|error| request_error(&error, &self.url))
    }

    /// Adds the protocol version, and in the legacy era the session id.
    fn add_protocol_headers(&self, era: Era, headers: &mut HeaderMap) {
        headers.insert("mcp-protocol-version", HeaderValue::from_static(era.as_str()));
        if let (Era::Legacy(_), Some(session)) = (era, self.session()) {
            headers.insert(SESSION_HEADER, session);
        }
    }

    /// Distinguishes a lost session from other errors. Without a session id a 404 is about the address, and the modern
    /// era has no sessions.
    async fn handle_error_status(
        &self,
        era: Era,
        message: &OutgoingMessage<'_>,
        response: Response,
    ) -> Result<DeliveryStatus, WireError> {
        let status = response.status();
        let in_session = era != Era::Modern && message.method != "initialize" && self.session().is_some();
        let error = error_from_response(response, self.max_body_bytes).await;
        // Many servers answer 400 "no valid session" where the specification requires 404.
        let mentions_session =
            matches!(&error, WireError::Rpc(error) if error.message.to_lowercase().contains("session"));
        let lost = status == StatusCode::NOT_FOUND || (status == StatusCode::BAD_REQUEST && mentions_session);
        if in_session && lost { Ok(DeliveryStatus::SessionLost) } else { Err(error) }
    }

    /// Reads the event stream that carries the response to request `id`, and resumes it when the server interrupts it.
    async fn follow_response_stream(
        &self,
        connection: &Arc<WireConnection>,
        mut response: Response,
        id: u64,
    ) -> Result<DeliveryStatus, WireError> {
        let mut position = StreamPosition::default();
        loop {
            match self.read_stream(connection, response, &mut position, Some(id)).await? {
                StreamStop::ResponseReceived => return Ok(DeliveryStatus::Sent),
                StreamStop::Interrupted => response = self.resume_stream(connection, &mut position).await?,
            }
        }
    }

    /// Dispatches events until the response to request `id` arrives or the stream ends. Without an id it reads a GET
    /// stream to its end.
    async fn read_stream(
        &self,
        connection: &Arc<WireConnection>,
        mut response: Response,
        position: &mut StreamPosition,
        id: Option<u64>,
    ) -> Result<StreamStop, WireError> {
        let mut events = EventStreamParser::new(self.max_body_bytes);
        loop {
            while let Some(event) = events.next()? {
                // Any event shows that the server makes progress.
                position.failed_attempts = 0;
                position.retry = event.retry.or(position.retry);
                if let Some(last) = event.id.and_then(|id| HeaderValue::from_str(&id).ok()) {
                    position.last_event_id = Some(last);
                }
                if event.data.is_empty() {
                    continue;
                }
                match connection.dispatch_for_request(&event.data, id) {
                    DispatchOutcome::Response(answered) if Some(answered) == id => {
                        drain_in_background(connection, response);
                        return Ok(StreamStop::ResponseReceived);
                    }
                    // The stream belongs to one request, so the error can only be its response.
                    DispatchOutcome::ErrorWithoutId(error) if id.is_some() => return Err(WireError::Rpc(error)),
                    DispatchOutcome::Response(_)
                    | DispatchOutcome::ErrorWithoutId(_)
                    | DispatchOutcome::Other
                    | DispatchOutcome::Ignored => {}
                }
            }
            match response.chunk().await {
                Ok(Some(chunk)) => events.push(&chunk),
                // An orderly end and a broken connection are treated alike: both may be resumed.
                Ok(None) | Err(_) => return Ok(StreamStop::Interrupted),
            }
        }
    }

    /// Reopens an interrupted response stream at its position. Only legacy streams with event ids can be resumed. The
    /// deadline of the request applies as well, since the caller drops this future.
    async fn resume_stream(
        &self,
        connection: &Arc<WireConnection>,
        position: &mut StreamPosition,
    ) -> Result<Response, WireError> {
        let interrupted = || closed_error(true, "the server ended the stream before the response".to_owned());
        let resumable = position.last_event_id.is_some() && connection.era() != Era::Modern;
        while resumable && position.failed_attempts < MAX_RESUME_ATTEMPTS {
            // Counted before the attempt; an event on the new stream sets it back.
            position.failed_attempts += 1;
            sleep(position.retry_delay(Duration::from_secs(1))).await;
            match self.open_listen_stream(connection.era(), position).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                // The server no longer stores the events of this stream.
                Ok(response) if response.status().is_client_error() => return Err(interrupted()),
                Ok(_) | Err(_) => {}
            }
        }
        Err(interrupted())
    }

    /// Runs the GET event stream of a legacy server until the server refuses it. `opened` is dropped when the server
    /// answered the first attempt.
    pub(crate) async fn run_listen_stream(&self, connection: &Arc<WireConnection>, opened: oneshot::Sender<()>) {
        let mut opened = Some(opened);
        loop {
            let ended_session = {
                let _guard = ListeningGuard(&self.listening);
                self.listen_until_unavailable(connection, &mut opened).await
            };
            // A session that began before the guard was dropped found this task listening and did not start another
            // one, so this task must continue.
            if self.session() == ended_session || !self.try_start_listening() {
                return;
            }
        }
    }

    /// Reads GET streams until the server refuses one or fails too often; returns the session in which that happened.
    /// Most servers have no GET stream.
    async fn listen_until_unavailable(
        &self,
        connection: &Arc<WireConnection>,
        opened: &mut Option<oneshot::Sender<()>>,
    ) -> Option<HeaderValue> {
        let mut position = StreamPosition::default();
        let mut session = self.session();
        while position.failed_attempts < MAX_RESUME_ATTEMPTS {
            let current = self.session();
            if current != session {
                // Event ids of the old session are unknown in the new one.
                session = current;
                position = StreamPosition::default();
            }
            position.failed_attempts += 1;
            let started = Instant::now();
            let response = self.open_listen_stream(connection.era(), &position).await;
            // The handshake waits for this, whatever the server answered.
            drop(opened.take());
            match response {
                Ok(response) if response.status().is_success() && is_event_stream(&response) => {
                    if let Err(error) = self.read_stream(connection, response, &mut position, None).await {
                        tracing::debug!(error = error.kind(), "the notification stream failed");
                    }
                }
                Ok(response) if response.status().is_server_error() => {}
                // Any other status means that the server has no such stream.
                Ok(_) => return session,
                Err(error) => tracing::debug!(error = error.kind(), "the notification stream could not be opened"),
            }
            // A healthy stream may last long without an event.
            if started.elapsed() > STABLE_STREAM_DURATION {
                position.failed_attempts = 0;
            }
            sleep(position.retry_delay(Duration::from_secs(3 << position.failed_attempts)).max(MIN_LISTEN_DELAY)).await;
        }
        session
    }

    /// Sends the GET for an event stream, from the position if it has an event id.
    async fn open_listen_stream(&self, era: Era, position: &StreamPosition) -> Result<Response, WireError> {
        let mut headers = self.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.add_protocol_headers(era, &mut headers);
        if let Some(last) = &position.last_event_id {
            headers.insert("last-event-id", last.clone());
        }
        let request = self.client.get(self.url.clone()).headers(headers);
        request.send().await.map_err(|error| request_error(&error, &self.url))
    }

    /// Ends the session on the server, if there is one.
    pub(crate) async fn close(&self, era: Era) {
        if self.session().is_none() || era == Era::Modern {
            return;
        }
        let mut headers = self.headers.clone();
        self.add_protocol_headers(era, &mut headers);
        let deleting = self.client.request(Method::DELETE, self.url.clone()).headers(headers).send();
        // Best effort: a server may answer 405 and end the session by itself.
        let _ = deleting.await;
    }
}

/// Moves user and password of a URL into the `Authorization` header, unless the caller set one, so that error messages
/// cannot contain them. Building a reqwest request does the encoding.
fn move_credentials_to_header(client: &reqwest::Client, url: Url, mut headers: HeaderMap) -> (Url, HeaderMap) {
    let Ok(request) = client.get(url.clone()).build() else { return (url, headers) };
    if let Some(basic) = request.headers().get(header::AUTHORIZATION) {
        headers.entry(header::AUTHORIZATION).or_insert_with(|| basic.clone());
    }
    (request.url().clone(), headers)
}

/// RAII guard of the claim on the GET stream; releases it on drop.
struct ListeningGuard<'a>(&'a AtomicBool);

impl Drop for ListeningGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl StreamPosition {
    /// Returns the delay that the server requested, or `default`, within the maximum.
    fn retry_delay(&self, default: Duration) -> Duration {
        self.retry.unwrap_or(default).min(MAX_RETRY_DELAY)
    }
}

/// Reads a response stream to its end in the background; only then can the HTTP connection be reused.
fn drain_in_background(connection: &Arc<WireConnection>, mut response: Response) {
    connection.spawn(async move {
        let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
        // A server that keeps the stream open costs one connection.
        let _ = timeout(DRAIN_TIMEOUT, rest).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_become_a_header() {
        let client = crate::ClientOptions::http_client(Duration::from_secs(1)).unwrap();
        let url: Url = "https://me:p%40ss@host.example/mcp".parse().unwrap();
        let http = HttpTransport::new(client.clone(), url.clone(), HeaderMap::new(), 1);
        assert_eq!(http.url.as_str(), "https://host.example/mcp");
        assert_eq!(http.headers[header::AUTHORIZATION], "Basic bWU6cEBzcw==");

        let explicit = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let http = HttpTransport::new(client, url, explicit, 1);
        assert_eq!(http.headers[header::AUTHORIZATION], "Bearer x");
    }
}
