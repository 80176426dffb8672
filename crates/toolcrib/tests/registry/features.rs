//! Prompts, resources, resource templates and instructions of MCP servers: recorded like tools, read without contacting
//! their servers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use toolcrib::catalog::search::Query;
use toolcrib::core::features::{
    ByFeatureKind, FeatureKind, FeatureList, OfferedFeatures, OfferedList, RecordedFeatures,
};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::refresh::{RefreshStatus, RefreshWait};
use toolcrib::registry::RegistryNotice;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_testkit::observe::{TEST_TIMEOUT, read_lines, replace_file, wait_until_async};
use toolcrib_testkit::programs;

use crate::support::{
    SqliteRegistry, agent, call, force_refresh, id, list_tools, open, open_at, open_with, scripted_source, wait_until,
    with_settings,
};

/// Opens a registry with a scripted server `s` that has the features of a file in the data directory.
async fn open_with_features(flags: &[&str], features: Value, settings: Value) -> SqliteRegistry {
    let fixture = SqliteRegistry::open(json!({})).await;
    set_features(&fixture, features);
    let sources = sources_json(&fixture, flags, settings);
    fixture.reopen(sources).await
}

/// The scripted server as a source; `{home}` in a flag is replaced with the data directory.
fn sources_json(fixture: &SqliteRegistry, flags: &[&str], settings: Value) -> Value {
    let home = fixture.home.path().to_str().unwrap();
    let flags: Vec<String> = ["--features-file", "{home}/features.json"]
        .iter()
        .chain(flags)
        .map(|flag| flag.replace("{home}", home))
        .collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    json!({"s": with_settings(scripted_source(&flags), settings)})
}

fn set_features(fixture: &SqliteRegistry, features: Value) {
    replace_file(&fixture.path("features.json"), &features.to_string());
}

fn some_features() -> Value {
    json!({
        "prompts": [{"name": "review", "description": "Reviews\u{200b} a change"}, {"name": "commit"}],
        "resources": [{"uri": "note://one", "name": "one"}],
        "resourceTemplates": [{"uriTemplate": "note://{name}", "name": "any"}],
        "instructions": "Read before you write.",
    })
}

fn recorded(registry: &Registry) -> Option<Arc<RecordedFeatures>> {
    registry.view(&agent()).source(&id("s")).and_then(|source| source.features.clone())
}

async fn recorded_list(registry: &Registry) -> Option<Arc<FeatureList>> {
    registry.sources().feature_list(&*recorded(registry)?).await.unwrap()
}

/// Discovers the sources, with prompts and resources, which tools do not wait for.
async fn list_all(registry: &Registry) {
    list_tools(registry).await;
    registry.refresher().wait_for_pending_lists(TEST_TIMEOUT).await;
}

/// Names and URIs of all features of the server.
async fn keys(registry: &Registry) -> [Vec<String>; 3] {
    let features = recorded_list(registry).await;
    FeatureKind::ALL.map(|kind| {
        let features = features.iter().flat_map(|features| features.features(kind));
        features.map(|feature| feature.key.clone()).collect()
    })
}

/// Texts of the recorded events about features, oldest first.
async fn events(registry: &Registry) -> Vec<String> {
    let records = registry.history().records(&Default::default()).await.unwrap();
    let events = records.iter().filter(|record| record.kind == "FeaturesRecorded");
    events.map(|record| record.text.clone()).collect()
}

#[tokio::test]
async fn features_are_recorded_once_and_survive_a_restart() {
    let flags = ["--count-file", "{home}/starts"];
    let fixture = open_with_features(&flags, some_features(), json!({})).await;
    assert_eq!(keys(&fixture).await, [vec![], vec![], vec![] as Vec<String>]);
    let outcome = force_refresh(&fixture, "s").await;
    let first = [vec!["commit", "review"], vec!["note://one"], vec!["note://{name}"]];
    assert_eq!(keys(&fixture).await, first.clone());
    assert_eq!(outcome.features.unwrap().lists.prompts.added, ["commit", "review"]);
    let recorded = "2 prompts added to `s`: commit, review; 1 resource added: note://one; \
                    1 resource template added: note://{name}; instructions changed";
    assert_eq!(events(&fixture).await, [recorded]);
    let list = recorded_list(&fixture).await.unwrap();
    let review = list.find(FeatureKind::Prompt, "review").unwrap();
    assert_eq!(list.json(review), r#"{"name":"review","description":"Reviews a change"}"#);

    // An unchanged refresh writes nothing.
    let outcome = force_refresh(&fixture, "s").await;
    assert_eq!((outcome.status, outcome.features), (RefreshStatus::Unchanged, None));
    assert_eq!(events(&fixture).await.len(), 1);

    // A restart contacts nothing.
    let count_file = fixture.path("starts");
    let starts = || std::fs::read_to_string(&count_file).unwrap().lines().count();
    let before = starts();
    let sources = sources_json(&fixture, &flags, json!({}));
    let fixture = fixture.reopen(sources).await;
    assert_eq!(keys(&fixture).await, first);
    let view = fixture.sources().get(&id("s")).unwrap();
    assert_eq!((view.prompt_count, view.resource_count, view.resource_template_count), (2, 1, 1));
    assert_eq!(view.instructions.as_deref(), Some("Read before you write."));
    assert_eq!(starts(), before);

    // The journal and the stored lists are verified.
    let verification = fixture.store().verify().await.unwrap();
    assert_eq!((verification.faults, verification.feature_lists), (Vec::new(), 1));
    fixture.execute(Command::Disable(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(recorded_list(&fixture).await, None, "a disabled source has no features");
    fixture.execute(Command::Enable(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(keys(&fixture).await[0], ["commit", "review"]);
    fixture.execute(Command::Remove(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(recorded_list(&fixture).await, None);
}

#[tokio::test]
async fn changes_are_recorded_each_on_its_own() {
    let fixture = open_with_features(&[], some_features(), json!({})).await;
    list_all(&fixture).await;
    let mut changed = some_features();
    changed["prompts"][0]["description"] = json!("Reviews it");
    changed["prompts"][1]["name"] = json!("merge");
    set_features(&fixture, changed.clone());
    force_refresh(&fixture, "s").await;
    changed["instructions"] = json!("Read it twice.");
    set_features(&fixture, changed);
    let outcome = force_refresh(&fixture, "s").await;
    assert_eq!((outcome.status, outcome.unchanged), (RefreshStatus::Success, 3));
    assert!(outcome.features.unwrap().instructions_changed);
    set_features(&fixture, json!({}));
    force_refresh(&fixture, "s").await;
    assert_eq!(
        events(&fixture).await[1..],
        [
            "1 prompt added to `s`: merge; 1 prompt changed: review; 1 prompt removed: commit",
            "instructions of `s` changed",
            "2 prompts removed from `s`: merge, review; 1 resource removed: note://one; \
             1 resource template removed: note://{name}; instructions changed",
        ]
    );
    assert_eq!(keys(&fixture).await, [vec![], vec![], vec![] as Vec<String>]);
    assert_eq!(fixture.store().verify().await.unwrap().faults, [""; 0]);
}

#[tokio::test]
async fn a_list_that_fails_affects_no_other() {
    let fixture = open_with_features(&[], some_features(), json!({"discovery_timeout": "2s"})).await;
    list_all(&fixture).await;
    for (fault, reason) in [
        ("it is broken", "it is broken"),
        ("loop", "its prompt list repeats a page and would never end"),
        ("hang", "no answer within 2s"),
    ] {
        let mut features = some_features();
        features["prompts"] = json!(fault);
        features["resources"] = json!([{"uri": format!("note://{}", fault.len()), "name": fault}]);
        set_features(&fixture, features);
        let outcome = force_refresh(&fixture, "s").await;
        assert_eq!((outcome.status, outcome.unchanged), (RefreshStatus::Success, 3), "{fault}");
        let expected = [vec!["commit".to_owned(), "review".to_owned()], vec![format!("note://{}", fault.len())]];
        assert_eq!(keys(&fixture).await[..2], expected, "{fault}");
        let view = fixture.sources().get(&id("s")).unwrap();
        assert_eq!(view.skipped[0].name, "prompts/list");
        assert!(view.skipped[0].reason.contains(reason), "{}", view.skipped[0].reason);
    }
    // A server without templates does not know the method.
    set_features(&fixture, json!({"prompts": [], "resources": []}));
    force_refresh(&fixture, "s").await;
    assert_eq!(keys(&fixture).await, [vec![], vec![], vec![] as Vec<String>]);
    assert_eq!(fixture.sources().get(&id("s")).unwrap().skipped, []);
}

#[tokio::test]
async fn tools_do_not_wait_for_a_late_list_which_arrives_by_itself() {
    let mut late = some_features();
    late["prompts"] = json!("late");
    let fixture = open_with_features(&["--count-file", "{home}/starts"], late, json!({})).await;
    let tools = list_tools(&fixture).await;
    assert_eq!(tools.len(), 3);
    // Nor do the other lists.
    wait_until_async("the resources are recorded", async || keys(&fixture).await[1] == ["note://one"]).await;
    assert_eq!(keys(&fixture).await[0], [""; 0]);
    assert_eq!(fixture.sources().get(&id("s")).unwrap().instructions.as_deref(), Some("Read before you write."));
    let mut notices = fixture.subscribe();
    set_features(&fixture, some_features());
    wait_until_async("the prompts are recorded", async || keys(&fixture).await[0] == ["commit", "review"]).await;
    let mut notices = std::iter::from_fn(|| notices.try_recv().ok());
    assert!(notices.any(|notice| matches!(notice, RegistryNotice::FeaturesChanged)));
    assert_eq!(std::fs::read_to_string(fixture.path("starts")).unwrap().lines().count(), 1, "one discovery");
    assert_eq!(events(&fixture).await.len(), 2);
    assert_eq!(fixture.store().verify().await.unwrap().faults, [""; 0]);
}

#[tokio::test]
async fn a_refresh_waits_for_late_lists_and_reports_them() {
    let mut late = some_features();
    late["prompts"] = json!("late");
    let fixture = open_with_features(&[], late, json!({})).await;
    let refresh = fixture.refresh(Refresh::default());
    let arrive = async {
        wait_until_async("the tools are recorded", async || fixture.sources().get(&id("s")).unwrap().tool_count == 3)
            .await;
        set_features(&fixture, some_features());
    };
    let (outcomes, ()) = tokio::join!(refresh, arrive);
    let features = outcomes[0].features.as_ref().unwrap();
    assert_eq!(features.lists.prompts.added, ["commit", "review"]);
    assert_eq!(features.lists.resources.added, ["note://one"]);
}

#[tokio::test]
async fn lists_that_a_process_did_not_read_are_read_by_the_next_refresh() {
    let mut late = some_features();
    late["prompts"] = json!("late");
    let fixture = open_with_features(&[], late, json!({})).await;
    list_tools(&fixture).await;
    let sources = sources_json(&fixture, &[], json!({}));
    let fixture = fixture.reopen(sources).await;
    set_features(&fixture, some_features());
    // The tools are fresh, the prompts are not.
    let outcome = fixture.refresh(Refresh::default()).await.remove(0);
    assert!(outcome.contacted);
    assert_eq!(keys(&fixture).await[0], ["commit", "review"]);
    let outcome = fixture.refresh(Refresh::default()).await.remove(0);
    assert_eq!((outcome.status, outcome.contacted), (RefreshStatus::Fresh, false));
}

#[tokio::test]
async fn an_announced_change_ends_a_reading_that_hangs() {
    let mut hanging = some_features();
    hanging["prompts"] = json!("hang");
    let fixture = open_with_features(&["--with", "announce"], hanging, json!({})).await;
    call(&fixture, "s__announce", json!({"method": "notifications/message"})).await.unwrap();
    set_features(&fixture, some_features());
    call(&fixture, "s__announce", json!({"method": "notifications/prompts/list_changed"})).await.unwrap();
    wait_until_async("the prompts are recorded", async || keys(&fixture).await[0] == ["commit", "review"]).await;
    assert_eq!(fixture.sources().get(&id("s")).unwrap().skipped, []);
}

/// A source whose only prompt follows its tools after a delay.
fn source_with_late_prompt(delay: Duration) -> Arc<ScriptedSource> {
    let source = ScriptedSource::new(["push"]);
    let prompt = to_raw_value(&json!({"name": "review"})).unwrap();
    let lists = ByFeatureKind::from_fn(|kind| match kind {
        FeatureKind::Prompt => OfferedList::Items(vec![prompt.clone()]),
        FeatureKind::Resource | FeatureKind::ResourceTemplate => OfferedList::Items(Vec::new()),
    });
    source.set_features(OfferedFeatures { lists, ..OfferedFeatures::default() });
    source.set_list_delay(delay);
    source
}

/// Regression: each announcement ended the reading that the one before had started.
#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_announcing_changes_gets_time_for_its_lists() {
    let git = source_with_late_prompt(Duration::from_secs(5));
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let announcements = async {
        let mut interval = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..60 {
            interval.tick().await;
            git.announce_tools_changed();
        }
    };
    announcements.await;
    assert_eq!(fixture.source_view("git").prompt_count, 1);
    assert!(git.discoveries() > 5, "announcements are handled while lists are slow: {}", git.discoveries());
}

/// Regression: an unlimited wait overflowed the clock.
#[tokio::test(start_paused = true)]
async fn pending_lists_can_be_awaited_without_a_limit() {
    let git = source_with_late_prompt(Duration::from_secs(5));
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    fixture.refresher().wait_for_pending_lists(Duration::MAX).await;
    assert_eq!(fixture.source_view("git").prompt_count, 1);
}

/// Regression: lists that were read after the tools did not count for the bound.
#[tokio::test(start_paused = true)]
async fn connections_that_are_open_for_late_lists_are_bounded() {
    let sources = ["a", "b", "c"].map(|id| (id, source_with_late_prompt(Duration::from_secs(60))));
    let named = sources.each_ref().map(|(id, source)| (*id, source));
    let yaml = "sources: { a: { command: x }, b: { command: x }, c: { command: x } }";
    let fixture = open_with(yaml, &named, |options| RegistryOptions { max_parallel_discoveries: 1, ..options }).await;
    let started_count = || sources.iter().map(|(_, source)| source.discoveries()).sum::<usize>();
    let registry = fixture.registry.clone();
    let refresh = Refresh { wait_for: RefreshWait::Tools, ..Refresh::default() };
    let mut running = tokio::spawn(async move { registry.refresh(refresh).await });
    let early = tokio::time::timeout(Duration::from_secs(30), &mut running).await;
    assert!(early.is_err() && started_count() == 2, "{}", started_count());
    assert!(running.await.unwrap().iter().all(|outcome| outcome.error.is_none()));
    assert_eq!(started_count(), 3);
}

/// Regression: the server of the earlier reading was killed.
#[tokio::test]
async fn a_reading_that_is_superseded_closes_its_connection() {
    let fixture = SqliteRegistry::open(json!({})).await;
    set_features(&fixture, json!({"prompts": "hang"}));
    let features_file = fixture.path("features.json");
    let ended_file = fixture.path("ended");
    let server = scripted_source(&["--features-file", features_file.to_str().unwrap()]);
    // The shell is killed with the server, and so writes its line only after a server that exits by itself.
    let mut args =
        vec![json!("-c"), json!(r#""$@"; echo ended >> "$0""#), json!(ended_file), server["command"].clone()];
    args.extend(server["args"].as_array().unwrap().iter().cloned());
    let fixture = fixture.reopen(json!({"s": {"command": "sh", "args": args}})).await;
    for _ in 0..2 {
        fixture.refresh(Refresh { force: true, wait_for: RefreshWait::Tools, ..Refresh::default() }).await;
    }
    wait_until("the first server has exited", || read_lines(&ended_file).len() == 1).await;
}

#[tokio::test]
async fn a_start_reads_no_items_and_the_event_names_few() {
    let resources: Vec<Value> = (0..500).map(|number| json!({"uri": format!("note://{number:03}")})).collect();
    let fixture = open_with_features(&[], json!({ "resources": resources }), json!({})).await;
    list_all(&fixture).await;
    let records = fixture.history().records(&Default::default()).await.unwrap();
    let record = records.iter().find(|record| record.kind == "FeaturesRecorded").unwrap();
    let (data, text) = (record.data.to_string(), &record.text);
    assert!(text.starts_with("500 resources added to `s`: note://000, note://001,"), "{text}");
    assert!(text.ends_with("and 490 more") && data.len() < 2_000, "{data}");
    let sources = sources_json(&fixture, &[], json!({}));
    let fixture = fixture.reopen(sources).await;
    assert_eq!(fixture.sources().get(&id("s")).unwrap().resource_count, 500);
    assert!(recorded(&fixture).unwrap().list().is_none(), "nothing has needed the items");
    assert_eq!(keys(&fixture).await[1].len(), 500);
    assert!(recorded(&fixture).unwrap().list().is_some(), "they stay in memory");
}

#[tokio::test]
async fn a_damaged_list_is_replaced_by_the_next_discovery() {
    let fixture = open_with_features(&[], some_features(), json!({})).await;
    list_all(&fixture).await;
    let mut database = SqliteConnectOptions::new().filename(fixture.path("toolcrib.db")).connect().await.unwrap();
    let damage = r#"UPDATE manifests SET idx = '{}' WHERE idx LIKE '%"counts"%'"#;
    assert_eq!(sqlx::query(damage).execute(&mut database).await.unwrap().rows_affected(), 1);
    database.close().await.unwrap();
    let sources = sources_json(&fixture, &[], json!({}));
    let fixture = fixture.reopen(sources).await;
    assert!(recorded(&fixture).is_none());
    assert_eq!(list_tools(&fixture).await.len(), 3, "the tools are not affected");
    force_refresh(&fixture, "s").await;
    assert_eq!(keys(&fixture).await[0], ["commit", "review"]);
    assert_eq!(fixture.store().verify().await.unwrap().faults, [""; 0]);
}

#[tokio::test]
async fn an_announced_change_is_read() {
    let fixture = open_with_features(&["--with", "announce"], some_features(), json!({})).await;
    list_all(&fixture).await;
    let mut notices = fixture.subscribe();
    for (number, method) in
        ["notifications/prompts/list_changed", "notifications/resources/list_changed"].into_iter().enumerate()
    {
        let name = format!("new{number}");
        set_features(&fixture, json!({"prompts": [{"name": name}]}));
        call(&fixture, "s__announce", json!({ "method": method })).await.unwrap();
        wait_until_async("the new prompt is recorded", async || keys(&fixture).await[0] == [name.clone()]).await;
    }
    let mut changes = 0;
    while let Ok(notice) = notices.try_recv() {
        changes += usize::from(matches!(notice, RegistryNotice::FeaturesChanged));
        assert!(!matches!(notice, RegistryNotice::CatalogChanged), "the tools are the same");
    }
    assert_eq!(changes, 2);
}

/// A list of tools that was recorded without features, as an older version did.
#[tokio::test]
async fn a_source_without_recorded_features_gets_them_at_the_next_refresh() {
    let fixture = open_with_features(&[], some_features(), json!({})).await;
    let tool = serde_json::value::to_raw_value(&json!({"name": "echo"})).unwrap();
    fixture.sources().record_tools(&id("s"), vec![tool]).await.unwrap();
    assert_eq!((recorded_list(&fixture).await, events(&fixture).await.len()), (None, 0));
    force_refresh(&fixture, "s").await;
    assert_eq!(keys(&fixture).await[0], ["commit", "review"]);
    // Tools that the host records tell nothing about prompts and resources.
    let tool = serde_json::value::to_raw_value(&json!({"name": "other"})).unwrap();
    fixture.sources().record_tools(&id("s"), vec![tool]).await.unwrap();
    assert_eq!(keys(&fixture).await[0], ["commit", "review"]);
}

#[tokio::test]
async fn secrets_of_a_source_are_not_recorded() {
    let secret = "hunter2hunter2";
    let features = json!({
        "prompts": [{"name": "a", "description": format!("with {secret}")}],
        "resources": [{"uri": format!("db://user:{secret}@host"), "name": "db"}, {"uri": "db://host", "name": "db"}],
        "instructions": format!("Log in with {secret}."),
    });
    let fixture = open_with_features(&[], features, json!({"env": {"TOKEN": secret}})).await;
    list_all(&fixture).await;
    let list = recorded_list(&fixture).await.unwrap();
    assert_eq!(keys(&fixture).await[..2], [vec!["a"], vec!["db://host"]]);
    assert_eq!(list.summary.instructions.as_deref(), Some("Log in with ***."));
    assert!(!format!("{list:?}").contains(secret));
    let reason = "it contains a secret value of its source in its `uri`";
    let skipped = fixture.sources().get(&id("s")).unwrap().skipped;
    assert_eq!((skipped[0].name.as_str(), skipped[0].reason.as_str()), ("resource #1", reason));
}

#[tokio::test]
async fn instructions_are_used_by_search() {
    let fixture =
        open_with_features(&[], json!({"instructions": "Answers questions about zeppelins."}), json!({})).await;
    list_all(&fixture).await;
    let hits = |registry: &Registry, query: &str| {
        registry
            .view(&agent())
            .search(&Query::new(query))
            .hits
            .iter()
            .map(|hit| hit.name.to_string())
            .collect::<Vec<_>>()
    };
    assert!(hits(&fixture, "zeppelins").iter().all(|name| name.starts_with("s__")));
    assert!(!hits(&fixture, "zeppelins").is_empty());
    // Another process learns of new instructions from the event.
    let other = open_at(fixture.home.path(), sources_json(&fixture, &[], json!({}))).await;
    set_features(&fixture, json!({"instructions": "Answers questions about submarines."}));
    force_refresh(&fixture, "s").await;
    assert!(!hits(&fixture, "submarines").is_empty());
    wait_until("the other process searches the new text", || !hits(&other, "submarines").is_empty()).await;
    assert!(hits(&other, "zeppelins").is_empty());
}

#[tokio::test]
async fn features_of_a_real_server_are_recorded() {
    let Some((program, arguments)) = programs::everything_server() else {
        return programs::skip("features::features_of_a_real_server_are_recorded", "the server was not fetched");
    };
    let sources = json!({"s": {"command": program, "args": arguments}, "t": scripted_source(&[])});
    let fixture = SqliteRegistry::open(sources).await;
    list_all(&fixture).await;
    let view = fixture.sources().get(&id("s")).unwrap();
    assert!(view.prompt_count > 2 && view.resource_count > 2 && view.resource_template_count > 0, "{view:?}");
    assert!(view.instructions.is_some_and(|text| !text.is_empty()));
    assert!(keys(&fixture).await[0].contains(&"simple-prompt".to_owned()));
    assert_eq!(fixture.sources().get(&id("t")).unwrap().instructions, None);
    assert_eq!(force_refresh(&fixture, "s").await.features, None, "the lists of the server are stable");
}
