//! A server at the end of a byte stream that misbehaves.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde_json::{Value, json};
use toolcrib_mcp::{ClientLimits, ClientOptions, Era, McpClient, WireError};

use crate::support::{StdioServer, call_tool, client_options, request_options, to_raw};

async fn list_tools(limits: ClientLimits, pages: impl Fn(usize) -> Value) -> Result<toolcrib_mcp::ToolList, WireError> {
    let options = ClientOptions { limits, ..client_options() };
    let (mut peer, client) = StdioServer::connect(options, json!({ "tools": {} })).await;
    let listing = client.list_tools(Duration::from_secs(30));
    let answering = async {
        for page in 0.. {
            let request = peer.receive().await;
            peer.respond(&request, &pages(page)).await;
        }
    };
    tokio::select! { list = listing => list, () = answering => unreachable!() }
}

#[tokio::test]
async fn junk_on_stdout_is_skipped() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = peer.receive().await;
        peer.send_line("Server started on port 3000").await;
        peer.send_line("").await;
        peer.send_line("{\"half\": ").await;
        peer.send_line("[1, 2]").await;
        peer.send_line(b"\xff\xfe not even text").await;
        peer.send(&json!({ "id": 999, "result": {} })).await;
        peer.respond(&request, &json!({ "ok": true })).await;
    });
    assert_eq!(answer.unwrap().get(), r#"{"ok":true}"#);
}

#[tokio::test]
async fn a_stray_byte_does_not_lose_the_answer() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let id = peer.receive().await["id"].to_string();
        let mut line = format!(r#"{{"id":{id},"result":{{"text":"a"#).into_bytes();
        line.push(0xff);
        line.extend_from_slice(br#"b"}}"#);
        peer.send_line(line).await;
    });
    assert_eq!(answer.unwrap().get(), "{\"text\":\"a\u{fffd}b\"}");
}

#[tokio::test]
async fn a_byte_order_mark_does_not_lose_the_answer() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let id = peer.receive().await["id"].to_string();
        peer.send_line(format!("\u{feff}{{\"id\":{id},\"result\":{{}}}}\r")).await;
    });
    assert_eq!(answer.unwrap().get(), "{}");
}

#[tokio::test]
async fn a_server_that_takes_back_its_own_request_does_not_take_ours() {
    let mut options = client_options();
    options.handler = Some(Arc::new(|_| std::future::pending().boxed()));
    let (mut peer, client) = StdioServer::connect(options, json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        let request = peer.receive().await;
        let id = &request["id"];
        peer.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" })).await;
        peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
            .await;
        peer.respond(&request, &json!({ "ok": 1 })).await;
    });
    assert_eq!(answer.unwrap().get(), r#"{"ok":1}"#);
}

#[tokio::test]
async fn a_line_too_long_ends_the_connection_with_its_reason() {
    let limits = ClientLimits { line_bytes: 1000, ..ClientLimits::default() };
    let (mut peer, client) = StdioServer::connect(ClientOptions { limits, ..client_options() }, json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        peer.receive().await;
        peer.send_line("x".repeat(2000)).await;
    });
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 1000, .. })), "{answer:?}");
    client.wait_closed().await;
    let after = call_tool(&client, "t").await.unwrap_err();
    assert!(!after.was_sent() && after.to_string().contains("1000"), "{after}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_runs_into_the_deadline_and_hears_of_it() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let answer = call_tool(&client, "t").await;
    assert!(matches!(answer, Err(WireError::Timeout { sent: true })), "{answer:?}");
    let request = peer.receive().await;
    let cancelled = peer.receive().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_initialize_is_given_up() {
    let (_peer, target) = StdioServer::new();
    let answer = McpClient::connect(target, client_options()).await;
    assert!(matches!(answer, Err(WireError::Timeout { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn what_never_left_was_not_sent() {
    let (mut peer, target) = StdioServer::with_buffer(600);
    let client =
        tokio::join!(McpClient::connect(target, client_options()), peer.accept_handshake(json!({}))).0.unwrap();
    let arguments = to_raw(&json!({ "long": "x".repeat(2000) }));
    let (patience, none) = (request_options(30), to_raw(&json!({})));
    let (stuck, waiting) = tokio::join!(
        client.call_tool("stuck", &arguments, None, None, &patience),
        client.call_tool("waiting", &none, None, None, &patience),
    );
    assert!(matches!(stuck, Err(WireError::Timeout { sent: true })), "{stuck:?}");
    assert!(matches!(waiting, Err(WireError::Timeout { sent: false })), "{waiting:?}");
    // Once the server reads on, the withdrawn request is left out.
    assert_eq!(peer.receive().await["params"]["name"], "stuck");
    assert_eq!(peer.receive().await["method"], "notifications/cancelled");
    let (_, next) = tokio::join!(call_tool(&client, "next"), peer.receive());
    assert_eq!(next["params"]["name"], "next");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let request = tokio::select! {
        _ = call_tool(&client, "t") => unreachable!(),
        request = peer.receive() => request,
    };
    let cancelled = peer.receive().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (options, arguments) = (request_options(30), to_raw(&json!({})));
    let (answer, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        peer.receive().await;
        options.cancel.cancel();
    });
    assert!(matches!(answer, Err(WireError::Cancelled { sent: true })), "{answer:?}");
    assert_eq!(peer.receive().await["method"], "notifications/cancelled");
}

#[tokio::test]
async fn a_server_that_dies_fails_who_waits() {
    let (mut peer, client) = StdioServer::connect(client_options(), json!({})).await;
    let (answer, ()) = tokio::join!(call_tool(&client, "t"), async {
        peer.receive().await;
        drop(peer);
    });
    assert!(matches!(answer, Err(WireError::Closed { sent: true, .. })), "{answer:?}");
    assert!(matches!(call_tool(&client, "t").await, Err(WireError::Closed { sent: false, .. })));
}

#[tokio::test]
async fn one_malformed_tool_does_not_lose_the_others() {
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "1".to_owned() + &"}".repeat(10_000));
    let deep_tool = format!(r#"{{"name":"deep","inputSchema":{deep}}}"#);
    let (mut peer, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    let (list, ()) = tokio::join!(client.list_tools(Duration::from_secs(30)), async {
        let id = peer.receive().await["id"].to_string();
        let tools =
            format!(r#"[{{"name":"a","inputSchema":true}},7,{{"title":"nameless"}},{{"name":"x\ud800"}},{deep_tool}]"#);
        peer.send_line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":{tools}}}}}"#)).await;
    });
    let list = list.unwrap();
    assert_eq!(list.tools.len(), 2);
    assert_eq!(list.tools[1].get(), deep_tool);
    let excluded: Vec<String> = list.excluded.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    let expected = ["(tool 2): it is no object", "(tool 3): it has no name", "(tool 4): its name is not valid Unicode"];
    assert_eq!(excluded, expected);
}

#[tokio::test]
async fn a_list_that_never_ends_is_given_up() {
    let repeated = |_| json!({ "tools": [{ "name": "a" }], "nextCursor": "again" });
    let answer = list_tools(ClientLimits::default(), repeated).await;
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
    let endless = |page: usize| json!({ "tools": [{ "name": "a" }], "nextCursor": page.to_string() });
    let answer = list_tools(ClientLimits { pages: 3, ..ClientLimits::default() }, endless).await;
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 3, .. })), "{answer:?}");
    let answer = list_tools(ClientLimits { tools: 5, ..ClientLimits::default() }, endless).await;
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 5, .. })), "{answer:?}");
    let answer = list_tools(ClientLimits { list_bytes: 100, ..ClientLimits::default() }, endless).await;
    assert!(matches!(answer, Err(WireError::TooLarge { limit: 100, .. })), "{answer:?}");
}

#[tokio::test]
async fn an_answer_without_tools_is_an_error() {
    let answer = list_tools(ClientLimits::default(), |_| json!({ "tools": "none" })).await;
    assert!(matches!(answer, Err(WireError::Protocol(_))), "{answer:?}");
}

#[tokio::test]
async fn a_legacy_server_that_refuses_initialize_is_reported_with_its_own_words() {
    let (mut peer, target) = StdioServer::new();
    let hinted = ClientOptions { era: Some(Era::Modern), ..client_options() };
    let (answer, ()) = tokio::join!(McpClient::connect(target, hinted), async {
        let probe = peer.receive().await;
        assert_eq!(probe["method"], "server/discover");
        peer.respond_with_error(&probe, -32601, "Method not found").await;
        let hello = peer.receive().await;
        assert_eq!(hello["method"], "initialize");
        peer.respond_with_error(&hello, -32000, "licence expired").await;
    });
    let Err(WireError::Rpc(error)) = answer else { panic!("{answer:?}") };
    assert_eq!(error.message, "licence expired");
}
