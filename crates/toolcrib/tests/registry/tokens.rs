//! Token counts: computed once per tool when its list is recorded, and stored with its manifest.

use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::Registry;
use toolcrib::catalog::filter::ListOrder;
use toolcrib::catalog::render::Format;
use toolcrib::catalog::token_count;
use toolcrib::refresh::RefreshStatus;
use toolcrib::testkit::ScriptedSource;

use crate::support::{TestRegistry, agent, config, force_refresh, id, open_yaml, tool_json};

const YAML: &str = "sources: { git: { command: scripted } }";

#[tokio::test]
async fn each_tool_is_counted_when_it_is_recorded() {
    let fixture = open_yaml(YAML, &[]).await;
    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes")]).await;
    let counts = stored_counts(&fixture).await;
    let view = fixture.view(&agent());
    let list = view.render(Format::Mcp).unwrap();
    let each: Vec<Box<RawValue>> = serde_json::from_str(&list).unwrap();
    let counted: Vec<u32> = each.iter().map(|tool| u32::try_from(token_count::count(tool.get())).unwrap()).collect();
    assert_eq!(counts, counted);
    assert_eq!(listed_counts(&fixture), counted.iter().copied().map(Some).collect::<Vec<_>>());
    assert_eq!(view.full_token_count(), counted.iter().sum::<u32>() as usize);

    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes, at length")]).await;
    let counts = stored_counts(&fixture).await;
    assert!(counts[0] == counted[0] && counts[1] > counted[1], "{counts:?}");
    let reopened = fixture.open_again(YAML).await;
    assert_eq!(listed_counts(&reopened), counts.into_iter().map(Some).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_next_refresh_counts_the_list_of_an_older_version() {
    let git = ScriptedSource::new([tool_json("pull", "Pulls"), tool_json("push", "Pushes, at length")]);
    let fixture = open_yaml(YAML, &[("git", &git)]).await;
    force_refresh(&fixture, "git").await;
    let counts = stored_counts(&fixture).await;
    forget_counts(&fixture).await;
    let old = fixture.open_again(YAML).await;
    assert_eq!(listed_counts(&old), [None, None]);
    let key = old.view(&agent()).key();
    let ordered = old.view(&agent()).render_page(Format::Json, |_| true, &ListOrder::Tokens, None, 9).unwrap();
    let ordered: Vec<Value> = serde_json::from_str(&ordered.array).unwrap();
    assert_eq!(ordered.iter().map(|tool| tool["tokens"].clone()).collect::<Vec<_>>(), [counts[1], counts[0]]);

    let outcome = force_refresh(&old, "git").await;
    assert_eq!(outcome.status, RefreshStatus::Unchanged);
    assert_eq!(listed_counts(&old), counts.iter().copied().map(Some).collect::<Vec<_>>());
    assert_eq!(stored_counts(&fixture).await, counts);
    assert_eq!(old.view(&agent()).key(), key);
}

/// Whether the counts were stored when a process read the list must not show: its lists are the same as those of others.
#[tokio::test]
async fn readers_of_lists_count_the_list_of_an_older_version() {
    let fixture = open_yaml(YAML, &[]).await;
    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes")]).await;
    let counts = listed_counts(&fixture);
    forget_counts(&fixture).await;
    let old = fixture.open_again(YAML).await;
    old.statistics().count_tokens().await;
    assert_eq!(listed_counts(&old), counts);
    assert_eq!(old.view(&agent()).key(), fixture.view(&agent()).key());
}

#[tokio::test]
async fn built_in_tools_are_counted_by_the_first_reader_and_not_at_a_start() {
    let fixture = open_yaml("sources: { core: { builtin: [calculate] } }", &[]).await;
    assert_eq!(listed_counts(&fixture), [None]);
    fixture.statistics().count_tokens().await;
    assert!(listed_counts(&fixture)[0] > Some(0));
}

#[tokio::test]
async fn essential_tools_follow_the_configuration() {
    let fixture = open_yaml(YAML, &[]).await;
    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes")]).await;
    let essential = || -> Vec<String> {
        fixture.view(&agent()).configured_essentials().map(|tool| tool.name().to_string()).collect()
    };
    assert_eq!(essential(), [""; 0]);
    let hash = fixture.unrestricted_catalog().hash();
    fixture.configuration().apply(&config(&format!("{YAML}\nexpose: {{ essential: [\"git__pu*h\"] }}"))).await.unwrap();
    assert_eq!(essential(), ["git__push"]);
    assert_eq!(fixture.configuration().expose().essential, ["git__pu*h"]);
    assert_ne!(fixture.unrestricted_catalog().hash(), hash, "lists show something else");
    fixture.configuration().apply(&config("sources: { git: { command: scripted, essential: [pull] } }")).await.unwrap();
    assert_eq!(essential(), ["git__pull"]);
}

async fn record_tools(fixture: &TestRegistry, tools: &[(&str, &str)]) {
    let raw = |(name, description): &(&str, &str)| {
        let tool = serde_json::json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        RawValue::from_string(tool.to_string()).unwrap()
    };
    fixture.registry.sources().record_tools(&id("git"), tools.iter().map(raw).collect()).await.unwrap();
}

/// Removes the counts from the stored list, as an older version stored it.
async fn forget_counts(fixture: &TestRegistry) {
    let fingerprint = fixture.inventory().source(&id("git")).unwrap().manifest.unwrap();
    let mut manifest = fixture.store.manifests(&[fingerprint]).await.unwrap().remove(0);
    manifest.tools.iter_mut().for_each(|tool| tool.tokens = 0);
    manifest.has_traits = false;
    fixture.store.put_manifest(&manifest).await.unwrap();
}

/// Returns the counts as lists show them.
fn listed_counts(registry: &Registry) -> Vec<Option<u32>> {
    registry.view(&agent()).offered_tools().map(|tool| tool.tokens()).collect()
}

/// Returns the counts in the store in the order of the list; 0 for tools that are not counted.
async fn stored_counts(fixture: &TestRegistry) -> Vec<u32> {
    let fingerprint = fixture.inventory().source(&id("git")).unwrap().manifest.unwrap();
    let manifests = fixture.store.manifests(&[fingerprint]).await.unwrap();
    manifests[0].tools.iter().map(|tool| tool.tokens).collect()
}
