//! The summary for a system prompt and the formats of providers, from outside.

mod support;

use std::fs;

use serde_json::{Value, json};
use support::bench::{Bench, each};
use toolcrib_testkit::programs;

const TOOLS: &str = r##"[
    {"name": "search_issues", "description": "Finds issues.", "inputSchema": {"type": "object", "required": ["q"], "properties": {
        "q": {"type": "string", "minLength": 1}, "since": {"type": "string", "format": "uri"}}}},
    {"name": "put", "description": "Puts.", "inputSchema": {"type": "object", "required": ["fields"],
        "properties": {"fields": {"type": "object", "additionalProperties": true}}}},
    {"name": "either", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {}]}}
]"##;

fn test_project() -> Bench {
    let bench = Bench::new("hub: { command: SERVER, args: [--tools-file, tools.json], cwd: . }");
    bench.write("tools.json", TOOLS);
    bench
}

#[test]
fn a_summary_says_what_there_is_and_what_it_saves() {
    let bench = test_project();
    let ran = bench.run(&["context"]);
    ran.ended(0).says("3 tools from 1 source").says("search_tools(query)").says("hub: search_issues, put, either");
    ran.complains("tokens instead of");
    let summary = bench.json(0, &["context", "--cached", "--budget", "60"]);
    assert!(summary["tokens"].as_u64().unwrap() <= 60, "{summary}");
    assert_eq!(summary["tools"], 3);
    assert!(summary["tokens_full"].as_u64().unwrap() > 100, "{summary}");
    assert_eq!(bench.json(0, &["context", "--cached", "--budget", "60"]), summary);
    assert_eq!(bench.run(&["-q", "context", "--cached"]).stderr, "");
}

#[test]
fn nothing_yet_is_said_kindly_and_nobody_is_contacted() {
    let bench = Bench::new("gone: { command: /nonexistent }");
    bench.run(&["context", "--cached"]).ended(0).says("Tools will be discovered");
    let summary = bench.json(0, &["context", "--cached"]);
    assert_eq!((&summary["tools"], &summary["tokens_full"]), (&json!(0), &json!(0)));
}

#[test]
fn a_budget_is_a_number_of_tokens() {
    let bench = test_project();
    for (budget, complaint) in [("0", "at least 1 token"), ("many", "a number of tokens"), ("-5", "a number of tokens")]
    {
        bench.run(&["context", &format!("--budget={budget}")]).ended(2).complains(complaint);
    }
}

#[test]
fn essential_tools_are_loaded_and_others_deferred() {
    let bench = test_project();
    let deferred = |bench: &Bench| -> Vec<Value> {
        let ran = bench.run(&["tools", "--format", "anthropic", "--defer"]);
        let tools: Value = serde_json::from_str(&ran.ended(0).stdout).unwrap();
        tools
            .as_array()
            .unwrap()
            .iter()
            .filter(|tool| tool["defer_loading"] == true)
            .map(|tool| tool["name"].clone())
            .collect()
    };
    assert_eq!(deferred(&bench), ["hub__either", "hub__put"]);
    let config = fs::read_to_string(bench.path("project").join("toolcrib.yaml")).unwrap();
    bench.write("toolcrib.yaml", &format!("{config}expose: {{ essential: [\"hub__p*\"] }}\n"));
    assert_eq!(deferred(&bench), ["hub__either", "hub__search_issues"]);
    bench.run(&["context"]).ended(0).says("hub: put, either, search_issues");
    bench.run(&["tools", "--format", "gemini", "--defer"]).ended(2).complains("in the format `anthropic`");
    bench.run(&["tools", "--defer"]).ended(2).complains("`--defer` needs `--format anthropic`");
}

#[test]
fn a_format_tells_what_it_loses_and_what_it_cannot_have() {
    let bench = test_project();
    let ran = bench.run(&["tools", "--format", "openai-strict"]);
    let tools: Value = serde_json::from_str(&ran.ended(0).stdout).unwrap();
    let names: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["hub__either", "hub__search_issues"]);
    ran.complains(
        "hub__put is not available as `openai-strict`: /properties/fields: an object with fields of any name",
    );
    assert_eq!(bench.run(&["tools", "--format", "openai-strict"]).stdout, ran.stdout);

    let explained = bench.run(&["describe", "search_issues", "--format", "openai-strict", "--explain"]);
    let expected = "\
hub__search_issues
  /properties/q/minLength: 1 is not supported, dropped
  /properties/since/format: \"uri\" is not supported, dropped
";
    assert_eq!(explained.ended(0).stdout, expected);
    assert_eq!(
        bench.json(0, &["describe", "put", "--format", "openai-strict", "--explain"]),
        json!({"tool": "hub__put", "losses": [], "set_aside": "/properties/fields: an object with fields of any name is not supported"})
    );
    bench.run(&["describe", "put", "--format", "mcp", "--explain"]).ended(0).says("nothing is lost as `mcp`");
    let either = bench.json(0, &["describe", "either", "put", "--format", "anthropic", "--explain"]);
    assert_eq!(each(&either["tools"], "tool"), ["hub__either", "hub__put"]);
    assert_eq!(either["tools"][0]["losses"][0]["path"], "/anyOf");
    let alone = bench.run(&["describe", "put", "--format", "openai-strict"]);
    assert_eq!(alone.ended(0).stdout, "[]\n");
    alone.complains("hub__put is not available");
    bench.run(&["describe", "put", "--explain"]).ended(2).complains("--format");
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
    let bench = Bench::new(&sources.join("\n"));
    for name in recorded {
        let list: Value =
            serde_json::from_slice(&fs::read(data.join(format!("toollists/{name}.json"))).unwrap()).unwrap();
        bench.write(&format!("{name}.json"), &list["tools"].to_string());
    }
    let summary = bench.json(0, &["context"]);
    let tokens = summary["tokens"].as_u64().unwrap();
    let full = summary["tokens_full"].as_u64().unwrap();
    assert!(tokens <= 500 && tokens * 100 < full, "{summary}");
    let text = summary["text"].as_str().unwrap();
    assert!(text.contains("mcp_atlassian: jira_search, confluence_search"), "{text}");
    assert!(text.contains("mcp_server_git: git_"), "{text}");
    assert!(text.contains(" more)"), "{text}");
}
