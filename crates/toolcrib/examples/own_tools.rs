//! Offers functions of the program as tools: one with text, one with structured output, one that reports a failure.
//!
//! `cargo run -p toolcrib --example own_tools`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use toolcrib::{BuiltinDefinition, BuiltinOutput, Registry, Result, builtin_handler};

#[tokio::main]
async fn main() -> Result<()> {
    let registry = Registry::builder().open().await?;
    // State that the handlers share. A handler may run several times at once.
    let balance = Arc::new(AtomicI64::new(100));

    let read = BuiltinDefinition::new("read_balance", "Reads the balance of the account", json!({ "type": "object" }))?
        .output_schema(json!({ "type": "object", "properties": { "balance": { "type": "integer" } } }))
        .read_only();
    let account = balance.clone();
    let read_balance = builtin_handler(move |_: Value| {
        let amount = account.load(Ordering::Relaxed);
        async move { Ok(BuiltinOutput::json(json!({ "balance": amount }))) }
    });
    registry.register_builtin(read, Some(read_balance))?;

    let schema = json!({
        "type": "object",
        "properties": { "amount": { "type": "integer", "minimum": 1 } },
        "required": ["amount"],
    });
    let withdraw = builtin_handler(move |input: Value| {
        let account = balance.clone();
        async move {
            let amount = input["amount"].as_i64().unwrap_or_default();
            if account.load(Ordering::Relaxed) < amount {
                // The tool ran and failed: an output that the model reads, not an error of the call.
                return Ok(BuiltinOutput::error("the balance is too low"));
            }
            account.fetch_sub(amount, Ordering::Relaxed);
            Ok(BuiltinOutput::text(format!("withdrew {amount}")))
        }
    });
    registry.register_builtin(BuiltinDefinition::new("withdraw", "Withdraws money", schema)?, Some(withdraw))?;

    println!("{}", registry.call("withdraw", json!({ "amount": 30 })).await?.text());
    let refused = registry.call("withdraw", json!({ "amount": 500 })).await?;
    println!("error of the tool: {} ({})", refused.is_error(), refused.text());
    println!("{}", registry.call("read_balance", json!({})).await?.structured().unwrap_or_default());

    // Arguments are validated before the handler runs.
    if let Err(error) = registry.call("withdraw", json!({ "amount": "all" })).await {
        println!("{}: {}", error.code.as_str(), error.message);
    }
    Ok(())
}
