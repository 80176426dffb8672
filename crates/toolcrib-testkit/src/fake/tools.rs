//! Definitions and behaviour of the fake servers' tools. Both depend on the name only, wherever the list comes from.
//!
//! A tool that needs a session (`slow`, `env`, `announce`, `elicit`, `sample`, `meta`) is defined here and implemented
//! in `scripted-server`. A name without behaviour returns its own name and arguments.

use serde_json::{Value, json};

/// Base64 of a PNG image of one pixel.
const ONE_PIXEL_PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Outcome of a call.
#[derive(Debug)]
pub enum FakeCallResult {
    /// Result of `tools/call`; `isError` is part of it.
    Result(Value),
    /// Code and message of a JSON-RPC error.
    Error(i64, String),
    /// The process exits without a response.
    Crash,
    /// No response is ever sent.
    Hang,
}

/// Returns the definition of a tool for `tools/list`.
pub(super) fn tool_definition(name: &str) -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let (description, properties, required) = match name {
        "echo" => ("Gives its text back", json!({"text": text}), json!(["text"])),
        "add" => ("Adds two integers", json!({"a": number, "b": number}), json!(["a", "b"])),
        "large" => ("Gives so many bytes of text", json!({"bytes": number}), json!(["bytes"])),
        "fail" => ("Always fails", json!({}), json!([])),
        "rpc_error" => ("Answers with a JSON-RPC error", json!({}), json!([])),
        "crash" => ("Ends the server", json!({}), json!([])),
        "hang" => ("Never answers", json!({}), json!([])),
        "image" => ("Gives a picture of one pixel", json!({}), json!([])),
        "slow" => ("Reports progress, then answers", json!({}), json!([])),
        "env" => ("Gives the server's environment", json!({}), json!([])),
        "announce" => ("Announces that the list of tools changed, or what it is told to", json!({}), json!([])),
        "elicit" => ("Asks the client, and gives its answer", json!({}), json!([])),
        "sample" => ("Asks the client's model, and gives its answer", json!({}), json!([])),
        "meta" => ("Gives the `_meta` it got", json!({}), json!([])),
        "capabilities" => ("Gives the capabilities of the handshake", json!({}), json!([])),
        _ => ("One of many", json!({"text": text}), json!([])),
    };
    let mut tool = json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    });
    // Read-only tools may be retried after a lost connection; the others may not.
    if matches!(name, "echo" | "add") {
        tool["annotations"] = json!({"readOnlyHint": true});
    }
    tool
}

/// Calls a tool. `is_listed` tells whether the server offers a tool of this name.
pub fn call_tool(name: &str, arguments: &Value, is_listed: impl FnOnce() -> bool) -> FakeCallResult {
    match name {
        "echo" => echo(arguments),
        "add" => add(arguments),
        "fail" => FakeCallResult::Result(json!({"content": [text_block("it failed")], "isError": true})),
        "rpc_error" => FakeCallResult::Error(-32000, "the server is not well".to_owned()),
        "crash" => FakeCallResult::Crash,
        "hang" => FakeCallResult::Hang,
        "large" => large(arguments),
        "image" => image(),
        _ if is_listed() => FakeCallResult::Result(text_result(&format!("{name} {arguments}"))),
        _ => FakeCallResult::Error(-32602, format!("Unknown tool: {name}")),
    }
}

/// Returns a result with one text block.
pub fn text_result(words: &str) -> Value {
    json!({"content": [text_block(words)], "isError": false})
}

fn text_block(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

/// Returns its text, also as structured content.
fn echo(arguments: &Value) -> FakeCallResult {
    let words = arguments["text"].as_str().unwrap_or_default();
    let mut result = text_result(words);
    result["structuredContent"] = json!({"text": words});
    FakeCallResult::Result(result)
}

/// Adds two integers, or fails with an `Invalid params` error.
fn add(arguments: &Value) -> FakeCallResult {
    match (arguments["a"].as_i64(), arguments["b"].as_i64()) {
        (Some(a), Some(b)) => FakeCallResult::Result(text_result(&a.wrapping_add(b).to_string())),
        _ => FakeCallResult::Error(-32602, "`a` and `b` must be integers".to_owned()),
    }
}

/// Returns a text of the requested size.
fn large(arguments: &Value) -> FakeCallResult {
    let bytes = arguments["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok());
    FakeCallResult::Result(text_result(&"x".repeat(bytes.unwrap_or_default())))
}

fn image() -> FakeCallResult {
    let image = json!({"type": "image", "data": ONE_PIXEL_PNG, "mimeType": "image/png"});
    FakeCallResult::Result(json!({"content": [image], "isError": false}))
}
