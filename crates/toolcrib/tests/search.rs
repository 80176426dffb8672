//! Search over recorded tool lists of real servers.

use serde_json::json;
use toolcrib::catalog::search::Query;
use toolcrib::catalog::search::eval::{LabelledSet, NamedText};
use toolcrib_testkit::programs;

/// Returns every recorded tool in one catalogue.
fn recorded_tools() -> Option<LabelledSet> {
    let mut lines = Vec::new();
    for recording in programs::recorded_tool_lists()? {
        for tool in &recording.tools {
            let line = json!({"id": format!("{} {}", recording.server, tool["name"]), "server": recording.server,
                "name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]});
            lines.push(line.to_string());
        }
    }
    let queries = r#"{"query": "x", "relevant": ["x"]}"#;
    Some(
        LabelledSet::parse(
            NamedText { name: "recorded", text: &lines.join("\n") },
            NamedText { name: "none", text: queries },
        )
        .unwrap(),
    )
}

#[test]
fn every_recorded_tool_is_the_first_hit_for_its_name() {
    let Some(set) = recorded_tools() else {
        return programs::skip("every_recorded_tool_is_the_first_hit_for_its_name", "there are no recorded tool lists");
    };
    let mut tools = 0;
    for tool in set.view.offered_tools() {
        let name = tool.name().as_str();
        let original = tool.original_name();
        let slashed = format!("{}/{original}", tool.source());
        for query in [name, &slashed, &format!("call {name} for me")] {
            let response = set.view.search(&Query::new(query).with_limit(1));
            assert_eq!(response.hits[0].name.as_str(), name, "{query}");
        }
        // Several tools may have this original name; all of them come before the rest.
        let response = set.view.search(&Query::new(original).with_limit(1));
        let first = set.view.find(response.hits[0].name.as_str()).unwrap();
        assert_eq!(first.original_name(), original);
        tools += 1;
    }
    assert!(tools > 1_500, "{tools}");
}
