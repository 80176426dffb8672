//! The ways in which a call can end: each has a code, and the message says what to do.
//!
//! `cargo run -p toolcrib --example timeouts_and_errors`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib::{BuiltinDefinition, BuiltinOutput, CallOutput, Registry, Result, builtin_handler};

#[tokio::main]
async fn main() -> Result<()> {
    // A server that cannot be started: its failure does not affect other tools.
    let config = "sources: { broken: { command: no-such-server } }";
    let registry = Registry::builder().config_text(config)?.open().await?;
    let schema = json!({ "type": "object", "properties": { "ms": { "type": "integer" } }, "required": ["ms"] });
    let wait = builtin_handler(|input: Value| async move {
        tokio::time::sleep(Duration::from_millis(input["ms"].as_u64().unwrap_or_default())).await;
        Ok(BuiltinOutput::text("waited"))
    });
    registry.register_builtin(BuiltinDefinition::new("wait", "Waits", schema)?, Some(wait))?;

    print_outcome("success", registry.call("wait", json!({ "ms": 1 })).await);
    print_outcome("unknown name", registry.call("wiat", json!({})).await);
    print_outcome("invalid arguments", registry.call("wait", json!({ "ms": "soon" })).await);
    print_outcome("server that cannot be started", registry.call("broken__tool", json!({})).await);

    let timeout = Duration::from_millis(50);
    print_outcome("timeout", registry.call("wait", json!({ "ms": 60_000 })).timeout(timeout).await);

    let cancel = CancellationToken::new();
    let trigger = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        trigger.cancel();
    });
    print_outcome("cancelled", registry.call("wait", json!({ "ms": 60_000 })).cancel(cancel).await);
    registry.close().await;
    Ok(())
}

fn print_outcome(case: &str, result: Result<CallOutput>) {
    match result {
        Ok(output) => println!("{case}: {}", output.text()),
        Err(error) => {
            println!("{case}: {}, retryable {}: {}", error.code.as_str(), error.is_retryable(), error.message);
        }
    }
}
