//! Who is contacted, when, and how often.

use std::time::Duration;

use toolcrib::core::freshness::Freshness;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, HistoryQuery, SourceHealth};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Code, Refresh, RegistryOptions, RequiredFreshness};

use crate::support::{
    TestRegistry, cached_tools, force_refresh, id, list_tools, open, open_with, refresh, run_pending_tasks, tool_json,
    wait_until,
};

#[tokio::test(start_paused = true)]
async fn opening_contacts_nobody() {
    let (git, hub) = (ScriptedSource::new(["push"]), ScriptedSource::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    run_pending_tasks().await;
    assert_eq!((git.discoveries(), hub.discoveries()), (0, 0));
    let git = bench.source_view("git");
    assert_eq!(
        (git.status, git.freshness, git.health),
        (DiscoveryStatus::Never, Freshness::Missing, SourceHealth::Unknown)
    );
    assert_eq!(bench.due_sources(), [id("git"), id("hub")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_discovers_what_is_missing_and_the_second_contacts_nobody() {
    let (git, hub) = (ScriptedSource::new(["push", "add"]), ScriptedSource::new(["pull"]));
    let bench = open(&[("git", &git), ("hub", &hub)]).await;
    for _ in 0..2 {
        assert_eq!(list_tools(&bench).await, ["git__add", "git__push", "hub__pull"]);
        assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    }
    let view = bench.source_view("git");
    assert_eq!((view.status, view.freshness, view.tool_count), (DiscoveryStatus::Success, Freshness::Fresh, 2));
    let stats = bench.stats();
    assert_eq!((stats.hits, stats.misses, stats.tool_count), (2, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn no_more_sources_than_the_limit_are_discovered_at_once() {
    let sources: Vec<_> = (0..6).map(|number| (format!("s{number}"), ScriptedSource::new(["t"]))).collect();
    let named: Vec<_> = sources.iter().map(|(id, source)| (id.as_str(), source)).collect();
    let yaml: String = sources.iter().map(|(id, _)| format!("  {id}: {{ command: x }}\n")).collect();
    let bench = open_with(&format!("sources:\n{yaml}"), &named, |options| RegistryOptions {
        max_parallel_discoveries: 4,
        ..options
    })
    .await;
    sources.iter().for_each(|(_, source)| source.pause());
    let begun = || sources.iter().map(|(_, source)| source.discoveries()).sum::<usize>();

    let registry = bench.registry.clone();
    let all = tokio::spawn(async move { registry.refresh(Refresh::default()).await });
    wait_until("four began", || begun() == 4).await;
    run_pending_tasks().await;
    assert_eq!(begun(), 4);
    sources.iter().for_each(|(_, source)| source.resume());
    assert_eq!(all.await.unwrap().len(), 6);
    assert_eq!(begun(), 6);
}

#[tokio::test(start_paused = true)]
async fn twenty_slow_sources_take_as_long_as_one() {
    let sources: Vec<_> = (0..20).map(|number| (format!("s{number}"), ScriptedSource::new(["t"]))).collect();
    let named: Vec<_> = sources.iter().map(|(id, source)| (id.as_str(), source)).collect();
    sources.iter().for_each(|(_, source)| source.set_delay(Duration::from_millis(500)));
    let bench = open(&named).await;
    let began = tokio::time::Instant::now();
    assert_eq!(list_tools(&bench).await.len(), 20);
    assert!(began.elapsed() < Duration::from_millis(750), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_refresh_at_the_same_time_joins_the_first() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.pause();
    let running: Vec<_> = (0..5)
        .map(|_| {
            let registry = bench.registry.clone();
            tokio::spawn(async move { force_refresh(&registry, "git").await })
        })
        .collect();
    wait_until("one began", || git.discoveries() == 1).await;
    run_pending_tasks().await;
    assert_eq!(bench.source_view("git").status, DiscoveryStatus::Discovering);
    git.resume();
    for one in running {
        let outcome = one.await.unwrap();
        assert_eq!((outcome.status, outcome.added), (RefreshStatus::Success, vec!["git__push".to_owned()]));
    }
    assert_eq!(git.discoveries(), 1);
    assert_eq!(bench.source_view("git").status, DiscoveryStatus::Success);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_does_not_end_the_discovery_for_the_others() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.pause();
    let registry = bench.registry.clone();
    let first = tokio::spawn(async move { refresh(&registry, "git").await });
    wait_until("it began", || git.discoveries() == 1).await;
    let registry = bench.registry.clone();
    let second = tokio::spawn(async move { refresh(&registry, "git").await });
    run_pending_tasks().await;
    first.abort();
    run_pending_tasks().await;
    git.resume();
    assert_eq!(second.await.unwrap().status, RefreshStatus::Success);
    assert_eq!(git.discoveries(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_source_publishes_when_it_answers() {
    let (slow, quick) = (ScriptedSource::new(["late"]), ScriptedSource::new(["soon"]));
    let bench = open(&[("slow", &slow), ("quick", &quick)]).await;
    slow.pause();
    let registry = bench.registry.clone();
    let all = tokio::spawn(async move { list_tools(&registry).await });
    wait_until("the quick one is listed", || cached_tools(&bench) == ["quick__soon"]).await;
    assert!(!all.is_finished());
    slow.resume();
    assert_eq!(all.await.unwrap(), ["quick__soon", "slow__late"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_fails_at_its_deadline_and_the_others_are_there() {
    let (dead, good) = (ScriptedSource::new(["never"]), ScriptedSource::new(["here"]));
    dead.pause();
    let bench = crate::support::open_yaml(
        "sources: { dead: { command: x, discovery_timeout: 3s }, good: { command: x } }",
        &[("dead", &dead), ("good", &good)],
    )
    .await;
    let began = tokio::time::Instant::now();
    assert_eq!(list_tools(&bench).await, ["good__here"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let view = bench.source_view("dead");
    assert_eq!((view.status, view.health), (DiscoveryStatus::Failed, SourceHealth::Down));
    assert_eq!(view.last_error.unwrap().message, "no answer within 3s");
}

#[tokio::test(start_paused = true)]
async fn a_first_start_gets_two_minutes_and_later_ones_half_a_minute() {
    let git = ScriptedSource::new(["push"]);
    git.set_delay(Duration::from_secs(100));
    let bench = open(&[("git", &git)]).await;
    assert_eq!(refresh(&bench, "git").await.status, RefreshStatus::Success);
    let again = force_refresh(&bench, "git").await;
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
        let dead = ScriptedSource::new(["never"]);
        dead.pause();
        let yaml = format!("defaults: {{ {defaults} }}\nsources: {{ dead: {{ {source} }} }}");
        let bench = crate::support::open_yaml(&yaml, &[("dead", &dead)]).await;
        let error = refresh(&bench, "dead").await.error.unwrap();
        assert_eq!(error.message, format!("no answer within {limit}"), "{yaml}");
    }
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let before = bench.source_view("git").config_hash;
    let again = bench.open_again("sources: { git: { command: scripted, first_start_timeout: 7s } }").await;
    assert_eq!(again.source(&id("git")).unwrap().config_hash, before);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_list_is_left_alone_unless_forced_and_unchanged_is_no_event() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let first = refresh(&bench, "git").await;
    assert_eq!(
        (first.status, first.contacted, &first.added),
        (RefreshStatus::Success, true, &vec!["git__push".to_owned()])
    );
    let length = bench.journal_len().await;

    let fresh = refresh(&bench, "git").await;
    assert_eq!((fresh.status, fresh.contacted, fresh.unchanged), (RefreshStatus::Fresh, false, 1));
    assert_eq!(fresh.inventory_hash, first.inventory_hash);
    assert_eq!(git.discoveries(), 1);

    bench.manual_clock.advance(Duration::from_secs(10));
    let forced = force_refresh(&bench, "git").await;
    assert_eq!((forced.status, forced.contacted, forced.unchanged), (RefreshStatus::Unchanged, true, 1));
    assert_eq!((forced.added.len(), forced.inventory_hash), (0, first.inventory_hash));
    assert_eq!(git.discoveries(), 2);
    assert_eq!(bench.journal_len().await, length, "no change, no event");
    assert_eq!(bench.checks(&id("git")).await.unwrap().len(), 2, "but a check");
    assert_eq!(bench.source_view("git").last_checked, Some(bench.options.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_returns_its_delta_and_records_it() {
    let git = ScriptedSource::new([tool_json("add", "Adds"), tool_json("pull", "Pulls"), tool_json("push", "Pushes")]);
    let bench = open(&[("git", &git)]).await;
    refresh(&bench, "git").await;
    git.set_tools([tool_json("add", "Adds"), tool_json("fetch", "Fetches"), tool_json("push", "Pushes with force")]);
    let delta = force_refresh(&bench, "git").await;
    assert_eq!(delta.status, RefreshStatus::Success);
    assert_eq!((delta.added, delta.removed, delta.unchanged), (vec!["git__fetch".into()], vec!["git__pull".into()], 1));
    assert_eq!(delta.changed.len(), 1);
    assert_eq!(
        (delta.changed[0].name.as_str(), &delta.changed[0].fields),
        ("git__push", &vec!["description".to_owned()])
    );
    let last = bench.history(&HistoryQuery::after(0)).await.unwrap().pop().unwrap();
    assert_eq!((last.kind.as_str(), last.source.as_deref()), ("InventoryRecorded", Some("git")));
    assert_eq!(last.data["removed"], serde_json::json!(["pull"]));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_of_an_unknown_source_says_which_are_near() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let outcome = refresh(&bench, "gti").await;
    let error = outcome.error.unwrap();
    assert_eq!((outcome.status, error.code), (RefreshStatus::Failed, Code::NotFound));
    assert_eq!(error.message, "no source named `gti`; did you mean `git`?");
}

#[tokio::test(start_paused = true)]
async fn a_slow_older_answer_never_overwrites_a_newer_one() {
    let git = ScriptedSource::new(["old"]);
    let bench = open(&[("git", &git)]).await;
    git.pause();
    let registry = bench.registry.clone();
    let slow = tokio::spawn(async move { refresh(&registry, "git").await });
    wait_until("it began", || git.discoveries() == 1).await;

    bench.manual_clock.advance(Duration::from_secs(1));
    let newer = record_tools(&bench, &["new"]).await;
    git.resume();
    let slow = slow.await.unwrap();
    assert_eq!((slow.status, slow.added.len(), slow.removed.len()), (RefreshStatus::Unchanged, 0, 0));
    assert_eq!(slow.inventory_hash, newer.inventory_hash, "it tells the list that holds");
    assert_eq!(cached_tools(&bench), ["git__new"]);
    assert_eq!(bench.source_view("git").last_checked, Some(bench.options.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_host_may_record_what_it_discovered_itself() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let outcome = record_tools(&bench, &["add", "push"]).await;
    assert_eq!((outcome.status, outcome.added.len()), (RefreshStatus::Success, 2));
    assert_eq!(record_tools(&bench, &["add", "push"]).await.status, RefreshStatus::Unchanged);
    assert_eq!(list_tools(&bench).await, ["git__add", "git__push"]);
    assert_eq!((git.discoveries(), bench.source_view("git").freshness), (0, Freshness::Fresh));
    assert_eq!(bench.record_tools(&id("hub"), Vec::new()).await.unwrap_err().code, Code::NotFound);
}

async fn record_tools(bench: &TestRegistry, names: &[&str]) -> toolcrib::RefreshOutcome {
    let raw = |name: &&str| serde_json::value::to_raw_value(&tool_json(name, "Recorded")).unwrap();
    bench.registry.record_tools(&id("git"), names.iter().map(raw).collect()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_last_hundred_checks_are_kept() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    for round in 0..105 {
        bench.manual_clock.advance(Duration::from_secs(1));
        if round == 104 {
            git.fail("the end");
        }
        force_refresh(&bench, "git").await;
    }
    let checks = bench.checks(&id("git")).await.unwrap();
    assert_eq!(checks.len(), 100);
    assert_eq!(checks[0].error.as_ref().unwrap().message, "the end");
    assert_eq!((checks[0].at, checks[1].tool_count), (bench.options.clock.now(), Some(1)));
    assert!(checks.windows(2).all(|pair| pair[0].at > pair[1].at), "newest first");
}

#[tokio::test(start_paused = true)]
async fn announced_changes_lead_to_one_refresh() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.set_tools(["pull"]);
    for _ in 0..50 {
        git.announce_tools_changed();
    }
    wait_until("the change is listed", || cached_tools(&bench) == ["git__pull"]).await;
    run_pending_tasks().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(git.discoveries(), 2);
}

/// The refresh that an announcement led to joined one under way, which had read the list already.
#[tokio::test(start_paused = true)]
async fn a_change_announced_during_a_discovery_is_not_missed() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    git.pause();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("it began", || git.discoveries() == 2).await;
    git.set_tools(["pull"]);
    git.announce_tools_changed();
    run_pending_tasks().await;
    git.resume();
    assert_eq!(running.await.unwrap().status, RefreshStatus::Unchanged);
    wait_until("the change is listed", || cached_tools(&bench) == ["git__pull"]).await;
    assert_eq!(git.discoveries(), 3);
}

/// A server that says its tools changed whenever it is asked for them kept us asking as fast as it answered.
#[tokio::test(start_paused = true)]
async fn a_source_that_announces_for_ever_is_asked_now_and_then() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    list_tools(&bench).await;
    let until_then = tokio::time::Instant::now() + Duration::from_secs(10);
    while tokio::time::Instant::now() < until_then {
        git.announce_tools_changed();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((2..30).contains(&git.discoveries()), "{} discoveries in ten seconds", git.discoveries());
}

#[tokio::test(start_paused = true)]
async fn what_is_cached_contacts_nobody() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    assert!(bench.ensure_freshness(RequiredFreshness::Cached, None, false).await.is_empty());
    assert_eq!((cached_tools(&bench).len(), git.discoveries()), (0, 0));
}

/// A discovery that was refused before it was made says so; one that was made and failed had contacted the source.
#[tokio::test(start_paused = true)]
async fn a_failed_discovery_says_that_it_contacted_the_source() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    let first = refresh(&bench, "git").await;
    git.fail("out of order");
    let failed = force_refresh(&bench, "git").await;
    assert_eq!((failed.status, failed.contacted), (RefreshStatus::Failed, true));
    assert_eq!((failed.unchanged, failed.inventory_hash), (1, first.inventory_hash), "the last good list");
}

#[tokio::test(start_paused = true)]
async fn a_closed_registry_ends_its_discoveries() {
    let git = ScriptedSource::new(["push"]);
    let bench = open(&[("git", &git)]).await;
    git.pause();
    let registry = bench.registry.clone();
    let running = tokio::spawn(async move { refresh(&registry, "git").await });
    wait_until("it began", || git.discoveries() == 1).await;
    bench.registry.clone().close().await;
    let outcome = running.await.unwrap();
    assert_eq!(
        (outcome.status, outcome.error.unwrap().message.as_str()),
        (RefreshStatus::Failed, "the registry was closed")
    );
}

/// A discovery that waited for its turn was made although another process had made it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_need_that_is_met_elsewhere_before_its_turn_comes_is_met() {
    let store = std::sync::Arc::new(toolcrib::store::MemoryStore::new());
    let (first, second) = (ScriptedSource::new(["one"]), ScriptedSource::new(["two"]));
    let open = async || {
        let connector_factory = Some(ScriptedSource::connector_factory([("first", &first), ("second", &second)]));
        let options = toolcrib::RegistryOptions {
            store: Some(store.clone()),
            connector_factory,
            max_parallel_discoveries: 1,
            ..Default::default()
        };
        toolcrib::Registry::open(toolcrib::testkit::config_with_sources(["first", "second"]), options).await.unwrap()
    };
    let (here, elsewhere) = (open().await, open().await);
    first.pause();
    let listing = here.clone();
    let listing = tokio::spawn(async move { list_tools(&listing).await });
    wait_until("the first one is asked", || first.discoveries() == 1).await;
    force_refresh(&elsewhere, "second").await;
    first.resume();
    assert_eq!(listing.await.unwrap(), ["first__one", "second__two"]);
    assert_eq!((first.discoveries(), second.discoveries()), (1, 1));
}
