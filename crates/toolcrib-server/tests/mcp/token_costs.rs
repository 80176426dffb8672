//! Tests how many tokens the MCP service costs an agent, with the recorded tool lists of 47 real servers.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib::Refresh;
use toolcrib::catalog::token_count;
use toolcrib::config::ExposeMode;
use toolcrib::testkit::ScriptedSource;
use toolcrib_testkit::programs;

use super::support::{McpFixture, start};

async fn start_with_recordings() -> Option<McpFixture> {
    let mut sources = Vec::new();
    for recording in programs::recorded_tool_lists()? {
        // The part after the scope identifies the server and fits into a source name.
        let stem = recording.file.file_stem()?.to_string_lossy().replace("-mcp-server", "").replace("mcp-server-", "");
        let name = stem.rsplit("__").next()?.chars().take(32).collect::<String>();
        let name = toolcrib::SourceId::from_name(&name).unwrap();
        sources.push((name.to_string(), ScriptedSource::new(recording.tools)));
    }
    let sources: Vec<(&str, &Arc<ScriptedSource>)> =
        sources.iter().map(|(name, source)| (name.as_str(), source)).collect();
    let fixture = start(ExposeMode::Search, &sources).await;
    let outcomes = fixture.registry.refresh(Refresh::default()).await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.error.is_some()).collect();
    assert!(!outcomes.is_empty() && failed.is_empty(), "{failed:?}");
    Some(fixture)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn meta_tools_summary_and_searches_stay_within_their_token_budgets() {
    let Some(fixture) = start_with_recordings().await else {
        return programs::skip("meta_tools_summary_and_searches_stay_within_their_token_budgets", "the recorded lists");
    };
    let list = fixture.request("tools/list", json!({})).await.unwrap();
    let meta_tools = token_count::count(&list["tools"].to_string());
    assert!(meta_tools <= 450, "the meta tools are {meta_tools} tokens");

    let (client, _server) = super::support::connect_client(&fixture.service, |_| {}).await;
    let summary = token_count::count(client.server().instructions.as_deref().unwrap());
    assert!(summary <= 500, "the summary is {summary} tokens");

    let full = fixture.registry.view(&toolcrib::Principal::local("test")).full_token_count();
    assert!((meta_tools + summary) * 100 <= full, "{meta_tools} and {summary} of {full}");

    let queries =
        std::fs::read_to_string(programs::data_dir().unwrap().join("retrieval/livemcp/queries.jsonl")).unwrap();
    let mut costs = Vec::new();
    for line in queries.lines() {
        let query: Value = serde_json::from_str(line).unwrap();
        costs.push(token_count::count(&fixture.call_text("search_tools", json!({ "query": query["query"] })).await));
    }
    costs.sort_unstable();
    let median = costs[costs.len() / 2];
    println!(
        "meta tools {meta_tools}, summary {summary}, full {full}, search result median {median}, max {:?}",
        costs.last()
    );
    assert!(median <= 400, "half of the search results are over {median} tokens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_description_costs_little_more_than_the_schema() {
    let Some(fixture) = start_with_recordings().await else {
        return programs::skip("a_description_costs_little_more_than_the_schema", "the recorded lists");
    };
    let view = fixture.registry.view(&toolcrib::Principal::local("test"));
    for tool in view.offered_tools() {
        let schema = token_count::count(tool.tool().unwrap().listing.input_schema.get());
        let description = fixture.call_text("describe_tools", json!({ "names": [tool.name().as_str()] })).await;
        let cost = token_count::count(&description);
        assert!(cost <= schema + 60, "{} costs {cost}, its schema {schema}:\n{description}", tool.name());
    }
}
