use tokio::net::TcpSocket;

use super::*;

#[tokio::test]
async fn idempotent_requests_are_retried_after_transient_responses() {
    for (method, status, headers, failures, expected) in [
        // Expected: number of requests, and classification of the failure.
        ("GET", 503, "retry-after: 0", 1, (2, None)),
        ("GET", 429, "retry-after: 0", 2, (3, None)),
        ("GET", 429, "retry-after: 0", 9, (3, Some("rejected"))),
        ("GET", 503, "retry-after: 0", 9, (3, Some("rejected"))),
        ("GET", 503, "retry-after: 3600", 9, (1, Some("rejected"))),
        ("POST", 503, "", 9, (1, Some("unavailable"))),
        ("GET", 500, "retry-after: 0", 9, (1, Some("rejected"))),
        ("GET", 404, "", 9, (1, Some("rejected"))),
        ("POST", 503, "retry-after: 0", 9, (1, Some("rejected"))),
        ("POST", 429, "retry-after: 0", 9, (1, Some("rejected"))),
    ] {
        let reply_to = move |request: &ReceivedRequest| {
            if request.number <= failures { HttpReply::new(status, headers, "") } else { HttpReply::new(204, "", "") }
        };
        let server = LoopbackServer::start(reply_to);
        let result = call(&connector(OpenApiSource::default()), &operation(method, &server.url, "/p"), json!({})).await;
        let kind = result.is_err().then(|| failure_parts(result).0);
        assert_eq!((server.requests().len(), kind), expected, "{method} {status} {headers}");
    }
}

#[tokio::test]
async fn only_idempotent_requests_are_repeated_after_sending() {
    for (method, times) in [("GET", 2), ("POST", 1)] {
        let server = LoopbackServer::start(|_| HttpReply::close());
        let result = call(&connector(OpenApiSource::default()), &operation(method, &server.url, "/p"), json!({})).await;
        let (kind, code, message) = failure_parts(result);
        assert_eq!(
            (kind, code, server.requests().len()),
            ("unavailable", Code::ToolExecutionFailed, times),
            "{message}"
        );
        assert!(
            message.starts_with(&format!("the response to `{method} /p` from `{}` was interrupted: ", server.url)),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_unavailable() {
    // Bound, so that no other process gets the port, but not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = format!("http://{}", socket.local_addr().unwrap());
    let (kind, code, message) =
        failure_parts(call(&connector(OpenApiSource::default()), &operation("POST", &server, "/p"), json!({})).await);
    assert_eq!((kind, code), ("unavailable", Code::ToolUnavailable));
    assert!(message.starts_with(&format!("`{server}` cannot be reached: ")), "{message}");
}

#[tokio::test]
async fn only_the_sources_own_timeout_counts_against_it() {
    let server = LoopbackServer::start(|_| HttpReply::never());
    let short = Duration::from_millis(50);
    let settings = SourceSettings { call_timeout: Some(short), ..SourceSettings::default() };
    for (connector, deadline, expected) in [
        (connector(OpenApiSource::default()), CallDeadline::after(short), "inconclusive"),
        (
            connector_with(OpenApiSource::default(), settings),
            CallDeadline::for_source(short, Duration::ZERO),
            "timed out",
        ),
    ] {
        let execution = ExecutionMode::SyncHttp(operation("GET", &server.url, "/p"));
        let call = ToolCall { deadline, ..build_call(execution, &json!({}), CallContext::default()) };
        let (kind, code, message) = failure_parts(connector.call(&call).await);
        assert_eq!((kind, code), (expected, Code::ToolExecutionFailed));
        assert_eq!(message, "`GET /p` timed out after 50ms");
    }
    let cancelled = CallContext::default();
    cancelled.cancel.cancel();
    let call = build_call(ExecutionMode::SyncHttp(operation("GET", &server.url, "/p")), &json!({}), cancelled);
    assert_eq!(failure_parts(connector(OpenApiSource::default()).call(&call).await).2, "the call was cancelled");
}

#[tokio::test]
async fn a_tool_without_execution_spec_asks_for_a_refresh() {
    let call = build_call(ExecutionMode::McpCall, &json!({}), CallContext::default());
    let connector = connector(OpenApiSource::default());
    let message = "the execution specification of `tool` is missing or invalid; refresh its source".to_owned();
    for execution_spec in [call.execution_spec, None] {
        let call = ToolCall { execution_spec, ..call.clone() };
        assert_eq!(
            failure_parts(connector.call(&call).await),
            ("inconclusive", Code::ToolUnavailable, message.clone())
        );
    }
}

#[tokio::test]
async fn an_endless_response_is_not_read_to_its_end() {
    let endless = |_: &ReceivedRequest| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 99999999\r\n\r\n".to_vec();
        bytes.resize(17 * 1024 * 1024, b'x');
        HttpReply::raw(bytes)
    };
    let server = LoopbackServer::start(endless);
    let result = call(&connector(OpenApiSource::default()), &operation("GET", &server.url, "/p"), json!({})).await;
    let message = "the response to `GET /p` is larger than 16 MiB; request less data".to_owned();
    assert_eq!(failure_parts(result), ("rejected", Code::ToolExecutionFailed, message));
}
