//! Who is let in by `toolcrib serve`: tokens, the link to the console, and what is refused, with the real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use support::served::{Place, read, until};
use support::web::request;

fn test_workspace() -> Place {
    Place::new(&json!({ "one": { "command": support::scripted() } }), &json!({}))
}

fn run(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = place.toolcrib(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[track_caller]
fn create_token(place: &Place, arguments: &[&str]) -> String {
    let (code, token, said) = run(place, &[&["token", "create"], arguments].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("shown this once") && !said.contains(token.trim()), "{said}");
    token.trim().to_owned()
}

fn bearer_header(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_token_is_made_listed_and_revoked_and_shown_once() {
    let place = test_workspace();
    assert!(run(&place, &["token", "list"]).1.contains("there are no tokens"));
    let token = create_token(&place, &["ci", "--role", "agent", "--expires", "30d"]);
    assert!(token.starts_with("tcb_") && token.len() == 47, "{token}");
    create_token(&place, &["--role", "viewer"]);
    let (code, made, _) = run(&place, &["token", "create", "boss", "--role", "admin", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(
        (code, &made["name"], &made["role"], &made["expires_at"]),
        (0, &json!("boss"), &json!("admin"), &json!(null))
    );
    assert!(made["token"].as_str().unwrap().starts_with("tcb_") && made["id"].is_string(), "{made}");
    for (arguments, code, says) in [
        (&["create", "ci", "--role", "viewer"][..], 1, "already"),
        (&["create", "a b", "--role", "viewer"], 2, "no name for a token"),
        (&["create", "x", "--role", "root"], 2, "invalid value"),
        (&["create", "x"], 2, "--role"),
        (&["create", "x", "--role", "agent", "--expires", "soon"], 2, "30d"),
        (&["revoke", "nobody"], 2, "no token named"),
    ] {
        let (got, _, said) = run(&place, &[&["token"], arguments].concat());
        assert!(got == code && said.contains(says), "{arguments:?}: {got} {said}");
    }
    let (_, listed, _) = run(&place, &["token", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(run(&place, &["token", "revoke", made["id"].as_str().unwrap()]).1, "revoked `boss` (admin)\n");
    let (_, table, _) = run(&place, &["token", "list"]);
    assert!(table.contains("ci") && table.contains("agent") && !table.contains("boss"), "{table}");

    let (_, history, _) = run(&place, &["history"]);
    assert!(history.contains("token `ci` created (agent)") && history.contains("token `boss` revoked"), "{history}");
    let everything = format!("{history}{table}{listed}{}", run(&place, &["history", "--json"]).1);
    assert!(!everything.contains(&token) && !everything.contains("hash\""), "{everything}");
}

#[test]
fn a_running_serve_takes_tokens_up_and_drops_them() {
    let place = test_workspace();
    let served = place.started(&["serve", "--listen", "127.0.0.1:0", "--require-token"]);
    let status = |token: &str| request(&served.url, "GET", "/api/sources", &bearer_header(token), "").status;
    assert_eq!(request(&served.url, "GET", "/api/sources", "", "").status, 401);
    let token = create_token(&place, &["ci", "--role", "viewer"]);
    until("the token to be known", || status(&token) == 200);
    assert_eq!(run(&place, &["token", "revoke", "ci"]).0, 0);
    until("the token to be forgotten", || matches!(status(&token), 401 | 429));
    let log = read(&place.path("serve.log"));
    assert!(!log.contains(&token) && !log.contains("tcb_"), "{log}");
}

#[test]
fn the_link_that_is_printed_signs_in_once() {
    let place = test_workspace();
    let served = place.serve();
    let link = served.console();
    let path = link.strip_prefix(&served.url).unwrap();
    let first = request(&served.url, "GET", path, "", "");
    assert_eq!((first.status, first.header("location")), (303, Some("/")));
    let cookie = format!("Cookie: {}\r\n", first.header("set-cookie").unwrap().split(';').next().unwrap());
    assert_eq!(request(&served.url, "GET", "/api/whoami", &cookie, "").json()["role"], "admin");
    assert_eq!(request(&served.url, "GET", path, "", "").status, 410);

    let file = place.path("data/admin.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let admin = bearer_header(read(&file).trim());
    assert_eq!(request(&served.url, "GET", "/api/tokens", &admin, "").status, 200);
    drop(served);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, said) = run(&place, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(code == 2 && said.contains("can be read by other users"), "{code} {said}");
}

#[test]
fn beyond_this_machine_there_must_be_a_token_first() {
    let place = test_workspace();
    let (code, _, said) = run(&place, &["serve", "--listen", "0.0.0.0:0"]);
    assert!(code == 2 && said.contains("toolcrib token create"), "{code} {said}");
    let token = create_token(&place, &["ci", "--role", "agent"]);
    let served = place.serve_at("0.0.0.0:0");
    assert!(served.console().starts_with("http://127.0.0.1:"));
    let url = served.url.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(request(&url, "GET", "/api/sources", "", "").status, 401);
    assert_eq!(request(&url, "GET", "/api/sources", &bearer_header(&token), "").status, 200);
    until("the warning", || read(&place.path("serve.log")).contains("not encrypted"));
    let log = read(&place.path("serve.log"));
    assert!(log.contains(&format!("connect to {url}/mcp")) && !log.contains("0.0.0.0"), "{log}");

    // A client that starts programs reaches it with the token.
    let connect = |variable: (&str, &str), reference: &[&str]| {
        let mut command = place.toolcrib(&[&["mcp", "--connect", &url], reference].concat());
        let output = command.env(variable.0, variable.1).stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(connect(("TOOLCRIB_TOKEN", &token), &[]).0, 0);
    assert_eq!(connect(("MINE", &token), &["--token", "${env:MINE}"]).0, 0);
    let (code, said) = connect(("MINE", &token), &[]);
    assert!(code == 1 && said.contains("TOOLCRIB_TOKEN"), "{code} {said}");
    let (code, said) = connect(("TOOLCRIB_TOKEN", "tcb_wrong"), &[]);
    assert!(code == 1 && !said.contains("tcb_wrong"), "{code} {said}");
}

#[test]
fn the_demo_can_be_looked_at_in_the_console_and_leaves_nothing_behind() {
    let place = Place::new(&json!({}), &json!({}));
    let mut served = place.started(&["demo", "--serve"]);
    let link = served.console();
    assert_eq!(request(&served.url, "GET", link.strip_prefix(&served.url).unwrap(), "", "").status, 303);
    let sources = request(&served.url, "GET", "/api/sources", "", "").json();
    let named: Vec<&str> =
        sources["sources"].as_array().unwrap().iter().map(|source| source["id"].as_str().unwrap()).collect();
    assert_eq!(named, ["core", "library", "shop"]);
    let call = request(
        &served.url,
        "POST",
        "/api/tools/library__borrow_book/call",
        "Content-Type: application/json\r\n",
        r#"{"arguments":{"book":"dune","member":"ada"}}"#,
    );
    assert!(call.status == 200 && call.body.contains("Dune"), "{call:?}");
    served.signal("TERM");
    assert_eq!(served.ended().code(), Some(0));
    until("its processes to end", || place.processes() == 0);
    assert!(!place.path("data").exists());
}

#[test]
fn a_token_is_for_who_connects() {
    let place = test_workspace();
    let (code, _, said) = run(&place, &["mcp", "--token", "tcb_x"]);
    assert!(code == 2 && said.contains("--connect"), "{code} {said}");
    // One that lies about in the environment disturbs nobody.
    let mut command = place.toolcrib(&["mcp"]);
    let ended = command.env("TOOLCRIB_TOKEN", "tcb_x").stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");

    let viewer = create_token(&place, &["eye", "--role", "viewer"]);
    let served = place.serve();
    let mut command = place.toolcrib(&["mcp", "--connect", &served.url]);
    let refused = command.env("TOOLCRIB_TOKEN", viewer).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && said.contains("role agent") && said.contains("knows us"), "{said}");
}
