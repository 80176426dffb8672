//! What a server asks and says during a call, as clients of either era meet it, directly and over a bridge.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib::Registry;
use toolcrib::core::config::Mode;
use toolcrib_mcp::server::Service;
use toolcrib_mcp::{Client, Era, Notice, Options};
use toolcrib_server::{Bridge, Surface};

use crate::support::{Served, ask, connect, processes, source, text};

const ASKS: [&str; 2] = ["--with", "elicit,announce,meta,hang"];
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

async fn asks(settings: Value) -> (Registry, Surface) {
    processes(json!({ "s": source(&ASKS, settings) }), Mode::Full).await
}

async fn bridge(surface: &Surface) -> (Bridge, Served) {
    let served = Served::at("127.0.0.1:0", surface).await;
    (Bridge::to(served.url.clone()).await.unwrap(), served)
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Value {
    ask(client, "tools/call", json!({ "name": tool, "arguments": arguments })).await.unwrap()
}

fn accepts() -> Value {
    json!({ "action": "accept", "content": { "how": "well" } })
}

/// One that can be asked.
fn askable(options: &mut Options) {
    options.capabilities = to_raw_value(&json!({ "elicitation": {} })).unwrap();
}

/// One that answers at once.
fn answering(options: &mut Options) {
    askable(options);
    options.handler = Some(Arc::new(|_| async { Ok(to_raw_value(&accepts()).unwrap()) }.boxed()));
}

fn modern(options: &mut Options) {
    options.era = Some(Era::Modern);
}

/// The levels of what a client hears during calls, two lines of a log, that carry this `_meta`.
async fn heard(client: &Client, meta: Value) -> Vec<String> {
    let mut notices = client.notices();
    let mut levels = Vec::new();
    for level in ["debug", "error"] {
        let arguments = json!({ "method": "notifications/message", "params": { "level": level, "data": "a word" } });
        let params = json!({ "name": "s__announce", "arguments": arguments, "_meta": meta });
        ask(client, "tools/call", params).await.unwrap();
        // All of it came before the answer.
        while let Ok(notice) = notices.try_recv() {
            if let Notice::Other { params: Some(params), .. } = notice {
                let said: Value = serde_json::from_str(params.get()).unwrap();
                levels.extend(said["level"].as_str().map(str::to_owned));
            }
        }
    }
    levels
}

async fn check_logs(service: &(impl Service + Clone), what: &str) {
    let (legacy, _served) = connect(service, |_| {}).await;
    assert_eq!(heard(&legacy, json!({})).await, ["debug", "error"], "{what}");
    ask(&legacy, "logging/setLevel", json!({ "level": "warning" })).await.unwrap();
    assert_eq!(heard(&legacy, json!({})).await, ["error"], "{what}");

    let (modern, _served) = connect(service, modern).await;
    assert_eq!(heard(&modern, json!({})).await, [""; 0], "{what}");
    assert_eq!(heard(&modern, json!({ LEVEL: "warning" })).await, ["error"], "{what}");
    assert_eq!(heard(&modern, json!({ LEVEL: "debug" })).await, ["debug", "error"], "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_hears_as_much_of_a_log_as_it_wants() {
    let (registry, surface) = asks(json!({})).await;
    check_logs(&surface, "directly").await;
    let (bridge, _served) = bridge(&surface).await;
    check_logs(&bridge, "over a bridge").await;
    bridge.close().await;
    registry.close().await;
}

/// There a level is said with each request, and without one nothing is logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_2026_is_told_the_level_that_a_client_of_2025_set() {
    for version in ["2025-11-25", "2026-07-28"] {
        let flags = [&ASKS[..], &["--version", version]].concat();
        let (registry, surface) = processes(json!({ "s": source(&flags, json!({})) }), Mode::Full).await;
        let (client, _served) = connect(&surface, |_| {}).await;
        let level = async || {
            let meta: Value = serde_json::from_str(&text(&call(&client, "s__meta", json!({})).await)).unwrap();
            meta[LEVEL].clone()
        };
        assert_eq!(level().await, Value::Null, "it wants what the server finds worth saying");
        ask(&client, "logging/setLevel", json!({ "level": "warning" })).await.unwrap();
        assert_eq!(level().await, if version == "2026-07-28" { json!("warning") } else { Value::Null });
        assert_eq!(heard(&client, json!({})).await, ["error"]);
        registry.close().await;
    }
}

async fn elicited(service: &(impl Service + Clone), how: impl FnOnce(&mut Options)) -> Value {
    let (client, _served) = connect(service, how).await;
    serde_json::from_str(&text(&call(&client, "s__elicit", json!({})).await)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_asked_if_it_can_be() {
    let (registry, surface) = asks(json!({})).await;
    assert_eq!(elicited(&surface, answering).await, accepts());
    assert_eq!(elicited(&surface, |_| {}).await["code"], -32601);
    // Each client has a bridge of its own.
    let (one, _served) = bridge(&surface).await;
    assert_eq!(elicited(&one, answering).await, accepts());
    let (other, _served) = bridge(&surface).await;
    assert_eq!(elicited(&other, |_| {}).await["code"], -32601);
    one.close().await;
    other.close().await;
    registry.close().await;
}

/// A question was put to the newest request, whichever it was for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_bridge_a_client_is_asked_through_the_request_that_it_is_about() {
    let source = source(&ASKS, json!({}));
    let (registry, surface) = processes(json!({ "s": source, "other": source }), Mode::Full).await;
    registry.refresh(toolcrib::Refresh::default()).await;
    let (bridge, _served) = bridge(&surface).await;
    let (client, _stream) = connect(&bridge, |options| {
        askable(options);
        modern(options);
    })
    .await;
    // The servers are started for them, so both are under way before one asks.
    let mut elicit = std::pin::pin!(call(&client, "s__elicit", json!({ "n": 1 })));
    let mut hang = std::pin::pin!(call(&client, "other__hang", json!({})));
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
        "inputResponses": { key: accepts() },
        "requestState": wanted["requestState"],
    });
    let answered = tokio::select! {
        biased;
        answered = ask(&client, "tools/call", again) => answered.unwrap(),
        other = &mut hang => panic!("the wrong one: {other}"),
    };
    assert_eq!(serde_json::from_str::<Value>(&text(&answered)).unwrap(), accepts());
    bridge.close().await;
    registry.close().await;
}

/// Whom a server of 2025 asks it does not say; so while one question is open there, no other is put. All else goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_answers_keeps_nobody_from_calling() {
    let (registry, surface) = asks(json!({ "call_timeout": "6s" })).await;
    let (other, _served) = connect(&surface, answering).await;
    call(&other, "s__echo", json!({ "text": "here" })).await;
    let (abandoning, _served) = connect(&surface, |options| {
        askable(options);
        modern(options);
    })
    .await;
    assert_eq!(call(&abandoning, "s__elicit", json!({})).await["resultType"], "input_required");

    assert_eq!(text(&call(&other, "s__echo", json!({ "text": "here" })).await), "here");
    let elicited = async || text(&call(&other, "s__elicit", json!({})).await);
    assert_eq!(elicited().await, r#"{"action":"decline"}"#);
    // Its time is that of its call, and then others are asked again.
    let asked_again = async {
        while !elicited().await.contains("accept") {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::support::SOON, asked_again).await.unwrap();
    registry.close().await;
}
