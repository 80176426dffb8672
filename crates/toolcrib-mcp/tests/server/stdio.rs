//! The server over a byte stream, with a client of either era.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::server::{ChangeNotification, ServerOptions, serve_stream};

use super::support::{LATEST_LEGACY, MODERN, ServiceState, TestService, call_message};

/// The client's end of a byte stream that is being served.
struct StdioClient {
    service: Arc<ServiceState>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl StdioClient {
    fn open(options: ServerOptions) -> StdioClient {
        let service = ServiceState::new();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let test_service = Arc::new(TestService(service.clone()));
        let serving = tokio::spawn(serve_stream(test_service, reader, writer, options, stop.clone()));
        let (reader, writer) = tokio::io::split(ours);
        StdioClient { service, lines: BufReader::new(reader).lines(), writer, stop, serving }
    }

    async fn open_initialized(options: ServerOptions) -> StdioClient {
        let mut client = StdioClient::open(options);
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} } });
        client.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
        assert_eq!(client.receive().await["result"]["protocolVersion"], "2025-06-18");
        client
    }

    async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    async fn send_line(&mut self, text: &str) {
        self.writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let text =
            tokio::time::timeout(Duration::from_secs(20), self.lines.next_line()).await.expect("no message in time");
        serde_json::from_str(&text.unwrap().expect("the stream ended")).unwrap()
    }

    async fn expect_unfinished(&mut self, id: u64) {
        let response = self.receive().await;
        assert_eq!(response["id"], id);
        assert_eq!(response["result"]["content"][0]["text"], "tools/call is unfinished");
    }

    async fn close_input(&mut self) {
        self.writer.shutdown().await.unwrap();
    }
}

fn modern_request(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} }, "progressToken": id });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[tokio::test]
async fn responses_are_sent_in_order_of_completion() {
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    client.send(&call_message(1, "wait")).await;
    client.send(&json!({ "jsonrpc": "2.0", "id": "two", "method": "ping" })).await;
    assert_eq!(client.receive().await, json!({ "jsonrpc": "2.0", "id": "two", "result": {} }));
    client.service.release.notify_one();
    assert_eq!(client.receive().await["id"], 1);
    client.send(&call_message(3, "progress")).await;
    for progress in 1..=3 {
        assert_eq!(client.receive().await["params"], json!({ "progressToken": "token 3", "progress": progress }));
    }
    assert_eq!(client.receive().await["id"], 3);
    client.send(&json!({ "jsonrpc": "2.0", "id": 4, "method": "ping" })).await;
    assert_eq!(client.receive().await["id"], 4);
}

#[tokio::test]
async fn notifications_and_questions_reach_the_client() {
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    client.service.changed.send(ChangeNotification::Tools).unwrap();
    assert_eq!(client.receive().await["method"], "notifications/tools/list_changed");
    client.send(&call_message(1, "ask")).await;
    let question = client.receive().await;
    assert_eq!(question["method"], "elicitation/create");
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "n": 1 } })).await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], r#"{"n":1}"#);
}

#[tokio::test]
async fn a_request_can_be_cancelled() {
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    client.send(&call_message(1, "wait")).await;
    client.service.wait_for("started wait", 1).await;
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })).await;
    client.service.wait_for("cancelled", 1).await;
    client.send(&call_message(2, "echo")).await;
    assert_eq!(client.receive().await["id"], 2);
}

#[tokio::test]
async fn a_modern_client_needs_no_handshake() {
    let mut client = StdioClient::open(ServerOptions::default());
    client.send(&modern_request(1, "server/discover", json!({}))).await;
    assert_eq!(client.receive().await["result"]["supportedVersions"][0], MODERN);
    client.send(&modern_request(2, "tools/call", json!({ "name": "ask" }))).await;
    let result = client.receive().await["result"].take();
    assert_eq!(result["resultType"], "input_required");
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params =
        json!({ "name": "ask", "requestState": result["requestState"], "inputResponses": { key: { "n": 1 } } });
    client.send(&modern_request(3, "tools/call", params)).await;
    let response = client.receive().await;
    assert_eq!((&response["id"], &response["result"]["content"][0]["text"]), (&json!(3), &json!(r#"{"n":1}"#)));
    client
        .send(&modern_request(4, "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } })))
        .await;
    assert_eq!(client.receive().await["method"], "notifications/subscriptions/acknowledged");
    client.service.changed.send(ChangeNotification::Tools).unwrap();
    assert_eq!(client.receive().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 4);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4 } })).await;
    client.send(&modern_request(5, "ping", json!({}))).await;
    assert_eq!(client.receive().await["error"]["code"], -32601);
    client.close_input().await;
    client.serving.await.unwrap();
    // A stream has one client, however often it describes itself.
    assert_eq!(client.service.disconnects.load(Ordering::SeqCst), 1);
}

/// The stream outlives a subscription, so the end of the client does not release its resources.
#[tokio::test]
async fn a_resource_is_unsubscribed_with_its_last_subscription() {
    let mut client = StdioClient::open(ServerOptions::default());
    for (id, uris) in [(1, json!(["a:1", "a:2", "no:1"])), (2, json!(["a:2", "a:2"]))] {
        let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
        client.send(&modern_request(id, "subscriptions/listen", filter)).await;
        let granted = client.receive().await["params"]["notifications"]["resourceSubscriptions"].take();
        assert_eq!(granted, if id == 1 { json!(["a:1", "a:2"]) } else { json!(["a:2"]) });
    }
    let end = |id: u64| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    client.send(&end(1)).await;
    client.service.wait_for("resources/unsubscribe a:1", 1).await;
    assert_eq!(client.service.count("resources/unsubscribe a:2"), 0, "the other subscription needs it");
    client.send(&end(2)).await;
    client.service.wait_for("resources/unsubscribe a:2", 1).await;
    assert_eq!((client.service.count("resources/unsubscribe no:1"), client.service.count("disconnected")), (0, 0));
    // A new subscription subscribes again.
    let filter = json!({ "notifications": { "resourceSubscriptions": ["a:1"] } });
    client.send(&modern_request(3, "subscriptions/listen", filter)).await;
    assert_eq!(client.receive().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(client.service.count("resources/subscribe a:1"), 2);
}

#[tokio::test]
async fn a_malformed_message_gets_an_error_and_the_stream_continues() {
    let options = ServerOptions { max_line_bytes: 500, max_requests_per_client: 1, ..ServerOptions::default() };
    let mut client = StdioClient::open(options);
    let cases = [
        ("hello", -32700),
        ("42", -32600),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#, -32602),
        (&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(100_000)), -32600),
        (&modern_request(1, "server/discover", json!({})).to_string().replace(MODERN, "v9"), -32022),
    ];
    for (text, code) in cases {
        client.send_line(text).await;
        assert_eq!(client.receive().await["error"]["code"], code, "{}", &text[..text.len().min(80)]);
    }
    client.send_line("\n\n").await;
    client.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    assert_eq!(client.receive().await["result"], json!({}));
    client.send(&modern_request(2, "tools/call", json!({ "name": "wait" }))).await;
    client.service.wait_for("started wait", 1).await;
    client.send(&modern_request(3, "tools/call", json!({ "name": "echo" }))).await;
    assert_eq!(client.receive().await["error"]["code"], -32603);
}

/// Options of a stream that gives requests in progress this much time.
fn drain_options(drain_timeout: Duration) -> ServerOptions {
    ServerOptions { drain_timeout, cleanup_timeout: Duration::from_secs(1), ..ServerOptions::default() }
}

#[tokio::test]
async fn at_the_end_of_the_input_every_request_gets_a_response() {
    let mut client = StdioClient::open_initialized(drain_options(Duration::from_secs(1))).await;
    client.send(&call_message(1, "wait")).await;
    client.send(&call_message(2, "echo")).await;
    client.close_input().await;
    assert_eq!(client.receive().await["id"], 2);
    client.expect_unfinished(1).await;
    client.service.wait_for("cancelled", 1).await;
    assert!(client.lines.next_line().await.unwrap().is_none());
    client.serving.await.unwrap();
    assert_eq!(client.service.disconnects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stopped_stream_lets_requests_finish_and_responds_to_the_others() {
    let mut client = StdioClient::open_initialized(drain_options(Duration::from_secs(1))).await;
    client.send(&call_message(1, "wait")).await;
    client.send(&call_message(2, "progress_then_hang")).await;
    client.service.wait_for("started wait", 1).await;
    client.service.wait_for("hanging", 1).await;
    assert_eq!(client.receive().await["method"], "notifications/progress");
    client.stop.cancel();
    client.service.release.notify_one();
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "released");
    client.expect_unfinished(2).await;
    assert!(client.lines.next_line().await.unwrap().is_none());
    client.serving.await.unwrap();
}

#[tokio::test]
async fn stopping_after_the_end_of_the_input_ends_the_drain() {
    let mut client = StdioClient::open_initialized(drain_options(Duration::from_secs(3600))).await;
    client.send(&call_message(1, "wait")).await;
    client.service.wait_for("started wait", 1).await;
    client.close_input().await;
    client.stop.cancel();
    client.expect_unfinished(1).await;
    client.serving.await.unwrap();
}

#[tokio::test]
async fn a_disconnected_client_or_a_dropped_server_cancels_all_requests() {
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    client.send(&call_message(1, "wait")).await;
    client.service.wait_for("started wait", 1).await;
    client.serving.abort();
    client.service.wait_for("cancelled", 1).await;
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    client.send(&call_message(1, "wait")).await;
    client.send(&call_message(2, "log")).await;
    client.service.wait_for("started log", 1).await;
    let StdioClient { service, lines, writer, serving, .. } = client;
    drop((lines, writer));
    service.wait_for("cancelled", 1).await;
    serving.await.unwrap();
}

#[tokio::test]
async fn a_second_initialize_replaces_the_first() {
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    let params = json!({ "protocolVersion": LATEST_LEGACY, "capabilities": {} });
    client.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await;
    assert_eq!(client.receive().await["result"]["protocolVersion"], LATEST_LEGACY);
    client.service.wait_for("disconnected", 1).await;
    client.service.changed.send(ChangeNotification::Tools).unwrap();
    assert_eq!(client.receive().await["method"], "notifications/tools/list_changed");
    client.send(&call_message(2, "echo")).await;
    assert_eq!(client.receive().await["id"], 2);
}

#[tokio::test]
async fn both_eras_share_a_stream() {
    let mut client = StdioClient::open_initialized(ServerOptions::default()).await;
    for id in [1, 3] {
        client.send(&modern_request(id, "tools/call", json!({ "name": "echo" }))).await;
        assert_eq!(client.receive().await["result"]["peer"]["era"], MODERN);
        client.send(&call_message(id + 1, "echo")).await;
        assert_eq!(client.receive().await["result"]["peer"]["era"], "2025-06-18");
    }
    client.close_input().await;
    client.serving.await.unwrap();
    assert_eq!(client.service.disconnects.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_resumed_request_can_be_cancelled_under_its_new_id() {
    let mut client = StdioClient::open(ServerOptions::default());
    client.send(&modern_request(1, "tools/call", json!({ "name": "ask_then_wait" }))).await;
    let result = client.receive().await["result"].take();
    // The id is free while the request is suspended.
    client.send(&modern_request(1, "tools/call", json!({ "name": "echo" }))).await;
    assert_eq!(client.receive().await["id"], 1);
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params =
        json!({ "name": "ask_then_wait", "requestState": result["requestState"], "inputResponses": { key: {} } });
    client.send(&modern_request(2, "tools/call", params)).await;
    client.service.wait_for("answered", 1).await;
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } })).await;
    client.service.wait_for("cancelled", 1).await;
}
