//! Follows what happens in a registry: changes of the catalogue, discoveries and calls.
//!
//! `cargo run -p toolcrib --example events`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use toolcrib::registry::RegistryNotice;
use toolcrib::{BuiltinDefinition, BuiltinOutput, Refresh, Registry, Result, builtin_handler};

#[tokio::main]
async fn main() -> Result<()> {
    // A server that cannot be started, so that there is a failed discovery to see.
    let config = "sources: { broken: { command: no-such-server } }";
    let registry = Registry::builder().config_text(config)?.open().await?;
    let mut notices = registry.subscribe();
    let follower = tokio::spawn(async move {
        loop {
            match notices.recv().await {
                Ok(notice) => print_notice(&notice),
                // The channel is bounded: a slow subscriber reads the catalogue again instead of each change.
                Err(RecvError::Lagged(missed)) => println!("missed {missed} notices"),
                // The last clone of the registry was dropped.
                Err(RecvError::Closed) => break,
            }
        }
    });

    let ping = BuiltinDefinition::new("ping", "Answers", json!({ "type": "object" }))?;
    registry.register_builtin(ping, Some(builtin_handler(|_: Value| async { Ok(BuiltinOutput::text("pong")) })))?;
    registry.call("ping", json!({})).caller("my-agent").await?;
    registry.refresh(Refresh::default()).await;
    registry.close().await;
    // A panic of the task would end it early; there is nothing else to report.
    let _ = follower.await;
    Ok(())
}

/// Prints the notices of interest; others, such as `RecordAppended`, are left out.
fn print_notice(notice: &RegistryNotice) {
    if let RegistryNotice::CatalogChanged = notice {
        println!("the catalogue changed");
    }
    if let RegistryNotice::CallFinished(call) = notice {
        println!("{} called {}: {}", call.caller, call.tool, call.code);
    }
    if let RegistryNotice::DiscoveryFinished(outcome) = notice {
        println!("discovery of {}: {}", outcome.source, outcome.status.name());
    }
}
