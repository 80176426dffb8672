//! Minimal MCP server over HTTP, as the fastest possible upstream: the time of a call to it is the cost of the
//! transport.
//!
//! It accepts every protocol version, has one tool, `echo {text}`, and prints `listening on http://127.0.0.1:PORT/mcp`.

#![expect(clippy::print_stdout, reason = "prints the address it listens on")]

use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // Without it the connection is only slower, so an error is ignored.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, Router::new().route("/mcp", post(handle))).await
}

/// JSON-RPC message, parsed as far as needed.
#[derive(Deserialize)]
struct EchoMessage<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: String,
    #[serde(default)]
    params: Value,
}

/// Responds to one message; notifications get `202 Accepted`. Headers and sessions are not checked.
async fn handle(body: Bytes) -> Response {
    let Ok(EchoMessage { id, method, params }) = serde_json::from_slice(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // A message without an id is a notification.
    let Some(id) = id else { return StatusCode::ACCEPTED.into_response() };
    let response = match method_result(&method, &params) {
        Some(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        None => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#)
        }
    };
    ([(header::CONTENT_TYPE, "application/json")], response).into_response()
}

/// Returns the result of a method; `None` for an unknown one.
fn method_result(method: &str, params: &Value) -> Option<Value> {
    let info = json!({"name": "fast-http", "version": "1"});
    match method {
        "tools/call" => {
            let text = &params["arguments"]["text"];
            Some(json!({"resultType": "complete", "content": [{"type": "text", "text": text}]}))
        }
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
            let echo = json!({"name": "echo", "description": "Echoes a text", "inputSchema": schema});
            Some(json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [echo]}))
        }
        "initialize" => {
            Some(json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}))
        }
        "server/discover" => Some(json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": info},
        })),
        _ => None,
    }
}
