//! How long a source may keep anyone waiting, and what is said when the time is up.
#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib::refresh::Refreshed;
use toolcrib::{Code, Refresh};

use crate::support::{Workshop, call, scripted, text};

/// Far below the 30 seconds that a discovery has, and far above what is set here.
const IN_TIME: Duration = Duration::from_secs(15);

/// An address where every connection is accepted by the system and no request is ever read.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn connect_timeout_bounds_the_handshake_over_http() {
    let (_listening, url) = silent();
    let sources = json!({
        "http": {"url": url, "connect_timeout": "200ms"},
        "sse": {"url": url, "transport": "sse", "connect_timeout": "200ms"},
    });
    let workshop = Workshop::open(sources).await;
    let began = Instant::now();
    let outcomes = workshop.refresh(Refresh::default()).await;
    let called = call(&workshop, "http__echo", json!({})).await.unwrap_err();
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());

    let message = "no answer within 200ms while connecting and waiting for the response to `server/discover` or \
                   `initialize`; `connect_timeout` sets this limit";
    for outcome in outcomes {
        let error = outcome.error.unwrap();
        assert_eq!(
            (outcome.status, error.code, error.message.as_str()),
            (Refreshed::Failed, Code::ToolUnavailable, message)
        );
    }
    assert!(called.retryable(), "{called:?}");
}

#[tokio::test]
async fn connect_timeout_does_not_bound_the_start_of_a_process() {
    let slow = "sleep 0.5; exec \"$0\" \"$@\"";
    let server = scripted(&[]);
    let source = json!({"command": "sh", "args": ["-c", slow, server["command"]], "connect_timeout": "50ms"});
    let workshop = Workshop::open(json!({"slow": source})).await;
    assert_eq!(text(&call(&workshop, "slow__echo", json!({"text": "up"})).await.unwrap()), "up");
}
