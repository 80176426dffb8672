//! Trace propagation: W3C trace context from clients to upstream servers, and trace ids in the log.

use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
use toolcrib_testkit::programs;

use crate::support::http::{call_tool, call_tool_with_headers, request};
use crate::support::test_server::{TestWorkspace, read_or_empty, wait_until};

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";

const JSON_HEADER: &str = "Content-Type: application/json\r\n";

fn traceparent() -> String {
    format!("00-{TRACE_ID}-{SPAN_ID}-01")
}

/// Asserts that a `traceparent` has the same trace and a new span.
#[track_caller]
fn assert_same_trace(traceparent: &str) {
    let parts: Vec<&str> = traceparent.split('-').collect();
    assert!(parts.len() == 4 && parts[1] == TRACE_ID && parts[2] != SPAN_ID && parts[3] == "01", "{traceparent}");
}

/// A workspace with a stdio server that returns the `_meta` it received, and an API that records headers.
fn test_workspace(api: &LoopbackServer) -> TestWorkspace {
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Pets", "version": "1" },
        "servers": [{ "url": api.url }],
        "paths": { "/pets": { "get": { "operationId": "pets", "responses": { "200": { "description": "all" } } } } },
    });
    let sources = json!({
        "one": { "command": programs::scripted_server(), "args": ["--with", "meta", "--with", "echo"] },
        "shop": { "openapi": "shop.json", "base_url": api.url, "allow_private": true },
    });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    std::fs::write(workspace.path("shop.json"), document.to_string()).unwrap();
    workspace
}

/// Parses the `_meta` that the tool `meta` returned.
fn parse_meta(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_trace_is_propagated_to_upstream_servers() {
    let api = LoopbackServer::start(|_| HttpReply::json(200, "[]"));
    let workspace = test_workspace(&api);
    let server = workspace.serve();

    let incoming = json!({ "traceparent": traceparent(), "tracestate": "rojo=1", "mine": 5 });
    let meta = parse_meta(&call_tool(&server, "one__meta", &json!({}), incoming.clone()));
    assert_same_trace(meta["traceparent"].as_str().unwrap());
    assert_eq!((&meta["tracestate"], &meta["mine"]), (&json!("rojo=1"), &json!(5)));

    let headers = format!("traceparent: {}\r\n", traceparent());
    assert_same_trace(
        parse_meta(&call_tool_with_headers(&server, "one__meta", &json!({}), json!({}), &headers))["traceparent"]
            .as_str()
            .unwrap(),
    );

    let response = request(
        &server.url,
        "POST",
        "/api/tools/one__meta/call",
        &format!("{headers}{JSON_HEADER}"),
        r#"{"arguments":{}}"#,
    );
    assert_same_trace(parse_meta(&response.json())["traceparent"].as_str().unwrap());

    call_tool(&server, "shop__pets", &json!({}), incoming);
    let requests = api.requests();
    assert_same_trace(requests[0].header("traceparent").unwrap());
    assert_eq!(requests[0].header("tracestate"), Some("rojo=1"));
}

#[test]
fn a_discovery_belongs_to_the_trace_of_its_request() {
    let api = LoopbackServer::start(|_| {
        HttpReply::json(200, r#"{"openapi":"3.1.0","info":{"title":"Pets","version":"1"},"paths":{}}"#)
    });
    let sources = json!({ "pets": { "openapi": format!("{}/pets.json", api.url), "allow_private": true } });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    let server = workspace.serve();
    let headers = format!("traceparent: {}\r\n{JSON_HEADER}", traceparent());
    assert_eq!(request(&server.url, "POST", "/api/sources/pets/refresh?force=true", &headers, "").status, 200);
    assert_same_trace(api.requests().last().unwrap().header("traceparent").unwrap());
}

#[test]
fn no_trace_is_propagated_without_an_incoming_one() {
    let api = LoopbackServer::start(|_| HttpReply::json(200, "[]"));
    let workspace = test_workspace(&api);
    let server = workspace.serve();
    let meta = parse_meta(&call_tool(&server, "one__meta", &json!({}), json!({})));
    assert_eq!(meta.get("traceparent"), None);
    let meta = parse_meta(&call_tool(&server, "one__meta", &json!({}), json!({ "traceparent": "junk" })));
    assert_eq!(meta["traceparent"], "junk", "an invalid `traceparent` is passed on like any other field");
    call_tool(&server, "shop__pets", &json!({}), json!({}));
    assert_eq!(api.requests()[0].header("traceparent"), None);
}

#[test]
fn a_command_continues_the_trace_of_its_environment() {
    let api = LoopbackServer::start(|_| HttpReply::json(200, "[]"));
    let workspace = test_workspace(&api);
    let mut command = workspace.toolcrib(&["call", "shop__pets"]);
    let output = command.env("TRACEPARENT", traceparent()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_same_trace(api.requests()[0].header("traceparent").unwrap());
}

/// Log events and their required fields.
const EXPECTED_EVENTS: [(&str, &[&str]); 9] = [
    ("tools.discovery.started", &["server_count"]),
    ("tools.discovery.server.success", &["server_name", "tool_count", "duration_ms", "trace_id"]),
    ("tools.discovery.server.failed", &["server_name", "error_message", "trace_id"]),
    ("tools.registry.updated", &["static_count", "mcp_count", "openapi_count", "workflow_count"]),
    ("tools.registry.server.removed", &["server_name", "removed_count"]),
    ("tools.cache.hit", &["server_name", "trace_id"]),
    ("tools.cache.miss", &["server_name", "trace_id"]),
    ("tools.call.finished", &["tool", "code", "duration_ms", "trace_id"]),
    ("http.request", &["class", "method", "status", "duration_ms", "request_id", "trace_id"]),
];

#[test]
fn events_are_logged_with_trace_id_and_without_payloads() {
    let sources = json!({
        "one": { "command": programs::scripted_server(), "args": ["--with", "echo"] },
        "broken": { "command": "no-such-program-here" },
    });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    let server =
        workspace.start_listening_with(&["serve", "-v", "--listen", "127.0.0.1:0"], &[("TOOLCRIB_LOG_FORMAT", "json")]);
    let incoming = || json!({ "traceparent": traceparent() });
    for tool in ["one__echo", "one__echo", "broken__echo"] {
        let headers = format!("X-Request-Id: request-{tool}\r\ntraceparent: {}\r\n", traceparent());
        call_tool_with_headers(&server, tool, &json!({ "text": "xyzzy-secret" }), incoming(), &headers);
    }
    workspace.configure(&json!({ "broken": sources["broken"] }), &json!({}));
    server.signal("HUP");
    let log = || read_or_empty(&workspace.path("serve.log"));
    wait_until("the source is removed", || log().contains("tools.registry.server.removed"));
    assert_eq!(request(&server.url, "GET", "/healthz", "", "").status, 200);

    let log_text = log();
    let lines: Vec<Value> = log_text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for (event, fields) in EXPECTED_EVENTS {
        let matching = lines.iter().filter(|line| line["message"] == event);
        let full =
            matching.clone().find(|line| fields.iter().all(|field| line.get(*field).is_some_and(|it| !it.is_null())));
        let full = full.unwrap_or_else(|| panic!("no {event} with {fields:?} in\n{log_text}"));
        if fields.contains(&"trace_id") {
            assert_eq!(full["trace_id"], TRACE_ID, "{full}");
        }
    }
    let finished = lines.iter().find(|line| line["message"] == "tools.call.finished").unwrap();
    assert_eq!((&finished["tool"], &finished["code"]), (&json!("one__echo"), &json!("OK")));
    assert_eq!(finished["span"]["request_id"], "request-one__echo", "{finished}");
    assert!(!log_text.contains("xyzzy"), "no argument or result is logged\n{log_text}");
}
