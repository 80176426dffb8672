//! Sends HTTP requests as raw bytes, so that a test can send what no HTTP client would.

#![allow(dead_code, reason = "each test binary uses its part of this")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail in the binary that uses it all")]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
pub(crate) use toolcrib_testkit::http_response::RawHttpResponse;

/// Bounds every wait of a test. Far above what a response takes, because several tests share a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Sends one request on a new connection and reads the response. `headers` are complete lines and may contain `Host`.
pub(crate) async fn send_and_read(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> RawHttpResponse {
    let mut stream = send_request(address, method, path, headers, body).await;
    finish_request(&mut stream, b"").await
}

/// Sends a request on a new connection and returns the connection without reading from it.
pub(crate) async fn send_request(address: &str, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}

/// Sends the rest of a request and reads its response.
pub(crate) async fn finish_request(stream: &mut TcpStream, rest: &[u8]) -> RawHttpResponse {
    stream.write_all(rest).await.unwrap();
    let mut response = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
    RawHttpResponse::parse(&response)
}
