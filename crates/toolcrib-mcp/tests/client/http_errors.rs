//! HTTP servers that reject requests, fail, send too much or are no MCP servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use serde_json::json;
use tokio::net::TcpSocket;
use toolcrib_mcp::{ClientLimits, ClientOptions, ConnectTarget, McpClient, WireError};
use toolcrib_testkit::http_server::HttpReply;

use super::support::{ScriptedHttpServer, call_tool, client_options, sse_event};

#[tokio::test]
async fn a_missing_token_is_reported_without_a_second_probe() {
    for status in [401, 403] {
        let server = ScriptedHttpServer::start(move |_| HttpReply::text(status, "no"));
        let response = server.connect().await;
        assert!(
            matches!(response, Err(WireError::Unauthorized { status: reported, .. }) if reported == status),
            "{response:?}"
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_refused_connection_is_not_probed_for_the_other_era() {
    // Bound, so that no other process gets the port, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let url = format!("http://user:pw@{address}/mcp?token=secret").parse().unwrap();
    let error =
        McpClient::connect(ConnectTarget::Http { url, headers: HeaderMap::new() }, client_options()).await.unwrap_err();
    assert!(matches!(error, WireError::Connect(_)) && !error.was_sent(), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(text.contains(&address.to_string()) && !text.contains("secret") && !text.contains("pw@"), "{text}");
}

#[tokio::test]
async fn a_gateway_error_is_not_probed_for_the_other_era() {
    let server = ScriptedHttpServer::start(|_| HttpReply::text(503, "come back later"));
    let response = server.connect().await;
    assert!(matches!(response, Err(WireError::Status { status: 503, .. })), "{response:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_web_page_is_reported_as_not_mcp() {
    let server = ScriptedHttpServer::start(|_| HttpReply::text(200, "<html>Welcome to nginx").with_header("x", "y"));
    let error = server.connect().await.unwrap_err();
    assert!(matches!(error, WireError::NotMcp(_)), "{error:?}");
    assert!(error.to_string().contains("Welcome to nginx"), "{error}");
}

#[tokio::test]
async fn a_body_or_event_over_the_limit_fails_the_request() {
    for endless in [false, true] {
        let server = ScriptedHttpServer::start(move |request| {
            request.legacy_handshake("s").unwrap_or_else(|| {
                if endless {
                    HttpReply::events(format!("data: {}", "x".repeat(10_000))).then_keep_open()
                } else {
                    request.rpc_result(&json!({ "text": "x".repeat(10_000) }))
                }
            })
        });
        let limits = ClientLimits { max_body_bytes: 2000, ..ClientLimits::default() };
        let client = McpClient::connect(server.target(), ClientOptions { limits, ..client_options() }).await.unwrap();
        let response = call_tool(&client, "t").await;
        assert!(matches!(response, Err(WireError::TooLarge { limit: 2000, .. })), "{response:?}");
        assert!(!client.is_closed(), "one bad response costs one request");
    }
}

#[tokio::test]
async fn a_stream_without_a_response_is_an_error_at_once() {
    let server = ScriptedHttpServer::start(|request| {
        let unrelated = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
        request.legacy_handshake("s").unwrap_or_else(|| HttpReply::events(sse_event(&unrelated)))
    });
    let client = server.connect().await.unwrap();
    let response = call_tool(&client, "t").await;
    assert!(matches!(response, Err(WireError::Closed { sent: true, .. })), "{response:?}");
}

#[tokio::test]
async fn an_error_without_an_id_fails_its_request() {
    let server = ScriptedHttpServer::start(|request| {
        let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "cannot parse" } });
        request.legacy_handshake("s").unwrap_or_else(|| HttpReply::json(400, error))
    });
    let client = server.connect().await.unwrap();
    let response = call_tool(&client, "t").await;
    assert!(matches!(&response, Err(WireError::Rpc(error)) if error.code == -32700), "{response:?}");
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_origin() {
    let other_origin = ScriptedHttpServer::start(|_| HttpReply::empty(200));
    let location = other_origin.url.to_string();
    let server = ScriptedHttpServer::start(move |_| HttpReply::empty(307).with_header("location", &location));
    let error = server.connect().await.unwrap_err();
    assert!(error.to_string().contains(other_origin.url.as_str()), "{error}");
    assert!(other_origin.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_within_one_origin_is_followed() {
    let server = ScriptedHttpServer::start(|request| match request.target.as_str() {
        "/mcp" => HttpReply::empty(308).with_header("location", "/mcp/"),
        _ => request.legacy_handshake("s").unwrap_or_else(|| request.rpc_result(&json!({}))),
    });
    call_tool(&server.connect().await.unwrap(), "t").await.unwrap();
}

#[tokio::test]
async fn a_rejection_is_reported_although_the_sse_fallback_hangs() {
    let server = ScriptedHttpServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::events("").then_keep_open(),
        _ => HttpReply::text(405, "Method Not Allowed"),
    });
    let options = ClientOptions { handshake_timeout: Duration::from_millis(300), ..client_options() };
    let error = McpClient::connect(server.target(), options).await.unwrap_err();
    assert!(matches!(error, WireError::Status { status: 405, .. }), "{error:?}");
}

#[tokio::test]
async fn renewing_a_session_is_bounded_by_the_connect_timeout() {
    let initialize_count = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| match request.rpc_method().as_str() {
        "initialize" if initialize_count.fetch_add(1, Ordering::Relaxed) > 0 => HttpReply::events("").then_keep_open(),
        _ => request.legacy_handshake("s").unwrap_or_else(|| HttpReply::empty(404)),
    });
    let options = ClientOptions { connect_timeout: Duration::from_millis(300), ..client_options() };
    let client = McpClient::connect(server.target(), options).await.unwrap();
    let error = call_tool(&client, "echo").await.unwrap_err();
    let reason = "the server lost the session and did not begin another within 300ms";
    assert!(matches!(&error, WireError::Connect(message) if message == reason), "{error:?}");
}
