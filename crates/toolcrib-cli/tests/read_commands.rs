//! Commands that read, and the demo: the real binary with scripted servers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::test_project::{TestProject, field_values};

const ODD_TOOLS: &str = r##"[
    {"name": "odd.tool", "title": "An \u001b[31modd\u001b[0m one", "description": "Does odd\u200b things.",
     "inputSchema": {"type": "object", "required": ["to"], "properties": {
        "to": {"$ref": "#/$defs/place"},
        "n": {"type": ["integer", "null"], "default": 3, "minimum": 1, "description": "How\u202e many"},
        "kind": {"enum": ["a", "b"]},
        "again": {"$ref": "#"}
     }, "$defs": {"place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}},
     "annotations": {"readOnlyHint": true, "destructiveHint": "no"}, "vendor": {"big": 123456789012345678901234567890}},
    {"name": "bare"},
    {"name": "bad", "inputSchema": true},
    {"name": "calculate", "inputSchema": {"type": "object"}},
    {"name": "forms", "description": "x", "inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}]}}
]"##;

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

#[test]
fn describe_shows_a_source_with_its_instructions() {
    let project = TestProject::new("git: { command: SERVER, args: [--features-file, features.json], cwd: . }");
    let features = json!({
        "prompts": [{"name": "review"}, {"name": "bad\u{200b}"}],
        "resources": [{"uri": "note://one", "name": "one"}],
        "instructions": "Pull\u{200b} before\nyou push.",
    });
    project.write("features.json", &features.to_string());
    let output = project.run(&["describe", "git"]).assert_code(0).stdout.clone();
    let (head, rest) = output.split_once("  status ").unwrap();
    assert!(head.starts_with("git\n  kind       mcp, stdio\n  location   "), "{head}");
    let expected = "
  tools      3
  prompts    1
  resources  1 and 0 templates

  Instructions
    Pull before
    you push.

  Skipped
    prompt bad: its `name` has hidden or invalid characters

  `toolcrib tools --source git` lists its tools
";
    assert_eq!(rest.split_once('\n').unwrap().1, &expected[1..]);
    let source = project.json(0, &["describe", "git"]);
    assert_eq!((&source["id"], &source["instructions"]), (&json!("git"), &json!("Pull before\nyou push.")));
    let sources = project.json(0, &["sources"]);
    let counts =
        ["prompt_count", "resource_count", "resource_template_count"].map(|key| sources["sources"][0][key].clone());
    assert_eq!(counts, [json!(1), json!(1), json!(0)]);
    let both = project.json(1, &["describe", "git", "echo", "nothing"]);
    assert_eq!((&both["sources"][0]["id"], &both["tools"][0]["name"]), (&json!("git"), &json!("git__echo")));
    project
        .run(&["history"])
        .assert_code(0)
        .assert_stdout("1 prompt added to `git`: review; 1 resource added: note://one");
    project.run(&["verify"]).assert_code(0);
}

#[test]
fn describe_renders_unusual_schemas() {
    let project = TestProject::new("odd: { command: SERVER, args: [--tools-file, odd.json], cwd: . }");
    project.write("odd.json", ODD_TOOLS);
    let output = project.run(&["describe", "odd.tool"]);
    let expected = "\
odd__odd_tool — An odd one
  source    odd (mcp), which calls it `odd.tool`
  policy    allow, active
  hints     read-only

  Does odd things.

  Arguments
    to*      object
      city*  string
    n        integer or null   How many [at least 1] [default 3]
    kind     string            [one of a, b]
    again    object, as above
    * required

  note: hidden and control characters were removed from its text
  note: `--full` has the text as the source gave it
";
    assert_eq!(output.assert_code(0).stdout, expected);
    project
        .run(&["describe", "odd/bare"])
        .assert_code(0)
        .assert_stdout("not known")
        .assert_stdout("the source provides no input schema");
    project.run(&["describe", "odd:forms"]).assert_code(0).assert_stdout("one of several forms");
    let full = project.run(&["describe", "odd__odd_tool", "--full"]);
    full.assert_code(0)
        .assert_stdout("As the source gave it")
        .assert_stdout(r#""big": 123456789012345678901234567890"#);
    full.assert_stdout(r#""title": "An \u001b[31modd\u001b[0m one""#).assert_stdout("Output schema\n    none");
    assert!(!full.stdout.contains('\u{1b}'));
    assert_eq!(project.json(0, &["describe", "bare", "--full"])["definition"], json!({"name": "bare"}));
}

#[test]
fn describe_counts_omitted_arguments() {
    let project = TestProject::new("wide: { command: SERVER, args: [--tools-file, wide.json], cwd: . }");
    let properties: serde_json::Map<_, _> = (0..510).map(|index| (format!("p{index}"), json!({}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": ["p509"]});
    project.write("wide.json", &json!([{"name": "t", "inputSchema": schema}]).to_string());
    let output = project.run(&["describe", "wide__t"]);
    output
        .assert_code(0)
        .assert_stdout("  Arguments\n    p509*         any\n")
        .assert_stdout("    … (+10 more)\n    * required\n");
}

#[test]
fn describe_reports_unknown_names_beside_the_tools() {
    let project = TestProject::new(
        "one: { command: SERVER }\ntwo: { command: SERVER, args: [--tools, '1'] }\noff: { command: SERVER, enabled: false }",
    );
    project.run(&["refresh"]).assert_code(0);
    let output = project.run(&["describe", "one__add", "one__ecko", "echo", "off__x", "two/echo"]);
    output.assert_code(1).assert_stdout("one__add\n").assert_stdout("two__echo\n");
    output.assert_stderr("error: no tool named `one__ecko`; did you mean `one__echo`");
    output.assert_stderr("error: `echo` is offered by several sources: one__echo, two__echo");
    output.assert_stderr("error: the source `off` is disabled");
    let several = project.json(1, &["describe", "one__add", "one__ecko"]);
    assert_eq!(field_values(&several["tools"], "name"), ["one__add"]);
    assert_eq!(field_values(&several["errors"], "name"), ["one__ecko"]);
    assert_eq!(several["errors"][0]["code"], "TOOL_NOT_IMPLEMENTED");
    let alone = project.json(1, &["describe", "one__ecko"]);
    assert_eq!(alone["error"]["details"]["near"][0], "one__echo");
    project.run(&["describe"]).assert_code(2);
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
fn a_described_tool_contains_its_list_entry() {
    let project =
        TestProject::new("one: { command: SERVER, tags: [x], tools: { fail: ask } }\ncore: { builtin: calculate }");
    project.run(&["call", "one__echo", "text=hi"]).assert_code(0);
    project.run(&["call", "one__fail", "--yes"]).assert_code(1);
    let list = project.json(0, &["tools"]);
    for entry in list["tools"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let one = project.json(0, &["describe", name]);
        for (key, value) in entry.as_object().unwrap() {
            assert_eq!(one[key], *value, "{name} {key}");
        }
        let mode = if entry["kind"] == "builtin" { "builtin" } else { "mcp_call" };
        let execution = json!({"mode": mode, "method": null, "path": null, "url_template": null, "security": []});
        assert_eq!((&one["execution"], &one["output_schema"]), (&execution, &Value::Null), "{name}");
    }
    let failed = project.json(0, &["describe", "fail"]);
    assert_eq!((&failed["calls"], &failed["errors"], &failed["policy"]), (&json!(1), &json!(1), &json!("ask")));
    assert_eq!(failed["last_error"]["message"], "it failed");
    assert!(failed["last_called"].as_str().unwrap().ends_with('Z'));
    assert_eq!(project.json(0, &["describe", "add"])["calls"], 0);
    project
        .run(&["describe", "fail"])
        .assert_code(0)
        .assert_stdout("1, 1 failed, the last")
        .assert_stdout("last error: it failed");
    for format in ["mcp", "anthropic", "openai"] {
        let all: Value = serde_json::from_str(&project.run(&["tools", "--format", format]).stdout).unwrap();
        let one = project.run(&["describe", "one__add", "--format", format]);
        let one: Value = serde_json::from_str(&one.assert_code(0).stdout).unwrap();
        assert!(all.as_array().unwrap().contains(&one[0]), "{format}: {one}");
    }
}

#[test]
fn describe_starts_only_the_source_of_the_tool() {
    let project = TestProject::new(
        "one: { command: SERVER, args: [--count-file, one.log], cwd: . }\ntwo: { command: SERVER, args: [--count-file, two.log], cwd: . }",
    );
    project.run(&["describe", "one__add", "--cached"]).assert_code(1).assert_stderr("the tools of `one` are unknown");
    assert!(!project.path("project/one.log").exists());
    project.run(&["describe", "one__add"]).assert_code(0);
    for command in ["stats", "history", "verify", "doctor"] {
        project.run(&[command]).assert_code(0);
    }
    assert_eq!(fs::read_to_string(project.path("project/one.log")).unwrap().lines().count(), 1);
    assert!(!project.path("project/two.log").exists());
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
fn verify_finds_tampering() {
    for (sql, fault) in [
        ("DELETE FROM manifests", "the manifest of `one` is missing"),
        ("UPDATE manifests SET idx = substr(idx, 1, 40)", "the manifest of `one` is missing"),
        (
            "UPDATE manifests SET body = replace(body, 'Adds', 'Subs')",
            "`one`: the stored tool `add` does not match its fingerprint",
        ),
        (
            "UPDATE journal SET body = replace(body, '\"add\",', '') WHERE seq = 2",
            "record 2 cannot be read: its checksum does not match",
        ),
        ("UPDATE journal SET body = '{' WHERE seq = 2", "record 2 cannot be read"),
        ("UPDATE journal SET seq = 5 WHERE seq = 2", "records 2 to 4 are missing"),
        ("DELETE FROM definitions", "the definition of `one` is missing"),
    ] {
        let project = TestProject::new("one: { command: SERVER }");
        project.run(&["tools"]).assert_code(0);
        project.run(&["verify"]).assert_code(0).assert_stdout("the catalogue matches a replay of it");
        let whole = project.json(0, &["verify"]);
        assert_eq!(whole, json!({"records": 2, "manifests": 1, "feature_lists": 0, "unknown_events": 0, "faults": []}));
        if project.execute_sql(sql).is_none() {
            return programs::skip("verify_finds_tampering", "there is no python3");
        }
        let faults = project.json(1, &["verify"])["faults"].to_string();
        assert!(faults.contains(fault), "{sql}: {faults}");
        project.run(&["verify"]).assert_code(1).assert_stdout(fault);
        let checks = project.json(1, &["doctor"])["checks"].clone();
        let store = checks.as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
        assert_eq!(store["status"], "fail", "{sql}: {checks}");
    }
}

#[test]
fn doctor_reports_problems_with_advice() {
    let project = TestProject::new(
        r#"odd: { command: SERVER, args: [--tools-file, odd.json], cwd: . }
        core: { builtin: all }
        off: { command: nothing, enabled: false }
        gone: { command: uvx-of-nobody }
        npx: { command: npx, env: { PATH: /nowhere } }
        dies: { command: SERVER, args: [--exit, "3"] }
        token: { url: "http://127.0.0.1:9/mcp", headers: { Authorization: "Bearer ${env:NO_SUCH_TOKEN}" } }
        far: { url: "http://127.0.0.1:9/mcp" }
        cwd: { command: SERVER, cwd: ./nowhere }
        wrong: { comand: x }
        new: { command: SERVER }"#,
    );
    project.write("odd.json", ODD_TOOLS);
    project.run(&["refresh", "odd", "dies", "far"]).assert_code(1);
    let checks = project.json(1, &["doctor"])["checks"].clone();
    let check = |name: &str, status: &str, message: &str, fix: &str| {
        let fits = |check: &&Value| {
            let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
            check["name"] == name
                && check["status"] == status
                && text("message").contains(message)
                && text("fix").contains(fix)
        };
        assert!(checks.as_array().unwrap().iter().any(|check| fits(&check)), "{name} {status}: {message}\n{checks:#}");
    };
    check("config", "ok", "toolcrib.yaml` is loaded; 11 sources declared", "");
    check("data", "ok", "", "");
    check("store", "ok", "none damaged", "");
    check("guard", "ok", "", "");
    check("source odd", "ok", "3 tools, health ok", "");
    check("tools of odd", "warn", "`bad` is skipped: its input schema is not a JSON object", "");
    check("tools of odd", "warn", "built-in tools have these names: `calculate`", "on_conflict: keep");
    check("source core", "ok", "7 tools", "");
    check("source off", "ok", "disabled", "toolcrib enable off");
    check("source gone", "fail", "`uvx-of-nobody` is not found", "install it, or give its full path");
    check("source npx", "fail", "`npx` is not found", "https://nodejs.org");
    check("source dies", "fail", "exited while connecting", "toolcrib logs dies");
    check("source token", "fail", "NO_SUCH_TOKEN", "export NO_SUCH_TOKEN=");
    check("source far", "fail", "no connection", "toolcrib refresh far");
    check("source cwd", "fail", "is not a directory", "correct `cwd`");
    check("source wrong", "fail", "did you mean `command`?", "correct the declaration");
    check("source new", "warn", "never discovered", "toolcrib refresh new");
    let output = project.run(&["doctor"]);
    output
        .assert_code(1)
        .assert_stdout("FAIL  source npx")
        .assert_stdout("-> install Node.js")
        .assert_stdout("7 problems, 3 warnings");
}

#[test]
fn doctor_reports_no_problem_on_a_healthy_setup() {
    let project = TestProject::new("one: { command: SERVER, args: [--count-file, starts.log], cwd: . }");
    project.run(&["doctor"]).assert_code(0).assert_stdout("no problems; 1 warning");
    let probed = project.run(&["doctor", "--probe"]);
    probed
        .assert_code(0)
        .assert_stdout("no problems found")
        .assert_stdout("3 tools, health ok, checked")
        .assert_stdout("answered in");
    assert_eq!(fs::read_to_string(project.path("project/starts.log")).unwrap().lines().count(), 1);
    project.run(&["doctor"]).assert_code(0).assert_stdout("no problems found");
    project.configure("one: { command: SERVER, args: [--exit, '1'] }");
    project
        .run(&["doctor", "--probe"])
        .assert_code(1)
        .assert_stdout("the 3 tools it had")
        .assert_stdout("are still listed");
    project
        .run_with(&["--config", "toolcrib.yaml", "doctor"], &[("TOOLCRIB_SOURCE_ONY_TOKEN", "x")])
        .assert_stdout("warn  environment")
        .assert_stdout("did you mean `one`?");
    assert_eq!(project.leftover_processes(), Vec::<String>::new());
}

#[test]
fn doctor_explains_how_to_set_a_missing_token() {
    let mut server = Command::new(programs::scripted_http_server());
    let mut server = server.args(["--require-bearer", "open sesame"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let project =
        TestProject::new(&format!("docs: {{ url: \"{}\" }}", line.trim().trim_start_matches("listening on ")));
    let refused = project.run(&["doctor", "--probe"]);
    let arguments = ["--config", "toolcrib.yaml", "doctor", "--probe"];
    let admitted = project.run_with(&arguments, &[("TOOLCRIB_SOURCE_DOCS_TOKEN", "open sesame")]);
    server.kill().and_then(|()| server.wait()).unwrap();
    refused
        .assert_code(1)
        .assert_stdout("HTTP 401")
        .assert_stdout("or set a token")
        .assert_stdout("TOOLCRIB_SOURCE_DOCS_TOKEN");
    admitted.assert_code(0).assert_stdout("3 tools, health ok").assert_stdout("no problems found");
    assert!(!admitted.stdout.contains("sesame"));
}

#[test]
fn doctor_works_with_broken_configuration_and_store() {
    let project = TestProject::new("one: { command: SERVER }");
    let untrusted = project.run_with(&["doctor"], &[]);
    untrusted
        .assert_code(1)
        .assert_stdout("FAIL  trust")
        .assert_stdout("toolcrib trust")
        .assert_stdout("not contacted, because its file is not trusted");
    project.run(&["tools"]).assert_code(0);
    fs::write(project.database(), "this is no database, whatever its name says").unwrap();
    project.run(&["doctor"]).assert_code(1).assert_stdout("FAIL  store").assert_stdout("ok    guard");
    project.write("toolcrib.yaml", "sources: [\nsurces: {}");
    project
        .run(&["doctor"])
        .assert_code(1)
        .assert_stdout("FAIL  config")
        .assert_stdout("toolcrib.yaml")
        .assert_stdout("ok    guard");
    let checks = project.json(1, &["doctor"])["checks"].clone();
    assert_eq!(checks[0]["status"], "fail");
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
        .assert_stdout("library  stdio    success");
    output
        .assert_stdout("shop     openapi  success")
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
    assert_eq!(field_values(&list["tools"], "name"), ["calculate", "git__drop", "git__pull", "git__push", "git__view"]);
    assert_eq!(list["tools"][1]["policy"], "deny");
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
    project.run(&["tools", "--kind", "rest"]).assert_code(2).assert_stderr("builtin, mcp, openapi, workflow");
    project.run(&["tools"]).assert_code(0).assert_stdout("git__drop  deny");
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
    assert_eq!(sources["sources"][1]["tools"], json!(["git__drop", "git__pull", "git__push", "git__view"]));
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
