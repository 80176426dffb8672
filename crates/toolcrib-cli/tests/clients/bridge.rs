//! `toolcrib mcp --connect`: a client survives a restart of `serve`, and its servers end when it disconnects.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::sync::broadcast;
use toolcrib_mcp::{ClientOptions, ConnectTarget, ConnectionEvent, McpClient, RequestOptions};
use toolcrib_testkit::programs;

use crate::support::test_server::{TEST_TIMEOUT, TestWorkspace, wait_until};

/// `count` sources with a server process per client.
fn per_client_sources(count: usize) -> Value {
    let source = json!({"command": programs::scripted_server(), "lifecycle": "per_client"});
    (0..count).map(|number| (format!("s{number}"), source.clone())).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bridged_client_survives_a_restart_of_serve() {
    let full = json!({"mode": "full"});
    let workspace = TestWorkspace::new(&per_client_sources(1), &full);
    workspace.discover();
    let mut server = workspace.serve();
    let mut command = tokio::process::Command::from(workspace.toolcrib(&["mcp", "--connect", &server.url]));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let reader = child.stdout.take().unwrap();
    let writer = child.stdin.take().unwrap();
    let target = ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    let mut options = ClientOptions::new("test", "1");
    options.handshake_timeout = TEST_TIMEOUT;
    let client = McpClient::connect(target, options).await.unwrap();
    let mut notices = client.events();
    let before = workspace.process_count();
    assert_eq!((count_tools(&client).await, call_echo(&client).await), (3, "hi".into()));
    assert!(workspace.process_count() > before, "its server runs");

    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    server.signal("TERM");
    server.wait_for_exit();
    let server = workspace.serve_at(&address);
    wait_for_tools_changed(&mut notices).await;
    assert_eq!((count_tools(&client).await, call_echo(&client).await), (3, "hi".into()));

    workspace.configure(&per_client_sources(2), &full);
    wait_for_tools_changed(&mut notices).await;
    assert_eq!(count_tools(&client).await, 6);

    client.close().await;
    assert!(tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.unwrap().unwrap().success());
    wait_until("its server to end", || workspace.process_count() == 1);
    drop(server);
}

async fn count_tools(client: &McpClient) -> usize {
    let listed = client.request("tools/list", None, &RequestOptions::new(TEST_TIMEOUT)).await.unwrap();
    serde_json::from_str::<Value>(listed.get()).unwrap()["tools"].as_array().unwrap().len()
}

async fn call_echo(client: &McpClient) -> String {
    let called = super::agents::call_tool(client, "s0__echo", &json!({"text": "hi"})).await;
    super::agents::text_of(&called)
}

async fn wait_for_tools_changed(notices: &mut broadcast::Receiver<ConnectionEvent>) {
    let heard = async { while !matches!(notices.recv().await.unwrap(), ConnectionEvent::ToolsChanged) {} };
    tokio::time::timeout(TEST_TIMEOUT, heard).await.unwrap();
}
