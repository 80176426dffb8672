//! `lifecycle: per_client`: each client connection has its own server process, which ends with it.
#![cfg(target_os = "linux")]

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::ConnectionState;
use toolcrib::{CallContext, ClientId, Code, Registry};

use crate::support::{
    SqliteRegistry, agent, id, is_running, list_tools, open_scripted, output_text, read_lines, run_pending_tasks,
    wait_until,
};

const SERVER_FLAGS: [&str; 3] = ["--env-tool", "--count-file", "{home}/starts"];

async fn open_listed(settings: Value) -> SqliteRegistry {
    let fixture = open_scripted(&SERVER_FLAGS, settings).await;
    list_tools(&fixture).await;
    fixture
}

fn per_client() -> Value {
    json!({"lifecycle": "per_client"})
}

fn client_options(client: u64) -> CallContext {
    CallContext { client: Some(ClientId(client)), ..CallContext::default() }
}

async fn call_echo(registry: &Registry, options: CallContext) -> toolcrib::Result<String> {
    let output =
        registry.call("s__echo", json!({"text": "hello"})).without_discovery().context(options).caller(agent()).await;
    output.map(|output| output_text(&output))
}

/// Returns the processes started for calls; the first one was started for discovery.
fn started_pids(fixture: &SqliteRegistry) -> Vec<String> {
    read_lines(&fixture.path("starts")).split_off(1)
}

#[tokio::test]
async fn each_client_has_its_own_server_until_it_disconnects() {
    let fixture = open_listed(per_client()).await;
    for client in [1, 2, 1, 2, 1] {
        assert_eq!(call_echo(&fixture, client_options(client)).await.unwrap(), "hello");
    }
    let pids = started_pids(&fixture);
    assert_eq!(pids.len(), 2);
    fixture.client_disconnected(ClientId(1));
    wait_until("its server ended", || !is_running(&pids[0])).await;
    assert!(is_running(&pids[1]), "the other server stays");
    assert_eq!(fixture.sources().get(&id("s")).unwrap().connection, ConnectionState::Connected);
    assert_eq!(call_echo(&fixture, client_options(2)).await.unwrap(), "hello");
    assert_eq!(started_pids(&fixture).len(), 2);
    fixture.registry.clone().close().await;
    wait_until("closing ends the rest", || !is_running(&pids[1])).await;
}

#[tokio::test]
async fn the_server_of_one_client_sees_its_extensions() {
    let extensions = json!({"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}});
    let capabilities = to_raw_value(&json!({ "extensions": extensions })).unwrap().into();
    let options = CallContext { capabilities: Some(capabilities), ..client_options(1) };
    for (lifecycle, expected) in [("per_client", &extensions), ("transient", &extensions), ("shared", &Value::Null)] {
        let fixture = open_scripted(&["--with", "capabilities"], json!({ "lifecycle": lifecycle })).await;
        let output = fixture.call("s__capabilities", json!({})).context(options.clone()).caller(agent()).await.unwrap();
        let capabilities: Value = serde_json::from_str(&output_text(&output)).unwrap();
        assert_eq!(&capabilities["extensions"], expected, "{lifecycle}");
        assert_eq!(capabilities["sampling"], json!({}), "{lifecycle}");
    }
}

#[tokio::test]
async fn stateless_callers_share_one_server() {
    let fixture = open_listed(per_client()).await;
    let without_client = CallContext::default;
    for options in [
        without_client(),
        without_client(),
        CallContext { stateless: true, ..client_options(1) },
        CallContext { stateless: true, ..client_options(2) },
    ] {
        call_echo(&fixture, options).await.unwrap();
    }
    assert_eq!(started_pids(&fixture).len(), 1);
}

#[tokio::test]
async fn other_lifecycles_share_one_server_between_clients() {
    let fixture = open_listed(json!({})).await;
    for client in [1, 2, 3] {
        call_echo(&fixture, client_options(client)).await.unwrap();
    }
    assert_eq!(started_pids(&fixture).len(), 1);
    fixture.client_disconnected(ClientId(1));
    call_echo(&fixture, client_options(2)).await.unwrap();
    assert_eq!(started_pids(&fixture).len(), 1);
}

#[tokio::test]
async fn a_clients_server_is_stopped_when_idle_or_disabled() {
    let fixture = open_listed(json!({"lifecycle": "per_client", "idle": "100ms"})).await;
    call_echo(&fixture, client_options(1)).await.unwrap();
    let pids = started_pids(&fixture);
    wait_until("the idle server stopped", || !is_running(&pids[0])).await;
    call_echo(&fixture, client_options(1)).await.unwrap();
    let pids = started_pids(&fixture);
    assert_eq!(pids.len(), 2);
    fixture.execute(Command::Disable(id("s")), Actor::new("operator")).await.unwrap();
    wait_until("it ended", || !is_running(&pids[1])).await;
}

#[tokio::test]
async fn the_number_of_clients_of_a_source_is_bounded() {
    let fixture = open_listed(per_client()).await;
    for client in 0..64 {
        call_echo(&fixture, client_options(client)).await.unwrap();
    }
    for _ in 0..6 {
        let error = call_echo(&fixture, client_options(64)).await.unwrap_err();
        assert_eq!(error.code, Code::ToolUnavailable);
        assert!(error.message.contains("serves 64 clients already"), "{}", error.message);
    }
    fixture.client_disconnected(ClientId(7));
    run_pending_tasks().await;
    assert_eq!(
        call_echo(&fixture, client_options(64)).await.unwrap(),
        "hello",
        "the breaker is closed and there is room"
    );
    fixture.registry.clone().close().await;
}
