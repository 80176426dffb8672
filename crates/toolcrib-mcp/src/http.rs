//! Streamable HTTP: every message is a POST, its answer a JSON body or a stream of events. A legacy server may cut a
//! stream and have it resumed, and has one more stream for what nobody asked for.

pub(crate) mod event;
pub(crate) mod legacy;
pub(crate) mod wire;

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
    event::Events,
    wire::{body, is_event_stream, no_connection, refusal},
};
use crate::{
    connection::{Connection, Delivered, Mail, Seen, closed},
    era::Era,
    error::{WireError, shortened},
};

const SESSION: &str = "mcp-session-id";
/// How often a cut stream is taken up again without any news on it.
const RESUMPTIONS: u32 = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Between streams nobody waits for, whatever the server says.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONG_LIVED: Duration = Duration::from_secs(10);

pub(crate) struct Http {
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
struct Place {
    last_event: Option<HeaderValue>,
    retry: Option<Duration>,
    fruitless: u32,
}

/// Why reading a stream stopped.
enum Stop {
    Answered,
    Ended,
}

impl Http {
    pub(crate) fn new(client: reqwest::Client, url: Url, headers: HeaderMap, body_bytes: usize) -> Http {
        let (url, headers) = credentials(&client, url, headers);
        Http { client, url, headers, body_bytes, session: RwLock::default(), listening: AtomicBool::new(false) }
    }

    /// Whether nobody listens; from now on somebody does.
    pub(crate) fn begin_to_listen(&self) -> bool {
        !self.listening.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::SeqCst)
    }

    pub(crate) fn session(&self) -> Option<HeaderValue> {
        self.session.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a message and takes in all that comes back for it.
    pub(crate) async fn deliver(
        &self,
        connection: &Arc<Connection>,
        mail: &mut Mail<'_>,
    ) -> Result<Delivered, WireError> {
        mail.ticket.depart();
        let response = self.post(connection.speaking(), mail).await?;
        let status = response.status();
        if !status.is_success() {
            return self.refused(connection.speaking(), mail, response).await;
        }
        if mail.method == "initialize" {
            let session = response.headers().get(SESSION).cloned();
            *self.session.write().unwrap_or_else(PoisonError::into_inner) = session;
        }
        let Some(id) = mail.id else { return Ok(Delivered::Sent) };
        if is_event_stream(&response) {
            return self.follow(connection, response, id).await;
        }
        let text = body(response, self.body_bytes).await?;
        match connection.dispatch(&text) {
            Seen::Answer(answered) if answered == id => Ok(Delivered::Sent),
            Seen::Refusal(error) => Err(WireError::Rpc(error)),
            Seen::Answer(_) | Seen::Other => Err(WireError::Protocol("it answered another request".to_owned())),
            Seen::Junk => {
                let said = shortened(&text);
                Err(WireError::NotMcp(format!("it answered a request with HTTP {} and `{said}`", status.as_u16())))
            }
        }
    }

    async fn post(&self, era: Era, mail: &mut Mail<'_>) -> Result<Response, WireError> {
        let mut request = reqwest::Request::new(Method::POST, self.url.clone());
        let headers = request.headers_mut();
        headers.reserve(self.headers.len() + mail.headers.len() + 8);
        headers.extend(self.headers.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.extend(std::mem::take(&mut mail.headers));
        if mail.method != "initialize" {
            self.identify(era, headers);
        }
        *request.body_mut() = Some(std::mem::take(&mut mail.text).into());
        self.client.execute(request).await.map_err(|error| no_connection(&error, &self.url))
    }

    /// Which version is spoken, and in the legacy era in which session.
    fn identify(&self, era: Era, headers: &mut HeaderMap) {
        headers.insert("mcp-protocol-version", HeaderValue::from_static(era.as_str()));
        if let (Era::Legacy(_), Some(session)) = (era, self.session()) {
            headers.insert(SESSION, session);
        }
    }

    async fn refused(&self, era: Era, mail: &Mail<'_>, response: Response) -> Result<Delivered, WireError> {
        let status = response.status();
        let in_session = era != Era::Modern && mail.method != "initialize" && self.session().is_some();
        let error = refusal(response, self.body_bytes).await;
        // Many servers say 400 "no valid session" where the specification wants 404.
        let mentions_session =
            matches!(&error, WireError::Rpc(error) if error.message.to_lowercase().contains("session"));
        let lost = status == StatusCode::NOT_FOUND || (status == StatusCode::BAD_REQUEST && mentions_session);
        if in_session && lost { Ok(Delivered::SessionLost) } else { Err(error) }
    }

    /// Reads the stream that holds the answer, and takes it up again where the server cut it.
    async fn follow(
        &self,
        connection: &Arc<Connection>,
        mut response: Response,
        id: u64,
    ) -> Result<Delivered, WireError> {
        let mut place = Place::default();
        loop {
            match self.read(connection, response, &mut place, Some(id)).await? {
                Stop::Answered => return Ok(Delivered::Sent),
                Stop::Ended => response = self.resume(connection, &mut place).await?,
            }
        }
    }

    async fn read(
        &self,
        connection: &Arc<Connection>,
        mut response: Response,
        place: &mut Place,
        id: Option<u64>,
    ) -> Result<Stop, WireError> {
        let mut events = Events::new(self.body_bytes);
        loop {
            while let Some(event) = events.next()? {
                place.fruitless = 0;
                place.retry = event.retry.or(place.retry);
                if let Some(last) = event.id.and_then(|id| HeaderValue::from_str(&id).ok()) {
                    place.last_event = Some(last);
                }
                if event.data.is_empty() {
                    continue;
                }
                match connection.dispatch_on(&event.data, id) {
                    Seen::Answer(answered) if Some(answered) == id => {
                        finish(connection, response);
                        return Ok(Stop::Answered);
                    }
                    Seen::Refusal(error) if id.is_some() => return Err(WireError::Rpc(error)),
                    Seen::Answer(_) | Seen::Refusal(_) | Seen::Other | Seen::Junk => {}
                }
            }
            match response.chunk().await {
                Ok(Some(chunk)) => events.push(&chunk),
                // Cut off or ended: both may be taken up again.
                Ok(None) | Err(_) => return Ok(Stop::Ended),
            }
        }
    }

    async fn resume(&self, connection: &Arc<Connection>, place: &mut Place) -> Result<Response, WireError> {
        let cut = || closed(true, "the server ended the stream before its answer".to_owned());
        let resumable = place.last_event.is_some() && connection.speaking() != Era::Modern;
        while resumable && place.fruitless < RESUMPTIONS {
            place.fruitless += 1;
            sleep(place.pause(Duration::from_secs(1))).await;
            match self.listen(connection.speaking(), place).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if response.status().is_client_error() => return Err(cut()),
                Ok(_) | Err(_) => {}
            }
        }
        Err(cut())
    }

    /// Hears what a legacy server says of its own accord, for as long as it can be had. `asked` goes once the server
    /// has heard of it.
    pub(crate) async fn listen_on(&self, connection: &Arc<Connection>, asked: oneshot::Sender<()>) {
        let mut asked = Some(asked);
        loop {
            let given_up = {
                let _until_given_up = Listening(&self.listening);
                self.listen_in_session(connection, &mut asked).await
            };
            // A session that began just before we gave up has found us listening, and relies on it.
            if self.session() == given_up || !self.begin_to_listen() {
                return;
            }
        }
    }

    /// The session whose stream is not to be had, or not any more; most servers have none.
    async fn listen_in_session(
        &self,
        connection: &Arc<Connection>,
        asked: &mut Option<oneshot::Sender<()>>,
    ) -> Option<HeaderValue> {
        let mut place = Place::default();
        let mut session = self.session();
        while place.fruitless < RESUMPTIONS {
            let current = self.session();
            if current != session {
                // Events of another session mean nothing to this one.
                (session, place) = (current, Place::default());
            }
            place.fruitless += 1;
            let begun = Instant::now();
            let answer = self.listen(connection.speaking(), &place).await;
            drop(asked.take());
            match answer {
                Ok(response) if response.status().is_success() && is_event_stream(&response) => {
                    if let Err(error) = self.read(connection, response, &mut place, None).await {
                        tracing::debug!(error = error.kind(), "the stream of notifications broke");
                    }
                }
                Ok(response) if response.status().is_server_error() => {}
                Ok(_) => return session,
                Err(error) => tracing::debug!(error = error.kind(), "the stream of notifications is not to be had"),
            }
            // A stream may live long and say nothing.
            if begun.elapsed() > LONG_LIVED {
                place.fruitless = 0;
            }
            sleep(place.pause(Duration::from_secs(3 << place.fruitless)).max(SHORTEST_PAUSE)).await;
        }
        session
    }

    async fn listen(&self, era: Era, place: &Place) -> Result<Response, WireError> {
        let mut headers = self.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.identify(era, &mut headers);
        if let Some(last) = &place.last_event {
            headers.insert("last-event-id", last.clone());
        }
        let request = self.client.get(self.url.clone()).headers(headers);
        request.send().await.map_err(|error| no_connection(&error, &self.url))
    }

    /// Gives a session back, if the server gave one out.
    pub(crate) async fn close(&self, era: Era) {
        if self.session().is_none() || era == Era::Modern {
            return;
        }
        let mut headers = self.headers.clone();
        self.identify(era, &mut headers);
        let farewell = self.client.request(Method::DELETE, self.url.clone()).headers(headers).send();
        let _best_effort = farewell.await;
    }
}

/// Credentials in an address are sent as a header, unless another is given.
fn credentials(client: &reqwest::Client, url: Url, mut headers: HeaderMap) -> (Url, HeaderMap) {
    let Ok(request) = client.get(url.clone()).build() else { return (url, headers) };
    if let Some(basic) = request.headers().get(header::AUTHORIZATION) {
        headers.entry(header::AUTHORIZATION).or_insert_with(|| basic.clone());
    }
    (request.url().clone(), headers)
}

/// Somebody listens until this is dropped.
struct Listening<'a>(&'a AtomicBool);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Place {
    fn pause(&self, usual: Duration) -> Duration {
        self.retry.unwrap_or(usual).min(LONGEST_PAUSE)
    }
}

/// Reads an answered stream to its end, for only then can its connection be used again.
fn finish(connection: &Arc<Connection>, mut response: Response) {
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
        let client = crate::Options::http_client(Duration::from_secs(1)).unwrap();
        let url: Url = "https://me:p%40ss@host.example/mcp".parse().unwrap();
        let http = Http::new(client.clone(), url.clone(), HeaderMap::new(), 1);
        assert_eq!(http.url.as_str(), "https://host.example/mcp");
        assert_eq!(http.headers[header::AUTHORIZATION], "Basic bWU6cEBzcw==");

        let given = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let http = Http::new(client, url, given, 1);
        assert_eq!(http.headers[header::AUTHORIZATION], "Bearer x");
    }
}
