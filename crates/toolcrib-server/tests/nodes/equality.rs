//! Tests that nodes at the same position answer with the same bytes and tags.

use serde_json::{Value, json};
use toolcrib::Refresh;
use toolcrib_mcp::{ClientOptions, ConnectTarget, McpClient, RequestOptions};

use super::support::{Node, NodeGroup, SharedStore, on_each_store, position, wait_until};
use crate::test_server::TEST_TIMEOUT;

on_each_store!(nodes_at_the_same_position_answer_with_the_same_bytes_and_tags);

const PATHS: [&str; 14] = [
    "/api/tools",
    "/api/tools?limit=1",
    "/api/tools?state=deprecated",
    "/api/tools?order=tokens",
    "/api/tools?format=mcp",
    "/api/tools?format=anthropic",
    "/api/tools?format=openai",
    "/api/tools?format=openai-strict",
    "/api/tools?format=gemini",
    "/api/search?q=order",
    "/api/search?q=refund+a+customer",
    "/api/context",
    "/api/context?budget=90",
    "/api/history",
];

/// Lists the tools of a node in a mode, as bytes.
async fn list_tools(node: &Node, mode: &str) -> String {
    let mut url = node.server.mcp_url();
    url.set_query(Some(&format!("mode={mode}")));
    let target = ConnectTarget::Http { url, headers: Default::default() };
    let client = McpClient::connect(target, ClientOptions::new("test", "0")).await.unwrap();
    client.request("tools/list", None, &RequestOptions::new(TEST_TIMEOUT)).await.unwrap().get().to_owned()
}

async fn assert_equal(one: &Node, other: &Node) {
    wait_until("both nodes are at the same position", async || one.registry.position() == other.registry.position())
        .await;
    for path in PATHS {
        let (here, there) = (one.get(path, "").await, other.get(path, "").await);
        assert_eq!((here.status, position(&here)), (200, position(&there)), "{path}");
        assert_eq!(here.body, there.body, "{path}");
        assert_eq!(here.header("etag"), there.header("etag"), "{path}");
        assert_eq!(here.header("link"), there.header("link"), "{path}");
    }
    for mode in ["search", "full"] {
        assert_eq!(list_tools(one, mode).await, list_tools(other, mode).await, "{mode}");
    }
}

async fn nodes_at_the_same_position_answer_with_the_same_bytes_and_tags(store: SharedStore) {
    let (group, one, other) = NodeGroup::start_two(store).await;
    assert_equal(&one, &other).await;
    // After changes on either side, and for a node that read them all at its start.
    one.post_as_admin("/api/tools/shop__ship/disable", &json!({})).await.expect_json(200);
    group.shop.set_tools(["order", "refund", "give_back"]);
    other.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_equal(&one, &other).await;
    // Another order of keys writes no record, and a title writes one.
    let position = other.registry.position();
    let tools = |keys: [&str; 2]| {
        let schema: serde_json::Map<String, Value> =
            keys.into_iter().map(|key| (key.to_owned(), json!("object"))).collect();
        ["order", "refund"].map(|name| json!({ "name": name, "inputSchema": schema }))
    };
    group.shop.set_tools(tools(["type", "title"]));
    one.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_equal(&one, &other).await;
    assert!(one.registry.position() > position);
    let position = one.registry.position();
    group.shop.set_tools(tools(["title", "type"]));
    other.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_equal(&one, &other).await;
    assert_eq!(one.registry.position(), position);
    group.shop.set_about("Order desk");
    other.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_equal(&one, &other).await;
    assert!(one.registry.position() > position);
    let late = group.start_node().await;
    assert_equal(&one, &late).await;
}
