//! `toolcrib doctor`: problems and the advice to fix them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use toolcrib_testkit::programs;

use crate::support::test_project::{ODD_TOOLS, TestProject};

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
fn skipped_workflows_and_operations_of_own_files_can_be_corrected() {
    let project = TestProject::new(
        r#"odd: { command: SERVER, args: [--tools-file, odd.json], cwd: . }
        api: { openapi: api.json }
        flow: { workflow: flow.json }"#,
    );
    project.write("odd.json", ODD_TOOLS);
    project.write("api.json", r#"{"openapi": "3.1.0", "paths": {"/a": {"get": 5, "post": {"responses": {}}}}}"#);
    project.write("flow.json", r#"{"arazzo": "1.0.1", "workflows": [{"workflowId": "broken", "steps": []}]}"#);
    project.run(&["refresh"]).assert_code(0);
    let checks = project.json(0, &["doctor"])["checks"].clone();
    let fix = |name: &str| {
        let check = checks.as_array().unwrap().iter().find(|check| check["name"] == name).unwrap();
        check["fix"].as_str().unwrap().to_owned()
    };
    let expected = "only the author of the server can fix it; the other tools are not affected";
    assert_eq!(fix("tools of odd"), expected);
    for (name, file) in [("tools of api", "api.json"), ("tools of flow", "flow.json")] {
        let fix = fix(name);
        assert!(fix.starts_with("correct it in `"), "{fix}");
        assert!(fix.ends_with(&format!("{file}`; the other tools are not affected")), "{fix}");
    }
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
