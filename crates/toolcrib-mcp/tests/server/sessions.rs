//! Sessions of the legacy era.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use toolcrib_mcp::server::{ChangeNotification, ServerOptions};

use super::support::{
    LATEST_LEGACY, MODERN, TestSession, call_message, call_tool, send_initialize, send_initialize_accepting,
    send_modern, test_endpoint,
};

#[tokio::test]
async fn initialize_negotiates_the_version() {
    let (_service, endpoint) = test_endpoint(ServerOptions::new("crib", "9"));
    for (requested, negotiated) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        (LATEST_LEGACY, LATEST_LEGACY),
        (MODERN, LATEST_LEGACY),
        ("1999-01-01", LATEST_LEGACY),
    ] {
        let result = send_initialize(&endpoint, requested).await.read_json().await["result"].take();
        assert_eq!(result["protocolVersion"], negotiated);
        assert_eq!(result["serverInfo"], json!({ "name": "crib", "version": "9" }));
        assert_eq!(result["instructions"], "be kind");
    }
}

/// Regression: line breaks in the capabilities of the service split the event.
#[tokio::test]
async fn initialize_is_answered_with_one_event_if_only_streams_are_accepted() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let mut response = send_initialize_accepting(&endpoint, LATEST_LEGACY, "text/event-stream").await;
    assert!(response.is_stream());
    assert_eq!(response.next_message().await["result"]["capabilities"]["tools"], json!({ "listChanged": true }));
    assert!(response.next_event().await.is_none());
}

#[tokio::test]
async fn a_session_works_until_it_is_deleted() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(session.post(&initialized).await.status, StatusCode::ACCEPTED);
    let response = session.post(&json!({ "jsonrpc": "2.0", "id": "a", "method": "ping" })).await;
    assert_eq!(response.read_json().await, json!({ "jsonrpc": "2.0", "id": "a", "result": {} }));
    let response = session.call(1, "echo").await.read_json().await;
    assert!(response["result"].get("resultType").is_none());
    assert_eq!(response["result"]["peer"], json!({ "name": "raw", "era": LATEST_LEGACY, "query": "mode=full" }));
    assert_eq!(session.send("DELETE", &[], &Value::Null).await.status, StatusCode::OK);
    service.wait_for("disconnected", 1).await;
    assert_eq!(session.call(2, "echo").await.status, StatusCode::NOT_FOUND);
    assert_eq!(session.send("GET", &[], &Value::Null).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stream_is_resumable_before_its_first_message_in_2025_11_25() {
    for (version, primed) in [(LATEST_LEGACY, true), ("2025-06-18", false)] {
        let (_service, endpoint) = test_endpoint(ServerOptions::default());
        let session = TestSession::open(&endpoint, version).await;
        let text = session.call(1, "progress").await.read_text().await;
        assert_eq!(text.starts_with("id: 1-0\nretry: 500\ndata:\n\nid: 1-1\n"), primed, "{text}");
        assert!(text.contains("id: 1-4\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\""), "{text}");
    }
}

#[tokio::test]
async fn an_interrupted_stream_is_resumed_and_its_request_continues() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut response = session.call(1, "log").await;
    let (id, message) = response.next_event().await.unwrap();
    assert_eq!(message["method"], "notifications/message");
    drop(response);
    service.release.notify_one();
    let mut again = session.send("GET", &[("last-event-id", &id)], &Value::Null).await;
    assert_eq!(again.next_message().await["result"]["content"][0]["text"], "logged");
    assert!(again.next_event().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_stream_that_is_not_resumed_cancels_its_request() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let waiting = session.post(&call_message(1, "wait")).await;
    assert!(waiting.is_stream());
    drop(waiting);
    service.wait_for("cancelled", 1).await;
}

#[tokio::test]
async fn notifications_reach_one_stream_and_none_is_lost_between_two() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut first = session.send("GET", &[], &Value::Null).await;
    service.wait_for("listening", 1).await;
    service.changed.send(ChangeNotification::Tools).unwrap();
    let (id, message) = first.next_event().await.unwrap();
    assert_eq!(message, json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
    let mut second = session.send("GET", &[], &Value::Null).await;
    service.changed.send(ChangeNotification::Prompts).unwrap();
    assert_eq!(second.next_message().await["method"], "notifications/prompts/list_changed");
    drop((first, second));
    service.changed.send(ChangeNotification::Resources).unwrap();
    let mut third = session.send("GET", &[("last-event-id", &id)], &Value::Null).await;
    assert_eq!(third.next_message().await["method"], "notifications/prompts/list_changed");
    assert_eq!(third.next_message().await["method"], "notifications/resources/list_changed");
}

#[tokio::test]
async fn readers_of_a_stream_and_requests_of_a_session_are_bounded() {
    let options = ServerOptions { max_readers_per_stream: 1, max_requests_per_client: 1, ..ServerOptions::default() };
    let (service, endpoint) = test_endpoint(options);
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let stream = session.send("GET", &[], &Value::Null).await;
    assert_eq!(session.send("GET", &[], &Value::Null).await.status, StatusCode::TOO_MANY_REQUESTS);
    drop(stream);
    let more = async {
        service.wait_for("started wait", 1).await;
        assert_eq!(session.call(2, "echo").await.status, StatusCode::SERVICE_UNAVAILABLE);
        service.release.notify_one();
    };
    let (response, ()) = tokio::join!(session.call(1, "wait"), more);
    assert_eq!(response.status, StatusCode::OK);
}

#[tokio::test]
async fn a_duplicate_request_id_is_rejected() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let duplicate = async {
        service.wait_for("started wait", 1).await;
        assert_eq!(session.call(1, "echo").await.read_json().await["error"]["code"], -32600);
        service.release.notify_one();
    };
    let (response, ()) = tokio::join!(session.call(1, "wait"), duplicate);
    assert_eq!(response.read_json().await["result"]["content"][0]["text"], "released");
}

#[tokio::test]
async fn the_longest_idle_session_is_evicted() {
    let (service, endpoint) = test_endpoint(ServerOptions { max_sessions: 2, ..ServerOptions::default() });
    let oldest = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let second = TestSession::open(&endpoint, LATEST_LEGACY).await;
    oldest.call(1, "echo").await;
    let third = TestSession::open(&endpoint, LATEST_LEGACY).await;
    service.wait_for("disconnected", 1).await;
    assert_eq!(second.call(1, "echo").await.status, StatusCode::NOT_FOUND);
    // Sessions in use are not evicted.
    let streams = (oldest.send("GET", &[], &Value::Null).await, third.send("GET", &[], &Value::Null).await);
    assert_eq!(send_initialize(&endpoint, LATEST_LEGACY).await.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(streams);
    assert_eq!(send_initialize(&endpoint, LATEST_LEGACY).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_expires() {
    let options = ServerOptions { session_idle_timeout: Duration::from_secs(60), ..ServerOptions::default() };
    let (service, endpoint) = test_endpoint(options);
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(session.call(1, "echo").await.status, StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(session.call(2, "echo").await.status, StatusCode::OK);
    service.wait_for("disconnected", 0).await;
    tokio::time::sleep(Duration::from_secs(80)).await;
    service.wait_for("disconnected", 1).await;
    assert_eq!(session.call(3, "echo").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_batch_is_answered_with_a_batch() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, "2025-03-26").await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let response = session.post(&json!([ping, notification, call_message(2, "progress"), 42])).await;
    assert_eq!(response.status, StatusCode::OK);
    let mut ids: Vec<Value> =
        response.read_json().await.as_array().unwrap().iter().map(|response| response["id"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, [json!(1), json!(2), Value::Null]);
    assert_eq!(session.post(&json!([notification])).await.status, StatusCode::ACCEPTED);
    assert_eq!(session.post(&json!([])).await.status, StatusCode::BAD_REQUEST);
    let newer = TestSession::open(&endpoint, LATEST_LEGACY).await;
    assert_eq!(newer.post(&json!([ping])).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_request_of_a_deleted_session_gets_an_error() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let ending = async {
        service.wait_for("started wait", 1).await;
        assert_eq!(session.send("DELETE", &[], &Value::Null).await.status, StatusCode::OK);
    };
    let (response, ()) = tokio::join!(session.call(5, "wait"), ending);
    assert_eq!(response.status, StatusCode::NOT_FOUND);
    let error = json!({ "code": -32603, "message": "the session has ended" });
    assert_eq!(response.read_json().await, json!({ "jsonrpc": "2.0", "id": 5, "error": error }));
}

/// Options of an endpoint that gives requests in progress nearly no time when it closes.
fn without_drain() -> ServerOptions {
    let moment = Duration::from_millis(50);
    ServerOptions { drain_timeout: moment, cleanup_timeout: moment, ..ServerOptions::default() }
}

#[tokio::test]
async fn a_request_that_a_closing_endpoint_cannot_finish_gets_the_response_of_the_service() {
    let (service, endpoint) = test_endpoint(without_drain());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let ending = async {
        service.wait_for("started wait", 2).await;
        endpoint.close().await;
    };
    let (with_session, without, ()) = tokio::join!(session.call(5, "wait"), call_tool(&endpoint, 6, "wait"), ending);
    for (response, id) in [(with_session, 5), (without, 6)] {
        assert_eq!((response.status, response.is_stream()), (StatusCode::OK, false));
        let response = response.read_json().await;
        assert_eq!(response["id"], id);
        assert_eq!(response["result"]["content"][0]["text"], "tools/call is unfinished");
    }
    service.wait_for("cancelled", 2).await;
}

/// The response does not wait for a service that ignores the cancellation.
#[tokio::test]
async fn a_stream_that_a_closing_endpoint_cannot_finish_ends_with_the_response_of_the_service() {
    let (service, endpoint) = test_endpoint(without_drain());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let params = json!({ "name": "progress_then_hang", "_meta": { "progressToken": 1 } });
    let without = send_modern(&endpoint, 6, "tools/call", params);
    let (with_session, without) = tokio::join!(session.call(5, "progress_then_hang"), without);
    service.wait_for("hanging", 2).await;
    endpoint.close().await;
    for (mut response, id) in [(with_session, 5), (without, 6)] {
        assert!(response.is_stream());
        assert_eq!(response.next_message().await["method"], "notifications/progress");
        let last = response.next_message().await;
        assert_eq!(last["id"], id);
        assert_eq!(last["result"]["content"][0]["text"], "tools/call is unfinished");
        assert!(response.next_event().await.is_none(), "the stream ends");
    }
}
