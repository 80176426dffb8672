//! The era of 2026-07-28: no handshake, self-contained requests, input in rounds, subscriptions.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use serde_json::{Value, json};
use toolcrib_mcp::{Client, Era, Notice, Options, Relay, WireError};

use crate::support::{Peer, Reply, Request, Server, call, event, options, parsed, raw, within};

fn discovered(capabilities: &Value) -> Value {
    json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "new", "version": "2" } } })
}

async fn connected(options: Options, capabilities: Value) -> (Peer, Client) {
    let (mut peer, target) = Peer::new();
    let (client, ()) = tokio::join!(Client::connect(target, options), async {
        let hello = peer.hear().await;
        assert_eq!(hello["method"], "initialize");
        peer.refuse(&hello, -32601, "`initialize` is gone; this server speaks 2026-07-28").await;
        let discover = peer.hear().await;
        assert_eq!(discover["method"], "server/discover");
        peer.answer(&discover, &discovered(&capabilities)).await;
    });
    (peer, client.unwrap())
}

fn answering(answer: Value) -> Options {
    let handler = move |_| {
        let answer = raw(&answer);
        async move { Ok(answer) }.boxed()
    };
    Options { handler: Some(Arc::new(handler)), capabilities: raw(&json!({ "elicitation": {} })), ..options() }
}

#[tokio::test]
async fn a_stream_that_refuses_initialize_is_asked_the_modern_way() {
    let (mut peer, client) = connected(options(), json!({})).await;
    assert_eq!(client.era(), Era::Modern);
    assert_eq!(parsed(client.server().info.as_ref().unwrap())["name"], "new");
    let options = within(30);
    let (_, request) = tokio::join!(client.request("prompts/list", None, &options), async {
        let request = peer.hear().await;
        peer.answer(&request, &json!({})).await;
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
    let (mut peer, target) = Peer::new();
    let (client, ()) = tokio::join!(Client::connect(target, Options { era: Some(Era::Modern), ..options() }), async {
        let discover = peer.hear().await;
        assert_eq!(discover["method"], "server/discover");
        peer.answer(&discover, &discovered(&json!({}))).await;
    });
    assert_eq!(client.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn input_is_given_and_the_state_shown_again() {
    let (mut peer, client) = connected(answering(json!({ "action": "accept" })), json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let first = peer.hear().await;
        let wanted = json!({ "ask": { "method": "elicitation/create", "params": {} } });
        let required = json!({ "resultType": "input_required", "inputRequests": wanted, "requestState": "s1" });
        peer.answer(&first, &required).await;
        let second = peer.hear().await;
        assert_ne!(first["id"], second["id"]);
        assert_eq!(second["params"]["name"], "t");
        assert_eq!(second["params"]["inputResponses"], json!({ "ask": { "action": "accept" } }));
        assert_eq!(second["params"]["requestState"], "s1");
        // No input wanted, only patience.
        peer.answer(&second, &json!({ "resultType": "input_required", "requestState": "s2" })).await;
        let third = peer.hear().await;
        assert_eq!(third["params"].get("inputResponses"), None);
        assert_eq!(third["params"]["requestState"], "s2");
        peer.answer(&third, &json!({ "resultType": "complete", "content": [] })).await;
    });
    assert_eq!(parsed(&answer.unwrap())["content"], json!([]));
}

#[tokio::test]
async fn a_server_cannot_ask_for_ever() {
    let (mut peer, client) = connected(answering(json!({})), json!({})).await;
    let asking = async {
        loop {
            let request = peer.hear().await;
            peer.answer(&request, &json!({ "resultType": "input_required", "requestState": "more" })).await;
        }
    };
    let answer = tokio::select! { answer = call(&client, "t") => answer, () = asking => unreachable!() };
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}

#[tokio::test]
async fn without_a_handler_the_question_is_the_result() {
    let (mut peer, client) = connected(options(), json!({})).await;
    let question = json!({ "resultType": "input_required", "inputRequests": { "a": { "method": "roots/list" } } });
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let request = peer.hear().await;
        peer.answer(&request, &question).await;
    });
    assert_eq!(parsed(&answer.unwrap()), question);
}

#[tokio::test]
async fn a_request_for_another_client_says_what_that_client_says() {
    let (mut peer, client) = connected(answering(json!({ "action": "accept" })), json!({})).await;
    let mut options = within(30);
    options.relay = Some(Relay {
        capabilities: raw(&json!({ "roots": {} })),
        responses: Some(raw(&json!({ "a": { "roots": [] } }))),
        state: Some(raw(&json!("s1"))),
    });
    let question = json!({ "resultType": "input_required", "inputRequests": { "b": { "method": "roots/list" } } });
    let arguments = raw(&json!({}));
    let (answer, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let request = peer.hear().await;
        let params = &request["params"];
        assert_eq!(params["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({ "roots": {} }));
        assert_eq!(params["inputResponses"], json!({ "a": { "roots": [] } }));
        assert_eq!(params["requestState"], "s1");
        peer.answer(&request, &question).await;
    });
    assert_eq!(parsed(&answer.unwrap()), question);
}

#[tokio::test]
async fn a_result_of_unknown_type_is_refused() {
    let (mut peer, client) = connected(options(), json!({})).await;
    let (answer, ()) = tokio::join!(call(&client, "t"), async {
        let request = peer.hear().await;
        peer.answer(&request, &json!({ "resultType": "riddle" })).await;
    });
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}

#[tokio::test]
async fn changes_arrive_by_subscription() {
    let (mut peer, client) = connected(options(), json!({ "tools": { "listChanged": true }, "prompts": {} })).await;
    let mut notices = client.notices();
    let listen = peer.hear().await;
    assert_eq!(listen["method"], "subscriptions/listen");
    assert_eq!(listen["params"]["notifications"], json!({ "toolsListChanged": true }));
    let meta = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listen["id"] } });
    peer.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta })).await;
    peer.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta })).await;
    assert!(matches!(notices.recv().await, Ok(Notice::ToolsChanged)));
}

fn marked(name: &str, mark: &str) -> Value {
    let properties = json!({ "region": { "type": "string", "x-mcp-header": mark } });
    json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })
}

fn modern_server(request: &Request) -> Reply {
    match request.method() {
        "server/discover" => request.result(&discovered(&json!({ "tools": { "listChanged": true } }))),
        "tools/list" => {
            let tools = [marked("good", "Region"), marked("bad", "not a token"), json!({ "name": "plain" })];
            request.result(&json!({ "tools": tools, "ttlMs": 9000, "cacheScope": "public" }))
        }
        "tools/call" => request.result(&json!({ "resultType": "complete" })),
        "subscriptions/listen" => {
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            Reply::events(event(&changed)).held_open()
        }
        _ => Reply::empty(404),
    }
}

#[tokio::test]
async fn over_http_headers_repeat_what_the_body_says() {
    let server = Server::start(modern_server).await;
    let client = server.connect().await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let list = client.list_tools(within(30).timeout).await.unwrap();
    assert_eq!((list.tools.len(), list.ttl_ms, list.public), (2, Some(9000), true));
    assert_eq!(list.excluded[0].0, "bad");
    let (arguments, schema) = (raw(&json!({ "region": "zürich" })), raw(&marked("", "Region")["inputSchema"]));
    client.call_tool("good", &arguments, Some(&schema), None, &within(30)).await.unwrap();
    let seen = server.until(|request| request.method() == "tools/call").await;
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
    let server = Server::start(modern_server).await;
    let client = server.connect().await.unwrap();
    let mut notices = client.notices();
    server.until(|request| request.method() == "subscriptions/listen").await;
    assert!(matches!(notices.recv().await, Ok(Notice::ToolsChanged)));
}

#[tokio::test]
async fn a_method_not_found_is_no_lost_session() {
    let server = Server::start(|request| match request.method() {
        "server/discover" | "initialize" => {
            let result = discovered(&json!({}));
            let mut result = result.as_object().unwrap().clone();
            result.insert("protocolVersion".to_owned(), "2026-07-28".into());
            request.result(&result.into()).with("mcp-session-id", "never mind")
        }
        _ => {
            let error = json!({ "code": -32601, "message": "unknown" });
            Reply::json(404, &json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
        }
    })
    .await;
    let hinted = Options { era: Some("2025-11-25".parse().unwrap()), ..options() };
    let client = Client::connect(server.target(), hinted).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let answer = client.request("no/such", None, &within(30)).await;
    assert!(matches!(&answer, Err(WireError::Rpc(error)) if error.code == -32601), "{answer:?}");
    assert_eq!(server.methods(), ["initialize", "server/discover", "no/such"]);
}

#[tokio::test]
async fn a_refused_version_is_tried_again_when_it_is_offered() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            let data = json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
            let error = json!({ "code": -32022, "message": "Unsupported protocol version", "data": data });
            return Reply::json(400, &json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }));
        }
        modern_server(request)
    })
    .await;
    assert_eq!(server.connect().await.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn a_server_of_the_future_is_named() {
    let server = Server::start(|request| {
        let error = json!({ "code": -32022, "message": "no", "data": { "supported": ["2031-01-01"] } });
        Reply::json(400, &json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
    })
    .await;
    let error = server.connect().await.unwrap_err();
    assert!(error.to_string().contains("`2031-01-01`"), "{error}");
}
