//! Servers of 2026-07-28: no handshake, stateless requests, `input_required` results, subscriptions.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use serde_json::{Value, json};
use toolcrib_mcp::{ClientOptions, ConnectionEvent, Era, McpClient, Relay, WireError};
use toolcrib_testkit::http_server::{HttpReply, ReceivedRequest};

use super::support::{ScriptedHttpServer, StdioServer, call_tool, client_options, request_options, sse_event};
use crate::{parse, to_raw};

fn discover_result(capabilities: &Value) -> Value {
    json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "new", "version": "2" } } })
}

async fn connect_modern(options: ClientOptions, capabilities: Value) -> (StdioServer, McpClient) {
    let (mut server, target) = StdioServer::new();
    let (client, ()) = tokio::join!(McpClient::connect(target, options), async {
        let initialize = server.receive().await;
        assert_eq!(initialize["method"], "initialize");
        server.respond_with_error(&initialize, -32601, "`initialize` is gone; this server speaks 2026-07-28").await;
        let discover = server.receive().await;
        assert_eq!(discover["method"], "server/discover");
        server.respond(&discover, &discover_result(&capabilities)).await;
    });
    (server, client.unwrap())
}

fn options_with_answer(response: Value) -> ClientOptions {
    let handler = move |_| {
        let response = to_raw(&response);
        async move { Ok(response) }.boxed()
    };
    ClientOptions {
        handler: Some(Arc::new(handler)),
        capabilities: to_raw(&json!({ "elicitation": {} })),
        ..client_options()
    }
}

#[tokio::test]
async fn a_server_that_rejects_initialize_is_probed_with_discover() {
    let (mut server, client) = connect_modern(client_options(), json!({})).await;
    assert_eq!(client.era(), Era::Modern);
    assert_eq!(parse(client.server().info.as_ref().unwrap())["name"], "new");
    let options = request_options(30);
    let (_, request) = tokio::join!(client.request("prompts/list", None, &options), async {
        let request = server.receive().await;
        server.respond(&request, &json!({})).await;
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
async fn a_known_era_saves_the_initialize_request() {
    let (mut server, target) = StdioServer::new();
    let (client, ()) =
        tokio::join!(McpClient::connect(target, ClientOptions { era: Some(Era::Modern), ..client_options() }), async {
            let discover = server.receive().await;
            assert_eq!(discover["method"], "server/discover");
            server.respond(&discover, &discover_result(&json!({}))).await;
        });
    assert_eq!(client.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn input_is_provided_and_the_request_state_sent_back() {
    let (mut server, client) = connect_modern(options_with_answer(json!({ "action": "accept" })), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let first = server.receive().await;
        let inputs = json!({ "ask": { "method": "elicitation/create", "params": {} } });
        let required = json!({ "resultType": "input_required", "inputRequests": inputs, "requestState": "s1" });
        server.respond(&first, &required).await;
        let second = server.receive().await;
        assert_ne!(first["id"], second["id"]);
        assert_eq!(second["params"]["name"], "t");
        assert_eq!(second["params"]["inputResponses"], json!({ "ask": { "action": "accept" } }));
        assert_eq!(second["params"]["requestState"], "s1");
        // Without input requests, the client only repeats the request.
        server.respond(&second, &json!({ "resultType": "input_required", "requestState": "s2" })).await;
        let third = server.receive().await;
        assert_eq!(third["params"].get("inputResponses"), None);
        assert_eq!(third["params"]["requestState"], "s2");
        server.respond(&third, &json!({ "resultType": "complete", "content": [] })).await;
    });
    assert_eq!(parse(&response.unwrap())["content"], json!([]));
}

#[tokio::test]
async fn the_number_of_input_rounds_is_bounded() {
    let (mut server, client) = connect_modern(options_with_answer(json!({})), json!({})).await;
    let asking = async {
        loop {
            let request = server.receive().await;
            server.respond(&request, &json!({ "resultType": "input_required", "requestState": "more" })).await;
        }
    };
    let response = tokio::select! { response = call_tool(&client, "t") => response, () = asking => unreachable!() };
    assert!(matches!(response, Err(WireError::Protocol(_))), "{response:?}");
}

#[tokio::test]
async fn without_a_handler_input_required_is_the_result() {
    let (mut server, client) = connect_modern(client_options(), json!({})).await;
    let question = json!({ "resultType": "input_required", "inputRequests": { "a": { "method": "roots/list" } } });
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = server.receive().await;
        server.respond(&request, &question).await;
    });
    assert_eq!(parse(&response.unwrap()), question);
}

#[tokio::test]
async fn a_relayed_request_has_the_capabilities_and_input_of_its_client() {
    let (mut server, client) = connect_modern(options_with_answer(json!({ "action": "accept" })), json!({})).await;
    let mut options = request_options(30);
    let capabilities = to_raw(&json!({ "roots": {} }));
    let responses = to_raw(&json!({ "a": { "roots": [] } }));
    let state = to_raw(&json!("s1"));
    options.relay =
        Some(Relay { capabilities: &capabilities, input_responses: Some(&responses), request_state: Some(&state) });
    let question = json!({ "resultType": "input_required", "inputRequests": { "b": { "method": "roots/list" } } });
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let request = server.receive().await;
        let params = &request["params"];
        assert_eq!(params["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({ "roots": {} }));
        assert_eq!(params["inputResponses"], json!({ "a": { "roots": [] } }));
        assert_eq!(params["requestState"], "s1");
        server.respond(&request, &question).await;
    });
    assert_eq!(parse(&response.unwrap()), question);
}

#[tokio::test]
async fn an_unknown_result_type_is_an_error() {
    let (mut server, client) = connect_modern(client_options(), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = server.receive().await;
        server.respond(&request, &json!({ "resultType": "riddle" })).await;
    });
    assert!(matches!(response, Err(WireError::Protocol(_))), "{response:?}");
}

#[tokio::test]
async fn changes_arrive_by_subscription() {
    let (mut server, client) =
        connect_modern(client_options(), json!({ "tools": { "listChanged": true }, "prompts": {} })).await;
    let mut events = client.events();
    let listen = server.receive().await;
    assert_eq!(listen["method"], "subscriptions/listen");
    assert_eq!(listen["params"]["notifications"], json!({ "toolsListChanged": true }));
    let meta = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listen["id"] } });
    server
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta }))
        .await;
    server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta })).await;
    assert!(matches!(events.recv().await, Ok(ConnectionEvent::ToolsChanged)));
}

fn tool_with_header(name: &str, header: &str) -> Value {
    let properties = json!({ "region": { "type": "string", "x-mcp-header": header } });
    json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } })
}

fn modern_reply(request: &ReceivedRequest) -> HttpReply {
    match request.rpc_method().as_str() {
        "server/discover" => request.rpc_result(&discover_result(&json!({ "tools": { "listChanged": true } }))),
        "tools/list" => {
            let tools = [
                tool_with_header("good", "Region"),
                tool_with_header("bad", "not a token"),
                json!({ "name": "plain" }),
            ];
            request.rpc_result(&json!({ "tools": tools, "ttlMs": 9000, "cacheScope": "public" }))
        }
        "tools/call" => request.rpc_result(&json!({ "resultType": "complete" })),
        "subscriptions/listen" => {
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            HttpReply::events(sse_event(&changed)).then_keep_open()
        }
        _ => HttpReply::empty(404),
    }
}

#[tokio::test]
async fn over_http_headers_repeat_the_body() {
    let server = ScriptedHttpServer::start(modern_reply);
    let client = server.connect().await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let list = client.list_tools(std::time::Duration::from_secs(30)).await.unwrap();
    assert_eq!((list.tools.len(), list.ttl_ms, list.public), (2, Some(9000), true));
    assert_eq!(list.skipped[0].0, "bad");
    let (arguments, schema) =
        (to_raw(&json!({ "region": "zürich" })), to_raw(&tool_with_header("", "Region")["inputSchema"]));
    client.call_tool("good", &arguments, Some(&schema), None, &request_options(30)).await.unwrap();
    let request = server.wait_for(|request| request.rpc_method() == "tools/call").await;
    let header = |name| request.header(name).unwrap_or_default();
    assert_eq!(header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(header("mcp-method"), "tools/call");
    assert_eq!(header("mcp-name"), "good");
    assert_eq!(header("mcp-param-region"), "=?base64?esO8cmljaA==?=");
    assert_eq!(header("accept"), "application/json, text/event-stream");
    client.close().await;
    assert!(!server.methods().contains(&"DELETE".to_owned()), "there is no session to delete");
}

#[tokio::test]
async fn over_http_changes_arrive_by_subscription() {
    let server = ScriptedHttpServer::start(modern_reply);
    let client = server.connect().await.unwrap();
    let mut events = client.events();
    server.wait_for(|request| request.rpc_method() == "subscriptions/listen").await;
    assert!(matches!(events.recv().await, Ok(ConnectionEvent::ToolsChanged)));
}

#[tokio::test]
async fn method_not_found_is_not_a_lost_session() {
    let server = ScriptedHttpServer::start(|request| match request.rpc_method().as_str() {
        "server/discover" | "initialize" => {
            let result = discover_result(&json!({}));
            let mut result = result.as_object().unwrap().clone();
            result.insert("protocolVersion".to_owned(), "2026-07-28".into());
            request.rpc_result(&result.into()).with_header("mcp-session-id", "never mind")
        }
        _ => {
            let error = json!({ "code": -32601, "message": "unknown" });
            HttpReply::json(404, json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
        }
    });
    let options = ClientOptions { era: Some("2025-11-25".parse().unwrap()), ..client_options() };
    let client = McpClient::connect(server.target(), options).await.unwrap();
    assert_eq!(client.era(), Era::Modern);
    let response = client.request("no/such", None, &request_options(30)).await;
    assert!(matches!(&response, Err(WireError::Rpc(error)) if error.code == -32601), "{response:?}");
    assert_eq!(server.methods(), ["initialize", "server/discover", "no/such"]);
}

#[tokio::test]
async fn a_rejected_version_is_retried_when_the_server_offers_it() {
    let request_count = AtomicUsize::new(0);
    let server = ScriptedHttpServer::start(move |request| {
        if request_count.fetch_add(1, Ordering::Relaxed) == 0 {
            let data = json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
            let error = json!({ "code": -32022, "message": "Unsupported protocol version", "data": data });
            return HttpReply::json(400, json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }));
        }
        modern_reply(request)
    });
    assert_eq!(server.connect().await.unwrap().era(), Era::Modern);
}

#[tokio::test]
async fn unknown_versions_of_a_server_are_reported() {
    let server = ScriptedHttpServer::start(|request| {
        let error = json!({ "code": -32022, "message": "no", "data": { "supported": ["2031-01-01"] } });
        HttpReply::json(400, json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
    });
    let error = server.connect().await.unwrap_err();
    assert!(error.to_string().contains("`2031-01-01`"), "{error}");
}
