//! `toolcrib serve` on PostgreSQL: several servers on one database, and a database that hangs, goes down and comes back.

use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_testkit::postgres::{PostgresServer, StopMode, run_sql, shared_database};
use toolcrib_testkit::programs;

use crate::support::http::{MCP_HEADERS, RawHttpResponse, mcp_request, request};
use crate::support::test_server::{ServeProcess, TestWorkspace, read_or_empty, send_signal, wait_until};

/// A data directory with one source, for one node.
fn workspace() -> TestWorkspace {
    let source = json!({ "command": programs::scripted_server(), "args": ["--with", "elicit"] });
    TestWorkspace::new(&json!({ "one": source }), &json!({ "mode": "full" }))
}

#[track_caller]
fn serve(workspace: &TestWorkspace, store: &str, node: &str) -> ServeProcess {
    workspace.start_listening(&["serve", "--listen", "127.0.0.1:0", "--store", store, "--node", node])
}

fn get(server: &ServeProcess, path: &str) -> RawHttpResponse {
    request(&server.url, "GET", path, "", "")
}

/// Sends a request with the administrator's token.
fn send_as_admin(workspace: &TestWorkspace, server: &ServeProcess, method: &str, path: &str) -> RawHttpResponse {
    let token = read_or_empty(&workspace.path("data/admin.token"));
    let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", token.trim());
    request(&server.url, method, path, &headers, "{}")
}

fn position(response: &RawHttpResponse) -> u64 {
    response.header("x-toolcrib-position").unwrap().parse().unwrap()
}

#[test]
fn servers_that_start_at_once_on_an_empty_database_share_it() {
    let Some(url) = shared_database() else {
        return programs::skip(
            "servers_that_start_at_once_on_an_empty_database_share_it",
            "PostgreSQL is not installed",
        );
    };
    let workspaces = [workspace(), workspace()];
    let [one, other] = thread::scope(|scope| {
        let url = &url;
        let starts = [("a", &workspaces[0]), ("b", &workspaces[1])];
        let starts = starts.map(|(node, workspace)| scope.spawn(move || serve(workspace, url, node)));
        starts.map(|start| start.join().unwrap())
    });
    for server in [&one, &other] {
        assert_eq!(get(server, "/readyz").expect_json(200)["status"], "ready");
    }
    let changed = send_as_admin(&workspaces[0], &one, "POST", "/api/sources/one/disable");
    assert_eq!(changed.status, 200, "{changed:?}");
    let read = get(&other, &format!("/api/sources/one?min_position={}", position(&changed)));
    assert_eq!(read.expect_json(200)["enabled"], false);
    wait_until("both nodes are listed", || {
        let sources = send_as_admin(&workspaces[1], &other, "GET", "/api/sources").expect_json(200);
        let labels: Vec<&str> =
            sources["nodes"].as_array().unwrap().iter().map(|node| node["label"].as_str().unwrap()).collect();
        labels == ["a", "b"]
    });
    let command = |arguments: &[&str]| {
        let output = workspaces[0].toolcrib(&[&["sources", "--store", &url], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let listed: Value = serde_json::from_str(&command(&["--json"])).unwrap();
    let nodes = listed["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2, "{listed}");
    for (node, label) in nodes.iter().zip(["a", "b"]) {
        assert_eq!((&node["label"], &node["alive"]), (&json!(label), &json!(true)), "{listed}");
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
        // A node may not have reported its last position yet.
        let (position_of_node, lag) = (node["position"].as_u64().unwrap(), node["lag"].as_u64().unwrap());
        assert_eq!(position_of_node + lag, position(&changed), "{listed}");
    }
    let table = command(&[]);
    for cell in ["NODE", "VERSION", "POSITION", "LAG", env!("CARGO_PKG_VERSION")] {
        assert!(table.to_uppercase().contains(cell), "{cell}: {table}");
    }
}

#[test]
fn a_suspended_request_of_another_node_is_reported_as_lost() {
    let Some(url) = shared_database() else {
        return programs::skip(
            "a_suspended_request_of_another_node_is_reported_as_lost",
            "PostgreSQL is not installed",
        );
    };
    let workspaces = [workspace(), workspace()];
    let (one, other) = (serve(&workspaces[0], &url, "a"), serve(&workspaces[1], &url, "b"));
    send_as_admin(&workspaces[0], &one, "POST", "/api/refresh").expect_json(200);
    let capabilities = json!({ "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } });
    let call = json!({ "name": "one__elicit", "arguments": {}, "_meta": capabilities });
    let suspended = mcp_request(&one, "tools/call", call.clone(), "");
    assert_eq!(suspended["resultType"], "input_required", "{suspended}");
    let state = suspended["requestState"].as_str().unwrap();

    let mut params = call;
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
    params["requestState"] = json!(state);
    params["inputResponses"] = json!({});
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let headers = format!("{MCP_HEADERS}Mcp-Method: tools/call\r\nMcp-Name: one__elicit\r\n");
    let answer: Value = request(&other.url, "POST", "/mcp", &headers, &body).json();
    let error = &answer["error"];
    assert_eq!(error["data"]["retryable"], true, "{answer}");
    assert!(error["message"].as_str().unwrap().contains("was suspended in another process and is lost"), "{answer}");
}

#[test]
fn a_server_ends_with_an_error_when_its_database_hangs() {
    let Some(mut database) = PostgresServer::start() else {
        return programs::skip("a_server_ends_with_an_error_when_its_database_hangs", "PostgreSQL is not installed");
    };
    let url = database.create_database();
    let workspace = workspace();
    let check = |stderr: String, reason: &str| {
        assert!(stderr.starts_with("error: the store `postgres://postgres@127.0.0.1:"), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    };
    database.pause();
    check(failed_start(&workspace, &url, || {}), "did not answer within 5s; try again");
    database.resume();

    // Hangs in the middle of the start, when it waits for the lock under which tables are created.
    let lock = format!("SELECT pg_advisory_lock({MIGRATION_LOCK}), pg_sleep(600)");
    let holder_url = url.clone();
    // Ends with the database.
    thread::spawn(move || run_sql(&holder_url, &lock));
    let lock_count = |granted: &str| {
        run_sql(&url, &format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = {granted}"))
    };
    wait_until("the lock is held", || lock_count("true") == "1");
    let pause_during_start = || {
        wait_until("the start waits for the lock", || lock_count("false") == "1");
        database.pause();
    };
    check(failed_start(&workspace, &url, pause_during_start), "did not answer within 5s; try again");
    database.resume();

    database.stop(StopMode::Immediate);
    check(failed_start(&workspace, &url, || {}), "cannot be reached; check that the database is running");
    database.start_again();
    let server = serve(&workspace, &url, "a");
    assert_eq!(get(&server, "/readyz").expect_json(200)["status"], "ready");
}

/// Key of the lock under which the schema is changed.
const MIGRATION_LOCK: &str = "x'746f6f6c63726962'::bigint";
/// Far more than the 10 s within which a start without its store ends.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a server that must end with an error within [`WATCHDOG_TIMEOUT`], and returns its stderr.
#[track_caller]
fn failed_start(workspace: &TestWorkspace, url: &str, meanwhile: impl FnOnce()) -> String {
    let mut command = workspace.toolcrib(&["serve", "--listen", "127.0.0.1:0", "--store", url]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process_id = child.id();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    meanwhile();
    let Ok(output) = ended.recv_timeout(WATCHDOG_TIMEOUT) else {
        send_signal("KILL", process_id);
        panic!("the start hangs");
    };
    let output = output.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{stderr}");
    stderr
}

#[test]
fn the_store_in_use_is_shown_without_its_password() {
    let Some(url) = shared_database() else {
        return programs::skip("the_store_in_use_is_shown_without_its_password", "PostgreSQL is not installed");
    };
    let (_, rest) = url.split_once('@').unwrap();
    // The databases of tests accept any password.
    let (with_password, masked) = (format!("postgres://postgres:hunter2@{rest}"), format!("postgres://***@{rest}"));
    let workspace = workspace();
    let configure = |store: &str| {
        let config = json!({ "sources": {}, "store": store });
        std::fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    };
    configure(&with_password);
    let server = workspace.serve();
    let config = send_as_admin(&workspace, &server, "GET", "/api/config");
    assert!(!config.body.contains("hunter2"), "{config:?}");
    let store = config.expect_json(200)["store"].clone();
    assert_eq!((&store["value"], store.get("restart")), (&json!(masked), None));
    assert!(store["origin"].as_str().unwrap().contains("toolcrib.json:1"), "{store}");
    assert_eq!(get(&server, "/api/config").expect_json(200)["store"]["value"], "postgres");

    configure("sqlite:elsewhere.db");
    let mut store = json!(null);
    wait_until("the configuration is reloaded", || {
        store = send_as_admin(&workspace, &server, "GET", "/api/config").expect_json(200)["store"].clone();
        store.get("restart").is_some()
    });
    assert_eq!(store["value"], masked, "the store of the start stays in use");

    let printed = workspace.toolcrib(&["config", "--json", "--store", &with_password]).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let store = serde_json::from_str::<Value>(&printed).unwrap()["store"].clone();
    assert_eq!(store, json!({ "value": masked, "origin": "--store" }));
    assert!(!printed.contains("hunter2"));
}

#[test]
fn a_server_goes_on_without_its_database_and_misses_nothing() {
    let name = "a_server_goes_on_without_its_database_and_misses_nothing";
    let Some(mut database) = PostgresServer::start() else {
        return programs::skip(name, "PostgreSQL is not installed");
    };
    let url = database.create_database();
    let workspaces = [workspace(), workspace()];
    let (one, other) = (serve(&workspaces[0], &url, "a"), serve(&workspaces[1], &url, "b"));
    let refreshed = send_as_admin(&workspaces[0], &one, "POST", "/api/refresh");
    refreshed.expect_json(200);
    let before = get(&other, &format!("/api/tools?min_position={}", position(&refreshed)));
    let tools = before.expect_json(200);

    database.stop(StopMode::Fast);
    for server in [&one, &other] {
        wait_until("the node is degraded", || get(server, "/readyz").expect_json(200)["status"] == "degraded");
        assert_eq!(get(server, "/readyz").expect_json(200)["store"]["state"], "down");
    }
    // The address and the name of the database are no business of agents, which these requests are from.
    let (server_address, _) = url.strip_prefix("postgres://postgres@").unwrap().split_once('/').unwrap();
    let database_name = url.rsplit('/').next().unwrap();
    let assert_private = |response: &RawHttpResponse| {
        assert!(!response.body.contains(server_address), "{response:?}");
        assert!(!response.body.contains(database_name), "{response:?}");
        assert!(response.header("x-toolcrib-stale").is_some(), "{response:?}");
    };
    for path in ["/api/tools", "/api/search?q=echo", "/api/sources", "/api/sources/one", "/api/tools/one__echo"] {
        let response = get(&other, path);
        assert_eq!(response.status, 200, "{path}: {response:?}");
        assert_private(&response);
    }
    assert_eq!(get(&other, "/api/tools").expect_json(200), tools);
    let post = |path: &str| request(&other.url, "POST", path, "Content-Type: application/json\r\n", "{}");
    let called = request(
        &other.url,
        "POST",
        "/api/tools/one__echo/call",
        "Content-Type: application/json\r\n",
        r#"{"arguments": {"text": "hi"}}"#,
    );
    assert_eq!(called.status, 200, "{called:?}");
    for response in [post("/api/refresh"), post("/api/sources/one/refresh"), get(&other, "/api/history?after=0")] {
        assert_private(&response);
    }
    let refused = post("/api/sources/one/refresh?force=true");
    assert!(refused.body.contains("STORE_UNAVAILABLE"), "{refused:?}");
    assert_private(&refused);
    for response in [get(&other, "/"), get(&other, "/sources/one")] {
        assert_private(&response);
    }
    let listed = mcp_request(&other, "tools/list", json!({}), "");
    assert!(listed["tools"].to_string().contains("one__echo") && !listed.to_string().contains(database_name));
    let failed = mcp_request(&other, "tools/call", json!({ "name": "one__missing", "arguments": {} }), "");
    assert!(!failed.to_string().contains(server_address) && !failed.to_string().contains(database_name), "{failed}");
    let written = send_as_admin(&workspaces[1], &other, "POST", "/api/sources/one/disable");
    assert_eq!((written.status, written.error_code().as_str()), (503, "STORE_UNAVAILABLE"), "{written:?}");

    database.start_again();
    for server in [&one, &other] {
        wait_until("the node is ready", || get(server, "/readyz").expect_json(200)["status"] == "ready");
    }
    for number in 0..6 {
        let action = if number % 2 == 0 { "disable" } else { "enable" };
        let written = send_as_admin(&workspaces[0], &one, "POST", &format!("/api/sources/one/{action}"));
        assert_eq!(written.status, 200, "{written:?}");
        let read = get(&other, &format!("/api/sources/one?min_position={}", position(&written)));
        assert_eq!(read.expect_json(200)["enabled"], number % 2 != 0);
    }
    let history = |server: &ServeProcess| get(server, "/api/history").expect_json(200)["records"].clone();
    assert_eq!(history(&one), history(&other));
    assert_eq!(get(&one, "/api/tools").body, get(&other, "/api/tools").body);
}
