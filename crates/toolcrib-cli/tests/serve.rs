//! `toolcrib serve` from outside: who may knock, what happens when its file changes, and how it leaves.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use serde_json::{Value, json};
use toolcrib_testkit::rig;

use support::served::{PATIENCE, Place, Served, read, until};

const HEADERS: &str = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
    MCP-Protocol-Version: 2026-07-28\r\n";

fn one() -> Value {
    json!({ "one": { "command": rig::scripted() } })
}

impl Served {
    /// One HTTP request by hand; the status and the body.
    fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that has read enough may close before it has read all.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    /// A request of the newest version, which needs no session.
    fn ask(&self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        });
        let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let headers = format!("{HEADERS}Mcp-Method: {method}\r\n{name}");
        let (status, answer) = self.send("POST", "/mcp", &headers, body.as_bytes());
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        answer["result"].clone()
    }

    fn tools(&self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Reading the configuration, the first time and again, is no need for tools.
#[test]
fn nobody_is_contacted_before_somebody_asks_for_tools() {
    let place = Place::new(&one(), &json!({}));
    let served = place.serve();
    for times in 1..=3 {
        served.signal("HUP");
        until("it is read again", || read(&place.path("serve.log")).matches("nothing changed").count() == times);
        let (status, body) = served.send("GET", "/api/sources", "", b"");
        let sources: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &sources["sources"][0]["status"]), (200, &json!("never")), "{body}");
    }
    served.tools();
    until("the source is known", || served.send("GET", "/api/sources", "", b"").1.contains("\"success\""));
}

#[test]
fn strangers_and_giants_stay_outside() {
    let place = Place::new(&one(), &json!({}));
    let served = place.serve();
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
        let (got, body) = served.send("POST", path, &format!("{HEADERS}{headers}"), b"{}");
        assert_eq!(got, status, "{headers}{path}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["code"], code);
    }
    let (status, _) = served.send("POST", "/mcp", HEADERS, &vec![b' '; 5 * 1024 * 1024]);
    assert_eq!(status, 413);
    let (status, body) = served.send("POST", "/healthz", HEADERS, b"{}");
    assert!(status == 405 && body.contains("BAD_REQUEST"), "{status} {body}");
    assert_eq!(served.send("GET", "/healthz", "Origin: http://localhost:1234\r\n", b"").0, 200);
}

#[test]
fn an_address_that_cannot_be_had_is_an_error_at_once() {
    let place = Place::new(&one(), &json!({}));
    let served = place.serve();
    let taken = served.url.strip_prefix("http://").unwrap();
    for (listen, code, says) in [
        (taken, 1, "is taken"),
        ("0.0.0.0:0", 2, "can be reached from other machines"),
        ("nonsense", 2, "is no address"),
    ] {
        let output = place.toolcrib(&["serve", "--listen", listen]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{listen}: {said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn the_configuration_is_read_again() {
    let place = Place::new(&one(), &json!({ "mode": "full" }));
    place.discover();
    let served = place.serve();
    assert_eq!(served.tools().len(), 3);
    let log = || read(&place.path("serve.log"));

    let two = json!({ "one": { "command": rig::scripted(), "title": "First" }, "two": { "command": rig::scripted() } });
    place.configure(&two, &json!({ "mode": "full" }));
    until("the new source", || log().contains("configuration read again: `two` added, `one` changed"));
    until("its tools", || served.tools().len() == 6);

    std::fs::write(place.path("toolcrib.json"), "{ \"sources\": ").unwrap();
    until("the complaint", || log().contains("the configuration stays as it was"));
    assert_eq!(served.tools().len(), 6);

    place.configure(&one(), &json!({ "mode": "search" }));
    until("the removal", || log().contains("`one` changed, `two` removed, `expose` changed"));
    assert_eq!(served.tools(), ["call_tool", "describe_tools", "search_tools"]);
    served.signal("HUP");
    until("the signal", || log().contains("configuration read again: nothing changed"));
}

#[test]
fn leaving_lets_calls_finish_and_leaves_nothing_behind() {
    let slow = json!({ "slow": { "command": rig::scripted(), "args": ["--with", "slow", "--delay-ms", "300"] } });
    let place = Place::new(&slow, &json!({}));
    place.discover();
    let mut served = place.serve();
    let answer = thread::scope(|scope| {
        let calling =
            scope.spawn(|| served.ask("tools/call", json!({ "name": "slow__echo", "arguments": { "text": "x" } })));
        // The server behind it has been started for the call, so the call is under way.
        until("the call", || place.processes() > 1);
        served.signal("TERM");
        calling.join().unwrap()
    });
    assert_eq!(answer["content"][0]["text"], "x");
    assert_eq!(served.ended().code(), Some(0));
    until("its processes to end", || place.processes() == 0);
}

#[test]
fn the_demo_s_api_can_be_had_alone() {
    let place = Place::new(&json!({}), &json!({}));
    let mut shop = place.started(&["demo", "--api"]);
    let (status, document) = shop.send("GET", "/openapi.json", "", b"");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    let (status, refused) = shop.send("GET", "/products?limit=0", "", b"");
    assert_eq!(status, 400, "{refused}");
    shop.signal("TERM");
    assert_eq!(shop.ended().code(), Some(0));
    let refused = place.toolcrib(&["demo", "--api", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}
