//! Malformed and inconsistent HTTP requests, with the status and the error code of each.

use http::StatusCode;
use serde_json::{Value, json};
use toolcrib_mcp::server::{McpEndpoint, ServerOptions};

use super::support::{LATEST_LEGACY, MODERN, TestSession, send_http, test_endpoint};

const ACCEPT_BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON_CONTENT: (&str, &str) = ("content-type", "application/json");

async fn check_error(endpoint: &McpEndpoint, headers: &[(&str, &str)], body: &str, status: u16, code: i64) {
    let response = send_http(endpoint, "POST", headers, body.to_owned()).await;
    let actual_status = response.status.as_u16();
    let response = response.read_json().await;
    let actual_code = response["error"]["code"].as_i64();
    assert_eq!((actual_status, actual_code), (status, Some(code)), "{headers:?} {body} {response}");
}

#[tokio::test]
async fn malformed_messages_are_rejected() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let headers = [ACCEPT_BOTH, JSON_CONTENT];
    check_error(&endpoint, &headers, "", 400, -32700).await;
    check_error(&endpoint, &headers, "{\"jsonrpc\":", 400, -32700).await;
    check_error(&endpoint, &headers, "42", 400, -32600).await;
    check_error(&endpoint, &headers, "{}", 400, -32600).await;
    check_error(&endpoint, &headers, r#"{"id":1,"method":"ping"}"#, 400, -32600).await;
    check_error(&endpoint, &headers, r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400, -32600).await;
    check_error(&endpoint, &headers, r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, 400, -32600).await;
    check_error(&endpoint, &headers, r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, 400, -32600).await;
    check_error(&endpoint, &headers, r#"{"jsonrpc":"2.0","id":1,"method":7}"#, 400, -32600).await;
    check_error(&endpoint, &headers, r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, 400, -32602).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    check_error(&endpoint, &[ACCEPT_BOTH], body, 415, -32600).await;
    check_error(&endpoint, &[ACCEPT_BOTH, ("content-type", "text/plain")], body, 415, -32600).await;
    check_error(&endpoint, &[("accept", "text/html"), JSON_CONTENT], body, 406, -32600).await;
    let not_utf8 = send_http(&endpoint, "POST", &headers, vec![0xff, 0xfe]).await;
    assert_eq!(not_utf8.read_json().await["error"]["code"], -32700);
}

#[tokio::test]
async fn other_http_methods_are_rejected_with_the_allowed_ones() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    for method in ["PUT", "PATCH", "OPTIONS", "HEAD"] {
        let response = send_http(&endpoint, method, &[], "").await;
        assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers["allow"], "GET, POST, DELETE");
    }
    for method in ["GET", "DELETE"] {
        for headers in [&[ACCEPT_BOTH][..], &[ACCEPT_BOTH, ("mcp-protocol-version", MODERN), ("mcp-session-id", "x")]] {
            assert_eq!(send_http(&endpoint, method, headers, "").await.status, StatusCode::METHOD_NOT_ALLOWED);
        }
    }
}

fn modern_body(method: &str, params: Value) -> String {
    let mut params = params;
    let meta =
        json!({ "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {} });
    if params.get("_meta").is_none() {
        params["_meta"] = meta;
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

#[tokio::test]
async fn headers_must_match_the_body() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let version = ("mcp-protocol-version", MODERN);
    let listing = ("mcp-method", "tools/list");
    let calling = ("mcp-method", "tools/call");
    let list = modern_body("tools/list", json!({}));
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, listing], &list, 400, -32020).await;
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, version], &list, 400, -32020).await;
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, version, ("mcp-method", "TOOLS/LIST")], &list, 400, -32020)
        .await;
    check_error(
        &endpoint,
        &[ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", LATEST_LEGACY), listing],
        &list,
        400,
        -32020,
    )
    .await;
    let echo = modern_body("tools/call", json!({ "name": "echo" }));
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, version, calling], &echo, 400, -32020).await;
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, version, calling, ("mcp-name", "other")], &echo, 400, -32020)
        .await;
    let encoded = [ACCEPT_BOTH, JSON_CONTENT, version, calling, ("mcp-name", "=?base64?ZWNobw==?=")];
    assert_eq!(send_http(&endpoint, "POST", &encoded, echo).await.status, StatusCode::OK);
    let marked = modern_body("tools/call", json!({ "name": "marked", "arguments": { "region": "eu" } }));
    let named = [ACCEPT_BOTH, JSON_CONTENT, version, calling, ("mcp-name", "marked")];
    check_error(&endpoint, &named, &marked, 400, -32020).await;
    for (value, status) in [("eu", 200), ("us", 400), ("=?base64?ZXU=?=", 200), ("=?base64?ZXU?=", 400)] {
        let headers = [&named[..], &[("mcp-param-region", value)]].concat();
        assert_eq!(send_http(&endpoint, "POST", &headers, marked.clone()).await.status.as_u16(), status, "{value}");
    }
    let unmarked = modern_body("tools/call", json!({ "name": "marked", "arguments": { "region": null } }));
    assert_eq!(send_http(&endpoint, "POST", &named, unmarked).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_modern_request_must_have_version_and_capabilities() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let headers = [ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", MODERN), ("mcp-method", "server/discover")];
    check_error(&endpoint, &headers, r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#, 400, -32602).await;
    let meta = |meta: Value| modern_body("server/discover", json!({ "_meta": meta }));
    check_error(&endpoint, &headers, &meta(json!({ "io.modelcontextprotocol/protocolVersion": MODERN })), 400, -32602)
        .await;
    let odd =
        json!({ "io.modelcontextprotocol/protocolVersion": "v9", "io.modelcontextprotocol/clientCapabilities": {} });
    check_error(&endpoint, &headers, &meta(odd.clone()), 400, -32020).await;
    let response = send_http(
        &endpoint,
        "POST",
        &[ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", "v9"), headers[3]],
        meta(odd),
    )
    .await;
    let error = response.read_json().await["error"].take();
    assert_eq!((&error["code"], &error["data"]["requested"]), (&json!(-32022), &json!("v9")));
    assert_eq!(error["data"]["supported"][0], MODERN);
}

#[tokio::test]
async fn legacy_methods_are_not_found_in_a_modern_request() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such/method"] {
        let headers = [ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", MODERN), ("mcp-method", method)];
        check_error(&endpoint, &headers, &modern_body(method, json!({})), 404, -32601).await;
    }
    let headers = [ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", MODERN), ("mcp-method", "")];
    check_error(&endpoint, &headers, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 400, -32600).await;
}

#[tokio::test]
async fn a_legacy_client_needs_its_session() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT], list, 400, -32600).await;
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, ("mcp-session-id", "guessed")], list, 404, -32600).await;
    check_error(&endpoint, &[ACCEPT_BOTH, JSON_CONTENT, ("mcp-protocol-version", "1999-01-01")], list, 400, -32022)
        .await;
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let unknown =
        [ACCEPT_BOTH, JSON_CONTENT, ("mcp-session-id", session.id.as_str()), ("mcp-protocol-version", "1999-01-01")];
    check_error(&endpoint, &unknown, list, 400, -32022).await;
    let get = [("accept", "application/json"), ("mcp-session-id", session.id.as_str())];
    assert_eq!(send_http(&endpoint, "GET", &get, "").await.status, StatusCode::NOT_ACCEPTABLE);
    let get = [ACCEPT_BOTH, ("mcp-session-id", session.id.as_str()), ("last-event-id", "7-7")];
    assert_eq!(send_http(&endpoint, "GET", &get, "").await.status, StatusCode::BAD_REQUEST);
}
