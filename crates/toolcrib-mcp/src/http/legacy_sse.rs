//! HTTP+SSE of 2024-11-05: one long stream for all that comes in, whose first event says where to POST what goes out.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use reqwest::Response;
use url::Url;

use super::{
    response::{error_from_response, is_event_stream, redact_url, request_error},
    sse::EventStreamParser,
};
use crate::{
    connection::{OutgoingMessage, WireConnection, closed_error},
    error::{WireError, sanitize_excerpt},
};

pub(crate) struct LegacySseTransport {
    client: reqwest::Client,
    endpoint: Url,
    headers: HeaderMap,
    body_bytes: usize,
}

/// The stream, open and past its first event.
pub(crate) struct LegacySseStream {
    response: Response,
    events: EventStreamParser,
}

impl LegacySseTransport {
    pub(crate) async fn open(
        client: reqwest::Client,
        url: Url,
        headers: HeaderMap,
        body_bytes: usize,
    ) -> Result<(LegacySseTransport, LegacySseStream), WireError> {
        let mut asking = headers.clone();
        asking.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let request = client.get(url.clone()).headers(asking);
        let response = request.send().await.map_err(|error| request_error(&error, &url))?;
        if !response.status().is_success() {
            return Err(error_from_response(response, body_bytes).await);
        }
        if !is_event_stream(&response) {
            return Err(WireError::NotMcp("it answered with no stream of events".to_owned()));
        }
        let mut stream = LegacySseStream { response, events: EventStreamParser::new(body_bytes) };
        let endpoint = stream.read_endpoint(&url).await?;
        Ok((LegacySseTransport { client, endpoint, headers, body_bytes }, stream))
    }

    pub(crate) async fn send(&self, mail: &mut OutgoingMessage<'_>) -> Result<(), WireError> {
        mail.send_state.mark_sent();
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.client.post(self.endpoint.clone()).headers(headers).body(std::mem::take(&mut mail.text));
        let response = request.send().await.map_err(|error| request_error(&error, &self.endpoint))?;
        if response.status().is_success() { Ok(()) } else { Err(error_from_response(response, self.body_bytes).await) }
    }
}

impl LegacySseStream {
    async fn read_endpoint(&mut self, url: &Url) -> Result<Url, WireError> {
        loop {
            while let Some(event) = self.events.next()? {
                if event.kind.as_deref() != Some("endpoint") {
                    continue;
                }
                let unusable = || WireError::Protocol(format!("`{}` is no endpoint", sanitize_excerpt(&event.data)));
                let endpoint = url.join(&event.data).map_err(|_| unusable())?;
                if endpoint.origin() != url.origin() {
                    // Our headers may hold credentials for the origin we were given, and for no other.
                    return Err(WireError::Protocol(format!("its endpoint `{}` is elsewhere", redact_url(&endpoint))));
                }
                return Ok(endpoint);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.events.push(&chunk),
                Ok(None) | Err(_) => return Err(WireError::NotMcp("its stream names no endpoint".to_owned())),
            }
        }
    }

    pub(crate) fn start(mut self, connection: &Arc<WireConnection>) {
        let reading = connection.clone();
        connection.spawn(async move {
            let reason = self.read_until_closed(&reading).await;
            reading.end(reason);
        });
    }

    async fn read_until_closed(&mut self, connection: &Arc<WireConnection>) -> WireError {
        loop {
            match self.events.next() {
                Ok(Some(event)) => drop(connection.dispatch(&event.data)),
                Err(error) => return error,
                Ok(None) => match self.response.chunk().await {
                    Ok(Some(chunk)) => self.events.push(&chunk),
                    Ok(None) | Err(_) => return closed_error(true, "the server ended its stream".to_owned()),
                },
            }
        }
    }
}
