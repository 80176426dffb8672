//! Workflows over an API on loopback: what is sent, in which order, and what comes of it.

mod bounds;
mod rules;
mod steps;

use serde_json::{Value, json};
use toolcrib::core::Result;
use toolcrib::{CallOptions, Output};

use crate::server::Server;
use crate::support::Bench;

/// A shop that lists products, takes orders and shows them.
fn shop(server: &Server) -> Value {
    let parameter = |name: &str, place: &str, kind: &str| json!({ "name": name, "in": place, "required": place == "path", "schema": { "type": kind } });
    let answers = json!({ "default": { "description": "it" } });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Shop", "version": "1" },
        "servers": [{ "url": server.url }],
        "paths": {
            "/products": { "get": {
                "operationId": "list products",
                "parameters": [parameter("category", "query", "string"), parameter("X-Limit", "header", "integer")],
                "responses": answers,
            } },
            "/orders": { "post": {
                "operationId": "placeOrder",
                "requestBody": { "required": true, "content": { "application/json": { "schema": {
                    "type": "object", "required": ["sku"],
                    "properties": { "sku": { "type": "string" }, "quantity": { "type": "integer" } },
                } } } },
                "responses": answers,
            } },
            "/orders/{id}": {
                "get": { "operationId": "getOrder", "parameters": [parameter("id", "path", "string")], "responses": answers },
                "delete": { "parameters": [parameter("id", "path", "string")], "responses": answers },
            },
        },
    })
}

/// A workflow `buy` with the inputs `category` and `quantity`.
fn buy(steps: Value, outputs: Value) -> Value {
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

fn list() -> Value {
    json!({
        "stepId": "list",
        "operationId": "list products",
        "parameters": [{ "name": "category", "in": "query", "value": "$inputs.category" }],
        "outputs": { "sku": "$response.body#/0/sku" },
    })
}

fn order() -> Value {
    json!({
        "stepId": "order",
        "operationId": "placeOrder",
        "requestBody": { "payload": { "sku": "lamp" } },
        "successCriteria": [{ "condition": "$statusCode == 201" }],
        "outputs": { "id": "$response.body#/id" },
    })
}

/// `order`, with more that its step says.
fn order_and(more: Value) -> Value {
    let mut step = order();
    step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    step
}

/// The sources `shop` and `errands`, the former with these settings.
async fn bench(server: &Server, flow: &Value, settings: Value) -> Bench {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("api.json"), shop(server).to_string()).unwrap();
    std::fs::write(home.path().join("flow.json"), flow.to_string()).unwrap();
    let mut api = json!({ "openapi": "api.json" });
    api.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    Bench::open(home, json!({ "shop": api, "errands": { "workflow": "flow.json" } })).await
}

async fn run(bench: &Bench) -> Result<Value> {
    run_with(bench, CallOptions::default()).await
}

/// The outputs of `buy`.
async fn run_with(bench: &Bench, options: CallOptions) -> Result<Value> {
    bench.call_with("errands__buy", json!({ "category": "light" }), options).await.map(|output| structured(&output))
}

fn structured(output: &Output) -> Value {
    serde_json::from_str(output.structured().unwrap()).unwrap()
}
