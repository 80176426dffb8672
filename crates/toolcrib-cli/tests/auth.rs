//! Authentication of `toolcrib serve` with the real binary: tokens, the console login link, and rejected requests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use crate::support::http::request;
use crate::support::test_server::{TestWorkspace, read_or_empty, wait_until};

fn test_workspace() -> TestWorkspace {
    TestWorkspace::new(&json!({ "one": { "command": programs::scripted_server() } }), &json!({}))
}

fn run(workspace: &TestWorkspace, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = workspace.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[track_caller]
fn create_token(workspace: &TestWorkspace, arguments: &[&str]) -> String {
    let (code, token, stderr) = run(workspace, &[&["token", "create"], arguments].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("shown this once") && !stderr.contains(token.trim()), "{stderr}");
    token.trim().to_owned()
}

fn bearer_header(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_token_can_be_created_listed_and_revoked_and_is_printed_once() {
    let workspace = test_workspace();
    assert!(run(&workspace, &["token", "list"]).1.contains("there are no tokens"));
    let token = create_token(&workspace, &["ci", "--role", "agent", "--expires", "30d"]);
    assert!(token.starts_with("tcb_") && token.len() == 47, "{token}");
    create_token(&workspace, &["--role", "viewer"]);
    let (code, created, _) = run(&workspace, &["token", "create", "boss", "--role", "admin", "--json"]);
    let created: Value = serde_json::from_str(&created).unwrap();
    assert_eq!(
        (code, &created["name"], &created["role"], &created["expires_at"]),
        (0, &json!("boss"), &json!("admin"), &json!(null))
    );
    assert!(created["token"].as_str().unwrap().starts_with("tcb_") && created["id"].is_string(), "{created}");
    for (arguments, code, says) in [
        (&["create", "ci", "--role", "viewer"][..], 1, "already"),
        (&["create", "a b", "--role", "viewer"], 2, "not a valid token name"),
        (&["create", "x", "--role", "root"], 2, "invalid value"),
        (&["create", "x"], 2, "--role"),
        (&["create", "x", "--role", "agent", "--expires", "soon"], 2, "30d"),
        (&["revoke", "nobody"], 2, "no token named"),
    ] {
        let (got, _, stderr) = run(&workspace, &[&["token"], arguments].concat());
        assert!(got == code && stderr.contains(says), "{arguments:?}: {got} {stderr}");
    }
    let (_, listed, _) = run(&workspace, &["token", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(run(&workspace, &["token", "revoke", created["id"].as_str().unwrap()]).1, "revoked `boss` (admin)\n");
    let (_, table, _) = run(&workspace, &["token", "list"]);
    assert!(table.contains("ci") && table.contains("agent") && !table.contains("boss"), "{table}");

    let (_, history, _) = run(&workspace, &["history"]);
    assert!(history.contains("token `ci` created (agent)") && history.contains("token `boss` revoked"), "{history}");
    let everything = format!("{history}{table}{listed}{}", run(&workspace, &["history", "--json"]).1);
    assert!(!everything.contains(&token) && !everything.contains("hash\""), "{everything}");
}

#[test]
fn a_token_has_groups_and_claims() {
    let workspace = test_workspace();
    let group = workspace.path("group.json");
    fs::write(&group, "{}").unwrap();
    for name in ["support", "docs"] {
        let (code, _, stderr) = run(&workspace, &["group", "set", name, "--file", group.to_str().unwrap()]);
        assert_eq!(code, 0, "{stderr}");
    }
    let create = ["token", "create", "desk", "--role", "agent", "--group", "support", "--group", "docs"];
    let claims = ["--claim", "team=desk=1", "--claim", r#"regions:=["eu","uk"]"#, "--claim", "level:=2"];
    let (code, created, stderr) = run(&workspace, &[&create[..], &claims, &["--json"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let created: Value = serde_json::from_str(&created).unwrap();
    let expected = json!({ "team": "desk=1", "regions": ["eu", "uk"], "level": 2 });
    assert_eq!((&created["groups"], &created["claims"]), (&json!(["docs", "support"]), &expected));
    assert!(stderr.contains("(agent, groups: docs, support)"), "{stderr}");
    for (options, says) in [
        (&["--group", "Support"][..], "not a valid group name"),
        (&["--group", "x"], "no group named `x`; `toolcrib group list` lists the groups"),
        (&["--group", "suport"], "no group named `suport`; did you mean `support`?"),
        (&["--claim", "secret"], "--claim KEY=VALUE"),
        (&["--claim", "team=secret", "--claim", "team=b"], "`team` is given twice"),
        (&["--claim", "team=secret", "--claim", "team:=1"], "`team` is given twice"),
        (&["--claim", "team:=secret"], "`team` is not JSON"),
        (&["--claim", "=secret"], "name of a claim"),
        (&["--claim", "sub=secret"], "`sub` is reserved"),
        (&["--claim", "caller.role=secret"], "`caller.role` is reserved"),
    ] {
        let (code, _, stderr) = run(&workspace, &[&["token", "create", "x", "--role", "agent"], options].concat());
        assert!(code == 2 && stderr.contains(says) && !stderr.contains("secret"), "{options:?}: {code} {stderr}");
    }
    let (_, table, _) = run(&workspace, &["token", "list"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "ROLE", "GROUPS", "ID", "EXPIRES", "LAST", "USED"]);
    assert_eq!(lines[1], ["desk", "agent", "docs,", "support", created["id"].as_str().unwrap(), "never", "never"]);
    let history = format!("{}{}", run(&workspace, &["history"]).1, run(&workspace, &["history", "--json"]).1);
    assert!(history.contains("token `desk` created (agent, groups: docs, support)"), "{history}");
    assert!(!history.contains("regions"), "{history}");
}

#[test]
fn the_last_use_of_a_token_reaches_other_processes_and_survives_a_restart() {
    let workspace = test_workspace();
    let token = bearer_header(&create_token(&workspace, &["ci", "--role", "viewer"]));
    let last_used = || {
        let listed: Value = serde_json::from_str(&run(&workspace, &["token", "list", "--json"]).1).unwrap();
        listed["tokens"][0]["last_used"].clone()
    };
    assert_eq!(last_used(), Value::Null);
    let server = workspace.serve();
    assert_eq!(request(&server.url, "GET", "/api/sources", &token, "").status, 200);
    // The command is another process.
    wait_until("the use to be written", || last_used() != Value::Null);
    let used = last_used();
    assert!(run(&workspace, &["token", "list"]).1.contains("s ago"));
    drop(server);
    assert_eq!(last_used(), used);
    let server = workspace.serve();
    let admin = bearer_header(read_or_empty(&workspace.path("data/admin.token")).trim());
    let listed = request(&server.url, "GET", "/api/tokens", &admin, "").json();
    assert_eq!(listed["tokens"][0]["last_used"], used);
}

#[test]
fn a_running_server_accepts_new_tokens_and_rejects_revoked_ones() {
    let workspace = test_workspace();
    let server = workspace.start_listening(&["serve", "--listen", "127.0.0.1:0", "--require-token"]);
    let status = |token: &str| request(&server.url, "GET", "/api/sources", &bearer_header(token), "").status;
    assert_eq!(request(&server.url, "GET", "/api/sources", "", "").status, 401);
    let token = create_token(&workspace, &["ci", "--role", "viewer"]);
    wait_until("the token to be accepted", || status(&token) == 200);
    assert_eq!(run(&workspace, &["token", "revoke", "ci"]).0, 0);
    wait_until("the token to be rejected", || matches!(status(&token), 401 | 429));
    let log = read_or_empty(&workspace.path("serve.log"));
    assert!(!log.contains(&token) && !log.contains("tcb_"), "{log}");
}

#[test]
fn the_printed_login_link_works_once() {
    let workspace = test_workspace();
    let server = workspace.serve();
    let link = server.console_url();
    let path = link.strip_prefix(&server.url).unwrap();
    let first = request(&server.url, "GET", path, "", "");
    assert_eq!((first.status, first.header("location")), (303, Some("/")));
    let cookie = format!("Cookie: {}\r\n", first.header("set-cookie").unwrap().split(';').next().unwrap());
    assert_eq!(request(&server.url, "GET", "/api/whoami", &cookie, "").json()["role"], "admin");
    assert_eq!(request(&server.url, "GET", path, "", "").status, 410);

    let file = workspace.path("data/admin.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let admin = bearer_header(read_or_empty(&file).trim());
    assert_eq!(request(&server.url, "GET", "/api/tokens", &admin, "").status, 200);
    drop(server);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, stderr) = run(&workspace, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(code == 2 && stderr.contains("can be read by other users"), "{code} {stderr}");
}

#[test]
fn listening_on_the_network_requires_a_token() {
    let workspace = test_workspace();
    let (code, _, stderr) = run(&workspace, &["serve", "--listen", "0.0.0.0:0"]);
    assert!(code == 2 && stderr.contains("toolcrib token create"), "{code} {stderr}");
    let token = create_token(&workspace, &["ci", "--role", "agent"]);
    let server = workspace.serve_at("0.0.0.0:0");
    assert!(server.console_url().starts_with("http://127.0.0.1:"));
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(request(&url, "GET", "/api/sources", "", "").status, 401);
    assert_eq!(request(&url, "GET", "/api/sources", &bearer_header(&token), "").status, 200);
    wait_until("the warning", || read_or_empty(&workspace.path("serve.log")).contains("not encrypted"));
    let log = read_or_empty(&workspace.path("serve.log"));
    assert!(log.contains(&format!("connect to {url}/mcp")) && !log.contains("0.0.0.0"), "{log}");

    // `mcp --connect` authenticates with the token.
    let connect = |variable: (&str, &str), reference: &[&str]| {
        let mut command = workspace.toolcrib(&[&["mcp", "--connect", &url], reference].concat());
        let output = command.env(variable.0, variable.1).stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(connect(("TOOLCRIB_TOKEN", &token), &[]).0, 0);
    assert_eq!(connect(("MINE", &token), &["--token", "${env:MINE}"]).0, 0);
    let (code, stderr) = connect(("MINE", &token), &[]);
    assert!(code == 1 && stderr.contains("TOOLCRIB_TOKEN"), "{code} {stderr}");
    let (code, stderr) = connect(("TOOLCRIB_TOKEN", "tcb_wrong"), &[]);
    assert!(code == 1 && !stderr.contains("tcb_wrong"), "{code} {stderr}");
}

#[test]
fn the_demo_serves_the_console_and_leaves_nothing_behind() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut server = workspace.start_listening(&["demo", "--serve"]);
    let link = server.console_url();
    assert_eq!(request(&server.url, "GET", link.strip_prefix(&server.url).unwrap(), "", "").status, 303);
    let sources = request(&server.url, "GET", "/api/sources", "", "").json();
    let named: Vec<&str> =
        sources["sources"].as_array().unwrap().iter().map(|source| source["id"].as_str().unwrap()).collect();
    assert_eq!(named, ["core", "library", "shop"]);
    let call = request(
        &server.url,
        "POST",
        "/api/tools/library__borrow_book/call",
        "Content-Type: application/json\r\n",
        r#"{"arguments":{"book":"dune","member":"ada"}}"#,
    );
    assert!(call.status == 200 && call.body.contains("Dune"), "{call:?}");
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().code(), Some(0));
    wait_until("its processes to end", || workspace.process_count() == 0);
    assert!(!workspace.path("data").exists());
}

#[test]
fn the_token_option_requires_connect() {
    let workspace = test_workspace();
    let (code, _, stderr) = run(&workspace, &["mcp", "--token", "tcb_x"]);
    assert!(code == 2 && stderr.contains("--connect"), "{code} {stderr}");
    // Without `--connect` the variable is ignored.
    let mut command = workspace.toolcrib(&["mcp"]);
    let ended = command.env("TOOLCRIB_TOKEN", "tcb_x").stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");

    let viewer = create_token(&workspace, &["eye", "--role", "viewer"]);
    let server = workspace.serve();
    let mut command = workspace.toolcrib(&["mcp", "--connect", &server.url]);
    let refused = command.env("TOOLCRIB_TOKEN", viewer).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(1) && stderr.contains("role agent") && stderr.contains("host of the URL"),
        "{stderr}"
    );
}

#[test]
fn the_admin_token_can_be_chosen_in_the_environment() {
    let workspace = test_workspace();
    let token = "token-of-all-nodes-token-of-all-nodes";
    // Without another token that a client on another machine could have.
    let arguments = ["serve", "--listen", "0.0.0.0:0"];
    let server = workspace.start_listening_with(&arguments, &[("TOOLCRIB_ADMIN_TOKEN", token)]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let whoami = request(&url, "GET", "/api/whoami", &bearer_header(token), "").expect_json(200);
    assert_eq!((&whoami["name"], &whoami["role"]), (&json!("admin"), &json!("admin")));
    assert!(!workspace.path("data/admin.token").exists());
    assert!(!read_or_empty(&workspace.path("serve.log")).contains(token));

    // The sessions of a value end when it is replaced, also on a node with an empty data directory.
    let sign_in = |url: &str, token: &str| {
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        let response = request(url, "POST", "/login", headers, &format!("token={token}"));
        let cookie = response.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        format!("Cookie: {cookie}\r\n")
    };
    let cookie = sign_in(&url, token);
    let name = |url: &str, cookie: &str| request(url, "GET", "/api/whoami", cookie, "").json()["name"].clone();
    assert_eq!(name(&url, &cookie), "admin");
    let next_token = "another-token-another-token-another";
    let store = format!("sqlite:{}", workspace.path("data/toolcrib.db").display());
    let empty = workspace.path("empty");
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
    elsewhere.args(["serve", "--listen", "127.0.0.1:0", "--json", "--store", &store, "--data"]).arg(&empty);
    workspace.isolate(&mut elsewhere);
    elsewhere.env("TOOLCRIB_ADMIN_TOKEN", next_token);
    let elsewhere = workspace.start(elsewhere);
    assert_eq!(name(&elsewhere.url, &cookie), "local");
    let next_cookie = sign_in(&elsewhere.url, next_token);
    drop(server);
    let variables = [("TOOLCRIB_ADMIN_TOKEN", next_token)];
    let server = workspace.start_listening_with(&["serve", "--listen", "127.0.0.1:0"], &variables);
    assert_eq!((name(&server.url, &cookie), name(&server.url, &next_cookie)), (json!("local"), json!("admin")));

    let mut command = workspace.toolcrib(&["serve", "--listen", "127.0.0.1:0"]);
    let output = command.env("TOOLCRIB_ADMIN_TOKEN", "letmein").stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("`TOOLCRIB_ADMIN_TOKEN` holds no token") && !stderr.contains("letmein"), "{stderr}");
}
