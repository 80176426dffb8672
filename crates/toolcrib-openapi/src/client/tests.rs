//! The connector against a server on loopback: what it sends, and what it makes of the responses.

mod calls;
mod document_loading;
mod encodings;
mod failures;
mod polling;
mod redirects;
mod tokens;

use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_connector::{CallContext, CallDeadline, CallFailure, Connector, ToolCall};
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec, Operation};
use toolcrib_core::source::{OpenApiSource, SourceKind, SourceSettings};
use toolcrib_core::{Code, SourceId};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};

use super::*;

/// Connector of a source whose document is a file.
fn connector(openapi: OpenApiSource) -> OpenApiConnector {
    connector_with(openapi, SourceSettings::default())
}

fn connector_with(openapi: OpenApiSource, settings: SourceSettings) -> OpenApiConnector {
    let document = if openapi.document.is_empty() { "/no/such/document".to_owned() } else { openapi.document.clone() };
    let kind = SourceKind::OpenApi(OpenApiSource { document, ..openapi });
    let source = Source { id: SourceId::parse("shop").unwrap(), kind, settings };
    let references = SourceReferences::new(source.kind.clone(), Arc::default());
    OpenApiConnector::new(source, Arc::default(), Clock::system(), Arc::new(references))
}

fn operation(method: &str, server: &str, path: &str) -> Operation {
    Operation { method: method.into(), server: server.into(), path: path.into(), ..Operation::default() }
}

/// Call of an operation. GET is idempotent, as for tools converted from a document. The parts are leaked, because a call
/// borrows them.
fn build_call(execution: ExecutionMode, arguments: &Value, context: CallContext) -> ToolCall<'static> {
    let is_idempotent = execution.operation().is_some_and(|operation| operation.method == "GET");
    let spec =
        ExecutionSpec { execution, input_schema: None, output_schema: None, tags: Vec::new(), deprecated: false };
    ToolCall {
        tool: "tool",
        arguments: Box::leak(to_raw_value(arguments).unwrap()),
        input_schema: Box::leak(to_raw_value(&json!({})).unwrap()),
        execution_spec: Some(Box::leak(to_raw_value(&spec).unwrap())),
        meta: None,
        is_idempotent,
        requires_task: false,
        deadline: CallDeadline::after(Duration::from_secs(60)),
        context: Box::leak(Box::new(context)),
        span: None,
        response_recorder: None,
        tool_caller: None,
    }
}

async fn call(connector: &OpenApiConnector, operation: &Operation, arguments: Value) -> Result<Value, CallFailure> {
    let call = build_call(ExecutionMode::SyncHttp(operation.clone()), &arguments, CallContext::default());
    connector.call(&call).await.map(|answer| serde_json::from_str(answer.raw.get()).unwrap())
}

/// Classification, code and message of a failure.
fn failure_parts<T: std::fmt::Debug>(result: Result<T, CallFailure>) -> (&'static str, Code, String) {
    let failure = result.unwrap_err();
    let kind = match &failure {
        CallFailure::Rejected(_) => "rejected",
        CallFailure::Unavailable(_) => "unavailable",
        CallFailure::TimedOut(_) => "timed out",
        CallFailure::Inconclusive(_) => "inconclusive",
    };
    let error = failure.into_error();
    (kind, error.code, error.message)
}
