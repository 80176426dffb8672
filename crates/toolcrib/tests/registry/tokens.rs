//! Token counts: computed once per tool, stored with its manifest, and never while a list is rendered.

use serde_json::value::RawValue;
use toolcrib::catalog::render::Format;
use toolcrib::catalog::token_count;

use crate::support::{TestRegistry, agent, config, id, open_yaml, wait_until_async};

const YAML: &str = "sources: { git: { command: scripted } }";

#[tokio::test]
async fn each_tool_is_counted_once_and_its_count_is_stored() {
    let fixture = open_yaml(YAML, &[]).await;
    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes")]).await;
    assert_eq!(stored_counts(&fixture).await, [0, 0], "a discovery counts nothing");

    fixture.statistics().count_tokens().await;
    let counts = wait_until_counted(&fixture).await;
    let view = fixture.view(&agent());
    let list = view.render(Format::Mcp).unwrap();
    let each: Vec<Box<RawValue>> = serde_json::from_str(&list).unwrap();
    let counted: Vec<u32> = each.iter().map(|tool| u32::try_from(token_count::count(tool.get())).unwrap()).collect();
    assert_eq!(counts, counted);
    assert_eq!(view.full_token_count(), counted.iter().sum::<u32>() as usize);

    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes, at length")]).await;
    assert_eq!(stored_counts(&fixture).await, [counts[0], 0], "what did not change keeps its count");
    fixture.statistics().count_tokens().await;
    let counts = wait_until_counted(&fixture).await;
    assert!(counts[1] > counted[1], "{counts:?}");

    record_tools(&fixture, &[("pull", "Pulls"), ("push", "Pushes, at length")]).await;
    assert_eq!(stored_counts(&fixture).await, counts, "recording the same list changes nothing");
    let reopened = fixture.open_again(YAML).await;
    assert!(
        reopened.unrestricted_catalog().sources().all(|source| source.segment.has_token_counts()),
        "the counts are loaded at the start"
    );
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

/// Waits until all counts are in the store, which happens in the background, and returns them.
async fn wait_until_counted(fixture: &TestRegistry) -> Vec<u32> {
    let are_counted = async || stored_counts(fixture).await.iter().all(|count| *count > 0);
    wait_until_async("the counts are stored", are_counted).await;
    stored_counts(fixture).await
}

/// Returns the counts in the store in the order of the list; 0 for tools that are not counted.
async fn stored_counts(fixture: &TestRegistry) -> Vec<u32> {
    let fingerprint = fixture.inventory().source(&id("git")).unwrap().manifest.unwrap();
    let manifests = fixture.store.manifests(&[fingerprint]).await.unwrap();
    manifests[0].tools.iter().map(|tool| tool.tokens).collect()
}
