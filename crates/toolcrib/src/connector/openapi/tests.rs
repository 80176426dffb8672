//! The connector against a server on loopback: what is sent, and what comes of the answers.

mod calling;
mod failing;
mod polling;
mod reading;
mod redirecting;
mod server;
mod tokens;

use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib_core::SourceId;
use toolcrib_core::execution::{Backing, Execution, Operation};
use toolcrib_core::source::{Kind, OpenApi, Settings};

use super::*;
use crate::connector::Terms;
use server::{Heard, Server, reply};

/// A source whose document is a file, with these settings.
fn connector(openapi: OpenApi) -> OpenApiConnector {
    connector_with(openapi, Settings::default())
}

fn connector_with(openapi: OpenApi, settings: Settings) -> OpenApiConnector {
    let document = if openapi.document.is_empty() { "/no/such/document".to_owned() } else { openapi.document.clone() };
    let kind = Kind::OpenApi(OpenApi { document, ..openapi });
    let source = Source { id: SourceId::parse("shop").unwrap(), kind, settings };
    OpenApiConnector::new(source, Arc::default(), Clock::system(), Arc::default())
}

fn operation(method: &str, server: &str, path: &str) -> Operation {
    Operation { method: method.into(), server: server.into(), path: path.into(), ..Operation::default() }
}

fn terms() -> Terms {
    Terms {
        caller: String::new(),
        timeout: Duration::from_secs(60),
        progress: None,
        cancel: CancellationToken::new(),
        consent: false,
        client: None,
        fleeting: false,
        back: None,
        relay: None,
        said: None,
        log_level: None,
        trace: None,
        witness: None,
    }
}

/// What is safe to repeat goes by the method, as for the tools of a document.
fn call_of(execution: Execution, arguments: Value, terms: Terms) -> Call {
    let repeatable = execution.operation().is_some_and(|operation| operation.method == "GET");
    let backing = Backing { execution, input_schema: None, output_schema: None, tags: Vec::new(), deprecated: false };
    Call {
        tool: "tool".into(),
        arguments: to_raw_value(&arguments).unwrap(),
        input_schema: to_raw_value(&json!({})).unwrap().into(),
        backing: Some(to_raw_value(&backing).unwrap().into()),
        meta: None,
        repeatable,
        terms,
    }
}

async fn call(connector: &OpenApiConnector, operation: &Operation, arguments: Value) -> Result<Value, CallFailure> {
    let call = call_of(Execution::SyncHttp(operation.clone()), arguments, terms());
    connector.call(call).await.map(|answer| serde_json::from_str(answer.raw.get()).unwrap())
}

/// What a failure says about the source, its code and its message.
fn told<T: std::fmt::Debug>(result: Result<T, CallFailure>) -> (&'static str, Code, String) {
    let failure = result.unwrap_err();
    let kind = match &failure {
        CallFailure::Refused(_) => "refused",
        CallFailure::Lost(_) => "lost",
        CallFailure::Late(_) => "late",
        CallFailure::Undecided(_) => "undecided",
    };
    let error = failure.into_error();
    (kind, error.code, error.message)
}
