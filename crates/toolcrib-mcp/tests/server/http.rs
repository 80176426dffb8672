//! Requests over HTTP: results, progress, cancellation, subscriptions and limits.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use toolcrib_mcp::server::{ChangeNotification, ServerOptions};

use super::support::{LATEST_LEGACY, MODERN, TestSession, call_tool, send_modern, send_modern_with, test_endpoint};

#[tokio::test]
async fn a_stateless_request_gets_a_complete_result() {
    let (service, endpoint) = test_endpoint(ServerOptions::new("crib", "9"));
    let params = json!({ "name": "echo", "arguments": { "n": 1 }, "_meta": { "vendor/x": 7, "progressToken": 1 } });
    let response = send_modern(&endpoint, 5, "tools/call", params).await;
    assert_eq!((response.status, response.headers.get("mcp-session-id")), (StatusCode::OK, None));
    assert_eq!(
        response.read_json().await,
        json!({ "jsonrpc": "2.0", "id": 5, "result": {
            "resultType": "complete",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "crib", "version": "9" } },
            "content": [],
            "structuredContent": { "name": "echo", "arguments": { "n": 1 }, "_meta": { "vendor/x": 7 } },
            "peer": { "name": "raw", "era": MODERN, "query": "mode=full" } } })
    );
    service.wait_for("disconnected", 1).await;
}

#[tokio::test]
async fn discover_returns_versions_and_capabilities() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let result = send_modern(&endpoint, 1, "server/discover", json!({})).await.read_json().await["result"].take();
    assert_eq!(result["supportedVersions"], json!([MODERN, LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"]));
    assert_eq!(result["instructions"], "be kind");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
}

#[tokio::test]
async fn progress_has_the_clients_token_and_never_follows_the_response() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let params = json!({ "name": "progress", "_meta": { "progressToken": "mine" } });
    let mut response = send_modern(&endpoint, 1, "tools/call", params).await;
    assert!(response.is_stream());
    for progress in 1..=3 {
        let params = json!({ "progressToken": "mine", "progress": progress });
        assert_eq!(
            response.next_message().await,
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        );
    }
    assert_eq!(response.next_message().await["id"], 1);
    assert!(response.next_event().await.is_none());
    // Without a progress token there is no progress.
    assert!(!call_tool(&endpoint, 2, "progress").await.is_stream());
}

#[tokio::test]
async fn log_messages_are_sent_only_on_request() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    service.release.notify_one();
    assert!(!call_tool(&endpoint, 1, "log").await.is_stream());
    let params = json!({ "name": "log", "_meta": { "io.modelcontextprotocol/logLevel": "debug" } });
    let mut response = send_modern(&endpoint, 2, "tools/call", params).await;
    assert_eq!(response.next_message().await["method"], "notifications/message");
    service.release.notify_one();
    assert_eq!(response.next_message().await["id"], 2);
}

#[tokio::test]
async fn a_disconnected_client_cancels_its_request() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let vanishing = tokio::time::timeout(Duration::from_millis(50), call_tool(&endpoint, 1, "wait"));
    assert!(vanishing.await.is_err());
    service.wait_for("cancelled", 1).await;
    // The same in a session.
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let vanishing = tokio::time::timeout(Duration::from_millis(50), session.call(1, "wait"));
    assert!(vanishing.await.is_err());
    service.wait_for("cancelled", 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_gets_keep_alive_comments() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let mut response = call_tool(&endpoint, 1, "wait").await;
    assert!(response.is_stream());
    for _ in 0..3 {
        assert_eq!(response.next_frame().await.unwrap(), ": alive\n\n");
    }
    service.release.notify_one();
    assert_eq!(response.next_message().await["result"]["content"][0]["text"], "released");
}

#[tokio::test]
async fn a_cancelled_request_gets_no_response() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    let cancelling = async {
        service.wait_for("started wait", 1).await;
        assert_eq!(session.post(&cancel).await.status, StatusCode::ACCEPTED);
    };
    let (response, ()) = tokio::join!(session.call(7, "wait"), cancelling);
    assert_eq!(response.read_text().await, "");
    service.wait_for("cancelled", 1).await;
    // The id is free again, and cancelling an unknown id is no error.
    assert_eq!(session.post(&cancel).await.status, StatusCode::ACCEPTED);
    assert_eq!(session.call(7, "echo").await.read_json().await["id"], 7);
}

#[tokio::test]
async fn a_subscription_gets_only_the_changes_of_its_filter() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let filter = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a://b"] });
    let mut response = send_modern(&endpoint, 3, "subscriptions/listen", json!({ "notifications": filter })).await;
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": 3 });
    let acknowledged = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a://b"] });
    assert_eq!(response.next_message().await["params"], json!({ "notifications": acknowledged, "_meta": meta }));
    for change in [
        ChangeNotification::Prompts,
        ChangeNotification::Resources,
        ChangeNotification::Resource { uri: "a://c".to_owned() },
        ChangeNotification::Tools,
        ChangeNotification::Resource { uri: "a://b".to_owned() },
    ] {
        service.changed.send(change).unwrap();
    }
    let tools = response.next_message().await;
    let resource = response.next_message().await;
    assert_eq!(tools["method"], "notifications/tools/list_changed");
    assert_eq!(tools["params"], json!({ "_meta": meta }));
    assert_eq!(resource["params"], json!({ "uri": "a://b", "_meta": meta }));
    endpoint.close().await;
    let end = response.next_message().await;
    assert_eq!((&end["id"], &end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"]), (&json!(3), &json!(3)));
    assert!(response.next_event().await.is_none());
}

#[tokio::test]
async fn a_service_that_panics_fails_one_request() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    assert_eq!(call_tool(&endpoint, 1, "panic").await.read_json().await["error"]["code"], -32603);
    assert_eq!(call_tool(&endpoint, 2, "echo").await.read_json().await["id"], 2);
}

#[tokio::test]
async fn concurrent_requests_of_an_endpoint_are_bounded() {
    let options = ServerOptions { max_requests: 1, ..ServerOptions::default() };
    let (service, endpoint) = test_endpoint(options);
    let second = async {
        service.wait_for("started wait", 1).await;
        let refused = call_tool(&endpoint, 2, "echo").await;
        assert_eq!(
            (refused.status, &refused.headers["retry-after"]),
            (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
        );
        service.release.notify_one();
    };
    let (first, ()) = tokio::join!(call_tool(&endpoint, 1, "wait"), second);
    assert_eq!(first.status, StatusCode::OK);
}

#[tokio::test]
async fn requests_over_open_connections_are_answered_until_these_are_idle() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let (idle, connections_idle) = tokio::sync::oneshot::channel::<()>();
    let late = async {
        // The connections are being closed, and one of them has sent another request.
        tokio::task::yield_now().await;
        let response = call_tool(&endpoint, 1, "echo").await;
        idle.send(()).unwrap();
        response
    };
    let closing = endpoint.close_after(async move { connections_idle.await.unwrap() });
    let ((), response) = tokio::join!(closing, late);
    assert_eq!(response.read_json().await["id"], 1);
    assert_eq!(call_tool(&endpoint, 2, "echo").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn closing_sends_pending_responses_and_rejects_new_requests() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let closing = async {
        service.wait_for("started wait", 1).await;
        let release = async {
            tokio::task::yield_now().await;
            service.release.notify_one();
        };
        tokio::join!(endpoint.close(), release);
    };
    let (response, ()) = tokio::join!(session.call(1, "wait"), closing);
    assert_eq!(response.read_json().await["result"]["content"][0]["text"], "released");
    service.wait_for("disconnected", 1).await;
    assert_eq!(call_tool(&endpoint, 2, "echo").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_question_that_the_client_does_not_support_is_an_error() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let response =
        send_modern_with(&endpoint, 1, "tools/call", json!({ "name": "ask" }), json!({ "sampling": {} })).await;
    assert_eq!(response.status, StatusCode::BAD_REQUEST);
    let error = response.read_json().await["error"].take();
    assert_eq!(error["code"], -32021);
    assert_eq!(error["data"], json!({ "requiredCapabilities": { "elicitation": { "form": {} } } }));
}
