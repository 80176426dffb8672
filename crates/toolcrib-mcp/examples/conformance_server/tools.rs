//! The tools of the conformance suite's fixture.

use std::time::Duration;

use futures_util::future::join3;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use toolcrib_mcp::{
    RpcError,
    server::{Change, Outlet},
};

use crate::{PNG, raw};

const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// The tools without arguments worth describing.
const TOOLS: &str = "test_simple_text test_image_content test_audio_content test_embedded_resource \
    test_multiple_content_types test_tool_with_logging test_reconnection test_error_handling test_tool_with_progress \
    test_sampling test_elicitation test_elicitation_sep1034_defaults test_elicitation_sep1330_enums \
    test_missing_capability test_streaming_elicitation test_logging_tool test_trigger_tool_change \
    test_trigger_prompt_change test_input_required_result_elicitation test_input_required_result_sampling \
    test_input_required_result_list_roots test_input_required_result_request_state \
    test_input_required_result_multiple_inputs test_input_required_result_multi_round \
    test_input_required_result_tampered_state test_input_required_result_capabilities";

const RICH: &str = r##"{ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "$defs": { "address": { "$anchor": "addressDef", "type": "object",
        "properties": { "street": { "type": "string" }, "city": { "type": "string" } } } },
    "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" },
        "contactMethod": { "type": "string", "enum": ["phone", "email"] },
        "phone": { "type": "string" }, "email": { "type": "string" } },
    "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
    "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
    "then": { "required": ["phone"] }, "else": { "required": ["email"] }, "additionalProperties": false }"##;

const ENUMS: &str = r#"{ "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
    "titledSingle": { "type": "string", "oneOf": [{ "const": "value1", "title": "First Option" },
        { "const": "value2", "title": "Second Option" }, { "const": "value3", "title": "Third Option" }] },
    "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"] },
    "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
    "titledMulti": { "type": "array", "items": { "anyOf": [{ "const": "value1", "title": "First Choice" },
        { "const": "value2", "title": "Second Choice" }, { "const": "value3", "title": "Third Choice" }] } } }"#;

const DEFAULTS: &str = r#"{ "name": { "type": "string", "default": "John Doe" },
    "age": { "type": "integer", "default": 30 }, "score": { "type": "number", "default": 95.5 },
    "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
    "verified": { "type": "boolean", "default": true } }"#;

pub(crate) fn tools() -> Vec<Value> {
    let tool = |name: &str, schema: Value| json!({ "name": name, "description": name, "inputSchema": schema });
    let marked =
        json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
    let mut tools: Vec<Value> = TOOLS.split_whitespace().map(|name| tool(name, json!({ "type": "object" }))).collect();
    tools.extend([tool("test_custom_header", marked), tool("json_schema_2020_12_tool", from(RICH))]);
    tools
}

pub(crate) async fn call(
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
        "test_elicitation_sep1034_defaults" => elicited(outlet, from(DEFAULTS)).await?,
        "test_elicitation_sep1330_enums" => elicited(outlet, from(ENUMS)).await?,
        other => return Err(RpcError::new(RpcError::INVALID_PARAMS, format!("there is no tool `{other}`"))),
    })
}

async fn elicited(outlet: &Outlet, properties: Value) -> Result<Value, RpcError> {
    let params = json!({ "message": "Please fill in", "requestedSchema": { "type": "object", "properties": properties, "required": [] } });
    let answer = ask(outlet, "elicitation/create", params).await?;
    Ok(said(&format!("Elicitation completed: action={}, content={}", answer["action"], answer["content"])))
}

pub(crate) async fn ask(outlet: &Outlet, method: &str, params: Value) -> Result<Value, RpcError> {
    let answer = outlet.ask(method, Some(&raw(&params))).await?;
    serde_json::from_str(answer.get()).map_err(|error| RpcError::new(RpcError::INTERNAL, error.to_string()))
}

pub(crate) fn form(message: &str, field: &str) -> Value {
    json!({ "message": message, "requestedSchema": {
        "type": "object", "properties": { field: { "type": "string" } }, "required": [field] } })
}

fn sampling() -> Value {
    json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "What is the capital of France?" } }], "maxTokens": 100 })
}

fn from(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
