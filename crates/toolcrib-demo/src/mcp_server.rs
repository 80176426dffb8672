//! The demo's MCP server: a lending library over stdio, protocol version 2025-11-25 and older. It runs in the binary
//! `toolcrib` under a hidden first argument, keeps its state in memory, and writes no file but the one that counts its
//! starts.
//!
//! Messages are JSON-RPC, one per line. The server shares no code with `toolcrib-mcp`.
//!
//! ```text
//! -> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_book","arguments":{"book":"dune"}}}
//! <- {"jsonrpc":"2.0","id":1,"result":{"content":[…],"structuredContent":{…},"isError":false}}
//! ```

mod lending_library;

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use lending_library::LendingLibrary;

/// Hidden first argument: `toolcrib __demo-server [--starts FILE]`.
pub const DEMO_SERVER_ARGUMENT: &str = "__demo-server";

/// Supported protocol versions, newest first.
const PROTOCOL_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The tools as `tools/list` returns them.
const TOOLS_JSON: &str = include_str!("mcp_server/tools.json");

/// Serves MCP until the end of stdin if the first argument is [`DEMO_SERVER_ARGUMENT`]; returns `None` otherwise.
pub fn run_if_requested() -> Option<ExitCode> {
    // Runs before argument parsing and without the async runtime: the server needs neither.
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|argument| argument == DEMO_SERVER_ARGUMENT)?;
    let starts = arguments.next().filter(|argument| argument == "--starts").and_then(|_| arguments.next());
    Some(match record_start(starts).and_then(|()| serve(&mut io::stdin().lock(), &mut io::stdout().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Appends a line to the file, so that the demo can count process starts. Without a file nothing is recorded.
fn record_start(starts: Option<OsString>) -> io::Result<()> {
    let Some(file) = starts else { return Ok(()) };
    io::Write::write_all(&mut std::fs::OpenOptions::new().create(true).append(true).open(file)?, b"started\n")
}

/// Handles one JSON-RPC message per line until the input ends.
fn serve(input: &mut impl BufRead, output: &mut impl Write) -> io::Result<()> {
    let mut library = LendingLibrary::new();
    for line in input.lines() {
        let line = line?;
        // Blank lines are not messages.
        if line.trim().is_empty() {
            continue;
        }
        if let Some(response) = handle_line(&mut library, &line) {
            writeln!(output, "{response}")?;
            // The client waits for the response, and stdout to a pipe is buffered in blocks.
            output.flush()?;
        }
    }
    Ok(())
}

/// Returns the response to a request, and `None` for a notification.
fn handle_line(library: &mut LendingLibrary, line: &str) -> Option<Value> {
    let Ok(message) = serde_json::from_str::<Value>(line) else {
        let error = json!({"code": -32700, "message": "Parse error"});
        return Some(json!({"jsonrpc": "2.0", "id": null, "error": error}));
    };
    // A message without `id` is a notification, a message without `method` a response; neither gets a response.
    let id = message.get("id")?;
    let method = message.get("method")?.as_str()?;
    let outcome = handle_request(library, method, message.get("params").unwrap_or(&Value::Null));
    Some(match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}),
    })
}

/// Returns the result of a method, or code and message of a JSON-RPC error.
fn handle_request(library: &mut LendingLibrary, method: &str, params: &Value) -> Result<Value, (i64, String)> {
    match method {
        "initialize" => {
            // An unknown version is answered with our newest, as the specification demands.
            let requested = params["protocolVersion"].as_str().unwrap_or_default();
            let version =
                PROTOCOL_VERSIONS.into_iter().find(|version| *version == requested).unwrap_or(PROTOCOL_VERSIONS[0]);
            Ok(json!({
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "toolcrib-demo", "title": "A small lending library", "version": env!("CARGO_PKG_VERSION")},
            }))
        }
        "ping" => Ok(json!({})),
        "tools/list" => match serde_json::from_str::<Value>(TOOLS_JSON) {
            Ok(tools) => Ok(json!({ "tools": tools })),
            Err(error) => Err((-32603, error.to_string())),
        },
        "tools/call" => {
            let name = params["name"].as_str().unwrap_or_default();
            match library.call(name, &params["arguments"]) {
                None => Err((-32602, format!("Unknown tool: {name}"))),
                Some(Ok(value)) => Ok(json!({
                    "content": [{"type": "text", "text": value.to_string()}],
                    "structuredContent": value,
                    "isError": false,
                })),
                // A failure of the tool itself is a result with `isError`, not a JSON-RPC error.
                Some(Err(reason)) => Ok(json!({"content": [{"type": "text", "text": reason}], "isError": true})),
            }
        }
        _ => Err((-32601, format!("Method not found: {method}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves the lines and compares results or errors with the expected ones.
    fn check(lines: &[Value], expected: &[Value]) {
        let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut output = Vec::new();
        serve(&mut input.as_bytes(), &mut output).unwrap();
        let responses: Vec<Value> =
            String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let results: Vec<Value> = responses
            .into_iter()
            .map(
                |mut response| {
                    if response["error"].is_null() { response["result"].take() } else { response["error"].take() }
                },
            )
            .collect();
        assert_eq!(results, expected);
    }

    fn call_message(name: &str, arguments: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn responds_to_requests_and_not_to_notifications() {
        check(
            &[
                json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
                json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}),
                json!({"jsonrpc": "2.0", "id": "x", "method": "resources/list"}),
            ],
            &[json!({}), json!({"code": -32601, "message": "Method not found: resources/list"})],
        );
    }

    #[test]
    fn every_listed_tool_can_be_called() {
        let mut library = LendingLibrary::new();
        let listed = handle_request(&mut library, "tools/list", &Value::Null).unwrap();
        for tool in listed["tools"].as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            assert!(library.call(name, &json!({})).is_some(), "{name}");
            assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        }
        assert!(library.call("burn_book", &json!({})).is_none());
    }

    #[test]
    fn a_borrowed_book_cannot_be_borrowed_again() {
        let lent = json!({"book": "dune", "member": "ada", "title": "Dune", "due_in_days": 21});
        let ok = |value: &Value| json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value, "isError": false});
        let refused = json!({
            "content": [{"type": "text", "text": "`dune` is lent to ada; `reserve_book` puts you on the list"}],
            "isError": true,
        });
        let borrow = |member: &str| call_message("borrow_book", &json!({"book": "dune", "member": member}));
        check(&[borrow("ada"), borrow("grace")], &[ok(&lent), refused]);
    }
}
