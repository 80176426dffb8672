//! Questions of the service to the client, in both eras.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use toolcrib_mcp::server::{HandlePrefix, McpEndpoint, ServerOptions};

use super::support::{LATEST_LEGACY, TestSession, call_tool, send_modern, test_endpoint};

#[tokio::test]
async fn a_legacy_client_is_asked_on_the_stream_of_its_request() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut response = session.call(1, "ask").await;
    let question = response.next_message().await;
    assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!("who?")));
    let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(session.post(&reply).await.status, StatusCode::ACCEPTED);
    assert_eq!(response.next_message().await["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
    // A second answer is accepted and ignored.
    assert_eq!(session.post(&reply).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn an_error_of_the_client_reaches_the_service() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut response = session.call(1, "ask").await;
    let error = json!({ "code": -1, "message": "no" });
    let id = response.next_message().await["id"].take();
    session.post(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
    assert_eq!(response.next_message().await["error"], error);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_question_is_cancelled_on_the_client() {
    let options = ServerOptions { ask_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let (_service, endpoint) = test_endpoint(options);
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut response = session.call(1, "ask").await;
    let question = response.next_message().await;
    let cancelled = response.next_message().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &question["id"])
    );
    assert_eq!(response.next_message().await["error"]["code"], -32603);
}

/// Returns the keys of an `input_required` result and its request state.
async fn read_input_required(response: super::support::TestResponse) -> (Vec<String>, Value) {
    assert_eq!(response.status, StatusCode::OK);
    let result = response.read_json().await["result"].take();
    assert_eq!(result["resultType"], "input_required", "{result}");
    let inputs = result["inputRequests"].as_object().unwrap();
    assert!(
        inputs.values().all(|input| input["method"] == "elicitation/create" && input["params"]["message"] == "who?")
    );
    (inputs.keys().cloned().collect(), result["requestState"].clone())
}

async fn resume_call(
    endpoint: &McpEndpoint,
    tool: &str,
    state: &Value,
    responses: Value,
) -> super::support::TestResponse {
    let params = json!({ "name": tool, "arguments": {}, "requestState": state, "inputResponses": responses });
    send_modern(endpoint, 2, "tools/call", params).await
}

#[tokio::test]
async fn a_suspended_request_is_resumed_by_its_client() {
    let (service, endpoint) = test_endpoint(ServerOptions::default());
    let (keys, state) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    let response =
        resume_call(&endpoint, "ask", &state, json!({ keys[0].as_str(): { "action": "accept" }, "more": {} })).await;
    let response = response.read_json().await;
    assert_eq!(response["id"], 2);
    assert_eq!(response["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
    // The tool ran once, and its state is valid once.
    service.wait_for("started ask", 1).await;
    let repeated = resume_call(&endpoint, "ask", &state, json!({})).await;
    assert_eq!(repeated.status, StatusCode::BAD_REQUEST);
    assert_eq!(repeated.read_json().await["error"]["code"], -32602);
}

#[tokio::test]
async fn concurrent_questions_share_one_result_and_open_ones_are_asked_again() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let (keys, state) = read_input_required(call_tool(&endpoint, 1, "ask_two").await).await;
    assert_eq!(keys.len(), 2);
    // One valid answer, and one that is not an object.
    let response =
        resume_call(&endpoint, "ask_two", &state, json!({ keys[1].as_str(): { "n": 2 }, keys[0].as_str(): 12 })).await;
    let (open, state) = read_input_required(response).await;
    assert_eq!(open, keys[..1]);
    let response = resume_call(&endpoint, "ask_two", &state, json!({ keys[0].as_str(): { "n": 1 } })).await;
    assert_eq!(response.read_json().await["result"]["content"][0]["text"], r#"[{"n":1},{"n":2}]"#);
}

#[tokio::test]
async fn sequential_questions_take_one_round_each() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let (first, before) = read_input_required(call_tool(&endpoint, 1, "ask_twice").await).await;
    let (second, state) = read_input_required(
        resume_call(&endpoint, "ask_twice", &before, json!({ first[0].as_str(): { "n": 1 } })).await,
    )
    .await;
    assert_ne!(before, state);
    let response = resume_call(&endpoint, "ask_twice", &state, json!({ second[0].as_str(): { "n": 2 } })).await;
    assert_eq!(response.read_json().await["result"]["content"][0]["text"], r#"[{"n":1},{"n":2}]"#);
}

#[tokio::test]
async fn a_request_state_is_valid_for_one_request_only() {
    let (_service, endpoint) = test_endpoint(ServerOptions::default());
    let (keys, state) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    let tampered = json!(format!("{}-TAMPERED", state.as_str().unwrap()));
    for (tool, state, responses) in
        [("ask_two", &state, json!({})), ("ask", &tampered, json!({})), ("ask", &state, json!([1]))]
    {
        let refused = resume_call(&endpoint, tool, state, responses).await;
        assert_eq!(refused.read_json().await["error"]["code"], -32602);
    }
    let response = resume_call(&endpoint, "ask", &state, json!({ keys[0].as_str(): {} })).await;
    assert_eq!(response.status, StatusCode::OK);
    // The state of a server behind the service is passed on to it.
    let foreign = resume_call(&endpoint, "echo", &json!("opaque"), json!({ "k": {} })).await.read_json().await;
    assert_eq!(foreign["result"]["structuredContent"]["requestState"], "opaque");
    assert_eq!(foreign["result"]["structuredContent"]["inputResponses"], json!({ "k": {} }));
}

#[tokio::test(start_paused = true)]
async fn the_request_state_of_a_related_process_is_refused() {
    let endpoint_of = |prefix: &str| {
        let handles = HandlePrefix::new(prefix, |prefix| ["old-", "new-"].contains(&prefix));
        test_endpoint(ServerOptions { handles, ..ServerOptions::default() })
    };
    let (_service, old) = endpoint_of("old-");
    let (keys, state) = read_input_required(call_tool(&old, 1, "ask").await).await;
    let responses = json!({ keys[0].as_str(): { "action": "accept" } });
    old.close().await;

    let (service, new) = endpoint_of("new-");
    let refused = resume_call(&new, "ask", &state, responses).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.read_json().await["error"].take();
    assert_eq!((&error["code"], &error["data"]["retryable"]), (&json!(-32602), &json!(true)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("lost"), "{error}");
    assert_eq!(service.count("started ask"), 0);
    // The state of an unrelated server with the same software is that of a server behind the service.
    let foreign = state.as_str().unwrap().replace("old-", "other-");
    let passed_on = resume_call(&new, "echo", &json!(foreign), json!({})).await.read_json().await;
    assert_eq!(passed_on["result"]["structuredContent"]["requestState"], foreign);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_request_expires() {
    let options = ServerOptions { ask_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let (service, endpoint) = test_endpoint(options);
    let (_, state) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    service.wait_for("disconnected", 1).await;
    assert_eq!(resume_call(&endpoint, "ask", &state, json!({})).await.read_json().await["error"]["code"], -32602);
    read_input_required(call_tool(&endpoint, 3, "ask").await).await;
}

/// Regression: clients that never came back left no room for the questions of others.
#[tokio::test]
async fn the_oldest_suspended_request_is_cancelled_beyond_the_maximum() {
    let (service, endpoint) = test_endpoint(ServerOptions { max_suspended_requests: 2, ..ServerOptions::default() });
    let (_, abandoned) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    let (keys, state) = read_input_required(call_tool(&endpoint, 2, "ask").await).await;
    read_input_required(call_tool(&endpoint, 3, "ask").await).await;
    service.wait_for("disconnected", 1).await;
    assert_eq!(resume_call(&endpoint, "ask", &abandoned, json!({})).await.read_json().await["error"]["code"], -32602);
    let response = resume_call(&endpoint, "ask", &state, json!({ keys[0].as_str(): { "action": "accept" } })).await;
    assert_eq!(response.read_json().await["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
}
