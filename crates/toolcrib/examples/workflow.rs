//! An Arazzo workflow as a tool: one call runs several requests, and the model sees only the result of the last.
//!
//! `cargo run -p toolcrib --example workflow`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

#[path = "support/shop_api.rs"]
mod shop_api;

use serde_json::json;
use toolcrib::{Refresh, Registry};

/// Finds the first product and orders it. `API_DOCUMENT` is replaced by the URL of the OpenAPI document.
const WORKFLOWS: &str = r#"{
  "arazzo": "1.0.1",
  "info": { "title": "Errands", "version": "1" },
  "sourceDescriptions": [{ "name": "shop", "url": "API_DOCUMENT", "type": "openapi" }],
  "workflows": [{
    "workflowId": "buy_first",
    "summary": "Buys the first product",
    "steps": [
      { "stepId": "find", "operationId": "list_products",
        "successCriteria": [{ "condition": "$statusCode == 200" }],
        "outputs": { "sku": "$response.body#/0/sku" } },
      { "stepId": "order", "operationId": "place_order",
        "requestBody": { "payload": { "sku": "$steps.find.outputs.sku" } },
        "successCriteria": [{ "condition": "$statusCode == 201" }],
        "outputs": { "id": "$response.body#/id" } }
    ],
    "outputs": { "sku": "$steps.find.outputs.sku", "order": "$steps.order.outputs.id" }
  }]
}"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let api_document = format!("{}/openapi.json", shop_api::start()?);
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("errands.arazzo.json");
    std::fs::write(&file, WORKFLOWS.replace("API_DOCUMENT", &api_document))?;

    // The steps call operations of the source `shop`, under its policy and with its credentials.
    let config = json!({ "sources": { "shop": { "openapi": api_document }, "errands": { "workflow": file } } });
    let registry = Registry::builder().config_text(&config.to_string())?.open().await?;
    for outcome in registry.refresh(Refresh::default()).await {
        println!("{}: {}", outcome.source, outcome.added.join(", "));
    }
    let output = registry.call("errands__buy_first", json!({})).await?;
    println!("result: {}", output.structured().unwrap_or_default());
    registry.close().await;
    Ok(())
}
