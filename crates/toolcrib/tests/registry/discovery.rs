//! Discovery: which sources are contacted, when and how often, and how concurrent refreshes share the work.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{DiscoveryStatus, HistoryQuery, RegistryNotice, SourceHealth};
use toolcrib::store::SourceTransition;
use toolcrib::testkit::{ScriptedSource, config_with_sources, open_with_connectors};
use toolcrib::{Code, Refresh, RegistryOptions, Requester, RequiredFreshness};

use crate::support::{
    TestRegistry, cached_tools, force_refresh, id, list_tools, open, open_with, refresh, run_pending_tasks, tool_json,
    wait_until,
};

#[tokio::test(start_paused = true)]
async fn opening_contacts_no_source() {
    let git = ScriptedSource::new(["push"]);
    let hub = ScriptedSource::new(["pull"]);
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    run_pending_tasks().await;
    assert_eq!((git.discoveries(), hub.discoveries()), (0, 0));
    let git = fixture.source_view("git");
    assert_eq!(
        (git.status, git.freshness, git.health),
        (DiscoveryStatus::Never, Freshness::Missing, SourceHealth::Unknown)
    );
    assert_eq!(fixture.refresher().due_sources(), [id("git"), id("hub")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_discovers_missing_sources_and_the_second_contacts_none() {
    let git = ScriptedSource::new(["push", "add"]);
    let hub = ScriptedSource::new(["pull"]);
    let fixture = open(&[("git", &git), ("hub", &hub)]).await;
    for _ in 0..2 {
        assert_eq!(list_tools(&fixture).await, ["git__add", "git__push", "hub__pull"]);
        assert_eq!((git.discoveries(), hub.discoveries()), (1, 1));
    }
    let view = fixture.source_view("git");
    assert_eq!((view.status, view.freshness, view.tool_count), (DiscoveryStatus::Success, Freshness::Fresh, 2));
    let stats = fixture.statistics().totals();
    assert_eq!((stats.hits, stats.misses, stats.tool_count), (2, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn concurrent_discoveries_are_bounded() {
    let sources: Vec<_> = (0..6).map(|number| (format!("s{number}"), ScriptedSource::new(["t"]))).collect();
    let named: Vec<_> = sources.iter().map(|(id, source)| (id.as_str(), source)).collect();
    let yaml: String = sources.iter().map(|(id, _)| format!("  {id}: {{ command: x }}\n")).collect();
    let fixture = open_with(&format!("sources:\n{yaml}"), &named, |options| RegistryOptions {
        max_parallel_discoveries: 4,
        ..options
    })
    .await;
    sources.iter().for_each(|(_, source)| source.pause());
    let started_count = || sources.iter().map(|(_, source)| source.discoveries()).sum::<usize>();

    let registry = fixture.registry.clone();
    let all = tokio::spawn(async move { registry.refresh(Refresh::default()).await });
    wait_until("four discoveries started", || started_count() == 4).await;
    run_pending_tasks().await;
    assert_eq!(started_count(), 4);
    sources.iter().for_each(|(_, source)| source.resume());
    assert_eq!(all.await.unwrap().len(), 6);
    assert_eq!(started_count(), 6);
}

#[tokio::test(start_paused = true)]
async fn slow_sources_are_discovered_concurrently() {
    let sources: Vec<_> = (0..20).map(|number| (format!("s{number}"), ScriptedSource::new(["t"]))).collect();
    let named: Vec<_> = sources.iter().map(|(id, source)| (id.as_str(), source)).collect();
    sources.iter().for_each(|(_, source)| source.set_delay(Duration::from_millis(500)));
    let fixture = open(&named).await;
    let began = tokio::time::Instant::now();
    assert_eq!(list_tools(&fixture).await.len(), 20);
    assert!(began.elapsed() < Duration::from_millis(750), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn concurrent_refreshes_share_one_discovery() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.pause();
    let running: Vec<_> = (0..5)
        .map(|_| {
            let registry = fixture.registry.clone();
            tokio::spawn(async move { force_refresh(&registry, "git").await })
        })
        .collect();
    wait_until("one discovery started", || git.discoveries() == 1).await;
    run_pending_tasks().await;
    assert_eq!(fixture.source_view("git").status, DiscoveryStatus::Discovering);
    git.resume();
    for refresh in running {
        let outcome = refresh.await.unwrap();
        assert_eq!((outcome.status, outcome.added), (RefreshStatus::Success, vec!["git__push".to_owned()]));
    }
    assert_eq!(git.discoveries(), 1);
    assert_eq!(fixture.source_view("git").status, DiscoveryStatus::Success);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_refresh_does_not_end_the_shared_discovery() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.pause();
    let registry = fixture.registry.clone();
    let first = tokio::spawn(async move { refresh(&registry, "git").await });
    wait_until("the discovery started", || git.discoveries() == 1).await;
    let registry = fixture.registry.clone();
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
    let slow = ScriptedSource::new(["late"]);
    let quick = ScriptedSource::new(["soon"]);
    let fixture = open(&[("slow", &slow), ("quick", &quick)]).await;
    slow.pause();
    let registry = fixture.registry.clone();
    let all = tokio::spawn(async move { list_tools(&registry).await });
    wait_until("the quick one is listed", || cached_tools(&fixture) == ["quick__soon"]).await;
    assert!(!all.is_finished());
    slow.resume();
    assert_eq!(all.await.unwrap(), ["quick__soon", "slow__late"]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_source_fails_at_its_deadline_and_others_are_listed() {
    let dead = ScriptedSource::new(["never"]);
    let good = ScriptedSource::new(["here"]);
    dead.pause();
    let fixture = crate::support::open_yaml(
        "sources: { dead: { command: x, discovery_timeout: 3s }, good: { command: x } }",
        &[("dead", &dead), ("good", &good)],
    )
    .await;
    let began = tokio::time::Instant::now();
    assert_eq!(list_tools(&fixture).await, ["good__here"]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let view = fixture.source_view("dead");
    assert_eq!((view.status, view.health), (DiscoveryStatus::Failed, SourceHealth::Down));
    assert_eq!(view.last_error.unwrap().message, "no answer within 3s");
}

#[tokio::test(start_paused = true)]
async fn the_first_start_has_a_longer_timeout_than_later_discoveries() {
    let git = ScriptedSource::new(["push"]);
    git.set_delay(Duration::from_secs(100));
    let fixture = open(&[("git", &git)]).await;
    assert_eq!(refresh(&fixture, "git").await.status, RefreshStatus::Success);
    let again = force_refresh(&fixture, "git").await;
    assert_eq!(again.error.unwrap().message, "no answer within 30s");
}

#[tokio::test(start_paused = true)]
async fn first_start_timeout_takes_precedence_over_discovery_timeout() {
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
        let fixture = crate::support::open_yaml(&yaml, &[("dead", &dead)]).await;
        let error = refresh(&fixture, "dead").await.error.unwrap();
        assert_eq!(error.message, format!("no answer within {limit}"), "{yaml}");
    }
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let before = fixture.source_view("git").config_hash;
    let again = fixture.open_again("sources: { git: { command: scripted, first_start_timeout: 7s } }").await;
    assert_eq!(again.sources().get(&id("git")).unwrap().config_hash, before);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_list_is_refreshed_only_by_force_and_no_change_is_no_event() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let first = refresh(&fixture, "git").await;
    assert_eq!(
        (first.status, first.contacted, &first.added),
        (RefreshStatus::Success, true, &vec!["git__push".to_owned()])
    );
    let length = fixture.journal_len().await;

    let fresh = refresh(&fixture, "git").await;
    assert_eq!((fresh.status, fresh.contacted, fresh.unchanged), (RefreshStatus::Fresh, false, 1));
    assert_eq!(fresh.inventory_hash, first.inventory_hash);
    assert_eq!(git.discoveries(), 1);

    fixture.manual_clock.advance(Duration::from_secs(10));
    let forced = force_refresh(&fixture, "git").await;
    assert_eq!((forced.status, forced.contacted, forced.unchanged), (RefreshStatus::Unchanged, true, 1));
    assert_eq!((forced.added.len(), forced.inventory_hash), (0, first.inventory_hash));
    assert_eq!(git.discoveries(), 2);
    assert_eq!(fixture.journal_len().await, length, "no change, no event");
    assert_eq!(fixture.history().checks(&id("git")).await.unwrap().len(), 2, "but one more check");
    assert_eq!(fixture.source_view("git").last_checked, Some(fixture.options.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_returns_its_delta_and_records_it() {
    let git = ScriptedSource::new([tool_json("add", "Adds"), tool_json("pull", "Pulls"), tool_json("push", "Pushes")]);
    let fixture = open(&[("git", &git)]).await;
    refresh(&fixture, "git").await;
    git.set_tools([tool_json("add", "Adds"), tool_json("fetch", "Fetches"), tool_json("push", "Pushes with force")]);
    let delta = force_refresh(&fixture, "git").await;
    assert_eq!(delta.status, RefreshStatus::Success);
    assert_eq!((delta.added, delta.removed, delta.unchanged), (vec!["git__fetch".into()], vec!["git__pull".into()], 1));
    assert_eq!(delta.changed.len(), 1);
    assert_eq!(
        (delta.changed[0].name.as_str(), &delta.changed[0].fields),
        ("git__push", &vec!["description".to_owned()])
    );
    let last = fixture.history().records(&HistoryQuery::after(0)).await.unwrap().pop().unwrap();
    assert_eq!((last.kind.as_str(), last.source.as_deref()), ("InventoryRecorded", Some("git")));
    assert_eq!(last.data["removed"], serde_json::json!(["pull"]));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_of_an_unknown_source_suggests_similar_names() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let outcome = refresh(&fixture, "gti").await;
    let error = outcome.error.unwrap();
    assert_eq!((outcome.status, error.code), (RefreshStatus::Failed, Code::NotFound));
    assert_eq!(error.message, "no source named `gti`; did you mean `git`?");
}

#[tokio::test(start_paused = true)]
async fn a_slow_older_discovery_never_overwrites_a_newer_one() {
    let git = ScriptedSource::new(["old"]);
    let fixture = open(&[("git", &git)]).await;
    git.pause();
    let registry = fixture.registry.clone();
    let slow = tokio::spawn(async move { refresh(&registry, "git").await });
    wait_until("the discovery started", || git.discoveries() == 1).await;

    fixture.manual_clock.advance(Duration::from_secs(1));
    let newer = record_tools(&fixture, &["new"]).await;
    git.resume();
    let slow = slow.await.unwrap();
    assert_eq!((slow.status, slow.added.len(), slow.removed.len()), (RefreshStatus::Unchanged, 0, 0));
    assert_eq!(slow.inventory_hash, newer.inventory_hash, "it reports the current list");
    assert_eq!(cached_tools(&fixture), ["git__new"]);
    assert_eq!(fixture.source_view("git").last_checked, Some(fixture.options.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_host_can_record_its_own_discovery() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let outcome = record_tools(&fixture, &["add", "push"]).await;
    assert_eq!((outcome.status, outcome.added.len()), (RefreshStatus::Success, 2));
    assert_eq!(record_tools(&fixture, &["add", "push"]).await.status, RefreshStatus::Unchanged);
    assert_eq!(list_tools(&fixture).await, ["git__add", "git__push"]);
    assert_eq!((git.discoveries(), fixture.source_view("git").freshness), (0, Freshness::Fresh));
    assert_eq!(fixture.sources().record_tools(&id("hub"), Vec::new()).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_host_can_record_tools_one_by_one() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let raw = |tool: serde_json::Value| serde_json::value::to_raw_value(&tool).unwrap();
    let record = async |tool| fixture.registry.record_tool(&id("git"), raw(tool)).await;
    let added = record(tool_json("push", "Pushes")).await.unwrap();
    assert_eq!((added.status, added.added), (RefreshStatus::Success, vec!["git__push".to_owned()]));
    // Hidden characters, an unknown field and no schema: the others are recorded again as they were offered.
    let odd = json!({ "name": "tag", "description": "Tags\u{200b}", "x": 1 });
    assert_eq!(record(odd.clone()).await.unwrap().added, ["git__tag"]);
    let changed = record(tool_json("push", "Pushes a branch")).await.unwrap();
    assert_eq!((changed.added.len(), changed.changed.len(), changed.removed.len(), changed.unchanged), (0, 1, 0, 1));
    assert_eq!(cached_tools(&fixture), ["git__push", "git__tag"]);

    let version = fixture.registry.inventory().version;
    for tool in [tool_json("push", "Pushes a branch"), odd] {
        assert_eq!(record(tool).await.unwrap().status, RefreshStatus::Unchanged);
    }
    let error = record(json!({ "description": "nameless" })).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::ToolInvalidInput, "the tool cannot be offered: it has no name")
    );
    assert_eq!((fixture.registry.inventory().version, git.discoveries()), (version, 0), "no event without a change");
    assert_eq!(fixture.source_view("git").freshness, Freshness::Fresh);
    let unknown = fixture.registry.record_tool(&id("hub"), raw(tool_json("x", "x"))).await.unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);

    // A disabled source keeps its tools.
    fixture.registry.execute(Command::Disable(id("git")), Actor::new("cli")).await.unwrap();
    assert_eq!(record(tool_json("log", "Logs")).await.unwrap().added, ["git__log"]);
    fixture.registry.execute(Command::Enable(id("git")), Actor::new("cli")).await.unwrap();
    assert_eq!(cached_tools(&fixture), ["git__log", "git__push", "git__tag"]);
}

#[tokio::test(start_paused = true)]
async fn concurrently_recorded_tools_are_all_kept() {
    let git = ScriptedSource::new(["discovered"]);
    let fixture = open(&[("git", &git)]).await;
    let other = fixture.open_again("sources: { git: { command: scripted } }").await;
    let registries = [&fixture.registry, &other];
    let record = async |number: usize| {
        let tool = serde_json::value::to_raw_value(&tool_json(&format!("t{number:02}"), "Numbered")).unwrap();
        registries[number % 2].record_tool(&id("git"), tool).await.unwrap()
    };
    let outcomes = futures_util::future::join_all((0..32).map(record)).await;
    assert!(outcomes.iter().all(|outcome| outcome.added.len() == 1), "{outcomes:?}");
    let expected: Vec<String> = (0..32).map(|number| format!("git__t{number:02}")).collect();
    let reader = fixture.open_again("sources: { git: { command: scripted } }").await;
    assert_eq!(cached_tools(&reader), expected);
    assert_eq!(fixture.journal_len().await, 33, "the declaration, and an event for each tool");
}

#[tokio::test(start_paused = true)]
async fn the_actor_of_a_record_is_the_client_that_asked() {
    let git = ScriptedSource::new(["a"]);
    let fixture = open(&[("git", &git)]).await;
    let actors = async || {
        let records = fixture.history().records(&HistoryQuery::after(0)).await.unwrap();
        let recorded = records.into_iter().filter(|record| record.kind == "InventoryRecorded");
        recorded.map(|record| record.actor).collect::<Vec<_>>()
    };
    fixture.registry.refresh(Refresh::default()).await;
    git.set_tools(["a", "b"]);
    let requester = Requester { actor: Some(Actor::new("rest:ada")), ..Requester::default() };
    fixture.registry.refresh(Refresh { force: true, requester: requester.clone(), ..Refresh::default() }).await;
    assert_eq!(actors().await, ["system", "rest:ada"]);

    git.set_tools(["c"]);
    fixture.manual_clock.advance(Duration::from_secs(301));
    fixture.refresher().ensure_freshness(RequiredFreshness::Fresh, None, requester).await;
    assert_eq!(actors().await, ["system", "rest:ada", "rest:ada"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_or_recovers_is_noticed_once() {
    let git = ScriptedSource::new(["a"]);
    let fixture = open(&[("git", &git)]).await;
    let mut notices = fixture.registry.subscribe();
    let mut transitions = || {
        let mut texts = Vec::new();
        while let Ok(notice) = notices.try_recv() {
            if let RegistryNotice::SourceTransition(notice) = notice {
                texts.push(notice.text.clone());
            }
        }
        texts
    };
    force_refresh(&fixture, "git").await;
    assert_eq!(transitions(), [""; 0], "the first success is no recovery");
    git.fail("away");
    force_refresh(&fixture, "git").await;
    force_refresh(&fixture, "git").await;
    assert_eq!(transitions(), ["`git` failed: away"]);
    git.recover();
    force_refresh(&fixture, "git").await;
    force_refresh(&fixture, "git").await;
    assert_eq!(transitions(), ["`git` recovered"]);
    let checks = fixture.history().checks(&id("git")).await.unwrap();
    let (failed, recovered) = (Some(SourceTransition::Failed), Some(SourceTransition::Recovered));
    let found: Vec<_> = checks.iter().rev().map(|check| (check.error.is_some(), check.transition)).collect();
    assert_eq!(found, [(false, None), (true, failed), (true, None), (false, recovered), (false, None)]);
}

async fn record_tools(fixture: &TestRegistry, names: &[&str]) -> toolcrib::RefreshOutcome {
    let raw = |name: &&str| serde_json::value::to_raw_value(&tool_json(name, "Recorded")).unwrap();
    fixture.registry.sources().record_tools(&id("git"), names.iter().map(raw).collect()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_last_hundred_checks_are_kept() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    for round in 0..105 {
        fixture.manual_clock.advance(Duration::from_secs(1));
        if round == 104 {
            git.fail("the end");
        }
        force_refresh(&fixture, "git").await;
    }
    let checks = fixture.history().checks(&id("git")).await.unwrap();
    assert_eq!(checks.len(), 100);
    assert_eq!(checks[0].error.as_ref().unwrap().message, "the end");
    assert_eq!((checks[0].at, checks[1].tool_count), (fixture.options.clock.now(), Some(1)));
    assert!(checks.windows(2).all(|pair| pair[0].at > pair[1].at), "newest first");
}

#[tokio::test(start_paused = true)]
async fn many_change_notifications_cause_one_refresh() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.set_tools(["pull"]);
    for _ in 0..50 {
        git.announce_tools_changed();
    }
    wait_until("the change is listed", || cached_tools(&fixture) == ["git__pull"]).await;
    run_pending_tasks().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(git.discoveries(), 2);
}

/// Regression: the refresh after a change notification joined a running one that had read the list already.
#[tokio::test(start_paused = true)]
async fn a_change_announced_during_a_discovery_is_not_missed() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { force_refresh(&registry, "git").await });
    wait_until("the discovery started", || git.discoveries() == 2).await;
    git.set_tools(["pull"]);
    git.announce_tools_changed();
    run_pending_tasks().await;
    git.resume();
    assert_eq!(running.await.unwrap().status, RefreshStatus::Unchanged);
    wait_until("the change is listed", || cached_tools(&fixture) == ["git__pull"]).await;
    assert_eq!(git.discoveries(), 3);
}

/// Regression: a server that announced a change with each list was refreshed without pause.
#[tokio::test(start_paused = true)]
async fn endless_change_notifications_are_rate_limited() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    while tokio::time::Instant::now() < end {
        git.announce_tools_changed();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((2..30).contains(&git.discoveries()), "{} discoveries in ten seconds", git.discoveries());
}

#[tokio::test(start_paused = true)]
async fn cached_tools_contact_no_source() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    assert!(
        fixture.refresher().ensure_freshness(RequiredFreshness::Cached, None, Requester::default()).await.is_empty()
    );
    assert_eq!((cached_tools(&fixture).len(), git.discoveries()), (0, 0));
}

/// `contacted` distinguishes a discovery that failed from one that was rejected before it started.
#[tokio::test(start_paused = true)]
async fn a_failed_discovery_reports_that_it_contacted_the_source() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    let first = refresh(&fixture, "git").await;
    git.fail("out of order");
    let failed = force_refresh(&fixture, "git").await;
    assert_eq!((failed.status, failed.contacted), (RefreshStatus::Failed, true));
    assert_eq!((failed.unchanged, failed.inventory_hash), (1, first.inventory_hash), "the last good list");
}

#[tokio::test(start_paused = true)]
async fn a_closed_registry_ends_its_discoveries() {
    let git = ScriptedSource::new(["push"]);
    let fixture = open(&[("git", &git)]).await;
    git.pause();
    let registry = fixture.registry.clone();
    let running = tokio::spawn(async move { refresh(&registry, "git").await });
    wait_until("the discovery started", || git.discoveries() == 1).await;
    fixture.registry.clone().close().await;
    let outcome = running.await.unwrap();
    assert_eq!(
        (outcome.status, outcome.error.unwrap().message.as_str()),
        (RefreshStatus::Failed, "the registry was closed")
    );
}

/// Regression: a queued discovery ran although another process had finished it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_discovery_of_another_process_satisfies_a_queued_one() {
    let store = std::sync::Arc::new(toolcrib::store::MemoryStore::new());
    let first = ScriptedSource::new(["one"]);
    let second = ScriptedSource::new(["two"]);
    let open = async || {
        let factory = ScriptedSource::connector_factory([("first", &first), ("second", &second)]);
        let options =
            toolcrib::RegistryOptions { store: Some(store.clone()), max_parallel_discoveries: 1, ..Default::default() };
        open_with_connectors(config_with_sources(["first", "second"]), options, factory).await.unwrap()
    };
    let registry = open().await;
    let other_process = open().await;
    first.pause();
    let listing = registry.clone();
    let listing = tokio::spawn(async move { list_tools(&listing).await });
    wait_until("the first source is contacted", || first.discoveries() == 1).await;
    force_refresh(&other_process, "second").await;
    first.resume();
    assert_eq!(listing.await.unwrap(), ["first__one", "second__two"]);
    assert_eq!((first.discoveries(), second.discoveries()), (1, 1));
}
