//! A legacy server over a byte stream that follows the protocol.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use toolcrib_mcp::{ConnectionEvent, Era, LegacyVersion, McpClient, RpcError, WireError};

use super::support::{StdioServer, call_tool, client_options, progress_channel, request_options};
use crate::{parse, to_raw};

#[tokio::test]
async fn the_handshake_returns_the_server_description() {
    let (_server, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    assert_eq!(client.era(), Era::Legacy(LegacyVersion::V2025_06_18));
    assert_eq!(client.server().instructions.as_deref(), Some("be kind"));
    assert_eq!(parse(&client.server().capabilities), json!({ "tools": {} }));
    assert!(!client.is_closed());
}

#[tokio::test]
async fn results_are_returned_byte_for_byte_in_any_order() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (first, second, ()) = tokio::join!(call_tool(&client, "first"), call_tool(&client, "second"), async {
        let first = server.receive().await;
        let second = server.receive().await;
        server.respond(&second, &json!({ "name": second["params"]["name"] })).await;
        let id = &first["id"];
        server
            .send_line(format!(r#"{{"id":{id},"jsonrpc":"2.0","result":{{"n":1234567890123456789012345,"a" : [ ]}}}}"#))
            .await;
    });
    assert_eq!(first.unwrap().get(), r#"{"n":1234567890123456789012345,"a" : [ ]}"#);
    assert_eq!(second.unwrap().get(), r#"{"name":"second"}"#);
}

#[tokio::test]
async fn a_message_is_one_line_even_with_line_breaks_in_arguments() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let pretty = serde_json::value::RawValue::from_string("{\n  \"a\": \"b\\nc\"\r\n}".into()).unwrap();
    let options = request_options(30);
    let (response, ()) = tokio::join!(client.call_tool("t", &pretty, None, None, &options), async {
        let request = server.receive().await;
        assert_eq!(request["params"]["arguments"], json!({ "a": "b\nc" }));
        server.respond(&request, &json!({})).await;
    });
    response.unwrap();
}

#[tokio::test]
async fn an_error_of_the_server_is_returned() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = server.receive().await;
        server.respond_with_error(&request, -32602, "no such tool").await;
    });
    let Err(WireError::Rpc(RpcError { code: -32602, message, .. })) = response else { panic!("{response:?}") };
    assert_eq!(message, "no such tool");
}

#[tokio::test]
async fn progress_has_our_own_token_and_reaches_its_receiver() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (handler, mut progress) = progress_channel();
    let mut options = request_options(30);
    options.progress = Some(&handler);
    let meta = to_raw(&json!({ "progressToken": "theirs", "vendor/key": 1 }));
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, Some(&meta), &options), async {
        let request = server.receive().await;
        let meta = &request["params"]["_meta"];
        assert_eq!(meta, &json!({ "vendor/key": 1, "progressToken": request["id"] }));
        let params = json!({ "progressToken": meta["progressToken"], "progress": 1, "note": "kept" });
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        server.respond(&request, &json!({})).await;
    });
    response.unwrap();
    assert_eq!(parse(&progress.recv().await.unwrap())["note"], "kept");
}

#[tokio::test]
async fn a_progress_token_of_the_caller_is_not_forwarded() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let meta = to_raw(&json!({ "progressToken": 7 }));
    let arguments = to_raw(&json!({}));
    let options = request_options(30);
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, Some(&meta), &options), async {
        let request = server.receive().await;
        assert_eq!(request["params"], json!({ "name": "t", "arguments": {} }));
        server.respond(&request, &json!({})).await;
    });
    response.unwrap();
}

#[tokio::test]
async fn requests_of_the_server_are_answered() {
    let mut options = client_options();
    options.handler = Some(Arc::new(|request| {
        async move {
            match request.method.as_str() {
                "elicitation/create" => Ok(to_raw(&json!({ "action": "decline" }))),
                other => Err(RpcError::new(-1, format!("not {other}"))),
            }
        }
        .boxed()
    }));
    let (mut server, _client) = StdioServer::connect(options, json!({})).await;
    server.send(&json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await;
    assert_eq!(server.receive().await, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    server.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {} })).await;
    assert_eq!(server.receive().await["result"], json!({ "action": "decline" }));
    server.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "roots/list" })).await;
    assert_eq!(server.receive().await["error"], json!({ "code": -1, "message": "not roots/list" }));
}

#[tokio::test]
async fn without_a_handler_requests_are_not_found() {
    let (mut server, _client) = StdioServer::connect(client_options(), json!({})).await;
    server.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "roots/list" })).await;
    assert_eq!(server.receive().await["error"]["code"], -32601);
}

#[tokio::test]
async fn changes_and_the_end_are_published_as_events() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let mut events = client.events();
    server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    assert!(matches!(events.recv().await, Ok(ConnectionEvent::ToolsChanged)));
    server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "a": 1 } })).await;
    let Ok(ConnectionEvent::Other { method, params: Some(params) }) = events.recv().await else { panic!("no notice") };
    assert_eq!((method.as_str(), params.get()), ("notifications/message", r#"{"a":1}"#));
    drop(server);
    assert!(matches!(events.recv().await, Ok(ConnectionEvent::Closed)));
    client.wait_closed().await;
    assert!(client.is_closed());
}

#[tokio::test]
async fn tools_are_listed_page_by_page() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    let (list, ()) = tokio::join!(client.list_tools(std::time::Duration::from_secs(30)), async {
        let first = server.receive().await;
        assert_eq!(first.get("params"), None);
        server.respond(&first, &json!({ "tools": [{ "name": "a" }], "nextCursor": "2", "ttlMs": 0 })).await;
        let second = server.receive().await;
        assert_eq!(second["params"], json!({ "cursor": "2" }));
        server.respond(&second, &json!({ "tools": [{ "name": "b", "x": null }], "ttlMs": 5000 })).await;
    });
    let list = list.unwrap();
    let tools: Vec<&str> = list.tools.iter().map(|tool| tool.get()).collect();
    assert_eq!(tools, [r#"{"name":"a"}"#, r#"{"name":"b","x":null}"#]);
    assert_eq!((list.ttl_ms, list.public), (Some(5000), false));
}

#[tokio::test]
async fn a_server_without_the_tools_capability_gets_no_request() {
    let (_server, client) = StdioServer::connect(client_options(), json!({ "prompts": {} })).await;
    assert!(client.list_tools(std::time::Duration::from_secs(30)).await.unwrap().tools.is_empty());
}

#[tokio::test]
async fn closing_and_dropping_close_the_stdin_of_the_server() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    client.close().await;
    assert!(server.reads_eof().await);
    assert!(matches!(call_tool(&client, "t").await, Err(WireError::Closed { sent: false, .. })));
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    drop::<McpClient>(client);
    assert!(server.reads_eof().await);
}
