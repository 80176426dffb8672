//! Workflows over an API on loopback: which requests they send, in which order, and with what result.

mod limits;
mod linked_documents;
mod rules;
mod steps;

use serde_json::{Value, json};
use toolcrib::core::Result;
use toolcrib::{CallContext, CallOutput};
use toolcrib_testkit::http_server::LoopbackServer;

use super::support::OpenApiTestRegistry;

/// Document of an API that lists products, takes orders and returns them.
fn shop_document(server: &LoopbackServer) -> Value {
    let parameter = |name: &str, location: &str, kind: &str| json!({ "name": name, "in": location, "required": location == "path", "schema": { "type": kind } });
    let responses = json!({ "default": { "description": "it" } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Shop", "version": "1" },
        "servers": [{ "url": server.url }],
        "paths": {
            "/products": { "get": {
                "operationId": "list products",
                "parameters": [parameter("category", "query", "string"), parameter("X-Limit", "header", "integer")],
                "responses": responses,
            } },
            "/orders": { "post": {
                "operationId": "placeOrder",
                "requestBody": { "required": true, "content": { "application/json": { "schema": {
                    "type": "object", "required": ["sku"],
                    "properties": { "sku": { "type": "string" }, "quantity": { "type": "integer" } },
                } } } },
                "responses": responses,
            } },
            "/orders/{id}": {
                "get": { "operationId": "getOrder", "parameters": [parameter("id", "path", "string")], "responses": responses },
                "delete": { "parameters": [parameter("id", "path", "string")], "responses": responses },
            },
        },
    })
}

/// Arazzo document with a workflow `buy`, whose inputs are `category` and `quantity`.
fn buy_workflow(steps: Value, outputs: Value) -> Value {
    json!({
        "arazzo": "1.0.1",
        "info": { "title": "Errands", "version": "1" },
        "sourceDescriptions": [{ "name": "shop", "url": "./api.json", "type": "openapi" }],
        "workflows": [{
            "workflowId": "buy",
            "summary": "Buy something",
            "inputs": {
                "type": "object",
                "required": ["category"],
                "properties": { "category": { "type": "string" }, "quantity": { "type": "integer", "default": 1 } },
            },
            "steps": steps,
            "outputs": outputs,
        }],
    })
}

fn list_step() -> Value {
    json!({
        "stepId": "list",
        "operationId": "list products",
        "parameters": [{ "name": "category", "in": "query", "value": "$inputs.category" }],
        "outputs": { "sku": "$response.body#/0/sku" },
    })
}

fn order_step() -> Value {
    json!({
        "stepId": "order",
        "operationId": "placeOrder",
        "requestBody": { "payload": { "sku": "lamp" } },
        "successCriteria": [{ "condition": "$statusCode == 201" }],
        "outputs": { "id": "$response.body#/id" },
    })
}

/// The order step with additional fields.
fn order_step_with(fields: Value) -> Value {
    let mut step = order_step();
    step.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    step
}

/// Opens a registry with the API `shop`, with these settings, and the workflow source `errands`.
async fn open_shop_with_workflow(server: &LoopbackServer, workflow: &Value, settings: Value) -> OpenApiTestRegistry {
    open_api_with_workflow(&shop_document(server), workflow, settings).await
}

/// Opens a registry with the API of a document as `shop`, and the workflow source `errands`.
async fn open_api_with_workflow(document: &Value, workflow: &Value, settings: Value) -> OpenApiTestRegistry {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("api.json"), document.to_string()).unwrap();
    std::fs::write(home.path().join("flow.json"), workflow.to_string()).unwrap();
    let mut api = json!({ "openapi": "api.json" });
    api.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    OpenApiTestRegistry::open(home, json!({ "shop": api, "errands": { "workflow": "flow.json" } })).await
}

async fn run_buy(registry: &OpenApiTestRegistry) -> Result<Value> {
    run_buy_with(registry, CallContext::default()).await
}

/// Calls `buy` and returns its outputs.
async fn run_buy_with(registry: &OpenApiTestRegistry, options: CallContext) -> Result<Value> {
    registry
        .call_with("errands__buy", json!({ "category": "light" }), options)
        .await
        .map(|output| structured_output(&output))
}

fn structured_output(output: &CallOutput) -> Value {
    serde_json::from_str(output.structured().unwrap()).unwrap()
}
