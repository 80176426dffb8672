//! Streamable HTTP: every message is a POST, its answer a JSON body or a stream of events. A legacy server may cut a
//! stream and have it resumed, and has one more stream for what nobody asked for.

pub(crate) mod legacy_sse;
pub(crate) mod response;
pub(crate) mod sse;

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode, header};
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

const SESSION_HEADER: &str = "mcp-session-id";
/// How often a cut stream is taken up again without any news on it.
const MAX_RESUME_ATTEMPTS: u32 = 5;
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Between streams nobody waits for, whatever the server says.
const MIN_LISTEN_DELAY: Duration = Duration::from_millis(500);
const STABLE_STREAM_DURATION: Duration = Duration::from_secs(10);

pub(crate) struct HttpTransport {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    body_bytes: usize,
    session: RwLock<Option<HeaderValue>>,
    /// Whether somebody reads the stream for what nobody asked for, or tries to. It may outlive a session.
    listening: AtomicBool,
}

/// Where a stream stands, so that it can be taken up again.
#[derive(Default)]
struct StreamPosition {
    last_event_id: Option<HeaderValue>,
    retry: Option<Duration>,
    failed_attempts: u32,
}

/// Why reading a stream stopped.
enum StreamStop {
    ResponseReceived,
    Interrupted,
}

impl HttpTransport {
    pub(crate) fn new(client: reqwest::Client, url: Url, headers: HeaderMap, body_bytes: usize) -> HttpTransport {
        let (url, headers) = move_credentials_to_header(&client, url, headers);
        HttpTransport {
            client,
            url,
            headers,
            body_bytes,
            session: RwLock::default(),
            listening: AtomicBool::new(false),
        }
    }

    /// Whether nobody listens; from now on somebody does.
    pub(crate) fn try_start_listening(&self) -> bool {
        !self.listening.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::SeqCst)
    }

    pub(crate) fn session(&self) -> Option<HeaderValue> {
        self.session.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a message and takes in all that comes back for it.
    pub(crate) async fn send(
        &self,
        connection: &Arc<WireConnection>,
        mail: &mut OutgoingMessage<'_>,
    ) -> Result<DeliveryStatus, WireError> {
        mail.send_state.mark_sent();
        let response = self.post(connection.era(), mail).await?;
        let status = response.status();
        if !status.is_success() {
            return self.handle_error_status(connection.era(), mail, response).await;
        }
        if mail.method == "initialize" {
            let session = response.headers().get(SESSION_HEADER).cloned();
            *self.session.write().unwrap_or_else(PoisonError::into_inner) = session;
        }
        let Some(id) = mail.id else { return Ok(DeliveryStatus::Sent) };
        if is_event_stream(&response) {
            return self.follow_response_stream(connection, response, id).await;
        }
        let text = read_body(response, self.body_bytes).await?;
        match connection.dispatch(&text) {
            DispatchOutcome::Response(answered) if answered == id => Ok(DeliveryStatus::Sent),
            DispatchOutcome::ErrorWithoutId(error) => Err(WireError::Rpc(error)),
            DispatchOutcome::Response(_) | DispatchOutcome::Other => {
                Err(WireError::Protocol("it answered another request".to_owned()))
            }
            DispatchOutcome::Ignored => {
                let said = sanitize_excerpt(&text);
                Err(WireError::NotMcp(format!("it answered a request with HTTP {} and `{said}`", status.as_u16())))
            }
        }
    }

    async fn post(&self, era: Era, mail: &mut OutgoingMessage<'_>) -> Result<Response, WireError> {
        let mut request = reqwest::Request::new(Method::POST, self.url.clone());
        let headers = request.headers_mut();
        headers.reserve(self.headers.len() + mail.headers.len() + 8);
        headers.extend(self.headers.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.extend(std::mem::take(&mut mail.headers));
        if mail.method != "initialize" {
            self.add_protocol_headers(era, headers);
        }
        *request.body_mut() = Some(std::mem::take(&mut mail.text).into());
        self.client.execute(request).await.map_err(|error| request_error(&error, &self.url))
    }

    /// Which version is spoken, and in the legacy era in which session.
    fn add_protocol_headers(&self, era: Era, headers: &mut HeaderMap) {
        headers.insert("mcp-protocol-version", HeaderValue::from_static(era.as_str()));
        if let (Era::Legacy(_), Some(session)) = (era, self.session()) {
            headers.insert(SESSION_HEADER, session);
        }
    }

    async fn handle_error_status(
        &self,
        era: Era,
        mail: &OutgoingMessage<'_>,
        response: Response,
    ) -> Result<DeliveryStatus, WireError> {
        let status = response.status();
        let in_session = era != Era::Modern && mail.method != "initialize" && self.session().is_some();
        let error = error_from_response(response, self.body_bytes).await;
        // Many servers say 400 "no valid session" where the specification wants 404.
        let mentions_session =
            matches!(&error, WireError::Rpc(error) if error.message.to_lowercase().contains("session"));
        let lost = status == StatusCode::NOT_FOUND || (status == StatusCode::BAD_REQUEST && mentions_session);
        if in_session && lost { Ok(DeliveryStatus::SessionLost) } else { Err(error) }
    }

    /// Reads the stream that holds the answer, and takes it up again where the server cut it.
    async fn follow_response_stream(
        &self,
        connection: &Arc<WireConnection>,
        mut response: Response,
        id: u64,
    ) -> Result<DeliveryStatus, WireError> {
        let mut place = StreamPosition::default();
        loop {
            match self.read_stream(connection, response, &mut place, Some(id)).await? {
                StreamStop::ResponseReceived => return Ok(DeliveryStatus::Sent),
                StreamStop::Interrupted => response = self.resume_stream(connection, &mut place).await?,
            }
        }
    }

    async fn read_stream(
        &self,
        connection: &Arc<WireConnection>,
        mut response: Response,
        place: &mut StreamPosition,
        id: Option<u64>,
    ) -> Result<StreamStop, WireError> {
        let mut events = EventStreamParser::new(self.body_bytes);
        loop {
            while let Some(event) = events.next()? {
                place.failed_attempts = 0;
                place.retry = event.retry.or(place.retry);
                if let Some(last) = event.id.and_then(|id| HeaderValue::from_str(&id).ok()) {
                    place.last_event_id = Some(last);
                }
                if event.data.is_empty() {
                    continue;
                }
                match connection.dispatch_for_request(&event.data, id) {
                    DispatchOutcome::Response(answered) if Some(answered) == id => {
                        drain_in_background(connection, response);
                        return Ok(StreamStop::ResponseReceived);
                    }
                    DispatchOutcome::ErrorWithoutId(error) if id.is_some() => return Err(WireError::Rpc(error)),
                    DispatchOutcome::Response(_)
                    | DispatchOutcome::ErrorWithoutId(_)
                    | DispatchOutcome::Other
                    | DispatchOutcome::Ignored => {}
                }
            }
            match response.chunk().await {
                Ok(Some(chunk)) => events.push(&chunk),
                // Cut off or ended: both may be taken up again.
                Ok(None) | Err(_) => return Ok(StreamStop::Interrupted),
            }
        }
    }

    async fn resume_stream(
        &self,
        connection: &Arc<WireConnection>,
        place: &mut StreamPosition,
    ) -> Result<Response, WireError> {
        let cut = || closed_error(true, "the server ended the stream before its answer".to_owned());
        let resumable = place.last_event_id.is_some() && connection.era() != Era::Modern;
        while resumable && place.failed_attempts < MAX_RESUME_ATTEMPTS {
            place.failed_attempts += 1;
            sleep(place.retry_delay(Duration::from_secs(1))).await;
            match self.open_listen_stream(connection.era(), place).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if response.status().is_client_error() => return Err(cut()),
                Ok(_) | Err(_) => {}
            }
        }
        Err(cut())
    }

    /// Hears what a legacy server says of its own accord, for as long as it can be had. `asked` goes once the server
    /// has heard of it.
    pub(crate) async fn run_listen_stream(&self, connection: &Arc<WireConnection>, asked: oneshot::Sender<()>) {
        let mut asked = Some(asked);
        loop {
            let given_up = {
                let _until_given_up = ListeningGuard(&self.listening);
                self.listen_until_unavailable(connection, &mut asked).await
            };
            // A session that began just before we gave up has found us listening, and relies on it.
            if self.session() == given_up || !self.try_start_listening() {
                return;
            }
        }
    }

    /// The session whose stream is not to be had, or not any more; most servers have none.
    async fn listen_until_unavailable(
        &self,
        connection: &Arc<WireConnection>,
        asked: &mut Option<oneshot::Sender<()>>,
    ) -> Option<HeaderValue> {
        let mut place = StreamPosition::default();
        let mut session = self.session();
        while place.failed_attempts < MAX_RESUME_ATTEMPTS {
            let current = self.session();
            if current != session {
                // Events of another session mean nothing to this one.
                (session, place) = (current, StreamPosition::default());
            }
            place.failed_attempts += 1;
            let begun = Instant::now();
            let answer = self.open_listen_stream(connection.era(), &place).await;
            drop(asked.take());
            match answer {
                Ok(response) if response.status().is_success() && is_event_stream(&response) => {
                    if let Err(error) = self.read_stream(connection, response, &mut place, None).await {
                        tracing::debug!(error = error.kind(), "the stream of notifications broke");
                    }
                }
                Ok(response) if response.status().is_server_error() => {}
                Ok(_) => return session,
                Err(error) => tracing::debug!(error = error.kind(), "the stream of notifications is not to be had"),
            }
            // A stream may live long and say nothing.
            if begun.elapsed() > STABLE_STREAM_DURATION {
                place.failed_attempts = 0;
            }
            sleep(place.retry_delay(Duration::from_secs(3 << place.failed_attempts)).max(MIN_LISTEN_DELAY)).await;
        }
        session
    }

    async fn open_listen_stream(&self, era: Era, place: &StreamPosition) -> Result<Response, WireError> {
        let mut headers = self.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.add_protocol_headers(era, &mut headers);
        if let Some(last) = &place.last_event_id {
            headers.insert("last-event-id", last.clone());
        }
        let request = self.client.get(self.url.clone()).headers(headers);
        request.send().await.map_err(|error| request_error(&error, &self.url))
    }

    /// Gives a session back, if the server gave one out.
    pub(crate) async fn close(&self, era: Era) {
        if self.session().is_none() || era == Era::Modern {
            return;
        }
        let mut headers = self.headers.clone();
        self.add_protocol_headers(era, &mut headers);
        let farewell = self.client.request(Method::DELETE, self.url.clone()).headers(headers).send();
        let _best_effort = farewell.await;
    }
}

/// Credentials in an address are sent as a header, unless another is given.
fn move_credentials_to_header(client: &reqwest::Client, url: Url, mut headers: HeaderMap) -> (Url, HeaderMap) {
    let Ok(request) = client.get(url.clone()).build() else { return (url, headers) };
    if let Some(basic) = request.headers().get(header::AUTHORIZATION) {
        headers.entry(header::AUTHORIZATION).or_insert_with(|| basic.clone());
    }
    (request.url().clone(), headers)
}

/// Somebody listens until this is dropped.
struct ListeningGuard<'a>(&'a AtomicBool);

impl Drop for ListeningGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl StreamPosition {
    fn retry_delay(&self, usual: Duration) -> Duration {
        self.retry.unwrap_or(usual).min(MAX_RETRY_DELAY)
    }
}

/// Reads an answered stream to its end, for only then can its connection be used again.
fn drain_in_background(connection: &Arc<WireConnection>, mut response: Response) {
    connection.spawn(async move {
        let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
        let _kept_open = timeout(Duration::from_secs(1), rest).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_an_address_become_a_header() {
        let client = crate::ClientOptions::http_client(Duration::from_secs(1)).unwrap();
        let url: Url = "https://me:p%40ss@host.example/mcp".parse().unwrap();
        let http = HttpTransport::new(client.clone(), url.clone(), HeaderMap::new(), 1);
        assert_eq!(http.url.as_str(), "https://host.example/mcp");
        assert_eq!(http.headers[header::AUTHORIZATION], "Basic bWU6cEBzcw==");

        let given = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let http = HttpTransport::new(client, url, given, 1);
        assert_eq!(http.headers[header::AUTHORIZATION], "Bearer x");
    }
}
