//! Ages, failures, backoff and health, with a clock that is moved by hand.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::freshness::Freshness;
use toolcrib::refresh::{Pauses, Refreshed};
use toolcrib::registry::{Health, Status};
use toolcrib::testkit::Scripted;
use toolcrib::{Code, Need, Options};

use crate::support::{cached, call, force, id, open, open_with, open_yaml, refresh, settle, tools, until};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_list_is_fresh_for_its_ttl() {
    let (git, hub) = (Scripted::new(["push"]), Scripted::new(["pull"]));
    let yaml = "sources: { git: { command: x }, hub: { command: x, ttl: 1h } }\ndefaults: { ttl: 2m }";
    let bench = open_yaml(yaml, &[("git", &git), ("hub", &hub)]).await;
    tools(&bench).await;
    for (advance, git, hub) in [
        (Duration::from_secs(119), Freshness::Fresh, Freshness::Fresh),
        (Duration::from_secs(1), Freshness::Stale, Freshness::Fresh),
        (58 * MINUTE, Freshness::Stale, Freshness::Stale),
    ] {
        bench.hand.advance(advance);
        assert_eq!((bench.view_of("git").freshness, bench.view_of("hub").freshness), (git, hub), "{advance:?}");
    }
    assert_eq!(bench.view_of("git").ttl_ms, 120_000);
    assert_eq!(bench.due(), [id("git"), id("hub")]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_is_served_at_once_and_revalidated_behind_the_scenes() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    bench.hand.advance(6 * MINUTE);
    git.offer(["pull"]);
    git.hold();
    for _ in 0..3 {
        assert_eq!(tools(&bench).await, ["git__push"], "nobody waits");
    }
    until("somebody asks", || git.discoveries() == 2).await;
    git.release();
    until("the new list is there", || cached(&bench) == ["git__pull"]).await;
    assert_eq!((git.discoveries(), bench.view_of("git").freshness), (2, Freshness::Fresh));
}

#[tokio::test(start_paused = true)]
async fn without_revalidation_a_stale_list_stays_until_somebody_asks() {
    let git = Scripted::new(["push"]);
    let yaml = "sources: { git: { command: x } }";
    let bench = open_with(yaml, &[("git", &git)], |options| Options { revalidate: false, ..options }).await;
    tools(&bench).await;
    bench.hand.advance(6 * MINUTE);
    git.offer(["pull"]);
    assert_eq!(tools(&bench).await, ["git__push"]);
    settle().await;
    assert_eq!(git.discoveries(), 1);
    bench.ensure(Need::Fresh, None, false).await;
    assert_eq!((cached(&bench), git.discoveries()), (vec!["git__pull".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_the_last_good_list_and_says_why() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    let (checked, length) = (bench.view_of("git").last_checked, bench.journal().await);
    bench.hand.advance(6 * MINUTE);
    git.fail("the cellar is flooded");
    let outcome = refresh(&bench, "git").await;
    assert_eq!(outcome.status, Refreshed::Failed);
    assert_eq!(outcome.error.unwrap().message, "the cellar is flooded");

    assert_eq!(cached(&bench), ["git__push"]);
    let view = bench.view_of("git");
    assert_eq!((view.status, view.freshness, view.health), (Status::Failed, Freshness::Stale, Health::Degraded));
    assert_eq!((view.last_checked, view.tool_count), (checked, 1), "when it last answered");
    let error = view.last_error.unwrap();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolUnavailable, "the cellar is flooded"));
    assert_eq!(bench.journal().await, length, "a failure is a measurement");

    git.recover();
    assert_eq!(refresh(&bench, "git").await.status, Refreshed::Unchanged);
    let view = bench.view_of("git");
    assert_eq!((view.status, view.health, view.last_error), (Status::Success, Health::Ok, None));
}

#[tokio::test(start_paused = true)]
async fn who_fails_is_left_alone_for_a_while_unless_somebody_insists() {
    let git = Scripted::new(["push"]);
    git.fail("not today");
    let bench = open(&[("git", &git)]).await;
    assert!(tools(&bench).await.is_empty());
    assert!(tools(&bench).await.is_empty());
    assert_eq!(git.discoveries(), 1, "it backs off");
    refresh(&bench, "git").await;
    assert_eq!(git.discoveries(), 2, "an explicit refresh insists");

    // The n-th failure in a row costs between a half and the whole of 2^(n-1) seconds, at most five minutes.
    for failures in 2..12_u32 {
        let longest = Duration::from_secs(1) * 2_u32.pow(failures - 1);
        let (shortest, longest) = (longest.min(5 * MINUTE) / 2, longest.min(5 * MINUTE));
        let before = git.discoveries();
        bench.hand.advance(shortest - Duration::from_millis(1));
        tools(&bench).await;
        assert_eq!(git.discoveries(), before, "too early after {failures} failures");
        bench.hand.advance(longest - shortest + Duration::from_millis(1));
        tools(&bench).await;
        assert_eq!(git.discoveries(), before + 1, "due after {failures} failures");
    }
    git.recover();
    bench.hand.advance(5 * MINUTE);
    assert_eq!(tools(&bench).await, ["git__push"]);
}

/// A reader that gave up made what another process found count as old, so that it was thrown away.
#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_does_not_spoil_what_is_under_way() {
    let store = std::sync::Arc::new(toolcrib::store::MemoryStore::new());
    let git = Scripted::new(["push"]);
    git.hold();
    let (clock, hand) = toolcrib::clock::Clock::manual(toolcrib::core::Timestamp(1_000_000));
    let open = async || {
        let options = Options {
            clock: clock.clone(),
            store: Some(store.clone()),
            connect: Some(Scripted::connect([("git", &git)])),
            ..Options::default()
        };
        toolcrib::Registry::open(toolcrib::testkit::config(["git"]), options).await.unwrap()
    };
    let (patient, hurried) = (open().await, open().await);
    let waiting = patient.clone();
    let waiting = tokio::spawn(async move { force(&waiting, "git").await });
    until("it is asked", || git.discoveries() == 1).await;
    hand.advance(Duration::from_secs(1));
    for round in 1..=2 {
        let pending = hurried.discoveries(Need::Fresh, None, Pauses::Respected, false).remove(0);
        assert_eq!(pending.source.failed_before, round == 2);
        let source = pending.source.clone();
        assert!(tokio::time::timeout(Duration::from_secs(2), pending.outcome).await.is_err());
        hurried.give_up(&source, Duration::from_secs(2)).await.unwrap();
        let view = hurried.source(&id("git")).unwrap();
        let failure = view.last_error.unwrap().message;
        assert!(failure.starts_with("it was not discovered within 2s"), "{failure}");
        assert_eq!((view.failures, view.last_checked.is_some()), (round, true));
        assert!(hurried.discoveries(Need::Fresh, None, Pauses::Respected, false).is_empty(), "it is paused");
        assert_eq!(hurried.discoveries(Need::Fresh, None, Pauses::Ignored, false).len(), 1);
        hand.advance(Duration::from_secs(5));
    }
    git.release();
    assert_eq!(waiting.await.unwrap().added, ["git__push"]);
    assert_eq!(tools(&hurried).await, ["git__push"]);
    assert_eq!(hurried.source(&id("git")).unwrap().failures, 0);
    assert_eq!(git.discoveries(), 1);
    // What ended meanwhile is not overwritten by a reader that did not notice.
    git.hold();
    patient.invalidate(None).await.unwrap();
    let pending = patient.discoveries(Need::Fresh, None, Pauses::Respected, false).remove(0);
    let source = pending.source.clone();
    git.release();
    pending.outcome.await;
    patient.give_up(&source, Duration::from_secs(2)).await.unwrap();
    assert_eq!(patient.source(&id("git")).unwrap().failures, 0);
}

/// A clock that was set back by a year left sources paused, stale or superseded for that year.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_does_no_lasting_harm() {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    for back in [true, false] {
        let (git, hub) = (Scripted::new(["push"]), Scripted::new(["star"]));
        hub.fail("not today");
        let bench = open(&[("git", &git), ("hub", &hub)]).await;
        assert_eq!(tools(&bench).await, ["git__push"]);
        if back {
            bench.hand.set_back(YEAR);
        } else {
            bench.hand.advance(YEAR);
        }
        hub.recover();
        assert_eq!(tools(&bench).await, ["git__push", "hub__star"], "no source stays paused");
        until("git is asked again", || bench.view_of("git").freshness == Freshness::Fresh).await;
        git.offer(["pull"]);
        force(&bench, "git").await;
        assert_eq!(cached(&bench), ["git__pull", "hub__star"], "what is newer counts");
    }
}

#[tokio::test(start_paused = true)]
async fn who_keeps_calling_a_name_that_is_unknown_makes_nobody_hammer_a_source_that_fails() {
    let (git, hub) = (Scripted::new(["push"]), Scripted::new(["star"]));
    git.fail("not today");
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    for name in ["push", "git__push", "git/push", "nothing", "hub__star", "elsewhere__push", "git__nothing"].repeat(10)
    {
        let called = call(&bench, name, json!({})).await;
        assert_eq!(called.is_ok(), name == "hub__star", "{name}");
    }
    assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    bench.hand.advance(Duration::from_secs(1));
    call(&bench, "git__nothing", json!({})).await.unwrap_err();
    call(&bench, "git__push", json!({})).await.unwrap_err();
    assert_eq!(git.discoveries(), 2, "due again once, then for twice as long not");
}

#[tokio::test(start_paused = true)]
async fn a_stale_source_that_fails_is_not_revalidated_at_every_look() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    bench.hand.advance(6 * MINUTE);
    git.fail("gone");
    tools(&bench).await;
    until("it was asked", || git.discoveries() == 2).await;
    until("it failed", || bench.view_of("git").status == Status::Failed).await;
    for _ in 0..10 {
        assert_eq!(tools(&bench).await, ["git__push"]);
        settle().await;
    }
    assert_eq!(git.discoveries(), 2);
}

#[tokio::test(start_paused = true)]
async fn health_follows_failures() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    assert_eq!(bench.view_of("git").health, Health::Unknown);
    refresh(&bench, "git").await;
    assert_eq!(bench.view_of("git").health, Health::Ok);
    git.fail("no");
    for health in [Health::Degraded, Health::Degraded, Health::Down, Health::Down] {
        force(&bench, "git").await;
        assert_eq!(bench.view_of("git").health, health);
    }
    git.recover();
    force(&bench, "git").await;
    assert_eq!(bench.view_of("git").health, Health::Ok);
}

#[tokio::test(start_paused = true)]
async fn what_is_invalidated_is_due_and_stays_listed() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    bench.invalidate(Some(&id("git"))).await.unwrap();
    assert_eq!((bench.view_of("git").freshness, cached(&bench).len()), (Freshness::Stale, 1));
    assert_eq!(refresh(&bench, "git").await.status, Refreshed::Unchanged);
    assert_eq!((bench.view_of("git").freshness, git.discoveries()), (Freshness::Fresh, 2));
    bench.invalidate(None).await.unwrap();
    git.offer(["pull"]);
    assert_eq!((tools(&bench).await, git.discoveries()), (vec!["git__pull".to_owned()], 3), "the next need asks");
    let error = bench.invalidate(Some(&id("gitt"))).await.unwrap_err();
    assert_eq!(error.message, "no source named `gitt`; did you mean `git`?");
}

/// Somebody who put a typing error right had to wait until the backoff of the wrong address was over.
#[tokio::test(start_paused = true)]
async fn a_source_that_was_put_right_is_tried_at_once() {
    let git = Scripted::new(["push"]);
    git.fail("no such host");
    let bench = open_yaml("sources: { git: { url: 'http://typo/mcp' } }", &[("git", &git)]).await;
    for _ in 0..8 {
        force(&bench, "git").await;
    }
    git.recover();
    assert!(tools(&bench).await.is_empty(), "it backs off");
    let right = bench.again("sources: { git: { url: 'http://right/mcp' } }").await;
    assert_eq!(tools(&right).await, ["git__push"]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_makes_a_list_stale_and_breaks_nothing() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    let (clock, _) = toolcrib::clock::Clock::manual(toolcrib::core::Timestamp(1_000));
    let options = Options { clock, ..bench.options.clone() };
    let earlier = toolcrib::Registry::open(crate::support::config("sources: { git: { command: scripted } }"), options);
    let earlier = earlier.await.unwrap();
    assert_eq!(earlier.source(&id("git")).unwrap().freshness, Freshness::Stale);
    assert_eq!(tools(&earlier).await, ["git__push"]);
}
