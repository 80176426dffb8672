//! Freshness, failures, backoff and health, with a manual clock.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::freshness::Freshness;
use toolcrib::refresh::{BackoffPolicy, ConnectionAfterDiscovery, RefreshStatus};
use toolcrib::registry::{DiscoveryStatus, SourceHealth};
use toolcrib::testkit::{ScriptedSource, config_with_sources, open_with_connectors};
use toolcrib::{Code, RegistryOptions, Requester, RequiredFreshness};

use crate::support::{
    cached_tools, call, force_refresh, id, list_tools, open, open_with, open_yaml, refresh, run_pending_tasks,
    wait_until,
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_list_is_fresh_for_its_ttl() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let yaml = "sources: { git: { command: x }, hub: { command: x, ttl: 1h } }\ndefaults: { ttl: 2m }";
    let fixture = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    list_tools(&fixture).await;
    for (advance, git, hub) in [
        (Duration::from_secs(119), Freshness::Fresh, Freshness::Fresh),
        (Duration::from_secs(1), Freshness::Stale, Freshness::Fresh),
        (58 * MINUTE, Freshness::Stale, Freshness::Stale),
    ] {
        fixture.manual_clock.advance(advance);
        assert_eq!(
            (fixture.source_view("git").freshness, fixture.source_view("hub").freshness),
            (git, hub),
            "{advance:?}"
        );
    }
    assert_eq!(fixture.source_view("git").ttl_ms, 120_000);
    assert_eq!(fixture.refresher().due_sources(), [id("git"), id("hub")]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_is_served_at_once_and_revalidated_in_the_background() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    fixture.manual_clock.advance(6 * MINUTE);
    git.set_tools(["pull"]);
    git.pause();
    for _ in 0..3 {
        assert_eq!(list_tools(&fixture).await, ["git__push"], "no list waits for the source");
    }
    wait_until("a background refresh started", || git.discoveries() == 2).await;
    git.resume();
    wait_until("the new list is there", || cached_tools(&fixture) == ["git__pull"]).await;
    assert_eq!((git.discoveries(), fixture.source_view("git").freshness), (2, Freshness::Fresh));
}

#[tokio::test(start_paused = true)]
async fn without_revalidation_a_stale_list_stays_until_it_is_refreshed() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let fixture = open_with(yaml, &[("git", &git)], |options| RegistryOptions { revalidate: false, ..options }).await;
    list_tools(&fixture).await;
    fixture.manual_clock.advance(6 * MINUTE);
    git.set_tools(["pull"]);
    assert_eq!(list_tools(&fixture).await, ["git__push"]);
    run_pending_tasks().await;
    assert_eq!(git.discoveries(), 1);
    fixture.refresher().ensure_freshness(RequiredFreshness::Fresh, None, Requester::default()).await;
    assert_eq!((cached_tools(&fixture), git.discoveries()), (vec!["git__pull".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_keeps_the_last_list_and_reports_the_reason() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let checked = fixture.source_view("git").last_checked;
    let length = fixture.journal_len().await;
    fixture.manual_clock.advance(6 * MINUTE);
    git.fail("the cellar is flooded");
    let outcome = refresh(&fixture, "git").await;
    assert_eq!(outcome.status, RefreshStatus::Failed);
    assert_eq!(outcome.error.unwrap().message, "the cellar is flooded");

    assert_eq!(cached_tools(&fixture), ["git__push"]);
    let view = fixture.source_view("git");
    assert_eq!(
        (view.status, view.freshness, view.health),
        (DiscoveryStatus::Failed, Freshness::Stale, SourceHealth::Degraded)
    );
    assert_eq!((view.last_checked, view.tool_count), (checked, 1), "the time of the last success");
    let error = view.last_error.unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolUnavailable, "the cellar is flooded"));
    assert_eq!(fixture.journal_len().await, length, "a failure is a measurement");

    git.recover();
    assert_eq!(refresh(&fixture, "git").await.status, RefreshStatus::Unchanged);
    let view = fixture.source_view("git");
    assert_eq!((view.status, view.health, view.last_error), (DiscoveryStatus::Success, SourceHealth::Ok, None));
}

#[tokio::test(start_paused = true)]
async fn a_failing_source_is_retried_with_backoff_or_by_force() {
    let git = ScriptedSource::new(["push"]);
    git.fail("not today");
    let fixture = open(&[("git", &git)]).await;
    assert!(list_tools(&fixture).await.is_empty());
    assert!(list_tools(&fixture).await.is_empty());
    assert_eq!(git.discoveries(), 1, "the source is in backoff");
    refresh(&fixture, "git").await;
    assert_eq!(git.discoveries(), 2, "an explicit refresh ignores the backoff");

    // The backoff after n failures is between half and all of 2^(n-1) seconds, at most five minutes.
    for failures in 2..12_u32 {
        let longest = Duration::from_secs(1) * 2_u32.pow(failures - 1);
        let shortest = longest.min(5 * MINUTE) / 2;
        let longest = longest.min(5 * MINUTE);
        let before = git.discoveries();
        fixture.manual_clock.advance(shortest - Duration::from_millis(1));
        list_tools(&fixture).await;
        assert_eq!(git.discoveries(), before, "too early after {failures} failures");
        fixture.manual_clock.advance(longest - shortest + Duration::from_millis(1));
        list_tools(&fixture).await;
        assert_eq!(git.discoveries(), before + 1, "due after {failures} failures");
    }
    git.recover();
    fixture.manual_clock.advance(5 * MINUTE);
    assert_eq!(list_tools(&fixture).await, ["git__push"]);
}

/// Regression: a reader that gave up made the result of another process look outdated, so that it was discarded.
#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_does_not_discard_a_running_discovery() {
    let store = std::sync::Arc::new(toolcrib::store::MemoryStore::new());
    let git = ScriptedSource::new(["push"]);
    git.pause();
    let (clock, hand) = toolcrib::clock::Clock::manual(toolcrib::core::Timestamp(1_000_000));
    let open = async || {
        let options =
            RegistryOptions { clock: clock.clone(), store: Some(store.clone()), ..RegistryOptions::default() };
        let factory = ScriptedSource::connector_factory([("git", &git)]);
        open_with_connectors(config_with_sources(["git"]), options, factory).await.unwrap()
    };
    let registry = open().await;
    let other_process = open().await;
    let waiting = registry.clone();
    let waiting = tokio::spawn(async move { force_refresh(&waiting, "git").await });
    wait_until("the discovery started", || git.discoveries() == 1).await;
    hand.advance(Duration::from_secs(1));
    for round in 1..=2 {
        let pending = other_process
            .refresher()
            .pending_discoveries(
                RequiredFreshness::Fresh,
                None,
                BackoffPolicy::Respect,
                ConnectionAfterDiscovery::Close,
            )
            .remove(0);
        assert_eq!(pending.source.failed_before, round == 2);
        let source = pending.source.clone();
        assert!(tokio::time::timeout(Duration::from_secs(2), pending.outcome).await.is_err());
        other_process.refresher().record_wait_timeout(&source, Duration::from_secs(2)).await.unwrap();
        let view = other_process.sources().get(&id("git")).unwrap();
        let failure = view.last_error.unwrap().message;
        assert!(failure.starts_with("it was not discovered within 2s"), "{failure}");
        assert_eq!((view.failures, view.last_checked.is_some()), (round, true));
        assert!(
            other_process
                .refresher()
                .pending_discoveries(
                    RequiredFreshness::Fresh,
                    None,
                    BackoffPolicy::Respect,
                    ConnectionAfterDiscovery::Close
                )
                .is_empty(),
            "the source is in backoff"
        );
        assert_eq!(
            other_process
                .refresher()
                .pending_discoveries(
                    RequiredFreshness::Fresh,
                    None,
                    BackoffPolicy::Ignore,
                    ConnectionAfterDiscovery::Close
                )
                .len(),
            1
        );
        hand.advance(Duration::from_secs(5));
    }
    git.resume();
    assert_eq!(waiting.await.unwrap().added, ["git__push"]);
    assert_eq!(list_tools(&other_process).await, ["git__push"]);
    assert_eq!(other_process.sources().get(&id("git")).unwrap().failures, 0);
    assert_eq!(git.discoveries(), 1);
    // Giving up after the discovery has finished does not overwrite its result.
    git.pause();
    registry.sources().invalidate(None).await.unwrap();
    let pending = registry
        .refresher()
        .pending_discoveries(RequiredFreshness::Fresh, None, BackoffPolicy::Respect, ConnectionAfterDiscovery::Close)
        .remove(0);
    let source = pending.source.clone();
    git.resume();
    pending.outcome.await;
    registry.refresher().record_wait_timeout(&source, Duration::from_secs(2)).await.unwrap();
    assert_eq!(registry.sources().get(&id("git")).unwrap().failures, 0);
}

/// Regression: a clock that was set back by a year left sources paused, stale or superseded for that year.
#[tokio::test(start_paused = true)]
async fn a_changed_clock_has_no_lasting_effect() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    for back in [true, false] {
        let git = ScriptedSource::new(["push"]);
        let hub = ScriptedSource::new(["star"]);
        hub.fail("not today");
        let fixture = open(&[("git", &git), ("hub", &hub)]).await;
        assert_eq!(list_tools(&fixture).await, ["git__push"]);
        if back {
            fixture.manual_clock.set_back(YEAR);
        } else {
            fixture.manual_clock.advance(YEAR);
        }
        hub.recover();
        assert_eq!(list_tools(&fixture).await, ["git__push", "hub__star"], "no source stays paused");
        wait_until("git is refreshed", || fixture.source_view("git").freshness == Freshness::Fresh).await;
        git.set_tools(["pull"]);
        force_refresh(&fixture, "git").await;
        assert_eq!(cached_tools(&fixture), ["git__pull", "hub__star"], "the newer list counts");
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_of_unknown_names_respect_the_backoff() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["star"]);
    git.fail("not today");
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    for name in ["push", "git__push", "git/push", "nothing", "hub__star", "elsewhere__push", "git__nothing"].repeat(10)
    {
        let called = call(&fixture, name, json!({})).await;
        assert_eq!(called.is_ok(), name == "hub__star", "{name}");
    }
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    fixture.manual_clock.advance(Duration::from_secs(1));
    call(&fixture, "git__nothing", json!({})).await.unwrap_err();
    call(&fixture, "git__push", json!({})).await.unwrap_err();
    assert_eq!(git.discoveries(), 2, "due again once, then twice the backoff");
}

#[tokio::test(start_paused = true)]
async fn a_failing_stale_source_is_not_revalidated_on_every_list() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    fixture.manual_clock.advance(6 * MINUTE);
    git.fail("gone");
    list_tools(&fixture).await;
    wait_until("the discovery started", || git.discoveries() == 2).await;
    wait_until("it failed", || fixture.source_view("git").status == DiscoveryStatus::Failed).await;
    for _ in 0..10 {
        assert_eq!(list_tools(&fixture).await, ["git__push"]);
        run_pending_tasks().await;
    }
    assert_eq!(git.discoveries(), 2);
}

#[tokio::test(start_paused = true)]
async fn health_follows_failures() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    assert_eq!(fixture.source_view("git").health, SourceHealth::Unknown);
    refresh(&fixture, "git").await;
    assert_eq!(fixture.source_view("git").health, SourceHealth::Ok);
    git.fail("no");
    for health in [SourceHealth::Degraded, SourceHealth::Degraded, SourceHealth::Down, SourceHealth::Down] {
        force_refresh(&fixture, "git").await;
        assert_eq!(fixture.source_view("git").health, health);
    }
    git.recover();
    force_refresh(&fixture, "git").await;
    assert_eq!(fixture.source_view("git").health, SourceHealth::Ok);
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_source_is_due_and_stays_listed() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    fixture.sources().invalidate(Some(&id("git"))).await.unwrap();
    assert_eq!((fixture.source_view("git").freshness, cached_tools(&fixture).len()), (Freshness::Stale, 1));
    assert_eq!(refresh(&fixture, "git").await.status, RefreshStatus::Unchanged);
    assert_eq!((fixture.source_view("git").freshness, git.discoveries()), (Freshness::Fresh, 2));
    fixture.sources().invalidate(None).await.unwrap();
    git.set_tools(["pull"]);
    assert_eq!(
        (list_tools(&fixture).await, git.discoveries()),
        (vec!["git__pull".to_owned()], 3),
        "the next list refreshes"
    );
    let error = fixture.sources().invalidate(Some(&id("gitt"))).await.unwrap_err();
    assert_eq!(error.message, "no source named `gitt`; did you mean `git`?");
}

/// Regression: a source with a corrected URL stayed in the backoff of the wrong one.
#[tokio::test(start_paused = true)]
async fn a_corrected_source_is_tried_at_once() {
    let git = ScriptedSource::new(["push"]);
    git.fail("no such host");
    let fixture = open_yaml("sources: { git: { url: 'http://typo/mcp' } }", &[("git", &git)]).await;
    for _ in 0..8 {
        force_refresh(&fixture, "git").await;
    }
    git.recover();
    assert!(list_tools(&fixture).await.is_empty(), "the source is in backoff");
    let right = fixture.open_again("sources: { git: { url: 'http://right/mcp' } }").await;
    assert_eq!(list_tools(&right).await, ["git__push"]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_makes_a_list_stale() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let (clock, _) = toolcrib::clock::Clock::manual(toolcrib::core::Timestamp(1_000));
    let options = RegistryOptions { clock, ..fixture.options.clone() };
    let registry = fixture.open_again_with("sources: { git: { command: scripted } }", options).await;
    assert_eq!(registry.sources().get(&id("git")).unwrap().freshness, Freshness::Stale);
    assert_eq!(list_tools(&registry).await, ["git__push"]);
}
