//! HTTP requests as bytes, and responses that a test reads from a connection until the server closes it.
//!
//! Written and parsed by hand, because tests of malformed requests and closed connections need the bytes that were sent,
//! and not what an HTTP client makes of them.

use serde_json::Value;

/// Encodes a request after whose response the server closes the connection. `headers` are complete lines; `Host` is the
/// address unless they contain it.
pub fn encode_request(address: &str, method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Parsed HTTP/1.1 response.
#[derive(Debug)]
pub struct RawHttpResponse {
    /// 0 if the response is malformed or empty.
    pub status: u16,
    /// Status line and headers.
    head: String,
    /// The body without chunk headers; invalid UTF-8 is replaced.
    pub body: String,
}

impl RawHttpResponse {
    /// Parses all bytes of a closed connection. A malformed response has status 0.
    pub fn parse(bytes: &[u8]) -> RawHttpResponse {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        RawHttpResponse { status, head: head.to_owned(), body: decode_chunked(head, body) }
    }

    /// Returns the first header with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    ///
    /// If the body is not JSON.
    #[track_caller]
    #[expect(clippy::panic, reason = "fails the calling test")]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the status and returns the body as JSON. The message of a failure shows the whole response.
    #[track_caller]
    pub fn expect_json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Returns the code of a REST error, or an empty text.
    #[track_caller]
    pub fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns the body, decoded if it uses chunked transfer encoding. Stops at an incomplete chunk.
fn decode_chunked(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let mut rest = body;
    let mut decoded = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 || after.len() < length {
            break;
        }
        decoded.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    decoded
}
