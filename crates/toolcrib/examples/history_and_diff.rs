//! Shows what changed in the tool list of a source: in the journal, and since a lockfile was written.
//!
//! `cargo run -p toolcrib --example history_and_diff`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::registry::HistoryQuery;
use toolcrib::{Registry, Result, SourceId};

#[tokio::main]
async fn main() -> Result<()> {
    // The program fetches the tool list itself and records it, so the command is never started.
    let config = "sources: { shop: { command: shop-server } }";
    let registry = Registry::builder().config_text(config)?.open().await?;
    let shop = SourceId::parse("shop")?;

    registry.sources().record_tools(&shop, tool_list(&[("order", "string"), ("list", "string")])).await?;
    // `to_text` is what `toolcrib lock` writes to a file, to be committed with the program.
    let lockfile = registry.lockfile().build().await?;

    // The next version of the server: an argument has another type, and a tool is gone.
    let outcome = registry.sources().record_tools(&shop, tool_list(&[("order", "integer")])).await?;
    println!("removed: {}", outcome.removed.join(", "));
    for change in &outcome.changed {
        println!("changed: {}", change.name);
    }

    println!("since the lockfile:\n{}", registry.lockfile().diff(&lockfile).await?.to_text());
    println!("journal:");
    for record in registry.history().records(&HistoryQuery::default()).await? {
        println!("{} {}", record.seq, record.text);
    }
    Ok(())
}

/// Tool definitions as an MCP server lists them, each with one argument of the given type.
fn tool_list(tools: &[(&str, &str)]) -> Vec<Box<RawValue>> {
    let definition = |name: &str, kind: &str| -> Value {
        json!({
            "name": name,
            "description": "Works with products",
            "inputSchema": { "type": "object", "properties": { "product": { "type": kind } }, "required": ["product"] },
        })
    };
    tools.iter().filter_map(|(name, kind)| to_raw_value(&definition(name, kind)).ok()).collect()
}
