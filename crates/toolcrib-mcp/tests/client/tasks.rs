//! Calls that a server runs as a task, in both forms, and servers that speak both eras.

use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib_mcp::{ClientOptions, ConnectTarget, Era, McpClient, RequestOptions, WireError};

use super::support::{StdioServer, client_options, progress_channel, request_options};
use crate::{parse, to_raw};

/// Receives a request and checks its method.
async fn receive(server: &mut StdioServer, method: &str) -> Value {
    let request = server.receive().await;
    assert_eq!(request["method"], method, "{request}");
    request
}

fn task_capabilities() -> Value {
    json!({ "tools": {}, "tasks": { "requests": { "tools": { "call": {} } } } })
}

async fn connect_modern(options: ClientOptions, capabilities: Value) -> (StdioServer, McpClient) {
    let (mut server, target) = StdioServer::new();
    let options = ClientOptions { protocol: Some(Era::Modern), ..options };
    let (client, ()) = tokio::join!(McpClient::connect(target, options), async {
        let discover = receive(&mut server, "server/discover").await;
        let result = json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities });
        server.respond(&discover, &result).await;
    });
    (server, client.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_requires_a_task_is_polled_and_answered_as_a_call() {
    let (mut server, client) = StdioServer::connect(client_options(), task_capabilities()).await;
    let (progress, mut reported) = progress_channel();
    let options = RequestOptions { as_task: true, progress: Some(&progress), ..request_options(60) };
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        assert_eq!(call["params"]["task"], json!({}));
        let task =
            |status: &str| json!({ "taskId": "7", "status": status, "statusMessage": "Reading", "pollInterval": 10 });
        server.respond(&call, &json!({ "task": task("working") })).await;
        // The progress token of the call is valid until the task ends.
        let params = json!({ "progressToken": call["id"], "progress": 0.5 });
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        let get = receive(&mut server, "tasks/get").await;
        assert_eq!(get["params"]["taskId"], "7");
        server.respond(&get, &task("working")).await;
        let get = receive(&mut server, "tasks/get").await;
        server.respond(&get, &task("completed")).await;
        let result = receive(&mut server, "tasks/result").await;
        server.respond(&result, &json!({ "content": [{ "type": "text", "text": "done" }] })).await;
    });
    assert_eq!(parse(&response.unwrap())["content"][0]["text"], "done");
    assert_eq!(parse(&reported.recv().await.unwrap())["progress"], 0.5);
    assert_eq!(parse(&reported.recv().await.unwrap())["message"], "Reading");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tasks_is_called_as_ever() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    let options = RequestOptions { as_task: true, ..request_options(60) };
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        assert_eq!(call["params"].get("task"), None);
        server.respond(&call, &json!({ "content": [] })).await;
    });
    assert_eq!(parse(&response.unwrap()), json!({ "content": [] }));
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_with_its_call_and_at_the_deadline() {
    for is_cancelled in [true, false] {
        let (mut server, client) = StdioServer::connect(client_options(), task_capabilities()).await;
        let cancel = CancellationToken::new();
        let options = RequestOptions { as_task: true, cancel: Some(&cancel), ..request_options(5) };
        let arguments = to_raw(&json!({}));
        let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
            let call = receive(&mut server, "tools/call").await;
            server.respond(&call, &json!({ "task": { "taskId": "7", "status": "working", "pollInterval": 10 } })).await;
            receive(&mut server, "tasks/get").await;
            if is_cancelled {
                cancel.cancel();
            }
        });
        match response {
            Err(WireError::Cancelled { .. }) => assert!(is_cancelled),
            Err(WireError::Timeout { .. }) => assert!(!is_cancelled),
            other => panic!("{other:?}"),
        }
        // First the poll, then the task.
        receive(&mut server, "notifications/cancelled").await;
        assert_eq!(receive(&mut server, "tasks/cancel").await["params"]["taskId"], "7");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_of_2026_that_requires_tasks_gets_the_extension_and_the_answers() {
    let handler = |_| async { Ok(to_raw(&json!({ "action": "accept" }))) }.boxed();
    let capabilities = to_raw(&json!({ "elicitation": {} }));
    let options = ClientOptions { handler: Some(Arc::new(handler)), capabilities, ..client_options() };
    let (mut server, client) = connect_modern(options, json!({ "tools": {} })).await;
    let arguments = to_raw(&json!({}));
    let options = request_options(60);
    let declared = |request: &Value| request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        assert_eq!(declared(&call), json!({ "elicitation": {} }));
        let required = json!({ "requiredCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } } });
        let error = json!({ "code": -32021, "message": "tasks", "data": required });
        server.send(&json!({ "jsonrpc": "2.0", "id": call["id"], "error": error })).await;
        let call = receive(&mut server, "tools/call").await;
        let extended = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        assert_eq!(declared(&call), extended);
        server.respond(&call, &json!({ "resultType": "task", "taskId": "7", "status": "working" })).await;
        let get = receive(&mut server, "tasks/get").await;
        assert_eq!(declared(&get), extended);
        let inputs = json!({ "how": { "method": "elicitation/create", "params": {} } });
        let waiting =
            json!({ "resultType": "complete", "taskId": "7", "status": "input_required", "inputRequests": inputs });
        server.respond(&get, &waiting).await;
        let update = receive(&mut server, "tasks/update").await;
        assert_eq!(update["params"]["inputResponses"], json!({ "how": { "action": "accept" } }));
        server.respond(&update, &json!({ "resultType": "complete" })).await;
        let get = receive(&mut server, "tasks/get").await;
        let result = json!({ "content": [{ "type": "text", "text": "done" }] });
        server.respond(&get, &json!({ "taskId": "7", "status": "completed", "result": result })).await;
    });
    assert_eq!(parse(&response.unwrap())["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_fails_the_call_with_its_error() {
    let (mut server, client) = connect_modern(client_options(), json!({ "tools": {} })).await;
    let arguments = to_raw(&json!({}));
    let options = request_options(60);
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        server.respond(&call, &json!({ "resultType": "task", "taskId": "7", "status": "working" })).await;
        let get = receive(&mut server, "tasks/get").await;
        let error = json!({ "code": -32603, "message": "out of paper" });
        server.respond(&get, &json!({ "taskId": "7", "status": "failed", "error": error })).await;
    });
    assert!(matches!(&response, Err(WireError::Rpc(error)) if error.message == "out of paper"), "{response:?}");
}

#[tokio::test]
async fn the_reason_of_a_cancellation_reaches_the_server() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({})).await;
    let cancel = CancellationToken::new();
    let reason = Arc::new(OnceLock::new());
    let options = RequestOptions { cancel: Some(&cancel), cancel_reason: Some(&reason), ..request_options(30) };
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        server.receive().await;
        reason.set("the user changed the question".to_owned()).unwrap();
        cancel.cancel();
    });
    assert!(matches!(response, Err(WireError::Cancelled { sent: true })), "{response:?}");
    assert_eq!(server.receive().await["params"]["reason"], "the user changed the question");
}

#[tokio::test]
async fn subscriptions_to_resources_use_one_listen_request() {
    let (mut server, client) = connect_modern(client_options(), json!({ "resources": { "subscribe": true } })).await;
    let change = async |method: &str, uri: &str| {
        client.request(method, Some(&to_raw(&json!({ "uri": uri }))), &request_options(30)).await
    };
    let acknowledge = |listen: &Value, uris: Value| {
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": listen["id"] });
        let params = json!({ "notifications": { "resourceSubscriptions": uris }, "_meta": meta });
        json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params })
    };
    let (response, first) = tokio::join!(change("resources/subscribe", "a:1"), async {
        let listen = receive(&mut server, "subscriptions/listen").await;
        assert_eq!(listen["params"]["notifications"], json!({ "resourceSubscriptions": ["a:1"] }));
        server.send(&acknowledge(&listen, json!(["a:1"]))).await;
        listen
    });
    response.unwrap();
    // The next one replaces it, after it was acknowledged.
    let (response, ()) = tokio::join!(change("resources/subscribe", "a:2"), async {
        let listen = receive(&mut server, "subscriptions/listen").await;
        assert_eq!(listen["params"]["notifications"], json!({ "resourceSubscriptions": ["a:1", "a:2"] }));
        server.send(&acknowledge(&listen, json!(["a:1", "a:2"]))).await;
    });
    response.unwrap();
    let cancelled = receive(&mut server, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], first["id"]);
    // A resource that the server does not grant is an error, and the others stay.
    let (response, refused) = tokio::join!(change("resources/subscribe", "a:3"), async {
        let listen = receive(&mut server, "subscriptions/listen").await;
        server.send(&acknowledge(&listen, json!(["a:1", "a:2"]))).await;
        listen
    });
    assert!(matches!(response, Err(WireError::Rpc(_))), "{response:?}");
    let cancelled = receive(&mut server, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], refused["id"]);
}

#[tokio::test]
async fn a_legacy_server_that_answers_discover_takes_requests_of_2026() {
    let (mut server, client) = StdioServer::connect(client_options(), json!({ "tools": {} })).await;
    let probe = async |server: &mut StdioServer, accepted: bool| {
        tokio::join!(client.probe_modern(std::time::Duration::from_secs(30)), async {
            let discover = receive(server, "server/discover").await;
            assert_eq!(discover["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
            if accepted {
                server.respond(&discover, &json!({ "supportedVersions": ["2025-11-25", "2026-07-28"] })).await;
            } else {
                server.respond_with_error(&discover, -32601, "unknown method").await;
            }
        })
        .0
    };
    assert!(!probe(&mut server, false).await);
    assert!(probe(&mut server, true).await);
    let options = RequestOptions { modern: true, ..request_options(30) };
    let arguments = to_raw(&json!({}));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        assert_eq!(call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        server.respond(&call, &json!({ "resultType": "complete", "content": [] })).await;
    });
    response.unwrap();
}

#[tokio::test]
async fn a_fixed_version_is_the_only_one_that_is_tried() {
    let connect = |target: ConnectTarget, protocol: &str| {
        McpClient::connect(target, ClientOptions { protocol: Some(protocol.parse().unwrap()), ..client_options() })
    };
    let (mut server, target) = StdioServer::new();
    let (client, ()) = tokio::join!(connect(target, "2025-03-26"), async {
        let initialize = receive(&mut server, "initialize").await;
        assert_eq!(initialize["params"]["protocolVersion"], "2025-03-26");
        server.respond_with_error(&initialize, -32601, "gone").await;
    });
    assert!(matches!(client, Err(WireError::Rpc(_))), "{client:?}");
    let (mut server, target) = StdioServer::new();
    let (client, ()) = tokio::join!(connect(target, "2026-07-28"), async {
        let discover = receive(&mut server, "server/discover").await;
        server.respond_with_error(&discover, -32601, "unknown method").await;
    });
    assert!(client.unwrap_err().to_string().contains("does not support version `2026-07-28`"));
}

/// Regression: one failed poll ended the call and cancelled the task, and a task that had ended was polled all the same.
#[tokio::test(start_paused = true)]
async fn a_failed_poll_is_repeated_and_a_task_that_has_ended_is_not_polled() {
    let options = RequestOptions { as_task: true, ..request_options(60) };
    let arguments = to_raw(&json!({}));
    let (mut server, client) = StdioServer::connect(client_options(), task_capabilities()).await;
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        server.respond(&call, &json!({ "task": { "taskId": "7", "status": "working" } })).await;
        for _ in 0..3 {
            let get = receive(&mut server, "tasks/get").await;
            server.respond_with_error(&get, -32603, "busy").await;
        }
        let get = receive(&mut server, "tasks/get").await;
        server.respond(&get, &json!({ "taskId": "7", "status": "completed" })).await;
        let result = receive(&mut server, "tasks/result").await;
        server.respond(&result, &json!({ "content": [] })).await;
    });
    assert_eq!(parse(&response.unwrap()), json!({ "content": [] }));
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        server.respond(&call, &json!({ "task": { "taskId": "8", "status": "completed" } })).await;
        let result = receive(&mut server, "tasks/result").await;
        server.respond(&result, &json!({ "content": [] })).await;
    });
    assert_eq!(parse(&response.unwrap()), json!({ "content": [] }));
    // A server that keeps failing ends the call.
    let (response, ()) = tokio::join!(client.call_tool("t", &arguments, None, None, &options), async {
        let call = receive(&mut server, "tools/call").await;
        server.respond(&call, &json!({ "task": { "taskId": "9", "status": "working" } })).await;
        for _ in 0..4 {
            let get = receive(&mut server, "tasks/get").await;
            server.respond_with_error(&get, -32603, "busy").await;
        }
    });
    assert!(matches!(response, Err(WireError::Rpc(_))), "{response:?}");
}
