//! Connections at the limit: which one gives way, which stay, and what one that sends nothing or too much gets.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use toolcrib::testkit::ScriptedSource;
use toolcrib_server::ServerLimits;

use crate::raw_http::finish_request;
use crate::support::{RawHttpResponse, RestTestServer, TEST_TIMEOUT, start_discovered, start_limited, wait_until};

const HEALTH_REQUEST: &str = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
const JSON_HEADER: &str = "Content-Type: application/json\r\n";

/// At most so many connections, none of which is closed for its silence while a test runs.
fn max_connections(connections: usize) -> ServerLimits {
    ServerLimits { connections, first_byte_timeout: Duration::from_secs(3600), ..ServerLimits::default() }
}

/// Reads until the text is there. The connection stays open.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        loop {
            let said = String::from_utf8_lossy(&read).into_owned();
            if said.contains(text) {
                return said;
            }
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "closed after {said:?}");
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap()
}

/// Whether the other side has closed the connection, once it has or has said something.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read(&mut [0])).await.unwrap();
    !matches!(read, Ok(1))
}

/// A connection that is kept open after a first request.
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
async fn idle_connections_give_way_and_busy_ones_stay() {
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
async fn the_connection_that_is_idle_longest_gives_way_first() {
    let server = start_limited(&[], max_connections(3)).await;
    let mut oldest = open_kept_alive(&server).await;
    let mut silent = server.connect().await;
    let mut used = open_kept_alive(&server).await;
    // Idle since its last request, not since it was opened.
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
async fn a_new_connection_waits_for_a_busy_one_and_is_refused_if_none_becomes_idle() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_limited(&[("shop", &shop)], max_connections(1)).await;
    shop.pause();
    let body = "POST /api/tools/shop__order/call HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
    let mut call = server.connect().await;
    call.write_all(body.as_bytes()).await.unwrap();
    wait_until("the call", async || shop.calls() == 1).await;

    let refused = server.get("/healthz").await;
    assert_eq!((refused.status, refused.error_code()), (503, "TOOL_UNAVAILABLE".into()));
    assert_eq!((&refused.json()["error"]["retryable"], refused.header("retry-after")), (&json!(true), Some("1")));

    // The busy connection would stay open after its response; it gives way as soon as it has been sent.
    let (health, answer) = tokio::join!(server.get("/healthz"), async {
        shop.resume();
        finish_request(&mut call, b"").await
    });
    assert_eq!((health.status, answer.status), (200, 200));
}

#[tokio::test]
async fn a_connection_that_sends_nothing_is_closed_before_one_that_has_begun() {
    let limits = ServerLimits { first_byte_timeout: Duration::from_millis(100), ..ServerLimits::default() };
    let server = start_limited(&[], limits).await;
    let mut begun = server.connect().await;
    begun.write_all(b"GET").await.unwrap();
    let mut silent = server.connect().await;
    assert!(is_closed(&mut silent).await);
    begun.write_all(&HEALTH_REQUEST.as_bytes()[3..]).await.unwrap();
    read_until(&mut begun, "\r\n\r\nok\n").await;
}

/// A request with a body of that length, of which nothing is sent yet.
async fn start_request_of_length(server: &RestTestServer, path: &str, length: usize, headers: &str) -> TcpStream {
    let mut stream = server.connect().await;
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{JSON_HEADER}{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

fn expect_too_large(said: &str) {
    let answer = RawHttpResponse::parse(said.as_bytes());
    assert_eq!((answer.status, answer.error_code()), (413, "BAD_REQUEST".into()), "{said}");
}

const GIBIBYTE: usize = 1024 * 1024 * 1024;

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_refused_before_it_is_sent() {
    let server = start_discovered(&[("shop", &ScriptedSource::new(["order"]))]).await;
    for path in ["/api/tools/shop__order/call", "/mcp"] {
        for headers in ["", "Expect: 100-continue\r\n"] {
            let mut stream = start_request_of_length(&server, path, GIBIBYTE, headers).await;
            expect_too_large(&read_until(&mut stream, "}}").await);
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_all_of_a_body_that_is_too_large_still_reads_the_response() {
    let server = start_discovered(&[("shop", &ScriptedSource::new(["order"]))]).await;
    let body = vec![b' '; 20 * 1024 * 1024];
    for path in ["/api/tools/shop__order/call", "/mcp"] {
        let mut stream = start_request_of_length(&server, path, body.len(), "").await;
        stream.write_all(&body).await.unwrap();
        expect_too_large(&read_until(&mut stream, "}}").await);
        // All of it was read, so that the connection can be used again.
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
    let mut refused = start_request_of_length(&server, "/api/sources", body.len(), "").await;
    refused.write_all(&body).await.unwrap();
    assert!(read_until(&mut refused, "}}").await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn one_identity_does_not_take_the_places_of_all_listeners() {
    let server = start_discovered(&[]).await;
    let mut listening = Vec::new();
    for _ in 0..250 {
        let mut stream = server.start_request("GET", "/api/events", "", b"").await;
        read_until(&mut stream, ": listening").await;
        listening.push(stream);
    }
    let refused = server.get("/api/events").await;
    assert_eq!((refused.status, refused.error_code()), (429, "RATE_LIMITED".into()));
    assert_eq!(refused.json()["error"]["retryable"], true);

    let token = format!("Authorization: Bearer {}\r\n", server.admin_token);
    let mut another = server.start_request("GET", "/api/events", &token, b"").await;
    read_until(&mut another, ": listening").await;
    drop(listening.pop());
    let listens_again = async || {
        let mut stream = server.start_request("GET", "/api/events", "", b"").await;
        read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 200")
    };
    wait_until("a place is free again", listens_again).await;
    server.stop().await;
}
