//! The program the official conformance suite starts as the client under test: the server's address is its last
//! argument, the scenario's name in `MCP_CONFORMANCE_SCENARIO`, hints in `MCP_CONFORMANCE_CONTEXT`.

use std::{env, error::Error, sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use toolcrib_mcp::{Client, Options, RequestOptions, RpcError, ServerRequest, Target};

const PATIENCE: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().next_back().ok_or("the server's address is missing")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let mut options = Options::new("toolcrib-conformance", env!("CARGO_PKG_VERSION"));
    // That scenario takes any stream we open for the one it waits for.
    options.listen = scenario != "sse-retry";
    options.capabilities = to_raw_value(&json!({ "elicitation": { "form": { "applyDefaults": true } } }))?;
    options.handler = Some(Arc::new(|request| async move { answer(&request) }.boxed()));
    let client = Client::connect(Target::Http { url: url.parse()?, headers: HeaderMap::new() }, options).await?;
    run(&client, &scenario).await?;
    client.close().await;
    Ok(())
}

async fn run(client: &Client, scenario: &str) -> Result<(), Box<dyn Error>> {
    let list = client.list_tools(PATIENCE).await?;
    match scenario {
        "initialize" | "json-schema-ref-no-deref" => {}
        "request-metadata" => drop(request(client, "tools/list", None).await?),
        "http-standard-headers" => {
            call_all(client, &list.tools, &json!({})).await?;
            read_and_prompt(client).await?;
        }
        "http-custom-headers" => {
            for (name, arguments) in wanted_calls()? {
                call(client, &list.tools, &name, &arguments).await?;
            }
        }
        "json-schema-2020-12-preservation" => {
            let rich = list.tools.first().ok_or("there are no tools")?;
            let rich: Tool<'_> = serde_json::from_str(rich.get())?;
            let schema: Value = serde_json::from_str(rich.input_schema.get())?;
            call(client, &list.tools, "json_schema_echo", &json!({ "schema": schema })).await?;
        }
        "tools_call" => call_all(client, &list.tools, &json!({ "a": 2, "b": 3 })).await?,
        "http-invalid-tool-headers" => call_all(client, &list.tools, &json!({ "region": "eu" })).await?,
        _ => call_all(client, &list.tools, &json!({})).await?,
    }
    Ok(())
}

async fn read_and_prompt(client: &Client) -> Result<(), Box<dyn Error>> {
    let resources = request(client, "resources/list", None).await?;
    for resource in resources["resources"].as_array().into_iter().flatten() {
        request(client, "resources/read", Some(json!({ "uri": resource["uri"] }))).await?;
    }
    let prompts = request(client, "prompts/list", None).await?;
    for prompt in prompts["prompts"].as_array().into_iter().flatten() {
        request(client, "prompts/get", Some(json!({ "name": prompt["name"] }))).await?;
    }
    Ok(())
}

async fn request(client: &Client, method: &str, params: Option<Value>) -> Result<Value, Box<dyn Error>> {
    let params = params.map(|params| to_raw_value(&params)).transpose()?;
    let result = client.request(method, params.as_deref(), &RequestOptions::new(PATIENCE)).await?;
    Ok(serde_json::from_str(result.get())?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    name: String,
    #[serde(borrow)]
    input_schema: &'a RawValue,
}

async fn call_all(client: &Client, tools: &[Box<RawValue>], arguments: &Value) -> Result<(), Box<dyn Error>> {
    for tool in tools {
        let name = serde_json::from_str::<Tool<'_>>(tool.get())?.name;
        call(client, tools, &name, arguments).await?;
    }
    Ok(())
}

async fn call(client: &Client, tools: &[Box<RawValue>], name: &str, arguments: &Value) -> Result<(), Box<dyn Error>> {
    for tool in tools {
        let tool: Tool<'_> = serde_json::from_str(tool.get())?;
        if tool.name == name {
            let (arguments, options) = (to_raw_value(arguments)?, RequestOptions::new(PATIENCE));
            client.call_tool(name, &arguments, Some(tool.input_schema), None, &options).await?;
        }
    }
    Ok(())
}

fn wanted_calls() -> Result<Vec<(String, Value)>, Box<dyn Error>> {
    let context: Value = serde_json::from_str(&env::var("MCP_CONFORMANCE_CONTEXT")?)?;
    let calls = context["toolCalls"].as_array().cloned().unwrap_or_default();
    let name = |call: &Value| call["name"].as_str().unwrap_or_default().to_owned();
    Ok(calls.iter().map(|call| (name(call), call["arguments"].clone())).collect())
}

/// Accepts every question with the defaults its schema offers.
fn answer(request: &ServerRequest) -> Result<Box<RawValue>, RpcError> {
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
