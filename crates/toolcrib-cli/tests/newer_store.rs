//! Commands and `serve` with a store written by a newer or an older version, through the real binary.

use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::http::{call_tool, request};
use crate::support::test_project::{TestProject, execute_sql};
use crate::support::test_server::{TestWorkspace, wait_until};

/// Appends a critical record of an unknown type, as a newer version would.
const INSERT_UNKNOWN_EVENT: &str = r#"INSERT INTO journal (seq, at, actor, body, critical, since)
    SELECT max(seq) + 1, 1, 'newer', '{"type":"ToolPainted","source":"one"}', 1, '0.9.0' FROM journal"#;

fn upgrade_message() -> String {
    format!(
        "the journal holds a record of type `ToolPainted` that Toolcrib 0.9.0 or newer wrote and that must not be \
         ignored; this is {}: upgrade Toolcrib",
        env!("CARGO_PKG_VERSION")
    )
}

#[test]
fn after_a_critical_unknown_record_commands_only_read() {
    let project = TestProject::new("one: { command: SERVER }");
    let listed = project.run(&["tools"]).assert_code(0).stdout.clone();
    if project.execute_sql(INSERT_UNKNOWN_EVENT).is_none() {
        return programs::skip("commands_read_on_and_refuse_to_act…", "there is no python3");
    }
    for arguments in [
        &["call", "one__echo", "text=hi"][..],
        &["disable", "one"],
        &["disable", "one__echo"],
        &["enable", "one__echo"],
        &["invalidate"],
        &["token", "create", "ci", "--role", "agent"],
        &["add", "two", "--url", "http://127.0.0.1:9/mcp"],
    ] {
        project.run(arguments).assert_code(1).assert_stderr(&format!("error: {}", upgrade_message()));
        let error = project.json(1, arguments)["error"].clone();
        assert_eq!((&error["code"], &error["retryable"]), (&json!("STORE_UNAVAILABLE"), &json!(false)), "{error}");
        let details = json!({"type": "ToolPainted", "since": "0.9.0", "version": env!("CARGO_PKG_VERSION")});
        assert_eq!((&error["message"], &error["details"]), (&json!(upgrade_message()), &details));
    }
    let refreshed = project.json(1, &["refresh", "--force"])["results"][0].clone();
    assert_eq!((&refreshed["contacted"], &refreshed["error"]["message"]), (&json!(false), &json!(upgrade_message())));

    assert_eq!(project.run(&["tools"]).assert_code(0).assert_stderr(&upgrade_message()).stdout, listed);
    project.run(&["search", "echo"]).assert_code(0).assert_stdout("one__echo");
    project.run(&["sources"]).assert_code(0).assert_stdout("one");
    project.run(&["history"]).assert_code(0).assert_stdout("unknown event `ToolPainted`, written by a newer Toolcrib");
    project.run(&["verify"]).assert_code(1).assert_stdout(&upgrade_message()).assert_stdout("the journal is complete");
    let verified = project.json(1, &["verify"]);
    assert_eq!((&verified["upgrade"], &verified["faults"]), (&json!(upgrade_message()), &json!([])));
    let checks = project.json(1, &["doctor"])["checks"].clone();
    let failed: Vec<&Value> = checks.as_array().unwrap().iter().filter(|check| check["status"] == "fail").collect();
    assert_eq!((failed.len(), &failed[0]["message"]), (1, &json!(upgrade_message())), "{checks}");

    // A changed configuration does not prevent reads.
    project.configure("two: { command: SERVER }");
    assert_eq!(project.run(&["tools", "--cached"]).assert_code(0).stdout, listed);
    project.run(&["history"]).assert_code(0).assert_stderr("changes of the configuration are not applied");
}

#[test]
fn a_running_server_refuses_calls_and_writes_after_a_critical_unknown_record() {
    let workspace = TestWorkspace::new(&json!({ "one": { "command": programs::scripted_server() } }), &json!({}));
    workspace.discover();
    let server = workspace.serve();
    let admin = std::fs::read_to_string(workspace.path("data/admin.token")).unwrap();
    let headers = format!("Content-Type: application/json\r\nAuthorization: Bearer {}\r\n", admin.trim());
    let post = |path: &str, body: &Value| request(&server.url, "POST", path, &headers, &body.to_string());
    let arguments = json!({"text": "hi"});
    let echo = json!({ "arguments": arguments });
    assert_eq!(post("/api/tools/one__echo/call", &echo).status, 200);
    assert_eq!(request(&server.url, "GET", "/readyz", "", "").status, 200);

    if execute_sql(&workspace.path("data/toolcrib.db"), INSERT_UNKNOWN_EVENT).is_none() {
        return programs::skip("a_server_that_runs_stops_calls…", "there is no python3");
    }
    wait_until("the record to be noticed", || request(&server.url, "GET", "/readyz", "", "").status == 503);
    for (path, body) in [
        ("/api/tools/one__echo/call", &echo),
        ("/api/sources/one/disable", &json!({})),
        ("/api/tools/one__echo/disable", &json!({})),
        ("/api/sources/one/invalidate", &json!({})),
        ("/api/tokens", &json!({"name": "ci", "role": "agent"})),
        ("/api/sources", &json!({"id": "two", "url": "http://127.0.0.1:9/mcp"})),
    ] {
        let response = post(path, body);
        assert_eq!(response.status, 503, "{path}: {response:?}");
        let error = response.json()["error"].clone();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!("STORE_UNAVAILABLE"), &json!(upgrade_message())),
            "{path}"
        );
        assert_eq!(error["retryable"], false, "{path}");
    }
    let result = call_tool(&server, "one__echo", &arguments, json!({}));
    assert_eq!(result["isError"], true);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("Toolcrib 0.9.0 or newer"), "{result}");
    let unready = request(&server.url, "GET", "/readyz", "", "");
    assert_eq!(unready.json()["error"]["message"], upgrade_message());
    assert!(request(&server.url, "GET", "/metrics", "", "").body.contains("\ntoolcrib_ready 0"));
    for path in ["/healthz", "/api/tools", "/api/sources", "/api/search?q=echo", "/api/history", "/"] {
        assert_eq!(request(&server.url, "GET", path, "", "").status, 200, "{path}");
    }

    // A server started now serves reads, and reports why it is not ready.
    drop(server);
    let server = workspace.serve();
    assert_eq!(request(&server.url, "GET", "/readyz", "", "").status, 503);
    assert_eq!(request(&server.url, "GET", "/api/tools", "", "").status, 200);
    // The administrator's token is in no journal.
    assert_eq!(request(&server.url, "GET", "/api/tokens", &headers, "").status, 200);
    let log = std::fs::read_to_string(workspace.path("serve.log")).unwrap();
    assert!(log.contains(&upgrade_message()), "{log}");
}

#[test]
fn concurrent_processes_migrate_an_old_store_once() {
    let workspace = TestWorkspace::new(&json!({ "core": { "builtin": ["current_time", "calculate"] } }), &json!({}));
    std::fs::create_dir(workspace.path("data")).unwrap();
    let old = include_str!("../../toolcrib/src/store/sqlite/version_1.sql");
    if execute_sql(&workspace.path("data/toolcrib.db"), old).is_none() {
        return programs::skip("processes_that_start_together…", "there is no python3");
    }
    let start = |_| {
        let mut command = workspace.toolcrib(&["history", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..6).map(start).collect();
    for process in started {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let history: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(history["records"].as_array().unwrap().len() >= 9, "{history}");
    }
    let verified = workspace.toolcrib(&["verify"]).stdin(Stdio::null()).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}
