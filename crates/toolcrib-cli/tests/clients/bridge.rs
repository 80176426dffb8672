//! `toolcrib mcp --connect`: what happens to a client when `serve` starts anew, and to its servers when it leaves.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::sync::broadcast;
use toolcrib_mcp::{ClientOptions, ConnectTarget, ConnectionEvent, McpClient, RequestOptions};
use toolcrib_testkit::programs;

use crate::support::served::{PATIENCE, Place, until};

/// So many servers, each of which belongs to one client.
fn per_client_sources(count: usize) -> Value {
    let source = json!({"command": programs::scripted_server(), "lifecycle": "per_client"});
    (0..count).map(|number| (format!("s{number}"), source.clone())).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connected_client_outlives_serve_and_takes_its_server_along() {
    let full = json!({"mode": "full"});
    let place = Place::new(&per_client_sources(1), &full);
    place.discover();
    let mut served = place.serve();
    let mut command = tokio::process::Command::from(place.toolcrib(&["mcp", "--connect", &served.url]));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let reader = child.stdout.take().unwrap();
    let writer = child.stdin.take().unwrap();
    let target = ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    let mut options = ClientOptions::new("test", "1");
    options.handshake_timeout = PATIENCE;
    let client = McpClient::connect(target, options).await.unwrap();
    let mut notices = client.events();
    let before = place.processes();
    assert_eq!((count_tools(&client).await, call_echo(&client).await), (3, "hi".into()));
    assert!(place.processes() > before, "its server runs");

    let address = served.url.strip_prefix("http://").unwrap().to_owned();
    served.signal("TERM");
    served.ended();
    let served = place.serve_at(&address);
    wait_for_tools_changed(&mut notices).await;
    assert_eq!((count_tools(&client).await, call_echo(&client).await), (3, "hi".into()));

    place.configure(&per_client_sources(2), &full);
    wait_for_tools_changed(&mut notices).await;
    assert_eq!(count_tools(&client).await, 6);

    client.close().await;
    assert!(tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
    until("its server to end", || place.processes() == 1);
    drop(served);
}

async fn count_tools(client: &McpClient) -> usize {
    let listed = client.request("tools/list", None, &RequestOptions::new(PATIENCE)).await.unwrap();
    serde_json::from_str::<Value>(listed.get()).unwrap()["tools"].as_array().unwrap().len()
}

async fn call_echo(client: &McpClient) -> String {
    let called = super::agents::call_tool(client, "s0__echo", &json!({"text": "hi"})).await;
    super::agents::text_of(&called)
}

async fn wait_for_tools_changed(notices: &mut broadcast::Receiver<ConnectionEvent>) {
    let heard = async { while !matches!(notices.recv().await.unwrap(), ConnectionEvent::ToolsChanged) {} };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
}
