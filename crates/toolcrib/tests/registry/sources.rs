//! Sources that come, change, are switched off, and go; and tools that vanish and return.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::source::{SourceKind, SourceSettings, StdioSource};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, HistoryQuery, RegistryNotice};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Code, Refresh, Registry, RegistryOptions, Source};

use crate::support::{
    TestRegistry, cached_tools, call, config, force_refresh, id, list_tools, open, open_with, open_yaml,
    run_pending_tasks, tool_json, wait_until,
};

fn test_actor() -> Actor {
    Actor::new("somebody")
}

/// When a tool was first seen and last changed, as lists tell.
fn tool_dates(bench: &TestRegistry, name: &str) -> (i64, i64) {
    let dates = bench.catalog().find(name).unwrap().inventory_state();
    (dates.created_at.0, dates.updated_at.0)
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_vanishes_and_returns_keeps_its_first_date_and_its_settings() {
    let git = ScriptedSource::new(["push", "pull"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    let (created, _) = tool_dates(&bench, "git__push");
    let push = bench.catalog().find("git__push").unwrap().id();
    bench.execute(Command::DisableTool(push.clone()), test_actor()).await.unwrap();

    bench.manual_clock.advance(Duration::from_secs(60));
    git.set_tools(["pull"]);
    force_refresh(&bench, "git").await;
    assert_eq!(call(&bench, "git__push", json!({})).await.unwrap_err().code, Code::ToolNotImplemented);

    bench.manual_clock.advance(Duration::from_secs(60));
    git.set_tools(["pull", "push"]);
    assert_eq!(force_refresh(&bench, "git").await.added, ["git__push"]);
    assert_eq!(tool_dates(&bench, "git__push"), (created, created + 120_000));
    assert_eq!(cached_tools(&bench), ["git__pull"], "still switched off");
    bench.execute(Command::EnableTool(push), test_actor()).await.unwrap();
    assert_eq!(cached_tools(&bench), ["git__pull", "git__push"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_tool_has_a_new_date_and_its_siblings_have_not() {
    let git = ScriptedSource::new([tool_json("pull", "Pulls"), tool_json("push", "Pushes")]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    let at = bench.options.clock.now().0;
    bench.manual_clock.advance(Duration::from_secs(1));
    git.set_tools([tool_json("pull", "Pulls"), tool_json("push", "Shoves")]);
    force_refresh(&bench, "git").await;
    assert_eq!((tool_dates(&bench, "git__pull"), tool_dates(&bench, "git__push")), ((at, at), (at, at + 1_000)));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_source_loses_its_tools_at_once_and_keeps_its_history() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    list_tools(&bench).await;
    call(&bench, "git__push", json!({})).await.unwrap();
    let length = bench.journal_len().await;
    let version = bench.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    assert_eq!(cached_tools(&bench), ["hub__pull"]);
    assert_eq!(bench.execute(Command::Disable(id("git")), test_actor()).await.unwrap(), version, "once");
    assert_eq!(bench.journal_len().await, length + 1);
    wait_until("its connection is closed", || git.closes() == 1).await;

    assert_eq!(list_tools(&bench).await, ["hub__pull"], "nobody asks it");
    let outcome = force_refresh(&bench, "git").await;
    assert_eq!((outcome.status, outcome.contacted, git.discoveries()), (RefreshStatus::Disabled, false, 1));
    let error = call(&bench, "git__push", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolNotImplemented);
    assert_eq!(error.message, "the source `git` is disabled; `toolcrib enable git` turns it on");

    bench.execute(Command::Enable(id("git")), test_actor()).await.unwrap();
    assert_eq!((cached_tools(&bench).len(), git.discoveries()), (2, 1), "its list was only put away");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_finishes_although_its_source_is_disabled() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.pause();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { call(&registry, "git__push", json!({})).await });
    wait_until("it began", || git.calls() == 1).await;
    bench.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    git.resume();
    assert!(running.await.unwrap().is_ok());
}

/// The answer of a discovery that was under way when its source was disabled must not bring its tools back.
#[tokio::test(start_paused = true)]
async fn a_source_disabled_during_its_discovery_stays_away() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.pause();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("it began", || git.discoveries() == 1).await;
    bench.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    git.resume();
    running.await.unwrap();
    assert!(cached_tools(&bench).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_source_declared_at_run_time_is_discovered_at_once_and_can_go_again() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let yaml = "sources: { git: { command: x } }";
    let bench = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    let kind = SourceKind::Stdio(StdioSource { command: "hub".into(), ..StdioSource::default() });
    let source = Source { id: id("hub"), kind, settings: SourceSettings::default() };
    let outcome = bench.declare(source.clone(), test_actor(), None).await.unwrap();
    assert_eq!((outcome.status, outcome.added), (RefreshStatus::Success, vec!["hub__pull".to_owned()]));

    let in_config = Source { id: id("git"), ..source.clone() };
    assert_eq!(bench.declare(in_config, test_actor(), None).await.unwrap_err().code, Code::Conflict);
    assert_eq!(bench.remove(&id("git"), test_actor()).await.unwrap_err().code, Code::Conflict);

    // Reading the configuration again touches only what came from it.
    bench.reconfigure(&config("sources: {}")).await.unwrap();
    assert_eq!(cached_tools(&bench), ["hub__pull"]);
    let before = bench.journal_len().await;
    bench.remove(&id("hub"), test_actor()).await.unwrap();
    assert!(cached_tools(&bench).is_empty() && bench.sources().is_empty());
    assert_eq!(bench.journal_len().await, before + 1, "history stays");

    hub.fail("closed for today");
    let outcome = bench.declare(source, test_actor(), None).await.unwrap();
    assert_eq!(outcome.status, RefreshStatus::Failed);
    let view = bench.source_view("hub");
    assert_eq!((view.status, view.last_error.unwrap().message.as_str()), (DiscoveryStatus::Failed, "closed for today"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_is_stale_and_discovered_again_before_the_next_call() {
    let git = ScriptedSource::new(["push"]);
    let bench = open_yaml("sources: { git: { command: old } }", &[("git", &git)]).await;
    list_tools(&bench).await;
    let hash = bench.source_view("git").config_hash;
    bench.reconfigure(&config("sources: { git: { command: new } }")).await.unwrap();
    let view = bench.source_view("git");
    assert_eq!((view.freshness, view.tool_count, git.discoveries()), (Freshness::Stale, 1, 1));
    assert_ne!(view.config_hash, hash);
    git.set_tools(["push", "pull"]);
    call(&bench, "git__push", json!({})).await.unwrap();
    assert_eq!((git.discoveries(), bench.source_view("git").freshness), (2, Freshness::Fresh));
    assert_eq!(cached_tools(&bench), ["git__pull", "git__push"]);

    bench.reconfigure(&config("sources: { git: { command: new, ttl: 1h } }")).await.unwrap();
    assert_eq!(bench.source_view("git").freshness, Freshness::Fresh, "it connects to the same");
}

#[tokio::test(start_paused = true)]
async fn a_config_that_is_read_again_writes_nothing_when_nothing_changed() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&bench).await;
    bench.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    let length = bench.journal_len().await;
    let again = bench.open_again(yaml).await;
    assert_eq!(bench.journal_len().await, length);
    assert!(cached_tools(&again).is_empty(), "declaring again does not enable again");
    let edited = bench.open_again("sources: { git: { command: x, enabled: false } }").await;
    assert!(cached_tools(&edited).is_empty());
    let edited = bench.open_again("sources: { git: { command: x, enabled: true } }").await;
    assert_eq!(cached_tools(&edited), ["git__push"], "an edited `enabled` counts as a command");
}

#[tokio::test(start_paused = true)]
async fn one_invalid_source_does_not_take_the_others_down() {
    let git = ScriptedSource::new(["push"]);
    let bench = open_yaml("sources: { git: { command: x }, bad: { comand: y } }", &[("git", &git)]).await;
    assert_eq!(list_tools(&bench).await, ["git__push"]);
    let bad = bench.source_view("bad");
    let error = bad.last_error.unwrap();
    assert_eq!((bad.status, error.code), (DiscoveryStatus::Failed, Code::ConfigInvalid));
    assert!(error.message.contains("comand") && error.message.contains("command"), "{}", error.message);
    assert_eq!(force_refresh(&bench, "bad").await.error.unwrap().code, Code::ConfigInvalid);
}

#[tokio::test(start_paused = true)]
async fn variables_override_a_source_for_this_process_only() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let yaml = "sources: { git: { command: x }, hub: { url: 'http://a/mcp' } }";
    let sources: [(&str, _); 2] = [("git", &git), ("hub", &hub)];
    let bench = open_yaml(yaml, &sources).await;
    list_tools(&bench).await;
    let length = bench.journal_len().await;

    let environment = [("GIT_ENABLED", "false"), ("HUB_URL", "http://b/mcp"), ("HUB_TOKEN", "s3cret")];
    let environment = environment.map(|(name, value)| (format!("TOOLCRIB_SOURCE_{name}"), value.to_owned()));
    let options = RegistryOptions { environment: environment.to_vec(), ..bench.options.clone() };
    let other = toolcrib::Registry::open(config(yaml), options).await.unwrap();
    let (git_view, hub_view) = (other.source(&id("git")).unwrap(), other.source(&id("hub")).unwrap());
    assert_eq!((git_view.enabled, git_view.tool_count), (false, 1), "known, and shown to nobody");
    assert_eq!((hub_view.url.as_deref(), hub_view.freshness), (Some("http://b/mcp"), Freshness::Stale));
    let definition = format!("{:?}", other.effective_source(&id("hub")).unwrap());
    assert!(definition.contains("s3cret"), "the token is used");
    hub.set_tools(["elsewhere"]);
    assert_eq!(list_tools(&other).await, ["hub__elsewhere"]);

    assert_eq!(bench.journal_len().await, length, "nothing was recorded");
    let records = format!(
        "{:?} {:?}",
        bench.history(&HistoryQuery::after(0)).await.unwrap(),
        bench.store.source_statuses().await.unwrap()
    );
    assert!(!records.contains("s3cret"));
    assert_eq!(cached_tools(&bench), ["git__push", "hub__pull"], "nor is anybody else concerned");
    assert!(!serde_json::to_string(&other.sources()).unwrap().contains("s3cret"));
}

#[tokio::test(start_paused = true)]
async fn a_variable_may_enable_what_the_file_disables() {
    let git = ScriptedSource::new(["push"]);
    let environment = vec![("TOOLCRIB_SOURCE_GIT_ENABLED".to_owned(), "true".to_owned())];
    let yaml = "sources: { git: { command: x, enabled: false } }";
    let bench = open_with(yaml, &[("git", &git)], |options| RegistryOptions { environment, ..options }).await;
    assert_eq!(list_tools(&bench).await, ["git__push"]);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_source_is_listed_and_never_contacted() {
    let git = ScriptedSource::new(["push"]);
    let untrusted =
        Some(toolcrib::UntrustedFile { reason: "nobody trusts it yet".to_owned(), sources: vec![id("git")] });
    let trust = toolcrib::Trust { untrusted, ..toolcrib::Trust::default() };
    let yaml = "sources: { git: { command: x } }";
    let bench = open_with(yaml, &[("git", &git)], |options| RegistryOptions { trust, ..options }).await;
    assert!(list_tools(&bench).await.is_empty());
    let error = force_refresh(&bench, "git").await.error.unwrap();
    assert_eq!((error.code, error.message.as_str(), git.discoveries()), (Code::Forbidden, "nobody trusts it yet", 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_subscribed_hears_what_changed_and_nothing_else() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let mut notices = bench.subscribe();
    let mut heard = move || {
        let mut heard = Vec::new();
        while let Ok(notice) = notices.try_recv() {
            heard.push(match notice {
                RegistryNotice::RecordAppended(record) => format!("recorded {}", record.seq),
                RegistryNotice::DiscoveryStarted(id) => format!("discovering {id}"),
                RegistryNotice::DiscoveryFinished(outcome) => format!("discovered {}", outcome.source),
                RegistryNotice::DiscoveryProgress { source, .. } => format!("progress {source}"),
                RegistryNotice::CallFinished(called) => format!("called {}", called.tool),
                RegistryNotice::CatalogChanged => "changed".to_owned(),
                RegistryNotice::SourceNotification { method, .. } => format!("said {method}"),
            });
        }
        heard
    };
    force_refresh(&bench, "git").await;
    let discovery = ["discovering git", "progress git", "progress git"];
    assert_eq!(heard(), [&discovery[..], &["changed", "recorded 2", "discovered git"]].concat());
    force_refresh(&bench, "git").await;
    assert_eq!(heard(), [&discovery[..], &["discovered git"]].concat());
    bench.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    assert_eq!(heard(), ["changed", "recorded 3"]);
    run_pending_tasks().await;
    assert!(heard().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_registries_on_one_store_see_each_other() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let bench = open_yaml(yaml, &[("git", &git)]).await;
    let other = bench.open_again(yaml).await;
    list_tools(&bench).await;
    wait_until("the other one noticed", || cached_tools(&other) == ["git__push"]).await;
    assert_eq!(git.discoveries(), 1);
    other.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    wait_until("this one noticed", || cached_tools(&bench).is_empty()).await;
}

#[tokio::test]
async fn a_document_that_leads_elsewhere_than_it_was_trusted_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let document = |server: &str| {
        let operation = json!({ "operationId": "orders", "responses": { "200": { "description": "ok" } } });
        let document = json!({
            "openapi": "3.1.0", "info": { "title": "Shop", "version": "1" }, "servers": [{ "url": server }],
            "paths": { "/orders": { "get": operation } },
        });
        std::fs::write(directory.path().join("shop.json"), document.to_string()).unwrap();
    };
    document("http://127.0.0.1:9/v1");
    let text = "sources: { shop: { openapi: ./shop.json } }";
    let config = toolcrib::core::config::Config::read(text, "toolcrib.yaml", directory.path()).unwrap();
    let document_servers = [(id("shop"), ["http://127.0.0.1:9".to_owned()].into())].into();
    let trust = toolcrib::Trust { untrusted: None, document_servers };
    let registry = Registry::open(config, RegistryOptions { trust, ..RegistryOptions::default() }).await.unwrap();
    let refresh = async || registry.refresh(Refresh { force: true, ..Refresh::default() }).await.pop().unwrap();
    assert_eq!(refresh().await.error, None);
    document("http://127.0.0.2:9/v1");
    let error = refresh().await.error.unwrap();
    assert_eq!(error.code, toolcrib::Code::Forbidden);
    assert!(error.message.contains("sends requests to `http://127.0.0.2:9`"), "{}", error.message);
    assert_eq!(registry.tool("shop__orders").unwrap().source, id("shop"), "what was known stays");
    document("http://127.0.0.1:9/v2");
    assert_eq!(refresh().await.error, None);
    registry.close().await;
}
