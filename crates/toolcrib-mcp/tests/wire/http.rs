//! Legacy Streamable HTTP and HTTP+SSE servers, doing what they should.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::{broadcast, mpsc};
use toolcrib_mcp::{Client, Era, Limits, Notice, Options, Target, Version, WireError};

use crate::support::{Reply, Server, call, event, options, parsed, raw, within};

#[tokio::test]
async fn an_old_server_is_found_and_its_session_kept() {
    let server =
        Server::start(|request| request.legacy_handshake("s1").unwrap_or_else(|| request.result(&json!({ "ok": 1 }))))
            .await;
    let client = server.connect().await.unwrap();
    assert_eq!(client.era(), Era::Legacy(Version::V2025_06_18));
    assert_eq!(call(&client, "t").await.unwrap().get(), r#"{"ok":1}"#);
    client.close().await;
    let seen = server.seen();
    let calls: Vec<_> = seen.iter().filter(|request| request.verb != "GET").collect();
    let methods: Vec<&str> = calls.iter().map(|request| request.method()).collect();
    assert_eq!(methods, ["server/discover", "initialize", "notifications/initialized", "tools/call", ""]);
    assert_eq!(calls[1].header("mcp-session-id"), None);
    for request in &calls[2..] {
        assert_eq!(request.header("mcp-session-id").as_deref(), Some("s1"));
        assert_eq!(request.header("mcp-protocol-version").as_deref(), Some("2025-06-18"));
    }
    assert_eq!(calls[4].verb, "DELETE");
}

#[tokio::test]
async fn a_request_may_have_headers_of_its_own() {
    let server =
        Server::start(|request| request.legacy_handshake("s1").unwrap_or_else(|| request.result(&json!({ "ok": 1 }))))
            .await;
    let client = server.connect().await.unwrap();
    let mut options = within(5);
    options.headers.insert("traceparent", "00-1-2-01".parse().unwrap());
    client.call_tool("t", &raw(&json!({})), None, None, &options).await.unwrap();
    call(&client, "t").await.unwrap();
    let told = |method: &str| -> Vec<_> {
        let asked = server.seen().into_iter().filter(|request| request.method() == method);
        asked.map(|request| request.header("traceparent")).collect()
    };
    assert_eq!(told("tools/call"), [Some("00-1-2-01".to_owned()), None]);
    // It answers with no list, and was asked for one.
    client.list_tools_with(Some(&raw(&json!({ "traceparent": "00-1-2-01" }))), &options).await.unwrap_err();
    assert_eq!(told("tools/list"), [Some("00-1-2-01".to_owned())]);
    let listed = server.seen().into_iter().find(|request| request.method() == "tools/list").unwrap();
    assert_eq!(listed.body["params"]["_meta"]["traceparent"], "00-1-2-01");
}

#[tokio::test]
async fn a_hint_spares_the_probe_and_a_wrong_one_does_no_harm() {
    let server = Server::start(|request| request.legacy_handshake("s").unwrap_or_else(|| Reply::empty(404))).await;
    let hinted = Options { era: Some(Era::Legacy(Version::V2025_06_18)), ..options() };
    Client::connect(server.target(), hinted.clone()).await.unwrap();
    assert_eq!(server.methods()[0], "initialize");
    let modern = Server::start(|request| match request.method() {
        "server/discover" => request.result(&json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} })),
        _ => Reply::text(400, "missing headers"),
    })
    .await;
    assert_eq!(Client::connect(modern.target(), hinted).await.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn a_lost_session_is_renewed_and_the_request_repeated() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let count = sessions.clone();
    let server = Server::start(move |request| {
        let current = count.load(Ordering::SeqCst);
        if request.method() == "initialize" {
            count.fetch_add(1, Ordering::SeqCst);
            return request.legacy_handshake(&format!("s{}", current + 1)).unwrap();
        }
        if request.method() == "tools/call" && request.header("mcp-session-id") != Some("s2".to_owned()) {
            return Reply::text(404, "who are you?");
        }
        request.legacy_handshake("").unwrap_or_else(|| request.result(&json!({ "ok": 1 })))
    })
    .await;
    let client = server.connect().await.unwrap();
    let (first, second) = tokio::join!(call(&client, "a"), call(&client, "b"));
    assert_eq!((first.unwrap().get(), second.unwrap().get()), (r#"{"ok":1}"#, r#"{"ok":1}"#));
    assert_eq!(sessions.load(Ordering::SeqCst), 2, "one new session for both");
}

/// A server forgets with the session what it was to tell about.
#[tokio::test]
async fn what_was_watched_is_watched_in_the_new_session_even_if_refused_at_first() {
    let (sessions, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = Server::start(move |request| {
        if request.method() == "initialize" {
            let session = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            return request.legacy_handshake(&format!("s{session}")).unwrap();
        }
        let in_first = request.header("mcp-session-id").as_deref() == Some("s1");
        if request.method() == "tools/call" && in_first {
            return Reply::empty(404);
        }
        // It may not be ready when it was just started.
        if request.method() == "resources/subscribe" && !in_first && refused.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::text(500, "not yet");
        }
        request.legacy_handshake("").unwrap_or_else(|| request.result(&json!({})))
    })
    .await;
    let client = server.connect().await.unwrap();
    for (method, uri) in
        [("resources/subscribe", "a:1"), ("resources/subscribe", "a:2"), ("resources/unsubscribe", "a:1")]
    {
        client.request(method, Some(&raw(&json!({ "uri": uri }))), &within(30)).await.unwrap();
    }
    let mut notices = client.notices();
    call(&client, "t").await.unwrap();
    let updated = async {
        loop {
            if let Notice::Other { method, params } = notices.recv().await.unwrap() {
                return (method, parsed(&params.unwrap()));
            }
        }
    };
    let updated = tokio::time::timeout(std::time::Duration::from_secs(30), updated).await.unwrap();
    assert_eq!(updated, ("notifications/resources/updated".to_owned(), json!({ "uri": "a:2" })));
    let seen = server.seen();
    let again: Vec<_> = seen.iter().filter(|seen| seen.header("mcp-session-id").as_deref() == Some("s2")).collect();
    let watched: Vec<_> = again.iter().filter(|seen| seen.method() == "resources/subscribe").collect();
    let watched: Vec<_> = watched.iter().map(|seen| &seen.body["params"]["uri"]).collect();
    assert_eq!(watched, ["a:2", "a:2"], "asked again when it was refused");
}

#[tokio::test]
async fn a_server_that_forgets_every_session_is_given_up() {
    let server = Server::start(|request| request.legacy_handshake("s").unwrap_or_else(|| Reply::empty(404))).await;
    let client = server.connect().await.unwrap();
    let answer = call(&client, "t").await;
    assert!(matches!(answer, Err(WireError::Status { status: 404, .. })), "{answer:?}");
}

#[tokio::test]
async fn an_answer_may_come_as_events_with_progress_and_questions() {
    let server = Server::start(|request| {
        request.legacy_handshake("s").unwrap_or_else(|| match request.method() {
            "tools/call" => {
                let id = &request.body["id"];
                let progress = json!({ "progressToken": id, "progress": 1 });
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": progress });
                let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {} });
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": 1 } });
                Reply::events([event(&progress), event(&question), event(&answer)].concat())
            }
            _ => Reply::empty(202),
        })
    })
    .await;
    let mut asked = options();
    asked.handler = Some(Arc::new(|_| async { Ok(raw(&json!({ "action": "accept" }))) }.boxed()));
    let client = Client::connect(server.target(), asked).await.unwrap();
    let (sink, mut progress) = mpsc::channel(8);
    let mut options = within(30);
    options.progress = Some(sink);
    let answer = client.call_tool("t", &raw(&json!({})), None, None, &options).await;
    assert_eq!(answer.unwrap().get(), r#"{"ok":1}"#);
    assert_eq!(parsed(&progress.recv().await.unwrap())["progress"], 1);
    let reply = server.until(|request| request.body["result"].is_object()).await;
    assert_eq!(reply.body, json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "accept" } }));
}

#[tokio::test]
async fn a_cut_stream_is_taken_up_where_it_ended() {
    let waiting = Mutex::new(None);
    let server = Server::start(move |request| {
        if request.verb == "GET" && request.header("last-event-id").is_some() {
            let id = waiting.lock().unwrap().take();
            return Reply::events(event(&json!({ "jsonrpc": "2.0", "id": id, "result": { "ok": 1 } })));
        }
        request.legacy_handshake("s").unwrap_or_else(|| {
            *waiting.lock().unwrap() = Some(request.body["id"].clone());
            Reply::events("id: e7\nretry: 1\ndata: \n\n")
        })
    })
    .await;
    let client = server.connect().await.unwrap();
    assert_eq!(call(&client, "t").await.unwrap().get(), r#"{"ok":1}"#);
    let resumed = server.until(|request| request.header("last-event-id").is_some()).await;
    assert_eq!(resumed.header("last-event-id").as_deref(), Some("e7"));
    assert_eq!(resumed.header("mcp-session-id").as_deref(), Some("s"));
}

#[tokio::test]
async fn the_stream_of_notifications_is_heard() {
    let (feed, _) = broadcast::channel(4);
    let fed = feed.clone();
    let server = Server::start(move |request| match request.verb.as_str() {
        "GET" => Reply::events("").fed_by(&fed),
        _ => request.legacy_handshake("s").unwrap_or_else(|| Reply::empty(404)),
    })
    .await;
    let client = server.connect().await.unwrap();
    let mut notices = client.notices();
    let changed = event(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
    while feed.send(changed.clone()).is_err() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(notices.recv().await, Ok(Notice::ToolsChanged)));
}

#[tokio::test]
async fn the_notifications_of_a_new_session_are_heard_after_the_old_one_was_lost() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let count = sessions.clone();
    let server = Server::start(move |request| {
        let in_second = request.header("mcp-session-id").as_deref() == Some("s2");
        match (request.verb.as_str(), request.method()) {
            ("GET", _) if in_second => {
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/prompts/list_changed" });
                Reply::events(event(&changed)).held_open()
            }
            ("GET", _) => Reply::empty(404),
            (_, "initialize") => {
                let session = count.fetch_add(1, Ordering::SeqCst) + 1;
                request.legacy_handshake(&format!("s{session}")).unwrap()
            }
            (_, "tools/call") if !in_second => Reply::empty(404),
            _ => request.legacy_handshake("").unwrap_or_else(|| request.result(&json!({ "ok": 1 }))),
        }
    })
    .await;
    let client = server.connect().await.unwrap();
    let mut notices = client.notices();
    while client.is_listening() {
        tokio::task::yield_now().await;
    }
    call(&client, "t").await.unwrap();
    let heard = async { while !matches!(notices.recv().await.unwrap(), Notice::Other { .. }) {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), heard).await.expect("nobody listens to the new session");
    assert!(client.is_listening());
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_over_http_too() {
    let server = Server::start(|request| {
        request.legacy_handshake("s").unwrap_or_else(|| Reply::events(": wait\n\n").held_open())
    })
    .await;
    let client = server.connect().await.unwrap();
    let request = tokio::select! {
        _ = call(&client, "t") => unreachable!(),
        request = server.until(|request| request.method() == "tools/call") => request,
    };
    let cancelled = server.until(|request| request.method() == "notifications/cancelled").await;
    assert_eq!(cancelled.body["params"]["requestId"], request.body["id"]);
}

/// HTTP+SSE: what is POSTed is answered on the one stream.
async fn sse_server(endpoint: &'static str) -> Server {
    let (feed, _) = broadcast::channel(16);
    Server::start(move |request| match (request.verb.as_str(), request.path.as_str()) {
        ("GET", "/mcp") => Reply::events(format!("event: endpoint\ndata: {endpoint}\n\n")).fed_by(&feed),
        ("POST", "/messages?session=1") => {
            let result = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "method": request.method() });
            if request.method() == "die" {
                feed.send("data: 0123456789".repeat(1000)).unwrap();
            } else if request.body["id"].is_number() {
                feed.send(event(&json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result }))).unwrap();
            }
            Reply::text(202, "Accepted")
        }
        _ => Reply::text(404, "Cannot POST /mcp"),
    })
    .await
}

#[tokio::test]
async fn the_oldest_transport_is_spoken_when_asked_for_or_found() {
    let server = sse_server("/messages?session=1").await;
    for target in [Target::Sse { url: server.url.clone(), headers: Default::default() }, server.target()] {
        let client = Client::connect(target, options()).await.unwrap();
        assert_eq!(client.era(), Era::Legacy(Version::V2024_11_05));
        assert_eq!(parsed(&call(&client, "t").await.unwrap())["method"], "tools/call");
        client.close().await;
    }
}

#[tokio::test]
async fn a_flood_on_the_oldest_transport_ends_it() {
    let server = sse_server("/messages?session=1").await;
    let target = Target::Sse { url: server.url.clone(), headers: Default::default() };
    let limits = Limits { body_bytes: 2000, ..Limits::default() };
    let client = Client::connect(target, Options { limits, ..options() }).await.unwrap();
    let answer = client.request("die", None, &within(30)).await;
    assert!(matches!(answer, Err(WireError::TooLarge { .. })), "{answer:?}");
    assert!(client.is_closed());
}

#[tokio::test]
async fn an_endpoint_elsewhere_gets_no_credentials() {
    let server = sse_server("http://127.0.0.1:1/messages").await;
    let target = Target::Sse { url: server.url.clone(), headers: Default::default() };
    let answer = Client::connect(target, options()).await;
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}
