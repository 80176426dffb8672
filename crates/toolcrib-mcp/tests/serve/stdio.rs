//! A byte stream with one client, of either era.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::server::{ChangeNotification, ServerOptions, serve_stream};

use crate::support::{LATEST_LEGACY, MODERN, ServiceState, TestService, call_message};

struct StdioClient {
    service: Arc<ServiceState>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl StdioClient {
    fn open(options: ServerOptions) -> StdioClient {
        let bench = ServiceState::new();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let stop = CancellationToken::new();
        let service = Arc::new(TestService(bench.clone()));
        let serving = tokio::spawn(serve_stream(service, reader, writer, options, stop.clone()));
        let (reader, writer) = tokio::io::split(ours);
        StdioClient { service: bench, lines: BufReader::new(reader).lines(), writer, stop, serving }
    }

    async fn open_initialized(options: ServerOptions) -> StdioClient {
        let mut line = StdioClient::open(options);
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} } });
        line.send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })).await;
        assert_eq!(line.receive().await["result"]["protocolVersion"], "2025-06-18");
        line
    }

    async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    async fn send_line(&mut self, text: &str) {
        self.writer.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(20), self.lines.next_line()).await.expect("silence");
        serde_json::from_str(&line.unwrap().expect("the end")).unwrap()
    }

    async fn expect_unfinished(&mut self, id: u64) {
        let answer = self.receive().await;
        assert_eq!(answer["id"], id);
        assert_eq!(answer["result"]["content"][0]["text"], "tools/call is unfinished");
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
async fn requests_are_answered_as_they_are_done() {
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    line.send(&call_message(1, "wait")).await;
    line.send(&json!({ "jsonrpc": "2.0", "id": "two", "method": "ping" })).await;
    assert_eq!(line.receive().await, json!({ "jsonrpc": "2.0", "id": "two", "result": {} }));
    line.service.release.notify_one();
    assert_eq!(line.receive().await["id"], 1);
    line.send(&call_message(3, "progress")).await;
    for progress in 1..=3 {
        assert_eq!(line.receive().await["params"], json!({ "progressToken": "token 3", "progress": progress }));
    }
    assert_eq!(line.receive().await["id"], 3);
    line.send(&json!({ "jsonrpc": "2.0", "id": 4, "method": "ping" })).await;
    assert_eq!(line.receive().await["id"], 4);
}

#[tokio::test]
async fn news_are_told_and_questions_asked() {
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    line.service.changed.send(ChangeNotification::Tools).unwrap();
    assert_eq!(line.receive().await["method"], "notifications/tools/list_changed");
    line.send(&call_message(1, "ask")).await;
    let asked = line.receive().await;
    assert_eq!(asked["method"], "elicitation/create");
    line.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "n": 1 } })).await;
    assert_eq!(line.receive().await["result"]["content"][0]["text"], r#"{"n":1}"#);
}

#[tokio::test]
async fn a_request_can_be_taken_back() {
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    line.send(&call_message(1, "wait")).await;
    line.service.wait_for("begun wait", 1).await;
    line.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })).await;
    line.service.wait_for("cancelled", 1).await;
    line.send(&call_message(2, "echo")).await;
    assert_eq!(line.receive().await["id"], 2);
}

#[tokio::test]
async fn today_needs_no_handshake() {
    let mut line = StdioClient::open(ServerOptions::default());
    line.send(&modern_request(1, "server/discover", json!({}))).await;
    assert_eq!(line.receive().await["result"]["supportedVersions"][0], MODERN);
    line.send(&modern_request(2, "tools/call", json!({ "name": "ask" }))).await;
    let result = line.receive().await["result"].take();
    assert_eq!(result["resultType"], "input_required");
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params =
        json!({ "name": "ask", "requestState": result["requestState"], "inputResponses": { key: { "n": 1 } } });
    line.send(&modern_request(3, "tools/call", params)).await;
    let answer = line.receive().await;
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!(3), &json!(r#"{"n":1}"#)));
    line.send(&modern_request(4, "subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } })))
        .await;
    assert_eq!(line.receive().await["method"], "notifications/subscriptions/acknowledged");
    line.service.changed.send(ChangeNotification::Tools).unwrap();
    assert_eq!(line.receive().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 4);
    line.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4 } })).await;
    line.send(&modern_request(5, "ping", json!({}))).await;
    assert_eq!(line.receive().await["error"]["code"], -32601);
    line.close_input().await;
    line.serving.await.unwrap();
    // One stream is one client, however often it says who it is.
    assert_eq!(line.service.disconnects.load(Ordering::SeqCst), 1);
}

/// The stream goes on after a subscription, so its client does not leave with it.
#[tokio::test]
async fn what_no_subscription_holds_any_more_is_unsubscribed() {
    let mut line = StdioClient::open(ServerOptions::default());
    for (id, uris) in [(1, json!(["a:1", "a:2", "no:1"])), (2, json!(["a:2", "a:2"]))] {
        let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
        line.send(&modern_request(id, "subscriptions/listen", filter)).await;
        let granted = line.receive().await["params"]["notifications"]["resourceSubscriptions"].take();
        assert_eq!(granted, if id == 1 { json!(["a:1", "a:2"]) } else { json!(["a:2"]) });
    }
    let end = |id: u64| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    line.send(&end(1)).await;
    line.service.wait_for("resources/unsubscribe a:1", 1).await;
    assert_eq!(line.service.count("resources/unsubscribe a:2"), 0, "the other holds it");
    line.send(&end(2)).await;
    line.service.wait_for("resources/unsubscribe a:2", 1).await;
    assert_eq!((line.service.count("resources/unsubscribe no:1"), line.service.count("gone")), (0, 0));
    // It may begin again.
    let filter = json!({ "notifications": { "resourceSubscriptions": ["a:1"] } });
    line.send(&modern_request(3, "subscriptions/listen", filter)).await;
    assert_eq!(line.receive().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(line.service.count("resources/subscribe a:1"), 2);
}

#[tokio::test]
async fn what_is_no_message_gets_an_error_and_the_stream_goes_on() {
    let options = ServerOptions { line_bytes: 500, requests_max: 1, ..ServerOptions::default() };
    let mut line = StdioClient::open(options);
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
        line.send_line(text).await;
        assert_eq!(line.receive().await["error"]["code"], code, "{}", &text[..text.len().min(80)]);
    }
    line.send_line("\n\n").await;
    line.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    assert_eq!(line.receive().await["result"], json!({}));
    line.send(&modern_request(2, "tools/call", json!({ "name": "wait" }))).await;
    line.service.wait_for("begun wait", 1).await;
    line.send(&modern_request(3, "tools/call", json!({ "name": "echo" }))).await;
    assert_eq!(line.receive().await["error"]["code"], -32603);
}

/// The options of a stream that gives requests in progress this long.
fn drain_options(drain_timeout: Duration) -> ServerOptions {
    ServerOptions { drain_timeout, cleanup_timeout: Duration::from_secs(1), ..ServerOptions::default() }
}

#[tokio::test]
async fn at_the_end_of_the_input_every_request_gets_a_response() {
    let mut line = StdioClient::open_initialized(drain_options(Duration::from_secs(1))).await;
    line.send(&call_message(1, "wait")).await;
    line.send(&call_message(2, "echo")).await;
    line.close_input().await;
    assert_eq!(line.receive().await["id"], 2);
    line.expect_unfinished(1).await;
    line.service.wait_for("cancelled", 1).await;
    assert!(line.lines.next_line().await.unwrap().is_none());
    line.serving.await.unwrap();
    assert_eq!(line.service.disconnects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stream_that_is_stopped_lets_a_request_finish_and_responds_to_the_others() {
    let mut line = StdioClient::open_initialized(drain_options(Duration::from_secs(1))).await;
    line.send(&call_message(1, "wait")).await;
    line.send(&call_message(2, "progress_then_hang")).await;
    line.service.wait_for("begun wait", 1).await;
    line.service.wait_for("hanging", 1).await;
    assert_eq!(line.receive().await["method"], "notifications/progress");
    line.stop.cancel();
    line.service.release.notify_one();
    assert_eq!(line.receive().await["result"]["content"][0]["text"], "released");
    line.expect_unfinished(2).await;
    assert!(line.lines.next_line().await.unwrap().is_none());
    line.serving.await.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_stopped_after_its_input_ended_waits_no_longer() {
    let mut line = StdioClient::open_initialized(drain_options(Duration::from_secs(3600))).await;
    line.send(&call_message(1, "wait")).await;
    line.service.wait_for("begun wait", 1).await;
    line.close_input().await;
    line.stop.cancel();
    line.expect_unfinished(1).await;
    line.serving.await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_gone_or_a_dropped_server_ends_everything() {
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    line.send(&call_message(1, "wait")).await;
    line.service.wait_for("begun wait", 1).await;
    line.serving.abort();
    line.service.wait_for("cancelled", 1).await;
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    line.send(&call_message(1, "wait")).await;
    line.send(&call_message(2, "log")).await;
    line.service.wait_for("begun log", 1).await;
    let StdioClient { service, lines, writer, serving, .. } = line;
    drop((lines, writer));
    service.wait_for("cancelled", 1).await;
    serving.await.unwrap();
}

#[tokio::test]
async fn initialising_twice_begins_anew() {
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    let params = json!({ "protocolVersion": LATEST_LEGACY, "capabilities": {} });
    line.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await;
    assert_eq!(line.receive().await["result"]["protocolVersion"], LATEST_LEGACY);
    line.service.wait_for("gone", 1).await;
    line.service.changed.send(ChangeNotification::Tools).unwrap();
    assert_eq!(line.receive().await["method"], "notifications/tools/list_changed");
    line.send(&call_message(2, "echo")).await;
    assert_eq!(line.receive().await["id"], 2);
}

#[tokio::test]
async fn both_eras_share_a_stream() {
    let mut line = StdioClient::open_initialized(ServerOptions::default()).await;
    for id in [1, 3] {
        line.send(&modern_request(id, "tools/call", json!({ "name": "echo" }))).await;
        assert_eq!(line.receive().await["result"]["peer"]["era"], MODERN);
        line.send(&call_message(id + 1, "echo")).await;
        assert_eq!(line.receive().await["result"]["peer"]["era"], "2025-06-18");
    }
    line.close_input().await;
    line.serving.await.unwrap();
    assert_eq!(line.service.disconnects.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_held_request_can_be_taken_back_under_its_new_id() {
    let mut line = StdioClient::open(ServerOptions::default());
    line.send(&modern_request(1, "tools/call", json!({ "name": "ask_then_wait" }))).await;
    let result = line.receive().await["result"].take();
    // The id it had is free again while it is held.
    line.send(&modern_request(1, "tools/call", json!({ "name": "echo" }))).await;
    assert_eq!(line.receive().await["id"], 1);
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params =
        json!({ "name": "ask_then_wait", "requestState": result["requestState"], "inputResponses": { key: {} } });
    line.send(&modern_request(2, "tools/call", params)).await;
    line.service.wait_for("answered", 1).await;
    line.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } })).await;
    line.service.wait_for("cancelled", 1).await;
}
