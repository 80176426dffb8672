//! `lifecycle: per_client`: a server for each client connection alone, which ends with it.
#![cfg(target_os = "linux")]

use serde_json::{Value, json};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::ConnectionState;
use toolcrib::{CallOptions, ClientId, Code, Registry};

use crate::support::{
    SqliteRegistry, agent, id, is_running, list_tools, open_scripted, output_text, read_lines, run_pending_tasks,
    wait_until,
};

const SERVER_FLAGS: [&str; 3] = ["--env-tool", "--count-file", "{home}/starts"];

async fn open_listed(settings: Value) -> SqliteRegistry {
    let workshop = open_scripted(&SERVER_FLAGS, settings).await;
    list_tools(&workshop).await;
    workshop
}

fn per_client() -> Value {
    json!({"lifecycle": "per_client"})
}

fn client_options(client: u64) -> CallOptions {
    CallOptions { client: Some(ClientId(client)), skip_discovery: true, ..CallOptions::default() }
}

async fn call_echo(registry: &Registry, options: CallOptions) -> toolcrib::Result<String> {
    let output = registry.call(&agent(), "s__echo", json!({"text": "hello"}), options).await;
    output.map(|output| output_text(&output))
}

/// The processes that were started for calls; the first was for discovery.
fn started_pids(workshop: &SqliteRegistry) -> Vec<String> {
    read_lines(&workshop.path("starts")).split_off(1)
}

#[tokio::test]
async fn each_client_has_its_own_server_until_it_leaves() {
    let workshop = open_listed(per_client()).await;
    for client in [1, 2, 1, 2, 1] {
        assert_eq!(call_echo(&workshop, client_options(client)).await.unwrap(), "hello");
    }
    let pids = started_pids(&workshop);
    assert_eq!(pids.len(), 2);
    workshop.client_disconnected(ClientId(1));
    wait_until("its server ended", || !is_running(&pids[0])).await;
    assert!(is_running(&pids[1]), "the other stays");
    assert_eq!(workshop.source(&id("s")).unwrap().connection, ConnectionState::Connected);
    assert_eq!(call_echo(&workshop, client_options(2)).await.unwrap(), "hello");
    assert_eq!(started_pids(&workshop).len(), 2);
    workshop.registry.clone().close().await;
    wait_until("closing ends the rest", || !is_running(&pids[1])).await;
}

#[tokio::test]
async fn callers_without_a_lasting_connection_share_one() {
    let workshop = open_listed(per_client()).await;
    let nobody = || CallOptions { skip_discovery: true, ..CallOptions::default() };
    for options in [
        nobody(),
        nobody(),
        CallOptions { stateless: true, ..client_options(1) },
        CallOptions { stateless: true, ..client_options(2) },
    ] {
        call_echo(&workshop, options).await.unwrap();
    }
    assert_eq!(started_pids(&workshop).len(), 1);
}

#[tokio::test]
async fn other_sources_are_shared_whoever_calls() {
    let workshop = open_listed(json!({})).await;
    for client in [1, 2, 3] {
        call_echo(&workshop, client_options(client)).await.unwrap();
    }
    assert_eq!(started_pids(&workshop).len(), 1);
    workshop.client_disconnected(ClientId(1));
    call_echo(&workshop, client_options(2)).await.unwrap();
    assert_eq!(started_pids(&workshop).len(), 1);
}

#[tokio::test]
async fn a_clients_server_sleeps_when_idle_and_goes_when_its_source_is_disabled() {
    let workshop = open_listed(json!({"lifecycle": "per_client", "idle": "100ms"})).await;
    call_echo(&workshop, client_options(1)).await.unwrap();
    let pids = started_pids(&workshop);
    wait_until("it sleeps", || !is_running(&pids[0])).await;
    call_echo(&workshop, client_options(1)).await.unwrap();
    let pids = started_pids(&workshop);
    assert_eq!(pids.len(), 2);
    workshop.execute(Command::Disable(id("s")), Actor::new("somebody")).await.unwrap();
    wait_until("it ended", || !is_running(&pids[1])).await;
}

#[tokio::test]
async fn a_source_serves_so_many_clients_and_no_more() {
    let workshop = open_listed(per_client()).await;
    for client in 0..64 {
        call_echo(&workshop, client_options(client)).await.unwrap();
    }
    for _ in 0..6 {
        let error = call_echo(&workshop, client_options(64)).await.unwrap_err();
        assert_eq!(error.code, Code::ToolUnavailable);
        assert!(error.message.contains("serves 64 clients already"), "{}", error.message);
    }
    workshop.client_disconnected(ClientId(7));
    run_pending_tasks().await;
    assert_eq!(call_echo(&workshop, client_options(64)).await.unwrap(), "hello", "no breaker, and there is room again");
    workshop.registry.clone().close().await;
}
