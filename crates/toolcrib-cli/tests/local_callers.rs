//! Which local processes `toolcrib serve` admits without a token: on every route, with real processes of several users, and
//! with servers that Toolcrib itself started. Starting a process of another user requires root; without it these tests
//! report that they are skipped.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "skipped tests are reported on stderr")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::http::{RawHttpResponse, call_tool, request};
use crate::support::test_server::{ServeProcess, TestWorkspace, read_or_empty, wait_until};

const OWNER_UID: u32 = 65_534;
const OTHER_UID: u32 = 65_533;

/// Sends a request for each `METHOD PATH` on stdin, on separate connections, and prints the statuses.
const PROBE_SCRIPT: &str = r#"
port=$1
while read -r method path; do
    exec 3<>/dev/tcp/127.0.0.1/$port
    printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n' "$method" "$path" "$port" >&3
    printf 'Connection: close\r\n%s\r\n{}' "$HEADERS" >&3
    read -r version status rest <&3
    printf '%s %s %s\n' "$status" "$method" "$path"
    exec 3>&-
done
"#;

#[test]
fn every_route_admits_only_the_same_user_and_root() {
    let Some(workspace) = workspace_owned_by(OWNER_UID) else { return };
    configure(&workspace, &json!({}));
    let server = serve_as(&workspace, OWNER_UID);
    let routes = routes(&server, &[]);
    assert_admitted(&server, &routes, OWNER_UID);
    assert_admitted(&server, &routes, 0);
    assert_all_refused(&routes, &probe(&server, &routes, OTHER_UID, ""));

    // The token of the data directory is valid for every user who has it.
    let token = format!("Authorization: Bearer {}\r\n", read_or_empty(&workspace.path("data/admin.token")).trim());
    let read_only = [("GET".to_owned(), "/api/sources".to_owned())].into();
    assert_eq!(probe(&server, &read_only, OTHER_UID, &token), ["200 GET /api/sources"]);
    // Public routes need no token.
    for path in ["/healthz", "/readyz", "/login"] {
        let open = [("GET".to_owned(), path.to_owned())].into();
        assert_eq!(probe(&server, &open, OTHER_UID, ""), [format!("200 GET {path}")]);
    }
    // The path of the token is shown only to its owner.
    let body = get_as(&server, "/login", OTHER_UID).body;
    assert!(body.contains("Sign in") && !body.contains("admin.token"), "{body}");
}

#[test]
fn a_server_run_by_root_refuses_every_other_user() {
    let Some(workspace) = workspace_owned_by(0) else { return };
    configure(&workspace, &json!({}));
    let server = serve_as(&workspace, 0);
    let routes = routes(&server, &[]);
    assert_admitted(&server, &routes, 0);
    assert_all_refused(&routes, &probe(&server, &routes, OWNER_UID, ""));
}

#[test]
fn processes_started_by_toolcrib_are_refused_on_every_route() {
    for user in [OWNER_UID, 0] {
        let Some(workspace) = workspace_owned_by(user) else { return };
        let own = HostileSource::new(&workspace, "own");
        configure(
            &workspace,
            &json!({ "child": own.source_config("bash \"$0\" \"$PORT\" <\"$TABLE\" >\"$OUT.part\"") }),
        );
        // Another Toolcrib of the same user with another data directory.
        let another = workspace_owned_by(user).unwrap();
        let children = [
            ("direct", "bash \"$0\" \"$PORT\" <\"$TABLE\" >\"$OUT.part\""),
            ("orphan", "(setsid bash -c 'bash \"$0\" \"$PORT\" <\"$TABLE\" >\"$OUT.part\"' \"$0\" &)"),
            ("unmarked", "ulimit -x 7; (setsid bash -c 'bash \"$0\" \"$PORT\" <\"$TABLE\" >\"$OUT.part\"' \"$0\" &)"),
            (
                "without_variables",
                "(env -i PATH=\"$PATH\" PORT=$PORT TABLE=\"$TABLE\" OUT=\"$OUT\" setsid bash -c \
                 'bash \"$0\" \"$PORT\" <\"$TABLE\" >\"$OUT.part\"' \"$0\" &)",
            ),
        ];
        let of_another: Vec<_> = children.iter().map(|(name, _)| HostileSource::new(&another, name)).collect();
        let server = serve_as(&workspace, user);
        let routes = routes(&server, &["/api/events"]);
        let port = server.url.rsplit(':').next().unwrap();
        for hostile in of_another.iter().chain([&own]) {
            fs::write(hostile.directory.join("table"), route_table(&routes)).unwrap();
            fs::write(hostile.directory.join("port"), port).unwrap();
        }

        // A child of a guard of this server.
        request(&server.url, "POST", "/api/sources/child/refresh", "", "");
        assert_all_refused(&routes, &own.statuses());
        // Children of guards of the other Toolcrib.
        let scripts = children.iter().map(|(_, script)| *script);
        let sources = of_another
            .iter()
            .zip(scripts)
            .map(|(hostile, script)| (hostile.name.to_owned(), hostile.source_config(script)));
        configure(&another, &Value::Object(sources.collect()));
        let refreshed = command(&another, &["refresh"], user).stdin(Stdio::null()).output().unwrap();
        assert!(!refreshed.status.success(), "none of them is an MCP server");
        for hostile in &of_another {
            assert_all_refused(&routes, &hostile.statuses());
        }
        // Other processes are still admitted.
        assert_admitted(&server, &routes, user);
    }
}

/// A tool that sends requests back to the server that runs it must not give its callers access.
#[test]
fn requests_that_the_server_makes_for_a_tool_are_refused() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    // The API's document is written once the port is known.
    let web = json!({ "builtin": ["url_fetch"], "allow_private": true });
    let api = json!({ "openapi": "api.json", "allow_private": true });
    workspace.configure(&json!({ "web": web, "own_api": api }), &json!({}));
    let server = workspace.serve();
    let document = json!({
        "openapi": "3.0.0", "info": { "title": "own", "version": "1" }, "servers": [{ "url": server.url }],
        "paths": { "/api/sources": { "get": { "operationId": "list_sources", "responses": { "200": { "description": "" } } } } },
    });
    fs::write(workspace.path("api.json"), document.to_string()).unwrap();
    let refreshed = request(&server.url, "POST", "/api/refresh", "Content-Type: application/json\r\n", "{}");
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    for path in ["/api/sources", "/mcp", "/"] {
        let fetched = call_tool(&server, "url_fetch", &json!({ "url": format!("{}{path}", server.url) }), json!({}));
        let text = fetched.to_string();
        assert!(text.contains("401") && text.contains("made by Toolcrib itself"), "{path}: {text}");
    }
    let listed = call_tool(&server, "own_api__list_sources", &json!({}), json!({})).to_string();
    assert!(listed.contains("401") && !listed.contains("own_api"), "{listed}");
    // Other processes of the same user are still admitted.
    assert_eq!(request(&server.url, "GET", "/api/sources", "", "").status, 200);
}

#[test]
fn the_loopback_setting_is_reloaded() {
    let Some(workspace) = workspace_owned_by(0) else { return };
    let sources: BTreeSet<_> = [("GET".to_owned(), "/api/sources".to_owned())].into();
    let statuses = |server: &ServeProcess| {
        let status = |user| probe(server, &sources, user, "")[0][..3].to_owned();
        (status(0), status(OTHER_UID))
    };
    let set = |loopback: &str| {
        let config = json!({ "sources": { "core": { "builtin": "all" } }, "identity": { "loopback": loopback } });
        fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    };
    set("open");
    let server = serve_as(&workspace, 0);
    assert_eq!(statuses(&server), ("200".into(), "200".into()));
    for (loopback, expected) in [("owner", ("200", "401")), ("token", ("401", "401")), ("open", ("200", "200"))] {
        set(loopback);
        server.signal("HUP");
        let expected = (expected.0.to_owned(), expected.1.to_owned());
        wait_until("the setting to be reloaded", || statuses(&server) == expected);
    }
    set("token");
    server.signal("HUP");
    wait_until("the setting to be reloaded", || statuses(&server).0 == "401");
    let response: RawHttpResponse = request(&server.url, "GET", "/api/sources", "", "");
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("`identity.loopback` is `token`") && message.contains("toolcrib token create"),
        "{message}"
    );
}

#[test]
fn the_refusal_names_the_setting_and_the_next_step() {
    let Some(workspace) = workspace_owned_by(OWNER_UID) else { return };
    configure(&workspace, &json!({}));
    let server = serve_as(&workspace, OWNER_UID);
    let response = get_as(&server, "/api/sources", OTHER_UID);
    assert_eq!(response.status, 401);
    assert!(response.header("www-authenticate").is_some(), "{response:?}");
    let error = response.json()["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert_eq!(error["code"], "UNAUTHORIZED");
    for expected in ["`identity.loopback` is `owner`", "another user", "toolcrib token create NAME --role viewer"] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_data_directory_writable_or_owned_by_others_is_refused() {
    let Some(workspace) = workspace_owned_by(OWNER_UID) else { return };
    configure(&workspace, &json!({}));
    let data = workspace.path("data");
    let run = |user: u32, arguments: &[&str]| {
        let output = command(&workspace, arguments, user).stdin(Stdio::null()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run(OWNER_UID, &["tools", "--cached"]).0, 0);
    assert_eq!(fs::metadata(&data).unwrap().mode() & 0o7777, 0o700);
    for arguments in [&["tools", "--cached"][..], &["sources"], &["serve", "--listen", "127.0.0.1:0"]] {
        for mode in [0o777, 0o1777, 0o770] {
            fs::set_permissions(&data, fs::Permissions::from_mode(mode)).unwrap();
            let (code, stderr) = run(OWNER_UID, arguments);
            assert_eq!(code, 2, "{stderr}");
            assert!(stderr.contains(&format!("chmod go-w {}", data.display())), "{stderr}");
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        let (code, stderr) = run(0, arguments);
        assert!(code == 2 && stderr.contains("belongs to user 65534 and Toolcrib runs as user 0"), "{code} {stderr}");
    }
    assert_eq!(run(OWNER_UID, &["tools", "--cached"]).0, 0);
}

/// A workspace owned by `user`; `None` if this process cannot act as another user.
fn workspace_owned_by(user: u32) -> Option<TestWorkspace> {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    if let Err(error) = chown(workspace.path("."), Some(user), Some(user)) {
        assert_ne!(fs::metadata("/proc/self").unwrap().uid(), 0, "{error}");
        eprintln!("skipped: only root can act as another user");
        return None;
    }
    // Copied, because another user may have no access to the build directory.
    fs::copy(env!("CARGO_BIN_EXE_toolcrib"), workspace.path("toolcrib")).unwrap();
    Some(workspace)
}

fn configure(workspace: &TestWorkspace, sources: &Value) {
    let mut sources = sources.clone();
    sources["core"] = json!({ "builtin": "all" });
    workspace.configure(&sources, &json!({}));
}

/// The command run as a user, with nothing of our environment but `PATH`.
fn command(workspace: &TestWorkspace, arguments: &[&str], user: u32) -> Command {
    let mut command = Command::new(workspace.path("toolcrib"));
    command.args(arguments).args(workspace.location_arguments());
    workspace.isolate(&mut command);
    command.uid(user).gid(user);
    command
}

fn serve_as(workspace: &TestWorkspace, user: u32) -> ServeProcess {
    let server = workspace.start(command(workspace, &["serve", "--listen", "127.0.0.1:0", "--json"], user));
    wait_until("the built-in tools", || request(&server.url, "GET", "/api/tools/calculate", "", "").status == 200);
    server
}

fn port(server: &ServeProcess) -> &str {
    server.url.rsplit(':').next().unwrap()
}

/// Every route that requires authentication: those of the server's OpenAPI document, MCP and the console; except the
/// paths in `without`.
fn routes(server: &ServeProcess, without: &[&str]) -> BTreeSet<(String, String)> {
    let document = request(&server.url, "GET", "/api/openapi.json", "", "").json();
    let mut routes = BTreeSet::from([("GET".to_owned(), "/api/openapi.json".to_owned())]);
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if !operation["security"].as_array().unwrap().is_empty() {
                let path = path.replace("{name}", "calculate").replace("{id}", "core");
                routes.insert((method.to_uppercase(), path));
            }
        }
    }
    assert!(routes.len() > 25, "{routes:?}");
    let beside = [
        ("GET", "/mcp"),
        ("POST", "/mcp"),
        ("DELETE", "/mcp"),
        ("POST", "/mcp?mode=full"),
        ("POST", "/mcp/support"),
        ("GET", "/"),
        ("GET", "/sources"),
        ("GET", "/sources/core"),
        ("GET", "/tools"),
        ("GET", "/tools/calculate"),
        ("GET", "/activity"),
        ("POST", "/refresh"),
        ("POST", "/sources"),
        ("POST", "/sources/core/refresh"),
        ("POST", "/sources/core/disable"),
        ("POST", "/tools/calculate/call"),
        ("POST", "/tools/calculate/disable"),
    ];
    routes.extend(beside.map(|(method, path)| (method.to_owned(), path.to_owned())));
    routes.retain(|(_, path)| !without.contains(&path.as_str()));
    routes
}

fn route_table(routes: &BTreeSet<(String, String)>) -> String {
    routes.iter().map(|(method, path)| format!("{method} {path}\n")).collect()
}

fn bash_command(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", script]).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).current_dir("/");
    command
}

/// The statuses that a process of the user gets, as `STATUS METHOD PATH`.
fn probe(server: &ServeProcess, routes: &BTreeSet<(String, String)>, user: u32, headers: &str) -> Vec<String> {
    let mut command = bash_command(PROBE_SCRIPT);
    command.args(["probe", port(server)]).env("HEADERS", headers).uid(user).gid(user);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(route_table(routes).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The response that a process of the user gets.
fn get_as(server: &ServeProcess, path: &str, user: u32) -> RawHttpResponse {
    let script = "exec 3<>/dev/tcp/127.0.0.1/$0
        printf 'GET %s HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' \"$1\" >&3
        cat <&3";
    let output = bash_command(script).args([port(server), path]).uid(user).gid(user).output().unwrap();
    RawHttpResponse::parse(&output.stdout)
}

#[track_caller]
fn assert_all_refused(routes: &BTreeSet<(String, String)>, statuses: &[String]) {
    let expected: Vec<String> = routes.iter().map(|(method, path)| format!("401 {method} {path}")).collect();
    assert_eq!(statuses, expected);
}

/// Asserts that a process without a token may read, call and refresh, but not make changes.
#[track_caller]
fn assert_admitted(server: &ServeProcess, routes: &BTreeSet<(String, String)>, user: u32) {
    let document = request(&server.url, "GET", "/api/openapi.json", "", "").json();
    let needs_none = |method: &str, path: &str| {
        let path = path.replace("/calculate", "/{name}").replace("/core", "/{id}");
        let security = &document["paths"][path.as_str()][method.to_lowercase()]["security"];
        let console = matches!(path.as_str(), "/sources" | "/sources/{id}/disable" | "/tools/{name}/disable");
        if security.is_array() { security[0] == json!({}) } else { method == "GET" || !console }
    };
    let refused: Vec<String> =
        probe(server, routes, user, "").into_iter().filter(|line| line.starts_with("401")).collect();
    let expected: Vec<String> = routes
        .iter()
        .filter(|(method, path)| !needs_none(method, path))
        .map(|(method, path)| format!("401 {method} {path}"))
        .collect();
    assert_eq!(refused, expected, "{user}");
}

/// A source whose program sends requests to the Toolcrib server instead of speaking MCP.
struct HostileSource {
    name: &'static str,
    directory: std::path::PathBuf,
}

impl HostileSource {
    fn new(workspace: &TestWorkspace, name: &'static str) -> HostileSource {
        let directory = workspace.path(name);
        let owner = fs::metadata(workspace.path(".")).unwrap().uid();
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("probe.sh"), PROBE_SCRIPT).unwrap();
        chown(&directory, Some(owner), Some(owner)).unwrap();
        HostileSource { name, directory }
    }

    /// `script` starts the probe, which is `$0`; the program ends when the probe is finished.
    fn source_config(&self, script: &str) -> Value {
        let path = |name: &str| self.directory.join(name).to_str().unwrap().to_owned();
        let whole = format!(
            "export PORT=$(cat \"$DIR/port\") TABLE=\"$DIR/table\" OUT=\"$DIR/out\"; {script}; \
             until [ \"$(wc -l <\"$OUT.part\" 2>/dev/null || echo 0)\" -ge \"$(wc -l <\"$TABLE\")\" ]; do sleep 0.05; done",
        );
        json!({ "command": "bash", "args": ["-c", whole, path("probe.sh")], "env": { "DIR": self.directory.to_str().unwrap() } })
    }

    #[track_caller]
    fn statuses(&self) -> Vec<String> {
        let out: &Path = &self.directory.join("out.part");
        read_or_empty(out).lines().map(str::to_owned).collect()
    }
}
