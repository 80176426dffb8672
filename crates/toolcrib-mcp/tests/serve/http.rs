//! Requests over HTTP and what becomes of them.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use toolcrib_mcp::server::{ChangeNotification, ServerOptions};

use crate::support::{LATEST_LEGACY, MODERN, TestSession, call_tool, send_modern, send_modern_with, test_endpoint};

#[tokio::test]
async fn a_request_without_a_session_says_all_about_itself() {
    let (bench, endpoint) = test_endpoint(ServerOptions::new("crib", "9"));
    let params = json!({ "name": "echo", "arguments": { "n": 1 }, "_meta": { "vendor/x": 7, "progressToken": 1 } });
    let answer = send_modern(&endpoint, 5, "tools/call", params).await;
    assert_eq!((answer.status, answer.headers.get("mcp-session-id")), (StatusCode::OK, None));
    assert_eq!(
        answer.read_json().await,
        json!({ "jsonrpc": "2.0", "id": 5, "result": {
            "resultType": "complete",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "crib", "version": "9" } },
            "content": [],
            "structuredContent": { "name": "echo", "arguments": { "n": 1 }, "_meta": { "vendor/x": 7 } },
            "peer": { "name": "raw", "era": MODERN, "query": "mode=full" } } })
    );
    bench.wait_for("gone", 1).await;
}

#[tokio::test]
async fn discovery_tells_the_versions_and_capabilities() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let result = send_modern(&endpoint, 1, "server/discover", json!({})).await.read_json().await["result"].take();
    assert_eq!(result["supportedVersions"], json!([MODERN, LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"]));
    assert_eq!(result["instructions"], "be kind");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
}

#[tokio::test]
async fn progress_comes_with_the_clients_own_token_and_never_after_the_answer() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let params = json!({ "name": "progress", "_meta": { "progressToken": "mine" } });
    let mut answer = send_modern(&endpoint, 1, "tools/call", params).await;
    assert!(answer.is_stream());
    for progress in 1..=3 {
        let params = json!({ "progressToken": "mine", "progress": progress });
        assert_eq!(
            answer.next_message().await,
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        );
    }
    assert_eq!(answer.next_message().await["id"], 1);
    assert!(answer.next_event().await.is_none());
    // Who does not ask for it hears nothing of it.
    assert!(!call_tool(&endpoint, 2, "progress").await.is_stream());
}

#[tokio::test]
async fn logs_are_told_to_who_asks_for_them() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    bench.release.notify_one();
    assert!(!call_tool(&endpoint, 1, "log").await.is_stream());
    let params = json!({ "name": "log", "_meta": { "io.modelcontextprotocol/logLevel": "debug" } });
    let mut answer = send_modern(&endpoint, 2, "tools/call", params).await;
    assert_eq!(answer.next_message().await["method"], "notifications/message");
    bench.release.notify_one();
    assert_eq!(answer.next_message().await["id"], 2);
}

#[tokio::test]
async fn a_client_that_vanishes_takes_its_request_back() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    let vanishing = tokio::time::timeout(Duration::from_millis(50), call_tool(&endpoint, 1, "wait"));
    assert!(vanishing.await.is_err());
    bench.wait_for("cancelled", 1).await;
    // So does one that closes a stream which already said something.
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let vanishing = tokio::time::timeout(Duration::from_millis(50), session.call(1, "wait"));
    assert!(vanishing.await.is_err());
    bench.wait_for("cancelled", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_silence_is_filled_with_signs_of_life() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    let mut answer = call_tool(&endpoint, 1, "wait").await;
    assert!(answer.is_stream());
    for _ in 0..3 {
        assert_eq!(answer.next_frame().await.unwrap(), ": alive\n\n");
    }
    bench.release.notify_one();
    assert_eq!(answer.next_message().await["result"]["content"][0]["text"], "released");
}

#[tokio::test]
async fn a_request_that_is_taken_back_is_not_answered() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    let cancelling = async {
        bench.wait_for("begun wait", 1).await;
        assert_eq!(session.post(&cancel).await.status, StatusCode::ACCEPTED);
    };
    let (answer, ()) = tokio::join!(session.call(7, "wait"), cancelling);
    assert_eq!(answer.read_text().await, "");
    bench.wait_for("cancelled", 1).await;
    // Its id is free again, and an id of nobody's is no fault.
    assert_eq!(session.post(&cancel).await.status, StatusCode::ACCEPTED);
    assert_eq!(session.call(7, "echo").await.read_json().await["id"], 7);
}

#[tokio::test]
async fn a_subscription_hears_what_it_asked_for_and_no_more() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    let filter = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a://b"] });
    let mut answer = send_modern(&endpoint, 3, "subscriptions/listen", json!({ "notifications": filter })).await;
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": 3 });
    let acknowledged = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a://b"] });
    assert_eq!(answer.next_message().await["params"], json!({ "notifications": acknowledged, "_meta": meta }));
    for change in [
        ChangeNotification::Prompts,
        ChangeNotification::Resources,
        ChangeNotification::Resource { uri: "a://c".to_owned() },
        ChangeNotification::Tools,
        ChangeNotification::Resource { uri: "a://b".to_owned() },
    ] {
        bench.changed.send(change).unwrap();
    }
    let (tools, resource) = (answer.next_message().await, answer.next_message().await);
    assert_eq!(tools["method"], "notifications/tools/list_changed");
    assert_eq!(tools["params"], json!({ "_meta": meta }));
    assert_eq!(resource["params"], json!({ "uri": "a://b", "_meta": meta }));
    endpoint.close().await;
    let end = answer.next_message().await;
    assert_eq!((&end["id"], &end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"]), (&json!(3), &json!(3)));
    assert!(answer.next_event().await.is_none());
}

#[tokio::test]
async fn a_service_that_panics_fails_one_request() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    assert_eq!(call_tool(&endpoint, 1, "panic").await.read_json().await["error"]["code"], -32603);
    assert_eq!(call_tool(&endpoint, 2, "echo").await.read_json().await["id"], 2);
}

#[tokio::test]
async fn one_endpoint_answers_only_so_many_at_once() {
    let options = ServerOptions { requests_max_total: 1, ..ServerOptions::default() };
    let (bench, endpoint) = test_endpoint(options);
    let second = async {
        bench.wait_for("begun wait", 1).await;
        let refused = call_tool(&endpoint, 2, "echo").await;
        assert_eq!(
            (refused.status, &refused.headers["retry-after"]),
            (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
        );
        bench.release.notify_one();
    };
    let (first, ()) = tokio::join!(call_tool(&endpoint, 1, "wait"), second);
    assert_eq!(first.status, StatusCode::OK);
}

#[tokio::test]
async fn closing_lets_answers_out_and_takes_no_more_requests() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let closing = async {
        bench.wait_for("begun wait", 1).await;
        let release = async {
            tokio::task::yield_now().await;
            bench.release.notify_one();
        };
        tokio::join!(endpoint.close(), release);
    };
    let (answer, ()) = tokio::join!(session.call(1, "wait"), closing);
    assert_eq!(answer.read_json().await["result"]["content"][0]["text"], "released");
    bench.wait_for("gone", 1).await;
    assert_eq!(call_tool(&endpoint, 2, "echo").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn what_needs_an_answer_the_client_cannot_give_is_refused() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let answer =
        send_modern_with(&endpoint, 1, "tools/call", json!({ "name": "ask" }), json!({ "sampling": {} })).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let error = answer.read_json().await["error"].take();
    assert_eq!(error["code"], -32021);
    assert_eq!(error["data"], json!({ "requiredCapabilities": { "elicitation": { "form": {} } } }));
}
