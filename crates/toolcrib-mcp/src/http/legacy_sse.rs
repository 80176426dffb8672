//! HTTP+SSE transport of 2024-11-05: one event stream carries all messages from the server, and its first event names
//! the URL to which the client POSTs its own.
//!
//! ```text
//! GET /sse            event: endpoint
//!                     data: /messages?session=1
//! POST /messages?…    202; the response arrives on the stream
//! ```
//!
//! The stream is the connection: when it ends, all pending requests fail, and it cannot be resumed.

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

/// The sending side: POSTs messages to the endpoint. Responses arrive on the [`LegacySseStream`].
pub(crate) struct LegacySseTransport {
    client: reqwest::Client,
    /// The URL for messages, named by the server; same origin as the event stream.
    endpoint: Url,
    /// The caller's headers, sent with every request.
    headers: HeaderMap,
    /// Maximum size of an error body in bytes.
    max_body_bytes: usize,
}

/// The open event stream after its first event.
pub(crate) struct LegacySseStream {
    response: Response,
    events: EventStreamParser,
}

impl LegacySseTransport {
    /// Opens the event stream and waits for the endpoint. There is no timeout here; the deadline of the handshake
    /// applies.
    pub(crate) async fn open(
        client: reqwest::Client,
        url: Url,
        headers: HeaderMap,
        max_body_bytes: usize,
    ) -> Result<(LegacySseTransport, LegacySseStream), WireError> {
        let mut request_headers = headers.clone();
        request_headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let request = client.get(url.clone()).headers(request_headers);
        let response = request.send().await.map_err(|error| request_error(&error, &url))?;
        if !response.status().is_success() {
            return Err(error_from_response(response, max_body_bytes).await);
        }
        if !is_event_stream(&response) {
            return Err(WireError::NotMcp("its response is not an event stream".to_owned()));
        }
        let mut stream = LegacySseStream { response, events: EventStreamParser::new(max_body_bytes) };
        let endpoint = stream.read_endpoint(&url).await?;
        Ok((LegacySseTransport { client, endpoint, headers, max_body_bytes }, stream))
    }

    /// POSTs a message. The server answers 202 and sends the response on the event stream.
    pub(crate) async fn send(&self, message: &mut OutgoingMessage<'_>) -> Result<(), WireError> {
        // The server may have received any part of the POST, so it counts as sent from here on.
        message.send_state.mark_sent();
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.client.post(self.endpoint.clone()).headers(headers).body(std::mem::take(&mut message.text));
        let response = request.send().await.map_err(|error| request_error(&error, &self.endpoint))?;
        if response.status().is_success() {
            Ok(())
        } else {
            Err(error_from_response(response, self.max_body_bytes).await)
        }
    }
}

impl LegacySseStream {
    /// Reads events until the one that names the endpoint.
    async fn read_endpoint(&mut self, url: &Url) -> Result<Url, WireError> {
        loop {
            while let Some(event) = self.events.next()? {
                // Without an endpoint no request can have been sent, so an earlier message answers none.
                if event.kind.as_deref() != Some("endpoint") {
                    continue;
                }
                let unusable =
                    || WireError::Protocol(format!("`{}` is not a valid endpoint", sanitize_excerpt(&event.data)));
                // Usually a path; an absolute URL is allowed, too.
                let endpoint = url.join(&event.data).map_err(|_| unusable())?;
                if endpoint.origin() != url.origin() {
                    // The headers may contain credentials, which are meant for the configured origin only.
                    let endpoint = redact_url(&endpoint);
                    return Err(WireError::Protocol(format!("its endpoint `{endpoint}` is on another origin")));
                }
                return Ok(endpoint);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.events.push(&chunk),
                Ok(None) | Err(_) => return Err(WireError::NotMcp("its stream names no endpoint".to_owned())),
            }
        }
    }

    /// Spawns the reader. The end of the stream ends the connection.
    pub(crate) fn start(mut self, connection: &Arc<WireConnection>) {
        let reading = connection.clone();
        connection.spawn(async move {
            let reason = self.read_until_closed(&reading).await;
            reading.end(reason);
        });
    }

    /// Dispatches events until the stream ends or an event is too large; returns the reason.
    async fn read_until_closed(&mut self, connection: &Arc<WireConnection>) -> WireError {
        loop {
            match self.events.next() {
                Ok(Some(event)) => drop(connection.dispatch(&event.data)),
                Err(error) => return error,
                Ok(None) => match self.response.chunk().await {
                    Ok(Some(chunk)) => self.events.push(&chunk),
                    Ok(None) | Err(_) => return closed_error(true, "the server ended its event stream".to_owned()),
                },
            }
        }
    }
}
