//! Commands that read lists, history and statistics, and the demo: the real binary with scripted servers.

use std::fs;

use serde_json::{Value, json};

use crate::support::test_project::{TestProject, field_values};

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

#[test]
fn malformed_arguments_of_a_call_are_wrong_usage() {
    let project = TestProject::new("one: { command: SERVER }");
    for (arguments, message) in [
        (&["text:=."][..], "error: `text:=.` is not JSON: "),
        (&["text"], "error: `text` is no argument; write KEY=VALUE or KEY:=JSON\n"),
        (&["{\"text\": 5}"], "is no argument; write KEY=VALUE or KEY:=JSON, or pass the object with `--args`\n"),
        (&["--args", "5"], "error: `--args` must be a JSON object: "),
    ] {
        project.run(&[&["call", "one__echo"], arguments].concat()).assert_code(2).assert_stderr(message);
    }
}

/// Commands print a large result completely, without paging notes.
#[test]
fn a_large_result_is_printed_completely() {
    let project = TestProject::new("one: { command: SERVER, args: [--with, large], result_limit: 1KiB }");
    let printed = project.run(&["call", "one__large", "bytes=300000"]);
    assert_eq!((printed.code, printed.stdout.trim_end().len()), (0, 300_000), "{}", printed.stderr);
    let result = project.json(0, &["call", "one__large", "bytes=5000"]);
    let keys: Vec<&String> = result.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["content", "structured", "is_error", "elapsed_ms", "source"]);
    assert_eq!(result["content"], serde_json::json!([{"type": "text", "text": "x".repeat(5000)}]));
}

#[test]
fn stats_count_calls_and_cache_hits() {
    let project = TestProject::new("one: { command: SERVER }");
    let empty = project.json(0, &["stats"]);
    assert_eq!((&empty["tool_count"], &empty["hit_ratio"], &empty["tools"]), (&json!(0), &Value::Null, &json!([])));
    assert_eq!(empty["sources"][0]["expired"], true);
    project.run(&["call", "one__add", "a=1", "b=2"]).assert_code(0);
    project.run(&["call", "fail"]).assert_code(1);
    let stats = project.json(0, &["stats"]);
    assert_eq!((&stats["tool_count"], &stats["calls"], &stats["errors"]), (&json!(3), &json!(2), &json!(1)));
    assert_eq!(field_values(&stats["tools"], "name"), ["one__add", "one__fail"]);
    assert_eq!(stats["sources"][0]["expired"], false);
    assert!(stats["hits"].as_u64().unwrap() > 0 && stats["misses"].as_u64().unwrap() > 0, "{stats}");
    project
        .run(&["stats"])
        .assert_code(0)
        .assert_stdout("calls  2, 1 failed")
        .assert_stdout("% were hits")
        .assert_stdout("it failed");
}

#[test]
fn history_lists_added_changed_and_removed_tools() {
    let project = TestProject::new(
        "one: { command: SERVER, args: [--change-file, list.json], cwd: . }\ntwo: { command: SERVER }",
    );
    let list = |tools: &[Value]| project.write("list.json", &Value::from(tools).to_string());
    list(&[tool("a", "x"), tool("b.c", "x"), tool("gone", "x")]);
    project.run(&["refresh"]).assert_code(0);
    list(&[tool("a", "y"), tool("b.c", "x"), tool("new", "x")]);
    project.run(&["refresh", "one", "--force"]).assert_code(0);
    project.configure("one: { command: SERVER, args: [--change-file, list.json], cwd: . }");

    let all = project.run(&["history"]);
    let lines: Vec<&str> =
        all.assert_code(0).stdout.lines().map(|line| &line["2026-11-15 20:14:20Z  ".len()..]).collect();
    assert_eq!(
        lines,
        [
            "#1  config  `one` declared (mcp, in the configuration)",
            "#2  config  `two` declared (mcp, in the configuration)",
            lines[2],
            lines[3],
            "#5  cli     1 tool added to `one`: new; 1 changed: `a`: its description changed (text); 1 removed: gone",
            "#6  config  `two` removed",
        ]
    );
    let first = format!("{}\n{}", lines[2], lines[3]);
    assert!(first.contains("3 tools added to `one`: a, b.c, gone"), "{first}");
    assert!(first.contains("3 tools added to `two`: add, echo, fail"), "{first}");

    let records = |arguments: &[&str]| {
        let found = project.json(0, &[&["history"], arguments].concat());
        found["records"].as_array().unwrap().iter().map(|record| record["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(records(&[]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(records(&["--source", "Two"]).first(), Some(&2), "a removed source keeps its history");
    assert_eq!(records(&["--source", "two"]).len(), 3);
    assert_eq!(records(&["--limit", "2"]), [5, 6]);
    assert_eq!(records(&["--tool", "gone"]).len(), 2);
    assert_eq!(records(&["--tool", "one__new"]), [5]);
    assert_eq!(records(&["--tool", "one__b_c"]).len(), 1);
    project.run(&["history", "--tool", "two/a"]).assert_code(1).assert_stderr("no tool named `two/a`");
    assert_eq!(records(&["--since", "1h"]).len(), 6);
    assert_eq!(records(&["--since", "2999-01-01"]).len(), 0);
    assert_eq!(records(&["--since", "2026-01-01T00:00:00Z", "--limit", "1"]), [6]);

    let record = project.json(0, &["history", "--tool", "one__new"])["records"][0].clone();
    assert_eq!((&record["actor"], &record["type"]), (&json!("cli"), &json!("InventoryRecorded")));
    assert_eq!((&record["source"], &record["tool"]), (&json!("one"), &Value::Null));
    assert_eq!(record["data"]["added"], json!(["new"]));
    assert_eq!(
        record["data"]["changed"],
        json!([{"name": "a", "fields": ["description"], "class": "text", "notes": ["its description changed"]}])
    );
    project
        .run(&["history", "--tool", "a", "--source", "one"])
        .assert_stdout("1 tool changed in `one`: `a`: its description changed (text)");

    let unknown = project.run(&["history", "--source", "three"]);
    unknown.assert_code(2).assert_stderr("no source named `three`");
    project.run(&["history", "--since", "soon"]).assert_code(2);
    project.run(&["history", "--since", "2999-01-01"]).assert_code(0).assert_stdout("no matching records");
}

#[test]
fn history_lists_discoveries_newest_first() {
    let both = "one: { command: SERVER }\nbad: { command: SERVER, args: [--exit, '3'] }";
    let project = TestProject::new(both);
    project.run(&["refresh"]).assert_code(1);
    project.run(&["refresh", "one", "--force"]).assert_code(0);
    project.configure("one: { command: SERVER }");
    let checks = project.json(0, &["history", "--checks"])["checks"].clone();
    let mut sources = field_values(&checks, "source");
    assert_eq!(sources[0], "one");
    sources.sort_unstable();
    assert_eq!(sources, ["bad", "one", "one"]);
    let times = field_values(&checks, "at");
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    let bad = project.json(0, &["history", "--checks", "--source", "bad"])["checks"].clone();
    assert_eq!((&bad[0]["tool_count"], &bad[0]["error"]["code"]), (&Value::Null, &json!("TOOL_UNAVAILABLE")));
    assert_eq!(project.json(0, &["history", "--checks", "--limit", "1"])["checks"].as_array().unwrap().len(), 1);
    project
        .run(&["history", "--checks"])
        .assert_stdout("3 tools")
        .assert_stdout("failed: the server exited while connecting");
    project.run(&["history", "--checks", "--tool", "x"]).assert_code(2);
}

#[test]
fn the_demo_runs_every_step_and_leaves_nothing_behind() {
    // The demo ignores invalid configuration files and environment variables.
    let project = TestProject::new("one: { comand: x }");
    fs::create_dir_all(project.path("home/.config/toolcrib")).unwrap();
    fs::write(project.path("home/.config/toolcrib/toolcrib.yaml"), "nonsense: [").unwrap();
    let variables = [("TOOLCRIB_SOURCE_LIBRARY_ENABLED", "false"), ("TOOLCRIB_DATA", "/nowhere")];
    let output = project.run_with(&["demo"], &variables);
    output
        .assert_code(0)
        .assert_stdout("1. Declare")
        .assert_stdout("$ toolcrib sources")
        .assert_stdout("library  mcp      stdio      success");
    output
        .assert_stdout("shop     openapi  -          success")
        .assert_stdout("$ toolcrib call shop__list_products")
        .assert_stdout(r#""sku":"apple-1""#);
    output
        .assert_stdout("1 process started")
        .assert_stdout("for 23 tools with their schemas, counted just now")
        .assert_stdout("$ toolcrib search")
        .assert_stdout("library__borrow_book — Borrow a book");
    output.assert_stdout(r#"{"book":"dune","member":"ada","title":"Dune","due_in_days":21}"#);
    output
        .assert_stdout("23 tools from the cache in")
        .assert_stdout("0 processes started; the same list, byte for byte")
        .assert_stdout("toolcrib add");
    assert!(!output.stdout.contains('\u{1b}') && output.stderr.is_empty(), "{}", output.stderr);

    let report = project.run_with(&["demo", "--json"], &variables);
    let report: Value = serde_json::from_str(&report.assert_code(0).stdout).unwrap();
    assert_eq!((&report["discovered_processes"], &report["second_start_processes"]), (&json!(1), &json!(0)));
    assert_eq!(report["call"]["structured"]["due_in_days"], 21);
    assert_eq!(report["api_call"]["structured"]["items"].as_array().map(Vec::len), Some(2), "{report}");
    assert!(report["tokens_full"].as_u64() > report["tokens"].as_u64());
    assert_eq!(report["hits"][0], "library__borrow_book");

    assert_eq!(fs::read_dir(project.path("tmp")).unwrap().count(), 0, "no file");
    assert!(!project.path("home/data").exists(), "no data");
    assert_eq!(project.leftover_processes(), Vec::<String>::new(), "no process");
}

#[test]
fn every_command_has_help_with_an_example() {
    let project = TestProject::new("");
    for command in ["describe", "stats", "history", "verify", "doctor", "demo"] {
        project
            .run(&[command, "--help"])
            .assert_code(0)
            .assert_stdout("Example")
            .assert_stdout(&format!("toolcrib {command}"));
    }
    let help = project.run(&["--help"]);
    assert!(!help.stdout.contains("__demo-server"), "{}", help.stdout);
}

#[test]
fn every_event_of_a_command_carries_its_trace_id() {
    let project = TestProject::new("one: { command: SERVER }");
    let stderr = project.run(&["-v", "call", "one__echo", "text=xyzzy"]).stderr.clone();
    let trace_id = |line: &str| line.split("trace_id=").nth(1).map(|rest| rest[..32].to_owned());
    let events = [
        "tools.discovery.started",
        "tools.discovery.server.success",
        "tools.registry.updated",
        "tools.cache.miss",
        "tools.call.finished",
    ];
    let mut trace_ids: Vec<String> = Vec::new();
    for event in events {
        let line =
            stderr.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("no {event} in\n{stderr}"));
        trace_ids.extend(trace_id(line));
    }
    assert_eq!(trace_ids.len(), events.len(), "{stderr}");
    assert!(trace_ids.iter().all(|trace| *trace == trace_ids[0]), "{stderr}");
    assert!(!stderr.contains("xyzzy"), "no argument is logged\n{stderr}");
}

#[test]
fn lists_are_filtered_and_ordered_and_removed_tools_are_described() {
    let project = TestProject::new(
        "git: { command: SERVER, args: [--tools-file, git.json], cwd: ., tags: [vcs], tools: { drop: deny, secret: disable } }\n\
         core: { builtin: [calculate] }",
    );
    let app_only = json!({"name": "view", "description": "Shows a view", "_meta": {"ui": {"visibility": ["app"]}}});
    let long = tool("push", &"Pushes commits. ".repeat(40));
    let mut tools = vec![tool("pull", "Pulls"), long, tool("drop", "Drops"), tool("secret", "Hidden"), app_only];
    project.write("git.json", &json!(tools).to_string());
    let list = project.json(0, &["tools"]);
    let all = ["calculate", "git__drop", "git__pull", "git__push", "git__secret", "git__view"];
    assert_eq!(field_values(&list["tools"], "name"), all);
    assert_eq!((&list["tools"][1]["policy"], &list["tools"][4]["policy"]), (&json!("deny"), &json!("hide")));
    for tool in list["tools"].as_array().unwrap() {
        assert!(tool["tokens"].as_u64() > Some(0), "{tool}");
    }
    assert_eq!(list["tools"][2]["tags"], json!(["vcs"]));
    for (arguments, expected) in [
        (&["--kind", "builtin"][..], &["calculate"][..]),
        (&["--tag", "vcs", "--only", "pu*"], &["git__pull", "git__push"]),
        (&["--only", "git__pull", "calc*", "--order", "name"], &["calculate", "git__pull"]),
        (&["--order", "tokens", "--only", "git__pu*"], &["git__push", "git__pull"]),
        (&["--state", "held"], &[]),
        (&["--state", "deprecated"], &[]),
    ] {
        let list = project.json(0, &[&["tools"], arguments].concat());
        assert_eq!(field_values(&list["tools"], "name"), expected, "{arguments:?}");
    }
    project.run(&["call", "git__pull"]);
    let list = project.json(0, &["tools", "--order", "calls", "--source", "git"]);
    assert_eq!(list["tools"][0]["name"], "git__pull");
    project.run(&["tools", "--order", "size"]).assert_code(2).assert_stderr("possible values: name, tokens, calls");
    project.run(&["tools", "--only", ""]).assert_code(2).assert_stderr("`--only` has an empty glob");
    project
        .run(&["tools", "--json", "--format", "lines"])
        .assert_code(2)
        .assert_stderr("`--json` and `--format lines`");
    project.run(&["tools", "--kind", "rest"]).assert_code(2).assert_stderr("builtin, mcp, openapi, workflow");
    project.run(&["tools"]).assert_code(0).assert_stdout("git__drop    deny");
    // Neither denied tools nor those for MCP Apps are for models; MCP clients get the latter for their apps.
    let provider = project.run(&["tools", "--format", "openai"]).stdout;
    assert!(provider.contains("git__pull") && !provider.contains("git__drop") && !provider.contains("git__view"));
    let mcp = project.run(&["tools", "--format", "mcp"]).stdout;
    assert!(mcp.contains("git__view") && !mcp.contains("git__drop"));
    for query in ["shows a view", "drops"] {
        let output = project.run(&["search", query]).stdout;
        assert!(!output.contains("git__view") && !output.contains("git__drop"), "{query} {output}");
    }
    let summary = project.run(&["context"]).stdout;
    assert!(summary.contains("pull") && !summary.contains("drop") && !summary.contains(" view"), "{summary}");
    let sources = project.json(0, &["sources", "--tools"]);
    assert_eq!(sources["sources"][1]["tools"], json!(all[1..]));
    assert_eq!(project.json(0, &["sources"])["sources"][1].get("tools"), None);
    assert_eq!(project.json(1, &["call", "git__drop"])["error"]["code"], "FORBIDDEN");

    tools.remove(1);
    project.write("git.json", &json!(tools).to_string());
    project.run(&["refresh", "git", "--force"]).assert_code(0);
    let removed = project.json(0, &["tools", "--state", "deprecated"]);
    assert_eq!(field_values(&removed["tools"], "name"), ["git__push"]);
    let described = project.json(0, &["describe", "git/push"]);
    assert_eq!((&described["state"], &described["tokens"]), (&json!("deprecated"), &removed["tools"][0]["tokens"]));
    let removed_at = described["removed_at"].as_str().unwrap();
    let page = project.run(&["describe", "git__push"]);
    page.assert_code(0).assert_stdout(&format!("removed at {removed_at}")).assert_stdout("Pushes commits.");
    let called = project.json(1, &["call", "git__push"]);
    assert_eq!(called["error"]["code"], "TOOL_NOT_IMPLEMENTED");
    assert!(called["error"]["message"].as_str().unwrap().contains(&format!("was removed at {removed_at}")), "{called}");
    project.run(&["describe", "git__never"]).assert_code(1).assert_stderr("no tool named `git__never`");
}
