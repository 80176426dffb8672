//! Finds the tool for a task and reads its schema, as an agent does that does not get every schema in advance.
//!
//! `cargo run -p toolcrib --example search_and_describe`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use toolcrib::catalog::search::Query;
use toolcrib::{Principal, Refresh, Registry, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let config = "sources: { core: { builtin: all, roots: [.] } }";
    let registry = Registry::builder().config_text(config)?.open().await?;

    // Discovers the sources; a view shows what is known.
    registry.refresh(Refresh::default()).await;

    // A view reads the catalogue without a lock and does not change while it is used.
    let view = registry.view(&Principal::local("my-agent"));
    let results = view.search(&Query::new("what time is it in Tokyo").with_limit(3));
    for hit in &results.hits {
        println!("{}", hit.to_line());
    }

    // The hit has the signature only; the schema is read when the model wants to call the tool.
    if let Some(best) = results.hits.first() {
        let tool = registry.tool(best.name.as_str())?;
        println!("best match: {}", tool.name);
        println!("{}", tool.input_schema().get());
    }

    // A misspelt name is an error with a suggestion.
    if let Err(error) = registry.tool("curent_time") {
        println!("{}", error.message);
    }
    Ok(())
}
