//! The server the official conformance suite is pointed at to hold the wire to the protocol: the suite's fixtures,
//! made directly on [`Service`], behind a loopback port that is printed on start (or given as the only argument).

use std::{env, error::Error, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse};
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, join3},
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

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
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

fn tools() -> Vec<Value> {
    let plain = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_tool_with_logging",
        "test_reconnection",
        "test_error_handling",
        "test_tool_with_progress",
        "test_sampling",
        "test_elicitation",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_missing_capability",
        "test_streaming_elicitation",
        "test_logging_tool",
        "test_trigger_tool_change",
        "test_trigger_prompt_change",
        "test_input_required_result_elicitation",
        "test_input_required_result_sampling",
        "test_input_required_result_list_roots",
        "test_input_required_result_request_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
        "test_input_required_result_tampered_state",
        "test_input_required_result_capabilities",
    ];
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": name, "inputSchema": schema });
    let marked = json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" }, "query": { "type": "string" } } });
    let rich = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "$defs": { "address": { "$anchor": "addressDef", "type": "object", "properties": {
            "street": { "type": "string" }, "city": { "type": "string" } } } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] }, "phone": { "type": "string" },
            "email": { "type": "string" } },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] }, "else": { "required": ["email"] }, "additionalProperties": false });
    let mut tools: Vec<Value> = plain.iter().map(|name| tool(name, json!({ "type": "object" }))).collect();
    tools.extend([tool("test_custom_header", marked), tool("json_schema_2020_12_tool", rich)]);
    tools
}

async fn call(
    name: &str,
    params: &Value,
    outlet: &Outlet,
    changed: &broadcast::Sender<Change>,
) -> Result<Value, RpcError> {
    let image = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let resource = |uri: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": "embedded" } });
    Ok(match name {
        "test_simple_text" | "test_custom_header" | "json_schema_2020_12_tool" => {
            said("This is a simple text response for testing.")
        }
        "test_image_content" => json!({ "content": [image] }),
        "test_audio_content" => json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] }),
        "test_embedded_resource" => json!({ "content": [resource("test://embedded-resource")] }),
        "test_multiple_content_types" => {
            json!({ "content": [{ "type": "text", "text": "mixed" }, image, resource("test://mixed")] })
        }
        "test_error_handling" => {
            json!({ "isError": true, "content": [{ "type": "text", "text": "This tool intentionally returns an error" }] })
        }
        "test_tool_with_logging" | "test_logging_tool" | "test_reconnection" => {
            for data in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                outlet.notify("notifications/message", Some(&raw(&json!({ "level": "info", "data": data }))));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            said("logged")
        }
        "test_tool_with_progress" => {
            for progress in [0, 50, 100] {
                outlet.progress(&raw(&json!({ "progress": progress, "total": 100 })));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            said("done")
        }
        "test_trigger_tool_change" => {
            let _nobody = changed.send(Change::Tools);
            said("changed")
        }
        "test_trigger_prompt_change" => {
            let _nobody = changed.send(Change::Prompts);
            said("changed")
        }
        // Without a state of its own, as a server behind a gateway would.
        "test_input_required_result_elicitation" => {
            match params["inputResponses"]["user_name"]["content"]["name"].as_str() {
                Some(name) => said(&format!("Hello, {name}!")),
                None => json!({ "resultType": "input_required", "inputRequests": { "user_name": {
                "method": "elicitation/create", "params": form("What is your name?", "name") } } }),
            }
        }
        "test_sampling"
        | "test_missing_capability"
        | "test_input_required_result_sampling"
        | "test_input_required_result_capabilities" => {
            let answer = ask(outlet, "sampling/createMessage", sampling()).await?;
            said(&format!("LLM response: {}", answer["content"]["text"]))
        }
        "test_input_required_result_list_roots" => said(&ask(outlet, "roots/list", json!({})).await?.to_string()),
        "test_input_required_result_multiple_inputs" => {
            let (name, greeting, roots) = join3(
                ask(outlet, "elicitation/create", form("What is your name?", "name")),
                ask(outlet, "sampling/createMessage", sampling()),
                ask(outlet, "roots/list", json!({})),
            )
            .await;
            said(&json!([name?, greeting?, roots?]).to_string())
        }
        "test_input_required_result_multi_round" => {
            let name = ask(outlet, "elicitation/create", form("Step 1: What is your name?", "name")).await?;
            let color =
                ask(outlet, "elicitation/create", form("Step 2: What is your favorite color?", "color")).await?;
            said(&json!([name, color]).to_string())
        }
        "test_elicitation"
        | "test_streaming_elicitation"
        | "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            let answer = ask(outlet, "elicitation/create", form("Please confirm", "username")).await?;
            said(&format!("state-ok {answer}"))
        }
        "test_elicitation_sep1034_defaults" => {
            elicited(
                outlet,
                json!({
            "name": { "type": "string", "default": "John Doe" }, "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 }, "verified": { "type": "boolean", "default": true },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" } }),
            )
            .await?
        }
        "test_elicitation_sep1330_enums" => {
            let options = json!(["option1", "option2", "option3"]);
            let titled = json!([{ "const": "value1", "title": "First Option" }, { "const": "value2", "title": "Second Option" },
                { "const": "value3", "title": "Third Option" }]);
            elicited(outlet, json!({ "untitledSingle": { "type": "string", "enum": options },
                "titledSingle": { "type": "string", "oneOf": titled },
                "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"] },
                "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
                "titledMulti": { "type": "array", "items": { "anyOf": titled } } })).await?
        }
        other => return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{other}`"))),
    })
}

async fn elicited(outlet: &Outlet, properties: Value) -> Result<Value, RpcError> {
    let params = json!({ "message": "Please fill in", "requestedSchema": { "type": "object", "properties": properties, "required": [] } });
    let answer = ask(outlet, "elicitation/create", params).await?;
    Ok(said(&format!("Elicitation completed: action={}, content={}", answer["action"], answer["content"])))
}

async fn ask(outlet: &Outlet, method: &str, params: Value) -> Result<Value, RpcError> {
    let answer = outlet.ask(method, Some(&raw(&params))).await?;
    serde_json::from_str(answer.get()).map_err(|error| RpcError::new(RpcError::INTERNAL, error.to_string()))
}

fn form(message: &str, field: &str) -> Value {
    json!({ "message": message, "requestedSchema": {
        "type": "object", "properties": { field: { "type": "string" } }, "required": [field] } })
}

fn sampling() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "What is the capital of France?" } }], "maxTokens": 100 })
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

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}
