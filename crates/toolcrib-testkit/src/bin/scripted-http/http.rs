//! Minimal HTTP/1.1: requests with `Content-Length` on persistent connections.
//!
//! Written by hand, so that the server starts quickly and a test controls each byte of a response.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

/// Request with its complete body.
#[derive(Debug)]
pub(crate) struct FakeHttpRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Headers by name in lower case.
    headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Response with its body.
#[derive(Debug)]
pub(crate) struct FakeHttpResponse {
    /// Code and reason, such as `404 Not Found`.
    pub(crate) status: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl FakeHttpRequest {
    /// Reads the next request of a connection; `None` if the client closed it.
    pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Option<FakeHttpRequest>> {
        let mut request_line = String::new();
        if stream.read_line(&mut request_line)? == 0 {
            return Ok(None);
        }
        let mut words = request_line.split_whitespace().map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let path = words.next().unwrap_or_default();
        let headers = read_headers(stream)?;
        let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = Vec::new();
        stream.take(length).read_to_end(&mut body)?;
        Ok(Some(FakeHttpRequest { method, path, headers, body }))
    }

    /// Returns a header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// Reads headers up to the empty line.
fn read_headers(stream: &mut impl BufRead) -> io::Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(headers) };
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
}

impl FakeHttpResponse {
    pub(crate) fn empty(status: impl Into<String>) -> FakeHttpResponse {
        FakeHttpResponse { status: status.into(), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn json(status: &str, body: Vec<u8>) -> FakeHttpResponse {
        FakeHttpResponse { body, ..FakeHttpResponse::empty(status) }
            .with_header("Content-Type", "application/json".to_owned())
    }

    /// Creates an event stream with a single message.
    pub(crate) fn event(message: &[u8]) -> FakeHttpResponse {
        let body = [b"event: message\ndata: ", message, b"\n\n"].concat();
        FakeHttpResponse { body, ..FakeHttpResponse::empty("200 OK") }
            .with_header("Content-Type", "text/event-stream".to_owned())
    }

    /// Adds a header.
    pub(crate) fn with_header(mut self, name: &str, value: String) -> FakeHttpResponse {
        self.headers.push((name.to_owned(), value));
        self
    }

    /// Writes the response at once: in two writes, the second could wait for an acknowledgement of the first.
    pub(crate) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut bytes = format!("HTTP/1.1 {}\r\nContent-Length: {}\r\n", self.status, self.body.len()).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(format!("{name}: {value}\r\n").bytes());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        stream.write_all(&bytes)
    }
}
