//! Calls of API tools, as an agent makes them.

use std::time::Duration;

use serde_json::{Value, json};
use toolcrib::call::CallDeadline;
use toolcrib::{CallContext, Code};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use super::support::{OpenApiTestRegistry, pets_document, run_past_deadline};

#[tokio::test]
async fn operations_become_tools_and_calls_become_requests() {
    let server = LoopbackServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::json(200, r#"{"name": "Rex"}"#),
        _ => HttpReply::new(201, "location: /v1/pets/7", ""),
    });
    let registry =
        OpenApiTestRegistry::open_shop(&pets_document(&server), json!({ "auth": { "bearer": "s3cret-token" } })).await;
    assert_eq!(registry.tool_names().await, ["shop__getPet", "shop__makePet"]);

    let output = registry.call("shop__getPet", json!({ "id": "a b", "full": true })).await.unwrap();
    assert_eq!(output.structured(), Some(r#"{"name": "Rex"}"#));
    let output = registry.call("shop__makePet", json!({ "body": { "name": "Rex" } })).await.unwrap();
    let content: Value = serde_json::from_str(output.content()).unwrap();
    assert_eq!(content, json!([{ "type": "text", "text": "201 Created" }]));

    let request = server.requests();
    assert_eq!(server.request_lines(), ["GET /v1/pets/a%20b?full=true", "POST /v1/pets"]);
    assert_eq!(request[1].text(), r#"{"name":"Rex"}"#);
    assert!(request.iter().all(|request| request.header("authorization") == Some("Bearer s3cret-token")));
    assert_eq!((request[0].connection, request[1].connection), (0, 0));
}

#[tokio::test]
async fn invalid_arguments_send_no_request() {
    let server = LoopbackServer::start(|_| HttpReply::new(204, "", ""));
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({})).await;
    for (tool, input) in [
        ("shop__getPet", json!({})),
        ("shop__getPet", json!({ "id": 7 })),
        ("shop__getPet", json!({ "id": ".." })),
        ("shop__getPet", json!({ "id": "" })),
        ("shop__getPet", json!({ "id": "7", "idd": "8" })),
        ("shop__makePet", json!({})),
        ("shop__makePet", json!({ "body": {} })),
    ] {
        let error = registry.call(tool, input.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput, "{tool} {input}: {error}");
    }
    assert_eq!(server.request_lines(), [""; 0]);
}

#[tokio::test]
async fn an_api_error_keeps_its_message_without_secrets() {
    let server = LoopbackServer::start(|request| {
        HttpReply::json(422, format!(r#"{{"error":{{"message":"bad {}"}}}}"#, request.header("authorization").unwrap()))
    });
    let registry =
        OpenApiTestRegistry::open_shop(&pets_document(&server), json!({ "auth": { "bearer": "s3cret-token" } })).await;
    let error = registry.call("shop__getPet", json!({ "id": "1" })).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::ToolExecutionFailed, false));
    assert_eq!(error.message, "`GET /pets/{id}` answered 422 Unprocessable Entity: bad Bearer ***");
    assert_eq!(error.details.as_ref().unwrap()["status"], 422);
    assert!(!error.envelope().to_string().contains("s3cret"));
}

#[tokio::test]
async fn repeated_failures_open_the_circuit_breaker() {
    let server = LoopbackServer::start(|_| HttpReply::close());
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({})).await;
    let make = || registry.call("shop__makePet", json!({ "body": { "name": "Rex" } }));
    for _ in 0..5 {
        assert_eq!(make().await.unwrap_err().code, Code::ToolExecutionFailed);
    }
    let error = make().await.unwrap_err();
    assert_eq!((error.code, server.requests().len()), (Code::ToolUnavailable, 5));
    assert!(error.message.starts_with("the circuit breaker of `shop` is open"), "{error}");
}

#[tokio::test]
async fn a_short_timeout_of_the_caller_is_respected() {
    let server = LoopbackServer::start(|request| match request.number {
        1 => HttpReply::json(200, "{}"),
        _ => HttpReply::never(),
    });
    let registry = OpenApiTestRegistry::open_shop(&pets_document(&server), json!({})).await;
    registry.call("shop__getPet", json!({ "id": "1" })).await.unwrap();
    let deadline = Some(CallDeadline::after(Duration::from_secs(40)));
    let options = CallContext { deadline, ..CallContext::default() };
    let call = registry.call_with("shop__getPet", json!({ "id": "1" }), options);
    let error = run_past_deadline(&server, 2, call).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed);
    assert_eq!(error.message, "`GET /pets/{id}` timed out after 40s", "shorter than the 60 s of the source");
}
