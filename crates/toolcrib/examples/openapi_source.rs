//! An HTTP API as a source: each operation of its OpenAPI document becomes a tool.
//!
//! `cargo run -p toolcrib --example openapi_source`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

#[path = "support/shop_api.rs"]
mod shop_api;

use serde_json::json;
use toolcrib::Registry;
use toolcrib::registry::ToolFilter;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = shop_api::start()?;
    // Credentials would be `auth: { bearer: "${env:SHOP_TOKEN}" }`; operations are selected with `include` and `exclude`.
    let config = format!("sources: {{ shop: {{ openapi: '{url}/openapi.json' }} }}");
    let registry = Registry::builder().config_text(&config)?.open().await?;

    for tool in registry.tools(ToolFilter::default()).await? {
        println!("{}: {}", tool.name, tool.description());
    }
    let products = registry.call("shop__list_products", json!({})).await?;
    println!("products: {}", products.text());
    // Parameters are arguments of the tool, and the body is the argument `body`.
    let order = registry.call("shop__place_order", json!({ "body": { "sku": "milk-1" } })).await?;
    println!("order: {}", order.structured().unwrap_or_default());
    registry.close().await;
    Ok(())
}
