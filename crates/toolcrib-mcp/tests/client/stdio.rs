//! A legacy server at the end of a byte stream, doing what it should.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::mpsc;
use toolcrib_mcp::{ConnectionEvent, Era, LegacyVersion, McpClient, RpcError, WireError};

use crate::support::{StdioServer, call_tool, client_options, parse, request_options, to_raw};

#[tokio::test]
async fn the_handshake_tells_who_is_there() {
    let (_peer, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    assert_eq!(client.era(), Era::Legacy(LegacyVersion::V2025_06_18));
    assert_eq!(client.server().instructions.as_deref(), Some("be kind"));
    assert_eq!(parse(&client.server().capabilities), json!({ "tools": {} }));
    assert!(!client.is_closed());
}

#[tokio::test]
async fn results_come_back_byte_for_byte_and_out_of_order() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (first, second, ()) = tokio::join!(call_tool(&client, "first"), call_tool(&client, "second"), async {
        let (first, second) = (peer.receive().await, peer.receive().await);
        peer.respond(&second, &json!({ "told": second["params"]["name"] })).await;
        let id = &first["id"];
        peer.send_line(format!(
            r#"{{"id":{id},"jsonrpc":"2.0","result":{{"n":1234567890123456789012345,"a" : [ ]}}}}"#
        ))
        .await;
    });
    assert_eq!(first.unwrap().get(), r#"{"n":1234567890123456789012345,"a" : [ ]}"#);
    assert_eq!(second.unwrap().get(), r#"{"told":"second"}"#);
}

#[tokio::test]
async fn a_message_is_one_line_whatever_its_arguments_look_like() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let pretty = serde_json::value::RawValue::from_string("{\n  \"a\": \"b\\nc\"\r\n}".into()).unwrap();
    let options = request_options(30);
    let (answer, ()) = tokio::join!(client.call_tool("t", &pretty, None, None, &options), async {
        let request = peer.receive().await;
        assert_eq!(request["params"]["arguments"], json!({ "a": "b\nc" }));
        peer.respond(&request, &json!({})).await;
    });
    answer.unwrap();
}

#[tokio::test]
async fn a_servers_error_is_passed_on() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = peer.receive().await;
        peer.respond_with_error(&request, -32602, "no such tool").await;
    });
    let Err(WireError::Rpc(RpcError { code: -32602, message, .. })) = answer else { panic!("{answer:?}") };
    assert_eq!(message, "no such tool");
}

#[tokio::test]
async fn progress_gets_a_token_of_our_own_and_reaches_its_sink() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (sink, mut progress) = mpsc::channel(8);
    let mut options = request_options(30);
    options.progress = Some(sink);
    let meta = to_raw(&json!({ "progressToken": "theirs", "vendor/key": 1 }));
    let arguments = to_raw(&json!({}));
    let (answer, ()) = tokio::join!(client.call_tool("t", &arguments, None, Some(&meta), &options), async {
        let request = peer.receive().await;
        let meta = &request["params"]["_meta"];
        assert_eq!(meta, &json!({ "vendor/key": 1, "progressToken": request["id"] }));
        let params = json!({ "progressToken": meta["progressToken"], "progress": 1, "note": "kept" });
        peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        peer.respond(&request, &json!({})).await;
    });
    answer.unwrap();
    assert_eq!(parse(&progress.recv().await.unwrap())["note"], "kept");
}

#[tokio::test]
async fn a_foreign_progress_token_does_not_pass() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (meta, arguments, options) = (to_raw(&json!({ "progressToken": 7 })), to_raw(&json!({})), request_options(30));
    let (answer, ()) = tokio::join!(client.call_tool("t", &arguments, None, Some(&meta), &options), async {
        let request = peer.receive().await;
        assert_eq!(request["params"], json!({ "name": "t", "arguments": {} }));
        peer.respond(&request, &json!({})).await;
    });
    answer.unwrap();
}

#[tokio::test]
async fn the_servers_requests_are_answered() {
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
    let (mut peer, _client) = StdioServer::connect(options, json!({})).await;
    peer.send(&json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" })).await;
    assert_eq!(peer.receive().await, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    peer.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {} })).await;
    assert_eq!(peer.receive().await["result"], json!({ "action": "decline" }));
    peer.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "roots/list" })).await;
    assert_eq!(peer.receive().await["error"], json!({ "code": -1, "message": "not roots/list" }));
}

#[tokio::test]
async fn without_a_handler_requests_are_not_found() {
    let (mut peer, _client) = StdioServer::connect(client_options(), json!({})).await;
    peer.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "roots/list" })).await;
    assert_eq!(peer.receive().await["error"]["code"], -32601);
}

#[tokio::test]
async fn notices_tell_of_changes_and_of_the_end() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let mut notices = client.events();
    peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })).await;
    assert!(matches!(notices.recv().await, Ok(ConnectionEvent::ToolsChanged)));
    peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "a": 1 } })).await;
    let Ok(ConnectionEvent::Other { method, params: Some(params) }) = notices.recv().await else { panic!("no notice") };
    assert_eq!((method.as_str(), params.get()), ("notifications/message", r#"{"a":1}"#));
    drop(peer);
    assert!(matches!(notices.recv().await, Ok(ConnectionEvent::Closed)));
    client.wait_closed().await;
    assert!(client.is_closed());
}

#[tokio::test]
async fn tools_are_listed_page_by_page() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    let (list, ()) = tokio::join!(client.list_tools(request_options(30).timeout), async {
        let first = peer.receive().await;
        assert_eq!(first.get("params"), None);
        peer.respond(&first, &json!({ "tools": [{ "name": "a" }], "nextCursor": "2", "ttlMs": 0 })).await;
        let second = peer.receive().await;
        assert_eq!(second["params"], json!({ "cursor": "2" }));
        peer.respond(&second, &json!({ "tools": [{ "name": "b", "x": null }], "ttlMs": 5000 })).await;
    });
    let list = list.unwrap();
    let tools: Vec<&str> = list.tools.iter().map(|tool| tool.get()).collect();
    assert_eq!(tools, [r#"{"name":"a"}"#, r#"{"name":"b","x":null}"#]);
    assert_eq!((list.ttl_ms, list.public), (Some(5000), false));
}

#[tokio::test]
async fn a_server_without_tools_is_not_even_asked() {
    let (_peer, client) = StdioServer::connect(client_options(), json!({ "prompts": {} })).await;
    assert!(client.list_tools(request_options(30).timeout).await.unwrap().tools.is_empty());
}

#[tokio::test]
async fn closing_and_dropping_end_the_servers_input() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    client.close().await;
    assert!(peer.reads_eof().await);
    assert!(matches!(call_tool(&client, "t").await, Err(WireError::Closed { sent: false, .. })));
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    drop::<McpClient>(client);
    assert!(peer.reads_eof().await);
}
