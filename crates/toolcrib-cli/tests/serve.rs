//! `toolcrib serve` through the real binary: rejected requests, reload of the configuration, shutdown, and warm-up.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use toolcrib_testkit::{observe, programs};

use crate::support::http::{MCP_HEADERS, RawHttpResponse, call_tool, mcp_request, request};
use crate::support::test_server::{ServeProcess, TestWorkspace, read_or_empty, send_signal, wait_until};

fn one_source() -> Value {
    json!({ "one": { "command": programs::scripted_server() } })
}

impl ServeProcess {
    fn tool_names(&self) -> Vec<String> {
        let listed = mcp_request(self, "tools/list", json!({}), "");
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Loading or reloading the configuration does not contact sources.
#[test]
fn no_source_is_contacted_before_the_first_tool_request() {
    let workspace = TestWorkspace::new(&one_source(), &json!({}));
    let server = workspace.serve();
    for times in 1..=3 {
        server.signal("HUP");
        wait_until("the reload", || {
            read_or_empty(&workspace.path("serve.log")).matches("nothing changed").count() == times
        });
        let response = request(&server.url, "GET", "/api/sources", "", "");
        assert_eq!((response.status, &response.json()["sources"][0]["status"]), (200, &json!("never")), "{response:?}");
    }
    server.tool_names();
    wait_until("the source to be discovered", || {
        request(&server.url, "GET", "/api/sources", "", "").body.contains("\"success\"")
    });
}

#[test]
fn foreign_hosts_and_oversized_requests_are_rejected() {
    let workspace = TestWorkspace::new(&one_source(), &json!({}));
    let server = workspace.serve();
    let send = |method: &str, path: &str, headers: &str, body: &str| request(&server.url, method, path, headers, body);
    for (headers, path, status, code) in [
        ("Host: evil.example\r\n", "/mcp", 403, "FORBIDDEN"),
        ("Host: localhost.evil.example:80\r\n", "/mcp", 403, "FORBIDDEN"),
        ("Origin: https://evil.example\r\n", "/mcp", 403, "FORBIDDEN"),
        ("Origin: null\r\n", "/mcp", 403, "FORBIDDEN"),
        ("Host: evil.example\r\n", "/healthz", 403, "FORBIDDEN"),
        ("", "/mcp?mode=sideways", 400, "BAD_REQUEST"),
        ("", "/mcp?group=ops", 404, "NOT_FOUND"),
        ("", "/mcp/ops", 404, "NOT_FOUND"),
        ("", "/elsewhere", 404, "NOT_FOUND"),
    ] {
        let response = send("POST", path, &format!("{MCP_HEADERS}{headers}"), "{}");
        assert_eq!((response.status, &response.json()["error"]["code"]), (status, &json!(code)), "{headers}{path}");
    }
    assert_eq!(send("POST", "/mcp", MCP_HEADERS, &" ".repeat(5 * 1024 * 1024)).status, 413);
    let response = send("POST", "/healthz", MCP_HEADERS, "{}");
    assert!(response.status == 405 && response.body.contains("BAD_REQUEST"), "{response:?}");
    assert_eq!(send("GET", "/healthz", "Origin: http://localhost:1234\r\n", "").status, 200);
}

#[test]
fn an_unusable_listen_address_is_an_error() {
    let workspace = TestWorkspace::new(&one_source(), &json!({}));
    let server = workspace.serve();
    let taken = server.url.strip_prefix("http://").unwrap();
    for (listen, code, expected) in [
        (taken, 1, "is in use"),
        ("0.0.0.0:0", 2, "can be reached from other machines"),
        ("nonsense", 2, "is not an address"),
    ] {
        let output = workspace.toolcrib(&["serve", "--listen", listen]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{listen}: {text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_configuration_is_reloaded() {
    let workspace = TestWorkspace::new(&one_source(), &json!({ "mode": "full" }));
    workspace.discover();
    let server = workspace.serve();
    assert_eq!(server.tool_names().len(), 3);
    let log = || read_or_empty(&workspace.path("serve.log"));

    let two = json!({ "one": { "command": programs::scripted_server(), "title": "First" }, "two": { "command": programs::scripted_server() } });
    workspace.configure(&two, &json!({ "mode": "full" }));
    wait_until("the new source to be added", || log().contains("configuration reloaded: `two` added, `one` changed"));
    wait_until("its tools to be listed", || server.tool_names().len() == 6);

    std::fs::write(workspace.path("toolcrib.json"), "{ \"sources\": ").unwrap();
    wait_until("the configuration error", || log().contains("the configuration stays as it was"));
    assert_eq!(server.tool_names().len(), 6);
    // Readiness, metrics and console report it. Readiness needs no credentials, so it names no directory.
    let get = |path: &str| request(&server.url, "GET", path, "", "");
    let readiness: Value = serde_json::from_str(&get("/readyz").body).unwrap();
    let reason = readiness["config"]["reason"].as_str().unwrap();
    assert_eq!((&readiness["status"], &readiness["config"]["state"]), (&json!("ready"), &json!("invalid")));
    assert!(reason.contains("toolcrib.json") && !reason.contains(workspace.path("").to_str().unwrap()), "{reason}");
    assert!(get("/metrics").body.contains("\ntoolcrib_config_valid 0\n"));
    assert!(get("/tools").body.contains("The configuration is invalid"));

    workspace.configure(&one_source(), &json!({ "mode": "search" }));
    wait_until("the source to be removed", || log().contains("`one` changed, `two` removed, `expose` changed"));
    assert_eq!(server.tool_names(), ["call_tool", "describe_tools", "search_tools"]);
    assert_eq!(get("/readyz").body, r#"{"status":"ready","store":{"state":"ok"}}"#);
    assert!(get("/metrics").body.contains("\ntoolcrib_config_valid 1\n"));
    server.signal("HUP");
    wait_until("the reload after SIGHUP", || log().contains("configuration reloaded: nothing changed"));
}

#[test]
fn a_changed_store_needs_a_restart() {
    let workspace = TestWorkspace::new(&one_source(), &json!({}));
    let _server = workspace.serve();
    let log = || read_or_empty(&workspace.path("serve.log"));
    let file = workspace.path("toolcrib.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let before = config.to_string();
    config["store"] = json!("postgres://me:hunter2@db/other");
    std::fs::write(&file, config.to_string()).unwrap();
    let warning = "warning: `store` has changed, but the store of the start stays in use; restart to use the other one";
    wait_until("the warning", || log().contains(warning));
    assert!(!log().contains("hunter2"), "{}", log());
    std::fs::write(&file, before).unwrap();
    wait_until("the second reload", || log().matches("configuration reloaded: `store` changed").count() == 2);
    assert_eq!(log().matches(warning).count(), 1, "the store of the start is named again");
}

#[test]
fn shutdown_lets_calls_finish_and_leaves_no_process() {
    let slow =
        json!({ "slow": { "command": programs::scripted_server(), "args": ["--with", "slow", "--delay-ms", "300"] } });
    let workspace = TestWorkspace::new(&slow, &json!({}));
    workspace.discover();
    let mut server = workspace.serve();
    let response = thread::scope(|scope| {
        let call = scope.spawn(|| call_tool(&server, "slow__echo", &json!({ "text": "x" }), json!({})));
        // The upstream server is started for the call, so the call is in flight.
        wait_until("the call to start", || workspace.process_count() > 1);
        server.signal("TERM");
        call.join().unwrap()
    });
    assert_eq!(response["content"][0]["text"], "x");
    assert_eq!(server.wait_for_exit().code(), Some(0));
    wait_until("its processes to end", || workspace.process_count() == 0);
}

/// A server whose tool `slow` takes `steps` times 10 ms, and that ignores the end of its input.
fn slow_source(steps: u32, log: &str) -> Value {
    json!({ "s": {
        "command": programs::scripted_server(), "args": ["--progress", steps.to_string(), "--ignore-eof", "--log-file", log],
    } })
}

/// The protocol of a call.
#[derive(Debug, Clone, Copy)]
enum CallProtocol {
    Rest,
    Mcp,
    /// With a progress token, so that the response is an event stream.
    Stream,
    /// The same within a session, as before protocol version 2026-07-28.
    Session,
}

/// Calls `s__slow` and returns the response.
fn call_slow(url: &str, protocol: CallProtocol) -> RawHttpResponse {
    const JSON: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let rpc = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let modern = |mut meta: Value| {
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let body = rpc("tools/call", json!({ "name": "s__slow", "arguments": {}, "_meta": meta }));
        let headers = format!("{MCP_HEADERS}Mcp-Method: tools/call\r\nMcp-Name: s__slow\r\n");
        request(url, "POST", "/mcp", &headers, &body.to_string())
    };
    match protocol {
        CallProtocol::Rest => request(url, "POST", "/api/tools/s__slow/call", JSON, "{}"),
        CallProtocol::Mcp => modern(json!({})),
        CallProtocol::Stream => modern(json!({ "progressToken": "p" })),
        CallProtocol::Session => {
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
            let initialized = request(url, "POST", "/mcp", JSON, &rpc("initialize", params).to_string());
            let headers = format!("{JSON}Mcp-Session-Id: {}\r\n", initialized.header("mcp-session-id").unwrap());
            let params = json!({ "name": "s__slow", "arguments": {}, "_meta": { "progressToken": "p" } });
            request(url, "POST", "/mcp", &headers, &rpc("tools/call", params).to_string())
        }
    }
}

/// Returns the JSON of a response, or of the last event of an event stream.
fn last_message(response: &RawHttpResponse) -> Value {
    let last = response.body.lines().rev().find_map(|line| line.strip_prefix("data: "));
    last.map_or_else(|| response.json(), |last| serde_json::from_str(last).unwrap())
}

fn expect_stopping(error: &Value) {
    let expected = json!({
        "code": "TOOL_UNAVAILABLE", "message": "Toolcrib is stopping; try again", "retryable": true, "details": null,
    });
    assert_eq!(error["error"], expected);
}

fn expect_stopping_result(result: &Value) {
    assert_eq!(result["isError"], true, "{result}");
    expect_stopping(&serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap());
}

/// Makes calls in all protocols at once, sends SIGTERM while all are in flight, and returns the responses. Asserts that
/// the server and all its processes have ended.
fn calls_during_shutdown(steps: u32, calls: usize) -> Vec<(CallProtocol, RawHttpResponse)> {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let log = workspace.path("methods");
    workspace.configure(&slow_source(steps, log.to_str().unwrap()), &json!({}));
    workspace.discover();
    let mut server = workspace.serve();
    let protocols = [
        CallProtocol::Rest,
        CallProtocol::Mcp,
        CallProtocol::Rest,
        CallProtocol::Stream,
        CallProtocol::Rest,
        CallProtocol::Session,
    ];
    let responses = thread::scope(|scope| {
        let url = &server.url;
        let call: Vec<_> = protocols
            .into_iter()
            .cycle()
            .take(calls)
            .map(|protocol| (protocol, scope.spawn(move || call_slow(url, protocol))))
            .collect();
        wait_until("all calls to be in flight", || read_or_empty(&log).matches("tools/call").count() == calls);
        server.signal("TERM");
        call.into_iter().map(|(protocol, call)| (protocol, call.join().unwrap())).collect()
    });
    assert_eq!(server.wait_for_exit().code(), Some(0), "{}", read_or_empty(&workspace.path("serve.log")));
    wait_until("its processes to end", || workspace.process_count() == 0);
    responses
}

#[test]
fn shutdown_responds_to_every_call_that_cannot_finish() {
    for (protocol, response) in calls_during_shutdown(6_000, 100) {
        match protocol {
            CallProtocol::Rest => expect_stopping(&response.expect_json(503)),
            CallProtocol::Mcp | CallProtocol::Stream | CallProtocol::Session => {
                assert_eq!(response.status, 200, "{protocol:?} {response:?}");
                expect_stopping_result(&last_message(&response)["result"]);
            }
        }
    }
}

#[test]
fn shutdown_lets_short_calls_finish() {
    for (protocol, response) in calls_during_shutdown(100, 12) {
        assert_eq!(response.status, 200, "{protocol:?} {response:?}");
        let message = last_message(&response);
        let content =
            if matches!(protocol, CallProtocol::Rest) { &message["content"] } else { &message["result"]["content"] };
        assert_eq!(content[0]["text"], "done", "{protocol:?} {response:?}");
    }
}

#[test]
fn a_blocked_process_ends_within_the_drain_timeout() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let config = workspace.path("toolcrib.json");
    std::fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut command = workspace.toolcrib(&["serve", "--listen", &address.to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It binds its address before it reads the configuration, which blocks on the FIFO.
    wait_until("the server to start", || TcpStream::connect(address).is_ok());
    send_signal("TERM", child.id());
    let mut ended = None;
    wait_until("the process to end", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
}

/// How a `toolcrib mcp` is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Signal,
    EndOfInput,
}

#[test]
fn a_call_over_stdio_gets_a_response_at_shutdown() {
    for ending in [Ending::Signal, Ending::EndOfInput] {
        let workspace = TestWorkspace::new(&json!({}), &json!({}));
        let log = workspace.path("methods");
        workspace.configure(&slow_source(6_000, log.to_str().unwrap()), &json!({}));
        workspace.discover();
        let mut command = workspace.toolcrib(&["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        for (id, method, params) in
            [(1, "initialize", params), (2, "tools/call", json!({ "name": "s__slow", "arguments": {} }))]
        {
            writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).unwrap();
        }
        wait_until("the call to be in flight", || read_or_empty(&log).contains("tools/call"));
        match ending {
            Ending::Signal => send_signal("TERM", child.id()),
            Ending::EndOfInput => drop(input),
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["id"], 2, "{ending:?} {text}");
        expect_stopping_result(&last["result"]);
        wait_until("its processes to end", || workspace.process_count() == 0);
    }
}

#[test]
fn the_demo_serves_its_api_alone() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let mut shop = workspace.start_listening(&["demo", "--api"]);
    let document = request(&shop.url, "GET", "/openapi.json", "", "");
    assert_eq!((document.status, &document.json()["openapi"]), (200, &json!("3.1.0")));
    assert_eq!(request(&shop.url, "GET", "/products?limit=0", "", "").status, 400);
    shop.signal("TERM");
    assert_eq!(shop.wait_for_exit().code(), Some(0));
    let refused = workspace.toolcrib(&["demo", "--api", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// The guard of a server ends its processes. When the guard itself is killed, they end nevertheless, wherever they are,
/// and the source recovers.
#[cfg(target_os = "linux")]
#[test]
fn no_process_survives_a_killed_guard_and_the_source_recovers() {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let path = |name: &str| workspace.path(name).to_str().unwrap().to_owned();
    let args = ["--grandchildren", "--pids-file", &path("family"), "--count-file", &path("starts")];
    workspace.configure(&json!({ "one": { "command": programs::scripted_server(), "args": args } }), &json!({}));
    workspace.discover();
    let server = workspace.serve();
    let echo = || call_tool(&server, "one__echo", &json!({ "text": "well" }), json!({}))["content"][0]["text"].clone();
    let stat = |pid: &str| read_or_empty(&std::path::Path::new("/proc").join(pid).join("stat"));
    let is_running = |pid: &String| observe::is_running(pid);
    let started = || -> Vec<String> {
        let lines = format!("{}{}", read_or_empty(&workspace.path("starts")), read_or_empty(&workspace.path("family")));
        lines.lines().filter_map(|line| Some(line.rsplit(' ').next()?.to_owned())).collect()
    };
    for signals in [&["KILL"][..], &["STOP", "KILL"]] {
        // The server responds once all its child processes have written their ids to this file.
        std::fs::remove_file(workspace.path("family")).unwrap();
        wait_until("the source to work", || echo() == "well");
        let server_pid = read_or_empty(&workspace.path("starts")).lines().last().unwrap().to_owned();
        let guard = stat(&server_pid).rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let running: Vec<String> = started().into_iter().filter(is_running).collect();
        assert_eq!(running.len(), 4, "a server, its child, its grandchild and an escapee");
        for signal in signals {
            send_signal(signal, &guard);
        }
        wait_until("the processes of the killed guard to end", || !running.iter().any(is_running));
    }
    wait_until("the source to recover", || echo() == "well");
    server.signal("TERM");
    wait_until("all processes to end", || workspace.process_count() == 0);
}

/// A workspace with this `warm` setting and one source that counts its starts.
fn workspace_with_warm(warm: &str) -> TestWorkspace {
    let workspace = TestWorkspace::new(&json!({}), &json!({}));
    let args = json!(["--count-file", workspace.path("starts")]);
    let config =
        json!({ "warm": warm, "sources": { "one": { "command": programs::scripted_server(), "args": args } } });
    std::fs::write(workspace.path("toolcrib.json"), config.to_string()).unwrap();
    workspace
}

fn count_starts(workspace: &TestWorkspace) -> usize {
    crate::support::count_starts(&workspace.path("starts"))
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

fn initialize(server: &ServeProcess) {
    let headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    assert_eq!(request(&server.url, "POST", "/mcp", headers, INITIALIZE).status, 200);
}

fn discover(server: &ServeProcess) {
    mcp_request(server, "server/discover", json!({}), "");
}

/// Sends a request that needs no tool list.
fn describe(server: &ServeProcess) {
    call_tool(server, "describe_tools", &json!({ "names": ["search_tools"] }), json!({}));
}

#[test]
fn serve_discovers_sources_as_configured_by_warm() {
    let workspace = workspace_with_warm("demand");
    let server = workspace.serve();
    initialize(&server);
    discover(&server);
    describe(&server);
    assert_eq!(count_starts(&workspace), 0, "a client that only connects needs no list");
    server.tool_names();
    wait_until("the discovery for the first list", || count_starts(&workspace) == 1);

    for (method, first) in
        [("initialize", initialize as fn(&ServeProcess)), ("server/discover", discover), ("tools/call", describe)]
    {
        let workspace = workspace_with_warm("client");
        let server = workspace.serve();
        assert_eq!(request(&server.url, "GET", "/api/sources", "", "").status, 200);
        assert_eq!(count_starts(&workspace), 0, "no client has connected yet");
        first(&server);
        wait_until(&format!("a client came by `{method}`"), || count_starts(&workspace) == 1);
    }

    let workspace = workspace_with_warm("start");
    let _served = workspace.serve();
    wait_until("the discovery at start", || count_starts(&workspace) == 1);
}

#[test]
fn mcp_discovers_sources_as_configured_by_warm() {
    for (warm, text) in [("start", ""), ("client", INITIALIZE)] {
        let workspace = workspace_with_warm(warm);
        let mut command = workspace.toolcrib(&["mcp"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, format!("{text}\n").as_bytes()).unwrap();
        wait_until(&format!("`warm: {warm}` starts the discovery"), || count_starts(&workspace) == 1);
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}
