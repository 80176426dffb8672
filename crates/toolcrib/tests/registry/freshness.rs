//! Ages, failures, backoff and health, with a clock that is moved by hand.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::freshness::Freshness;
use toolcrib::refresh::{BackoffPolicy, RefreshStatus};
use toolcrib::registry::{DiscoveryStatus, SourceHealth};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Code, RegistryOptions, RequiredFreshness};

use crate::support::{
    cached_tools, call, force_refresh, id, list_tools, open, open_with, open_yaml, refresh, run_pending_tasks,
    wait_until,
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_list_is_fresh_for_its_ttl() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let yaml = "sources: { git: { command: x }, hub: { command: x, ttl: 1h } }\ndefaults: { ttl: 2m }";
    let bench = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    list_tools(&bench).await;
    for (advance, git, hub) in [
        (Duration::from_secs(119), Freshness::Fresh, Freshness::Fresh),
        (Duration::from_secs(1), Freshness::Stale, Freshness::Fresh),
        (58 * MINUTE, Freshness::Stale, Freshness::Stale),
    ] {
        bench.manual_clock.advance(advance);
        assert_eq!((bench.source_view("git").freshness, bench.source_view("hub").freshness), (git, hub), "{advance:?}");
    }
    assert_eq!(bench.source_view("git").ttl_ms, 120_000);
    assert_eq!(bench.due_sources(), [id("git"), id("hub")]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_is_served_at_once_and_revalidated_behind_the_scenes() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    bench.manual_clock.advance(6 * MINUTE);
    git.set_tools(["pull"]);
    git.pause();
    for _ in 0..3 {
        assert_eq!(list_tools(&bench).await, ["git__push"], "nobody waits");
    }
    wait_until("somebody asks", || git.discoveries() == 2).await;
    git.resume();
    wait_until("the new list is there", || cached_tools(&bench) == ["git__pull"]).await;
    assert_eq!((git.discoveries(), bench.source_view("git").freshness), (2, Freshness::Fresh));
}

#[tokio::test(start_paused = true)]
async fn without_revalidation_a_stale_list_stays_until_somebody_asks() {
    let git = ScriptedSource::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let bench = open_with(yaml, &[("git", &git)], |options| RegistryOptions { revalidate: false, ..options }).await;
    list_tools(&bench).await;
    bench.manual_clock.advance(6 * MINUTE);
    git.set_tools(["pull"]);
    assert_eq!(list_tools(&bench).await, ["git__push"]);
    run_pending_tasks().await;
    assert_eq!(git.discoveries(), 1);
    bench.ensure_freshness(RequiredFreshness::Fresh, None, false).await;
    assert_eq!((cached_tools(&bench), git.discoveries()), (vec!["git__pull".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_the_last_good_list_and_says_why() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    let (checked, length) = (bench.source_view("git").last_checked, bench.journal_len().await);
    bench.manual_clock.advance(6 * MINUTE);
    git.fail("the cellar is flooded");
    let outcome = refresh(&bench, "git").await;
    assert_eq!(outcome.status, RefreshStatus::Failed);
    assert_eq!(outcome.error.unwrap().message, "the cellar is flooded");

    assert_eq!(cached_tools(&bench), ["git__push"]);
    let view = bench.source_view("git");
    assert_eq!(
        (view.status, view.freshness, view.health),
        (DiscoveryStatus::Failed, Freshness::Stale, SourceHealth::Degraded)
    );
    assert_eq!((view.last_checked, view.tool_count), (checked, 1), "when it last answered");
    let error = view.last_error.unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolUnavailable, "the cellar is flooded"));
    assert_eq!(bench.journal_len().await, length, "a failure is a measurement");

    git.recover();
    assert_eq!(refresh(&bench, "git").await.status, RefreshStatus::Unchanged);
    let view = bench.source_view("git");
    assert_eq!((view.status, view.health, view.last_error), (DiscoveryStatus::Success, SourceHealth::Ok, None));
}

#[tokio::test(start_paused = true)]
async fn who_fails_is_left_alone_for_a_while_unless_somebody_insists() {
    let git = ScriptedSource::new(["push"]);
    git.fail("not today");
    let bench = open(&[("git", &git)]).await;
    assert!(list_tools(&bench).await.is_empty());
    assert!(list_tools(&bench).await.is_empty());
    assert_eq!(git.discoveries(), 1, "it backs off");
    refresh(&bench, "git").await;
    assert_eq!(git.discoveries(), 2, "an explicit refresh insists");

    // The n-th failure in a row costs between a half and the whole of 2^(n-1) seconds, at most five minutes.
    for failures in 2..12_u32 {
        let longest = Duration::from_secs(1) * 2_u32.pow(failures - 1);
        let (shortest, longest) = (longest.min(5 * MINUTE) / 2, longest.min(5 * MINUTE));
        let before = git.discoveries();
        bench.manual_clock.advance(shortest - Duration::from_millis(1));
        list_tools(&bench).await;
        assert_eq!(git.discoveries(), before, "too early after {failures} failures");
        bench.manual_clock.advance(longest - shortest + Duration::from_millis(1));
        list_tools(&bench).await;
        assert_eq!(git.discoveries(), before + 1, "due after {failures} failures");
    }
    git.recover();
    bench.manual_clock.advance(5 * MINUTE);
    assert_eq!(list_tools(&bench).await, ["git__push"]);
}

/// A reader that gave up made what another process found count as old, so that it was thrown away.
#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_does_not_spoil_what_is_under_way() {
    let store = std::sync::Arc::new(toolcrib::store::MemoryStore::new());
    let git = ScriptedSource::new(["push"]);
    git.pause();
    let (clock, hand) = toolcrib::clock::Clock::manual(toolcrib::core::Timestamp(1_000_000));
    let open = async || {
        let options = RegistryOptions {
            clock: clock.clone(),
            store: Some(store.clone()),
            connector_factory: Some(ScriptedSource::connector_factory([("git", &git)])),
            ..RegistryOptions::default()
        };
        toolcrib::Registry::open(toolcrib::testkit::config_with_sources(["git"]), options).await.unwrap()
    };
    let (patient, hurried) = (open().await, open().await);
    let waiting = patient.clone();
    let waiting = tokio::spawn(async move { force_refresh(&waiting, "git").await });
    wait_until("it is asked", || git.discoveries() == 1).await;
    hand.advance(Duration::from_secs(1));
    for round in 1..=2 {
        let pending =
            hurried.pending_discoveries(RequiredFreshness::Fresh, None, BackoffPolicy::Respect, false).remove(0);
        assert_eq!(pending.source.failed_before, round == 2);
        let source = pending.source.clone();
        assert!(tokio::time::timeout(Duration::from_secs(2), pending.outcome).await.is_err());
        hurried.record_wait_timeout(&source, Duration::from_secs(2)).await.unwrap();
        let view = hurried.source(&id("git")).unwrap();
        let failure = view.last_error.unwrap().message;
        assert!(failure.starts_with("it was not discovered within 2s"), "{failure}");
        assert_eq!((view.failures, view.last_checked.is_some()), (round, true));
        assert!(
            hurried.pending_discoveries(RequiredFreshness::Fresh, None, BackoffPolicy::Respect, false).is_empty(),
            "it is paused"
        );
        assert_eq!(hurried.pending_discoveries(RequiredFreshness::Fresh, None, BackoffPolicy::Ignore, false).len(), 1);
        hand.advance(Duration::from_secs(5));
    }
    git.resume();
    assert_eq!(waiting.await.unwrap().added, ["git__push"]);
    assert_eq!(list_tools(&hurried).await, ["git__push"]);
    assert_eq!(hurried.source(&id("git")).unwrap().failures, 0);
    assert_eq!(git.discoveries(), 1);
    // What ended meanwhile is not overwritten by a reader that did not notice.
    git.pause();
    patient.invalidate(None).await.unwrap();
    let pending = patient.pending_discoveries(RequiredFreshness::Fresh, None, BackoffPolicy::Respect, false).remove(0);
    let source = pending.source.clone();
    git.resume();
    pending.outcome.await;
    patient.record_wait_timeout(&source, Duration::from_secs(2)).await.unwrap();
    assert_eq!(patient.source(&id("git")).unwrap().failures, 0);
}

/// A clock that was set back by a year left sources paused, stale or superseded for that year.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_does_no_lasting_harm() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    for back in [true, false] {
        let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["star"]));
        hub.fail("not today");
        let bench = open(&[("git", &git), ("hub", &hub)]).await;
        assert_eq!(list_tools(&bench).await, ["git__push"]);
        if back {
            bench.manual_clock.set_back(YEAR);
        } else {
            bench.manual_clock.advance(YEAR);
        }
        hub.recover();
        assert_eq!(list_tools(&bench).await, ["git__push", "hub__star"], "no source stays paused");
        wait_until("git is asked again", || bench.source_view("git").freshness == Freshness::Fresh).await;
        git.set_tools(["pull"]);
        force_refresh(&bench, "git").await;
        assert_eq!(cached_tools(&bench), ["git__pull", "hub__star"], "what is newer counts");
    }
}

#[tokio::test(start_paused = true)]
async fn who_keeps_calling_a_name_that_is_unknown_makes_nobody_hammer_a_source_that_fails() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["star"]));
    git.fail("not today");
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    for name in ["push", "git__push", "git/push", "nothing", "hub__star", "elsewhere__push", "git__nothing"].repeat(10)
    {
        let called = call(&bench, name, json!({})).await;
        assert_eq!(called.is_ok(), name == "hub__star", "{name}");
    }
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    bench.manual_clock.advance(Duration::from_secs(1));
    call(&bench, "git__nothing", json!({})).await.unwrap_err();
    call(&bench, "git__push", json!({})).await.unwrap_err();
    assert_eq!(git.discoveries(), 2, "due again once, then for twice as long not");
}

#[tokio::test(start_paused = true)]
async fn a_stale_source_that_fails_is_not_revalidated_at_every_look() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    bench.manual_clock.advance(6 * MINUTE);
    git.fail("gone");
    list_tools(&bench).await;
    wait_until("it was asked", || git.discoveries() == 2).await;
    wait_until("it failed", || bench.source_view("git").status == DiscoveryStatus::Failed).await;
    for _ in 0..10 {
        assert_eq!(list_tools(&bench).await, ["git__push"]);
        run_pending_tasks().await;
    }
    assert_eq!(git.discoveries(), 2);
}

#[tokio::test(start_paused = true)]
async fn health_follows_failures() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    assert_eq!(bench.source_view("git").health, SourceHealth::Unknown);
    refresh(&bench, "git").await;
    assert_eq!(bench.source_view("git").health, SourceHealth::Ok);
    git.fail("no");
    for health in [SourceHealth::Degraded, SourceHealth::Degraded, SourceHealth::Down, SourceHealth::Down] {
        force_refresh(&bench, "git").await;
        assert_eq!(bench.source_view("git").health, health);
    }
    git.recover();
    force_refresh(&bench, "git").await;
    assert_eq!(bench.source_view("git").health, SourceHealth::Ok);
}

#[tokio::test(start_paused = true)]
async fn what_is_invalidated_is_due_and_stays_listed() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    bench.invalidate(Some(&id("git"))).await.unwrap();
    assert_eq!((bench.source_view("git").freshness, cached_tools(&bench).len()), (Freshness::Stale, 1));
    assert_eq!(refresh(&bench, "git").await.status, RefreshStatus::Unchanged);
    assert_eq!((bench.source_view("git").freshness, git.discoveries()), (Freshness::Fresh, 2));
    bench.invalidate(None).await.unwrap();
    git.set_tools(["pull"]);
    assert_eq!((list_tools(&bench).await, git.discoveries()), (vec!["git__pull".to_owned()], 3), "the next need asks");
    let error = bench.invalidate(Some(&id("gitt"))).await.unwrap_err();
    assert_eq!(error.message, "no source named `gitt`; did you mean `git`?");
}

/// Somebody who put a typing error right had to wait until the backoff of the wrong address was over.
#[tokio::test(start_paused = true)]
async fn a_source_that_was_put_right_is_tried_at_once() {
    let git = ScriptedSource::new(["push"]);
    git.fail("no such host");
    let bench = open_yaml("sources: { git: { url: 'http://typo/mcp' } }", &[("git", &git)]).await;
    for _ in 0..8 {
        force_refresh(&bench, "git").await;
    }
    git.recover();
    assert!(list_tools(&bench).await.is_empty(), "it backs off");
    let right = bench.open_again("sources: { git: { url: 'http://right/mcp' } }").await;
    assert_eq!(list_tools(&right).await, ["git__push"]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_makes_a_list_stale_and_breaks_nothing() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    let (clock, _) = toolcrib::clock::Clock::manual(toolcrib::core::Timestamp(1_000));
    let options = RegistryOptions { clock, ..bench.options.clone() };
    let earlier = toolcrib::Registry::open(crate::support::config("sources: { git: { command: scripted } }"), options);
    let earlier = earlier.await.unwrap();
    assert_eq!(earlier.source(&id("git")).unwrap().freshness, Freshness::Stale);
    assert_eq!(list_tools(&earlier).await, ["git__push"]);
}
