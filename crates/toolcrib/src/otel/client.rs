//! HTTP client of the exporter: adapts the HTTP client that the rest of Toolcrib uses to `opentelemetry_http`.
//!
//! Sends one batch per request, bounded in time and in the size of the response. Retries are up to `export`.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use super::settings::read_export_timeout;

/// Timeout of one batch unless `OTEL_EXPORTER_OTLP_TIMEOUT` is set. A collector on the same network responds within
/// milliseconds.
const DEFAULT_EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response, which holds at most the number of rejected spans and a reason.
const MAX_COLLECTOR_RESPONSE_BYTES: usize = 1024 * 1024;

/// Sends batches to the collector.
#[derive(Debug)]
pub(super) struct CollectorClient {
    http: reqwest::Client,
    timeout: Duration,
}

impl CollectorClient {
    /// Builds the client; the timeout comes from the environment.
    pub(super) fn new() -> Result<CollectorClient, String> {
        let http =
            toolcrib_mcp::ClientOptions::http_client(Duration::from_secs(2)).map_err(|error| error.to_string())?;
        let timeout = read_export_timeout(|name| std::env::var(name).ok()).unwrap_or(DEFAULT_EXPORT_TIMEOUT);
        Ok(CollectorClient { http, timeout })
    }

    /// Sends one request and reads the bounded response.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let url = reqwest::Url::parse(&head.uri.to_string())?;
        let mut response = self.http.request(head.method, url).headers(head.headers).body(body).send().await?;
        let mut converted = Response::builder().status(response.status());
        if let Some(headers) = converted.headers_mut() {
            *headers = std::mem::take(response.headers_mut());
        }
        // Read in chunks and counted, because `Content-Length` is optional and may be wrong.
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_COLLECTOR_RESPONSE_BYTES {
                return Err("the collector's response is too large".into());
            }
        }
        Ok(converted.body(body.into())?)
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Covers connecting, sending and reading the response together.
        tokio::time::timeout(self.timeout, self.send(request)).await?
    }
}
