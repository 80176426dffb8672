//! `toolcrib describe`: pages of tools and sources, and their JSON.

use std::fs;

use serde_json::{Value, json};

use crate::support::test_project::{ODD_TOOLS, TestProject, field_values};

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
