//! Who is contacted, when, and how often.

use std::time::Duration;

use toolcrib::core::freshness::Freshness;
use toolcrib::refresh::Refreshed;
use toolcrib::registry::{Health, Status, Wanted};
use toolcrib::testkit::Scripted;
use toolcrib::{Code, Need, Options, Refresh};

use crate::support::{Bench, cached, force, id, open, open_with, refresh, settle, tool, tools, until};

#[tokio::test(start_paused = true)]
async fn opening_contacts_nobody() {
    let (git, hub) = (Scripted::new(["push"]), Scripted::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    settle().await;
    assert_eq!((git.discoveries(), hub.discoveries()), (0, 0));
    let git = bench.view_of("git");
    assert_eq!((git.status, git.freshness, git.health), (Status::Never, Freshness::Missing, Health::Unknown));
    assert_eq!(bench.due(), [id("git"), id("hub")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_discovers_what_is_missing_and_the_second_contacts_nobody() {
    let (git, hub) = (Scripted::new(["push", "add"]), Scripted::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    for _ in 0..2 {
        assert_eq!(tools(&bench).await, ["git__add", "git__push", "hub__pull"]);
        assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    }
    let view = bench.view_of("git");
    assert_eq!((view.status, view.freshness, view.tool_count), (Status::Success, Freshness::Fresh, 2));
    let stats = bench.stats();
    assert_eq!((stats.hits, stats.misses, stats.tool_count), (2, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn no_more_sources_than_the_limit_are_discovered_at_once() {
    let sources: Vec<_> = (0..6).map(|number| (format!("s{number}"), Scripted::new(["t"]))).collect();
    let named: Vec<_> = sources.iter().map(|(id, source)| (id.as_str(), source)).collect();
    let yaml: String = sources.iter().map(|(id, _)| format!("  {id}: {{ command: x }}\n")).collect();
    let bench = open_with(&format!("sources:\n{yaml}"), &named, |options| Options { parallel: 4, ..options }).await;
    sources.iter().for_each(|(_, source)| source.hold());
    let begun = || sources.iter().map(|(_, source)| source.discoveries()).sum::<usize>();

    let registry = bench.registry.clone();
    let all = tokio::spawn(async move { registry.refresh(Refresh::default()).await });
    until("four began", || begun() == 4).await;
    settle().await;
    assert_eq!(begun(), 4);
    sources.iter().for_each(|(_, source)| source.release());
    assert_eq!(all.await.unwrap().len(), 6);
    assert_eq!(begun(), 6);
}

#[tokio::test(start_paused = true)]
async fn twenty_slow_sources_take_as_long_as_one() {
    let sources: Vec<_> = (0..20).map(|number| (format!("s{number}"), Scripted::new(["t"]))).collect();
    let named: Vec<_> = sources.iter().map(|(id, source)| (id.as_str(), source)).collect();
    sources.iter().for_each(|(_, source)| source.delay(Duration::from_millis(500)));
    let bench = open(&named).await;
    let began = tokio::time::Instant::now();
    assert_eq!(tools(&bench).await.len(), 20);
    assert!(began.elapsed() < Duration::from_millis(750), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_refresh_at_the_same_time_joins_the_first() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.hold();
    let running: Vec<_> = (0..5)
        .map(|_| {
            let registry = bench.registry.clone();
            tokio::spawn(async move { force(&registry, "git").await })
        })
        .collect();
    until("one began", || git.discoveries() == 1).await;
    settle().await;
    assert_eq!(bench.view_of("git").status, Status::Discovering);
    git.release();
    for one in running {
        let outcome = one.await.unwrap();
        assert_eq!((outcome.status, outcome.added), (Refreshed::Success, vec!["git__push".to_owned()]));
    }
    assert_eq!(git.discoveries(), 1);
    assert_eq!(bench.view_of("git").status, Status::Success);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_does_not_end_the_discovery_for_the_others() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.hold();
    let registry = bench.registry.clone();
    let first = tokio::spawn(async move { refresh(&registry, "git").await });
    until("it began", || git.discoveries() == 1).await;
    let registry = bench.registry.clone();
    let second = tokio::spawn(async move { refresh(&registry, "git").await });
    settle().await;
    first.abort();
    settle().await;
    git.release();
    assert_eq!(second.await.unwrap().status, Refreshed::Success);
    assert_eq!(git.discoveries(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_source_publishes_when_it_answers() {
    let (slow, quick) = (Scripted::new(["late"]), Scripted::new(["soon"]));
    let bench = open(&[("slow", &slow), ("quick", &quick)]).await;
    slow.hold();
    let registry = bench.registry.clone();
    let all = tokio::spawn(async move { tools(&registry).await });
    until("the quick one is listed", || cached(&bench) == ["quick__soon"]).await;
    assert!(!all.is_finished());
    slow.release();
    assert_eq!(all.await.unwrap(), ["quick__soon", "slow__late"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_fails_at_its_deadline_and_the_others_are_there() {
    let (dead, good) = (Scripted::new(["never"]), Scripted::new(["here"]));
    dead.hold();
    let bench = crate::support::open_yaml(
        "sources: { dead: { command: x, discovery_timeout: 3s }, good: { command: x } }",
        &[("dead", &dead), ("good", &good)],
    )
    .await;
    let began = tokio::time::Instant::now();
    assert_eq!(tools(&bench).await, ["good__here"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let view = bench.view_of("dead");
    assert_eq!((view.status, view.health), (Status::Failed, Health::Down));
    assert_eq!(view.last_error.unwrap().message, "no answer within 3s");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_gets_two_minutes_and_later_ones_half_a_minute() {
    let git = Scripted::new(["push"]);
    git.delay(Duration::from_secs(100));
    let bench = open(&[("git", &git)]).await;
    assert_eq!(refresh(&bench, "git").await.status, Refreshed::Success);
    let again = force(&bench, "git").await;
    assert_eq!(again.error.unwrap().message, "no answer within 30s");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_has_its_own_limit_unless_only_that_of_a_discovery_is_set() {
    for (source, defaults, limit) in [
        ("command: x", "", "2m"),
        ("command: x, first_start_timeout: 7s", "", "7s"),
        ("command: x", "first_start_timeout: 7s", "7s"),
        ("command: x, first_start_timeout: 8s", "first_start_timeout: 7s", "8s"),
        ("command: x, discovery_timeout: 5s", "", "5s"),
        ("command: x, discovery_timeout: 5s", "first_start_timeout: 7s", "7s"),
        ("url: 'http://x', first_start_timeout: 7s", "", "30s"),
    ] {
        let dead = Scripted::new(["never"]);
        dead.hold();
        let yaml = format!("defaults: {{ {defaults} }}\nsources: {{ dead: {{ {source} }} }}");
        let bench = crate::support::open_yaml(&yaml, &[("dead", &dead)]).await;
        let error = refresh(&bench, "dead").await.error.unwrap();
        assert_eq!(error.message, format!("no answer within {limit}"), "{yaml}");
    }
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let before = bench.view_of("git").config_hash;
    let again = bench.again("sources: { git: { command: scripted, first_start_timeout: 7s } }").await;
    assert_eq!(again.source(&id("git")).unwrap().config_hash, before);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_list_is_left_alone_unless_forced_and_unchanged_is_no_event() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let first = refresh(&bench, "git").await;
    assert_eq!(
        (first.status, first.contacted, &first.added),
        (Refreshed::Success, true, &vec!["git__push".to_owned()])
    );
    let length = bench.journal().await;

    let fresh = refresh(&bench, "git").await;
    assert_eq!((fresh.status, fresh.contacted, fresh.unchanged), (Refreshed::Fresh, false, 1));
    assert_eq!(fresh.inventory_hash, first.inventory_hash);
    assert_eq!(git.discoveries(), 1);

    bench.hand.advance(Duration::from_secs(10));
    let forced = force(&bench, "git").await;
    assert_eq!((forced.status, forced.contacted, forced.unchanged), (Refreshed::Unchanged, true, 1));
    assert_eq!((forced.added.len(), forced.inventory_hash), (0, first.inventory_hash));
    assert_eq!(git.discoveries(), 2);
    assert_eq!(bench.journal().await, length, "no change, no event");
    assert_eq!(bench.checks(&id("git")).await.unwrap().len(), 2, "but a check");
    assert_eq!(bench.view_of("git").last_checked, Some(bench.options.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_returns_its_delta_and_records_it() {
    let git = Scripted::new([tool("add", "Adds"), tool("pull", "Pulls"), tool("push", "Pushes")]);
    let bench = open(&[("git", &git)]).await;
    refresh(&bench, "git").await;
    git.offer([tool("add", "Adds"), tool("fetch", "Fetches"), tool("push", "Pushes with force")]);
    let delta = force(&bench, "git").await;
    assert_eq!(delta.status, Refreshed::Success);
    assert_eq!((delta.added, delta.removed, delta.unchanged), (vec!["git__fetch".into()], vec!["git__pull".into()], 1));
    assert_eq!(delta.changed.len(), 1);
    assert_eq!(
        (delta.changed[0].name.as_str(), &delta.changed[0].fields),
        ("git__push", &vec!["description".to_owned()])
    );
    let last = bench.history(&Wanted::after(0)).await.unwrap().pop().unwrap();
    assert_eq!((last.kind.as_str(), last.source.as_deref()), ("InventoryRecorded", Some("git")));
    assert_eq!(last.data["removed"], serde_json::json!(["pull"]));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_of_an_unknown_source_says_which_are_near() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let outcome = refresh(&bench, "gti").await;
    let error = outcome.error.unwrap();
    assert_eq!((outcome.status, error.code), (Refreshed::Failed, Code::NotFound));
    assert_eq!(error.message, "no source named `gti`; did you mean `git`?");
}

#[tokio::test(start_paused = true)]
async fn a_slow_older_answer_never_overwrites_a_newer_one() {
    let git = Scripted::new(["old"]);
    let bench = open(&[("git", &git)]).await;
    git.hold();
    let registry = bench.registry.clone();
    let slow = tokio::spawn(async move { refresh(&registry, "git").await });
    until("it began", || git.discoveries() == 1).await;

    bench.hand.advance(Duration::from_secs(1));
    let newer = record(&bench, &["new"]).await;
    git.release();
    let slow = slow.await.unwrap();
    assert_eq!((slow.status, slow.added.len(), slow.removed.len()), (Refreshed::Unchanged, 0, 0));
    assert_eq!(slow.inventory_hash, newer.inventory_hash, "it tells the list that holds");
    assert_eq!(cached(&bench), ["git__new"]);
    assert_eq!(bench.view_of("git").last_checked, Some(bench.options.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_host_may_record_what_it_discovered_itself() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let outcome = record(&bench, &["add", "push"]).await;
    assert_eq!((outcome.status, outcome.added.len()), (Refreshed::Success, 2));
    assert_eq!(record(&bench, &["add", "push"]).await.status, Refreshed::Unchanged);
    assert_eq!(tools(&bench).await, ["git__add", "git__push"]);
    assert_eq!((git.discoveries(), bench.view_of("git").freshness), (0, Freshness::Fresh));
    assert_eq!(bench.record(&id("hub"), Vec::new()).await.unwrap_err().code, Code::NotFound);
}

async fn record(bench: &Bench, names: &[&str]) -> toolcrib::Outcome {
    let raw = |name: &&str| serde_json::value::to_raw_value(&tool(name, "Recorded")).unwrap();
    bench.registry.record(&id("git"), names.iter().map(raw).collect()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_last_hundred_checks_are_kept() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    for round in 0..105 {
        bench.hand.advance(Duration::from_secs(1));
        if round == 104 {
            git.fail("the end");
        }
        force(&bench, "git").await;
    }
    let checks = bench.checks(&id("git")).await.unwrap();
    assert_eq!(checks.len(), 100);
    assert_eq!(checks[0].error.as_ref().unwrap().message, "the end");
    assert_eq!((checks[0].at, checks[1].tool_count), (bench.options.clock.now(), Some(1)));
    assert!(checks.windows(2).all(|pair| pair[0].at > pair[1].at), "newest first");
}

#[tokio::test(start_paused = true)]
async fn announced_changes_lead_to_one_refresh() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.offer(["pull"]);
    for _ in 0..50 {
        git.announce();
    }
    until("the change is listed", || cached(&bench) == ["git__pull"]).await;
    settle().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(git.discoveries(), 2);
}

/// The refresh that an announcement led to joined one under way, which had read the list already.
#[tokio::test(start_paused = true)]
async fn a_change_announced_during_a_discovery_is_not_missed() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    git.hold();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force(&registry, "git").await });
    until("it began", || git.discoveries() == 2).await;
    git.offer(["pull"]);
    git.announce();
    settle().await;
    git.release();
    assert_eq!(running.await.unwrap().status, Refreshed::Unchanged);
    until("the change is listed", || cached(&bench) == ["git__pull"]).await;
    assert_eq!(git.discoveries(), 3);
}

/// A server that says its tools changed whenever it is asked for them kept us asking as fast as it answered.
#[tokio::test(start_paused = true)]
async fn a_source_that_announces_for_ever_is_asked_now_and_then() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    tools(&bench).await;
    let until_then = tokio::time::Instant::now() + Duration::from_secs(10);
    while tokio::time::Instant::now() < until_then {
        git.announce();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((2..30).contains(&git.discoveries()), "{} discoveries in ten seconds", git.discoveries());
}

#[tokio::test(start_paused = true)]
async fn what_is_cached_contacts_nobody() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    assert!(bench.ensure(Need::Cached, None, false).await.is_empty());
    assert_eq!((cached(&bench).len(), git.discoveries()), (0, 0));
}

/// A discovery that was refused before it was made says so; one that was made and failed had contacted the source.
#[tokio::test(start_paused = true)]
async fn a_failed_discovery_says_that_it_contacted_the_source() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let first = refresh(&bench, "git").await;
    git.fail("out of order");
    let failed = force(&bench, "git").await;
    assert_eq!((failed.status, failed.contacted), (Refreshed::Failed, true));
    assert_eq!((failed.unchanged, failed.inventory_hash), (1, first.inventory_hash), "the last good list");
}

#[tokio::test(start_paused = true)]
async fn a_closed_registry_ends_its_discoveries() {
    let git = Scripted::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.hold();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { refresh(&registry, "git").await });
    until("it began", || git.discoveries() == 1).await;
    bench.registry.clone().close().await;
    let outcome = running.await.unwrap();
    assert_eq!(
        (outcome.status, outcome.error.unwrap().message.as_str()),
        (Refreshed::Failed, "the registry was closed")
    );
}

/// A discovery that waited for its turn was made although another process had made it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_need_that_is_met_elsewhere_before_its_turn_comes_is_met() {
    let store = std::sync::Arc::new(toolcrib::store::MemoryStore::new());
    let (first, second) = (Scripted::new(["one"]), Scripted::new(["two"]));
    let open = async || {
        let connect = Some(Scripted::connect([("first", &first), ("second", &second)]));
        let options = toolcrib::Options { store: Some(store.clone()), connect, parallel: 1, ..Default::default() };
        toolcrib::Registry::open(toolcrib::testkit::config(["first", "second"]), options).await.unwrap()
    };
    let (here, elsewhere) = (open().await, open().await);
    first.hold();
    let listing = here.clone();
    let listing = tokio::spawn(async move { tools(&listing).await });
    until("the first one is asked", || first.discoveries() == 1).await;
    force(&elsewhere, "second").await;
    first.release();
    assert_eq!(listing.await.unwrap(), ["first__one", "second__two"]);
    assert_eq!((first.discoveries(), second.discoveries()), (1, 1));
}
