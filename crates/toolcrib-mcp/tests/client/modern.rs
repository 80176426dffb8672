//! The era of 2026-07-28: no handshake, self-contained requests, input in rounds, subscriptions.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use serde_json::{Value, json};
use toolcrib_mcp::{ClientOptions, ConnectionEvent, Era, McpClient, Relay, WireError};

use crate::support::{
    HttpReply, RecordedRequest, ScriptedHttpServer, StdioServer, call_tool, client_options, parse, request_options,
    sse_event, to_raw,
};

fn discover_result(capabilities: &Value) -> Value {
    json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "new", "version": "2" } } })
}

async fn connect_modern(options: ClientOptions, capabilities: Value) -> (StdioServer, McpClient) {
    let (mut peer, target) = StdioServer::new();
    let (client, ()) = tokio::join!(McpClient::connect(target, options), async {
        let hello = peer.receive().await;
        assert_eq!(hello["method"], "initialize");
        peer.respond_with_error(&hello, -32601, "`initialize` is gone; this server speaks 2026-07-28").await;
        let discover = peer.receive().await;
        assert_eq!(discover["method"], "server/discover");
        peer.respond(&discover, &discover_result(&capabilities)).await;
    });
    (peer, client.unwrap())
}

fn options_with_answer(answer: Value) -> ClientOptions {
    let handler = move |_| {
        let answer = to_raw(&answer);
        async move { Ok(answer) }.boxed()
    };
    ClientOptions {
        handler: Some(Arc::new(handler)),
        capabilities: to_raw(&json!({ "elicitation": {} })),
        ..client_options()
    }
}

#[tokio::test]
async fn a_stream_that_refuses_initialize_is_asked_the_modern_way() {
    let (mut peer, client) = connect_modern(client_options(), json!({})).await;
    assert_eq!(client.era(), Era::Modern);
    assert_eq!(parse(client.server().info.as_ref().unwrap())["name"], "new");
    let options = request_options(30);
    let (_, request) = tokio::join!(client.request("prompts/list", None, &options), async {
        let request = peer.receive().await;
        peer.respond(&request, &json!({})).await;
        request
    });
    let expected = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1.0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    assert_eq!(request["params"]["_meta"], expected);
}

#[tokio::test]
async fn a_hint_spares_the_detour() {
    let (mut peer, target) = StdioServer::new();
    let (client, ()) =
        tokio::join!(McpClient::connect(target, ClientOptions { era: Some(Era::Modern), ..client_options() }), async {
            let discover = peer.receive().await;
            assert_eq!(discover["method"], "server/discover");
            peer.respond(&discover, &discover_result(&json!({}))).await;
        });
    assert_eq!(client.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn input_is_given_and_the_state_shown_again() {
    let (mut peer, client) = connect_modern(options_with_answer(json!({ "action": "accept" })), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let first = peer.receive().await;
        let wanted = json!({ "ask": { "method": "elicitation/create", "params": {} } });
        let required = json!({ "resultType": "input_required", "inputRequests": wanted, "requestState": "s1" });
        peer.respond(&first, &required).await;
        let second = peer.receive().await;
        assert_ne!(first["id"], second["id"]);
        assert_eq!(second["params"]["name"], "t");
        assert_eq!(second["params"]["inputResponses"], json!({ "ask": { "action": "accept" } }));
        assert_eq!(second["params"]["requestState"], "s1");
        // No input wanted, only patience.
        peer.respond(&second, &json!({ "resultType": "input_required", "requestState": "s2" })).await;
        let third = peer.receive().await;
        assert_eq!(third["params"].get("inputResponses"), None);
        assert_eq!(third["params"]["requestState"], "s2");
        peer.respond(&third, &json!({ "resultType": "complete", "content": [] })).await;
    });
    assert_eq!(parse(&answer.unwrap())["content"], json!([]));
}

#[tokio::test]
async fn a_server_cannot_ask_for_ever() {
    let (mut peer, client) = connect_modern(options_with_answer(json!({})), json!({})).await;
    let asking = async {
        loop {
            let request = peer.receive().await;
            peer.respond(&request, &json!({ "resultType": "input_required", "requestState": "more" })).await;
        }
    };
    let answer = tokio::select! { answer = call_tool(&client, "t") => answer, () = asking => unreachable!() };
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}

#[tokio::test]
async fn without_a_handler_the_question_is_the_result() {
    let (mut peer, client) = connect_modern(client_options(), json!({})).await;
    let question = json!({ "resultType": "input_required", "inputRequests": { "a": { "method": "roots/list" } } });
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = peer.receive().await;
        peer.respond(&request, &question).await;
    });
    assert_eq!(parse(&answer.unwrap()), question);
}

#[tokio::test]
async fn a_request_for_another_client_says_what_that_client_says() {
    let (mut peer, client) = connect_modern(options_with_answer(json!({ "action": "accept" })), json!({})).await;
    let mut options = request_options(30);
    options.relay = Some(Relay {
        capabilities: to_raw(&json!({ "roots": {} })),
        input_responses: Some(to_raw(&json!({ "a": { "roots": [] } }))),
        request_state: Some(to_raw(&json!("s1"))),
    });
    let question = json!({ "resultType": "input_required", "inputRequests": { "b": { "method": "roots/list" } } });
    let arguments = to_raw(&json!({}));
    let (answer, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let request = peer.receive().await;
        let params = &request["params"];
        assert_eq!(params["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({ "roots": {} }));
        assert_eq!(params["inputResponses"], json!({ "a": { "roots": [] } }));
        assert_eq!(params["requestState"], "s1");
        peer.respond(&request, &question).await;
    });
    assert_eq!(parse(&answer.unwrap()), question);
}

#[tokio::test]
async fn a_result_of_unknown_type_is_refused() {
    let (mut peer, client) = connect_modern(client_options(), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = peer.receive().await;
        peer.respond(&request, &json!({ "resultType": "riddle" })).await;
    });
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}

#[tokio::test]
async fn changes_arrive_by_subscription() {
    let (mut peer, client) =
        connect_modern(client_options(), json!({ "tools": { "listChanged": true }, "prompts": {} })).await;
    let mut notices = client.events();
    let listen = peer.receive().await;
    assert_eq!(listen["method"], "subscriptions/listen");
    assert_eq!(listen["params"]["notifications"], json!({ "toolsListChanged": true }));
    let meta = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listen["id"] } });
    peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta })).await;
    peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta })).await;
    assert!(matches!(notices.recv().await, Ok(ConnectionEvent::ToolsChanged)));
}

fn tool_with_header(name: &str, mark: &str) -> Value {
    let properties = json!({ "region": { "type": "string", "x-mcp-header": mark } });
    json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })
}

fn modern_reply(request: &RecordedRequest) -> HttpReply {
    match request.method() {
        "server/discover" => request.result(&discover_result(&json!({ "tools": { "listChanged": true } }))),
        "tools/list" => {
            let tools = [
                tool_with_header("good", "Region"),
                tool_with_header("bad", "not a token"),
                json!({ "name": "plain" }),
            ];
            request.result(&json!({ "tools": tools, "ttlMs": 9000, "cacheScope": "public" }))
        }
        "tools/call" => request.result(&json!({ "resultType": "complete" })),
        "subscriptions/listen" => {
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            HttpReply::events(sse_event(&changed)).then_keep_open()
        }
        _ => HttpReply::empty(404),
    }
}

#[tokio::test]
async fn over_http_headers_repeat_what_the_body_says() {
    let server = ScriptedHttpServer::start(modern_reply).await;
    let client = server.connect().await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let list = client.list_tools(request_options(30).timeout).await.unwrap();
    assert_eq!((list.tools.len(), list.ttl_ms, list.public), (2, Some(9000), true));
    assert_eq!(list.excluded[0].0, "bad");
    let (arguments, schema) =
        (to_raw(&json!({ "region": "zürich" })), to_raw(&tool_with_header("", "Region")["inputSchema"]));
    client.call_tool("good", &arguments, Some(&schema), None, &request_options(30)).await.unwrap();
    let seen = server.wait_for(|request| request.method() == "tools/call").await;
    let header = |name| seen.header(name).unwrap_or_default();
    assert_eq!(header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(header("mcp-method"), "tools/call");
    assert_eq!(header("mcp-name"), "good");
    assert_eq!(header("mcp-param-region"), "=?base64?esO8cmljaA==?=");
    assert_eq!(header("accept"), "application/json, text/event-stream");
    client.close().await;
    assert!(!server.methods().contains(&"DELETE".to_owned()), "there is no session to give back");
}

#[tokio::test]
async fn over_http_changes_arrive_by_subscription() {
    let server = ScriptedHttpServer::start(modern_reply).await;
    let client = server.connect().await.unwrap();
    let mut notices = client.events();
    server.wait_for(|request| request.method() == "subscriptions/listen").await;
    assert!(matches!(notices.recv().await, Ok(ConnectionEvent::ToolsChanged)));
}

#[tokio::test]
async fn a_method_not_found_is_no_lost_session() {
    let server = ScriptedHttpServer::start(|request| match request.method() {
        "server/discover" | "initialize" => {
            let result = discover_result(&json!({}));
            let mut result = result.as_object().unwrap().clone();
            result.insert("protocolVersion".to_owned(), "2026-07-28".into());
            request.result(&result.into()).with_header("mcp-session-id", "never mind")
        }
        _ => {
            let error = json!({ "code": -32601, "message": "unknown" });
            HttpReply::json(404, &json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
        }
    })
    .await;
    let hinted = ClientOptions { era: Some("2025-11-25".parse().unwrap()), ..client_options() };
    let client = McpClient::connect(server.target(), hinted).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let answer = client.request("no/such", None, &request_options(30)).await;
    assert!(matches!(&answer, Err(WireError::Rpc(error)) if error.code == -32601), "{answer:?}");
    assert_eq!(server.methods(), ["initialize", "server/discover", "no/such"]);
}

#[tokio::test]
async fn a_refused_version_is_tried_again_when_it_is_offered() {
    let asked = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            let data = json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
            let error = json!({ "code": -32022, "message": "Unsupported protocol version", "data": data });
            return HttpReply::json(400, &json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }));
        }
        modern_reply(request)
    })
    .await;
    assert_eq!(server.connect().await.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn a_server_of_the_future_is_named() {
    let server = ScriptedHttpServer::start(|request| {
        let error = json!({ "code": -32022, "message": "no", "data": { "supported": ["2031-01-01"] } });
        HttpReply::json(400, &json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
    })
    .await;
    let error = server.connect().await.unwrap_err();
    assert!(error.to_string().contains("`2031-01-01`"), "{error}");
}
