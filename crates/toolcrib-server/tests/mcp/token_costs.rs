//! What the surface costs an agent, in tokens, with the recorded lists of 47 real servers behind it.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib::Refresh;
use toolcrib::core::config::ExposeMode;
use toolcrib::core::tokens;
use toolcrib::testkit::ScriptedSource;
use toolcrib_testkit::programs;

use crate::support::{McpFixture, start};

async fn start_with_recordings() -> Option<McpFixture> {
    let mut sources = Vec::new();
    for recording in programs::recorded_tool_lists()? {
        // What comes after the scope and tells servers apart fits.
        let stem = recording.file.file_stem()?.to_string_lossy().replace("-mcp-server", "").replace("mcp-server-", "");
        let name = stem.rsplit("__").next()?.chars().take(32).collect::<String>();
        let name = toolcrib::SourceId::from_name(&name).unwrap();
        sources.push((name.to_string(), ScriptedSource::new(recording.tools)));
    }
    let sources: Vec<(&str, &Arc<ScriptedSource>)> =
        sources.iter().map(|(name, source)| (name.as_str(), source)).collect();
    let fixture = start(ExposeMode::Search, &sources).await;
    fixture.registry.refresh(Refresh::default()).await;
    Some(fixture)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_carries_little_and_pays_little() {
    let Some(fixture) = start_with_recordings().await else {
        return programs::skip("an_agent_carries_little_and_pays_little", "the recorded lists");
    };
    let menu = fixture.request("tools/list", json!({})).await.unwrap();
    let menu = tokens::count(&menu["tools"].to_string());
    assert!(menu <= 450, "the menu is {menu} tokens");

    let (client, _server) = crate::support::connect_client(&fixture.service, |_| {}).await;
    let summary = tokens::count(client.server().instructions.as_deref().unwrap());
    assert!(summary <= 500, "the summary is {summary} tokens");

    let full = fixture.registry.view(&toolcrib::Caller { name: "test".into() }).full_token_count();
    assert!((menu + summary) * 100 <= full, "{menu} and {summary} of {full}");

    let queries =
        std::fs::read_to_string(programs::data_dir().unwrap().join("retrieval/livemcp/queries.jsonl")).unwrap();
    let mut costs = Vec::new();
    for line in queries.lines() {
        let query: Value = serde_json::from_str(line).unwrap();
        costs.push(tokens::count(&fixture.call_text("search_tools", json!({ "query": query["query"] })).await));
    }
    costs.sort_unstable();
    let median = costs[costs.len() / 2];
    println!("menu {menu}, summary {summary}, full {full}, search answer median {median}, max {:?}", costs.last());
    assert!(median <= 400, "half of the answers are over {median} tokens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_description_costs_at_most_the_schema_and_a_little() {
    let Some(fixture) = start_with_recordings().await else {
        return programs::skip("a_description_costs_at_most_the_schema_and_a_little", "the recorded lists");
    };
    let view = fixture.registry.view(&toolcrib::Caller { name: "test".into() });
    for tool in view.offered_tools() {
        let schema = tokens::count(tool.tool().unwrap().listing.input_schema.get());
        let said = fixture.call_text("describe_tools", json!({ "names": [tool.name().as_str()] })).await;
        let cost = tokens::count(&said);
        assert!(cost <= schema + 60, "{} costs {cost}, its schema {schema}:\n{said}", tool.name());
    }
}
