//! Many agents at once: no call is lost, no agent gets the response of another, and each server runs once.

use std::process::Stdio;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use toolcrib_mcp::{ClientOptions, ConnectTarget, Era, LegacyVersion, McpClient, RequestOptions};
use toolcrib_testkit::programs;

use crate::support::count_starts;
use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace};

const AGENT_COUNT: usize = 64;
const ROUNDS_PER_AGENT: usize = 8;
const CLIENT_PROCESS_COUNT: usize = 8;
const SOURCES: [&str; 3] = ["alpha", "beta", "gamma"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_agents_share_one_process_per_server() {
    let workspace = test_workspace();
    let server = workspace.serve();
    // All agents start working at the same time.
    let all_here = Arc::new(Barrier::new(AGENT_COUNT));
    let mut agents = JoinSet::new();
    for number in 0..AGENT_COUNT {
        let url = server.mcp_url().parse().unwrap();
        let mut options = client_options(number);
        // Every other agent starts with `initialize`, as legacy clients do.
        options.era = (number % 2 == 0).then_some(Era::Legacy(LegacyVersion::LATEST));
        let target = ConnectTarget::Http { url, headers: http::HeaderMap::new() };
        // One after another: preparing TLS keeps the threads busy, and the server closes silent connections.
        let client = McpClient::connect(target, options).await.unwrap();
        let all_here = all_here.clone();
        agents.spawn(async move {
            all_here.wait().await;
            run_agent(&client, &format!("agent {number}")).await
        });
    }
    let responses: usize = agents.join_all().await.into_iter().sum();
    assert_eq!(responses, AGENT_COUNT * ROUNDS_PER_AGENT * 3);
    workspace.assert_each_server_started_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bridged_clients_share_the_servers_of_one_serve() {
    let workspace = test_workspace();
    let server = workspace.serve();
    let mut agents = JoinSet::new();
    for number in 0..CLIENT_PROCESS_COUNT {
        let mut command = tokio::process::Command::from(workspace.toolcrib(&["mcp", "--connect", &server.url]));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let reader = child.stdout.take().unwrap();
        let writer = child.stdin.take().unwrap();
        agents.spawn(async move {
            let target = ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) };
            let client = McpClient::connect(target, client_options(number)).await.unwrap();
            let responses = run_agent(&client, &format!("process {number}")).await;
            client.close().await;
            // The bridge ends with its input.
            let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.unwrap().unwrap();
            assert!(ended.success(), "{ended}");
            responses
        });
    }
    let responses: usize = agents.join_all().await.into_iter().sum();
    assert_eq!(responses, CLIENT_PROCESS_COUNT * ROUNDS_PER_AGENT * 3);
    workspace.assert_each_server_started_once();
}

/// A workspace with three servers that count their starts.
fn test_workspace() -> TestWorkspace {
    let counted = |name: &str| ["--count-file".to_owned(), format!("{name}.starts")];
    let source = |name: &str| json!({"command": programs::scripted_server(), "args": counted(name), "cwd": "."});
    let sources: serde_json::Map<String, Value> =
        SOURCES.iter().map(|name| ((*name).to_owned(), source(name))).collect();
    let workspace = TestWorkspace::new(&sources.into(), &json!({"mode": "search"}));
    workspace.discover();
    for name in SOURCES {
        std::fs::remove_file(workspace.path(&format!("{name}.starts"))).unwrap();
    }
    workspace
}

impl TestWorkspace {
    #[track_caller]
    fn assert_each_server_started_once(&self) {
        for name in SOURCES {
            assert_eq!(count_starts(&self.path(&format!("{name}.starts"))), 1, "starts of `{name}`");
        }
    }
}

fn client_options(number: usize) -> ClientOptions {
    let mut options = ClientOptions::new(format!("agent-{number}"), "1");
    options.handshake_timeout = TEST_TIMEOUT;
    options
}

/// Searches, calls through `call_tool` and calls directly in a loop; returns the number of correct responses.
async fn run_agent(client: &McpClient, agent: &str) -> usize {
    let mut responses = 0;
    for round in 0..ROUNDS_PER_AGENT {
        let source = SOURCES[(round + agent.len()) % SOURCES.len()];
        let tool = format!("{source}__echo");
        let text = format!("{agent}, round {round}");
        let found = call_tool(client, "search_tools", &json!({"query": tool})).await;
        assert!(text_of(&found).contains(&format!("{tool}(")), "{found}");
        let called = call_tool(client, "call_tool", &json!({"name": tool, "arguments": {"text": text}})).await;
        assert_eq!(text_of(&called), text);
        let direct = call_tool(client, &tool, &json!({"text": text})).await;
        assert_eq!(text_of(&direct), text);
        responses += 3;
    }
    responses
}

pub(crate) async fn call_tool(client: &McpClient, name: &str, arguments: &Value) -> Value {
    let arguments: Box<RawValue> = to_raw_value(arguments).unwrap();
    let result = client.call_tool(name, &arguments, None, None, &RequestOptions::new(TEST_TIMEOUT)).await.unwrap();
    serde_json::from_str(result.get()).unwrap()
}

pub(crate) fn text_of(result: &Value) -> String {
    let parts = result["content"].as_array().unwrap();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}
