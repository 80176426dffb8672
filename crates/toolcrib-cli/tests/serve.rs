//! `toolcrib serve` from outside: who may knock, what happens when its file changes, and how it leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib_testkit::programs;

use support::served::{Place, Served, read, until};
use support::web::{MCP, RawHttpResponse, ask, call, request};

fn one_source() -> Value {
    json!({ "one": { "command": programs::scripted_server() } })
}

impl Served {
    fn tool_names(&self) -> Vec<String> {
        let listed = ask(self, "tools/list", json!({}), "");
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Reading the configuration, the first time and again, is no need for tools.
#[test]
fn nobody_is_contacted_before_somebody_asks_for_tools() {
    let place = Place::new(&one_source(), &json!({}));
    let served = place.serve();
    for times in 1..=3 {
        served.signal("HUP");
        until("it is read again", || read(&place.path("serve.log")).matches("nothing changed").count() == times);
        let answer = request(&served.url, "GET", "/api/sources", "", "");
        assert_eq!((answer.status, &answer.json()["sources"][0]["status"]), (200, &json!("never")), "{answer:?}");
    }
    served.tool_names();
    until("the source is known", || request(&served.url, "GET", "/api/sources", "", "").body.contains("\"success\""));
}

#[test]
fn strangers_and_giants_stay_outside() {
    let place = Place::new(&one_source(), &json!({}));
    let served = place.serve();
    let send = |method: &str, path: &str, headers: &str, body: &str| request(&served.url, method, path, headers, body);
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
        let answer = send("POST", path, &format!("{MCP}{headers}"), "{}");
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (status, &json!(code)), "{headers}{path}");
    }
    assert_eq!(send("POST", "/mcp", MCP, &" ".repeat(5 * 1024 * 1024)).status, 413);
    let answer = send("POST", "/healthz", MCP, "{}");
    assert!(answer.status == 405 && answer.body.contains("BAD_REQUEST"), "{answer:?}");
    assert_eq!(send("GET", "/healthz", "Origin: http://localhost:1234\r\n", "").status, 200);
}

#[test]
fn an_address_that_cannot_be_had_is_an_error_at_once() {
    let place = Place::new(&one_source(), &json!({}));
    let served = place.serve();
    let taken = served.url.strip_prefix("http://").unwrap();
    for (listen, code, says) in [
        (taken, 1, "is taken"),
        ("0.0.0.0:0", 2, "can be reached from other machines"),
        ("nonsense", 2, "is not an address"),
    ] {
        let output = place.toolcrib(&["serve", "--listen", listen]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{listen}: {said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn the_configuration_is_read_again() {
    let place = Place::new(&one_source(), &json!({ "mode": "full" }));
    place.discover();
    let served = place.serve();
    assert_eq!(served.tool_names().len(), 3);
    let log = || read(&place.path("serve.log"));

    let two = json!({ "one": { "command": programs::scripted_server(), "title": "First" }, "two": { "command": programs::scripted_server() } });
    place.configure(&two, &json!({ "mode": "full" }));
    until("the new source", || log().contains("configuration reloaded: `two` added, `one` changed"));
    until("its tools", || served.tool_names().len() == 6);

    std::fs::write(place.path("toolcrib.json"), "{ \"sources\": ").unwrap();
    until("the complaint", || log().contains("the configuration stays as it was"));
    assert_eq!(served.tool_names().len(), 6);

    place.configure(&one_source(), &json!({ "mode": "search" }));
    until("the removal", || log().contains("`one` changed, `two` removed, `expose` changed"));
    assert_eq!(served.tool_names(), ["call_tool", "describe_tools", "search_tools"]);
    served.signal("HUP");
    until("the signal", || log().contains("configuration reloaded: nothing changed"));
}

#[test]
fn leaving_lets_calls_finish_and_leaves_nothing_behind() {
    let slow =
        json!({ "slow": { "command": programs::scripted_server(), "args": ["--with", "slow", "--delay-ms", "300"] } });
    let place = Place::new(&slow, &json!({}));
    place.discover();
    let mut served = place.serve();
    let answer = thread::scope(|scope| {
        let calling = scope.spawn(|| call(&served, "slow__echo", &json!({ "text": "x" }), json!({})));
        // The server behind it has been started for the call, so the call is under way.
        until("the call", || place.processes() > 1);
        served.signal("TERM");
        calling.join().unwrap()
    });
    assert_eq!(answer["content"][0]["text"], "x");
    assert_eq!(served.ended().code(), Some(0));
    until("its processes to end", || place.processes() == 0);
}

/// A server whose tool `slow` takes so many steps of 10 ms, and that stays when its input ends.
fn slow_source(steps: u32, log: &str) -> Value {
    json!({ "s": {
        "command": programs::scripted_server(), "args": ["--progress", steps.to_string(), "--ignore-eof", "--log-file", log],
    } })
}

/// The protocol by which a client calls.
#[derive(Debug, Clone, Copy)]
enum CallProtocol {
    Rest,
    Mcp,
    /// Answered by a stream of events, for it asks for progress.
    Stream,
    /// The same in a session, as before 2026-07-28.
    Session,
}

/// One call of `s__slow`; the response to it.
fn call_slow(url: &str, protocol: CallProtocol) -> RawHttpResponse {
    const JSON: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let rpc = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let modern = |mut meta: Value| {
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let body = rpc("tools/call", json!({ "name": "s__slow", "arguments": {}, "_meta": meta }));
        let headers = format!("{MCP}Mcp-Method: tools/call\r\nMcp-Name: s__slow\r\n");
        request(url, "POST", "/mcp", &headers, &body.to_string())
    };
    match protocol {
        CallProtocol::Rest => request(url, "POST", "/api/tools/s__slow/call", JSON, "{}"),
        CallProtocol::Mcp => modern(json!({})),
        CallProtocol::Stream => modern(json!({ "progressToken": "p" })),
        CallProtocol::Session => {
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
            let begun = request(url, "POST", "/mcp", JSON, &rpc("initialize", params).to_string());
            let headers = format!("{JSON}Mcp-Session-Id: {}\r\n", begun.header("mcp-session-id").unwrap());
            let params = json!({ "name": "s__slow", "arguments": {}, "_meta": { "progressToken": "p" } });
            request(url, "POST", "/mcp", &headers, &rpc("tools/call", params).to_string())
        }
    }
}

/// The JSON of a response, or of the last event of a stream that ended.
fn last_message(answer: &RawHttpResponse) -> Value {
    let last = answer.body.lines().rev().find_map(|line| line.strip_prefix("data: "));
    last.map_or_else(|| answer.json(), |last| serde_json::from_str(last).unwrap())
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

/// Makes calls in all protocols at once, asks the server to leave while all of them run, and gives the responses. The server has
/// ended then, and what it started too.
fn calls_during_shutdown(steps: u32, calls: usize) -> Vec<(CallProtocol, RawHttpResponse)> {
    let place = Place::new(&json!({}), &json!({}));
    let log = place.path("methods");
    place.configure(&slow_source(steps, log.to_str().unwrap()), &json!({}));
    place.discover();
    let mut served = place.serve();
    let protocols = [
        CallProtocol::Rest,
        CallProtocol::Mcp,
        CallProtocol::Rest,
        CallProtocol::Stream,
        CallProtocol::Rest,
        CallProtocol::Session,
    ];
    let (answers, left) = thread::scope(|scope| {
        let url = &served.url;
        let calling: Vec<_> = protocols
            .into_iter()
            .cycle()
            .take(calls)
            .map(|protocol| (protocol, scope.spawn(move || call_slow(url, protocol))))
            .collect();
        until("all calls are under way", || read(&log).matches("tools/call").count() == calls);
        served.signal("TERM");
        let left = Instant::now();
        let answers = calling.into_iter().map(|(protocol, calling)| (protocol, calling.join().unwrap())).collect();
        (answers, left)
    });
    assert_eq!(served.ended().code(), Some(0), "{}", read(&place.path("serve.log")));
    // The drain time is ten seconds; a busy machine may need some more to start the end and to notice it.
    assert!(left.elapsed() < Duration::from_secs(20), "{:?}", left.elapsed());
    until("its processes to end", || place.processes() == 0);
    answers
}

#[test]
fn leaving_responds_to_every_call_that_cannot_finish() {
    for (protocol, answer) in calls_during_shutdown(6_000, 100) {
        match protocol {
            CallProtocol::Rest => expect_stopping(&answer.expect_json(503)),
            CallProtocol::Mcp | CallProtocol::Stream | CallProtocol::Session => {
                assert_eq!(answer.status, 200, "{protocol:?} {answer:?}");
                expect_stopping_result(&last_message(&answer)["result"]);
            }
        }
    }
}

#[test]
fn leaving_lets_calls_finish_that_can() {
    for (protocol, answer) in calls_during_shutdown(100, 12) {
        assert_eq!(answer.status, 200, "{protocol:?} {answer:?}");
        let message = last_message(&answer);
        let content =
            if matches!(protocol, CallProtocol::Rest) { &message["content"] } else { &message["result"]["content"] };
        assert_eq!(content[0]["text"], "done", "{protocol:?} {answer:?}");
    }
}

#[test]
fn a_process_that_cannot_even_drain_ends_within_its_drain_time() {
    let place = Place::new(&json!({}), &json!({}));
    let config = place.path("toolcrib.json");
    std::fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut command = place.toolcrib(&["serve", "--listen", &address.to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It has its address before it reads its configuration, which never comes.
    until("it has started", || TcpStream::connect(address).is_ok());
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let mut ended = None;
    until("its end", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
}

/// What ends a `toolcrib mcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Signal,
    EndOfInput,
}

#[test]
fn a_call_on_stdio_that_cannot_finish_gets_a_response() {
    for ending in [Ending::Signal, Ending::EndOfInput] {
        let place = Place::new(&json!({}), &json!({}));
        let log = place.path("methods");
        place.configure(&slow_source(6_000, log.to_str().unwrap()), &json!({}));
        place.discover();
        let mut command = place.toolcrib(&["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
        for (id, method, params) in
            [(1, "initialize", params), (2, "tools/call", json!({ "name": "s__slow", "arguments": {} }))]
        {
            writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).unwrap();
        }
        until("the call is under way", || read(&log).contains("tools/call"));
        match ending {
            Ending::Signal => {
                let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
                assert!(sent.success());
            }
            Ending::EndOfInput => drop(input),
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stdout).unwrap();
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(last["id"], 2, "{ending:?} {said}");
        expect_stopping_result(&last["result"]);
        until("its processes to end", || place.processes() == 0);
    }
}

#[test]
fn the_demo_s_api_can_be_had_alone() {
    let place = Place::new(&json!({}), &json!({}));
    let mut shop = place.started(&["demo", "--api"]);
    let document = request(&shop.url, "GET", "/openapi.json", "", "");
    assert_eq!((document.status, &document.json()["openapi"]), (200, &json!("3.1.0")));
    assert_eq!(request(&shop.url, "GET", "/products?limit=0", "", "").status, 400);
    shop.signal("TERM");
    assert_eq!(shop.ended().code(), Some(0));
    let refused = place.toolcrib(&["demo", "--api", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// The guard of a server is what ends its processes. When it is itself killed they end all the same, wherever they are,
/// and the source works on.
#[cfg(target_os = "linux")]
#[test]
fn nothing_survives_a_guard_that_is_killed_and_the_source_works_on() {
    let place = Place::new(&json!({}), &json!({}));
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    let args = ["--grandchildren", "--pids-file", &path("family"), "--count-file", &path("starts")];
    place.configure(&json!({ "one": { "command": programs::scripted_server(), "args": args } }), &json!({}));
    place.discover();
    let served = place.serve();
    let echo = || call(&served, "one__echo", &json!({ "text": "well" }), json!({}))["content"][0]["text"].clone();
    let stat = |pid: &str| read(&std::path::Path::new("/proc").join(pid).join("stat"));
    let lives =
        |pid: &String| stat(pid).rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'));
    let started = || -> Vec<String> {
        let lines = format!("{}{}", read(&place.path("starts")), read(&place.path("family")));
        lines.lines().filter_map(|line| Some(line.rsplit(' ').next()?.to_owned())).collect()
    };
    for signals in [&["-KILL"][..], &["-STOP", "-KILL"]] {
        // The server answers once its family has written itself down here.
        std::fs::remove_file(place.path("family")).unwrap();
        until("the source works", || echo() == "well");
        let server = read(&place.path("starts")).lines().last().unwrap().to_owned();
        let guard = stat(&server).rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let family: Vec<String> = started().into_iter().filter(lives).collect();
        assert_eq!(family.len(), 4, "a server, its child, its grandchild and an escapee");
        for signal in signals {
            assert!(std::process::Command::new("kill").args([signal, guard.as_str()]).status().unwrap().success());
        }
        until("all of them have ended", || !family.iter().any(lives));
    }
    until("the source works on", || echo() == "well");
    served.signal("TERM");
    until("nothing is left", || place.processes() == 0);
}

/// A place whose one source counts its starts, and that is discovered as `warm` says.
fn workspace_with_warm(warm: &str) -> Place {
    let place = Place::new(&json!({}), &json!({}));
    let args = json!(["--count-file", place.path("starts")]);
    let config =
        json!({ "warm": warm, "sources": { "one": { "command": programs::scripted_server(), "args": args } } });
    std::fs::write(place.path("toolcrib.json"), config.to_string()).unwrap();
    place
}

fn count_starts(place: &Place) -> usize {
    read(&place.path("starts")).lines().count()
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

fn initialize(served: &Served) {
    let headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    assert_eq!(request(&served.url, "POST", "/mcp", headers, INITIALIZE).status, 200);
}

fn discover(served: &Served) {
    ask(served, "server/discover", json!({}), "");
}

/// A request that needs no list.
fn describe(served: &Served) {
    call(served, "describe_tools", &json!({ "names": ["search_tools"] }), json!({}));
}

#[test]
fn what_is_due_is_discovered_when_warm_says() {
    let place = workspace_with_warm("demand");
    let served = place.serve();
    initialize(&served);
    discover(&served);
    describe(&served);
    assert_eq!(count_starts(&place), 0, "a client that only connects needs no list");
    served.tool_names();
    until("the first list makes it look", || count_starts(&place) == 1);

    for (method, first) in
        [("initialize", initialize as fn(&Served)), ("server/discover", discover), ("tools/call", describe)]
    {
        let place = workspace_with_warm("client");
        let served = place.serve();
        assert_eq!(request(&served.url, "GET", "/api/sources", "", "").status, 200);
        assert_eq!(count_starts(&place), 0, "nobody has come yet");
        first(&served);
        until(&format!("a client came by `{method}`"), || count_starts(&place) == 1);
    }

    let place = workspace_with_warm("start");
    let _served = place.serve();
    until("it looks by itself", || count_starts(&place) == 1);
}

#[test]
fn mcp_discovers_what_is_due_when_warm_says() {
    for (warm, said) in [("start", ""), ("client", INITIALIZE)] {
        let place = workspace_with_warm(warm);
        let mut command = place.toolcrib(&["mcp"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, format!("{said}\n").as_bytes()).unwrap();
        until(&format!("`warm: {warm}` makes it look"), || count_starts(&place) == 1);
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}
