//! Commands about a store in PostgreSQL through the real binary.

use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::postgres::{run_sql, shared_database};
use toolcrib_testkit::programs;

use crate::support::test_server::TestWorkspace;

/// A workspace with one source and a disabled tool, in the store of its data directory.
fn workspace() -> TestWorkspace {
    let workspace = TestWorkspace::new(&json!({ "one": { "command": programs::scripted_server() } }), &json!({}));
    workspace.discover();
    run(&workspace, 0, &["disable", "one__echo"]);
    workspace
}

/// Runs a command that must end with this exit code; returns its stdout, or for a failure its stderr.
#[track_caller]
fn run(workspace: &TestWorkspace, code: i32, arguments: &[&str]) -> String {
    let output = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stdout}\n{stderr}");
    if code == 0 { stdout } else { stderr }
}

#[track_caller]
fn run_json(workspace: &TestWorkspace, arguments: &[&str]) -> Value {
    serde_json::from_str(&run(workspace, 0, &[arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn a_store_is_copied_to_postgresql_and_back() {
    let Some(url) = shared_database() else {
        return programs::skip("a_store_is_copied_to_postgresql_and_back", "PostgreSQL is not installed");
    };
    let workspace = workspace();
    let data = workspace.path("data").to_str().unwrap().to_owned();
    let there = run_json(&workspace, &["store", "copy", "--from", &data, "--to", &url]);
    assert_eq!(there["verified"], true);
    // Such as after the command was killed before its output.
    assert_eq!(run_json(&workspace, &["store", "copy", "--from", &data, "--to", &url]), there);
    let verified = run_json(&workspace, &["verify", "--store", &url]);
    assert_eq!((&verified["records"], &verified["faults"]), (&there["records"], &json!([])));
    let tools = |store: &str| run_json(&workspace, &["tools", "--store", store]);
    let file = format!("sqlite:{data}/toolcrib.db");
    assert_eq!(tools(&url)["tools"], tools(&file)["tools"]);

    let target = format!("sqlite:{}", workspace.path("back/toolcrib.db").display());
    let back = run_json(&workspace, &["store", "copy", "--from", &url, "--to", &target]);
    let content = |report: &Value| ["records", "manifests", "features", "definitions"].map(|key| report[key].clone());
    assert_eq!(content(&back), content(&there));
    assert_eq!(run_json(&workspace, &["verify", "--store", &target])["faults"], json!([]));
    let history = |store: &str| run_json(&workspace, &["history", "--store", store]);
    assert_eq!(history(&target), history(&url));

    run(&workspace, 0, &["token", "create", "ci", "--role", "agent", "--store", &url]);
    let refused = run(&workspace, 1, &["store", "copy", "--from", &data, "--to", &url]);
    assert!(refused.contains("has records already"), "{refused}");
    let refused = run(&workspace, 2, &["store", "copy", "--from", &url, "--to", &url]);
    assert!(refused.contains("name the same store"), "{refused}");
    let refused = run(&workspace, 2, &["store", "copy", "--from", &data, "--to", &url, "--store", &url]);
    assert!(refused.contains("does not use `--store`"), "{refused}");
}

#[test]
fn a_database_is_backed_up_and_restored_into_an_empty_one() {
    let Some((url, other)) = shared_database().zip(shared_database()) else {
        return programs::skip("a_database_is_backed_up_and_restored_into_an_empty_one", "PostgreSQL is not installed");
    };
    let workspace = workspace();
    let data = workspace.path("data").to_str().unwrap().to_owned();
    let copied = run_json(&workspace, &["store", "copy", "--from", &data, "--to", &url]);
    let backup = workspace.path("backup.db").to_str().unwrap().to_owned();
    assert_eq!(run_json(&workspace, &["backup", &backup, "--store", &url])["records"], copied["records"]);
    assert_eq!(run_json(&workspace, &["restore", &backup, "--store", &other])["records"], copied["records"]);
    let verified = run_json(&workspace, &["verify", "--store", &other]);
    assert_eq!((&verified["records"], &verified["faults"]), (&copied["records"], &json!([])));
    run(&workspace, 0, &["token", "create", "ci", "--role", "agent", "--store", &other]);
    let refused = run(&workspace, 1, &["restore", &backup, "--store", &other]);
    assert!(refused.contains("has records already"), "{refused}");
}

#[test]
fn a_database_is_pruned_and_reports_its_schema() {
    let Some(url) = shared_database() else {
        return programs::skip("a_database_is_pruned_and_reports_its_schema", "PostgreSQL is not installed");
    };
    let workspace = workspace();
    let data = workspace.path("data").to_str().unwrap().to_owned();
    run(&workspace, 0, &["store", "copy", "--from", &data, "--to", &url]);
    let prune = |arguments: &[&str]| run(&workspace, 0, &[&["store", "prune", "--store", &url], arguments].concat());
    assert_eq!(prune(&[]).trim(), "there is nothing to remove");
    run_sql(&url, "INSERT INTO checks (source, at, body) VALUES ('gone', 1, '{}')");
    assert_eq!(prune(&["--dry-run"]).trim(), "would remove 1 check");
    assert_eq!(prune(&[]).trim(), "removed 1 check");
    assert_eq!(run_sql(&url, "SELECT count(*) FROM checks WHERE source = 'gone'"), "0");
    assert_eq!(run_json(&workspace, &["verify", "--store", &url])["faults"], json!([]));
    let migrated = run(&workspace, 0, &["store", "migrate", "--contract", "--store", &url]);
    assert!(migrated.starts_with("the store has schema version "), "{migrated}");
    assert_eq!(run_json(&workspace, &["store", "migrate", "--store", &url])["contract_pending"], false);
}

/// A workspace with built-in tools, without a store, and with the file of another client.
fn reading_workspace() -> TestWorkspace {
    let workspace = TestWorkspace::new(&json!({ "core": { "builtin": ["calculate"] } }), &json!({}));
    let client_file = json!({ "mcpServers": { "files": { "command": "files-server" } } });
    std::fs::write(workspace.path("mcp.json"), client_file.to_string()).unwrap();
    workspace
}

#[test]
fn commands_that_only_read_create_no_tables() {
    let Some(url) = shared_database() else {
        return programs::skip("commands_that_only_read_create_no_tables", "PostgreSQL is not installed");
    };
    let workspace = reading_workspace();
    for command in [
        &["config"][..],
        &["export"],
        &["describe", "core__calculate", "--at", "1d"],
        &["import", "mcp.json", "--dry-run"],
    ] {
        let output = workspace.toolcrib(&[command, &["--store", &url]].concat()).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("there are no tables in the store"), "{command:?}: {stderr}");
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(run_sql(&url, tables), "0");
    run(&workspace, 0, &["sources", "--store", &url]);
    assert_ne!(run_sql(&url, tables), "0");
    let exported = run(&workspace, 0, &["export", "--store", &url]);
    assert!(exported.contains("calculate"), "{exported}");
}

/// Nothing listens at the port.
#[test]
fn commands_that_need_no_records_work_while_the_database_is_down() {
    let workspace = reading_workspace();
    let down = ["--store", "postgres://me@127.0.0.1:1/team"];
    for command in [&["config"][..], &["import", "mcp.json", "--dry-run"]] {
        let output = workspace.toolcrib(&[command, &down].concat()).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let warning = "warning: nothing stored is shown: the store `postgres://me@127.0.0.1:1/team` cannot be reached";
        assert!(stderr.contains(warning), "{command:?}: {stderr}");
        assert!(output.status.success(), "{stderr}");
    }
    for command in [&["export"][..], &["describe", "core__calculate", "--at", "1d"], &["sources"]] {
        let stderr = run(&workspace, 1, &[command, &down].concat());
        assert!(stderr.contains("cannot be reached"), "{command:?}: {stderr}");
    }
}
