//! Our own client against our own server, over a port and over a byte stream.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, routing::any};
use futures_util::FutureExt;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{
    Client, Era, Notice, Options, RequestOptions, Target,
    server::{Change, Endpoint, ServerOptions, serve_stream},
};

use crate::support::{Bench, Bound, endpoint, parsed, raw};

async fn handle(State(endpoint): State<Endpoint>, request: axum::extract::Request) -> axum::response::Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    endpoint.handle(http::Request::from_parts(head, body)).await.map(axum::body::Body::new)
}

async fn listening() -> (Arc<Bench>, Target) {
    let (bench, endpoint) = endpoint(ServerOptions::new("crib", "9"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?mode=full", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().route("/mcp", any(handle)).with_state(endpoint);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (bench, Target::Http { url, headers: HeaderMap::new() })
}

fn streaming() -> (Arc<Bench>, Target) {
    let bench = Bench::new();
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let service = Arc::new(Bound(bench.clone()));
    let options = ServerOptions::new("crib", "9");
    tokio::spawn(serve_stream(service, reader, writer, options, CancellationToken::new()));
    let (reader, writer) = tokio::io::split(ours);
    (bench, Target::Stream { reader: Box::new(reader), writer: Box::new(writer) })
}

fn options(era: Option<Era>) -> Options {
    let mut options = Options::new("test", "1");
    options.era = era;
    options.capabilities = raw(&json!({ "elicitation": {} }));
    options.handler = Some(Arc::new(|request| {
        async move { Ok(raw(&json!({ "action": "accept", "asked": request.method }))) }.boxed()
    }));
    options
}

async fn call(client: &Client, tool: &str, options: &RequestOptions) -> Value {
    parsed(&client.call_tool(tool, &raw(&json!({})), None, None, options).await.unwrap())
}

/// Everything a client does, whichever way it came.
async fn check(bench: &Bench, target: Target, hint: Option<Era>, era: &str) {
    let client = Client::connect(target, options(hint)).await.unwrap();
    assert_eq!(client.era().as_str(), era);
    assert_eq!(parsed(client.server().info.as_deref().unwrap()), json!({ "name": "crib", "version": "9" }));
    let mut notices = client.notices();
    let within = RequestOptions::new(Duration::from_secs(20));

    let tools = client.list_tools(Duration::from_secs(20)).await.unwrap().tools;
    assert_eq!(tools.len(), 2);
    let marked = raw(&parsed(&tools[1])["inputSchema"]);
    let arguments = raw(&json!({ "region": "Zürich" }));
    let echoed = client.call_tool("marked", &arguments, Some(&marked), None, &within).await.unwrap();
    assert_eq!(parsed(&echoed)["structuredContent"]["arguments"], json!({ "region": "Zürich" }));

    let (progress, mut told) = mpsc::channel(8);
    call(&client, "progress", &RequestOptions { progress: Some(progress), ..within.clone() }).await;
    for progress in 1..=3 {
        assert_eq!(parsed(&told.recv().await.unwrap())["progress"], progress);
    }

    for tool in ["ask", "ask_two", "ask_twice"] {
        let text = call(&client, tool, &within).await["content"][0]["text"].to_string();
        assert!(text.contains("elicitation/create"), "{text}");
    }

    bench.heard("listening", 1).await;
    bench.changed.send(Change::Tools).unwrap();
    let notice = tokio::time::timeout(Duration::from_secs(20), notices.recv()).await.unwrap().unwrap();
    assert!(matches!(notice, Notice::ToolsChanged));

    let nothing = raw(&json!({}));
    let giving_up = async {
        bench.heard("begun wait", 1).await;
        within.cancel.cancel();
    };
    let (cancelled, ()) = tokio::join!(client.call_tool("wait", &nothing, None, None, &within), giving_up);
    assert!(cancelled.is_err());
    bench.heard("cancelled", 1).await;
    client.close().await;
    bench.heard("gone", 1).await;
}

#[tokio::test]
async fn over_a_port_the_client_speaks_the_newest_version() {
    let (bench, target) = listening().await;
    check(&bench, target, None, "2026-07-28").await;
}

#[tokio::test]
async fn over_a_port_in_a_session() {
    let (bench, target) = listening().await;
    check(&bench, target, Some("2025-11-25".parse().unwrap()), "2025-11-25").await;
}

#[tokio::test]
async fn over_a_stream_the_client_begins_with_a_handshake() {
    let (bench, target) = streaming();
    check(&bench, target, None, "2025-11-25").await;
}

#[tokio::test]
async fn over_a_stream_without_a_handshake() {
    let (bench, target) = streaming();
    check(&bench, target, Some("2026-07-28".parse().unwrap()), "2026-07-28").await;
}

#[tokio::test]
async fn many_clients_at_once_get_their_own_answers() {
    let (_bench, target) = listening().await;
    let Target::Http { url, headers } = target else { panic!("not over a port") };
    let clients = (0..64).map(|client| {
        let target = Target::Http { url: url.clone(), headers: headers.clone() };
        let era = if client % 2 == 0 { "2026-07-28" } else { "2025-06-18" };
        async move {
            let mut options = options(Some(era.parse().unwrap()));
            options.listen = false;
            let client_side = Client::connect(target, options).await.unwrap();
            let within = RequestOptions::new(Duration::from_secs(60));
            for call in 0..10 {
                let given = json!({ "client": client, "call": call });
                let echoed = client_side.call_tool("echo", &raw(&given), None, None, &within).await.unwrap();
                assert_eq!(parsed(&echoed)["structuredContent"]["arguments"], given);
            }
            client_side.close().await;
        }
    });
    futures_util::future::join_all(clients).await;
}
