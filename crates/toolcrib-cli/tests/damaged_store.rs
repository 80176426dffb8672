//! Commands, `serve` and `verify --accept-damage` with a damaged store, through the real binary.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::http::{call_tool, request};
use crate::support::test_project::execute_sql;
use crate::support::test_server::{ServeProcess, TestWorkspace, read_or_empty, wait_until};

const JSON: &str = "Content-Type: application/json\r\n";

/// A workspace with one source, a valid and a revoked token, and a disabled tool.
struct DamageFixture {
    workspace: TestWorkspace,
    valid_token: String,
    revoked_token: String,
}

impl DamageFixture {
    fn new() -> DamageFixture {
        let workspace = TestWorkspace::new(&json!({ "one": { "command": programs::scripted_server() } }), &json!({}));
        workspace.discover();
        let create =
            |name: &str, role: &str| run(&workspace, 0, &["token", "create", name, "--role", role]).trim().to_owned();
        let valid = create("valid", "admin");
        let revoked = create("revoked", "admin");
        run(&workspace, 0, &["disable", "one__echo"]);
        run(&workspace, 0, &["token", "revoke", "revoked"]);
        DamageFixture { workspace, valid_token: valid, revoked_token: revoked }
    }

    fn admin_token(&self) -> String {
        fs::read_to_string(self.workspace.path("data/admin.token")).unwrap().trim().to_owned()
    }

    fn database_files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.workspace.path("data"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("toolcrib.db"))
            .collect();
        names.sort();
        names
    }
}

/// Runs a command that must end with this exit code; returns its stdout.
#[track_caller]
fn run(workspace: &TestWorkspace, code: i32, arguments: &[&str]) -> String {
    let output = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stdout}\n{stderr}");
    stdout
}

fn bearer_headers(token: &str) -> String {
    format!("{JSON}Authorization: Bearer {token}\r\n")
}

fn readiness(server: &ServeProcess) -> (u16, Value) {
    let response = request(&server.url, "GET", "/readyz", "", "");
    (response.status, response.json()["store"]["state"].clone())
}

/// Asserts that every request with a stored token gets 503 (neither access nor 401), and every call as well.
#[track_caller]
fn assert_refuses_all_access(fixture: &DamageFixture, server: &ServeProcess) {
    for token in [&fixture.valid_token, &fixture.revoked_token, "tcb_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        for (method, path, body) in [
            ("GET", "/api/tools", ""),
            ("GET", "/api/whoami", ""),
            ("GET", "/api/tokens", ""),
            ("POST", "/api/tools/one__add/call", r#"{"arguments":{"a":1,"b":2}}"#),
            ("POST", "/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
            ("GET", "/metrics", ""),
        ] {
            let response = request(&server.url, method, path, &bearer_headers(token), body);
            assert_eq!(response.status, 503, "{path}: {response:?}");
            assert_eq!(response.json()["error"]["code"], "STORE_UNAVAILABLE", "{path}: {response:?}");
            assert!(!response.body.contains("toolcrib.db"), "{path}: it tells of this machine: {response:?}");
        }
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        assert_eq!(request(&server.url, "POST", "/login", form, &format!("token={token}")).status, 503);
    }
    for token in [None, Some(fixture.admin_token())] {
        let headers = token.map_or_else(|| JSON.to_owned(), |token| bearer_headers(&token));
        for path in ["/api/tools", "/api/sources", "/api/history", "/api/stats", "/metrics"] {
            assert_eq!(request(&server.url, "GET", path, &headers, "").status, 200, "{path}");
        }
        let called =
            request(&server.url, "POST", "/api/tools/one__add/call", &headers, r#"{"arguments":{"a":1,"b":2}}"#);
        assert_eq!((called.status, &called.json()["error"]["code"]), (503, &json!("STORE_UNAVAILABLE")));
    }
    for (path, body) in [("/api/sources/one/disable", "{}"), ("/api/tokens", r#"{"name":"new","role":"admin"}"#)] {
        let response = request(&server.url, "POST", path, &bearer_headers(&fixture.admin_token()), body);
        assert_eq!((response.status, &response.json()["error"]["code"]), (503, &json!("STORE_UNAVAILABLE")), "{path}");
    }
    let result = call_tool(server, "one__add", &json!({"a": 1, "b": 2}), json!({}));
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("STORE_UNAVAILABLE"), "{result}");
    let page = request(&server.url, "GET", "/", "Accept: text/html\r\n", "");
    assert!(page.body.contains("The store cannot be used"), "{page:?}");
}

#[test]
fn after_a_lost_revocation_all_access_is_refused_until_accepted() {
    let fixture = DamageFixture::new();
    let workspace = &fixture.workspace;
    let delete_record = "DELETE FROM journal WHERE body LIKE '%TokenRevoked%'";
    if execute_sql(&workspace.path("data/toolcrib.db"), delete_record).is_none() {
        return programs::skip("a_lost_revocation…", "there is no python3");
    }
    let mut server = workspace.serve();
    assert_eq!(readiness(&server), (503, json!("damaged")));
    assert_refuses_all_access(&fixture, &server);
    let tools = request(&server.url, "GET", "/api/tools", "", "").body;
    assert!(tools.contains("one__add"), "there were no rules, so nothing is withheld: {tools}");
    let metrics = request(&server.url, "GET", "/metrics", "", "").body;
    assert!(metrics.contains("\ntoolcrib_ready 0") && metrics.contains("\ntoolcrib_store{state=\"damaged\"} 1"));

    let verified = run(workspace, 1, &["verify"]);
    assert!(verified.contains("fault: the end is missing: the journal ends with record "), "{verified}");
    assert!(verified.contains("verify --accept-damage"), "{verified}");
    let verified: Value = serde_json::from_str(&run(workspace, 1, &["verify", "--json"])).unwrap();
    assert_eq!(
        (&verified["store"], verified["damage"].as_array().unwrap().len()),
        (&json!("damaged"), 1),
        "{verified}"
    );
    assert!(run(workspace, 0, &["tools"]).contains("one__add"));
    for refused in [&["call", "one__add", "a=1", "b=2"][..], &["disable", "one"], &["token", "revoke", "valid"]] {
        run(workspace, 1, refused);
    }
    let checks: Value = serde_json::from_str(&run(workspace, 1, &["doctor", "--json"])).unwrap();
    assert!(checks["checks"].as_array().unwrap().iter().any(|check| check["status"] == "fail"), "{checks}");

    let accepted = run(workspace, 0, &["verify", "--accept-damage"]);
    for expected in
        ["every stored token is revoked; known by name: revoked, valid", "tools disabled: one/echo", "is complete"]
    {
        assert!(accepted.contains(expected), "{expected}: {accepted}");
    }
    assert!(run(workspace, 0, &["verify"]).contains("accepted before: record "));
    // The running server recovers without a restart.
    wait_until("readiness", || readiness(&server) == (200, json!("ok")));
    for token in [&fixture.valid_token, &fixture.revoked_token] {
        assert_eq!(request(&server.url, "GET", "/api/tools", &bearer_headers(token), "").status, 401);
    }
    assert_ne!(call_tool(&server, "one__add", &json!({"a": 1, "b": 2}), json!({}))["isError"], true);
    assert_eq!(
        call_tool(&server, "one__echo", &json!({"text": "x"}), json!({}))["isError"],
        true,
        "it is still disabled"
    );
    server.signal("TERM");
    assert!(server.wait_for_exit().success());
}

type CorruptFile = fn(&Path);

#[test]
fn a_missing_or_corrupt_store_is_not_recreated() {
    let spoil: [(&str, CorruptFile); 4] = [
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("damaged", |path| fs::write(path, "").unwrap()),
        ("damaged", |path| fs::write(path, "no database ".repeat(2_000)).unwrap()),
        ("damaged", |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(40_000).unwrap()),
    ];
    for (state, spoil) in spoil {
        let fixture = DamageFixture::new();
        let workspace = &fixture.workspace;
        let file = workspace.path("data/toolcrib.db");
        spoil(&file);
        let before = (fixture.database_files(), fs::read(&file).ok());
        let server = workspace.serve();
        assert_eq!(readiness(&server), (503, json!(state)));
        assert_refuses_all_access(&fixture, &server);
        drop(server);
        for (code, command) in [
            (0, &["tools", "--cached"][..]),
            (0, &["sources"]),
            (0, &["refresh"]),
            (0, &["history"]),
            (0, &["stats"]),
            (1, &["verify"]),
            (1, &["doctor"]),
            (1, &["disable", "one"]),
            (1, &["token", "create", "new", "--role", "admin"]),
        ] {
            let stdout = run(workspace, code, command);
            // What was declared may be lost with the records, so nothing invites to declare it.
            let hints = ["no sources yet", "no tools yet", "none yet"];
            assert!(!hints.iter().any(|hint| stdout.contains(hint)), "{command:?}: {stdout}");
        }
        let verified: Value = serde_json::from_str(&run(workspace, 1, &["verify", "--json"])).unwrap();
        assert_eq!(verified["store"], state, "{verified}");
        let after: Vec<String> = fixture.database_files().into_iter().filter(|name| !name.contains('-')).collect();
        assert_eq!((after, fs::read(&file).ok()), before, "{state}: nothing is written or created");

        let accepted: Value =
            serde_json::from_str(&run(workspace, 0, &["verify", "--accept-damage", "--json"])).unwrap();
        let moved_aside = &accepted["acceptance"]["set_aside"];
        assert_eq!(
            moved_aside.as_str().is_some_and(|moved_aside| Path::new(moved_aside).exists()),
            before.1.is_some(),
            "{accepted}"
        );
        run(workspace, 0, &["refresh", "--force"]);
        run(workspace, 0, &["verify"]);
        run(workspace, 0, &["call", "one__add", "a=1", "b=2"]);
        let server = workspace.serve();
        assert_eq!(readiness(&server), (200, json!("ok")));
        for token in [&fixture.valid_token, &fixture.revoked_token] {
            assert_eq!(request(&server.url, "GET", "/api/tools", &bearer_headers(token), "").status, 401);
        }
    }
}

#[test]
fn a_server_refuses_writes_while_its_store_is_missing() {
    let fixture = DamageFixture::new();
    let server = fixture.workspace.serve();
    let file = fixture.workspace.path("data/toolcrib.db");
    let moved_aside = fixture.workspace.path("data/aside");
    fs::rename(&file, &moved_aside).unwrap();
    let disable =
        || request(&server.url, "POST", "/api/sources/one/disable", &bearer_headers(&fixture.admin_token()), "{}");
    assert_eq!((disable().status, &disable().json()["error"]["code"]), (503, &json!("STORE_UNAVAILABLE")));
    wait_until("the damage to be noticed", || readiness(&server) == (503, json!("missing")));
    assert_eq!(request(&server.url, "GET", "/api/tools", "", "").status, 200);
    assert!(!file.exists(), "no new file is created");
    fs::rename(&moved_aside, &file).unwrap();
    wait_until("the store to be back", || readiness(&server) == (200, json!("ok")));
    assert_eq!(disable().status, 200);
}

/// Regression: a reload that could not apply its rules had already admitted the callers that they were for.
#[test]
fn a_reload_that_fails_takes_access_away_but_admits_no_new_callers() {
    let workspace = TestWorkspace::new(&json!({ "core": { "builtin": "all" } }), &json!({}));
    let server = workspace.serve();
    // Well-formed and wrong: the reason tells whether there are issuers.
    let access_token = "Authorization: Bearer eyJhbGciOiJub25lIn0.e30.\r\n";
    let whoami = |headers: &str| request(&server.url, "GET", "/api/whoami", headers, "");
    assert_eq!(whoami("").status, 200);
    let [file, moved_aside] = ["data/toolcrib.db", "data/aside"].map(|name| workspace.path(name));
    fs::rename(&file, &moved_aside).unwrap();
    let config = json!({
        "sources": { "core": { "builtin": "all" } },
        "identity": { "loopback": "token", "issuers": [{ "issuer": "https://id.example", "roles": { "default": "agent" } }] },
        "policies": [{ "name": "none", "match": { "source": "core" }, "verdict": "hide" }],
    });
    fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    let log = || read_or_empty(&workspace.path("serve.log"));
    wait_until("the reload to fail", || log().contains("the reload is tried again"));
    assert_eq!(whoami("").status, 401, "`identity.loopback` is stricter at once");
    assert!(whoami(access_token).body.contains("accepts no tokens of identity providers"));
    fs::rename(&moved_aside, &file).unwrap();
    wait_until("the reload", || log().contains("configuration reloaded"));
    assert!(whoami(access_token).body.contains("its signature algorithm is not accepted"));
}

/// A console session is only as valid as the token it was created with.
#[test]
fn a_console_session_is_refused_while_the_journal_is_damaged() {
    let fixture = DamageFixture::new();
    let server = fixture.workspace.serve();
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let signed_in = request(&server.url, "POST", "/login", form, &format!("token={}", fixture.valid_token));
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let whoami = || request(&server.url, "GET", "/api/whoami", &format!("Cookie: {cookie}\r\n"), "");
    assert_eq!(whoami().json()["name"], "valid");
    let delete_record = "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)";
    if execute_sql(&fixture.workspace.path("data/toolcrib.db"), delete_record).is_none() {
        return programs::skip("a_session_of_a_stored_token…", "there is no python3");
    }
    wait_until("the damage to be noticed", || readiness(&server) == (503, json!("damaged")));
    assert_eq!((whoami().status, &whoami().json()["error"]["code"]), (503, &json!("STORE_UNAVAILABLE")));
}
