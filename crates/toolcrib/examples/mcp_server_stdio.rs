//! An MCP server as a source. To need no installed server, this program is the server too: started with the argument
//! `serve`, it answers MCP requests on stdin and stdout.
//!
//! `cargo run -p toolcrib --example mcp_server_stdio`

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::io::BufRead;

use serde_json::{Value, json};
use toolcrib::Registry;
use toolcrib::registry::ToolFilter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before any thread or runtime: servers are started through this same binary, so that none outlives it.
    toolcrib::guard::run_if_requested();
    if std::env::args().nth(1).as_deref() == Some("serve") {
        serve();
        return Ok(());
    }
    run()
}

#[tokio::main]
async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let program = std::env::current_exe()?;
    // JSON is YAML. With an installed server: `{ command: uvx, args: [mcp-server-time] }`.
    let config = json!({ "sources": { "greeter": { "command": program, "args": ["serve"] } } });
    let registry = Registry::builder().config_text(&config.to_string())?.open().await?;

    // Starts the server, because its tools are not known yet.
    for tool in registry.tools(ToolFilter::default()).await? {
        println!("{}: {}", tool.name, tool.description());
    }
    let output = registry.call("greeter__greet", json!({ "name": "Ada" })).await?;
    println!("{}", output.text());
    // Ends the server.
    registry.close().await;
    Ok(())
}

/// A minimal MCP server: one line of JSON per message. Use an SDK for a real one.
fn serve() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        // Notifications have no id and get no answer.
        let Some(id) = message.get("id") else { continue };
        match respond(message["method"].as_str().unwrap_or_default(), &message["params"]) {
            Some(result) => println!("{}", json!({ "jsonrpc": "2.0", "id": id, "result": result })),
            None => {
                let error = json!({ "code": -32601, "message": "method not found" });
                println!("{}", json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        }
    }
}

fn respond(method: &str, params: &Value) -> Option<Value> {
    match method {
        "initialize" => Some(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "greeter", "version": "1.0.0" },
        })),
        "tools/list" => {
            let schema =
                json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
            Some(json!({ "tools": [{ "name": "greet", "description": "Greets a person", "inputSchema": schema }] }))
        }
        "tools/call" => {
            let name = params["arguments"]["name"].as_str().unwrap_or_default();
            Some(json!({ "content": [{ "type": "text", "text": format!("Hello, {name}!") }] }))
        }
        _ => None,
    }
}
