//! Sources that are added, changed, disabled and removed; tools that are removed and return; reconfiguration.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::source::{SourceKind, SourceSettings, StdioSource};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, EnableTarget, EnabledState, HistoryQuery, RegistryNotice};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Code, Refresh, Registry, RegistryOptions, Source};

use crate::support::{
    TestRegistry, cached_tools, call, config, force_refresh, id, list_tools, open, open_with, open_yaml,
    run_pending_tasks, tool_json, wait_until,
};

fn test_actor() -> Actor {
    Actor::new("operator")
}

/// Returns when a tool was first seen and last changed, in milliseconds.
fn tool_dates(fixture: &TestRegistry, name: &str) -> (i64, i64) {
    let dates = fixture.unrestricted_catalog().find(name).unwrap().inventory_state();
    (dates.created_at.0, dates.updated_at.0)
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_removed_and_returns_keeps_its_first_date_and_state() {
    let git = ScriptedSource::new(["push", "pull"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let (created, _) = tool_dates(&fixture, "git__push");
    let push = fixture.unrestricted_catalog().find("git__push").unwrap().id();
    fixture.execute(Command::DisableTool(push.clone()), test_actor()).await.unwrap();

    fixture.manual_clock.advance(Duration::from_secs(60));
    git.set_tools(["pull"]);
    force_refresh(&fixture, "git").await;
    assert_eq!(call(&fixture, "git__push", json!({})).await.unwrap_err().code, Code::ToolNotImplemented);

    fixture.manual_clock.advance(Duration::from_secs(60));
    git.set_tools(["pull", "push"]);
    assert_eq!(force_refresh(&fixture, "git").await.added, ["git__push"]);
    assert_eq!(tool_dates(&fixture, "git__push"), (created, created + 120_000));
    assert_eq!(cached_tools(&fixture), ["git__pull"], "still disabled");
    fixture.execute(Command::EnableTool(push), test_actor()).await.unwrap();
    assert_eq!(cached_tools(&fixture), ["git__pull", "git__push"]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_tool_gets_a_new_date_and_others_do_not() {
    let git = ScriptedSource::new([tool_json("pull", "Pulls"), tool_json("push", "Pushes")]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let at = fixture.options.clock.now().0;
    fixture.manual_clock.advance(Duration::from_secs(1));
    git.set_tools([tool_json("pull", "Pulls"), tool_json("push", "Shoves")]);
    force_refresh(&fixture, "git").await;
    assert_eq!((tool_dates(&fixture, "git__pull"), tool_dates(&fixture, "git__push")), ((at, at), (at, at + 1_000)));
}

#[tokio::test(start_paused = true)]
async fn a_disabled_source_loses_its_tools_at_once_and_keeps_its_history() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    list_tools(&fixture).await;
    call(&fixture, "git__push", json!({})).await.unwrap();
    let length = fixture.journal_len().await;
    let version = fixture.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    assert_eq!(cached_tools(&fixture), ["hub__pull"]);
    assert_eq!(fixture.execute(Command::Disable(id("git")), test_actor()).await.unwrap(), version, "once");
    assert_eq!(fixture.journal_len().await, length + 1);
    wait_until("its connection is closed", || git.closes() == 1).await;

    assert_eq!(list_tools(&fixture).await, ["hub__pull"], "a disabled source is not contacted");
    let outcome = force_refresh(&fixture, "git").await;
    assert_eq!((outcome.status, outcome.contacted, git.discoveries()), (RefreshStatus::Disabled, false, 1));
    let error = call(&fixture, "git__push", json!({})).await.unwrap_err();
    assert_eq!(error.code, Code::ToolNotImplemented);
    assert_eq!(error.message, "the source `git` is disabled; `toolcrib enable git` enables it");

    fixture.execute(Command::Enable(id("git")), test_actor()).await.unwrap();
    assert_eq!((cached_tools(&fixture).len(), git.discoveries()), (2, 1), "its list was kept");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_finishes_although_its_source_is_disabled() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { call(&registry, "git__push", json!({})).await });
    wait_until("it began", || git.calls() == 1).await;
    fixture.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    git.resume();
    assert!(running.await.unwrap().is_ok());
}

/// A discovery that was running when its source was disabled must not list its tools again.
#[tokio::test(start_paused = true)]
async fn a_source_disabled_during_its_discovery_stays_disabled() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("it began", || git.discoveries() == 1).await;
    fixture.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    git.resume();
    running.await.unwrap();
    assert!(cached_tools(&fixture).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_source_declared_at_run_time_is_discovered_at_once_and_can_be_removed() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let yaml = "sources: { git: { command: x } }";
    let fixture = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    let kind = SourceKind::Stdio(StdioSource { command: "hub".into(), ..StdioSource::default() });
    let source = Source { id: id("hub"), kind, settings: SourceSettings::default() };
    let outcome = fixture.sources().declare(source.clone(), test_actor(), None).await.unwrap();
    assert_eq!((outcome.status, outcome.added), (RefreshStatus::Success, vec!["hub__pull".to_owned()]));

    let in_config = Source { id: id("git"), ..source.clone() };
    assert_eq!(fixture.sources().declare(in_config, test_actor(), None).await.unwrap_err().code, Code::Conflict);
    assert_eq!(fixture.sources().remove(&id("git"), test_actor()).await.unwrap_err().code, Code::Conflict);

    // Reloading the configuration affects only sources from it.
    fixture.configuration().apply(&config("sources: {}")).await.unwrap();
    assert_eq!(cached_tools(&fixture), ["hub__pull"]);
    let before = fixture.journal_len().await;
    fixture.sources().remove(&id("hub"), test_actor()).await.unwrap();
    assert!(cached_tools(&fixture).is_empty() && fixture.sources().list().is_empty());
    assert_eq!(fixture.journal_len().await, before + 1, "history stays");

    hub.fail("closed for today");
    let outcome = fixture.sources().declare(source, test_actor(), None).await.unwrap();
    assert_eq!(outcome.status, RefreshStatus::Failed);
    let view = fixture.source_view("hub");
    assert_eq!((view.status, view.last_error.unwrap().message.as_str()), (DiscoveryStatus::Failed, "closed for today"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_is_stale_and_discovered_again_before_the_next_call() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open_yaml("sources: { git: { command: old } }", &[("git", &git)]).await;
    list_tools(&fixture).await;
    let hash = fixture.source_view("git").config_hash;
    fixture.configuration().apply(&config("sources: { git: { command: new } }")).await.unwrap();
    let view = fixture.source_view("git");
    assert_eq!((view.freshness, view.tool_count, git.discoveries()), (Freshness::Stale, 1, 1));
    assert_ne!(view.config_hash, hash);
    git.set_tools(["push", "pull"]);
    call(&fixture, "git__push", json!({})).await.unwrap();
    assert_eq!((git.discoveries(), fixture.source_view("git").freshness), (2, Freshness::Fresh));
    assert_eq!(cached_tools(&fixture), ["git__pull", "git__push"]);

    fixture.configuration().apply(&config("sources: { git: { command: new, ttl: 1h } }")).await.unwrap();
    assert_eq!(fixture.source_view("git").freshness, Freshness::Fresh, "the connection did not change");
}

#[tokio::test(start_paused = true)]
async fn reloading_an_unchanged_config_writes_nothing() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    list_tools(&fixture).await;
    fixture.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    let length = fixture.journal_len().await;
    let reopened = fixture.open_again(yaml).await;
    assert_eq!(fixture.journal_len().await, length);
    assert!(cached_tools(&reopened).is_empty(), "declaring again does not enable again");
    let edited = fixture.open_again("sources: { git: { command: x, enabled: false } }").await;
    assert!(cached_tools(&edited).is_empty());
    let edited = fixture.open_again("sources: { git: { command: x, enabled: true } }").await;
    assert_eq!(cached_tools(&edited), ["git__push"], "an edited `enabled` counts as a command");
}

#[tokio::test(start_paused = true)]
async fn one_invalid_source_does_not_affect_the_others() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open_yaml("sources: { git: { command: x }, bad: { comand: y } }", &[("git", &git)]).await;
    assert_eq!(list_tools(&fixture).await, ["git__push"]);
    let bad = fixture.source_view("bad");
    let error = bad.last_error.unwrap();
    assert_eq!((bad.status, error.code), (DiscoveryStatus::Failed, Code::ConfigInvalid));
    assert!(error.message.contains("comand") && error.message.contains("command"), "{}", error.message);
    assert_eq!(force_refresh(&fixture, "bad").await.error.unwrap().code, Code::ConfigInvalid);
}

#[tokio::test(start_paused = true)]
async fn variables_override_a_source_for_this_process_only() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let yaml = "sources: { git: { command: x }, hub: { url: 'http://a/mcp' } }";
    let sources: [(&str, _); 2] = [("git", &git), ("hub", &hub)];
    let fixture = open_yaml(yaml, &sources).await;
    list_tools(&fixture).await;
    let length = fixture.journal_len().await;

    let environment = [("GIT_ENABLED", "false"), ("HUB_URL", "http://b/mcp"), ("HUB_TOKEN", "s3cret")];
    let environment = environment.map(|(name, value)| (format!("TOOLCRIB_SOURCE_{name}"), value.to_owned()));
    let options = RegistryOptions { environment: environment.to_vec(), ..fixture.options.clone() };
    let other = fixture.open_again_with(yaml, options).await;
    let git_view = other.sources().get(&id("git")).unwrap();
    let hub_view = other.sources().get(&id("hub")).unwrap();
    assert_eq!((git_view.enabled, git_view.tool_count), (false, 1), "known but not listed");
    assert_eq!((hub_view.url.as_deref(), hub_view.freshness), (Some("http://b/mcp"), Freshness::Stale));
    let definition = format!("{:?}", other.sources().effective(&id("hub")).unwrap());
    assert!(definition.contains("s3cret"), "the token is used");
    hub.set_tools(["elsewhere"]);
    assert_eq!(list_tools(&other).await, ["hub__elsewhere"]);

    assert_eq!(fixture.journal_len().await, length, "nothing was recorded");
    let records = format!(
        "{:?} {:?}",
        fixture.history().records(&HistoryQuery::after(0)).await.unwrap(),
        fixture.store.source_statuses().await.unwrap()
    );
    assert!(!records.contains("s3cret"));
    assert_eq!(cached_tools(&fixture), ["git__push", "hub__pull"], "other processes are not affected");
    assert!(!serde_json::to_string(&other.sources().list()).unwrap().contains("s3cret"));
}

#[tokio::test(start_paused = true)]
async fn a_variable_can_enable_a_disabled_source() {
    let git = ScriptedSource::new(["push"]);
    let environment = vec![("TOOLCRIB_SOURCE_GIT_ENABLED".to_owned(), "true".to_owned())];
    let yaml = "sources: { git: { command: x, enabled: false } }";
    let fixture = open_with(yaml, &[("git", &git)], |options| RegistryOptions { environment, ..options }).await;
    assert_eq!(list_tools(&fixture).await, ["git__push"]);
}

#[tokio::test(start_paused = true)]
async fn an_untrusted_source_is_listed_and_never_contacted() {
    let git = ScriptedSource::new(["push"]);
    let untrusted =
        Some(toolcrib::UntrustedFile { reason: "the file is not trusted".to_owned(), sources: vec![id("git")] });
    let trust = toolcrib::Trust { untrusted, ..toolcrib::Trust::default() };
    let yaml = "sources: { git: { command: x } }";
    let fixture = open_with(yaml, &[("git", &git)], |options| RegistryOptions { trust, ..options }).await;
    assert!(list_tools(&fixture).await.is_empty());
    let error = force_refresh(&fixture, "git").await.error.unwrap();
    assert_eq!(
        (error.code, error.message.as_str(), git.discoveries()),
        (Code::Forbidden, "the file is not trusted", 0)
    );
}

#[tokio::test(start_paused = true)]
async fn subscribers_get_each_event_once() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let mut notices = fixture.subscribe();
    let mut take_notices = move || {
        let mut texts = Vec::new();
        while let Ok(notice) = notices.try_recv() {
            texts.push(match notice {
                RegistryNotice::RecordAppended(record) => format!("recorded {}", record.seq),
                RegistryNotice::DiscoveryStarted(id) => format!("discovering {id}"),
                RegistryNotice::DiscoveryFinished(outcome) => format!("discovered {}", outcome.source),
                RegistryNotice::DiscoveryProgress { source, .. } => format!("progress {source}"),
                RegistryNotice::SourceTransition(notice) => notice.text.clone(),
                RegistryNotice::CallFinished(called) => format!("called {}", called.tool),
                RegistryNotice::CatalogChanged => "changed".to_owned(),
                RegistryNotice::FeaturesChanged => "features changed".to_owned(),
                RegistryNotice::RulesChanged => "rules changed".to_owned(),
                RegistryNotice::SourceNotification { method, .. } => format!("said {method}"),
                other => format!("{other:?}"),
            });
        }
        texts
    };
    force_refresh(&fixture, "git").await;
    let discovery = ["discovering git", "progress git", "progress git"];
    assert_eq!(take_notices(), [&discovery[..], &["changed", "recorded 2", "discovered git"]].concat());
    force_refresh(&fixture, "git").await;
    assert_eq!(take_notices(), [&discovery[..], &["discovered git"]].concat());
    fixture.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    assert_eq!(take_notices(), ["changed", "recorded 3"]);
    run_pending_tasks().await;
    assert!(take_notices().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_registries_on_one_store_see_each_other() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let fixture = open_yaml(yaml, &[("git", &git)]).await;
    let other = fixture.open_again(yaml).await;
    list_tools(&fixture).await;
    wait_until("the other registry noticed", || cached_tools(&other) == ["git__push"]).await;
    assert_eq!(git.discoveries(), 1);
    other.execute(Command::Disable(id("git")), test_actor()).await.unwrap();
    wait_until("this registry noticed", || cached_tools(&fixture).is_empty()).await;
}

#[tokio::test]
async fn a_document_with_an_untrusted_server_is_rejected() {
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
    let config = toolcrib::config::Config::read(text, "toolcrib.yaml", directory.path()).unwrap();
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

#[tokio::test(start_paused = true)]
async fn a_command_beats_a_reference_in_enabled_until_that_is_edited() {
    let yaml = |default: &str| {
        format!("sources: {{ git: {{ command: x, enabled: '${{env:TOOLCRIB_TEST_UNSET:-{default}}}' }} }}")
    };
    let git = ScriptedSource::new(["push"]);
    let fixture = open_yaml(&yaml("true"), &[("git", &git)]).await;
    let is_enabled = |registry: &Registry| registry.sources().get(&id("git")).unwrap().enabled;
    let switch = async |registry: &Registry, state| {
        let target = EnableTarget::Source(id("git"));
        registry.sources().set_enabled(target, state, Actor::new("cli")).await.unwrap().changed
    };
    assert!(is_enabled(&fixture));
    assert!(switch(&fixture, EnabledState::Disabled).await);
    assert!(!is_enabled(&fixture));
    let version = fixture.inventory().version;
    let again = fixture.open_again(&yaml("true")).await;
    assert_eq!((is_enabled(&again), again.inventory().version), (false, version), "an unchanged file changes nothing");
    let exported = &again.sources().declarations()[0].1.settings;
    assert_eq!((exported.enabled, exported.references.len()), (Some(false), 0));

    let edited = fixture.open_again(&yaml("false")).await;
    assert!(!is_enabled(&edited) && switch(&edited, EnabledState::Enabled).await && is_enabled(&edited));
    assert!(!switch(&edited, EnabledState::Enabled).await, "no event without a change");
    assert!(is_enabled(&fixture.open_again(&yaml("false")).await));
    assert!(is_enabled(&fixture.open_again(&yaml("true")).await), "by the reference");
    assert!(!is_enabled(&fixture.open_again("sources: { git: { command: x, enabled: false } }").await));
    assert!(is_enabled(&fixture.open_again("sources: { git: { command: x } }").await));
    // The environment of a process beats both.
    let variable = ("TOOLCRIB_SOURCE_GIT_ENABLED".to_owned(), "false".to_owned());
    let options = RegistryOptions { environment: vec![variable], ..fixture.options.clone() };
    let overridden = fixture.open_again_with(&yaml("true"), options).await;
    assert!(switch(&overridden, EnabledState::Disabled).await && switch(&overridden, EnabledState::Enabled).await);
    assert!(!is_enabled(&overridden));
}
