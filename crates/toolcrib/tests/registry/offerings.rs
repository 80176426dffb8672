//! What sources offer besides tools, what they say of their lists and by themselves, and needs met behind the scenes.

use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::{ListHints, RegistryNotice};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallOptions, Code, McpCapability, Registry, RequiredFreshness};
use toolcrib_testkit::programs;

use crate::support::{
    SqliteRegistry, agent, cached_tools, call, force_refresh, id, list_tools, open, open_scripted, open_yaml,
    run_pending_tasks, scripted_source, wait_until, with_settings,
};

async fn send_request(registry: &Registry, source: &str, method: &str, params: Value) -> toolcrib::Result<Value> {
    let params = Some(to_raw_value(&params).unwrap());
    let result = registry.send_request(&id(source), method, params, CallOptions::default()).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

#[tokio::test]
async fn resources_and_prompts_of_a_real_server_can_be_had() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip("offers::resources_and_prompts_of_a_real_server", "the server was not fetched");
    };
    let sources = json!({"s": {"command": program, "args": arguments}, "t": scripted_source(&[])});
    let workshop = SqliteRegistry::open(sources).await;
    assert_eq!(workshop.sources_with_capability(McpCapability::Resources), [], "nobody was asked yet");
    list_tools(&workshop).await;
    for what in [McpCapability::Resources, McpCapability::Prompts] {
        assert_eq!(workshop.sources_with_capability(what), [id("s")], "{what:?}");
    }
    let resources = send_request(&workshop, "s", "resources/list", json!({})).await.unwrap();
    let uri = resources["resources"][0]["uri"].clone();
    let read = send_request(&workshop, "s", "resources/read", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read["contents"][0]["uri"], uri);
    let prompts = send_request(&workshop, "s", "prompts/list", json!({})).await.unwrap();
    assert!(prompts["prompts"].as_array().unwrap().iter().any(|prompt| prompt["name"] == "simple-prompt"));
    let prompt = send_request(&workshop, "s", "prompts/get", json!({"name": "simple-prompt"})).await.unwrap();
    assert!(prompt["messages"][0]["content"]["text"].is_string());
    let error = send_request(&workshop, "s", "prompts/get", json!({"name": "no such prompt"})).await.unwrap_err();
    assert_eq!((error.code, error.details.unwrap()["rpc_code"].clone()), (Code::ToolExecutionFailed, json!(-32602)));
    workshop.execute(Command::Disable(id("s")), Actor::new("somebody")).await.unwrap();
    assert_eq!(workshop.sources_with_capability(McpCapability::Resources), []);
    assert_eq!(
        send_request(&workshop, "s", "resources/list", json!({})).await.unwrap_err().code,
        Code::ToolNotImplemented
    );
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_asked_says_so() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x }, core: { builtin: all } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    for (source, code) in
        [("git", Code::ToolNotImplemented), ("core", Code::ToolNotImplemented), ("nobody", Code::NotFound)]
    {
        assert_eq!(send_request(&bench, source, "resources/list", json!({})).await.unwrap_err().code, code, "{source}");
    }
}

/// The data beside an error may repeat what a server was given, too.
#[tokio::test]
async fn an_error_of_a_source_is_passed_on_without_its_secrets() {
    let workshop = open_scripted(&[], json!({"env": {"TOKEN": "resources/hunter2hunter2"}})).await;
    let error = send_request(&workshop, "s", "resources/hunter2hunter2", json!({})).await.unwrap_err();
    assert_eq!(error.details, Some(json!({"rpc_code": -32601, "rpc_message": "Method not found: ***"})));
    assert!(!error.message.contains("hunter2"), "{}", error.message);
}

#[tokio::test]
async fn what_a_source_says_of_its_resources_is_told_to_subscribers() {
    let workshop = open_scripted(&["--with", "announce"], json!({})).await;
    let mut notices = workshop.subscribe();
    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": "a://b"}});
    call(&workshop, "s__announce", updated).await.unwrap();
    call(&workshop, "s__announce", json!({"method": "notifications/prompts/list_changed"})).await.unwrap();
    call(&workshop, "s__announce", json!({"method": "notifications/vendor"})).await.unwrap();
    let mut heard = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        if let RegistryNotice::SourceNotification { source, method, params } = notice {
            heard.push((source, method, params.unwrap().get().to_owned()));
        }
    }
    let said = |method: &str, params: &str| (id("s"), method.to_owned(), params.to_owned());
    assert_eq!(
        heard,
        [
            said("notifications/resources/updated", r#"{"uri":"a://b"}"#),
            said("notifications/prompts/list_changed", "{}")
        ]
    );
}

#[tokio::test]
async fn hints_on_lists_are_put_together() {
    let modern = |more: &[&str]| scripted_source(&[&["--version", "2026-07-28"], more].concat());
    let sources = json!({
        "long": modern(&["--ttl-ms", "60000"]),
        "short": modern(&["--ttl-ms", "5000"]),
        "old": scripted_source(&[]),
    });
    let workshop = SqliteRegistry::open(sources.clone()).await;
    assert_eq!(workshop.list_hints(), ListHints::default());
    list_tools(&workshop).await;
    assert_eq!(workshop.list_hints(), ListHints { ttl_ms: Some(5000), private: false });
    let workshop = workshop.reopen(with_settings(sources, json!({"mine": modern(&[])}))).await;
    assert_eq!(workshop.list_hints().ttl_ms, Some(5000), "they survive a restart");
    list_tools(&workshop).await;
    assert_eq!(workshop.list_hints(), ListHints { ttl_ms: Some(5000), private: true });
}

#[tokio::test(start_paused = true)]
async fn a_need_is_met_behind_the_scenes_by_one_run_at_a_time() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    git.pause();
    for _ in 0..10 {
        bench.refresh_in_background();
    }
    wait_until("the quick one is listed", || cached_tools(&bench) == ["hub__pull"]).await;
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    git.resume();
    wait_until("so is the other", || cached_tools(&bench) == ["git__push", "hub__pull"]).await;
    run_pending_tasks().await;
    bench.refresh_in_background();
    run_pending_tasks().await;
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1), "all is fresh");
    bench.manual_clock.advance(Duration::from_secs(3600));
    bench.refresh_in_background();
    wait_until("what is stale is looked at", || (git.discoveries(), hub.discoveries()) == (2, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_its_limit_and_the_discovery_goes_on() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    git.set_delay(Duration::from_secs(5));
    let began = tokio::time::Instant::now();
    bench.ensure_freshness_within(RequiredFreshness::Discovered, Duration::from_secs(2)).await;
    assert_eq!((began.elapsed().as_secs(), cached_tools(&bench)), (2, vec!["hub__pull".to_owned()]));
    wait_until("the slow one follows", || cached_tools(&bench).len() == 2).await;
    assert_eq!(git.discoveries(), 1);
    let began = tokio::time::Instant::now();
    bench.ensure_freshness_within(RequiredFreshness::Discovered, Duration::from_secs(2)).await;
    assert!(began.elapsed().is_zero(), "nothing to wait for");
}

/// The end of a discovery wiped out that its source had been invalidated meanwhile.
#[tokio::test(start_paused = true)]
async fn an_invalidation_during_a_discovery_is_not_lost() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.pause();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("it is asked", || git.discoveries() == 2).await;
    git.set_tools(["pull"]);
    bench.invalidate(Some(&id("git"))).await.unwrap();
    git.resume();
    running.await.unwrap();
    wait_until("it is stale again", || bench.source_view("git").freshness == Freshness::Stale).await;
    assert_eq!(list_tools(&bench).await, ["git__pull"]);
    assert_eq!(bench.source_view("git").freshness, Freshness::Fresh);
}

#[tokio::test(start_paused = true)]
async fn tools_that_a_rule_hides_are_not_counted() {
    let git = ScriptedSource::new(["add", "push", "secret"]);
    let yaml = "sources: { git: { command: x, tools: { secret: hide, push: deny } } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&bench).await;
    assert_eq!(bench.source_view("git").tool_count, 2);
    assert!(bench.call(&agent(), "git__secret", json!({}), CallOptions::default()).await.is_err());
}
