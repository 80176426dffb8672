//! Runs the programs in `examples/` as a reader would: each must succeed and print the line that shows its point.

use std::path::PathBuf;
use std::process::{Command, Stdio};

fn check(example: &str, expected_line: &str) {
    let output = Command::new(example_path(example)).stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.lines().any(|line| line == expected_line), "{example}: no line `{expected_line}` in\n{stdout}");
}

/// Path of an example that cargo built next to this test.
pub(crate) fn example_path(example: &str) -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples");
    let path = directory.join(example).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "no {}: run `cargo build -p toolcrib --examples` first", path.display());
    path
}

#[test]
fn examples_of_calls_run() {
    check("first_call", r#"6 * 7: {"result":42}"#);
    check("own_tools", r#"{"balance":70}"#);
    check("policy_and_consent", r#"with consent: {"result":42}"#);
    check("timeouts_and_errors", "success: waited");
    check("agent_loop", r#"      "text": "It is 42.""#);
}

#[test]
fn examples_of_catalogues_run() {
    check("search_and_describe", "best match: current_time");
    check(
        "provider_formats",
        r#"mcp: [{"name":"get_weather","description":"Returns the weather of a city","inputSchema":{"type":"object","properties":{"city":{"type":"string","description":"Name of the city"},"unit":{"enum":["celsius","fahrenheit"],"default":"celsius"}},"required":["city"]}}]"#,
    );
    check(
        "tokens_and_summary",
        "You can use 7 tools from 1 source. Their schemas are not loaded; use these three tools:",
    );
}

#[test]
fn examples_of_changes_run() {
    check("events", "my-agent called ping: OK");
    check("history_and_diff", "removed: shop__list");
}

#[test]
fn examples_of_sources_run() {
    check("mcp_server_stdio", "Hello, Ada!");
    check("openapi_source", r#"order: {"id":1,"sku":"milk-1"}"#);
    check("workflow", r#"result: {"sku":"milk-1","order":1}"#);
}
