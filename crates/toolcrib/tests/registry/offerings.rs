//! Resources and prompts of sources, list hints, notifications, and background refreshes.

use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::{ListHints, RegistryNotice};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallContext, Code, McpCapability, Registry, Requester, RequiredFreshness};
use toolcrib_testkit::programs;

use crate::support::{
    SqliteRegistry, agent, cached_tools, call, force_refresh, id, list_tools, open, open_scripted, open_yaml,
    run_pending_tasks, scripted_source, wait_until, with_settings,
};

async fn send_request(registry: &Registry, source: &str, method: &str, params: Value) -> toolcrib::Result<Value> {
    let params = to_raw_value(&params).unwrap();
    let result = registry.send_request(&id(source), method, Some(&params), &CallContext::default()).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

#[tokio::test]
async fn resources_and_prompts_of_a_real_server_are_available() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip(
            "offerings::resources_and_prompts_of_a_real_server_are_available",
            "the server was not fetched",
        );
    };
    let sources = json!({"s": {"command": program, "args": arguments}, "t": scripted_source(&[])});
    let fixture = SqliteRegistry::open(sources).await;
    assert_eq!(fixture.sources().with_capability(McpCapability::Resources), [], "no source was discovered yet");
    list_tools(&fixture).await;
    for what in [McpCapability::Resources, McpCapability::Prompts] {
        assert_eq!(fixture.sources().with_capability(what), [id("s")], "{what:?}");
    }
    let resources = send_request(&fixture, "s", "resources/list", json!({})).await.unwrap();
    let uri = resources["resources"][0]["uri"].clone();
    let read = send_request(&fixture, "s", "resources/read", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read["contents"][0]["uri"], uri);
    let prompts = send_request(&fixture, "s", "prompts/list", json!({})).await.unwrap();
    assert!(prompts["prompts"].as_array().unwrap().iter().any(|prompt| prompt["name"] == "simple-prompt"));
    let prompt = send_request(&fixture, "s", "prompts/get", json!({"name": "simple-prompt"})).await.unwrap();
    assert!(prompt["messages"][0]["content"]["text"].is_string());
    let error = send_request(&fixture, "s", "prompts/get", json!({"name": "no such prompt"})).await.unwrap_err();
    assert_eq!((error.code, error.details.unwrap()["rpc_code"].clone()), (Code::ToolExecutionFailed, json!(-32602)));
    fixture.execute(Command::Disable(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(fixture.sources().with_capability(McpCapability::Resources), []);
    assert_eq!(
        send_request(&fixture, "s", "resources/list", json!({})).await.unwrap_err().code,
        Code::ToolNotImplemented
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_to_an_unsupported_source_is_an_error() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x }, core: { builtin: all } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    for (source, code) in
        [("git", Code::ToolNotImplemented), ("core", Code::ToolNotImplemented), ("unknown", Code::NotFound)]
    {
        assert_eq!(
            send_request(&fixture, source, "resources/list", json!({})).await.unwrap_err().code,
            code,
            "{source}"
        );
    }
}

/// The data of an error may repeat secrets too.
#[tokio::test]
async fn an_error_of_a_source_is_forwarded_without_its_secrets() {
    let fixture = open_scripted(&[], json!({"env": {"TOKEN": "resources/hunter2hunter2"}})).await;
    let error = send_request(&fixture, "s", "resources/hunter2hunter2", json!({})).await.unwrap_err();
    assert_eq!(error.details, Some(json!({"rpc_code": -32601, "rpc_message": "Method not found: ***"})));
    assert!(!error.message.contains("hunter2"), "{}", error.message);
}

#[tokio::test]
async fn resource_notifications_of_a_source_reach_subscribers() {
    let fixture = open_scripted(&["--with", "announce"], json!({})).await;
    let mut notices = fixture.subscribe();
    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": "a://b"}});
    call(&fixture, "s__announce", updated).await.unwrap();
    call(&fixture, "s__announce", json!({"method": "notifications/prompts/list_changed"})).await.unwrap();
    call(&fixture, "s__announce", json!({"method": "notifications/vendor"})).await.unwrap();
    let mut notifications = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        if let RegistryNotice::SourceNotification { source, method, params } = notice {
            notifications.push((source, method, params.unwrap().get().to_owned()));
        }
    }
    let notification = |method: &str, params: &str| (id("s"), method.to_owned(), params.to_owned());
    assert_eq!(
        notifications,
        [
            notification("notifications/resources/updated", r#"{"uri":"a://b"}"#),
            notification("notifications/prompts/list_changed", "{}")
        ]
    );
}

#[tokio::test]
async fn list_hints_are_merged() {
    let modern = |more: &[&str]| scripted_source(&[&["--version", "2026-07-28"], more].concat());
    let sources = json!({
        "long": modern(&["--ttl-ms", "60000"]),
        "short": modern(&["--ttl-ms", "5000"]),
        "old": scripted_source(&[]),
    });
    let fixture = SqliteRegistry::open(sources.clone()).await;
    assert_eq!(fixture.sources().list_hints(), ListHints::default());
    list_tools(&fixture).await;
    assert_eq!(fixture.sources().list_hints(), ListHints { ttl_ms: Some(5000), private: false });
    let fixture = fixture.reopen(with_settings(sources, json!({"mine": modern(&[])}))).await;
    assert_eq!(fixture.sources().list_hints().ttl_ms, Some(5000), "they survive a restart");
    list_tools(&fixture).await;
    assert_eq!(fixture.sources().list_hints(), ListHints { ttl_ms: Some(5000), private: true });
}

#[tokio::test(start_paused = true)]
async fn background_refreshes_run_one_at_a_time() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    git.pause();
    for _ in 0..10 {
        fixture.refresher().refresh_in_background(Requester::default());
    }
    wait_until("the quick one is listed", || cached_tools(&fixture) == ["hub__pull"]).await;
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    git.resume();
    wait_until("the other one is listed", || cached_tools(&fixture) == ["git__push", "hub__pull"]).await;
    run_pending_tasks().await;
    fixture.refresher().refresh_in_background(Requester::default());
    run_pending_tasks().await;
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1), "all is fresh");
    fixture.manual_clock.advance(Duration::from_secs(3600));
    fixture.refresher().refresh_in_background(Requester::default());
    wait_until("stale sources are refreshed", || (git.discoveries(), hub.discoveries()) == (2, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_does_not_end_the_discovery() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    git.set_delay(Duration::from_secs(5));
    let began = tokio::time::Instant::now();
    fixture
        .refresher()
        .ensure_freshness_within(RequiredFreshness::Discovered, Duration::from_secs(2), Requester::default())
        .await;
    assert_eq!((began.elapsed().as_secs(), cached_tools(&fixture)), (2, vec!["hub__pull".to_owned()]));
    wait_until("the slow one follows", || cached_tools(&fixture).len() == 2).await;
    assert_eq!(git.discoveries(), 1);
    let began = tokio::time::Instant::now();
    fixture
        .refresher()
        .ensure_freshness_within(RequiredFreshness::Discovered, Duration::from_secs(2), Requester::default())
        .await;
    assert!(began.elapsed().is_zero(), "nothing to wait for");
}

/// Regression: the end of a discovery discarded an invalidation that happened meanwhile.
#[tokio::test(start_paused = true)]
async fn an_invalidation_during_a_discovery_is_not_lost() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("the discovery started", || git.discoveries() == 2).await;
    git.set_tools(["pull"]);
    fixture.sources().invalidate(Some(&id("git"))).await.unwrap();
    git.resume();
    running.await.unwrap();
    wait_until("it is stale again", || fixture.source_view("git").freshness == Freshness::Stale).await;
    assert_eq!(list_tools(&fixture).await, ["git__pull"]);
    assert_eq!(fixture.source_view("git").freshness, Freshness::Fresh);
}

#[tokio::test(start_paused = true)]
async fn denied_and_hidden_tools_are_counted_for_administrators_alone() {
    let git = ScriptedSource::new(["add", "push", "secret"]);
    let yaml = "sources: { git: { command: x, tools: { secret: hide, push: deny } } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&fixture).await;
    assert_eq!(fixture.source_view("git").tool_count, 3);
    assert_eq!(fixture.sources().get_for(&agent(), &id("git")).unwrap().tool_count, 1);
    let stats = |principal| fixture.statistics_for(&principal).totals().tool_count;
    assert_eq!((stats(agent()), stats(agent().with_role(Role::Admin))), (1, 3));
    assert!(fixture.call("git__secret", json!({})).caller(agent()).await.is_err());
}
