//! Timeouts of sources, and the messages when they pass.
#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib::call::CallDeadline;
use toolcrib::refresh::RefreshStatus;
use toolcrib::{CallContext, Code, Refresh};

use crate::support::{
    SqliteRegistry, agent, call, is_running, open_scripted, output_text, read_lines, refresh, scripted_source,
    wait_until,
};

/// Far below the 30 s of a discovery, and far above the timeouts set here.
const MAX_ELAPSED: Duration = Duration::from_secs(15);

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
    let began = Instant::now();
    let outcomes = fixture.refresh(Refresh::default()).await;
    let called = call(&fixture, "http__echo", json!({})).await.unwrap_err();
    assert!(began.elapsed() < MAX_ELAPSED, "{:?}", began.elapsed());

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

#[tokio::test]
async fn a_server_that_hangs_is_reported_at_its_deadline_and_stopped_afterwards() {
    let hanging = ["--hang", "list", "--ignore-eof", "--count-file", "{home}/starts"];
    let fixture = open_scripted(&hanging, json!({"discovery_timeout": "1s"})).await;
    let outcome = refresh(&fixture, "s").await;
    assert_eq!(outcome.error.unwrap().message, "no answer within 1s while listing its tools");
    // Stopping a server that ignores EOF takes 2.5 s; the report must not wait for that.
    let pid = read_lines(&fixture.path("starts")).remove(0);
    assert!(is_running(&pid), "the report came after the end of the server");
    wait_until("the server is stopped", || !is_running(&pid)).await;
}

#[tokio::test]
async fn a_timed_out_call_does_not_wait_for_its_server_to_end() {
    let hanging = ["--with", "hang", "--ignore-eof", "--count-file", "{home}/starts"];
    let fixture = open_scripted(&hanging, json!({"lifecycle": "transient"})).await;
    refresh(&fixture, "s").await;
    let options = CallContext { deadline: Some(CallDeadline::after(Duration::from_secs(1))), ..CallContext::default() };
    let error = fixture.call("s__hang", json!({})).context(options).caller(agent()).await.unwrap_err();
    assert_eq!(error.message, "`hang` of `s` timed out after 1s");
    let pid = read_lines(&fixture.path("starts")).remove(1);
    assert!(is_running(&pid), "the error came after the end of the server");
    wait_until("the server is stopped", || !is_running(&pid)).await;
}

#[tokio::test]
async fn closing_ends_a_server_that_is_being_stopped() {
    let hanging = ["--hang", "list", "--ignore-eof", "--count-file", "{home}/starts"];
    let fixture = open_scripted(&hanging, json!({"discovery_timeout": "1s"})).await;
    refresh(&fixture, "s").await;
    let pid = read_lines(&fixture.path("starts")).remove(0);
    fixture.registry.clone().close().await;
    assert!(!is_running(&pid));
}
