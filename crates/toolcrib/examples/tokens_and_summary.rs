//! Compares the cost of all schemas with that of a short summary for the system prompt.
//!
//! `cargo run -p toolcrib --example tokens_and_summary`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use toolcrib::catalog::summary::SummaryBudget;
use toolcrib::{Principal, Refresh, Registry, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let config = "sources: { core: { builtin: all, roots: [.] } }";
    let registry = Registry::builder().config_text(config)?.open().await?;

    registry.refresh(Refresh::default()).await;

    // Loading the tokenizer takes a moment, so the program decides when to count.
    registry.statistics().count_tokens().await;
    let summary = registry.view(&Principal::local("my-agent")).summary(SummaryBudget::from_tokens(300)?);
    println!("{}\n", summary.text);
    println!("summary: {} tokens", summary.tokens);
    println!("schemas of {} tools: {} tokens", summary.tools, summary.tokens_full);
    Ok(())
}
