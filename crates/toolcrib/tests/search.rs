//! Search over the recorded lists of real servers.

#![expect(clippy::unwrap_used, reason = "these are tests, their helpers too")]

use serde_json::json;
use toolcrib::core::search::Query;
use toolcrib::core::search::eval::{File, LabelledSet};
use toolcrib_testkit::rig;

/// Every recorded tool in one catalogue.
fn recorded() -> Option<LabelledSet> {
    let mut lines = Vec::new();
    for recording in rig::recordings()? {
        for tool in &recording.tools {
            let line = json!({"id": format!("{} {}", recording.server, tool["name"]), "server": recording.server,
                "name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]});
            lines.push(line.to_string());
        }
    }
    let queries = r#"{"query": "x", "relevant": ["x"]}"#;
    Some(
        LabelledSet::read(File { name: "recorded", text: &lines.join("\n") }, File { name: "none", text: queries })
            .unwrap(),
    )
}

#[test]
fn every_recorded_tool_comes_first_when_asked_for_by_name() {
    let Some(set) = recorded() else {
        return rig::skip("every_recorded_tool_comes_first_when_asked_for_by_name", "there are no recorded lists");
    };
    let mut tools = 0;
    for tool in set.view.offered() {
        let (name, own) = (tool.name().as_str(), tool.original());
        let slashed = format!("{}/{own}", tool.source());
        for asked in [name, &slashed, &format!("call {name} for me")] {
            let found = set.view.search(&Query::new(asked).limited(1));
            assert_eq!(found.hits[0].name.as_str(), name, "{asked}");
        }
        // Others may be called the same; all of them come before the rest.
        let found = set.view.search(&Query::new(own).limited(1));
        let first = set.view.catalog.find(found.hits[0].name.as_str()).unwrap();
        assert_eq!(first.original(), own);
        tools += 1;
    }
    assert!(tools > 1_500, "{tools}");
}
