//! Tests what a node answers to handles that another node issued.

use serde_json::{Value, json};

use super::support::{Node, NodeGroup, RawHttpResponse, SharedStore, on_each_store};

on_each_store!(
    a_legacy_session_of_another_node_is_unknown_and_the_client_begins_anew,
    pages_and_binaries_of_another_node_are_reported_as_lost,
);

const VERSION: &str = "MCP-Protocol-Version: 2025-06-18\r\n";

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

/// Begins a legacy session and returns its header line.
async fn begin_session(node: &Node) -> String {
    let client = json!({ "name": "test", "version": "0" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let response = node.post_mcp("/mcp", "", &request("initialize", params)).await;
    format!("Mcp-Session-Id: {}\r\n{VERSION}", response.header("mcp-session-id").unwrap())
}

/// The JSON-RPC message in a response, which may be an event stream.
fn message(response: &RawHttpResponse) -> Value {
    let data = response.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    serde_json::from_str(data.unwrap_or(&response.body)).unwrap()
}

async fn a_legacy_session_of_another_node_is_unknown_and_the_client_begins_anew(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    let session = begin_session(&one).await;
    let list = request("tools/list", json!({}));
    assert_eq!(one.post_mcp("/mcp", &session, &list).await.status, 200);
    let forged = format!("Mcp-Session-Id: {}\r\n{VERSION}", "0".repeat(60));
    for session in [&session, &forged] {
        assert_eq!(other.post_mcp("/mcp", session, &list).await.status, 404, "{session}");
        assert_eq!(other.get("/mcp", &format!("Accept: text/event-stream\r\n{session}")).await.status, 404);
        assert_eq!(other.server.send("DELETE", "/mcp", session, "").await.status, 404);
    }
    let renewed = begin_session(&other).await;
    assert_eq!(other.post_mcp("/mcp", &renewed, &list).await.status, 200);
}

async fn pages_and_binaries_of_another_node_are_reported_as_lost(store: SharedStore) {
    let (group, one, other) = NodeGroup::start_two(store).await;
    group.shop.set_reply(|_, _| json!("x".repeat(600_000)));
    let session = begin_session(&one).await;
    let call = |arguments: Value| request("tools/call", json!({ "name": "shop__order", "arguments": arguments }));
    let first = one.post_mcp("/mcp?mode=full", &session, &call(json!({}))).await;
    let first = message(&first).to_string();
    let begin = first.find(one.registry.node().as_str()).unwrap();
    let is_cursor = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    let cursor: String = first[begin..].chars().take_while(|c| is_cursor(*c)).collect();

    let elsewhere = begin_session(&other).await;
    let lost = other.post_mcp("/mcp?mode=full", &elsewhere, &call(json!({ "page": cursor }))).await;
    let lost = message(&lost).to_string();
    assert!(lost.contains("TOOL_UNAVAILABLE") && lost.contains("are lost; call the tool again"), "{lost}");

    let uri = format!("toolcrib-held://{}-binary-{:032x}", one.registry.node().as_str(), 7);
    let lost = other.post_mcp("/mcp", &elsewhere, &request("resources/read", json!({ "uri": uri }))).await;
    let lost = message(&lost)["error"].to_string();
    assert!(lost.contains("TOOL_UNAVAILABLE") && lost.contains("is lost; call the tool again"), "{lost}");
}
