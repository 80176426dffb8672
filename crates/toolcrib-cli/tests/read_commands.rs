//! The commands that read, and the demo, from outside: the real binary against the scripted servers.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::bench::{Bench, each};
use toolcrib_testkit::programs;

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
fn a_description_is_readable_whatever_the_schema() {
    let bench = Bench::new("odd: { command: SERVER, args: [--tools-file, odd.json], cwd: . }");
    bench.write("odd.json", ODD_TOOLS);
    let ran = bench.run(&["describe", "odd.tool"]);
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

  note: characters that hide or steer were removed from its text
  note: `--full` has the text as the source gave it
";
    assert_eq!(ran.ended(0).stdout, expected);
    bench.run(&["describe", "odd/bare"]).ended(0).says("not known").says("the source gave no schema");
    bench.run(&["describe", "odd:forms"]).ended(0).says("one of several forms");
    let full = bench.run(&["describe", "odd__odd_tool", "--full"]);
    full.ended(0).says("As the source gave it").says(r#""big": 123456789012345678901234567890"#);
    full.says(r#""title": "An \u001b[31modd\u001b[0m one""#).says("Output schema\n    none");
    assert!(!full.stdout.contains('\u{1b}'));
    assert_eq!(bench.json(0, &["describe", "bare", "--full"])["definition"], json!({"name": "bare"}));
}

#[test]
fn a_description_of_very_many_arguments_says_how_many_more_there_are() {
    let bench = Bench::new("wide: { command: SERVER, args: [--tools-file, wide.json], cwd: . }");
    let properties: serde_json::Map<_, _> = (0..510).map(|index| (format!("p{index}"), json!({}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": ["p509"]});
    bench.write("wide.json", &json!([{"name": "t", "inputSchema": schema}]).to_string());
    let ran = bench.run(&["describe", "wide__t"]);
    ran.ended(0).says("  Arguments\n    p509*         any\n").says("    … (+10 more)\n    * required\n");
}

#[test]
fn an_unknown_name_does_not_hide_the_others() {
    let bench = Bench::new(
        "one: { command: SERVER }\ntwo: { command: SERVER, args: [--tools, '1'] }\noff: { command: SERVER, enabled: false }",
    );
    bench.run(&["refresh"]).ended(0);
    let ran = bench.run(&["describe", "one__add", "one__ecko", "echo", "off__x", "two/echo"]);
    ran.ended(1).says("one__add\n").says("two__echo\n");
    ran.complains("error: no tool named `one__ecko`; did you mean `one__echo`");
    ran.complains("error: `echo` is offered by several sources: one__echo, two__echo");
    ran.complains("error: the source `off` is disabled");
    let several = bench.json(1, &["describe", "one__add", "one__ecko"]);
    assert_eq!(each(&several["tools"], "name"), ["one__add"]);
    assert_eq!(each(&several["errors"], "name"), ["one__ecko"]);
    assert_eq!(several["errors"][0]["code"], "TOOL_NOT_IMPLEMENTED");
    let alone = bench.json(1, &["describe", "one__ecko"]);
    assert_eq!(alone["error"]["details"]["near"][0], "one__echo");
    bench.run(&["describe"]).ended(2);
}

/// A person or a pipe wants all of a large result, and no notes in it.
#[test]
fn a_large_result_is_printed_whole() {
    let bench = Bench::new("one: { command: SERVER, args: [--with, large], result_limit: 1KiB }");
    let printed = bench.run(&["call", "one__large", "bytes=300000"]);
    assert_eq!((printed.code, printed.stdout.trim_end().len()), (0, 300_000), "{}", printed.stderr);
    let told = bench.json(0, &["call", "one__large", "bytes=5000"]);
    let keys: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["content", "structured", "is_error", "elapsed_ms", "source"]);
    assert_eq!(told["content"], serde_json::json!([{"type": "text", "text": "x".repeat(5000)}]));
}

#[test]
fn one_tool_is_its_list_entry_and_more() {
    let bench = Bench::new("one: { command: SERVER, tags: [x], tools: { fail: ask } }\ncore: { builtin: calculate }");
    bench.run(&["call", "one__echo", "text=hi"]).ended(0);
    bench.run(&["call", "one__fail", "--yes"]).ended(1);
    let list = bench.json(0, &["tools"]);
    for entry in list["tools"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let one = bench.json(0, &["describe", name]);
        for (key, value) in entry.as_object().unwrap() {
            assert_eq!(one[key], *value, "{name} {key}");
        }
        let mode = if entry["kind"] == "builtin" { "builtin" } else { "mcp_call" };
        let execution = json!({"mode": mode, "method": null, "path": null, "url_template": null, "security": []});
        assert_eq!((&one["execution"], &one["output_schema"]), (&execution, &Value::Null), "{name}");
    }
    let failed = bench.json(0, &["describe", "fail"]);
    assert_eq!((&failed["calls"], &failed["errors"], &failed["policy"]), (&json!(1), &json!(1), &json!("ask")));
    assert_eq!(failed["last_error"]["message"], "it failed");
    assert!(failed["last_called"].as_str().unwrap().ends_with('Z'));
    assert_eq!(bench.json(0, &["describe", "add"])["calls"], 0);
    bench.run(&["describe", "fail"]).ended(0).says("1, 1 failed, the last").says("last error: it failed");
    for format in ["mcp", "anthropic", "openai"] {
        let all: Value = serde_json::from_str(&bench.run(&["tools", "--format", format]).stdout).unwrap();
        let one = bench.run(&["describe", "one__add", "--format", format]);
        let one: Value = serde_json::from_str(&one.ended(0).stdout).unwrap();
        assert!(all.as_array().unwrap().contains(&one[0]), "{format}: {one}");
    }
}

#[test]
fn only_the_source_that_is_needed_is_started() {
    let bench = Bench::new(
        "one: { command: SERVER, args: [--count-file, one.log], cwd: . }\ntwo: { command: SERVER, args: [--count-file, two.log], cwd: . }",
    );
    bench.run(&["describe", "one__add", "--cached"]).ended(1).complains("the tools of `one` are not known");
    assert!(!bench.path("project/one.log").exists());
    bench.run(&["describe", "one__add"]).ended(0);
    for command in ["stats", "history", "verify", "doctor"] {
        bench.run(&[command]).ended(0);
    }
    assert_eq!(fs::read_to_string(bench.path("project/one.log")).unwrap().lines().count(), 1);
    assert!(!bench.path("project/two.log").exists());
}

#[test]
fn numbers_are_kept_and_shown() {
    let bench = Bench::new("one: { command: SERVER }");
    let empty = bench.json(0, &["stats"]);
    assert_eq!((&empty["tool_count"], &empty["hit_ratio"], &empty["tools"]), (&json!(0), &Value::Null, &json!([])));
    assert_eq!(empty["sources"][0]["expired"], true);
    bench.run(&["call", "one__add", "a=1", "b=2"]).ended(0);
    bench.run(&["call", "fail"]).ended(1);
    let stats = bench.json(0, &["stats"]);
    assert_eq!((&stats["tool_count"], &stats["calls"], &stats["errors"]), (&json!(3), &json!(2), &json!(1)));
    assert_eq!(each(&stats["tools"], "name"), ["one__add", "one__fail"]);
    assert_eq!(stats["sources"][0]["expired"], false);
    assert!(stats["hits"].as_u64().unwrap() > 0 && stats["misses"].as_u64().unwrap() > 0, "{stats}");
    bench.run(&["stats"]).ended(0).says("calls  2, 1 failed").says("% were hits").says("it failed");
}

#[test]
fn history_tells_what_came_changed_and_went() {
    let bench =
        Bench::new("one: { command: SERVER, args: [--change-file, list.json], cwd: . }\ntwo: { command: SERVER }");
    let list = |tools: &[Value]| bench.write("list.json", &Value::from(tools).to_string());
    list(&[tool("a", "x"), tool("b.c", "x"), tool("gone", "x")]);
    bench.run(&["refresh"]).ended(0);
    list(&[tool("a", "y"), tool("b.c", "x"), tool("new", "x")]);
    bench.run(&["refresh", "one", "--force"]).ended(0);
    bench.configure("one: { command: SERVER, args: [--change-file, list.json], cwd: . }");

    let all = bench.run(&["history"]);
    let told: Vec<&str> = all.ended(0).stdout.lines().map(|line| &line["2026-11-15 20:14:20Z  ".len()..]).collect();
    assert_eq!(
        told,
        [
            "#1  config   `one` declared (mcp, from config)",
            "#2  config   `two` declared (mcp, from config)",
            told[2],
            told[3],
            "#5  refresh  1 tool added to `one`: new; 1 changed: `a`: its description changed (text); 1 removed: gone",
            "#6  config   `two` removed",
        ]
    );
    let first = format!("{}\n{}", told[2], told[3]);
    assert!(first.contains("3 tools added to `one`: a, b.c, gone"), "{first}");
    assert!(first.contains("3 tools added to `two`: add, echo, fail"), "{first}");

    let records = |arguments: &[&str]| {
        let found = bench.json(0, &[&["history"], arguments].concat());
        found["records"].as_array().unwrap().iter().map(|record| record["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(records(&[]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(records(&["--source", "Two"]).first(), Some(&2), "a removed source keeps its history");
    assert_eq!(records(&["--source", "two"]).len(), 3);
    assert_eq!(records(&["--limit", "2"]), [5, 6]);
    assert_eq!(records(&["--tool", "gone"]).len(), 2);
    assert_eq!(records(&["--tool", "one__new"]), [5]);
    assert_eq!(records(&["--tool", "one__b_c"]).len(), 1);
    bench.run(&["history", "--tool", "two/a"]).ended(1).complains("no tool named `two/a`");
    assert_eq!(records(&["--since", "1h"]).len(), 6);
    assert_eq!(records(&["--since", "2999-01-01"]).len(), 0);
    assert_eq!(records(&["--since", "2026-01-01T00:00:00Z", "--limit", "1"]), [6]);

    let record = bench.json(0, &["history", "--tool", "one__new"])["records"][0].clone();
    assert_eq!((&record["actor"], &record["type"]), (&json!("refresh"), &json!("InventoryRecorded")));
    assert_eq!((&record["source"], &record["tool"]), (&json!("one"), &Value::Null));
    assert_eq!(record["data"]["added"], json!(["new"]));
    assert_eq!(
        record["data"]["changed"],
        json!([{"name": "a", "fields": ["description"], "class": "text", "notes": ["its description changed"]}])
    );
    bench
        .run(&["history", "--tool", "a", "--source", "one"])
        .says("1 tool changed in `one`: `a`: its description changed (text)");

    let unknown = bench.run(&["history", "--source", "three"]);
    unknown.ended(2).complains("no source named `three`");
    bench.run(&["history", "--since", "soon"]).ended(2);
    bench.run(&["history", "--since", "2999-01-01"]).ended(0).says("no matching records");
}

#[test]
fn checks_are_kept_newest_first() {
    let both = "one: { command: SERVER }\nbad: { command: SERVER, args: [--exit, '3'] }";
    let bench = Bench::new(both);
    bench.run(&["refresh"]).ended(1);
    bench.run(&["refresh", "one", "--force"]).ended(0);
    bench.configure("one: { command: SERVER }");
    let checks = bench.json(0, &["history", "--checks"])["checks"].clone();
    let mut sources = each(&checks, "source");
    assert_eq!(sources[0], "one");
    sources.sort_unstable();
    assert_eq!(sources, ["bad", "one", "one"]);
    let times = each(&checks, "at");
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    let bad = bench.json(0, &["history", "--checks", "--source", "bad"])["checks"].clone();
    assert_eq!((&bad[0]["tool_count"], &bad[0]["error"]["code"]), (&Value::Null, &json!("TOOL_UNAVAILABLE")));
    assert_eq!(bench.json(0, &["history", "--checks", "--limit", "1"])["checks"].as_array().unwrap().len(), 1);
    bench.run(&["history", "--checks"]).says("3 tools").says("failed: it ended while connecting");
    bench.run(&["history", "--checks", "--tool", "x"]).ended(2);
}

#[test]
fn verify_finds_what_was_tampered_with() {
    for (sql, fault) in [
        ("DELETE FROM manifests", "the manifest of `one` is missing"),
        ("UPDATE manifests SET idx = substr(idx, 1, 40)", "the manifest of `one` is missing"),
        ("UPDATE manifests SET body = replace(body, 'Adds', 'Subs')", "`one`: the stored tool `add` is not what its"),
        (
            "UPDATE journal SET body = replace(body, '\"add\",', '') WHERE seq = 2",
            "record 2 cannot be read: its checksum does not match",
        ),
        ("UPDATE journal SET body = '{' WHERE seq = 2", "record 2 cannot be read"),
        ("UPDATE journal SET seq = 5 WHERE seq = 2", "records 2 to 4 are missing"),
        ("DELETE FROM definitions", "the definition of `one` is missing"),
    ] {
        let bench = Bench::new("one: { command: SERVER }");
        bench.run(&["tools"]).ended(0);
        bench.run(&["verify"]).ended(0).says("the catalogue equals its replay");
        let whole = bench.json(0, &["verify"]);
        assert_eq!(whole, json!({"records": 2, "manifests": 1, "unknown_events": 0, "faults": []}));
        if bench.tamper(sql).is_none() {
            return programs::skip("verify_finds_what_was_tampered_with", "there is no python3");
        }
        let faults = bench.json(1, &["verify"])["faults"].to_string();
        assert!(faults.contains(fault), "{sql}: {faults}");
        bench.run(&["verify"]).ended(1).says(fault);
        let checks = bench.json(1, &["doctor"])["checks"].clone();
        let store = checks.as_array().unwrap().iter().find(|check| check["name"] == "store").unwrap();
        assert_eq!(store["status"], "fail", "{sql}: {checks}");
    }
}

#[test]
fn a_doctor_says_what_is_wrong_and_what_to_do() {
    let bench = Bench::new(
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
    bench.write("odd.json", ODD_TOOLS);
    bench.run(&["refresh", "odd", "dies", "far"]).ended(1);
    let checks = bench.json(1, &["doctor"])["checks"].clone();
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
    check("config", "ok", "toolcrib.yaml` is read; 11 sources", "");
    check("data", "ok", "", "");
    check("store", "ok", "whole", "");
    check("guard", "ok", "", "");
    check("source odd", "ok", "3 tools, health ok", "");
    check("tools of odd", "warn", "`bad` is set aside: its input schema is not a JSON object", "");
    check("tools of odd", "warn", "built-in tools have these names: `calculate`", "on_conflict: keep");
    check("source core", "ok", "7 tools", "");
    check("source off", "ok", "disabled", "toolcrib enable off");
    check("source gone", "fail", "`uvx-of-nobody` is not found", "install it, or give its full path");
    check("source npx", "fail", "`npx` is not found", "https://nodejs.org");
    check("source dies", "fail", "ended while connecting", "toolcrib logs dies");
    check("source token", "fail", "NO_SUCH_TOKEN", "export NO_SUCH_TOKEN=");
    check("source far", "fail", "no connection", "toolcrib refresh far");
    check("source cwd", "fail", "is not a directory", "correct `cwd`");
    check("source wrong", "fail", "did you mean `command`?", "correct the declaration");
    check("source new", "warn", "never discovered", "toolcrib refresh new");
    let ran = bench.run(&["doctor"]);
    ran.ended(1).says("FAIL  source npx").says("-> install Node.js").says("7 problems, 3 warnings");
}

#[test]
fn a_healthy_house_has_nothing_to_complain_of() {
    let bench = Bench::new("one: { command: SERVER, args: [--count-file, starts.log], cwd: . }");
    bench.run(&["doctor"]).ended(0).says("nothing is broken; 1 warning");
    let probed = bench.run(&["doctor", "--probe"]);
    probed.ended(0).says("all is well").says("3 tools, health ok, checked").says("answered in");
    assert_eq!(fs::read_to_string(bench.path("project/starts.log")).unwrap().lines().count(), 1);
    bench.run(&["doctor"]).ended(0).says("all is well");
    bench.configure("one: { command: SERVER, args: [--exit, '1'] }");
    bench.run(&["doctor", "--probe"]).ended(1).says("the 3 tools it had").says("are still listed");
    bench
        .run_with(&["--config", "toolcrib.yaml", "doctor"], &[("TOOLCRIB_SOURCE_ONY_TOKEN", "x")])
        .says("warn  environment")
        .says("did you mean `one`?");
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

#[test]
fn a_source_that_wants_a_token_is_told_how_to_get_one() {
    let mut server = Command::new(programs::scripted_http_server());
    let mut server = server.args(["--require-bearer", "open sesame"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let bench = Bench::new(&format!("docs: {{ url: \"{}\" }}", line.trim().trim_start_matches("listening on ")));
    let refused = bench.run(&["doctor", "--probe"]);
    let arguments = ["--config", "toolcrib.yaml", "doctor", "--probe"];
    let admitted = bench.run_with(&arguments, &[("TOOLCRIB_SOURCE_DOCS_TOKEN", "open sesame")]);
    server.kill().and_then(|()| server.wait()).unwrap();
    refused.ended(1).says("HTTP 401").says("-> set a token").says("TOOLCRIB_SOURCE_DOCS_TOKEN");
    admitted.ended(0).says("3 tools, health ok").says("all is well");
    assert!(!admitted.stdout.contains("sesame"));
}

#[test]
fn a_doctor_works_in_a_ruin() {
    let bench = Bench::new("one: { command: SERVER }");
    let untrusted = bench.run_with(&["doctor"], &[]);
    untrusted
        .ended(1)
        .says("FAIL  trust")
        .says("toolcrib trust")
        .says("not contacted, because its file is not trusted");
    bench.run(&["tools"]).ended(0);
    fs::write(bench.database(), "this is no database, whatever its name says").unwrap();
    bench.run(&["doctor"]).ended(1).says("FAIL  store").says("ok    guard");
    bench.write("toolcrib.yaml", "sources: [\nsurces: {}");
    bench.run(&["doctor"]).ended(1).says("FAIL  config").says("toolcrib.yaml").says("ok    guard");
    let checks = bench.json(1, &["doctor"])["checks"].clone();
    assert_eq!(checks[0]["status"], "fail");
}

#[test]
fn the_demo_shows_it_all_and_leaves_nothing_behind() {
    // Whatever lies about, the demo is not disturbed by it.
    let bench = Bench::new("one: { comand: x }");
    fs::create_dir_all(bench.path("home/.config/toolcrib")).unwrap();
    fs::write(bench.path("home/.config/toolcrib/toolcrib.yaml"), "nonsense: [").unwrap();
    let variables = [("TOOLCRIB_SOURCE_LIBRARY_ENABLED", "false"), ("TOOLCRIB_DATA", "/nowhere")];
    let ran = bench.run_with(&["demo"], &variables);
    ran.ended(0).says("1. Declare").says("$ toolcrib sources").says("library  stdio    success");
    ran.says("shop     openapi  success").says("$ toolcrib call shop__list_products").says(r#""sku":"apple-1""#);
    ran.says("1 process started")
        .says("for 23 tools with their schemas, counted just now")
        .says("$ toolcrib search")
        .says("library__borrow_book — Borrow a book");
    ran.says(r#"{"book":"dune","member":"ada","title":"Dune","due_in_days":21}"#);
    ran.says("23 tools from the cache in")
        .says("0 processes started; the same list, byte for byte")
        .says("toolcrib add");
    assert!(!ran.stdout.contains('\u{1b}') && ran.stderr.is_empty(), "{}", ran.stderr);

    let report = bench.run_with(&["demo", "--json"], &variables);
    let report: Value = serde_json::from_str(&report.ended(0).stdout).unwrap();
    assert_eq!((&report["discovered_processes"], &report["second_start_processes"]), (&json!(1), &json!(0)));
    assert_eq!(report["call"]["structured"]["due_in_days"], 21);
    assert_eq!(report["api_call"]["structured"]["items"].as_array().map(Vec::len), Some(2), "{report}");
    assert!(report["tokens_full"].as_u64() > report["tokens"].as_u64());
    assert_eq!(report["hits"][0], "library__borrow_book");

    assert_eq!(fs::read_dir(bench.path("tmp")).unwrap().count(), 0, "no file");
    assert!(!bench.path("home/data").exists(), "no data");
    assert_eq!(bench.left_behind(), Vec::<String>::new(), "no process");
}

#[test]
fn every_command_has_help_with_an_example() {
    let bench = Bench::new("");
    for command in ["describe", "stats", "history", "verify", "doctor", "demo"] {
        bench.run(&[command, "--help"]).ended(0).says("Example").says(&format!("toolcrib {command}"));
    }
    let help = bench.run(&["--help"]);
    assert!(!help.stdout.contains("__demo-server"), "{}", help.stdout);
}

#[test]
fn every_event_of_a_command_carries_its_trace_id() {
    let bench = Bench::new("one: { command: SERVER }");
    let said = bench.run(&["-v", "call", "one__echo", "text=xyzzy"]).stderr.clone();
    let traces = |line: &str| line.split("trace_id=").nth(1).map(|rest| rest[..32].to_owned());
    let events = [
        "tools.discovery.started",
        "tools.discovery.server.success",
        "tools.registry.updated",
        "tools.cache.miss",
        "tools.call.finished",
    ];
    let mut seen: Vec<String> = Vec::new();
    for event in events {
        let line = said.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("no {event} in\n{said}"));
        seen.extend(traces(line));
    }
    assert_eq!(seen.len(), events.len(), "{said}");
    assert!(seen.iter().all(|trace| *trace == seen[0]), "{said}");
    assert!(!said.contains("xyzzy"), "no argument is logged\n{said}");
}
