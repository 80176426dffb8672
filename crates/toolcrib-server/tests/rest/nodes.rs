//! Tests what is shown of the nodes that share a store, and of sources that run on some of them.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib::RegistryOptions;
use toolcrib::config::Config;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;
use toolcrib::store::{MemoryStore, NodeStatus, Store};
use toolcrib::testkit::ScriptedSource;

use super::store_failure::FaultyStore;
use super::support::{RestTestServer, start_with, wait_until};

/// Starts a server with the label `web` and a source that runs on the node `gpu`.
async fn start(store: Arc<dyn Store>) -> RestTestServer {
    let config = r#"{"sources": {"render": {"command": "x", "nodes": ["gpu"]}}}"#;
    let config = Config::read(config, "toolcrib.json", Path::new("/")).unwrap();
    let options = RegistryOptions { store: Some(store), node_label: "web".to_owned(), ..RegistryOptions::default() };
    start_with(config, options, &[("render", &ScriptedSource::new(["draw"]))]).await
}

fn node(label: &str, lag: u64) -> NodeStatus {
    NodeStatus {
        id: format!("{label}-1"),
        label: label.to_owned(),
        version: "0.3.0".to_owned(),
        position: 12,
        lag,
        last_seen_ms: 900,
        alive: true,
    }
}

async fn start_with_nodes() -> (RestTestServer, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore::with_nodes(vec![node("gpu", 0), node("web", 3)]));
    (start(store.clone()).await, store)
}

/// Sets the nodes and waits until the server has read them. A record makes it report itself and read the others.
async fn set_nodes(server: &RestTestServer, store: &FaultyStore, nodes: Vec<NodeStatus>) {
    let expected: Vec<_> = nodes.iter().map(|node| (node.lag, node.alive)).collect();
    store.set_nodes(nodes);
    let name = format!("token-{}", server.registry.position());
    server.registry.tokens().create(&name, Role::Viewer, None, Actor::new("test")).await.unwrap();
    wait_until("the nodes are read", async || {
        let nodes = server.registry.store().nodes().unwrap();
        nodes.iter().map(|node| (node.lag, node.alive)).eq(expected.iter().copied())
    })
    .await;
}

#[tokio::test]
async fn nodes_are_beside_the_sources_for_callers_that_see_everything() {
    let (server, store) = start_with_nodes().await;
    let as_admin = server.send_as_admin("GET", "/api/sources", &Value::Null).await;
    let etag = as_admin.header("etag").unwrap().to_owned();
    assert!(etag.starts_with("W/"), "the positions may change under the tag: {etag}");
    let sources = as_admin.expect_json(200);
    let gpu = json!({
        "id": "gpu-1", "label": "gpu", "version": "0.3.0", "position": 12, "lag": 0, "last_seen_ms": 900, "alive": true
    });
    // The age grows with the time since the nodes were read.
    let mut first = sources["nodes"][0].clone();
    assert!(first["last_seen_ms"].as_u64().unwrap() >= 900, "{first}");
    first["last_seen_ms"] = json!(900);
    assert_eq!(first, gpu);
    assert_eq!((&sources["nodes"][1]["label"], &sources["nodes"][1]["lag"]), (&json!("web"), &json!(3)));
    assert_eq!(sources["sources"][0]["nodes"], json!(["gpu"]));
    // A local process without a token has the role `agent`.
    let as_agent = server.get("/api/sources").await.expect_json(200);
    assert_eq!((&as_agent["sources"], &as_agent["nodes"][1]["label"]), (&sources["sources"], &json!("web")));
    // The second answer comes from the cache.
    let cached = server.send_as_admin("GET", "/api/sources", &Value::Null).await.expect_json(200);
    assert_eq!((&cached["sources"], &cached["nodes"][1]["label"]), (&sources["sources"], &json!("web")));
    let headers = format!("Authorization: Bearer {}\r\nIf-None-Match: {etag}\r\n", server.admin_token);
    assert_eq!(server.send("GET", "/api/sources", &headers, b"").await.status, 304);
    // Regression: a reader with a cached list did not learn that a node had ended. Other changes keep the tag.
    set_nodes(&server, &store, vec![node("gpu", 7), node("web", 0)]).await;
    assert_eq!(server.send("GET", "/api/sources", &headers, b"").await.status, 304);
    set_nodes(&server, &store, vec![NodeStatus { alive: false, ..node("gpu", 0) }, node("web", 3)]).await;
    let changed = server.send("GET", "/api/sources", &headers, b"").await.expect_json(200);
    assert_eq!((&changed["nodes"][0]["alive"], &changed["nodes"][1]["alive"]), (&json!(false), &json!(true)));
    for page in [server.send_as_admin("GET", "/", &Value::Null).await, server.get("/").await] {
        assert!(page.body.contains("id=\"nodes-title\""), "{}", page.body);
    }
    let metrics = server.send_as_admin("GET", "/metrics", &Value::Null).await.body;
    for line in
        ["toolcrib_nodes{alive=\"true\"} 1", "toolcrib_nodes{alive=\"false\"} 1", "toolcrib_store_stale_seconds 0"]
    {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}: {metrics}");
    }
    let page = server.send_as_admin("GET", "/sources", &Value::Null).await.body;
    assert!(!page.contains("action=\"/sources/render/refresh\"") && page.contains("refreshed on gpu"), "{page}");
}

/// Regression: the page of a new cluster had no nodes.
#[tokio::test]
async fn the_overview_shows_the_nodes_also_without_sources() {
    let store = Arc::new(FaultyStore::with_nodes(vec![node("gpu", 0)]));
    let options = RegistryOptions { store: Some(store), ..RegistryOptions::default() };
    let server = start_with(Config::default(), options, &[]).await;
    let page = server.get("/").await.body;
    assert!(page.contains("No sources yet") && page.contains("id=\"nodes-title\""), "{page}");
}

#[tokio::test]
async fn nodes_are_not_shown_to_callers_that_are_limited_to_groups() {
    let (server, _store) = start_with_nodes().await;
    let group = json!({ "select": [{ "source": "render" }] });
    server.send_as_admin("PUT", "/api/groups/drawing", &group).await.expect_json(201);
    let token = json!({ "name": "artist", "role": "viewer", "groups": ["drawing"] });
    let token = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    let headers = format!("Authorization: Bearer {}\r\n", token["token"].as_str().unwrap());
    let limited = server.send("GET", "/api/sources", &headers, b"").await;
    assert!(!limited.header("etag").unwrap().starts_with("W/"), "{limited:?}");
    assert_eq!(limited.expect_json(200).get("nodes"), None);
    for (path, text) in [("/", "nodes-title"), ("/metrics", "toolcrib_nodes")] {
        let response = server.send("GET", path, &headers, b"").await;
        assert!(response.status == 200 && !response.body.contains(text), "{response:?}");
    }
}

#[tokio::test]
async fn a_store_of_one_machine_has_no_nodes() {
    let server = start(Arc::new(MemoryStore::new())).await;
    let sources = server.send_as_admin("GET", "/api/sources", &Value::Null).await.expect_json(200);
    assert_eq!(sources.get("nodes"), None);
    let metrics = server.send_as_admin("GET", "/metrics", &Value::Null).await.body;
    assert!(!metrics.contains("toolcrib_nodes") && metrics.contains("\ntoolcrib_store_stale_seconds 0\n"), "{metrics}");
    assert!(!server.send_as_admin("GET", "/", &Value::Null).await.body.contains("id=\"nodes-title\""));
}

#[tokio::test]
async fn a_source_of_another_node_is_refused_with_a_retryable_error() {
    let (server, _) = start_with_nodes().await;
    let message = "`render` runs on the node `gpu` only; this node is `web`";
    let called = server.post("/api/tools/render__draw/call", &json!({})).await.expect_json(503);
    let details = json!({ "nodes": ["gpu"], "node": "web" });
    let expected = json!({ "code": "TOOL_UNAVAILABLE", "message": message, "retryable": true, "details": details });
    assert_eq!(called["error"], expected);
    let refreshed = server.post("/api/sources/render/refresh", &Value::Null).await.expect_json(503);
    assert_eq!((&refreshed["status"], &refreshed["contacted"]), (&json!("failed"), &json!(false)));
    assert_eq!(refreshed["error"]["message"], message);
    let source = server.get("/api/sources/render").await.expect_json(200);
    assert_eq!(
        (&source["status"], &source["last_error"], &source["failures"]),
        (&json!("never"), &json!(null), &json!(0))
    );

    // Another declaration lifts the restriction.
    let declared = json!({ "name": "other", "command": "x", "nodes": ["gpu", "web"] });
    server.send_as_admin("POST", "/api/sources", &declared).await;
    assert_eq!(server.get("/api/sources/other").await.expect_json(200)["nodes"], json!(["gpu", "web"]));
    let narrowed = server.send_as_admin("PATCH", "/api/sources/other", &json!({ "nodes": ["gpu"] })).await;
    assert_eq!(narrowed.expect_json(200)["nodes"], json!(["gpu"]));
    let wrong = server.send_as_admin("PATCH", "/api/sources/other", &json!({ "nodes": [] })).await.expect_json(400);
    assert!(wrong["error"]["message"].as_str().unwrap().contains("no node could start the source"), "{wrong}");
}
