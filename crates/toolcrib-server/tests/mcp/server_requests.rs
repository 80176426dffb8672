//! Tests elicitation and log messages that a server sends during a call, for clients of both eras, directly and over
//! a bridge.

use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib::config::{Expose, ExposeMode};
use toolcrib::core::policy::{Rule, Rules, Verdict};
use toolcrib::store::{MemoryStore, Store};
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Registry, RegistryOptions};
use toolcrib_mcp::server::Service;
use toolcrib_mcp::{ClientOptions, ConnectionEvent, Era, McpClient, RequestOptions, WireError};
use toolcrib_server::{Bridge, McpService};
use toolcrib_testkit::observe::{read_lines, wait_until, wait_until_async};
use toolcrib_testkit::programs::{scripted_source, with_settings};

use super::support::{
    TEST_TIMEOUT, connect_client, connect_client_to, open_with_processes, result_text, send_request, serve_http,
    text_tool,
};
use crate::test_server::{RunningServer, open_scripted};

const SERVER_FLAGS: [&str; 2] = ["--with", "elicit,announce,meta,hang"];
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

async fn open_asking_server(settings: Value) -> (Registry, McpService) {
    open_with_processes(json!({ "s": with_settings(scripted_source(&SERVER_FLAGS), settings) }), ExposeMode::Full).await
}

async fn open_bridge(service: &McpService) -> (Bridge, RunningServer) {
    let served = serve_http("127.0.0.1:0", service).await;
    (Bridge::open(served.mcp_url()).await.unwrap(), served)
}

async fn call_tool(client: &McpClient, tool: &str, arguments: Value) -> Value {
    send_request(client, "tools/call", json!({ "name": tool, "arguments": arguments })).await.unwrap()
}

fn accept_response() -> Value {
    json!({ "action": "accept", "content": { "how": "well" } })
}

/// Declares that the client supports elicitation.
fn enable_elicitation(options: &mut ClientOptions) {
    options.capabilities = to_raw_value(&json!({ "elicitation": {} })).unwrap();
}

/// Makes the client accept every elicitation at once.
fn answer_elicitation(options: &mut ClientOptions) {
    enable_elicitation(options);
    options.handler = Some(Arc::new(|_| async { Ok(to_raw_value(&accept_response()).unwrap()) }.boxed()));
}

fn use_modern_era(options: &mut ClientOptions) {
    options.era = Some(Era::Modern);
}

/// Makes two calls with this `_meta`, each of which logs one message, and returns the levels that the client received.
async fn received_log_levels(client: &McpClient, meta: Value) -> Vec<String> {
    let mut notices = client.events();
    let mut levels = Vec::new();
    for level in ["debug", "error"] {
        let arguments = json!({ "method": "notifications/message", "params": { "level": level, "data": "a word" } });
        let params = json!({ "name": "s__announce", "arguments": arguments, "_meta": meta });
        send_request(client, "tools/call", params).await.unwrap();
        // All messages arrive before the result of the call.
        while let Ok(notice) = notices.try_recv() {
            if let ConnectionEvent::Other { params: Some(params), .. } = notice {
                let message: Value = serde_json::from_str(params.get()).unwrap();
                levels.extend(message["level"].as_str().map(str::to_owned));
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
async fn log_messages_are_filtered_by_the_level_of_the_client() {
    let (registry, service) = open_asking_server(json!({})).await;
    check_logs(&service, "directly").await;
    let (bridge, _served) = open_bridge(&service).await;
    check_logs(&bridge, "over a bridge").await;
    bridge.close().await;
    registry.close().await;
}

/// A modern server gets the level with each request, and logs nothing without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_server_gets_the_log_level_of_a_legacy_client() {
    for version in ["2025-11-25", "2026-07-28"] {
        let flags = [&SERVER_FLAGS[..], &["--version", version]].concat();
        let (registry, service) = open_with_processes(json!({ "s": scripted_source(&flags) }), ExposeMode::Full).await;
        let (client, _served) = connect_client(&service, |_| {}).await;
        let level = async || {
            let meta: Value =
                serde_json::from_str(&result_text(&call_tool(&client, "s__meta", json!({})).await)).unwrap();
            meta[LOG_LEVEL_KEY].clone()
        };
        assert_eq!(level().await, Value::Null, "without a level the server decides");
        send_request(&client, "logging/setLevel", json!({ "level": "warning" })).await.unwrap();
        assert_eq!(level().await, if version == "2026-07-28" { json!("warning") } else { Value::Null });
        assert_eq!(received_log_levels(&client, json!({})).await, ["error"]);
        registry.close().await;
    }
}

async fn elicit(service: &(impl Service + Clone), configure: impl FnOnce(&mut ClientOptions)) -> Value {
    let (client, _served) = connect_client(service, configure).await;
    serde_json::from_str(&result_text(&call_tool(&client, "s__elicit", json!({})).await)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elicitation_reaches_clients_that_support_it() {
    let (registry, service) = open_asking_server(json!({})).await;
    assert_eq!(elicit(&service, answer_elicitation).await, accept_response());
    assert_eq!(elicit(&service, |_| {}).await["code"], -32601);
    // Each client has its own bridge.
    let (supporting_bridge, _served) = open_bridge(&service).await;
    assert_eq!(elicit(&supporting_bridge, answer_elicitation).await, accept_response());
    let (unsupporting_bridge, _served) = open_bridge(&service).await;
    assert_eq!(elicit(&unsupporting_bridge, |_| {}).await["code"], -32601);
    supporting_bridge.close().await;
    unsupporting_bridge.close().await;
    registry.close().await;
}

/// An elicitation used to be sent on the newest request, whichever call it belonged to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_bridge_elicitation_belongs_to_its_request() {
    let source = scripted_source(&SERVER_FLAGS);
    let (registry, service) = open_with_processes(json!({ "s": source, "other": source }), ExposeMode::Full).await;
    registry.refresh(toolcrib::Refresh::default()).await;
    let (bridge, _served) = open_bridge(&service).await;
    let (client, _stream) = connect_client(&bridge, |options| {
        enable_elicitation(options);
        use_modern_era(options);
    })
    .await;
    // Both calls start a server process, so both are in progress before the first elicitation.
    let mut elicit = std::pin::pin!(call_tool(&client, "s__elicit", json!({ "n": 1 })));
    let mut hang = std::pin::pin!(call_tool(&client, "other__hang", json!({})));
    let input_required = tokio::select! {
        biased;
        input_required = &mut elicit => input_required,
        other = &mut hang => panic!("the hanging call ended: {other}"),
    };
    assert_eq!(input_required["resultType"], "input_required", "{input_required}");
    let (key, question) = input_required["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["params"]["asked"], json!({ "n": 1 }));
    let retry_params = json!({
        "name": "s__elicit",
        "arguments": { "n": 1 },
        "inputResponses": { key: accept_response() },
        "requestState": input_required["requestState"],
    });
    let answered = tokio::select! {
        biased;
        answered = send_request(&client, "tools/call", retry_params) => answered.unwrap(),
        other = &mut hang => panic!("the hanging call ended: {other}"),
    };
    assert_eq!(serde_json::from_str::<Value>(&result_text(&answered)).unwrap(), accept_response());
    bridge.close().await;
    registry.close().await;
}

/// A legacy server does not say which client an elicitation is for. So only one is open per server at a time, and
/// further ones are declined; everything else continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unanswered_elicitation_does_not_block_other_calls() {
    let (registry, service) = open_asking_server(json!({ "call_timeout": "6s" })).await;
    let (other, _served) = connect_client(&service, answer_elicitation).await;
    call_tool(&other, "s__echo", json!({ "text": "here" })).await;
    let (abandoning, _served) = connect_client(&service, |options| {
        enable_elicitation(options);
        use_modern_era(options);
    })
    .await;
    assert_eq!(call_tool(&abandoning, "s__elicit", json!({})).await["resultType"], "input_required");

    assert_eq!(result_text(&call_tool(&other, "s__echo", json!({ "text": "here" })).await), "here");
    let elicited = async || result_text(&call_tool(&other, "s__elicit", json!({})).await);
    assert_eq!(elicited().await, r#"{"action":"decline"}"#);
    // The open elicitation ends with the timeout of its call; after that, others are forwarded again.
    wait_until_async("the elicitation is forwarded", async || elicited().await.contains("accept")).await;
    registry.close().await;
}

/// Regression: the request started anew, so a tool that had asked for input ran a second time.
#[tokio::test]
async fn the_request_state_of_a_closed_endpoint_on_the_same_store_is_refused() {
    let shop = ScriptedSource::new([text_tool("order", "Orders goods")]);
    let mut config = config_with_sources(["shop"]);
    if let Ok(source) = &mut config.sources[0].source {
        source.settings.tools = Rules::new(vec![Rule { glob: "*".into(), verdict: Verdict::Ask }]);
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let open_client = async || {
        let options = RegistryOptions { store: Some(store.clone()), ..RegistryOptions::default() };
        let registry = open_scripted(config.clone(), options, &[("shop", &shop)]).await;
        let service = McpService::new(registry, Expose { mode: ExposeMode::Full, ..Expose::default() });
        connect_client_to(&service, service.server_options(), |options| {
            enable_elicitation(options);
            use_modern_era(options);
        })
        .await
    };
    let call = json!({ "name": "shop__order", "arguments": { "text": "tea" } });
    let (client, server) = open_client().await;
    let suspended = send_request(&client, "tools/call", call.clone()).await.unwrap();
    assert_eq!(suspended["resultType"], "input_required", "{suspended}");
    drop(client);
    server.await.unwrap();

    let (client, _server) = open_client().await;
    let resume = async |state: &Value| {
        let mut repeated = call.clone();
        repeated["requestState"] = state.clone();
        repeated["inputResponses"] = json!({});
        send_request(&client, "tools/call", repeated).await
    };
    let refused = resume(&suspended["requestState"]).await;
    assert!(matches!(&refused, Err(WireError::Rpc(error)) if error.message.contains("lost")), "{refused:?}");
    // A forged state is taken for one of the source: the call begins, and asks for consent.
    let forged = json!(format!("{:024x}-toolcrib-{:032x}", 7, 7));
    assert_eq!(resume(&forged).await.unwrap()["resultType"], "input_required");
    assert_eq!(shop.calls(), 0);
}

#[tokio::test]
async fn extensions_of_a_client_reach_the_server_of_its_own() {
    let source = with_settings(scripted_source(&["--with", "capabilities"]), json!({ "lifecycle": "per_client" }));
    let (_registry, service) = open_with_processes(json!({ "s": source }), ExposeMode::Full).await;
    let extensions = json!({ "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html"] } });
    for declared in [&extensions, &Value::Null] {
        let declare = |options: &mut ClientOptions| {
            options.capabilities = to_raw_value(&json!({ "roots": {}, "extensions": declared })).unwrap();
        };
        let (client, _served) = connect_client(&service, declare).await;
        let capabilities = result_text(&call_tool(&client, "s__capabilities", json!({})).await);
        let capabilities: Value = serde_json::from_str(&capabilities).unwrap();
        assert_eq!(&capabilities["extensions"], declared);
    }
}

#[tokio::test]
async fn a_server_of_2026_sees_what_a_legacy_client_declares_and_its_own_fields_stay_there() {
    let source = scripted_source(&["--version", "2026-07-28", "--with", "meta"]);
    let (_registry, service) = open_with_processes(json!({ "s": source }), ExposeMode::Full).await;
    let extensions = json!({ "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html"] } });
    for (declared, expected) in [
        (
            json!({ "roots": {}, "elicitation": { "form": {} }, "extensions": extensions }),
            json!({ "elicitation": { "form": {} }, "extensions": extensions }),
        ),
        (json!({}), json!({})),
    ] {
        let declare = |options: &mut ClientOptions| options.capabilities = to_raw_value(&declared).unwrap();
        let (client, _served) = connect_client(&service, declare).await;
        let result = call_tool(&client, "s__meta", json!({})).await;
        let meta: Value = serde_json::from_str(&result_text(&result)).unwrap();
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], expected);
        assert_eq!(result.get("resultType"), None, "{result}");
    }
}

#[tokio::test]
async fn the_reason_of_a_cancellation_passes_a_bridge() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let source = scripted_source(&["--hang", "call", "--log-file", log.to_str().unwrap()]);
    let (registry, service) = open_with_processes(json!({ "s": source }), ExposeMode::Full).await;
    let (bridge, _served) = open_bridge(&service).await;
    let (client, _server) = connect_client(&bridge, |_| {}).await;
    let cancel = CancellationToken::new();
    let reason = Arc::new(OnceLock::new());
    let options =
        RequestOptions { cancel: Some(&cancel), cancel_reason: Some(&reason), ..RequestOptions::new(TEST_TIMEOUT) };
    let arguments = to_raw_value(&json!({ "text": "x" })).unwrap();
    let has_line = |line: &str| read_lines(&log).iter().any(|logged| logged == line);
    let (result, ()) = tokio::join!(client.call_tool("s__echo", &arguments, None, None, &options), async {
        wait_until("the server has the call", || has_line("tools/call")).await;
        reason.set("the user changed the question".to_owned()).unwrap();
        cancel.cancel();
    });
    assert!(matches!(result, Err(WireError::Cancelled { .. })), "{result:?}");
    wait_until("the server has the reason", || has_line("reason: the user changed the question")).await;
    registry.close().await;
}
