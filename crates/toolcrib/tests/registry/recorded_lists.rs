//! Recorded tool lists of real servers are stored and rendered without loss.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolcrib::catalog::render::Format;
use toolcrib::core::text::sanitize;
use toolcrib_testkit::programs;

use crate::support::{SqliteRegistry, agent, list_tools, scripted_source};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_list_is_reproduced() {
    let Some(recordings) = programs::recorded_tool_lists() else {
        return programs::skip("recorded_lists::every_recorded_list_is_reproduced", "there are no recorded lists");
    };
    let mut recorded: BTreeMap<String, (String, Vec<Value>)> = BTreeMap::new();
    let mut sources = json!({});
    for (number, recording) in recordings.into_iter().enumerate() {
        let source = format!("s{number}");
        sources[&source] = scripted_source(&["--tools-file", recording.file.to_str().unwrap()]);
        recorded.insert(source, (recording.server, recording.tools));
    }
    assert!(recorded.len() > 40, "{} lists", recorded.len());
    let fixture = SqliteRegistry::open(sources.clone()).await;
    let offered = list_tools(&fixture).await;
    check_lists(&fixture, &recorded);
    // The same after a restart, from the store.
    let fixture = fixture.reopen(sources).await;
    assert_eq!(list_tools(&fixture).await, offered);
    check_lists(&fixture, &recorded);
}

fn check_lists(fixture: &SqliteRegistry, recorded: &BTreeMap<String, (String, Vec<Value>)>) {
    let rendered = fixture.view(&agent()).render(Format::Mcp).unwrap();
    let mut rendered: BTreeMap<String, Value> = serde_json::from_str::<Vec<Value>>(&rendered)
        .unwrap()
        .into_iter()
        .map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool))
        .collect();
    for (source, (file, list)) in recorded {
        for tool in list {
            let original = tool["name"].as_str().unwrap();
            let catalog = fixture.unrestricted_catalog();
            let tool_ref = catalog.find(&format!("{source}:{original}"));
            let tool_ref = tool_ref.unwrap_or_else(|error| panic!("{file}: `{original}`: {error}"));
            let name = tool_ref.name().to_string();
            let id = tool_ref.id();
            assert_eq!((id.source.as_str(), id.name.as_str()), (source.as_str(), original), "{file}");
            assert!(name.starts_with(&format!("{source}__")) && name.len() <= 64, "{file}: {name}");
            let mut got = rendered.remove(&name).unwrap_or_else(|| panic!("{file}: `{name}` is not rendered"));
            assert_eq!(got, expected_tool(tool, source, &name), "{file}: `{original}`");
            // The order of a schema's keys is preserved.
            assert_eq!(got["inputSchema"].take().to_string(), tool["inputSchema"].to_string(), "{file}: `{original}`");
        }
        assert_eq!(fixture.sources().get(&crate::support::id(source)).unwrap().skipped, [], "{file}");
    }
    assert!(rendered.is_empty(), "{:?} were never recorded", rendered.keys());
}

/// Returns the rendered form of a recorded tool: the name that agents see, and sanitized text.
fn expected_tool(tool: &Value, source: &str, name: &str) -> Value {
    let mut tool = tool.clone();
    let original = tool["name"].as_str().unwrap().to_owned();
    tool["name"] = json!(name);
    for key in ["title", "description"] {
        if let Some(text) = tool.get(key).and_then(Value::as_str) {
            tool[key] = json!(sanitize(text));
        }
    }
    if tool.get("description").is_none_or(|text| text.as_str().is_none_or(|text| text.trim().is_empty())) {
        tool["description"] = json!(format!("{source} tool: {original}"));
    }
    // Toolcrib waits for tasks itself.
    if let Some(execution) = tool.get_mut("execution").and_then(Value::as_object_mut) {
        execution.remove("taskSupport");
        if execution.is_empty() {
            tool.as_object_mut().unwrap().remove("execution");
        }
    }
    if tool.get("inputSchema").is_none_or(Value::is_null) {
        tool["inputSchema"] = json!({"type": "object"});
    }
    for key in ["title", "outputSchema", "annotations"] {
        if tool.get(key).is_some_and(Value::is_null) {
            tool.as_object_mut().unwrap().shift_remove(key);
        }
    }
    tool
}
