//! Legacy Streamable HTTP and HTTP+SSE servers that follow the protocol.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::json;
use toolcrib_mcp::{
    ClientLimits, ClientOptions, ConnectTarget, ConnectionEvent, Era, LegacyVersion, McpClient, WireError,
};
use toolcrib_testkit::http_server::{EventSender, HttpReply};

use super::support::{ScriptedHttpServer, call_tool, client_options, progress_channel, request_options, sse_event};
use crate::{parse, to_raw};

#[tokio::test]
async fn a_legacy_server_is_detected_and_its_session_used() {
    let server = ScriptedHttpServer::start(|request| {
        request.legacy_handshake("s1").unwrap_or_else(|| request.rpc_result(&json!({ "ok": 1 })))
    });
    let client = server.connect().await.unwrap();
    assert_eq!(client.era(), Era::Legacy(LegacyVersion::V2025_06_18));
    assert_eq!(call_tool(&client, "t").await.unwrap().get(), r#"{"ok":1}"#);
    client.close().await;
    let requests = server.requests();
    let calls: Vec<_> = requests.iter().filter(|request| request.method != "GET").collect();
    let methods: Vec<String> = calls.iter().map(|request| request.rpc_method()).collect();
    assert_eq!(methods, ["server/discover", "initialize", "notifications/initialized", "tools/call", ""]);
    assert_eq!(calls[1].header("mcp-session-id"), None);
    for request in &calls[2..] {
        assert_eq!(request.header("mcp-session-id"), Some("s1"));
        assert_eq!(request.header("mcp-protocol-version"), Some("2025-06-18"));
    }
    assert_eq!(calls[4].method, "DELETE");
}

#[tokio::test]
async fn a_request_may_have_its_own_headers() {
    let server = ScriptedHttpServer::start(|request| {
        request.legacy_handshake("s1").unwrap_or_else(|| request.rpc_result(&json!({ "ok": 1 })))
    });
    let client = server.connect().await.unwrap();
    let mut options = request_options(5);
    options.headers.insert("traceparent", "00-1-2-01".parse().unwrap());
    client.call_tool("t", &to_raw(&json!({})), None, None, &options).await.unwrap();
    call_tool(&client, "t").await.unwrap();
    let trace_headers = |method: &str| -> Vec<_> {
        let requests = server.requests().into_iter().filter(|request| request.rpc_method() == method);
        requests.map(|request| request.header("traceparent").map(str::to_owned)).collect()
    };
    assert_eq!(trace_headers("tools/call"), [Some("00-1-2-01".to_owned()), None]);
    // The response has no list, but the request was made.
    client.list_tools_with(Some(&to_raw(&json!({ "traceparent": "00-1-2-01" }))), &options).await.unwrap_err();
    assert_eq!(trace_headers("tools/list"), [Some("00-1-2-01".to_owned())]);
    let listed = server.requests().into_iter().find(|request| request.rpc_method() == "tools/list").unwrap();
    assert_eq!(listed.json()["params"]["_meta"]["traceparent"], "00-1-2-01");
}

#[tokio::test]
async fn a_known_era_saves_the_probe_and_a_wrong_one_does_no_harm() {
    let server =
        ScriptedHttpServer::start(|request| request.legacy_handshake("s").unwrap_or_else(|| HttpReply::empty(404)));
    let options = ClientOptions { era: Some(Era::Legacy(LegacyVersion::V2025_06_18)), ..client_options() };
    McpClient::connect(server.target(), options.clone()).await.unwrap();
    assert_eq!(server.methods()[0], "initialize");
    let modern = ScriptedHttpServer::start(|request| match request.rpc_method().as_str() {
        "server/discover" => request.rpc_result(&json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} })),
        _ => HttpReply::text(400, "missing headers"),
    });
    assert_eq!(McpClient::connect(modern.target(), options).await.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn a_lost_session_is_renewed_and_the_request_repeated() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let count = sessions.clone();
    let server = ScriptedHttpServer::start(move |request| {
        let current = count.load(Ordering::SeqCst);
        if request.rpc_method() == "initialize" {
            count.fetch_add(1, Ordering::SeqCst);
            return request.legacy_handshake(&format!("s{}", current + 1)).unwrap();
        }
        if request.rpc_method() == "tools/call" && request.header("mcp-session-id") != Some("s2") {
            return HttpReply::text(404, "who are you?");
        }
        request.legacy_handshake("").unwrap_or_else(|| request.rpc_result(&json!({ "ok": 1 })))
    });
    let client = server.connect().await.unwrap();
    let (first, second) = tokio::join!(call_tool(&client, "a"), call_tool(&client, "b"));
    assert_eq!((first.unwrap().get(), second.unwrap().get()), (r#"{"ok":1}"#, r#"{"ok":1}"#));
    assert_eq!(sessions.load(Ordering::SeqCst), 2, "one new session for both");
}

/// A server loses the subscriptions together with the session.
#[tokio::test]
async fn resource_subscriptions_are_renewed_in_a_new_session_with_retries() {
    let sessions = AtomicUsize::new(0);
    let attempts = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| {
        if request.rpc_method() == "initialize" {
            let session = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            return request.legacy_handshake(&format!("s{session}")).unwrap();
        }
        let in_first = request.header("mcp-session-id") == Some("s1");
        if request.rpc_method() == "tools/call" && in_first {
            return HttpReply::empty(404);
        }
        // A server that was started just now may not be ready.
        if request.rpc_method() == "resources/subscribe" && !in_first && attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            return HttpReply::text(500, "not yet");
        }
        request.legacy_handshake("").unwrap_or_else(|| request.rpc_result(&json!({})))
    });
    let client = server.connect().await.unwrap();
    for (method, uri) in
        [("resources/subscribe", "a:1"), ("resources/subscribe", "a:2"), ("resources/unsubscribe", "a:1")]
    {
        client.request(method, Some(&to_raw(&json!({ "uri": uri }))), &request_options(30)).await.unwrap();
    }
    let mut events = client.events();
    call_tool(&client, "t").await.unwrap();
    let updated = async {
        loop {
            if let ConnectionEvent::Other { method, params } = events.recv().await.unwrap() {
                return (method, parse(&params.unwrap()));
            }
        }
    };
    let updated = tokio::time::timeout(std::time::Duration::from_secs(30), updated).await.unwrap();
    assert_eq!(updated, ("notifications/resources/updated".to_owned(), json!({ "uri": "a:2" })));
    let requests = server.requests();
    let in_second = requests.iter().filter(|request| request.header("mcp-session-id") == Some("s2"));
    let subscriptions = in_second.filter(|request| request.rpc_method() == "resources/subscribe");
    let uris: Vec<_> = subscriptions.map(|request| request.json()["params"]["uri"].clone()).collect();
    assert_eq!(uris, ["a:2", "a:2"], "a rejected subscription is retried");
}

#[tokio::test]
async fn a_server_that_loses_every_session_is_an_error() {
    let server =
        ScriptedHttpServer::start(|request| request.legacy_handshake("s").unwrap_or_else(|| HttpReply::empty(404)));
    let client = server.connect().await.unwrap();
    let response = call_tool(&client, "t").await;
    assert!(matches!(response, Err(WireError::Status { status: 404, .. })), "{response:?}");
}

#[tokio::test]
async fn a_response_stream_may_carry_progress_and_server_requests() {
    let server = ScriptedHttpServer::start(|request| {
        request.legacy_handshake("s").unwrap_or_else(|| match request.rpc_method().as_str() {
            "tools/call" => {
                let id = &request.json()["id"];
                let progress = json!({ "progressToken": id, "progress": 1 });
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": progress });
                let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {} });
                let response = json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": 1 } });
                HttpReply::events([sse_event(&progress), sse_event(&question), sse_event(&response)].concat())
            }
            _ => HttpReply::empty(202),
        })
    });
    let mut options = client_options();
    options.handler = Some(Arc::new(|_| async { Ok(to_raw(&json!({ "action": "accept" }))) }.boxed()));
    let client = McpClient::connect(server.target(), options).await.unwrap();
    let (handler, mut progress) = progress_channel();
    let mut options = request_options(30);
    options.progress = Some(&handler);
    let response = client.call_tool("t", &to_raw(&json!({})), None, None, &options).await;
    assert_eq!(response.unwrap().get(), r#"{"ok":1}"#);
    assert_eq!(parse(&progress.recv().await.unwrap())["progress"], 1);
    let reply = server.wait_for(|request| request.json()["result"].is_object()).await;
    assert_eq!(reply.json(), json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "accept" } }));
}

#[tokio::test]
async fn an_interrupted_stream_is_resumed_after_its_last_event() {
    let waiting = Mutex::new(None);
    let server = ScriptedHttpServer::start(move |request| {
        if request.method == "GET" && request.header("last-event-id").is_some() {
            let id = waiting.lock().take();
            return HttpReply::events(sse_event(&json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": 1 } })));
        }
        request.legacy_handshake("s").unwrap_or_else(|| {
            *waiting.lock() = Some(request.json()["id"].clone());
            HttpReply::events("id: e7\nretry: 1\ndata: \n\n")
        })
    });
    let client = server.connect().await.unwrap();
    assert_eq!(call_tool(&client, "t").await.unwrap().get(), r#"{"ok":1}"#);
    let resumed = server.wait_for(|request| request.header("last-event-id").is_some()).await;
    assert_eq!(resumed.header("last-event-id"), Some("e7"));
    assert_eq!(resumed.header("mcp-session-id"), Some("s"));
}

#[tokio::test]
async fn notifications_on_the_get_stream_are_received() {
    let sender = EventSender::default();
    let live_events = sender.clone();
    let server = ScriptedHttpServer::start(move |request| match request.method.as_str() {
        "GET" => HttpReply::events("").then_stream(&live_events),
        _ => request.legacy_handshake("s").unwrap_or_else(|| HttpReply::empty(404)),
    });
    let client = server.connect().await.unwrap();
    let mut events = client.events();
    let changed = sse_event(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
    while sender.send(&changed) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(matches!(events.recv().await, Ok(ConnectionEvent::ToolsChanged)));
}

#[tokio::test]
async fn notifications_are_received_in_a_new_session_after_the_old_one_was_lost() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let count = sessions.clone();
    let server = ScriptedHttpServer::start(move |request| {
        let in_second = request.header("mcp-session-id") == Some("s2");
        match (request.method.as_str(), request.rpc_method().as_str()) {
            ("GET", _) if in_second => {
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed" });
                HttpReply::events(sse_event(&changed)).then_keep_open()
            }
            ("GET", _) => HttpReply::empty(404),
            (_, "initialize") => {
                let session = count.fetch_add(1, Ordering::SeqCst) + 1;
                request.legacy_handshake(&format!("s{session}")).unwrap()
            }
            (_, "tools/call") if !in_second => HttpReply::empty(404),
            _ => request.legacy_handshake("").unwrap_or_else(|| request.rpc_result(&json!({ "ok": 1 }))),
        }
    });
    let client = server.connect().await.unwrap();
    let mut events = client.events();
    while client.is_listening() {
        tokio::task::yield_now().await;
    }
    call_tool(&client, "t").await.unwrap();
    let received = async { while !matches!(events.recv().await.unwrap(), ConnectionEvent::Other { .. }) {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), received)
        .await
        .expect("no notification of the new session");
    assert!(client.is_listening());
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_over_http_too() {
    let server = ScriptedHttpServer::start(|request| {
        request.legacy_handshake("s").unwrap_or_else(|| HttpReply::events(": wait\n\n").then_keep_open())
    });
    let client = server.connect().await.unwrap();
    let request = tokio::select! {
        _ = call_tool(&client, "t") => unreachable!(),
        request = server.wait_for(|request| request.rpc_method() == "tools/call") => request,
    };
    let cancelled = server.wait_for(|request| request.rpc_method() == "notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], request.json()["id"]);
}

/// An HTTP+SSE server: it answers POSTed messages on the event stream.
fn sse_server(endpoint: &'static str) -> ScriptedHttpServer {
    let sender = EventSender::default();
    ScriptedHttpServer::start(move |request| match (request.method.as_str(), request.target.as_str()) {
        ("GET", "/mcp") => HttpReply::events(format!("event: endpoint\ndata: {endpoint}\n\n")).then_stream(&sender),
        ("POST", "/messages?session=1") => {
            let result = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "method": request.rpc_method() });
            if request.rpc_method() == "die" {
                sender.send(&"data: 0123456789".repeat(1000));
            } else if request.json()["id"].is_number() {
                sender.send(&sse_event(&json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result })));
            }
            HttpReply::text(202, "Accepted")
        }
        _ => HttpReply::text(404, "Cannot POST /mcp"),
    })
}

#[tokio::test]
async fn legacy_sse_is_used_when_configured_or_detected() {
    let server = sse_server("/messages?session=1");
    for target in [ConnectTarget::Sse { url: server.url.clone(), headers: Default::default() }, server.target()] {
        let client = McpClient::connect(target, client_options()).await.unwrap();
        assert_eq!(client.era(), Era::Legacy(LegacyVersion::V2024_11_05));
        assert_eq!(parse(&call_tool(&client, "t").await.unwrap())["method"], "tools/call");
        client.close().await;
    }
}

#[tokio::test]
async fn an_endless_event_on_legacy_sse_ends_the_connection() {
    let server = sse_server("/messages?session=1");
    let target = ConnectTarget::Sse { url: server.url.clone(), headers: Default::default() };
    let limits = ClientLimits { max_body_bytes: 2000, ..ClientLimits::default() };
    let client = McpClient::connect(target, ClientOptions { limits, ..client_options() }).await.unwrap();
    let response = client.request("die", None, &request_options(30)).await;
    assert!(matches!(response, Err(WireError::TooLarge { .. })), "{response:?}");
    assert!(client.is_closed());
}

#[tokio::test]
async fn an_endpoint_on_another_origin_gets_no_credentials() {
    let server = sse_server("http://127.0.0.1:1/messages");
    let target = ConnectTarget::Sse { url: server.url.clone(), headers: Default::default() };
    let response = McpClient::connect(target, client_options()).await;
    assert!(matches!(response, Err(WireError::Protocol(_))), "{response:?}");
}
