//! `context`, and the provider formats of `tools` and `describe`, through the real binary.

use std::fs;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::test_project::{TestProject, field_values};

const TOOLS: &str = r##"[
    {"name": "search_issues", "description": "Finds issues.", "inputSchema": {"type": "object", "required": ["q"], "properties": {
        "q": {"type": "string", "minLength": 1}, "since": {"type": "string", "format": "uri"}}}},
    {"name": "put", "description": "Puts.", "inputSchema": {"type": "object", "required": ["fields"],
        "properties": {"fields": {"type": "object", "additionalProperties": true}}}},
    {"name": "either", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {}]}}
]"##;

fn test_project() -> TestProject {
    let project = TestProject::new("hub: { command: SERVER, args: [--tools-file, tools.json], cwd: . }");
    project.write("tools.json", TOOLS);
    project
}

#[test]
fn the_summary_names_the_tools_and_the_saved_tokens() {
    let project = test_project();
    let output = project.run(&["context"]);
    output
        .assert_code(0)
        .assert_stdout("3 tools from 1 source")
        .assert_stdout("search_tools(query)")
        .assert_stdout("Essential tools, by source:\nhub: search_issues\nOther tools, by source:\nhub: put, either\n");
    output.assert_stderr("tokens instead of");
    let summary = project.json(0, &["context", "--cached", "--budget", "60"]);
    assert!(summary["tokens"].as_u64().unwrap() <= 60, "{summary}");
    assert_eq!(summary["tools"], 3);
    assert!(summary["tokens_full"].as_u64().unwrap() > 100, "{summary}");
    assert_eq!(project.json(0, &["context", "--cached", "--budget", "60"]), summary);
    assert_eq!(project.run(&["-q", "context", "--cached"]).stderr, "");
}

#[test]
fn an_empty_catalog_has_a_summary_without_any_requests() {
    let project = TestProject::new("gone: { command: /nonexistent }");
    project.run(&["context", "--cached"]).assert_code(0).assert_stdout("Tools will be discovered");
    let summary = project.json(0, &["context", "--cached"]);
    assert_eq!((&summary["tools"], &summary["tokens_full"]), (&json!(0), &json!(0)));
}

#[test]
fn an_invalid_budget_is_rejected() {
    let project = test_project();
    for (budget, complaint) in [("0", "at least 1 token"), ("many", "a number of tokens"), ("-5", "a number of tokens")]
    {
        project.run(&["context", &format!("--budget={budget}")]).assert_code(2).assert_stderr(complaint);
    }
}

#[test]
fn essential_tools_are_loaded_and_others_deferred() {
    let project = test_project();
    let deferred = |project: &TestProject| -> Vec<Value> {
        let output = project.run(&["tools", "--format", "anthropic", "--defer"]);
        let tools: Value = serde_json::from_str(&output.assert_code(0).stdout).unwrap();
        tools
            .as_array()
            .unwrap()
            .iter()
            .filter(|tool| tool["defer_loading"] == true)
            .map(|tool| tool["name"].clone())
            .collect()
    };
    assert_eq!(deferred(&project), ["hub__either", "hub__put"]);
    let config = fs::read_to_string(project.path("project").join("toolcrib.yaml")).unwrap();
    project.write("toolcrib.yaml", &format!("{config}expose: {{ essential: [\"hub__p*\"] }}\n"));
    assert_eq!(deferred(&project), ["hub__either", "hub__search_issues"]);
    project.run(&["context"]).assert_code(0).assert_stdout("hub: put, search_issues\n");
    project.run(&["tools", "--format", "gemini", "--defer"]).assert_code(2).assert_stderr("in the format `anthropic`");
    project.run(&["tools", "--defer"]).assert_code(2).assert_stderr("`--defer` needs `--format anthropic`");
}

#[test]
fn lines_are_a_tool_each_without_those_that_agents_may_not_call() {
    let project = test_project();
    let lines = |project: &TestProject| project.run(&["tools", "--format", "lines"]).assert_code(0).stdout.clone();
    assert_eq!(lines(&project), "hub__either — hub tool: either\nhub__put — Puts\nhub__search_issues — Finds issues\n");
    let config = fs::read_to_string(project.path("project").join("toolcrib.yaml")).unwrap();
    let rules = "cwd: ., tools: { put: deny, either: hide } }";
    project.write("toolcrib.yaml", &config.replace("cwd: . }", rules));
    assert_eq!(lines(&project), "hub__search_issues — Finds issues\n");
    let listed = project.json(0, &["tools"]);
    assert_eq!(field_values(&listed["tools"], "policy"), ["hide", "deny", "allow"], "people see all of them");
    let table = project.run(&["tools"]).assert_code(0).stdout.clone();
    assert!(table.contains("hide") && table.contains("deny"), "{table}");
    assert_eq!(project.json(0, &["describe", "either"])["policy"], "hide");
    assert_eq!(project.json(0, &["sources"])["sources"][0]["tool_count"], 3);
    project.run(&["call", "either"]).assert_code(1).assert_stderr("no tool named `either`");
}

#[test]
fn a_format_reports_losses_and_unavailable_tools() {
    let project = test_project();
    let output = project.run(&["tools", "--format", "openai-strict"]);
    let tools: Value = serde_json::from_str(&output.assert_code(0).stdout).unwrap();
    let names: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["hub__either", "hub__search_issues"]);
    output.assert_stderr(
        "hub__put is not available as `openai-strict`: /properties/fields: an object with arbitrary fields",
    );
    assert_eq!(project.run(&["tools", "--format", "openai-strict"]).stdout, output.stdout);

    let explained = project.run(&["describe", "search_issues", "--format", "openai-strict", "--explain"]);
    let expected = "\
hub__search_issues
  /properties/q/minLength: 1 is not supported, dropped
  /properties/since/format: \"uri\" is not supported, dropped
";
    assert_eq!(explained.assert_code(0).stdout, expected);
    assert_eq!(
        project.json(0, &["describe", "put", "--format", "openai-strict", "--explain"]),
        json!({"tool": "hub__put", "losses": [], "set_aside": "/properties/fields: an object with arbitrary fields is not supported"})
    );
    project
        .run(&["describe", "put", "--format", "mcp", "--explain"])
        .assert_code(0)
        .assert_stdout("nothing is lost as `mcp`");
    let explained_two = project.json(0, &["describe", "either", "put", "--format", "anthropic", "--explain"]);
    assert_eq!(field_values(&explained_two["tools"], "tool"), ["hub__either", "hub__put"]);
    assert_eq!(explained_two["tools"][0]["losses"][0]["path"], "/anyOf");
    let single = project.run(&["describe", "put", "--format", "openai-strict"]);
    assert_eq!(single.assert_code(0).stdout, "[]\n");
    single.assert_stderr("hub__put is not available");
    project.run(&["describe", "put", "--explain"]).assert_code(2).assert_stderr("--format");
}

#[test]
fn the_recorded_lists_of_real_servers_fit_into_a_summary() {
    const NAME: &str = "context::the_recorded_lists_of_real_servers_fit_into_a_summary";
    let Some(data) = programs::data_dir() else { return programs::skip(NAME, "there is no recorded material") };
    let recorded = ["mcp-atlassian", "mcp-server-git", "n8n-mcp", "playwright__mcp", "redis-mcp-server"];
    let sources: Vec<String> = recorded
        .iter()
        .map(|name| format!("{name}: {{ command: SERVER, args: [--tools-file, {name}.json], cwd: . }}"))
        .collect();
    let project = TestProject::new(&sources.join("\n"));
    for name in recorded {
        let list: Value =
            serde_json::from_slice(&fs::read(data.join(format!("toollists/{name}.json"))).unwrap()).unwrap();
        project.write(&format!("{name}.json"), &list["tools"].to_string());
    }
    let summary = project.json(0, &["context"]);
    let tokens = summary["tokens"].as_u64().unwrap();
    let full = summary["tokens_full"].as_u64().unwrap();
    assert!(tokens <= 500 && tokens * 100 < full, "{summary}");
    let text = summary["text"].as_str().unwrap();
    assert!(text.contains("mcp_atlassian: jira_search, confluence_search"), "{text}");
    assert!(text.contains("mcp_server_git: git_"), "{text}");
    assert!(text.contains(" more)"), "{text}");
}
