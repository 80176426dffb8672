//! HTTP servers that refuse, fail, flood or are something else altogether.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use serde_json::json;
use tokio::net::TcpSocket;
use toolcrib_mcp::{ClientLimits, ClientOptions, ConnectTarget, McpClient, WireError};

use crate::support::{HttpReply, ScriptedHttpServer, call_tool, client_options, sse_event};

#[tokio::test]
async fn a_missing_token_is_told_apart_and_not_tried_around() {
    for status in [401, 403] {
        let server = ScriptedHttpServer::start(move |_| HttpReply::text(status, "no")).await;
        let answer = server.connect().await;
        assert!(matches!(answer, Err(WireError::Unauthorized { status: told, .. }) if told == status), "{answer:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn nobody_there_is_no_reason_to_try_the_other_era() {
    // Bound, so that nobody else gets it, and not listened on.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unused = socket.local_addr().unwrap();
    let url = format!("http://user:pw@{unused}/mcp?token=secret").parse().unwrap();
    let error =
        McpClient::connect(ConnectTarget::Http { url, headers: HeaderMap::new() }, client_options()).await.unwrap_err();
    assert!(matches!(error, WireError::Connect(_)) && !error.was_sent(), "{error:?}");
    let text = format!("{error} {error:?}");
    assert!(text.contains(&unused.to_string()) && !text.contains("secret") && !text.contains("pw@"), "{text}");
}

#[tokio::test]
async fn a_broken_gateway_is_no_legacy_server() {
    let server = ScriptedHttpServer::start(|_| HttpReply::text(503, "come back later")).await;
    let answer = server.connect().await;
    assert!(matches!(answer, Err(WireError::Status { status: 503, .. })), "{answer:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_web_page_is_no_mcp_server() {
    let server =
        ScriptedHttpServer::start(|_| HttpReply::text(200, "<html>Welcome to nginx").with_header("x", "y")).await;
    let error = server.connect().await.unwrap_err();
    assert!(matches!(error, WireError::NotMcp(_)), "{error:?}");
    assert!(error.to_string().contains("Welcome to nginx"), "{error}");
}

#[tokio::test]
async fn a_body_or_an_event_too_large_is_refused() {
    for endless in [false, true] {
        let server = ScriptedHttpServer::start(move |request| {
            request.legacy_handshake("s").unwrap_or_else(|| match endless {
                false => request.result(&json!({ "text": "x".repeat(10_000) })),
                true => HttpReply::events(format!("data: {}", "x".repeat(10_000))).then_keep_open(),
            })
        })
        .await;
        let limits = ClientLimits { body_bytes: 2000, ..ClientLimits::default() };
        let client = McpClient::connect(server.target(), ClientOptions { limits, ..client_options() }).await.unwrap();
        let answer = call_tool(&client, "t").await;
        assert!(matches!(answer, Err(WireError::TooLarge { limit: 2000, .. })), "{answer:?}");
        assert!(!client.is_closed(), "one bad answer costs one request");
    }
}

#[tokio::test]
async fn a_stream_without_an_answer_is_an_error_at_once() {
    let server = ScriptedHttpServer::start(|request| {
        let unrelated = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
        request.legacy_handshake("s").unwrap_or_else(|| HttpReply::events(sse_event(&unrelated)))
    })
    .await;
    let client = server.connect().await.unwrap();
    let answer = call_tool(&client, "t").await;
    assert!(matches!(answer, Err(WireError::Closed { sent: true, .. })), "{answer:?}");
}

#[tokio::test]
async fn an_error_without_an_id_answers_its_request() {
    let server = ScriptedHttpServer::start(|request| {
        let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "cannot parse" } });
        request.legacy_handshake("s").unwrap_or_else(|| HttpReply::json(400, &error))
    })
    .await;
    let client = server.connect().await.unwrap();
    let answer = call_tool(&client, "t").await;
    assert!(matches!(&answer, Err(WireError::Rpc(error)) if error.code == -32700), "{answer:?}");
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_origin() {
    let elsewhere = ScriptedHttpServer::start(|_| HttpReply::empty(200)).await;
    let there = elsewhere.url.to_string();
    let server = ScriptedHttpServer::start(move |_| HttpReply::empty(307).with_header("location", &there)).await;
    let error = server.connect().await.unwrap_err();
    assert!(error.to_string().contains(elsewhere.url.as_str()), "{error}");
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_within_one_origin_is_followed() {
    let server = ScriptedHttpServer::start(|request| match request.path.as_str() {
        "/mcp" => HttpReply::empty(308).with_header("location", "/mcp/"),
        _ => request.legacy_handshake("s").unwrap_or_else(|| request.result(&json!({}))),
    })
    .await;
    call_tool(&server.connect().await.unwrap(), "t").await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_told_although_the_older_transport_does_not_answer() {
    let server = ScriptedHttpServer::start(|request| match request.verb.as_str() {
        "GET" => HttpReply::events("").then_keep_open(),
        _ => HttpReply::text(405, "Method Not Allowed"),
    })
    .await;
    let hurried = ClientOptions { handshake_timeout: Duration::from_millis(300), ..client_options() };
    let error = McpClient::connect(server.target(), hurried).await.unwrap_err();
    assert!(matches!(error, WireError::Status { status: 405, .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_forgot_the_session_has_no_longer_than_for_a_first_one() {
    let begun = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| match request.method() {
        "initialize" if begun.fetch_add(1, Ordering::Relaxed) > 0 => HttpReply::events("").then_keep_open(),
        _ => request.legacy_handshake("s").unwrap_or_else(|| HttpReply::empty(404)),
    })
    .await;
    let hurried = ClientOptions { connect_timeout: Duration::from_millis(300), ..client_options() };
    let client = McpClient::connect(server.target(), hurried).await.unwrap();
    let error = call_tool(&client, "echo").await.unwrap_err();
    let reason = "the server forgot the session and did not begin another within 300ms";
    assert!(matches!(&error, WireError::Connect(told) if told == reason), "{error:?}");
}
