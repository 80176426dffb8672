//! Renders the tools in the formats of model providers, and shows what a provider cannot express.
//!
//! `cargo run -p toolcrib --example provider_formats`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use serde_json::json;
use toolcrib::catalog::render::Format;
use toolcrib::{BuiltinDefinition, Principal, Registry, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let registry = Registry::builder().open().await?;
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "description": "Name of the city" },
            "unit": { "enum": ["celsius", "fahrenheit"], "default": "celsius" },
        },
        "required": ["city"],
    });
    // Without a handler: the tool is only listed here.
    let weather = BuiltinDefinition::new("get_weather", "Returns the weather of a city", schema)?;
    registry.register_builtin(weather, None)?;

    let view = registry.view(&Principal::local("my-agent"));
    for format in Format::ALL {
        // The array of tools as a request to the provider has it. The same catalogue gives the same bytes, so a
        // provider's prompt cache stays valid.
        println!("{}: {}", format.as_str(), view.render(format)?);
    }
    Ok(())
}
