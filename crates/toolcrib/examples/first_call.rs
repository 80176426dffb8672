//! Opens a registry, lists its tools and calls one.
//!
//! `cargo run -p toolcrib --example first_call`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use serde_json::json;
use toolcrib::registry::ToolFilter;
use toolcrib::{Registry, Result};

#[tokio::main]
async fn main() -> Result<()> {
    // Two of Toolcrib's own tools. An MCP server is `{ command: …, args: […] }` or `{ url: … }`.
    let config = "sources: { core: { builtin: [calculate, current_time] } }";
    // Without `.store("./data")` everything is in memory.
    let registry = Registry::builder().config_text(config)?.open().await?;

    for tool in registry.tools(ToolFilter::default()).await? {
        println!("tool {} of source {}", tool.name, tool.source);
    }

    let output = registry.call("calculate", json!({ "expression": "6 * 7" })).caller("my-agent").await?;
    println!("6 * 7: {}", output.text());
    registry.close().await;
    Ok(())
}
