//! The exporter's way to its collector: the HTTP client that everything else here uses.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use super::settings::timeout;

/// For one batch, where nothing else is asked for; a collector on the same network answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// An answer says at most how many spans were refused, and why.
const LARGEST: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    deadline: Duration,
}

impl Client {
    pub(super) fn new() -> Result<Client, String> {
        let http = toolcrib_mcp::Options::http_client(Duration::from_secs(2)).map_err(|error| error.to_string())?;
        let deadline = timeout(|name| std::env::var(name).ok()).unwrap_or(DEADLINE);
        Ok(Client { http, deadline })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let url = reqwest::Url::parse(&head.uri.to_string())?;
        let mut response = self.http.request(head.method, url).headers(head.headers).body(body).send().await?;
        let mut answer = Response::builder().status(response.status());
        if let Some(headers) = answer.headers_mut() {
            *headers = std::mem::take(response.headers_mut());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                return Err("the collector's answer is too large".into());
            }
        }
        Ok(answer.body(body.into())?)
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        tokio::time::timeout(self.deadline, self.send(request)).await?
    }
}
