//! `lifecycle: per_client`: a server for each client connection alone, which ends with it.
#![cfg(target_os = "linux")]

use serde_json::{Value, json};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::Connection;
use toolcrib::{CallOptions, ClientId, Code, Registry};

use crate::support::{Workshop, agent, id, lines, lives, one, settle, text, tools, until};

const ENV: [&str; 3] = ["--env-tool", "--count-file", "{home}/starts"];

async fn workshop(settings: Value) -> Workshop {
    let workshop = one(&ENV, settings).await;
    tools(&workshop).await;
    workshop
}

fn per_client() -> Value {
    json!({"lifecycle": "per_client"})
}

fn of(client: u64) -> CallOptions {
    CallOptions { client: Some(ClientId(client)), cached: true, ..CallOptions::default() }
}

async fn echo(registry: &Registry, options: CallOptions) -> toolcrib::Result<String> {
    let output = registry.call(&agent(), "s__echo", json!({"text": "hello"}), options).await;
    output.map(|output| text(&output))
}

/// The processes that were started for calls; the first was for discovery.
fn started(workshop: &Workshop) -> Vec<String> {
    lines(&workshop.path("starts")).split_off(1)
}

#[tokio::test]
async fn each_client_has_its_own_server_until_it_leaves() {
    let workshop = workshop(per_client()).await;
    for client in [1, 2, 1, 2, 1] {
        assert_eq!(echo(&workshop, of(client)).await.unwrap(), "hello");
    }
    let pids = started(&workshop);
    assert_eq!(pids.len(), 2);
    workshop.client_gone(ClientId(1));
    until("its server ended", || !lives(&pids[0])).await;
    assert!(lives(&pids[1]), "the other stays");
    assert_eq!(workshop.source(&id("s")).unwrap().connection, Connection::Connected);
    assert_eq!(echo(&workshop, of(2)).await.unwrap(), "hello");
    assert_eq!(started(&workshop).len(), 2);
    workshop.registry.clone().close().await;
    until("closing ends the rest", || !lives(&pids[1])).await;
}

#[tokio::test]
async fn callers_without_a_lasting_connection_share_one() {
    let workshop = workshop(per_client()).await;
    let nobody = || CallOptions { cached: true, ..CallOptions::default() };
    for options in
        [nobody(), nobody(), CallOptions { fleeting: true, ..of(1) }, CallOptions { fleeting: true, ..of(2) }]
    {
        echo(&workshop, options).await.unwrap();
    }
    assert_eq!(started(&workshop).len(), 1);
}

#[tokio::test]
async fn other_sources_are_shared_whoever_calls() {
    let workshop = workshop(json!({})).await;
    for client in [1, 2, 3] {
        echo(&workshop, of(client)).await.unwrap();
    }
    assert_eq!(started(&workshop).len(), 1);
    workshop.client_gone(ClientId(1));
    echo(&workshop, of(2)).await.unwrap();
    assert_eq!(started(&workshop).len(), 1);
}

#[tokio::test]
async fn a_clients_server_sleeps_when_idle_and_goes_when_its_source_is_disabled() {
    let workshop = workshop(json!({"lifecycle": "per_client", "idle": "100ms"})).await;
    echo(&workshop, of(1)).await.unwrap();
    let pids = started(&workshop);
    until("it sleeps", || !lives(&pids[0])).await;
    echo(&workshop, of(1)).await.unwrap();
    let pids = started(&workshop);
    assert_eq!(pids.len(), 2);
    workshop.execute(Command::Disable(id("s")), Actor::new("somebody")).await.unwrap();
    until("it ended", || !lives(&pids[1])).await;
}

#[tokio::test]
async fn a_source_serves_so_many_clients_and_no_more() {
    let workshop = workshop(per_client()).await;
    for client in 0..64 {
        echo(&workshop, of(client)).await.unwrap();
    }
    for _ in 0..6 {
        let error = echo(&workshop, of(64)).await.unwrap_err();
        assert_eq!(error.code, Code::ToolUnavailable);
        assert!(error.message.contains("serves 64 clients already"), "{}", error.message);
    }
    workshop.client_gone(ClientId(7));
    settle().await;
    assert_eq!(echo(&workshop, of(64)).await.unwrap(), "hello", "no breaker, and there is room again");
    workshop.registry.clone().close().await;
}
