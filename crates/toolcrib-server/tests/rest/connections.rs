//! Tests the connection limits: which connection is evicted at the limit, timeouts, and bodies that are too large.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use toolcrib::testkit::ScriptedSource;
use toolcrib_server::ServerLimits;

use super::support::{RawHttpResponse, RestTestServer, TEST_TIMEOUT, start_discovered, start_limited, wait_until};
use crate::test_server::finish_request;

const HEALTH_REQUEST: &str = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const JSON_HEADER: &str = "Content-Type: application/json\r\n";

/// Limits the number of connections, with a first byte timeout that is longer than any test.
fn max_connections(connections: usize) -> ServerLimits {
    ServerLimits {
        max_connections: connections,
        first_byte_timeout: Duration::from_secs(3600),
        ..ServerLimits::default()
    }
}

/// Reads until the text has arrived. The connection stays open.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        loop {
            let received = String::from_utf8_lossy(&read).into_owned();
            if received.contains(text) {
                return received;
            }
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "closed after {received:?}");
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap()
}

/// Waits until the server closes the connection or sends something, and returns whether it closed it.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read(&mut [0])).await.unwrap();
    !matches!(read, Ok(1))
}

/// Opens a connection, sends one request, and keeps the connection open.
async fn open_kept_alive(server: &RestTestServer) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\nok\n").await;
    stream
}

async fn start_call(server: &RestTestServer) -> TcpStream {
    server.start_request("POST", "/api/tools/shop__order/call", JSON_HEADER, b"{}").await
}

#[tokio::test]
async fn idle_connections_are_evicted_and_busy_ones_stay() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_limited(&[("shop", &shop)], max_connections(8)).await;
    shop.pause();
    let mut call = start_call(&server).await;
    wait_until("the call", async || shop.calls() == 1).await;
    let mut events = server.start_request("GET", "/api/events", "", b"").await;
    read_until(&mut events, ": listening").await;

    let mut idle = vec![open_kept_alive(&server).await, server.connect().await, server.connect().await];
    let mut half_sent = server.connect().await;
    half_sent.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    idle.extend([half_sent, server.connect().await, server.connect().await]);
    let mut fresh = Vec::new();
    for _ in 0..20 {
        let mut stream = server.connect().await;
        stream.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
        read_until(&mut stream, "\r\n\r\nok\n").await;
        fresh.push(stream);
    }
    for stream in &mut idle {
        assert!(is_closed(stream).await);
    }

    shop.resume();
    assert_eq!(finish_request(&mut call, b"").await.status, 200);
    read_until(&mut events, "event: call").await;
    server.stop().await;
}

#[tokio::test]
async fn the_connection_that_is_idle_longest_is_evicted_first() {
    let server = start_limited(&[], max_connections(3)).await;
    let mut oldest = open_kept_alive(&server).await;
    let mut silent = server.connect().await;
    let mut used = open_kept_alive(&server).await;
    // A connection counts as idle since its last request, not since it was opened.
    oldest.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
    read_until(&mut oldest, "\r\n\r\nok\n").await;

    let _new = open_kept_alive(&server).await;
    assert!(is_closed(&mut silent).await);
    for stream in [&mut used, &mut oldest] {
        stream.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
        read_until(stream, "\r\n\r\nok\n").await;
    }
}

#[tokio::test]
async fn a_new_connection_waits_for_capacity_and_is_rejected_after_a_timeout() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_limited(&[("shop", &shop)], max_connections(1)).await;
    shop.pause();
    let request = "POST /api/tools/shop__order/call HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
    let mut call = server.connect().await;
    call.write_all(request.as_bytes()).await.unwrap();
    wait_until("the call", async || shop.calls() == 1).await;

    let rejection = server.get("/healthz").await;
    assert_eq!((rejection.status, rejection.error_code()), (503, "TOOL_UNAVAILABLE".into()));
    assert_eq!((&rejection.json()["error"]["retryable"], rejection.header("retry-after")), (&json!(true), Some("1")));

    // The busy connection would stay open after its response; at the limit it is closed as soon as that is sent.
    let (health, response) = tokio::join!(server.get("/healthz"), async {
        shop.resume();
        finish_request(&mut call, b"").await
    });
    assert_eq!((health.status, response.status), (200, 200));
}

#[tokio::test]
async fn the_first_byte_timeout_closes_silent_connections_only() {
    let limits = ServerLimits { first_byte_timeout: Duration::from_millis(100), ..ServerLimits::default() };
    let server = start_limited(&[], limits).await;
    // Sent before the server, which runs on this thread, accepts the connection.
    let mut started = std::net::TcpStream::connect(&server.address).unwrap();
    started.write_all(b"GET").unwrap();
    started.set_nonblocking(true).unwrap();
    let mut started = TcpStream::from_std(started).unwrap();
    let mut silent = server.connect().await;
    assert!(is_closed(&mut silent).await);
    started.write_all(&HEALTH_REQUEST.as_bytes()[3..]).await.unwrap();
    read_until(&mut started, "\r\n\r\nok\n").await;
}

/// Sends the head of a request with a body of this length, and none of the body.
async fn start_request_of_length(server: &RestTestServer, path: &str, length: usize, headers: &str) -> TcpStream {
    let mut stream = server.connect().await;
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{JSON_HEADER}{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

fn expect_too_large(received: &str) {
    let response = RawHttpResponse::parse(received.as_bytes());
    assert_eq!((response.status, response.error_code()), (413, "BAD_REQUEST".into()), "{received}");
}

const GIBIBYTE: usize = 1024 * 1024 * 1024;

#[tokio::test]
async fn a_body_announced_as_too_large_is_rejected_before_it_is_sent() {
    let server = start_discovered(&[("shop", &ScriptedSource::new(["order"]))]).await;
    for path in ["/api/tools/shop__order/call", "/mcp"] {
        for headers in ["", "Expect: 100-continue\r\n"] {
            let mut stream = start_request_of_length(&server, path, GIBIBYTE, headers).await;
            expect_too_large(&read_until(&mut stream, "}}").await);
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_a_too_large_body_still_reads_the_response() {
    let server = start_discovered(&[("shop", &ScriptedSource::new(["order"]))]).await;
    let body = vec![b' '; 20 * 1024 * 1024];
    for path in ["/api/tools/shop__order/call", "/mcp"] {
        let mut stream = start_request_of_length(&server, path, body.len(), "").await;
        stream.write_all(&body).await.unwrap();
        expect_too_large(&read_until(&mut stream, "}}").await);
        // The server read the whole body, so the connection can be used again.
        stream.write_all(HEALTH_REQUEST.as_bytes()).await.unwrap();
        read_until(&mut stream, "\r\n\r\nok\n").await;

        let mut chunked = server.connect().await;
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{JSON_HEADER}Transfer-Encoding: chunked\r\n\r\n");
        chunked.write_all(format!("{head}{:x}\r\n", body.len()).as_bytes()).await.unwrap();
        chunked.write_all(&body).await.unwrap();
        chunked.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        expect_too_large(&read_until(&mut chunked, "}}").await);
    }
    let mut rejection = start_request_of_length(&server, "/api/sources", body.len(), "").await;
    rejection.write_all(&body).await.unwrap();
    assert!(read_until(&mut rejection, "}}").await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn one_identity_cannot_exhaust_the_listener_limit() {
    let server = start_discovered(&[]).await;
    let mut listeners = Vec::new();
    for _ in 0..250 {
        let mut stream = server.start_request("GET", "/api/events", "", b"").await;
        read_until(&mut stream, ": listening").await;
        listeners.push(stream);
    }
    let rejection = server.get("/api/events").await;
    assert_eq!((rejection.status, rejection.error_code()), (429, "RATE_LIMITED".into()));
    assert_eq!(rejection.json()["error"]["retryable"], true);

    let token = format!("Authorization: Bearer {}\r\n", server.admin_token);
    let mut another = server.start_request("GET", "/api/events", &token, b"").await;
    read_until(&mut another, ": listening").await;
    drop(listeners.pop());
    let listens_again = async || {
        let mut stream = server.start_request("GET", "/api/events", "", b"").await;
        read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200")
    };
    wait_until("another listener is accepted", listens_again).await;
    server.stop().await;
}
