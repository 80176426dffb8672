//! How long a source may keep anyone waiting, and what is said when the time is up.
#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib::refresh::RefreshStatus;
use toolcrib::{CallOptions, Code, Refresh};

use crate::support::{
    SqliteRegistry, agent, call, is_running, open_scripted, output_text, read_lines, refresh, scripted_source,
    wait_until,
};

/// Far below the 30 seconds that a discovery has, and far above what is set here.
const MAX_ELAPSED: Duration = Duration::from_secs(15);

/// An address where every connection is accepted by the system and no request is ever read.
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
    let workshop = SqliteRegistry::open(sources).await;
    let began = Instant::now();
    let outcomes = workshop.refresh(Refresh::default()).await;
    let called = call(&workshop, "http__echo", json!({})).await.unwrap_err();
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
    let workshop = SqliteRegistry::open(json!({"slow": source})).await;
    assert_eq!(output_text(&call(&workshop, "slow__echo", json!({"text": "up"})).await.unwrap()), "up");
}

#[tokio::test]
async fn a_server_that_hangs_is_reported_at_its_deadline_and_stopped_afterwards() {
    let hanging = ["--hang", "list", "--ignore-eof", "--count-file", "{home}/starts"];
    let workshop = open_scripted(&hanging, json!({"discovery_timeout": "1s"})).await;
    let outcome = refresh(&workshop, "s").await;
    assert_eq!(outcome.error.unwrap().message, "no answer within 1s while listing its tools");
    // To end one that ignores the end of its input takes 2.5 s, which is not waited for.
    let pid = read_lines(&workshop.path("starts")).remove(0);
    assert!(is_running(&pid), "the report came after the end of the server");
    wait_until("the server is stopped", || !is_running(&pid)).await;
}

#[tokio::test]
async fn a_call_that_times_out_does_not_wait_for_its_server_to_end() {
    let hanging = ["--with", "hang", "--ignore-eof", "--count-file", "{home}/starts"];
    let workshop = open_scripted(&hanging, json!({"lifecycle": "transient"})).await;
    refresh(&workshop, "s").await;
    let options = CallOptions { timeout: Some(Duration::from_secs(1)), ..CallOptions::default() };
    let error = workshop.call(&agent(), "s__hang", json!({}), options).await.unwrap_err();
    assert!(error.message.starts_with("`hang` of `s` did not answer within"), "{error}");
    let pid = read_lines(&workshop.path("starts")).remove(1);
    assert!(is_running(&pid), "the error came after the end of the server");
    wait_until("the server is stopped", || !is_running(&pid)).await;
}

#[tokio::test]
async fn closing_ends_a_server_that_is_being_stopped() {
    let hanging = ["--hang", "list", "--ignore-eof", "--count-file", "{home}/starts"];
    let workshop = open_scripted(&hanging, json!({"discovery_timeout": "1s"})).await;
    refresh(&workshop, "s").await;
    let pid = read_lines(&workshop.path("starts")).remove(0);
    workshop.registry.clone().close().await;
    assert!(!is_running(&pid));
}
