//! Sources that hang: how long commands wait for them, what they print, and what they report.
#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::test_project::TestProject;
use crate::support::test_server::{send_signal, wait_until};

/// A command that waited so long would report `no answer within 90s`.
const LONG_TIMEOUT_SETTING: &str = "discovery_timeout: 90s";

/// One source that responds and one that hangs on `tools/list`.
fn hanging_project() -> TestProject {
    TestProject::new(&format!(
        "well: {{ command: SERVER }}
         hangs: {{ command: SERVER, args: [--hang, list, --count-file, starts], cwd: ., {LONG_TIMEOUT_SETTING} }}"
    ))
}

fn count_starts(project: &TestProject) -> usize {
    crate::support::count_starts(&project.path("project/starts"))
}

fn spawn_toolcrib(project: &TestProject, arguments: &[&str]) -> Child {
    let home = project.path("home");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
    command.args(["--config", "toolcrib.yaml"]).args(arguments).current_dir(project.path("project"));
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config")).env("XDG_DATA_HOME", home.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn assert_incomplete(response: &Value, reason: &str) {
    let missing = &response["missing"];
    assert_eq!((missing.as_array().map(Vec::len), &missing[0]["source"]), (Some(1), &json!("hangs")), "{response}");
    assert!(missing[0]["reason"].as_str().unwrap().contains(reason), "{response}");
}

/// Regression: one hanging source delayed every list by 120 s at first, and by 30 s after each backoff.
#[test]
fn a_source_that_timed_out_does_not_delay_later_commands() {
    let project = hanging_project();
    project.run(&["refresh", "well"]).assert_code(0);
    let first = project.json(0, &["tools", "--wait", "1s"]);
    assert_eq!(first["tools"].as_array().unwrap().len(), 3, "{first}");
    assert_incomplete(&first, "it was not discovered within 1s");
    let listed = project.json(0, &["sources"]);
    let hangs = listed["sources"].as_array().unwrap().iter().find(|source| source["id"] == "hangs").unwrap().clone();
    assert_eq!((&hangs["status"], &hangs["failures"]), (&json!("failed"), &json!(1)), "{hangs}");

    for round in 0..6 {
        let command: &[&str] = [&["tools"][..], &["search", "add"], &["context"]][round % 3];
        assert_incomplete(&project.json(0, command), "it was not discovered within");
    }
    project.run(&["tools"]).assert_code(0).assert_stdout("well__add").assert_stderr("`hangs` failed");
}

#[test]
fn wait_zero_starts_no_discovery() {
    let project = hanging_project();
    let response = project.json(0, &["tools", "--wait", "0s"]);
    assert_eq!(response["missing"].as_array().unwrap().len(), 2, "{response}");
    assert_eq!(count_starts(&project), 0);
    project.run(&["tools", "--wait", "soon"]).assert_code(2).assert_stderr("write a duration such as `30s`");
    project.run(&["tools", "--wait", "1s", "--cached"]).assert_code(2);
    project.run(&["tools", "--wait", "0", "--source", "hangs"]).assert_stderr("the tools of `hangs` are unknown");
    project.run(&["tools", "--wait", "99999999999h", "--source", "well"]).assert_code(0).assert_stdout("well__add");
}

#[test]
fn a_complete_response_has_no_missing_field() {
    let project = TestProject::new("well: { command: SERVER }");
    for command in [&["tools"][..], &["search", "add"], &["context"]] {
        assert_eq!(project.json(0, command).get("missing"), None);
    }
}

#[test]
fn an_incomplete_list_is_not_locked() {
    let project = hanging_project();
    project.run(&["refresh", "well"]).assert_code(0);
    project.run(&["lock", "--wait", "1s"]).assert_code(1).assert_stderr("`hangs`");
    project
        .run(&["tools", "--wait", "1s"])
        .assert_code(0)
        .assert_stderr("`hangs` failed: it was not discovered within 1s");
    assert!(!project.path("project/toolcrib.lock").exists());
    project.write("toolcrib.lock", &project.run(&["lock", "--cached", "--json"]).assert_code(0).stdout);
    project.run(&["diff", "--ci", "--wait", "1s"]).assert_code(1).assert_stderr("no response in time from `hangs`");
}

#[test]
fn an_interrupt_prints_the_cached_tools() {
    let project = hanging_project();
    project.run(&["refresh", "well"]).assert_code(0);
    let child = spawn_toolcrib(&project, &["tools", "--json"]);
    wait_until("the hanging source to be started", || count_starts(&project) == 1);
    // The command registers its wait before it starts the server, so SIGINT ends the wait.
    send_signal("INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let response: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(response["tools"].as_array().unwrap().len(), 3, "{response}");
    assert_incomplete(&response, "it was not discovered within");
    assert_eq!(project.leftover_processes(), Vec::<String>::new());
}

/// Regression: a call of an unknown name waited for every hanging source.
#[test]
fn a_call_waits_only_for_its_own_source_and_within_its_timeout() {
    let project = hanging_project();
    project.run(&["call", "well__echo", "text=hello"]).assert_code(0).assert_stdout("hello");
    project
        .run(&["call", "nothing"])
        .assert_code(1)
        .assert_stderr("no tool named `nothing`; not discovered yet: `hangs`");
    project.run(&["call", "elsewhere__nothing"]).assert_code(1).assert_stderr("no tool named");
    project.run(&["call", "well__nothing"]).assert_code(1).assert_stderr("no tool named");
    assert_eq!(count_starts(&project), 0, "the hanging source was not started");
    project
        .run(&["call", "hangs__x", "--timeout", "1s"])
        .assert_code(1)
        .assert_stderr("it was not discovered within 1s");
    assert_incomplete(&project.json(0, &["tools"]), "it was not discovered within");
}

/// On a terminal a slow source is left to a background process that outlives the command.
#[test]
fn on_a_terminal_a_slow_source_is_discovered_in_the_background() {
    let project = TestProject::new(&format!(
        "well: {{ command: SERVER }}
         slow: {{ command: SERVER, args: [--delay-ms, \"3000\", --count-file, starts], cwd: ., {LONG_TIMEOUT_SETTING} }}"
    ));
    project.run(&["refresh", "well"]).assert_code(0);
    let home = project.path("home");
    let line = format!("{} --config toolcrib.yaml tools", env!("CARGO_BIN_EXE_toolcrib"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(project.path("project"));
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join(".config")).env("XDG_DATA_HOME", home.join("data"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("well__add") && !stdout.contains("slow__add"), "{stdout}");
    assert!(stdout.contains("still being discovered in the background: slow"), "{stdout}");
    wait_until("the background discovery", || {
        project.json(0, &["tools", "--cached"])["tools"].as_array().unwrap().len() == 6
    });
    assert_eq!(count_starts(&project), 2, "once for the command, once for the process it left it to");
    wait_until("all processes to end", || project.leftover_processes().is_empty());
}

/// Regression: a cached list was locked as if the source had responded.
#[test]
fn a_stale_list_of_a_hanging_source_is_not_locked() {
    let config = |more: &str| format!("turns: {{ command: SERVER, args: [{more}], ttl: 1ms, {LONG_TIMEOUT_SETTING} }}");
    let project = TestProject::new(&config(""));
    project.run(&["lock"]).assert_code(0);
    project.configure(&config("--hang, list"));
    project.run(&["lock", "--wait", "1s"]).assert_code(1).assert_stderr("`turns`");
    project.run(&["diff", "--ci", "--wait", "1s"]).assert_code(1).assert_stderr("`turns`");
}

#[test]
fn the_first_call_discovers_its_source_with_one_process() {
    let project = TestProject::new("well: { command: SERVER, args: [--count-file, starts], cwd: . }");
    project.run(&["call", "well__echo", "text=hello"]).assert_code(0).assert_stdout("hello");
    assert_eq!(count_starts(&project), 1);
}
