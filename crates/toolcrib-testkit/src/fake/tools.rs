//! What the tools of the fake servers are and do. The name alone decides, wherever the list came from.

use serde_json::{Value, json};

/// A PNG of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// How a call ends.
#[derive(Debug)]
pub enum CallEnd {
    Result(Value),
    Error(i64, String),
    /// The process ends without an answer.
    Crash,
    /// No answer ever comes.
    Hang,
}

/// The tool as it is listed.
pub(super) fn definition(name: &str) -> Value {
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
        _ => ("One of many", json!({"text": text}), json!([])),
    };
    let mut tool = json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    });
    if matches!(name, "echo" | "add") {
        tool["annotations"] = json!({"readOnlyHint": true});
    }
    tool
}

/// Calls a tool; `listed` says whether the server offers a tool of this name.
pub fn call(name: &str, arguments: &Value, listed: impl FnOnce() -> bool) -> CallEnd {
    match name {
        "echo" => echo(arguments),
        "add" => add(arguments),
        "fail" => CallEnd::Result(json!({"content": [text("it failed")], "isError": true})),
        "rpc_error" => CallEnd::Error(-32000, "the server is not well".to_owned()),
        "crash" => CallEnd::Crash,
        "hang" => CallEnd::Hang,
        "large" => large(arguments),
        "image" => image(),
        _ if listed() => CallEnd::Result(said(&format!("{name} {arguments}"))),
        _ => CallEnd::Error(-32602, format!("Unknown tool: {name}")),
    }
}

/// A result of one text.
pub fn said(words: &str) -> Value {
    json!({"content": [text(words)], "isError": false})
}

fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

fn echo(arguments: &Value) -> CallEnd {
    let words = arguments["text"].as_str().unwrap_or_default();
    let mut result = said(words);
    result["structuredContent"] = json!({"text": words});
    CallEnd::Result(result)
}

fn add(arguments: &Value) -> CallEnd {
    match (arguments["a"].as_i64(), arguments["b"].as_i64()) {
        (Some(a), Some(b)) => CallEnd::Result(said(&a.wrapping_add(b).to_string())),
        _ => CallEnd::Error(-32602, "`a` and `b` must be integers".to_owned()),
    }
}

fn large(arguments: &Value) -> CallEnd {
    let bytes = arguments["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok());
    CallEnd::Result(said(&"x".repeat(bytes.unwrap_or_default())))
}

fn image() -> CallEnd {
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    CallEnd::Result(json!({"content": [image], "isError": false}))
}
