//! Faulty servers: each discovery ends within its deadline, failed or with one tool skipped, with a readable reason, and
//! without an effect on other sources.
#![cfg(target_os = "linux")]

use serde_json::{Value, json};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::DiscoveryStatus;
use toolcrib::{Code, Refresh};

use crate::support::{SqliteRegistry, cached_tools, call, id, output_text, scripted_source, with_settings};

enum ExpectedOutcome {
    /// The discovery fails, and the message contains all of these.
    Failed(Code, &'static [&'static str]),
    /// The discovery succeeds with this many tools, and these are skipped for a reason that contains the text.
    Succeeded(usize, &'static [(&'static str, &'static str)]),
}
use ExpectedOutcome::{Failed, Succeeded};

/// A source whose discovery ends soon, but not before a busy machine has started the server.
fn impatient(source: Value) -> Value {
    with_settings(source, json!({"discovery_timeout": "10s"}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_servers_fail_alone_with_a_reason() {
    let unavailable = Code::ToolUnavailable;
    let broken = Code::ToolExecutionFailed;
    let cases: Vec<(&str, Value, ExpectedOutcome)> = vec![
        (
            "not_found",
            json!({"command": "no-such-program-anywhere"}),
            Failed(unavailable, &["`no-such-program-anywhere`", "not found on PATH", "install it"]),
        ),
        ("no_file", json!({"command": "/no/such/file"}), Failed(unavailable, &["`/no/such/file`", "no such file"])),
        (
            "no_cwd",
            with_settings(scripted_source(&[]), json!({"cwd": "/no/such/place"})),
            Failed(unavailable, &["`cwd`", "`/no/such/place`", "not a directory"]),
        ),
        (
            "exits",
            scripted_source(&["--exit", "3"]),
            Failed(
                unavailable,
                &[
                    "the server exited while connecting (exit status 3)",
                    "; stderr: scripted-server: exits with code 3, as requested; `toolcrib logs exits` shows more",
                ],
            ),
        ),
        (
            "not_mcp",
            impatient(scripted_source(&["--not-mcp"])),
            Failed(
                unavailable,
                &[
                    "no answer within 10s while connecting",
                    "it printed `Welcome to the wrong program!`, so it is probably not an MCP server",
                ],
            ),
        ),
        (
            "hangs_at_start",
            impatient(scripted_source(&["--hang", "start"])),
            Failed(unavailable, &["no answer within 10s while connecting"]),
        ),
        (
            "hangs_on_list",
            impatient(scripted_source(&["--hang", "list"])),
            Failed(unavailable, &["no answer within 10s while listing its tools"]),
        ),
        ("too_big", scripted_source(&["--big", "104857600"]), Failed(broken, &["over the limit of 33554432"])),
        (
            "too_many",
            scripted_source(&["--tools", "50000"]),
            Failed(broken, &["the number of tools is over the limit of 20000"]),
        ),
        ("same_cursor", scripted_source(&["--same-cursor"]), Failed(broken, &["repeats a page and would never end"])),
        ("junk", scripted_source(&["--junk"]), Succeeded(3, &[])),
        ("no_schema", scripted_source(&["--no-schema"]), Succeeded(4, &[])),
        (
            "deep",
            scripted_source(&["--deep", "1000"]),
            Succeeded(3, &[("deep", "its input schema is nested deeper than 64 levels")]),
        ),
        (
            "deeper",
            scripted_source(&["--deep", "10000"]),
            Succeeded(3, &[("deep", "its input schema is larger than 262144 bytes")]),
        ),
        ("not_text", scripted_source(&["--invalid-utf8"]), Succeeded(4, &[])),
        ("nobody_home", json!({"url": "http://127.0.0.1:1/mcp"}), Failed(unavailable, &["no connection"])),
        (
            "no_secret",
            json!({"command": "x", "args": ["${env:TOOLCRIB_NO_SUCH_VARIABLE}"]}),
            Failed(Code::ConfigInvalid, &["`${env:TOOLCRIB_NO_SUCH_VARIABLE}` cannot be resolved"]),
        ),
    ];
    let mut sources = json!({"good": scripted_source(&["--tools", "20"])});
    for (name, source, _) in &cases {
        sources[name] = source.clone();
    }
    let fixture = SqliteRegistry::open(sources).await;
    let outcomes = fixture.refresh(Refresh::default()).await;
    assert_eq!(outcomes.len(), cases.len() + 1);

    for (name, _, ends) in &cases {
        let outcome = outcomes.iter().find(|outcome| outcome.source == id(name)).unwrap();
        let view = fixture.sources().get(&id(name)).unwrap();
        match ends {
            Failed(code, parts) => {
                assert_eq!(
                    (outcome.status, view.status),
                    (RefreshStatus::Failed, DiscoveryStatus::Failed),
                    "{name}: {outcome:?}"
                );
                let failure = outcome.error.as_ref().unwrap();
                assert_eq!(view.last_error.as_ref(), Some(failure));
                assert_eq!(failure.code, *code, "{name}: {}", failure.message);
                for part in *parts {
                    assert!(failure.message.contains(part), "{name}: {}", failure.message);
                }
                assert!(failure.message.len() < 600, "{name}: {}", failure.message);
            }
            Succeeded(count, skipped) => {
                assert_eq!((outcome.status, view.tool_count), (RefreshStatus::Success, *count), "{name}: {outcome:?}");
                assert_eq!(view.skipped.len(), skipped.len(), "{name}: {:?}", view.skipped);
                for ((tool, reason), actual) in skipped.iter().zip(&view.skipped) {
                    assert_eq!(actual.name, *tool);
                    assert!(actual.reason.contains(reason), "{name}: {}", actual.reason);
                }
            }
        }
    }
    assert_eq!(cached_tools(&fixture).iter().filter(|tool| tool.starts_with("good__")).count(), 20);
    assert_eq!(output_text(&call(&fixture, "good__echo", json!({"text": "well"})).await.unwrap()), "well");
    let schema = fixture.tool("no_schema__no_schema").unwrap().tool.listing.input_schema;
    assert_eq!(schema.get(), r#"{"type":"object"}"#);
    fixture.registry.close().await;
}

#[tokio::test]
async fn a_server_that_stops_answering_keeps_its_last_tool_list() {
    let home = tempfile::tempdir().unwrap();
    let fixture = SqliteRegistry::open_in(home, json!({"s": scripted_source(&[])})).await;
    fixture.refresh(Refresh::default()).await;
    let bad = json!({"s": with_settings(scripted_source(&["--hang", "list"]), json!({"discovery_timeout": "1s"}))});
    let fixture = fixture.reopen(bad).await;
    assert_eq!(cached_tools(&fixture).len(), 3, "a stale list is still listed");
    let outcome = fixture.refresh(Refresh::default()).await.remove(0);
    assert_eq!((outcome.status, outcome.unchanged), (RefreshStatus::Failed, 3));
    assert_eq!(cached_tools(&fixture).len(), 3);
}
