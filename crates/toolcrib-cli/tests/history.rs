//! `history`, `diff`, `lock` and `describe --at`, through the real binary and a server whose tool list changes.

use serde_json::{Value, json};

use crate::support::test_project::{TestProject, field_values};

fn tool(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "description": description, "inputSchema": schema})
}

/// A project with one source whose tool list is a file.
fn test_project(tools: &[Value]) -> TestProject {
    let project = TestProject::new("");
    let list = project.path("project").join("list.json");
    project.configure(&format!("hub: {{ command: SERVER, args: [--change-file, {list:?}] }}"));
    write_tool_list(&project, tools);
    project
}

fn write_tool_list(project: &TestProject, tools: &[Value]) {
    project.write("new.json", &json!(tools).to_string());
    std::fs::rename(project.path("project/new.json"), project.path("project/list.json")).unwrap();
}

fn first_tools() -> Vec<Value> {
    vec![
        tool("create_issue", "Creates an issue", json!({"properties": {"title": {"type": "string"}}})),
        tool("list_labels", "Lists", json!({"properties": {"page": {"type": "integer"}}})),
        tool("old", "Old", json!({})),
    ]
}

fn second_tools() -> Vec<Value> {
    let owner =
        json!({"properties": {"title": {"type": "string"}, "owner": {"type": "string"}}, "required": ["owner"]});
    vec![
        tool("create_issue", "Creates an issue", owner),
        tool("labels_list", "Lists", json!({"properties": {"page": {"type": "integer"}}})),
        tool("new", "New", json!({"type": "object"})),
    ]
}

#[test]
fn a_change_is_described_with_its_class() {
    let project = test_project(&first_tools());
    project.run(&["tools"]).assert_code(0);
    write_tool_list(&project, &second_tools());
    let refreshed = project.json(0, &["refresh", "--force"]);
    let change = &refreshed["results"][0]["changed"][0];
    assert_eq!((&change["class"], &change["notes"]), (&json!("breaking"), &json!(["gained a required `owner`"])));
    assert_eq!(refreshed["results"][0]["renamed"], json!([{"from": "hub__list_labels", "to": "hub__labels_list"}]));
    let expected = "1 tool added to `hub`: new; 1 changed: `create_issue` gained a required `owner` (breaking); \
                1 removed: old; 1 renamed: `list_labels` was probably renamed to `labels_list`";
    project.run(&["history"]).assert_code(0).assert_stdout(expected);
    let records = project.json(0, &["history", "--source", "hub"]);
    assert_eq!(records["records"].as_array().unwrap().last().unwrap()["text"], json!(expected));
    let output = project.run(&["history", "--tool", "hub__create_issue"]);
    output.assert_code(0).assert_stdout("1 tool changed in `hub`: `create_issue` gained a required `owner` (breaking)");
}

#[test]
fn describe_at_shows_a_tool_in_the_past() {
    let project = test_project(&first_tools());
    project.run(&["tools"]).assert_code(0);
    let before = project.json(0, &["history"])["records"].as_array().unwrap().last().unwrap()["at"].clone();
    write_tool_list(&project, &second_tools());
    project.run(&["refresh", "--force"]).assert_code(0);
    let now = project.json(0, &["describe", "create_issue"]);
    assert_eq!(now["input_schema"]["required"], json!(["owner"]));
    let then = project.json(0, &["describe", "create_issue", "--at", before.as_str().unwrap()]);
    assert_eq!((&then["name"], &then["input_schema"]["required"]), (&json!("hub__create_issue"), &Value::Null));
    project
        .run(&["describe", "hub/old", "--at", before.as_str().unwrap()])
        .assert_code(0)
        .assert_stdout("as it was at");
    project
        .run(&["describe", "old", "--at", "2020-01-01"])
        .assert_code(1)
        .assert_stderr("no tool named `old` was known at 2020");
    project.run(&["describe", "old", "--at", "yesterday"]).assert_code(2);
    project.run(&["describe", "old", "--at", "2999-01-01"]).assert_code(2).assert_stderr("in the future");
    // The layout is that of a current tool.
    let [now, then] = ["labels_list", "list_labels"].map(|name| {
        let at: &[&str] = if name == "list_labels" { &["--at", before.as_str().unwrap()] } else { &[] };
        project.run(&[&["describe", name, "--full"], at].concat()).stdout
    });
    let arguments = |text: &str| text.split("Arguments").nth(1).unwrap().replace("labels_list", "list_labels");
    assert_eq!(arguments(&now), arguments(&then));
}

#[test]
fn diff_ci_fails_when_a_tool_differs_from_the_lockfile() {
    let project = test_project(&first_tools());
    let missing = project.run(&["diff", "--ci"]);
    missing.assert_code(2).assert_stderr("`toolcrib lock` writes one");
    project.run(&["lock"]).assert_code(0).assert_stdout("toolcrib.lock: 3 tools of 1 source");
    let text = std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap();
    project.run(&["lock"]).assert_code(0);
    assert_eq!(std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap(), text, "the same bytes");
    assert_eq!(project.json(0, &["lock"]), serde_json::from_str::<Value>(&text).unwrap());
    let same = project.run(&["diff", "--ci"]);
    same.assert_code(0).assert_stderr("nothing differs from");
    assert_eq!(serde_json::from_str::<Value>(&same.stdout).unwrap()["runs"][0]["results"], json!([]));

    write_tool_list(&project, &second_tools());
    project.run(&["refresh", "--force"]).assert_code(0);
    let differs = project.run(&["diff", "--ci"]);
    differs.assert_code(1).assert_stderr("changed: `hub__create_issue` gained a required `owner` (breaking)");
    let log: Value = serde_json::from_str(&differs.stdout).unwrap();
    let results = &log["runs"][0]["results"];
    assert_eq!(field_values(results, "ruleId"), ["breaking", "renamed", "removed", "added"]);
    let location = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], json!("toolcrib.lock"));
    let line = location["region"]["startLine"].as_u64().unwrap() as usize;
    assert!(text.lines().nth(line - 1).unwrap().contains("\"hub__create_issue\""), "{line}\n{text}");
    project
        .run(&["diff"])
        .assert_code(0)
        .assert_stdout("most likely renamed: `hub__list_labels` to `hub__labels_list`");
    let diff = project.json(1, &["diff", "--ci"]);
    assert_eq!((&diff["differs"], &diff["sources"][0]["source"]), (&json!(true), &json!("hub")));
    let since = project.json(0, &["diff", "--against", "2020-01-01"]);
    assert_eq!(string_values(&since["sources"][0]["added"]), ["hub__create_issue", "hub__labels_list", "hub__new"]);
    project.run(&["diff", "--against", "nonsense"]).assert_code(2);
    project.run(&["diff", "--against", "2999-01-01"]).assert_code(2).assert_stderr("in the future");
    project
        .run(&["diff", "--against", "other.lock"])
        .assert_code(2)
        .assert_stderr("there is no lockfile at `other.lock`");
}

/// As on a build server: a lockfile, and no store.
#[test]
fn diff_works_with_a_lockfile_and_no_store() {
    let project = test_project(&first_tools());
    project.run(&["lock"]).assert_code(0);
    let mut tools = first_tools();
    tools[0]["description"] = json!("Creates one issue");
    tools[1]["inputSchema"]["properties"]["page"]["type"] = json!("string");
    write_tool_list(&project, &tools);
    let data = project.path("elsewhere");
    let diff = project.json(1, &["diff", "--ci", "--data", data.to_str().unwrap()]);
    let changed = &diff["sources"][0]["changed"];
    assert_eq!(field_values(changed, "class"), ["text", "breaking"]);
    assert_eq!(changed[1]["notes"], json!(["`page`: integer became string"]));
    // A source that cannot be read is not treated as one without tools.
    project.configure("hub: { command: SERVER, args: [--exit, '3'] }");
    let data = project.path("nowhere");
    let diff = project.json(1, &["diff", "--ci", "--data", data.to_str().unwrap()]);
    assert_eq!(
        (&diff["sources"][0]["removed"], &diff["sources"][0]["error"]["code"]),
        (&json!([]), &json!("TOOL_UNAVAILABLE"))
    );
    project.run(&["diff", "--data", data.to_str().unwrap()]).assert_code(1).assert_stdout("could not be compared");
}

/// A temporary failure of a source removes nothing from the lockfile.
#[test]
fn a_failing_source_leaves_the_lockfile_unchanged() {
    let project = test_project(&first_tools());
    project.run(&["lock"]).assert_code(0);
    let locked = std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap();
    project.configure("hub: { command: SERVER, args: [--exit, '3'] }");
    project
        .run(&["lock"])
        .assert_code(1)
        .assert_stderr("warning: `hub` failed: the server exited while connecting")
        .assert_stderr("nothing was locked, because the current tool list could not be read from `hub`");
    assert_eq!(std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap(), locked);
    let diff = project.json(1, &["diff", "--against", "lockfile", "--ci"]);
    assert_eq!(diff["sources"][0]["error"]["code"], json!("TOOL_UNAVAILABLE"));
    // A failing source that is not in the lockfile fails the check as well.
    project.write("empty.lock", "{\"version\":1,\"sources\":{}}");
    let diff = project.json(1, &["diff", "--against", "empty.lock", "--ci"]);
    assert_eq!(diff["sources"][0]["error"]["code"], json!("TOOL_UNAVAILABLE"));
}

/// `--cached` makes no requests, and reports which lists may be stale.
#[test]
fn cached_locks_and_compares_without_requests() {
    let project = test_project(&first_tools());
    project
        .run(&["lock", "--cached"])
        .assert_code(0)
        .assert_stdout("0 tools of 0 sources")
        .assert_stderr("no tool list is cached for `hub`");
    project.run(&["lock"]).assert_code(0);
    let locked = std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap();
    // From now on the source fails.
    project.configure("hub: { command: SERVER, args: [--exit, '3'] }");
    project
        .run(&["lock", "--cached"])
        .assert_code(0)
        .assert_stdout("3 tools of 1 source")
        .assert_stderr("the tool list of hub is stale");
    assert_eq!(std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap(), locked);
    let same = project.run(&["diff", "--ci", "--cached"]);
    same.assert_code(0).assert_stderr("the tool list of hub is stale").assert_stderr("nothing differs");
    let log: Value = serde_json::from_str(&same.stdout).unwrap();
    let notes = &log["runs"][0]["invocations"][0]["toolExecutionNotifications"];
    assert_eq!(notes[0]["message"]["text"], json!("the tool list of `hub` may be outdated"));
    assert_eq!(project.json(0, &["diff", "--cached"])["stale"], json!(["hub"]));
}

/// A failing source is not reported as having lost its tools.
#[test]
fn a_failing_source_is_reported_as_unreadable_and_not_as_empty() {
    let project = test_project(&first_tools());
    project.run(&["lock"]).assert_code(0);
    project.configure("hub: { command: SERVER, args: [--exit, '3'] }");
    let down = project.run(&["diff", "--ci"]);
    down.assert_code(1).assert_stderr("could not be refreshed");
    assert!(!down.stderr.contains("removed"), "{}", down.stderr);
    let log: Value = serde_json::from_str(&down.stdout).unwrap();
    let run = &log["runs"][0];
    assert_eq!((&log["version"], &run["invocations"][0]["executionSuccessful"]), (&json!("2.1.0"), &json!(false)));
    assert_eq!(
        (field_values(&run["results"], "ruleId"), field_values(&run["results"], "level")),
        (vec!["unreadable"], vec!["error"])
    );
    let location = &run["results"][0]["locations"][0]["physicalLocation"];
    let text = std::fs::read_to_string(project.path("project/toolcrib.lock")).unwrap();
    let line = location["region"]["startLine"].as_u64().unwrap() as usize;
    assert!(text.lines().nth(line - 1).unwrap().contains("\"hub\""), "{line}\n{text}");
}

#[test]
fn an_invalid_lockfile_is_rejected_with_a_reason() {
    let project = test_project(&first_tools());
    for (text, reason) in [
        ("", "it is empty"),
        ("<<<<<<< HEAD\n{}", "not a lockfile (line 1, column 1)"),
        (
            "{\"version\":7,\"sources\":[1]}",
            "has version 7, and this Toolcrib reads version 1; a newer Toolcrib wrote it",
        ),
        ("{\"lockfileVersion\":3,\"packages\":{}}", "not a lockfile"),
    ] {
        project.write("toolcrib.lock", text);
        let refused = project.run(&["diff", "--ci"]);
        refused.assert_code(2).assert_stderr(reason).assert_stderr("toolcrib.lock");
        assert_eq!(refused.stdout, "", "{text}");
    }
    let other = json!({"inventory_hash": "0".repeat(64), "tools": {}});
    project.write("toolcrib.lock", &json!({"version": 1, "sources": {"mail": other}}).to_string());
    project
        .run(&["diff"])
        .assert_code(0)
        .assert_stderr("another project's lockfile")
        .assert_stdout("added: `hub__old`");
}

/// A built-in has a bare name; a server's tool of the same name is prefixed with its source.
#[test]
fn a_builtin_and_a_tool_of_the_same_name_have_separate_histories() {
    let project = test_project(&[tool("current_time", "Another clock", json!({}))]);
    let list = project.path("project").join("list.json");
    project
        .configure(&format!("hub: {{ command: SERVER, args: [--change-file, {list:?}] }}\ncore: {{ builtin: all }}"));
    project.run(&["tools"]).assert_code(0);
    let sources = |name: &str| {
        let records = project.json(0, &["history", "--tool", name]);
        field_values(&records["records"], "source").iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sources("current_time"), ["core"]);
    assert_eq!(sources("hub__current_time"), ["hub"]);
    assert_eq!(sources("hub/current_time"), ["hub"]);
    assert_eq!(project.json(0, &["describe", "current_time", "--at", "0s"])["source"], json!("core"));
    project.run(&["lock"]).assert_code(0).assert_stdout("2 sources");
    project.run(&["diff", "--ci"]).assert_code(0);
    write_tool_list(&project, &[tool("current_time", "Yet another clock", json!({}))]);
    project.run(&["refresh", "hub", "--force"]).assert_code(0);
    let diff = project.json(0, &["diff"]);
    assert_eq!(
        (field_values(&diff["sources"], "source"), &diff["sources"][0]["changed"][0]["name"]),
        (vec!["hub"], &json!("hub__current_time"))
    );
}

/// A source that was removed and added again keeps its earlier history.
#[test]
fn a_removed_source_keeps_its_history() {
    let project = test_project(&first_tools());
    project.run(&["tools"]).assert_code(0);
    let before = project.json(0, &["history"])["records"].as_array().unwrap().last().unwrap()["at"].clone();
    let before = before.as_str().unwrap();
    project.configure("");
    project.run(&["tools"]).assert_code(0);
    let then = project.json(0, &["describe", "hub__old", "--at", before]);
    assert_eq!(then["original_name"], json!("old"));
    let gone = project.json(0, &["diff", "--against", before]);
    assert_eq!(string_values(&gone["sources"][0]["removed"]), ["hub__create_issue", "hub__list_labels", "hub__old"]);
    let list = project.path("project").join("list.json");
    project.configure(&format!("hub: {{ command: SERVER, args: [--change-file, {list:?}] }}"));
    write_tool_list(&project, &second_tools());
    project.run(&["tools"]).assert_code(0);
    let again = project.json(0, &["diff", "--against", before]);
    assert_eq!(again["sources"][0]["changed"][0]["notes"], json!(["gained a required `owner`"]));
    let history = project.json(0, &["history", "--tool", "hub__create_issue"]);
    assert_eq!(history["records"].as_array().unwrap().len(), 2, "recorded twice: {history}");
    let several = project.json(1, &["describe", "old", "nothing", "--at", before]);
    assert_eq!((several["tools"].as_array().unwrap().len(), &several["errors"][0]["name"]), (1, &json!("nothing")));
    project.run(&["describe", "old", "--at", before, "--fresh"]).assert_code(2);
}

fn string_values(array: &Value) -> Vec<&str> {
    array.as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn checks_and_records_are_printed_as_cloud_events() {
    let project = TestProject::new("");
    let working =
        format!("hub: {{ command: SERVER, args: [--change-file, {:?}] }}", project.path("project").join("list.json"));
    project.configure(&working);
    write_tool_list(&project, &first_tools());
    project.run(&["refresh"]).assert_code(0);
    project.configure("hub: { command: no-such-program-here }");
    project.run(&["refresh", "--force"]).assert_code(1).assert_stdout("hub: failed: ");
    project.configure(&working);
    let refreshed = project.json(0, &["refresh", "--force"]);
    assert_eq!(
        (&refreshed["totals"]["sources"], &refreshed["totals"]["succeeded"]),
        (&json!(1), &json!(1)),
        "{refreshed}"
    );
    project.run(&["history", "--checks"]).assert_code(0).assert_stdout("recovered: 3 tools").assert_stdout("failed: ");
    let checks = project.json(0, &["history", "--checks"]);
    assert_eq!(field_values(&checks["checks"], "transition"), ["recovered", "failed", ""]);
    assert_eq!(checks["checks"][1]["error"]["retryable"], false, "a missing program: {checks}");

    let cloud = |arguments: &[&str]| -> Value {
        let output = project.run(&[&["history", "--format", "cloudevents"], arguments].concat());
        serde_json::from_str(&output.assert_code(0).stdout).unwrap()
    };
    let events = cloud(&["--checks"]);
    assert_eq!(
        field_values(&events, "type"),
        ["toolcrib.source.recovered", "toolcrib.source.failed", "toolcrib.source.checked"]
    );
    let events = cloud(&[]);
    let records = project.json(0, &["history"])["records"].clone();
    assert_eq!(
        events.as_array().unwrap().iter().map(|event| &event["data"]).collect::<Vec<_>>(),
        records.as_array().unwrap().iter().collect::<Vec<_>>()
    );
    let recorded =
        events.as_array().unwrap().iter().find(|event| event["type"] == "toolcrib.InventoryRecorded").unwrap();
    assert_eq!(
        (&recorded["specversion"], &recorded["subject"], &recorded["data"]["actor"]),
        (&json!("1.0"), &json!("hub"), &json!("cli"))
    );
    project.run(&["history", "--format", "yaml"]).assert_code(2);
}
