//! HTTP+SSE of 2024-11-05: one long stream for all that comes in, whose first event says where to POST what goes out.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use reqwest::Response;
use url::Url;

use super::{
    event::Events,
    wire::{is_event_stream, no_connection, refusal, shown},
};
use crate::{
    connection::{Connection, Mail, closed},
    error::{WireError, shortened},
};

pub(crate) struct LegacySse {
    client: reqwest::Client,
    endpoint: Url,
    headers: HeaderMap,
    body_bytes: usize,
}

/// The stream, open and past its first event.
pub(crate) struct Stream {
    response: Response,
    events: Events,
}

impl LegacySse {
    pub(crate) async fn open(
        client: reqwest::Client,
        url: Url,
        headers: HeaderMap,
        body_bytes: usize,
    ) -> Result<(LegacySse, Stream), WireError> {
        let mut asking = headers.clone();
        asking.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let request = client.get(url.clone()).headers(asking);
        let response = request.send().await.map_err(|error| no_connection(&error, &url))?;
        if !response.status().is_success() {
            return Err(refusal(response, body_bytes).await);
        }
        if !is_event_stream(&response) {
            return Err(WireError::NotMcp("it answered with no stream of events".to_owned()));
        }
        let mut stream = Stream { response, events: Events::new(body_bytes) };
        let endpoint = stream.endpoint(&url).await?;
        Ok((LegacySse { client, endpoint, headers, body_bytes }, stream))
    }

    pub(crate) async fn deliver(&self, mail: &mut Mail<'_>) -> Result<(), WireError> {
        mail.ticket.depart();
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.client.post(self.endpoint.clone()).headers(headers).body(std::mem::take(&mut mail.text));
        let response = request.send().await.map_err(|error| no_connection(&error, &self.endpoint))?;
        if response.status().is_success() { Ok(()) } else { Err(refusal(response, self.body_bytes).await) }
    }
}

impl Stream {
    async fn endpoint(&mut self, url: &Url) -> Result<Url, WireError> {
        loop {
            while let Some(event) = self.events.next()? {
                if event.kind.as_deref() != Some("endpoint") {
                    continue;
                }
                let unusable = || WireError::Protocol(format!("`{}` is no endpoint", shortened(&event.data)));
                let endpoint = url.join(&event.data).map_err(|_| unusable())?;
                if endpoint.origin() != url.origin() {
                    // Our headers may hold credentials for the origin we were given, and for no other.
                    return Err(WireError::Protocol(format!("its endpoint `{}` is elsewhere", shown(&endpoint))));
                }
                return Ok(endpoint);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.events.push(&chunk),
                Ok(None) | Err(_) => return Err(WireError::NotMcp("its stream names no endpoint".to_owned())),
            }
        }
    }

    pub(crate) fn start(mut self, connection: &Arc<Connection>) {
        let reading = connection.clone();
        connection.spawn(async move {
            let reason = self.read(&reading).await;
            reading.end(reason);
        });
    }

    async fn read(&mut self, connection: &Arc<Connection>) -> WireError {
        loop {
            match self.events.next() {
                Ok(Some(event)) => drop(connection.dispatch(&event.data)),
                Err(error) => return error,
                Ok(None) => match self.response.chunk().await {
                    Ok(Some(chunk)) => self.events.push(&chunk),
                    Ok(None) | Err(_) => return closed(true, "the server ended its stream".to_owned()),
                },
            }
        }
    }
}
