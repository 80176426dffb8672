//! What sources offer besides tools, what they say of their lists and by themselves, and needs met behind the scenes.

use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::registry::{ListHints, Notice};
use toolcrib::testkit::Scripted;
use toolcrib::{CallOptions, Code, Need, Offering, Registry};
use toolcrib_testkit::rig;

use crate::support::{
    Workshop, agent, cached, call, force, id, one, open, open_yaml, scripted, settle, tools, until, with,
};

async fn ask(registry: &Registry, source: &str, method: &str, params: Value) -> toolcrib::Result<Value> {
    let params = Some(to_raw_value(&params).unwrap());
    let result = registry.ask(&id(source), method, params, CallOptions::default()).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

#[tokio::test]
async fn resources_and_prompts_of_a_real_server_can_be_had() {
    let Some((program, arguments)) = rig::everything() else {
        return rig::skip("offers::resources_and_prompts_of_a_real_server", "the server was not fetched");
    };
    let sources = json!({"s": {"command": program, "args": arguments}, "t": scripted(&[])});
    let workshop = Workshop::open(sources).await;
    assert_eq!(workshop.offering(Offering::Resources), [], "nobody was asked yet");
    tools(&workshop).await;
    for what in [Offering::Resources, Offering::Prompts] {
        assert_eq!(workshop.offering(what), [id("s")], "{what:?}");
    }
    let resources = ask(&workshop, "s", "resources/list", json!({})).await.unwrap();
    let uri = resources["resources"][0]["uri"].clone();
    let read = ask(&workshop, "s", "resources/read", json!({ "uri": uri })).await.unwrap();
    assert_eq!(read["contents"][0]["uri"], uri);
    let prompts = ask(&workshop, "s", "prompts/list", json!({})).await.unwrap();
    assert!(prompts["prompts"].as_array().unwrap().iter().any(|prompt| prompt["name"] == "simple-prompt"));
    let prompt = ask(&workshop, "s", "prompts/get", json!({"name": "simple-prompt"})).await.unwrap();
    assert!(prompt["messages"][0]["content"]["text"].is_string());
    let error = ask(&workshop, "s", "prompts/get", json!({"name": "no such prompt"})).await.unwrap_err();
    assert_eq!((error.code, error.details.unwrap()["rpc_code"].clone()), (Code::ToolExecutionFailed, json!(-32602)));
    workshop.execute(Command::Disable(id("s")), Actor::new("somebody")).await.unwrap();
    assert_eq!(workshop.offering(Offering::Resources), []);
    assert_eq!(ask(&workshop, "s", "resources/list", json!({})).await.unwrap_err().code, Code::ToolNotImplemented);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_asked_says_so() {
    let git = Scripted::new(["push"]);
    let yaml = "sources: { git: { command: x }, core: { builtin: all } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    for (source, code) in
        [("git", Code::ToolNotImplemented), ("core", Code::ToolNotImplemented), ("nobody", Code::NotFound)]
    {
        assert_eq!(ask(&bench, source, "resources/list", json!({})).await.unwrap_err().code, code, "{source}");
    }
}

/// The data beside an error may repeat what a server was given, too.
#[tokio::test]
async fn an_error_of_a_source_is_passed_on_without_its_secrets() {
    let workshop = one(&[], json!({"env": {"TOKEN": "resources/hunter2hunter2"}})).await;
    let error = ask(&workshop, "s", "resources/hunter2hunter2", json!({})).await.unwrap_err();
    assert_eq!(error.details, Some(json!({"rpc_code": -32601, "rpc_message": "Method not found: ***"})));
    assert!(!error.message.contains("hunter2"), "{}", error.message);
}

#[tokio::test]
async fn what_a_source_says_of_its_resources_is_told_to_subscribers() {
    let workshop = one(&["--with", "announce"], json!({})).await;
    let mut notices = workshop.subscribe();
    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": "a://b"}});
    call(&workshop, "s__announce", updated).await.unwrap();
    call(&workshop, "s__announce", json!({"method": "notifications/prompts/list_changed"})).await.unwrap();
    call(&workshop, "s__announce", json!({"method": "notifications/vendor"})).await.unwrap();
    let mut heard = Vec::new();
    while let Ok(notice) = notices.try_recv() {
        if let Notice::Said { source, method, params } = notice {
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
    let modern = |more: &[&str]| scripted(&[&["--version", "2026-07-28"], more].concat());
    let sources = json!({
        "long": modern(&["--ttl-ms", "60000"]),
        "short": modern(&["--ttl-ms", "5000"]),
        "old": scripted(&[]),
    });
    let workshop = Workshop::open(sources.clone()).await;
    assert_eq!(workshop.list_hints(), ListHints::default());
    tools(&workshop).await;
    assert_eq!(workshop.list_hints(), ListHints { ttl_ms: Some(5000), private: false });
    let workshop = workshop.reopen(with(sources, json!({"mine": modern(&[])}))).await;
    assert_eq!(workshop.list_hints().ttl_ms, Some(5000), "they survive a restart");
    tools(&workshop).await;
    assert_eq!(workshop.list_hints(), ListHints { ttl_ms: Some(5000), private: true });
}

#[tokio::test(start_paused = true)]
async fn a_need_is_met_behind_the_scenes_by_one_run_at_a_time() {
    let (git, hub) = (Scripted::new(["push"]), Scripted::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    git.hold();
    for _ in 0..10 {
        bench.ensure_soon();
    }
    until("the quick one is listed", || cached(&bench) == ["hub__pull"]).await;
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    git.release();
    until("so is the other", || cached(&bench) == ["git__push", "hub__pull"]).await;
    settle().await;
    bench.ensure_soon();
    settle().await;
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1), "all is fresh");
    bench.hand.advance(Duration::from_secs(3600));
    bench.ensure_soon();
    until("what is stale is looked at", || (git.discoveries(), hub.discoveries()) == (2, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_its_limit_and_the_discovery_goes_on() {
    let (git, hub) = (Scripted::new(["push"]), Scripted::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    git.delay(Duration::from_secs(5));
    let began = tokio::time::Instant::now();
    bench.ensure_within(Need::Known, Duration::from_secs(2)).await;
    assert_eq!((began.elapsed().as_secs(), cached(&bench)), (2, vec!["hub__pull".to_owned()]));
    until("the slow one follows", || cached(&bench).len() == 2).await;
    assert_eq!(git.discoveries(), 1);
    let began = tokio::time::Instant::now();
    bench.ensure_within(Need::Known, Duration::from_secs(2)).await;
    assert!(began.elapsed().is_zero(), "nothing to wait for");
}

/// The end of a discovery wiped out that its source had been invalidated meanwhile.
#[tokio::test(start_paused = true)]
async fn an_invalidation_during_a_discovery_is_not_lost() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.hold();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force(&registry, "git").await });
    until("it is asked", || git.discoveries() == 2).await;
    git.offer(["pull"]);
    bench.invalidate(Some(&id("git"))).await.unwrap();
    git.release();
    running.await.unwrap();
    until("it is stale again", || bench.view_of("git").freshness == Freshness::Stale).await;
    assert_eq!(tools(&bench).await, ["git__pull"]);
    assert_eq!(bench.view_of("git").freshness, Freshness::Fresh);
}

#[tokio::test(start_paused = true)]
async fn tools_that_a_rule_hides_are_not_counted() {
    let git = Scripted::new(["add", "push", "secret"]);
    let yaml = "sources: { git: { command: x, tools: { secret: hide, push: deny } } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    tools(&bench).await;
    assert_eq!(bench.view_of("git").tool_count, 2);
    assert!(bench.call(&agent(), "git__secret", json!({}), CallOptions::default()).await.is_err());
}
