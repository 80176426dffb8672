//! An agent loop on top of the library: the model gets a summary and the rendered tools, each `tool_use` becomes a
//! call, and each call, also a failed one, gets its `tool_result`. The model is simulated: it requests two tools and
//! then answers; replace it by a real one.
//!
//! `cargo run -p toolcrib --example agent_loop`

use serde_json::{Value, json};
use toolcrib::catalog::render::Format;
use toolcrib::core::json::to_exact_string;
use toolcrib::registry::ToolFilter;
use toolcrib::{BuiltinDefinition, BuiltinOutput, Principal, Registry, Result, builtin_handler};

/// One source works, the other cannot be started: its failure does not affect the first.
const CONFIG: &str = r#"
sources:
  core:   { builtin: [calculate, current_time] }
  broken: { command: no-such-server, discovery_timeout: 2s }
"#;

fn main() -> Result<()> {
    // Must run before the runtime starts: stdio servers are started through this same binary, so that they end with it.
    toolcrib::guard::run_if_requested();
    run()
}

#[tokio::main]
async fn run() -> Result<()> {
    let registry = Registry::builder().config_text(CONFIG)?.open().await?;
    registry.register_builtin(
        BuiltinDefinition::new(
            "greet",
            "Greets a person by name",
            json!({
                "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"],
            }),
        )?,
        Some(builtin_handler(
            |input: Value| async move { Ok(BuiltinOutput::text(format!("Hello, {}!", input["name"]))) },
        )),
    )?;

    // Discovers sources that were never discovered. A failing source is in `sources()` with its error.
    registry.tools(ToolFilter::default()).await?;
    let caller = Principal::local("example");
    let view = registry.view(&caller);
    let tools: Value = serde_json::from_str(&view.render(Format::Anthropic)?).unwrap_or_default();
    let mut messages = vec![
        json!({ "role": "user", "content": format!("{}\nWhat is 6 * 7?", summarize_sources(&registry, &caller)) }),
    ];

    while let Some(reply) = simulate_model(&messages, &tools) {
        let mut results = Vec::new();
        for block in reply.iter().filter(|block| block["type"] == "tool_use") {
            results.push(run_tool_use(&registry, &caller, block).await);
        }
        messages.push(json!({ "role": "assistant", "content": reply }));
        if results.is_empty() {
            break;
        }
        messages.push(json!({ "role": "user", "content": results }));
    }
    print_messages(&messages);
    registry.close().await;
    Ok(())
}

/// Returns one line per source: the number of its tools, or why it is not available.
fn summarize_sources(registry: &Registry, caller: &Principal) -> String {
    let names = registry.view(caller).by_source();
    let mut lines: Vec<String> = names.iter().map(|(id, tools)| format!("{id}: {} tools", tools.len())).collect();
    for source in registry.sources().list() {
        if let Some(error) = source.last_error {
            lines.push(format!("{}: not available ({})", source.id, error.message));
        }
    }
    lines.join("\n")
}

/// Calls the tool of a `tool_use` block. Errors become results too, because every `tool_use` needs a `tool_result`.
async fn run_tool_use(registry: &Registry, caller: &Principal, block: &Value) -> Value {
    let name = block["name"].as_str().unwrap_or_default();
    let result = registry.call(name, block["input"].clone()).caller(caller.clone()).await;
    let (content, is_error) = match result {
        Ok(output) => (serde_json::from_str(output.content()).unwrap_or_default(), output.is_error()),
        // Details of an error may have integers of more than 64 bits.
        Err(error) => {
            let text = to_exact_string(&error.envelope()).unwrap_or_default();
            (json!([{ "type": "text", "text": text }]), true)
        }
    };
    json!({ "type": "tool_result", "tool_use_id": block["id"], "content": content, "is_error": is_error })
}

/// Simulates a model: requests two tools, one of them with an invalid argument, and then answers.
fn simulate_model(messages: &[Value], tools: &Value) -> Option<Vec<Value>> {
    assert!(tools.as_array().is_some_and(|tools| !tools.is_empty()));
    match messages.len() {
        1 => Some(vec![
            json!({ "type": "tool_use", "id": "1", "name": "calculate", "input": { "expression": "6 * 7" } }),
            json!({ "type": "tool_use", "id": "2", "name": "greet", "input": { "nam": "Ada" } }),
        ]),
        _ => Some(vec![json!({ "type": "text", "text": "It is 42." })]),
    }
}

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn print_messages(messages: &[Value]) {
    for message in messages {
        println!("{message:#}");
    }
}
