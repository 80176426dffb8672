//! Search over the recorded lists of real servers.

#![expect(clippy::unwrap_used, reason = "these are tests, their helpers too")]

use serde_json::json;
use toolcrib::core::search::Query;
use toolcrib::core::search::eval::{LabelledSet, NamedText};
use toolcrib_testkit::programs;

/// Every recorded tool in one catalogue.
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
fn every_recorded_tool_comes_first_when_asked_for_by_name() {
    let Some(set) = recorded_tools() else {
        return programs::skip("every_recorded_tool_comes_first_when_asked_for_by_name", "there are no recorded lists");
    };
    let mut tools = 0;
    for tool in set.view.offered_tools() {
        let (name, own) = (tool.name().as_str(), tool.original_name());
        let slashed = format!("{}/{own}", tool.source());
        for asked in [name, &slashed, &format!("call {name} for me")] {
            let found = set.view.search(&Query::new(asked).with_limit(1));
            assert_eq!(found.hits[0].name.as_str(), name, "{asked}");
        }
        // Others may be called the same; all of them come before the rest.
        let found = set.view.search(&Query::new(own).with_limit(1));
        let first = set.view.catalog.find(found.hits[0].name.as_str()).unwrap();
        assert_eq!(first.original_name(), own);
        tools += 1;
    }
    assert!(tools > 1_500, "{tools}");
}
