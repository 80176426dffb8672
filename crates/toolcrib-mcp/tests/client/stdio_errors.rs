//! Faulty servers over a byte stream.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{ClientLimits, ClientOptions, Era, McpClient, RequestOptions, WireError};

use super::support::{StdioServer, call_tool, client_options, request_options};
use crate::to_raw;

/// Lists the tools of a server that answers with these pages.
async fn list_tools(limits: ClientLimits, pages: impl Fn(usize) -> Value) -> Result<toolcrib_mcp::ToolList, WireError> {
    let options = ClientOptions { limits, ..client_options() };
    let (mut server, client) = StdioServer::connect(options, json!({ "tools": {} })).await;
    let listing = client.list_tools(Duration::from_secs(30));
    let answering = async {
        for page in 0.. {
            let request = server.receive().await;
            server.respond(&request, &pages(page)).await;
        }
    };
    tokio::select! { list = listing => list, () = answering => unreachable!() }
}

#[tokio::test]
async fn lines_that_are_not_messages_are_skipped() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = server.receive().await;
        server.send_line("Server started on port 3000").await;
        server.send_line("").await;
        server.send_line("{\"half\": ").await;
        server.send_line("[1, 2]").await;
        server.send_line(b"\xff\xfe not even text").await;
        server.send(&json!({ "id": 999, "result": {} })).await;
        server.respond(&request, &json!({ "ok": true })).await;
    });
    assert_eq!(response.unwrap().get(), r#"{"ok":true}"#);
}

#[tokio::test]
async fn an_invalid_byte_does_not_lose_the_response() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let id = server.receive().await["id"].to_string();
        let mut line = format!(r#"{{"id":{id},"result":{{"text":"a"#).into_bytes();
        line.push(0xff);
        line.extend_from_slice(br#"b"}}"#);
        server.send_line(line).await;
    });
    assert_eq!(response.unwrap().get(), "{\"text\":\"a\u{fffd}b\"}");
}

#[tokio::test]
async fn a_byte_order_mark_does_not_lose_the_response() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let id = server.receive().await["id"].to_string();
        server.send_line(format!("\u{feff}{{\"id\":{id},\"result\":{{}}}}\r")).await;
    });
    assert_eq!(response.unwrap().get(), "{}");
}

#[tokio::test]
async fn a_server_that_cancels_its_own_request_does_not_cancel_ours() {
    let mut options = client_options();
    options.handler = Some(Arc::new(|_| std::future::pending().boxed()));
    let (mut server, client) = StdioServer::connect(options, json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = server.receive().await;
        let id = &request["id"];
        server.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" })).await;
        server
            .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
            .await;
        server.respond(&request, &json!({ "ok": 1 })).await;
    });
    assert_eq!(response.unwrap().get(), r#"{"ok":1}"#);
}

#[tokio::test]
async fn a_line_over_the_limit_ends_the_connection_with_that_reason() {
    let limits = ClientLimits { max_line_bytes: 1000, ..ClientLimits::default() };
    let (mut server, client) = StdioServer::connect(ClientOptions { limits, ..client_options() }, json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        server.receive().await;
        server.send_line("x".repeat(2000)).await;
    });
    assert!(matches!(response, Err(WireError::TooLarge { limit: 1000, .. })), "{response:?}");
    client.wait_closed().await;
    let after = call_tool(&client, "t").await.unwrap_err();
    assert!(!after.was_sent() && after.to_string().contains("1000"), "{after}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_reported_and_cancelled_on_the_server() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let response = call_tool(&client, "t").await;
    assert!(matches!(response, Err(WireError::Timeout { sent: true })), "{response:?}");
    let request = server.receive().await;
    let cancelled = server.receive().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_initialize_times_out() {
    let (_server, target) = StdioServer::new();
    let response = McpClient::connect(target, client_options()).await;
    assert!(matches!(response, Err(WireError::Timeout { .. })), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_stayed_in_the_queue_was_not_sent() {
    let (mut server, target) = StdioServer::with_buffer(600);
    let client =
        tokio::join!(McpClient::connect(target, client_options()), server.accept_handshake(json!({}))).0.unwrap();
    let arguments = to_raw(&json!({ "long": "x".repeat(2000) }));
    let options = request_options(30);
    let no_arguments = to_raw(&json!({}));
    let (stuck, waiting) = tokio::join!(
        client.call_tool("stuck", &arguments, None, None, &options),
        client.call_tool("waiting", &no_arguments, None, None, &options),
    );
    assert!(matches!(stuck, Err(WireError::Timeout { sent: true })), "{stuck:?}");
    assert!(matches!(waiting, Err(WireError::Timeout { sent: false })), "{waiting:?}");
    // When the server reads again, the cancelled request is not sent.
    assert_eq!(server.receive().await["params"]["name"], "stuck");
    assert_eq!(server.receive().await["method"], "notifications/cancelled");
    let (_, next) = tokio::join!(call_tool(&client, "next"), server.receive());
    assert_eq!(next["params"]["name"], "next");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let request = tokio::select! {
        _ = call_tool(&client, "t") => unreachable!(),
        request = server.receive() => request,
    };
    let cancelled = server.receive().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_on_the_server() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let cancel = CancellationToken::new();
    let options = RequestOptions { cancel: Some(&cancel), ..request_options(30) };
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        server.receive().await;
        cancel.cancel();
    });
    assert!(matches!(response, Err(WireError::Cancelled { sent: true })), "{response:?}");
    assert_eq!(server.receive().await["method"], "notifications/cancelled");
}

#[tokio::test]
async fn the_end_of_the_server_fails_pending_calls() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let (response, ()) = tokio::join!(call_tool(&client, "t"), async {
        server.receive().await;
        drop(server);
    });
    assert!(matches!(response, Err(WireError::Closed { sent: true, .. })), "{response:?}");
    assert!(matches!(call_tool(&client, "t").await, Err(WireError::Closed { sent: false, .. })));
}

#[tokio::test]
async fn one_malformed_tool_does_not_lose_the_others() {
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "1".to_owned() + &"}".repeat(10_000));
    let deep_tool = format!(r#"{{"name":"deep","inputSchema":{deep}}}"#);
    let (mut server, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    let (list, ()) = tokio::join!(client.list_tools(Duration::from_secs(30)), async {
        let id = server.receive().await["id"].to_string();
        let tools =
            format!(r#"[{{"name":"a","inputSchema":true}},7,{{"title":"nameless"}},{{"name":"x\ud800"}},{deep_tool}]"#);
        server.send_line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#)).await;
    });
    let list = list.unwrap();
    assert_eq!(list.tools.len(), 2);
    assert_eq!(list.tools[1].get(), deep_tool);
    let skipped: Vec<String> = list.skipped.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let expected =
        ["(tool 2): it is not an object", "(tool 3): it has no name", "(tool 4): its name is not valid Unicode"];
    assert_eq!(skipped, expected);
}

#[tokio::test]
async fn an_endless_tool_list_is_an_error() {
    let repeated = |_| json!({ "tools": [{ "name": "a" }], "nextCursor": "again" });
    let response = list_tools(ClientLimits::default(), repeated).await;
    assert!(matches!(response, Err(WireError::Protocol(_))), "{response:?}");
    let endless = |page: usize| json!({ "tools": [{ "name": "a" }], "nextCursor": page.to_string() });
    let response = list_tools(ClientLimits { max_pages: 3, ..ClientLimits::default() }, endless).await;
    assert!(matches!(response, Err(WireError::TooLarge { limit: 3, .. })), "{response:?}");
    let response = list_tools(ClientLimits { max_tools: 5, ..ClientLimits::default() }, endless).await;
    assert!(matches!(response, Err(WireError::TooLarge { limit: 5, .. })), "{response:?}");
    let response = list_tools(ClientLimits { max_list_bytes: 100, ..ClientLimits::default() }, endless).await;
    assert!(matches!(response, Err(WireError::TooLarge { limit: 100, .. })), "{response:?}");
}

#[tokio::test]
async fn a_response_without_tools_is_an_error() {
    let response = list_tools(ClientLimits::default(), |_| json!({ "tools": "none" })).await;
    assert!(matches!(response, Err(WireError::Protocol(_))), "{response:?}");
}

#[tokio::test]
async fn the_error_of_a_rejected_initialize_is_reported() {
    let (mut server, target) = StdioServer::new();
    let options = ClientOptions { era: Some(Era::Modern), ..client_options() };
    let (response, ()) = tokio::join!(McpClient::connect(target, options), async {
        let probe = server.receive().await;
        assert_eq!(probe["method"], "server/discover");
        server.respond_with_error(&probe, -32601, "Method not found").await;
        let initialize = server.receive().await;
        assert_eq!(initialize["method"], "initialize");
        server.respond_with_error(&initialize, -32000, "licence expired").await;
    });
    let Err(WireError::Rpc(error)) = response else { panic!("{response:?}") };
    assert_eq!(error.message, "licence expired");
}
