//! Rules on tools: allowed, with consent, denied, hidden. The same rules apply to tools of servers.
//!
//! `cargo run -p toolcrib --example policy_and_consent`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use serde_json::json;
use toolcrib::registry::ToolFilter;
use toolcrib::{Code, Registry, Result};

/// The order of rules has no meaning: the most specific one decides.
const CONFIG: &str = r#"
sources:
  core:
    builtin: [calculate, current_time, url_fetch]
    tools: { "*": allow, calculate: ask, current_time: deny, url_fetch: hide }
"#;

#[tokio::main]
async fn main() -> Result<()> {
    let registry = Registry::builder().config_text(CONFIG)?.open().await?;
    for tool in registry.tools(ToolFilter::default()).await? {
        println!("listed: {} ({})", tool.name, tool.policy.map_or("none", |verdict| verdict.as_str()));
    }

    let arguments = json!({ "expression": "6 * 7" });
    match registry.call("calculate", arguments.clone()).await {
        // Ask the user, then repeat the call with consent. Consent holds for this one call.
        Err(error) if error.code == Code::Forbidden => {
            println!("refused: {}", error.message);
            let output = registry.call("calculate", arguments).with_consent().await?;
            println!("with consent: {}", output.text());
        }
        other => println!("unexpected: {other:?}"),
    }

    for name in ["current_time", "url_fetch"] {
        if let Err(error) = registry.call(name, json!({})).with_consent().await {
            println!("{name}: {}", error.code.as_str());
        }
    }
    Ok(())
}
