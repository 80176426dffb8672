//! The server the official conformance suite is pointed at to hold the wire to the protocol: the suite's fixtures,
//! made directly on [`Service`], behind a loopback port that is printed on start (or given as the only argument).

mod tools;

use std::{env, error::Error, net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse};
use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::sync::broadcast;
use toolcrib_mcp::{
    RpcError,
    server::{Change, Endpoint, Greeting, Outlet, Peer, Request, ServerOptions, Service},
};

use crate::tools::{ask, call, form, tools};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const BODY_BYTES: usize = 4 * 1024 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let (changed, _) = broadcast::channel(16);
    let endpoint = Endpoint::new(Arc::new(Fixture { changed }), ServerOptions::new("conformance", "1.0"));
    #[expect(clippy::print_stdout, reason = "whoever started this wants to know")]
    {
        println!("http://{}/mcp", listener.local_addr()?);
    }
    axum::serve(listener, Router::new().route("/mcp", axum::routing::any(handle)).with_state(endpoint)).await?;
    Ok(())
}

async fn handle(State(endpoint): State<Endpoint>, request: axum::extract::Request) -> axum::response::Response {
    let (head, body) = request.into_parts();
    let host = head.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !host.starts_with("127.0.0.1") && !host.starts_with("localhost") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    endpoint.handle(axum::http::Request::from_parts(head, body)).await.map(axum::body::Body::new)
}

struct Fixture {
    changed: broadcast::Sender<Change>,
}

impl Service for Fixture {
    fn greeting(&self, _: &Arc<Peer>) -> BoxFuture<'static, Greeting> {
        let capabilities = json!({ "tools": { "listChanged": true }, "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true }, "logging": {}, "completions": {} });
        async move { Greeting { capabilities: raw(&capabilities), instructions: None } }.boxed()
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        let changed = self.changed.clone();
        async move {
            let params = request.params.as_deref().map_or(Ok(Value::Null), |params| serde_json::from_str(params.get()));
            let params = params.map_err(|error| RpcError::new(RpcError::INVALID_PARAMS, error.to_string()))?;
            let name = params["name"].as_str().unwrap_or_default();
            let result = match request.method.as_str() {
                "tools/list" => cached(json!({ "tools": tools() })),
                "tools/call" => call(name, &params, &request.outlet, &changed).await?,
                "resources/list" => cached(json!({ "resources": resources() })),
                "resources/templates/list" => cached(json!({ "resourceTemplates": [
                    { "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json" }] })),
                "resources/read" => cached(read(params["uri"].as_str().unwrap_or_default())?),
                "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => json!({}),
                "prompts/list" => cached(json!({ "prompts": prompts() })),
                "prompts/get" => prompt(name, &params["arguments"], &request.outlet).await?,
                "completion/complete" => json!({ "completion": { "values": [], "total": 0, "hasMore": false } }),
                other => return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("there is no `{other}`"))),
            };
            Ok(raw(&result))
        }
        .boxed()
    }

    fn changes(&self, _: &Arc<Peer>) -> BoxStream<'static, Change> {
        let changes = stream::unfold(self.changed.subscribe(), |mut changes| async {
            let change = changes.recv().await.ok()?;
            Some((change, changes))
        });
        changes.boxed()
    }

    fn input_schema(&self, _: &Arc<Peer>, tool: &str) -> Option<Box<RawValue>> {
        tools().iter().find(|each| each["name"] == tool).map(|tool| raw(&tool["inputSchema"]))
    }

    fn gone(&self, _: &Arc<Peer>) {}
}

fn resources() -> Value {
    let resource = |uri: &str, kind: &str| json!({ "uri": uri, "name": uri, "description": uri, "mimeType": kind });
    json!([
        resource("test://static-text", "text/plain"),
        resource("test://static-binary", "image/png"),
        resource("test://watched-resource", "text/plain")
    ])
}

fn read(uri: &str) -> Result<Value, RpcError> {
    let template = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let content = match (uri, template) {
        ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        ("test://static-text" | "test://watched-resource", _) => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "static" })
        }
        (_, Some(id)) => json!({ "uri": uri, "mimeType": "application/json", "text": json!({ "id": id }).to_string() }),
        (_, None) => {
            let data = Some(raw(&json!({ "uri": uri })));
            return Err(RpcError { code: RpcError::INVALID_PARAMS, message: "Resource not found".to_owned(), data });
        }
    };
    Ok(json!({ "contents": [content] }))
}

fn prompts() -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<Value> = arguments.iter().map(|name| json!({ "name": name, "required": true })).collect();
        json!({ "name": name, "description": name, "arguments": arguments })
    };
    json!([
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[])
    ])
}

async fn prompt(name: &str, arguments: &Value, outlet: &Outlet) -> Result<Value, RpcError> {
    let message = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
    let text = |text: String| message(json!({ "type": "text", "text": text }));
    Ok(match name {
        "test_simple_prompt" => text("This is a simple prompt for testing.".to_owned()),
        "test_prompt_with_arguments" => text(format!("arg1={}, arg2={}", arguments["arg1"], arguments["arg2"])),
        "test_prompt_with_image" => message(json!({ "type": "image", "data": PNG, "mimeType": "image/png" })),
        "test_prompt_with_embedded_resource" => message(json!({ "type": "resource", "resource": {
            "uri": arguments["resourceUri"], "mimeType": "text/plain", "text": "embedded" } })),
        "test_input_required_result_prompt" => {
            text(ask(outlet, "elicitation/create", form("What context?", "context")).await?.to_string())
        }
        other => return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no prompt `{other}`"))),
    })
}

fn cached(mut result: Value) -> Value {
    result["ttlMs"] = json!(1000);
    result["cacheScope"] = json!("public");
    result
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}
