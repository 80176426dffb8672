//! Asking back, in both eras.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use toolcrib_mcp::server::{McpEndpoint, ServerOptions};

use crate::support::{LATEST_LEGACY, TestSession, call_tool, send_modern, test_endpoint};

#[tokio::test]
async fn a_client_of_old_is_asked_on_the_stream_of_its_request() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut answer = session.call(1, "ask").await;
    let asked = answer.next_message().await;
    assert_eq!((&asked["method"], &asked["params"]["message"]), (&json!("elicitation/create"), &json!("who?")));
    let reply = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } });
    assert_eq!(session.post(&reply).await.status, StatusCode::ACCEPTED);
    assert_eq!(answer.next_message().await["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
    // A second answer finds nobody.
    assert_eq!(session.post(&reply).await.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_refusal_of_a_client_is_the_services_to_handle() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut answer = session.call(1, "ask").await;
    let error = json!({ "code": -1, "message": "no" });
    let id = answer.next_message().await["id"].take();
    session.post(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
    assert_eq!(answer.next_message().await["error"], error);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_told_that_nobody_waits_any_more() {
    let options = ServerOptions { ask_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let (_bench, endpoint) = test_endpoint(options);
    let session = TestSession::open(&endpoint, LATEST_LEGACY).await;
    let mut answer = session.call(1, "ask").await;
    let asked = answer.next_message().await;
    let cancelled = answer.next_message().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &asked["id"])
    );
    assert_eq!(answer.next_message().await["error"]["code"], -32603);
}

/// What a result asks for, and the state to come back with.
async fn read_input_required(answer: crate::support::TestResponse) -> (Vec<String>, Value) {
    assert_eq!(answer.status, StatusCode::OK);
    let result = answer.read_json().await["result"].take();
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
) -> crate::support::TestResponse {
    let params = json!({ "name": tool, "arguments": {}, "requestState": state, "inputResponses": responses });
    send_modern(endpoint, 2, "tools/call", params).await
}

#[tokio::test]
async fn a_request_is_held_until_its_client_comes_back() {
    let (bench, endpoint) = test_endpoint(ServerOptions::default());
    let (keys, state) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    let answer =
        resume_call(&endpoint, "ask", &state, json!({ keys[0].as_str(): { "action": "accept" }, "more": {} })).await;
    let answer = answer.read_json().await;
    assert_eq!(answer["id"], 2);
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
    // It ran once, and its state is good once.
    bench.wait_for("begun ask", 1).await;
    let twice = resume_call(&endpoint, "ask", &state, json!({})).await;
    assert_eq!(twice.status, StatusCode::BAD_REQUEST);
    assert_eq!(twice.read_json().await["error"]["code"], -32602);
}

#[tokio::test]
async fn questions_asked_at_once_are_put_together_and_open_ones_again() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let (keys, state) = read_input_required(call_tool(&endpoint, 1, "ask_two").await).await;
    assert_eq!(keys.len(), 2);
    // One answer, and one that is none.
    let answer =
        resume_call(&endpoint, "ask_two", &state, json!({ keys[1].as_str(): { "n": 2 }, keys[0].as_str(): 12 })).await;
    let (open, state) = read_input_required(answer).await;
    assert_eq!(open, keys[..1]);
    let answer = resume_call(&endpoint, "ask_two", &state, json!({ keys[0].as_str(): { "n": 1 } })).await;
    assert_eq!(answer.read_json().await["result"]["content"][0]["text"], r#"[{"n":1},{"n":2}]"#);
}

#[tokio::test]
async fn questions_in_a_row_take_as_many_rounds() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let (first, before) = read_input_required(call_tool(&endpoint, 1, "ask_twice").await).await;
    let (second, state) = read_input_required(
        resume_call(&endpoint, "ask_twice", &before, json!({ first[0].as_str(): { "n": 1 } })).await,
    )
    .await;
    assert_ne!(before, state);
    let answer = resume_call(&endpoint, "ask_twice", &state, json!({ second[0].as_str(): { "n": 2 } })).await;
    assert_eq!(answer.read_json().await["result"]["content"][0]["text"], r#"[{"n":1},{"n":2}]"#);
}

#[tokio::test]
async fn a_state_belongs_to_one_request_and_cannot_be_made_up() {
    let (_bench, endpoint) = test_endpoint(ServerOptions::default());
    let (keys, state) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    let tampered = json!(format!("{}-TAMPERED", state.as_str().unwrap()));
    for (tool, state, responses) in
        [("ask_two", &state, json!({})), ("ask", &tampered, json!({})), ("ask", &state, json!([1]))]
    {
        let refused = resume_call(&endpoint, tool, state, responses).await;
        assert_eq!(refused.read_json().await["error"]["code"], -32602);
    }
    let answer = resume_call(&endpoint, "ask", &state, json!({ keys[0].as_str(): {} })).await;
    assert_eq!(answer.status, StatusCode::OK);
    // The state of a server behind the service is that server's.
    let foreign = resume_call(&endpoint, "echo", &json!("opaque"), json!({ "k": {} })).await.read_json().await;
    assert_eq!(foreign["result"]["structuredContent"]["requestState"], "opaque");
    assert_eq!(foreign["result"]["structuredContent"]["inputResponses"], json!({ "k": {} }));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_come_back_is_given_up() {
    let options = ServerOptions { ask_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let (bench, endpoint) = test_endpoint(options);
    let (_, state) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    bench.wait_for("gone", 1).await;
    assert_eq!(resume_call(&endpoint, "ask", &state, json!({})).await.read_json().await["error"]["code"], -32602);
    read_input_required(call_tool(&endpoint, 3, "ask").await).await;
}

/// Clients that never came back left no room for the questions of others.
#[tokio::test]
async fn who_was_away_longest_gives_way_to_others() {
    let (bench, endpoint) = test_endpoint(ServerOptions { suspended_max: 2, ..ServerOptions::default() });
    let (_, abandoned) = read_input_required(call_tool(&endpoint, 1, "ask").await).await;
    let (keys, state) = read_input_required(call_tool(&endpoint, 2, "ask").await).await;
    read_input_required(call_tool(&endpoint, 3, "ask").await).await;
    bench.wait_for("gone", 1).await;
    assert_eq!(resume_call(&endpoint, "ask", &abandoned, json!({})).await.read_json().await["error"]["code"], -32602);
    let answer = resume_call(&endpoint, "ask", &state, json!({ keys[0].as_str(): { "action": "accept" } })).await;
    assert_eq!(answer.read_json().await["result"]["content"][0]["text"], r#"{"action":"accept"}"#);
}
