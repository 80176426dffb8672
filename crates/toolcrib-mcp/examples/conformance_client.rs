//! Client under test for the official MCP conformance suite, which starts it with the server's URL as the last
//! argument, the scenario in `MCP_CONFORMANCE_SCENARIO` and its parameters in `MCP_CONFORMANCE_CONTEXT`.

use std::{env, error::Error, sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use toolcrib_mcp::{ClientOptions, ConnectTarget, McpClient, RequestOptions, RpcError, ServerRequest};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().next_back().ok_or("the server's address is missing")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let mut options = ClientOptions::new("toolcrib-conformance", env!("CARGO_PKG_VERSION"));
    // That scenario takes any GET stream for the resumption that it waits for.
    options.listen = scenario != "sse-retry";
    options.capabilities = to_raw_value(&json!({ "elicitation": { "form": { "applyDefaults": true } } }))?;
    options.handler = Some(Arc::new(|request| async move { answer_elicitation(&request) }.boxed()));
    let client =
        McpClient::connect(ConnectTarget::Http { url: url.parse()?, headers: HeaderMap::new() }, options).await?;
    run_scenario(&client, &scenario).await?;
    client.close().await;
    Ok(())
}

/// Sends the requests that the scenario expects.
async fn run_scenario(client: &McpClient, scenario: &str) -> Result<(), Box<dyn Error>> {
    let list = client.list_tools(REQUEST_TIMEOUT).await?;
    match scenario {
        "initialize" | "json-schema-ref-no-deref" => {}
        "request-metadata" => drop(send_request(client, "tools/list", None).await?),
        "http-standard-headers" => {
            call_all(client, &list.tools, &json!({})).await?;
            read_resources_and_prompts(client).await?;
        }
        "http-custom-headers" => {
            for (name, arguments) in requested_calls()? {
                call(client, &list.tools, &name, &arguments).await?;
            }
        }
        "json-schema-2020-12-preservation" => {
            let tool = list.tools.first().ok_or("there are no tools")?;
            let tool: ListedTool<'_> = serde_json::from_str(tool.get())?;
            let schema: Value = serde_json::from_str(tool.input_schema.get())?;
            call(client, &list.tools, "json_schema_echo", &json!({ "schema": schema })).await?;
        }
        "tools_call" => call_all(client, &list.tools, &json!({ "a": 2, "b": 3 })).await?,
        "http-invalid-tool-headers" => call_all(client, &list.tools, &json!({ "region": "eu" })).await?,
        _ => call_all(client, &list.tools, &json!({})).await?,
    }
    Ok(())
}

async fn read_resources_and_prompts(client: &McpClient) -> Result<(), Box<dyn Error>> {
    let resources = send_request(client, "resources/list", None).await?;
    for resource in resources["resources"].as_array().into_iter().flatten() {
        send_request(client, "resources/read", Some(json!({ "uri": resource["uri"] }))).await?;
    }
    let prompts = send_request(client, "prompts/list", None).await?;
    for prompt in prompts["prompts"].as_array().into_iter().flatten() {
        send_request(client, "prompts/get", Some(json!({ "name": prompt["name"] }))).await?;
    }
    Ok(())
}

async fn send_request(client: &McpClient, method: &str, params: Option<Value>) -> Result<Value, Box<dyn Error>> {
    let params = params.map(|params| to_raw_value(&params)).transpose()?;
    let result = client.request(method, params.as_deref(), &RequestOptions::new(REQUEST_TIMEOUT)).await?;
    Ok(serde_json::from_str(result.get())?)
}

/// The fields of a listed tool that a call needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool<'a> {
    name: String,
    #[serde(borrow)]
    input_schema: &'a RawValue,
}

async fn call_all(client: &McpClient, tools: &[Box<RawValue>], arguments: &Value) -> Result<(), Box<dyn Error>> {
    for tool in tools {
        let name = serde_json::from_str::<ListedTool<'_>>(tool.get())?.name;
        call(client, tools, &name, arguments).await?;
    }
    Ok(())
}

async fn call(
    client: &McpClient,
    tools: &[Box<RawValue>],
    name: &str,
    arguments: &Value,
) -> Result<(), Box<dyn Error>> {
    for tool in tools {
        let tool: ListedTool<'_> = serde_json::from_str(tool.get())?;
        if tool.name == name {
            let arguments = to_raw_value(arguments)?;
            let options = RequestOptions::new(REQUEST_TIMEOUT);
            client.call_tool(name, &arguments, Some(tool.input_schema), None, &options).await?;
        }
    }
    Ok(())
}

/// Returns names and arguments of the calls that the scenario requests.
fn requested_calls() -> Result<Vec<(String, Value)>, Box<dyn Error>> {
    let context: Value = serde_json::from_str(&env::var("MCP_CONFORMANCE_CONTEXT")?)?;
    let calls = context["toolCalls"].as_array().cloned().unwrap_or_default();
    let name = |call: &Value| call["name"].as_str().unwrap_or_default().to_owned();
    Ok(calls.iter().map(|call| (name(call), call["arguments"].clone())).collect())
}

/// Accepts every elicitation with the defaults of its schema.
fn answer_elicitation(request: &ServerRequest) -> Result<Box<RawValue>, RpcError> {
    if request.method != "elicitation/create" {
        return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, "only elicitation is answered"));
    }
    let params: Value = match &request.params {
        Some(params) => serde_json::from_str(params.get()).unwrap_or_default(),
        None => Value::Null,
    };
    let mut content = serde_json::Map::new();
    for (name, schema) in params["requestedSchema"]["properties"].as_object().into_iter().flatten() {
        if let Some(default) = schema.get("default") {
            content.insert(name.clone(), default.clone());
        } else if schema["type"] == "boolean" {
            content.insert(name.clone(), Value::Bool(true));
        }
    }
    let answer = json!({ "action": "accept", "content": content });
    to_raw_value(&answer).map_err(|error| RpcError::new(RpcError::INTERNAL, error.to_string()))
}
