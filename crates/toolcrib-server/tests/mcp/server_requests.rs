//! What a server asks and says during a call, as clients of either era meet it, directly and over a bridge.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib::Registry;
use toolcrib::core::config::ExposeMode;
use toolcrib_mcp::server::Service;
use toolcrib_mcp::{ClientOptions, ConnectionEvent, Era, McpClient};
use toolcrib_server::{Bridge, McpService};

use crate::support::{HttpTestServer, connect_client, open_with_processes, process_source, result_text, send_request};

const SERVER_FLAGS: [&str; 2] = ["--with", "elicit,announce,meta,hang"];
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

async fn open_asking_server(settings: Value) -> (Registry, McpService) {
    open_with_processes(json!({ "s": process_source(&SERVER_FLAGS, settings) }), ExposeMode::Full).await
}

async fn open_bridge(surface: &McpService) -> (Bridge, HttpTestServer) {
    let served = HttpTestServer::start("127.0.0.1:0", surface).await;
    (Bridge::open(served.url.clone()).await.unwrap(), served)
}

async fn call_tool(client: &McpClient, tool: &str, arguments: Value) -> Value {
    send_request(client, "tools/call", json!({ "name": tool, "arguments": arguments })).await.unwrap()
}

fn accept_response() -> Value {
    json!({ "action": "accept", "content": { "how": "well" } })
}

/// One that can be asked.
fn enable_elicitation(options: &mut ClientOptions) {
    options.capabilities = to_raw_value(&json!({ "elicitation": {} })).unwrap();
}

/// One that answers at once.
fn answer_elicitation(options: &mut ClientOptions) {
    enable_elicitation(options);
    options.handler = Some(Arc::new(|_| async { Ok(to_raw_value(&accept_response()).unwrap()) }.boxed()));
}

fn use_modern_era(options: &mut ClientOptions) {
    options.era = Some(Era::Modern);
}

/// The levels of what a client hears during calls, two lines of a log, that carry this `_meta`.
async fn received_log_levels(client: &McpClient, meta: Value) -> Vec<String> {
    let mut notices = client.events();
    let mut levels = Vec::new();
    for level in ["debug", "error"] {
        let arguments = json!({ "method": "notifications/message", "params": { "level": level, "data": "a word" } });
        let params = json!({ "name": "s__announce", "arguments": arguments, "_meta": meta });
        send_request(client, "tools/call", params).await.unwrap();
        // All of it came before the answer.
        while let Ok(notice) = notices.try_recv() {
            if let ConnectionEvent::Other { params: Some(params), .. } = notice {
                let said: Value = serde_json::from_str(params.get()).unwrap();
                levels.extend(said["level"].as_str().map(str::to_owned));
            }
        }
    }
    levels
}

async fn check_logs(service: &(impl Service + Clone), what: &str) {
    let (legacy, _served) = connect_client(service, |_| {}).await;
    assert_eq!(received_log_levels(&legacy, json!({})).await, ["debug", "error"], "{what}");
    send_request(&legacy, "logging/setLevel", json!({ "level": "warning" })).await.unwrap();
    assert_eq!(received_log_levels(&legacy, json!({})).await, ["error"], "{what}");

    let (modern, _served) = connect_client(service, use_modern_era).await;
    assert_eq!(received_log_levels(&modern, json!({})).await, [""; 0], "{what}");
    assert_eq!(received_log_levels(&modern, json!({ LOG_LEVEL_KEY: "warning" })).await, ["error"], "{what}");
    assert_eq!(received_log_levels(&modern, json!({ LOG_LEVEL_KEY: "debug" })).await, ["debug", "error"], "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hears_as_much_of_a_log_as_it_wants() {
    let (registry, surface) = open_asking_server(json!({})).await;
    check_logs(&surface, "directly").await;
    let (bridge, _served) = open_bridge(&surface).await;
    check_logs(&bridge, "over a bridge").await;
    bridge.close().await;
    registry.close().await;
}

/// There a level is said with each request, and without one nothing is logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_2026_is_told_the_level_that_a_client_of_2025_set() {
    for version in ["2025-11-25", "2026-07-28"] {
        let flags = [&SERVER_FLAGS[..], &["--version", version]].concat();
        let (registry, surface) =
            open_with_processes(json!({ "s": process_source(&flags, json!({})) }), ExposeMode::Full).await;
        let (client, _served) = connect_client(&surface, |_| {}).await;
        let level = async || {
            let meta: Value =
                serde_json::from_str(&result_text(&call_tool(&client, "s__meta", json!({})).await)).unwrap();
            meta[LOG_LEVEL_KEY].clone()
        };
        assert_eq!(level().await, Value::Null, "it wants what the server finds worth saying");
        send_request(&client, "logging/setLevel", json!({ "level": "warning" })).await.unwrap();
        assert_eq!(level().await, if version == "2026-07-28" { json!("warning") } else { Value::Null });
        assert_eq!(received_log_levels(&client, json!({})).await, ["error"]);
        registry.close().await;
    }
}

async fn elicit(service: &(impl Service + Clone), how: impl FnOnce(&mut ClientOptions)) -> Value {
    let (client, _served) = connect_client(service, how).await;
    serde_json::from_str(&result_text(&call_tool(&client, "s__elicit", json!({})).await)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_asked_if_it_can_be() {
    let (registry, surface) = open_asking_server(json!({})).await;
    assert_eq!(elicit(&surface, answer_elicitation).await, accept_response());
    assert_eq!(elicit(&surface, |_| {}).await["code"], -32601);
    // Each client has a bridge of its own.
    let (one, _served) = open_bridge(&surface).await;
    assert_eq!(elicit(&one, answer_elicitation).await, accept_response());
    let (other, _served) = open_bridge(&surface).await;
    assert_eq!(elicit(&other, |_| {}).await["code"], -32601);
    one.close().await;
    other.close().await;
    registry.close().await;
}

/// A question was put to the newest request, whichever it was for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_bridge_a_client_is_asked_through_the_request_that_it_is_about() {
    let source = process_source(&SERVER_FLAGS, json!({}));
    let (registry, surface) = open_with_processes(json!({ "s": source, "other": source }), ExposeMode::Full).await;
    registry.refresh(toolcrib::Refresh::default()).await;
    let (bridge, _served) = open_bridge(&surface).await;
    let (client, _stream) = connect_client(&bridge, |options| {
        enable_elicitation(options);
        use_modern_era(options);
    })
    .await;
    // The servers are started for them, so both are under way before one asks.
    let mut elicit = std::pin::pin!(call_tool(&client, "s__elicit", json!({ "n": 1 })));
    let mut hang = std::pin::pin!(call_tool(&client, "other__hang", json!({})));
    let wanted = tokio::select! {
        biased;
        wanted = &mut elicit => wanted,
        other = &mut hang => panic!("the wrong one: {other}"),
    };
    assert_eq!(wanted["resultType"], "input_required", "{wanted}");
    let (key, question) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["params"]["asked"], json!({ "n": 1 }));
    let again = json!({
        "name": "s__elicit",
        "arguments": { "n": 1 },
        "inputResponses": { key: accept_response() },
        "requestState": wanted["requestState"],
    });
    let answered = tokio::select! {
        biased;
        answered = send_request(&client, "tools/call", again) => answered.unwrap(),
        other = &mut hang => panic!("the wrong one: {other}"),
    };
    assert_eq!(serde_json::from_str::<Value>(&result_text(&answered)).unwrap(), accept_response());
    bridge.close().await;
    registry.close().await;
}

/// Whom a server of 2025 asks it does not say; so while one question is open there, no other is put. All else goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_answers_keeps_nobody_from_calling() {
    let (registry, surface) = open_asking_server(json!({ "call_timeout": "6s" })).await;
    let (other, _served) = connect_client(&surface, answer_elicitation).await;
    call_tool(&other, "s__echo", json!({ "text": "here" })).await;
    let (abandoning, _served) = connect_client(&surface, |options| {
        enable_elicitation(options);
        use_modern_era(options);
    })
    .await;
    assert_eq!(call_tool(&abandoning, "s__elicit", json!({})).await["resultType"], "input_required");

    assert_eq!(result_text(&call_tool(&other, "s__echo", json!({ "text": "here" })).await), "here");
    let elicited = async || result_text(&call_tool(&other, "s__elicit", json!({})).await);
    assert_eq!(elicited().await, r#"{"action":"decline"}"#);
    // Its time is that of its call, and then others are asked again.
    let asked_again = async {
        while !elicited().await.contains("accept") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::support::TEST_TIMEOUT, asked_again).await.unwrap();
    registry.close().await;
}
