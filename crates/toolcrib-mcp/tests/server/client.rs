//! Our own client against our own server, over HTTP and over a byte stream.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, routing::any};
use futures_util::FutureExt;
use http::HeaderMap;
use serde_json::{Value, json, value::RawValue};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{
    ClientOptions, ConnectTarget, ConnectionEvent, Era, McpClient, ProgressHandler, RequestOptions,
    server::{ChangeNotification, McpEndpoint, ServerOptions, serve_stream},
};

use super::support::{ServiceState, TestService, test_endpoint};
use crate::{parse, to_raw};

async fn handle(State(endpoint): State<McpEndpoint>, request: axum::extract::Request) -> axum::response::Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    endpoint.handle(http::Request::from_parts(head, body)).await.map(axum::body::Body::new)
}

async fn http_target() -> (Arc<ServiceState>, ConnectTarget) {
    let (service, endpoint) = test_endpoint(ServerOptions::new("crib", "9"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?mode=full", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().route("/mcp", any(handle)).with_state(endpoint);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (service, ConnectTarget::Http { url, headers: HeaderMap::new() })
}

fn stdio_target() -> (Arc<ServiceState>, ConnectTarget) {
    let service = ServiceState::new();
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let test_service = Arc::new(TestService(service.clone()));
    let options = ServerOptions::new("crib", "9");
    tokio::spawn(serve_stream(test_service, reader, writer, options, CancellationToken::new()));
    let (reader, writer) = tokio::io::split(ours);
    (service, ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) })
}

fn client_options(era: Option<Era>) -> ClientOptions {
    let mut options = ClientOptions::new("test", "1");
    options.era = era;
    options.capabilities = to_raw(&json!({ "elicitation": {} }));
    options.handler = Some(Arc::new(|request| {
        async move { Ok(to_raw(&json!({ "action": "accept", "asked": request.method }))) }.boxed()
    }));
    options
}

async fn call_tool(client: &McpClient, tool: &str, options: &RequestOptions<'_>) -> Value {
    parse(&client.call_tool(tool, &to_raw(&json!({})), None, None, options).await.unwrap())
}

/// Checks all features that a client uses, over one transport and in one era.
async fn check_client(service: &ServiceState, target: ConnectTarget, hint: Option<Era>, era: &str) {
    let client = McpClient::connect(target, client_options(hint)).await.unwrap();
    assert_eq!(client.era().as_str(), era);
    assert_eq!(parse(client.server().info.as_deref().unwrap()), json!({ "name": "crib", "version": "9" }));
    let mut events = client.events();
    let options = RequestOptions::new(Duration::from_secs(20));

    let tools = client.list_tools(Duration::from_secs(20)).await.unwrap().tools;
    assert_eq!(tools.len(), 2);
    let input_schema = to_raw(&parse(&tools[1])["inputSchema"]);
    let arguments = to_raw(&json!({ "region": "Zürich" }));
    let echoed = client.call_tool("marked", &arguments, Some(&input_schema), None, &options).await.unwrap();
    assert_eq!(parse(&echoed)["structuredContent"]["arguments"], json!({ "region": "Zürich" }));

    let (sender, mut received) = mpsc::unbounded_channel();
    let handler: ProgressHandler = Arc::new(move |params: &RawValue| sender.send(params.to_owned()).unwrap());
    call_tool(&client, "progress", &RequestOptions { progress: Some(&handler), ..options.clone() }).await;
    for progress in 1..=3 {
        assert_eq!(parse(&received.recv().await.unwrap())["progress"], progress);
    }

    for tool in ["ask", "ask_two", "ask_twice"] {
        let text = call_tool(&client, tool, &options).await["content"][0]["text"].to_string();
        assert!(text.contains("elicitation/create"), "{text}");
    }

    service.wait_for("listening", 1).await;
    service.changed.send(ChangeNotification::Tools).unwrap();
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    assert!(matches!(event, ConnectionEvent::ToolsChanged));

    let empty_object = to_raw(&json!({}));
    let cancel = CancellationToken::new();
    let cancelling = async {
        service.wait_for("started wait", 1).await;
        cancel.cancel();
    };
    let options = RequestOptions { cancel: Some(&cancel), ..options };
    let (cancelled, ()) = tokio::join!(client.call_tool("wait", &empty_object, None, None, &options), cancelling);
    assert!(cancelled.is_err());
    service.wait_for("cancelled", 1).await;
    client.close().await;
    service.wait_for("disconnected", 1).await;
}

#[tokio::test]
async fn over_http_the_client_uses_the_newest_version() {
    let (service, target) = http_target().await;
    check_client(&service, target, None, "2026-07-28").await;
}

#[tokio::test]
async fn over_http_in_a_session() {
    let (service, target) = http_target().await;
    check_client(&service, target, Some("2025-11-25".parse().unwrap()), "2025-11-25").await;
}

#[tokio::test]
async fn over_stdio_the_client_begins_with_a_handshake() {
    let (service, target) = stdio_target();
    check_client(&service, target, None, "2025-11-25").await;
}

#[tokio::test]
async fn over_stdio_without_a_handshake() {
    let (service, target) = stdio_target();
    check_client(&service, target, Some("2026-07-28".parse().unwrap()), "2026-07-28").await;
}

#[tokio::test]
async fn concurrent_clients_get_their_own_responses() {
    let (_service, target) = http_target().await;
    let ConnectTarget::Http { url, headers } = target else { panic!("not over a port") };
    let clients = (0..64).map(|client| {
        let target = ConnectTarget::Http { url: url.clone(), headers: headers.clone() };
        let era = if client % 2 == 0 { "2026-07-28" } else { "2025-06-18" };
        async move {
            let mut options = client_options(Some(era.parse().unwrap()));
            options.listen = false;
            let client_side = McpClient::connect(target, options).await.unwrap();
            let options = RequestOptions::new(Duration::from_secs(60));
            for call in 0..10 {
                let arguments = json!({ "client": client, "call": call });
                let echoed = client_side.call_tool("echo", &to_raw(&arguments), None, None, &options).await.unwrap();
                assert_eq!(parse(&echoed)["structuredContent"]["arguments"], arguments);
            }
            client_side.close().await;
        }
    });
    futures_util::future::join_all(clients).await;
}
