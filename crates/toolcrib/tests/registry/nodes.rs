//! Sources that some nodes may start and others may not (`nodes`): the others serve the list and never contact them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, value::RawValue};
use toolcrib::core::freshness::Freshness;
use toolcrib::refresh::{RefreshStatus, RequiredFreshness};
use toolcrib::registry::BreakerState;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallContext, Code, Error, Refresh, Registry, RegistryOptions, Requester};

use crate::support::{
    TestRegistry, cached_tools, call, config, force_refresh, id, list_tools, open_with, refresh, wait_until,
};

const ON_GPU: &str = "sources: { gpu: { command: scripted, nodes: [gpu-1, gpu-2], limits: { concurrent_calls: 1 } } }";
const MESSAGE: &str = "`gpu` runs on the nodes `gpu-1`, `gpu-2` only; this node is `web`";

/// Opens a registry with a label.
async fn open_node(label: &str, source: &Arc<ScriptedSource>) -> TestRegistry {
    let labelled = |options| RegistryOptions { node_label: label.to_owned(), ..options };
    open_with(ON_GPU, &[("gpu", source)], labelled).await
}

/// Opens another node on the same store.
async fn open_beside(fixture: &TestRegistry, label: &str) -> Registry {
    let options = RegistryOptions { node_label: label.to_owned(), ..fixture.options.clone() };
    fixture.open_again_with(ON_GPU, options).await
}

#[track_caller]
fn assert_runs_elsewhere(error: &Error) {
    assert_eq!((error.code, error.message.as_str()), (Code::ToolUnavailable, MESSAGE));
    assert!(error.is_retryable());
    assert_eq!(error.details, Some(json!({ "nodes": ["gpu-1", "gpu-2"], "node": "web" })));
}

#[tokio::test]
async fn a_node_that_is_not_listed_never_contacts_the_source() {
    let gpu = ScriptedSource::new(["render"]);
    let web = open_node("web", &gpu).await;
    assert_eq!(web.node_label(), "web");
    assert_eq!(web.source_view("gpu").nodes, ["gpu-1", "gpu-2"]);

    // Nothing is known yet.
    assert_eq!(web.refresher().due_sources(), []);
    assert_eq!(list_tools(&web).await, [""; 0]);
    assert_runs_elsewhere(&call(&web, "gpu__render", json!({})).await.unwrap_err());
    for outcome in [refresh(&web, "gpu").await, force_refresh(&web, "gpu").await] {
        assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Failed, false));
        let error = outcome.error.unwrap();
        assert_eq!((error.code, error.message.as_str(), error.retryable), (Code::ToolUnavailable, MESSAGE, true));
    }
    // Regression: a refresh of all failed because of it.
    for known_sources in [None, Some(vec![id("gpu")])] {
        let outcome = web.refresh(Refresh { known_sources, ..Refresh::default() }).await.pop().unwrap();
        assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Unchanged, false));
    }

    // Another node discovers the source.
    let other = open_beside(&web, "gpu-2").await;
    assert!(call(&other, "gpu__render", json!({})).await.is_ok());
    let (discoveries, calls) = (gpu.discoveries(), gpu.calls());
    wait_until("its tools are listed here", || cached_tools(&web) == ["gpu__render"]).await;
    web.manual_clock.advance(Duration::from_secs(3600));
    assert_eq!(web.source_view("gpu").freshness, Freshness::Stale);
    assert_eq!(web.refresher().due_sources(), []);
    assert_eq!(web.refresher().ensure_freshness(RequiredFreshness::Fresh, None, Requester::default()).await, []);
    assert_runs_elsewhere(&call(&web, "gpu__render", json!({})).await.unwrap_err());
    for force in [false, true] {
        let outcome = web.refresh(Refresh { force, ..Refresh::default() }).await.pop().unwrap();
        assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Unchanged, false));
        assert_eq!((outcome.unchanged, outcome.error), (1, None));
    }
    let params = RawValue::from_string("{}".to_owned()).unwrap();
    let request = web.send_request(&id("gpu"), "prompts/get", Some(&params), &CallContext::default()).await;
    assert_runs_elsewhere(&request.unwrap_err());

    // None of it was a failure of the source.
    assert_eq!((gpu.discoveries(), gpu.calls()), (discoveries, calls));
    let view = web.source_view("gpu");
    assert_eq!((view.failures, view.last_error, view.breaker.state), (0, None, BreakerState::Closed));
    assert_eq!(web.history().checks(&id("gpu")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_source_without_nodes_and_a_listed_node_are_not_restricted() {
    let gpu = ScriptedSource::new(["render"]);
    let node = open_node("gpu-1", &gpu).await;
    assert!(node.sources().ensure_may_start(&id("gpu")).is_ok());
    assert_eq!(node.refresher().due_sources(), [id("gpu")]);
    assert!(call(&node, "gpu__render", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_changed_list_of_nodes_holds_at_once() {
    let gpu = ScriptedSource::new(["render"]);
    let node = open_node("gpu-1", &gpu).await;
    assert!(call(&node, "gpu__render", json!({})).await.is_ok());
    let discoveries = gpu.discoveries();
    let elsewhere = config("sources: { gpu: { command: scripted, nodes: [other] } }");
    node.configuration().apply(&elsewhere).await.unwrap();
    let error = call(&node, "gpu__render", json!({})).await.unwrap_err();
    assert_eq!(error.message, "`gpu` runs on the node `other` only; this node is `gpu-1`");
    assert_eq!(cached_tools(&node), ["gpu__render"]);
    node.configuration().apply(&config("sources: { gpu: { command: scripted } }")).await.unwrap();
    assert!(call(&node, "gpu__render", json!({})).await.is_ok());
    assert_eq!(gpu.discoveries(), discoveries, "its list stays fresh");
}

/// Files that its references name exist on its own nodes only.
#[tokio::test]
async fn references_of_a_source_that_runs_elsewhere_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "first").unwrap();
    let yaml = format!(
        "sources: {{ gpu: {{ command: scripted, env: {{ T: \"${{file:{}}}\" }}, nodes: [gpu-1] }} }}",
        token.display()
    );
    let gpu = ScriptedSource::new(["render"]);
    let labelled = |options| RegistryOptions { node_label: "gpu-1".to_owned(), ..options };
    let owner = open_with(&yaml, &[("gpu", &gpu)], labelled).await;
    assert_eq!(list_tools(&owner).await, ["gpu__render"]);
    std::fs::write(&token, "second").unwrap();
    let options = RegistryOptions { node_label: "web".to_owned(), ..owner.options.clone() };
    let web = owner.open_again_with(&yaml, options).await;
    let view = web.sources().get(&id("gpu")).unwrap();
    assert_eq!((view.freshness, view.tool_count), (Freshness::Fresh, 1));
}
