//! Timeouts of sources, and the messages when they pass.
#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
use toolcrib::refresh::RefreshStatus;
use toolcrib::{Code, Refresh, RefreshOutcome};

use crate::support::{
    SqliteRegistry, call, is_running, open_scripted, output_text, read_lines, refresh, scripted_source, skip_time,
    wait_until,
};

/// Returns a listener that accepts connections (in the kernel's backlog) and never reads a request, and its URL.
fn silent_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn connect_timeout_bounds_the_handshake_over_http() {
    let (_listening, url) = silent_listener();
    let sources = json!({
        "http": {"url": url, "connect_timeout": "200ms"},
        "sse": {"url": url, "transport": "sse", "connect_timeout": "200ms"},
    });
    let fixture = SqliteRegistry::open(sources).await;
    let outcomes = fixture.refresh(Refresh::default()).await;
    let called = call(&fixture, "http__echo", json!({})).await.unwrap_err();

    let message = "no answer within 200ms while connecting and waiting for the response to `server/discover` or \
                   `initialize`; `connect_timeout` sets this limit";
    for outcome in outcomes {
        let error = outcome.error.unwrap();
        assert_eq!(
            (outcome.status, error.code, error.message.as_str()),
            (RefreshStatus::Failed, Code::ToolUnavailable, message)
        );
    }
    assert!(called.is_retryable(), "{called:?}");
}

#[tokio::test]
async fn connect_timeout_does_not_bound_the_start_of_a_process() {
    let slow = "sleep 0.5; exec \"$0\" \"$@\"";
    let server = scripted_source(&[]);
    let source = json!({"command": "sh", "args": ["-c", slow, server["command"]], "connect_timeout": "50ms"});
    let fixture = SqliteRegistry::open(json!({"slow": source})).await;
    assert_eq!(output_text(&call(&fixture, "slow__echo", json!({"text": "up"})).await.unwrap()), "up");
}

/// Flags of a server that hangs when it lists its tools.
const HANG_FLAGS: [&str; 7] =
    ["--hang", "list", "--ignore-eof", "--count-file", "{home}/starts", "--log-file", "{home}/log"];

/// Refreshes the source; its timeout of 40 s passes at once when the server has received the request for its tools.
async fn refresh_past_deadline(fixture: &SqliteRegistry) -> RefreshOutcome {
    tokio::join!(refresh(fixture, "s"), skip_time_after(fixture, "tools/list")).0
}

async fn skip_time_after(fixture: &SqliteRegistry, method: &str) {
    let received = || read_lines(&fixture.path("log")).iter().any(|line| line.contains(method));
    wait_until("the server has received it", received).await;
    skip_time(Duration::from_secs(40)).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_reported_at_its_deadline_and_stopped_afterwards() {
    let fixture = open_scripted(&HANG_FLAGS, json!({"discovery_timeout": "40s"})).await;
    let outcome = refresh_past_deadline(&fixture).await;
    assert_eq!(outcome.error.unwrap().message, "no answer within 40s while listing its tools");
    // Stopping a server that ignores EOF takes 2.5 s; the report must not wait for that.
    let pid = read_lines(&fixture.path("starts")).remove(0);
    assert!(is_running(&pid), "the report came after the end of the server");
    wait_until("the server is stopped", || !is_running(&pid)).await;
}

#[tokio::test]
async fn a_timed_out_call_does_not_wait_for_its_server_to_end() {
    let hanging = ["--with", "hang", "--ignore-eof", "--count-file", "{home}/starts", "--log-file", "{home}/log"];
    let fixture = open_scripted(&hanging, json!({"lifecycle": "transient", "call_timeout": "40s"})).await;
    refresh(&fixture, "s").await;
    let hanging = call(&fixture, "s__hang", json!({}));
    let error = tokio::join!(hanging, skip_time_after(&fixture, "tools/call")).0.unwrap_err();
    assert_eq!(error.message, "`hang` of `s` timed out after 40s");
    let pid = read_lines(&fixture.path("starts")).remove(1);
    assert!(is_running(&pid), "the error came after the end of the server");
    wait_until("the server is stopped", || !is_running(&pid)).await;
}

#[tokio::test]
async fn closing_ends_a_server_that_is_being_stopped() {
    let fixture = open_scripted(&HANG_FLAGS, json!({"discovery_timeout": "40s"})).await;
    refresh_past_deadline(&fixture).await;
    let pid = read_lines(&fixture.path("starts")).remove(0);
    fixture.registry.clone().close().await;
    assert!(!is_running(&pid));
}
