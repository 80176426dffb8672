//! Monitoring of `toolcrib serve`: health, readiness, metrics and request ids.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;
use toolcrib_testkit::programs;

use crate::support::http::{RawHttpResponse, call_tool, request};
use crate::support::test_server::{TestWorkspace, wait_until};

#[test]
fn a_response_has_the_id_of_its_request() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let server = workspace.serve();
    let get = |path: &str, headers: &str| request(&server.url, "GET", path, headers, "");
    let with_id = get("/api/sources", "X-Request-Id: abc-123\r\n");
    assert_eq!((with_id.status, with_id.header("x-request-id")), (200, Some("abc-123")));
    for (path, headers) in
        [("/healthz", ""), ("/nowhere", ""), ("/metrics", "X-Request-Id: a b\r\n"), ("/", "Host: evil.example\r\n")]
    {
        let response = get(path, headers);
        let id = response.header("x-request-id").unwrap_or_else(|| panic!("{path}: {response:?}"));
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{path}: {id}");
    }
}

#[test]
fn health_and_readiness_are_reported() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut server = workspace.serve();
    for (path, expected) in [("/healthz", "ok\n"), ("/readyz", r#"{"status":"ready","store":{"state":"ok"}}"#)] {
        let response = request(&server.url, "GET", path, "", "");
        assert_eq!((response.status, response.body.as_str()), (200, expected), "{path}");
    }
    server.signal("TERM");
    assert!(server.wait_for_exit().success());
}

#[test]
fn metrics_are_exact_and_accepted_by_promtool() {
    let sources = json!({ "one": { "command": programs::scripted_server(), "args": ["--with", "fail", "--with", "rpc_error"] }, "broken": { "command": "no-such-program-here" } });
    let workspace = TestWorkspace::new(&sources, &json!({}));
    let server = workspace.serve();
    for (tool, arguments) in
        [("one__echo", json!({"text": "a"})), ("one:echo", json!({"text": "b"})), ("one__nothing", json!({}))]
    {
        call_tool(&server, tool, &arguments, json!({}));
    }
    for tool in ["one__fail", "one__fail", "broken__x"] {
        call_tool(&server, tool, &json!({}), json!({}));
    }
    let json = "Content-Type: application/json\r\n";
    assert_eq!(request(&server.url, "POST", "/api/tools/one__rpc_error/call", json, "{}").status, 502);
    let scrape = || request(&server.url, "GET", "/metrics", "", "");
    wait_until("the failed discovery to be counted", || {
        scrape().body.contains("toolcrib_discoveries_total{kind=\"mcp\",outcome=\"failed\"}")
    });

    let response = scrape();
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "toolcrib_discoveries_total{kind=\"mcp\",outcome=\"success\"} 1",
        "toolcrib_discovery_duration_seconds_count{kind=\"mcp\",outcome=\"success\"} 1",
        "toolcrib_cache_misses_total{source=\"one\"} 1",
        "toolcrib_calls_total{source=\"one\",code=\"OK\"} 2",
        "toolcrib_calls_total{source=\"one\",code=\"TOOL_EXECUTION_FAILED\"} 1",
        "toolcrib_calls_total{source=\"one\",code=\"TOOL_EXECUTION_FAILED\",by=\"tool\"} 2",
        "toolcrib_calls_total{source=\"\",code=\"TOOL_NOT_IMPLEMENTED\"} 1",
        "toolcrib_calls_total{source=\"\",code=\"TOOL_UNAVAILABLE\"} 1",
        "toolcrib_call_duration_seconds_bucket{source=\"one\",le=\"+Inf\"} 5",
        "toolcrib_calls_in_flight 0",
        "toolcrib_sources{status=\"failed\"} 1",
        "toolcrib_source_connections{state=\"connected\"} 1",
        "toolcrib_source_up{source=\"broken\"} 0",
        "toolcrib_http_requests_total{class=\"mcp\",status=\"200\"} 6",
        "toolcrib_event_listeners 0",
        "toolcrib_ready 1",
    ] {
        assert!(response.body.lines().any(|found| found == line), "no {line} in\n{}", response.body);
    }
    for name in ["toolcrib_journal_position ", "process_start_time_seconds ", "toolcrib_build_info{version=\""] {
        assert!(response.body.contains(&format!("\n{name}")), "no {name} in\n{}", response.body);
    }
    assert_promtool_accepts(&response);
}

fn assert_promtool_accepts(response: &RawHttpResponse) {
    let mut command = Command::new("promtool");
    let started =
        command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = started.spawn() else {
        return programs::skip("promtool on metrics", "`promtool` is not installed; it is in Debian's `prometheus`");
    };
    promtool.stdin.take().unwrap().write_all(response.body.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let expected = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && expected.is_empty(), "{}", String::from_utf8_lossy(&expected));
}
