//! Prompts, resources, resource templates and instructions of MCP servers: recorded like tools, read without contacting
//! their servers.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib::Registry;
use toolcrib::catalog::search::Query;
use toolcrib::core::features::{FeatureKind, FeatureList};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::RegistryNotice;
use toolcrib_testkit::programs;

use crate::support::{
    SqliteRegistry, agent, call, force_refresh, id, list_tools, open_at, scripted_source, wait_until, with_settings,
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
    std::fs::write(fixture.path("features.json"), features.to_string()).unwrap();
}

fn some_features() -> Value {
    json!({
        "prompts": [{"name": "review", "description": "Reviews\u{200b} a change"}, {"name": "commit"}],
        "resources": [{"uri": "note://one", "name": "one"}],
        "resourceTemplates": [{"uriTemplate": "note://{name}", "name": "any"}],
        "instructions": "Read before you write.",
    })
}

fn features(registry: &Registry) -> Option<Arc<FeatureList>> {
    registry.view(&agent()).source(&id("s")).and_then(|source| source.features.clone())
}

/// Names and URIs of all features of the server.
fn keys(registry: &Registry) -> [Vec<String>; 3] {
    let features = features(registry);
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
    assert_eq!(keys(&fixture), [vec![], vec![], vec![] as Vec<String>]);
    let outcome = force_refresh(&fixture, "s").await;
    let first = [vec!["commit", "review"], vec!["note://one"], vec!["note://{name}"]];
    assert_eq!(keys(&fixture), first.clone());
    assert_eq!(outcome.features.unwrap().lists.prompts.added, ["commit", "review"]);
    let recorded = "2 prompts added to `s`: commit, review; 1 resource added: note://one; \
                    1 resource template added: note://{name}; instructions changed";
    assert_eq!(events(&fixture).await, [recorded]);
    let list = features(&fixture).unwrap();
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
    assert_eq!(keys(&fixture), first);
    let view = fixture.sources().get(&id("s")).unwrap();
    assert_eq!((view.prompt_count, view.resource_count, view.resource_template_count), (2, 1, 1));
    assert_eq!(view.instructions.as_deref(), Some("Read before you write."));
    assert_eq!(starts(), before);

    // The journal and the stored lists are verified.
    let verification = fixture.store().verify().await.unwrap();
    assert_eq!((verification.faults, verification.feature_lists), (Vec::new(), 1));
    fixture.execute(Command::Disable(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(features(&fixture), None, "a disabled source has no features");
    fixture.execute(Command::Enable(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(keys(&fixture)[0], ["commit", "review"]);
    fixture.execute(Command::Remove(id("s")), Actor::new("operator")).await.unwrap();
    assert_eq!(features(&fixture), None);
}

#[tokio::test]
async fn changes_are_recorded_each_on_its_own() {
    let fixture = open_with_features(&[], some_features(), json!({})).await;
    list_tools(&fixture).await;
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
    assert_eq!(keys(&fixture), [vec![], vec![], vec![] as Vec<String>]);
    assert_eq!(fixture.store().verify().await.unwrap().faults, [""; 0]);
}

#[tokio::test]
async fn a_list_that_fails_affects_no_other() {
    let fixture = open_with_features(&[], some_features(), json!({"discovery_timeout": "2s"})).await;
    list_tools(&fixture).await;
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
        assert_eq!(keys(&fixture)[..2], expected, "{fault}");
        let view = fixture.sources().get(&id("s")).unwrap();
        assert_eq!(view.skipped[0].name, "prompts/list");
        assert!(view.skipped[0].reason.contains(reason), "{}", view.skipped[0].reason);
    }
    // A server without templates does not know the method.
    set_features(&fixture, json!({"prompts": [], "resources": []}));
    force_refresh(&fixture, "s").await;
    assert_eq!(keys(&fixture), [vec![], vec![], vec![] as Vec<String>]);
    assert_eq!(fixture.sources().get(&id("s")).unwrap().skipped, []);
}

#[tokio::test]
async fn an_announced_change_is_read() {
    let fixture = open_with_features(&["--with", "announce"], some_features(), json!({})).await;
    list_tools(&fixture).await;
    let mut notices = fixture.subscribe();
    for (number, method) in
        ["notifications/prompts/list_changed", "notifications/resources/list_changed"].into_iter().enumerate()
    {
        let name = format!("new{number}");
        set_features(&fixture, json!({"prompts": [{"name": name}]}));
        call(&fixture, "s__announce", json!({ "method": method })).await.unwrap();
        wait_until("the new prompt is recorded", || keys(&fixture)[0] == [name.clone()]).await;
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
    assert_eq!((features(&fixture), events(&fixture).await.len()), (None, 0));
    force_refresh(&fixture, "s").await;
    assert_eq!(keys(&fixture)[0], ["commit", "review"]);
    // Tools that the host records tell nothing about prompts and resources.
    let tool = serde_json::value::to_raw_value(&json!({"name": "other"})).unwrap();
    fixture.sources().record_tools(&id("s"), vec![tool]).await.unwrap();
    assert_eq!(keys(&fixture)[0], ["commit", "review"]);
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
    list_tools(&fixture).await;
    let list = features_of(&fixture);
    assert_eq!(keys(&fixture)[..2], [vec!["a"], vec!["db://host"]]);
    assert_eq!(list.instructions.as_deref(), Some("Log in with ***."));
    assert!(!format!("{list:?}").contains(secret));
    let reason = "it contains a secret value of its source in its `uri`";
    let skipped = fixture.sources().get(&id("s")).unwrap().skipped;
    assert_eq!((skipped[0].name.as_str(), skipped[0].reason.as_str()), ("resource #1", reason));
}

fn features_of(registry: &Registry) -> Arc<FeatureList> {
    features(registry).unwrap()
}

#[tokio::test]
async fn instructions_are_used_by_search() {
    let fixture =
        open_with_features(&[], json!({"instructions": "Answers questions about zeppelins."}), json!({})).await;
    list_tools(&fixture).await;
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
    list_tools(&fixture).await;
    let view = fixture.sources().get(&id("s")).unwrap();
    assert!(view.prompt_count > 2 && view.resource_count > 2 && view.resource_template_count > 0, "{view:?}");
    assert!(view.instructions.is_some_and(|text| !text.is_empty()));
    assert!(keys(&fixture)[0].contains(&"simple-prompt".to_owned()));
    assert_eq!(fixture.sources().get(&id("t")).unwrap().instructions, None);
    assert_eq!(force_refresh(&fixture, "s").await.features, None, "the lists of the server are stable");
}
