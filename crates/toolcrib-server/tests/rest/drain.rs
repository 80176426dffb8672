//! What requests in progress get when the server is asked to leave.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use toolcrib::testkit::Scripted;
use toolcrib_server::Limits;

use crate::support::{Answer, SOON, Stage, limited, until};
use crate::web::finish;

const JSON: &str = "Content-Type: application/json\r\n";

fn draining(drain_timeout: Duration) -> Limits {
    Limits { drain_timeout, ..Limits::default() }
}

/// Reads to the end of the connection.
async fn rest(stream: &mut TcpStream) -> Answer {
    finish(stream, b"").await
}

/// A call over MCP 2026-07-28.
async fn mcp_call(stage: &Stage, accept: &str) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "shop__order", "arguments": {}, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let headers = format!(
        "{JSON}Accept: {accept}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: shop__order\r\n"
    );
    stage.open("POST", "/mcp", &headers, body.as_bytes()).await
}

/// A request of a session, whose id is in `headers`.
async fn in_session(stage: &Stage, headers: &str, method: &str, params: Value) -> TcpStream {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let headers = format!("{JSON}Accept: application/json, text/event-stream\r\n{headers}");
    stage.open("POST", "/mcp", &headers, body.as_bytes()).await
}

/// Begins a session; the header that its requests carry.
async fn session(stage: &Stage) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let answer = rest(&mut in_session(stage, "", "initialize", params).await).await;
    format!("Mcp-Session-Id: {}\r\n", answer.header("mcp-session-id").unwrap())
}

fn expect_stopping(error: &Value) {
    let expected = json!({
        "code": "TOOL_UNAVAILABLE", "message": "Toolcrib is stopping; try again", "retryable": true, "details": null,
    });
    assert_eq!(error["error"], expected);
}

/// The same, of a call over MCP, in JSON or as the last event of a stream.
fn expect_stopping_result(answer: &Answer) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let data = answer.body.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&answer.body);
    let message: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&message["id"], &message["result"]["isError"]), (&json!(7), &json!(true)), "{message}");
    expect_stopping(&serde_json::from_str(message["result"]["content"][0]["text"].as_str().unwrap()).unwrap());
}

#[tokio::test]
async fn what_waits_for_nothing_closes_at_once_and_calls_finish() {
    let shop = Scripted::new(["order"]);
    let stage = limited(&[("shop", &shop)], draining(Duration::from_secs(3600))).await;
    let mut idle = stage.connect().await;
    let mut half_sent = stage.connect().await;
    half_sent.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let mut events = stage.open("GET", "/api/events", "", b"").await;
    until("it listens", async || events.read(&mut [0; 64]).await.unwrap() > 0).await;
    shop.hold();
    let mut call = stage.open("POST", "/api/tools/shop__order/call", JSON, b"{}").await;
    let mut over_mcp = mcp_call(&stage, "application/json").await;
    until("the calls", async || shop.calls() == 2).await;

    stage.leave();
    for stream in [&mut idle, &mut half_sent, &mut events] {
        let mut left = Vec::new();
        tokio::time::timeout(SOON, stream.read_to_end(&mut left)).await.unwrap().unwrap();
    }
    shop.release();
    assert_eq!(rest(&mut call).await.with(200)["is_error"], false);
    assert_eq!(rest(&mut over_mcp).await.with(200)["result"]["isError"], Value::Null);
    stage.end().await;
}

#[tokio::test]
async fn every_request_that_cannot_finish_gets_a_response() {
    let shop = Scripted::new(["order"]);
    let stage = limited(&[("shop", &shop)], draining(Duration::from_millis(300))).await;
    let session = session(&stage).await;
    let params = || json!({ "name": "shop__order", "arguments": {} });
    shop.hold();
    let mut call = stage.open("POST", "/api/tools/shop__order/call", JSON, b"{}").await;
    let mut over_mcp = vec![
        mcp_call(&stage, "application/json").await,
        mcp_call(&stage, "text/event-stream").await,
        mcp_call(&stage, "application/json, text/event-stream").await,
        in_session(&stage, &session, "tools/call", params()).await,
        in_session(&stage, &session, "tools/call", json!({ "name": "call_tool", "arguments": params() })).await,
    ];
    // The last one is refused, for its id is in use.
    assert_eq!(rest(&mut over_mcp.pop().unwrap()).await.status, 400);
    let refresh = "/api/sources/shop/refresh?force=true";
    let mut refreshing = stage.open("POST", refresh, JSON, b"{}").await;
    until("all of them", async || shop.calls() == 5 && shop.discoveries() == 2).await;
    let mut uploading = stage.connect().await;
    let mut uploading_mcp = stage.connect().await;
    for (stream, path) in [(&mut uploading, "/api/tools/shop__order/call"), (&mut uploading_mcp, "/mcp")] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{JSON}Content-Length: 100\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await.unwrap();
    }

    stage.leave();
    for stream in [&mut call, &mut refreshing, &mut uploading, &mut uploading_mcp] {
        expect_stopping(&rest(stream).await.with(503));
    }
    for stream in &mut over_mcp {
        expect_stopping_result(&rest(stream).await);
    }
    stage.end().await;
}
