//! Tests how requests in progress end when the server shuts down.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use toolcrib::testkit::ScriptedSource;
use toolcrib_server::ServerLimits;

use super::support::{RawHttpResponse, RestTestServer, TEST_TIMEOUT, start_limited, wait_until};
use crate::test_server::finish_request;

const JSON_HEADER: &str = "Content-Type: application/json\r\n";

fn limits_with_drain_timeout(drain_timeout: Duration) -> ServerLimits {
    ServerLimits { drain_timeout, ..ServerLimits::default() }
}

/// Reads the response until the connection is closed.
async fn read_response(stream: &mut TcpStream) -> RawHttpResponse {
    finish_request(stream, b"").await
}

/// Starts a call over MCP 2026-07-28.
async fn start_mcp_call(server: &RestTestServer, accept: &str) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "shop__order", "arguments": {}, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let headers = format!(
        "{JSON_HEADER}Accept: {accept}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: shop__order\r\n"
    );
    server.start_request("POST", "/mcp", &headers, body.as_bytes()).await
}

/// Starts a request in the session whose id is in `headers`.
async fn start_session_request(server: &RestTestServer, headers: &str, method: &str, params: Value) -> TcpStream {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let headers = format!("{JSON_HEADER}Accept: application/json, text/event-stream\r\n{headers}");
    server.start_request("POST", "/mcp", &headers, body.as_bytes()).await
}

/// Opens a session and returns the header line for its requests.
async fn open_session(server: &RestTestServer) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let response = read_response(&mut start_session_request(server, "", "initialize", params).await).await;
    let id = response.header("mcp-session-id").unwrap();
    assert!(id.starts_with(server.registry.node().as_str()), "only this process can serve it: {id}");
    format!("Mcp-Session-Id: {id}\r\n")
}

fn expect_stopping(error: &Value) {
    let expected = json!({
        "code": "TOOL_UNAVAILABLE", "message": "Toolcrib is stopping; try again", "retryable": true, "details": null,
    });
    assert_eq!(error["error"], expected);
}

/// Expects the same error as the result of a call over MCP, in JSON or as the last event of a stream.
fn expect_stopping_result(response: &RawHttpResponse) {
    assert_eq!(response.status, 200, "{response:?}");
    let data = response.body.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&response.body);
    let message: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&message["id"], &message["result"]["isError"]), (&json!(7), &json!(true)), "{message}");
    expect_stopping(&serde_json::from_str(message["result"]["content"][0]["text"].as_str().unwrap()).unwrap());
}

#[tokio::test]
async fn on_shutdown_idle_connections_close_and_calls_finish() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_limited(&[("shop", &shop)], limits_with_drain_timeout(Duration::from_secs(3600))).await;
    let mut idle = server.connect().await;
    let mut half_sent = server.connect().await;
    half_sent.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let mut events = server.start_request("GET", "/api/events", "", b"").await;
    wait_until("it listens", async || events.read(&mut [0; 64]).await.unwrap() > 0).await;
    shop.pause();
    let mut call = server.start_request("POST", "/api/tools/shop__order/call", JSON_HEADER, b"{}").await;
    let mut over_mcp = start_mcp_call(&server, "application/json").await;
    wait_until("the calls", async || shop.calls() == 2).await;

    server.begin_shutdown();
    for stream in [&mut idle, &mut half_sent, &mut events] {
        let mut rest = Vec::new();
        tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
    shop.resume();
    assert_eq!(read_response(&mut call).await.expect_json(200)["is_error"], false);
    assert_eq!(read_response(&mut over_mcp).await.expect_json(200)["result"]["isError"], Value::Null);
    server.stop().await;
}

/// Regression: a call over MCP that was sent before the shutdown, and read after it began, was rejected.
#[tokio::test]
async fn calls_that_were_sent_before_the_shutdown_are_executed() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_limited(&[("shop", &shop)], limits_with_drain_timeout(Duration::from_secs(3600))).await;
    let mut calls = Vec::new();
    for _ in 0..16 {
        calls.push(start_mcp_call(&server, "application/json").await);
    }
    server.begin_shutdown();
    for call in &mut calls {
        assert_eq!(read_response(call).await.expect_json(200)["result"]["isError"], Value::Null);
    }
    assert_eq!(shop.calls(), calls.len());
    server.stop().await;
}

#[tokio::test]
async fn every_request_aborted_by_the_shutdown_gets_a_response() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_limited(&[("shop", &shop)], limits_with_drain_timeout(Duration::from_millis(300))).await;
    let session = open_session(&server).await;
    let params = || json!({ "name": "shop__order", "arguments": {} });
    shop.pause();
    let mut call = server.start_request("POST", "/api/tools/shop__order/call", JSON_HEADER, b"{}").await;
    let mut over_mcp = vec![
        start_mcp_call(&server, "application/json").await,
        start_mcp_call(&server, "text/event-stream").await,
        start_mcp_call(&server, "application/json, text/event-stream").await,
        start_session_request(&server, &session, "tools/call", params()).await,
    ];
    wait_until("the calls", async || shop.calls() == 5).await;
    // Sent once the call with the same request id runs: requests on different connections arrive in any order.
    let duplicate = json!({ "name": "call_tool", "arguments": params() });
    let mut duplicate = start_session_request(&server, &session, "tools/call", duplicate).await;
    assert_eq!(read_response(&mut duplicate).await.status, 400);
    let refresh = "/api/sources/shop/refresh?force=true";
    let mut refreshing = server.start_request("POST", refresh, JSON_HEADER, b"{}").await;
    wait_until("the refresh", async || shop.discoveries() == 2).await;
    let mut uploading = server.connect().await;
    let mut uploading_mcp = server.connect().await;
    for (stream, path) in [(&mut uploading, "/api/tools/shop__order/call"), (&mut uploading_mcp, "/mcp")] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{JSON_HEADER}Content-Length: 100\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.unwrap();
    }

    server.begin_shutdown();
    for stream in [&mut call, &mut refreshing, &mut uploading, &mut uploading_mcp] {
        expect_stopping(&read_response(stream).await.expect_json(503));
    }
    for stream in &mut over_mcp {
        expect_stopping_result(&read_response(stream).await);
    }
    server.stop().await;
}
