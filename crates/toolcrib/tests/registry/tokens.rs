//! Tokens: counted once in the life of a tool, stored with its list, and never on the way to a list.

use serde_json::value::RawValue;
use toolcrib::core::render::Format;
use toolcrib::core::tokens;

use super::support::{TestRegistry, agent, config, id, open_yaml};

const YAML: &str = "sources: { git: { command: scripted } }";

#[tokio::test]
async fn each_tool_is_counted_once_and_its_count_is_stored() {
    let bench = open_yaml(YAML, &[]).await;
    record_tools(&bench, &[("pull", "Pulls"), ("push", "Pushes")]).await;
    assert_eq!(stored_counts(&bench).await, [0, 0], "a discovery counts nothing");

    bench.count_tokens().await;
    let counts = wait_until_counted(&bench).await;
    let view = bench.view(&agent());
    let list = view.render(Format::Mcp).unwrap();
    let each: Vec<Box<RawValue>> = serde_json::from_str(&list).unwrap();
    let counted: Vec<u32> = each.iter().map(|tool| u32::try_from(tokens::count(tool.get())).unwrap()).collect();
    assert_eq!(counts, counted);
    assert_eq!(view.full_token_count(), counted.iter().sum::<u32>() as usize);

    record_tools(&bench, &[("pull", "Pulls"), ("push", "Pushes, at length")]).await;
    assert_eq!(stored_counts(&bench).await, [counts[0], 0], "what did not change keeps its count");
    bench.count_tokens().await;
    let counts = wait_until_counted(&bench).await;
    assert!(counts[1] > counted[1], "{counts:?}");

    record_tools(&bench, &[("pull", "Pulls"), ("push", "Pushes, at length")]).await;
    assert_eq!(stored_counts(&bench).await, counts, "a list that is read again is as it was");
    let again = bench.open_again(YAML).await;
    assert!(again.catalog().sources().all(|part| part.segment.has_token_counts()), "a start finds them counted");
}

#[tokio::test]
async fn what_is_essential_follows_the_configuration() {
    let bench = open_yaml(YAML, &[]).await;
    record_tools(&bench, &[("pull", "Pulls"), ("push", "Pushes")]).await;
    let essential = || -> Vec<String> {
        bench.view(&agent()).configured_essentials().map(|tool| tool.name().to_string()).collect()
    };
    assert_eq!(essential(), [""; 0]);
    let hash = bench.catalog().hash();
    bench.reconfigure(&config(&format!("{YAML}\nexpose: {{ essential: [\"git__pu*h\"] }}"))).await.unwrap();
    assert_eq!(essential(), ["git__push"]);
    assert_eq!(bench.expose().essential, ["git__pu*h"]);
    assert_ne!(bench.catalog().hash(), hash, "lists show something else");
    bench.reconfigure(&config("sources: { git: { command: scripted, essential: [pull] } }")).await.unwrap();
    assert_eq!(essential(), ["git__pull"]);
}

async fn record_tools(bench: &TestRegistry, tools: &[(&str, &str)]) {
    let raw = |(name, description): &(&str, &str)| {
        let tool = serde_json::json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        RawValue::from_string(tool.to_string()).unwrap()
    };
    bench.registry.record_tools(&id("git"), tools.iter().map(raw).collect()).await.unwrap();
}

/// The counts in the store, once they are all there: they are stored behind the scenes.
async fn wait_until_counted(bench: &TestRegistry) -> Vec<u32> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let counts = stored_counts(bench).await;
        if counts.iter().all(|count| *count > 0) {
            return counts;
        }
        assert!(std::time::Instant::now() < deadline, "they are never stored: {counts:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// The counts in the store, in the order of the list; 0 where there is none.
async fn stored_counts(bench: &TestRegistry) -> Vec<u32> {
    let fingerprint = bench.inventory().source(&id("git")).unwrap().manifest.unwrap();
    let manifests = bench.store.manifests(&[fingerprint]).await.unwrap();
    manifests[0].tools.iter().map(|tool| tool.tokens).collect()
}
