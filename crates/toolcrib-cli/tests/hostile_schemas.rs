//! Tools whose small schema expands to 2^40 paths stay listed and callable and do not affect other tools.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::process::Stdio;
use std::thread;

use serde_json::{Map, Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::programs;

use crate::support::http::{call_tool, request};
use crate::support::test_server::{TestWorkspace, read_or_empty};

const KEYWORDS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const NOTE: &str = "arguments are not validated: the schema expands to more than 10000 paths";
/// Maximum growth of resident memory under hostile calls.
const MAX_GROWTH_KB: u64 = 64 * 1024;

/// Definitions that each apply the next one twice.
fn definitions(prefix: &str, keyword: &str) -> Map<String, Value> {
    let level = |level: usize| {
        let next = json!({ "$ref": format!("{prefix}l{}", level + 1) });
        (format!("l{level}"), json!({ keyword: [next, next] }))
    };
    (0..40).map(level).chain([("l40".to_owned(), json!({ "type": "string" }))]).collect()
}

/// A workspace with an MCP server and an API, each with a hostile tool per keyword, and a harmless server.
fn hostile_workspace(api: &LoopbackServer) -> TestWorkspace {
    let tool = |keyword: &&str| {
        let properties = json!({ "x": { "$ref": "#/$defs/l0" } });
        let schema = json!({ "type": "object", "properties": properties, "$defs": definitions("#/$defs/", keyword) });
        json!({ "name": format!("tool_{keyword}"), "description": "Hostile", "inputSchema": schema })
    };
    let tools: Vec<Value> = KEYWORDS.iter().map(tool).collect();
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    std::fs::write(workspace.path("tools.json"), json!(tools).to_string()).unwrap();

    let mut sources = json!({
        "hostile": { "command": programs::scripted_server(), "args": ["--tools-file", workspace.path("tools.json")] },
        "harmless": { "command": programs::scripted_server() },
    });
    for keyword in KEYWORDS {
        let body = json!({ "type": "object", "properties": { "x": { "$ref": "#/components/schemas/l0" } } });
        let operation = json!({
            "operationId": "send",
            "requestBody": { "content": { "application/json": { "schema": body } } },
            "responses": { "200": { "description": "done" } },
        });
        let document = json!({
            "openapi": "3.1.0", "info": { "title": "Hostile", "version": "1" }, "servers": [{ "url": api.url }],
            "paths": { "/send": { "post": operation } },
            "components": { "schemas": definitions("#/components/schemas/", keyword) },
        });
        let file = format!("api_{keyword}.json");
        std::fs::write(workspace.path(&file), document.to_string()).unwrap();
        sources[format!("api_{}", keyword.to_lowercase())] = json!({ "openapi": file });
    }
    workspace.configure(&sources, &json!({}));
    workspace.discover();
    workspace
}

/// Calls of every hostile tool with valid and invalid arguments.
fn hostile_calls() -> Vec<(String, Value)> {
    let values = [json!("valid"), json!(1), json!({ "y": [] })];
    let calls = KEYWORDS.iter().flat_map(|keyword| {
        values.clone().into_iter().flat_map(move |value| {
            let operation = format!("api_{}__send", keyword.to_lowercase());
            let arguments = json!({ "x": value });
            [(format!("hostile__tool_{keyword}"), arguments.clone()), (operation, json!({ "body": arguments }))]
        })
    });
    calls.collect()
}

#[test]
fn hostile_schemas_neither_block_the_server_nor_exhaust_its_memory() {
    let api = LoopbackServer::start(|_| HttpReply::json(200, r#"{"done":true}"#));
    let workspace = hostile_workspace(&api);
    let mut server = workspace.serve();
    let harmless = |server: &_| call_tool(server, "harmless__echo", &json!({ "text": "x" }), json!({}));
    assert_eq!(harmless(&server)["content"][0]["text"], "x");
    let before = server.resident_kb();
    thread::scope(|scope| {
        for (name, arguments) in hostile_calls() {
            let server = &server;
            scope.spawn(move || {
                let result = call_tool(server, &name, &arguments, json!({}));
                assert_ne!(result["isError"], json!(true), "{name} {arguments}: {result}");
                assert_eq!(result["_meta"]["toolcrib/notes"], json!([NOTE]), "{name} {arguments}");
                let body = json!({ "arguments": arguments }).to_string();
                let headers = "Content-Type: application/json\r\n";
                let response = request(&server.url, "POST", &format!("/api/tools/{name}/call"), headers, &body);
                assert_eq!(response.status, 200, "{response:?}");
                assert_eq!(response.json()["meta"]["toolcrib/notes"], json!([NOTE]), "{name} {arguments}");
                // Other routes that read the schema.
                for path in [format!("/api/tools/{name}"), format!("/tools/{name}"), "/api/search?q=hostile".into()] {
                    assert_eq!(request(&server.url, "GET", &path, "", "").status, 200, "{path}");
                }
            });
        }
        assert_eq!(request(&server.url, "GET", "/healthz", "", "").status, 200);
        assert_eq!(harmless(&server)["content"][0]["text"], "x");
    });
    let growth = server.resident_kb().saturating_sub(before);
    assert!(growth < MAX_GROWTH_KB, "{growth} KB more: {}", read_or_empty(&workspace.path("serve.log")));
    let tool = request(&server.url, "GET", "/api/tools/hostile__tool_allOf", "", "").json();
    assert_eq!(tool["notes"], json!([NOTE]));
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn hostile_schemas_block_neither_commands_nor_mcp_over_stdio() {
    let api = LoopbackServer::start(|_| HttpReply::json(200, r#"{"done":true}"#));
    let workspace = hostile_workspace(&api);
    let run = |arguments: &[&str]| {
        let output = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(output.stderr));
        (text(output.stdout), text(output.stderr))
    };
    for pair in ["x=valid", "x:=1"] {
        let (_, stderr) = run(&["call", "hostile__tool_anyOf", pair]);
        assert!(stderr.contains(&format!("note: {NOTE}")), "{stderr}");
    }
    let (described, _) = run(&["describe", "api_anyof__send"]);
    assert!(described.contains(&format!("note: {NOTE}")), "{described}");
    let described: Value = serde_json::from_str(&run(&["describe", "api_anyof__send", "--json"]).0).unwrap();
    assert_eq!(described["notes"], json!([NOTE]));
    for format in ["json", "mcp", "anthropic", "openai", "openai-strict", "gemini"] {
        run(&["tools", "--format", format]);
    }
    run(&["context"]);

    let mut child = workspace.toolcrib(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).unwrap();
    writeln!(input, "{}", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).unwrap();
    let calls = hostile_calls();
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let params = json!({ "name": name, "arguments": arguments });
        let request = json!({ "jsonrpc": "2.0", "id": index + 1, "method": "tools/call", "params": params });
        writeln!(input, "{request}").unwrap();
    }
    let mut answered = 0;
    for line in std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap())).map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"].as_u64().is_some_and(|id| id > 0) {
            assert_eq!(message["result"]["_meta"]["toolcrib/notes"], json!([NOTE]), "{message}");
            answered += 1;
        }
        if answered == calls.len() {
            break;
        }
    }
    assert_eq!(answered, calls.len());
    drop(input);
    assert!(child.wait().unwrap().success());
}
