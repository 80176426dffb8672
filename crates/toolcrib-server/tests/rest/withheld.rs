//! Tests that what is told about a source, its settings, errors and calls does not name tools that its reader may not know of.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, RegistryOptions};

use super::events::EventStreamReader;
use super::support::{RestTestServer, start_with};
use crate::test_server::SourceScripts;

async fn start(yaml: &str, sources: SourceScripts<'_>) -> RestTestServer {
    let config = Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), sources).await;
    server.registry.refresh(Refresh::default()).await;
    server
}

impl RestTestServer {
    /// Sends a request without a token and returns the status and the text of its response.
    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let response = self.send(method, path, "", b"").await;
        (response.status, response.body)
    }

    async fn call_as_admin(&self, tool: &str) -> Value {
        let response = self.send_as_admin("POST", &format!("/api/tools/{tool}/call"), &json!({})).await;
        serde_json::from_str(&response.body).unwrap()
    }
}

/// Regression: the error of a failed call has the name of its tool.
#[tokio::test]
async fn the_error_of_a_call_is_for_readers_that_see_its_tool() {
    const RULES: &str = "sources: { shop: { command: x } }
groups: { desk: { tools: [shop__order] } }
access: [{ name: all, groups: [desk] }]
";
    let shop = ScriptedSource::new(["order", "refund"]);
    let server = start(RULES, &[("shop", &shop)]).await;
    let last_error = async || server.get("/api/sources/shop").await.expect_json(200)["last_error"].clone();
    shop.fail("`refund` of `shop` failed: the till is open");
    server.call_as_admin("shop__refund").await;
    let withheld = last_error().await;
    assert_eq!((&withheld["code"], &withheld["retryable"]), (&json!("TOOL_UNAVAILABLE"), &json!(true)), "{withheld}");
    for path in ["/api/sources", "/api/sources/shop", "/", "/sources", "/sources/shop"] {
        let (status, body) = server.ask("GET", path).await;
        assert!(status == 200 && !body.contains("refund") && !body.contains("till"), "{path}: {body}");
    }
    let shown = server.send_as_admin("GET", "/api/sources/shop", &Value::Null).await.body;
    assert!(shown.contains("the till is open"), "{shown}");

    shop.fail("`order` of `shop` failed: the till is open");
    server.call_as_admin("shop__order").await;
    assert_eq!(last_error().await["message"], "`order` of `shop` failed: the till is open");
    // A failed discovery has no tool, but may name one.
    shop.fail("`shop__refund` is listed twice. The server has exited.");
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_eq!(last_error().await["message"], "The server has exited.");
}

/// Regression: only rules with `deny` and `hide` were left out.
#[tokio::test]
async fn settings_that_name_tools_are_for_readers_that_see_all_of_them() {
    const SOURCES: &str = "
sources:
  shop: { command: x, tools: { refund: ask }, essential: [refund] }
  api: { openapi: ./refund-free.yaml, include: ['*refund*'], exclude: [refund_all], include_tags: [refunds] }
expose: { essential: [shop__refund] }
";
    let groups = format!(
        "{SOURCES}groups: {{ desk: {{ select: {{ without_tags: [x], name: order }} }} }}
policies: [{{ name: p, match: {{ name: refund }}, verdict: hide }}]\n"
    );
    let shop = ScriptedSource::new(["order", "refund"]);
    for (rules, path, is_withheld) in [
        (SOURCES, "/sources/shop", false),
        (SOURCES, "/api/config", false),
        (&groups, "/sources/shop", true),
        (&groups, "/sources/api", true),
        (&groups, "/api/config", true),
    ] {
        let server = start(rules, &[("shop", &shop)]).await;
        let (status, body) = server.ask("GET", path).await;
        let body = body.replace("refund-free", "");
        assert!(status == 200 && body.contains("refund") != is_withheld, "{path}: {body}");
    }
}

/// Regression: notifications followed the principal that had opened the session, whatever its rights were later.
#[tokio::test]
async fn change_notifications_follow_the_principal_of_the_last_request() {
    const GROUPS: &str = "sources: { shop: { command: x } }
groups: { orders: { select: { name: order } }, refunds: { select: { name: refund } } }
";
    let shop = ScriptedSource::new(["order", "refund"]);
    let server = start(GROUPS, &[("shop", &shop)]).await;
    let token = json!({ "name": "desk", "role": "agent", "groups": ["orders"] });
    let created = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    let mut headers = format!(
        "Authorization: Bearer {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2025-06-18\r\n",
        created["token"].as_str().unwrap()
    );
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" } } });
    let opened = server.send("POST", "/mcp?mode=full", &headers, initialize.to_string()).await;
    headers.push_str(&format!("Mcp-Session-Id: {}\r\n", opened.header("mcp-session-id").unwrap()));
    let list = async || {
        let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
        let listed = server.send("POST", "/mcp?mode=full", &headers, request).await.expect_json(200);
        listed["result"]["tools"][0]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(list().await, "shop__order");

    let path = format!("/api/tokens/{}", created["id"].as_str().unwrap());
    server.send_as_admin("PATCH", &path, &json!({ "groups": ["refunds"] })).await.expect_json(200);
    let mut notifications = EventStreamReader::start(&server, "/mcp?mode=full", &headers).await;
    let changed = "notifications/tools/list_changed";
    assert_eq!(notifications.next_event().await.unwrap().data["method"], changed, "another list than the last one");
    assert_eq!(list().await, "shop__refund");
    shop.set_tools(["order", "refund"].map(|name| json!({ "name": name, "description": "Changed" })));
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_eq!(
        notifications.next_event().await.unwrap().data["method"],
        changed,
        "a tool of the new group has changed"
    );
}

const HIDDEN_BY_GROUP: &str =
    "groups: { desk: { select: { name: order } } }\naccess: [{ name: all, groups: [desk] }]\n";
const HIDDEN_BY_POLICY: &str = "policies: [{ name: p, match: { source: slow }, verdict: deny }]\n";

/// Regression: a source that the caller may not know of was started, waited for and named.
#[tokio::test]
async fn a_call_neither_starts_nor_names_a_source_that_its_caller_may_not_know_of() {
    for (tools, rules) in [("{ '*': hide }", ""), ("{}", HIDDEN_BY_GROUP), ("{}", HIDDEN_BY_POLICY)] {
        let sources = format!("sources: {{ slow: {{ command: x, tools: {tools} }} }}\n{rules}");
        let slow = ScriptedSource::new(["order"]);
        slow.pause();
        let config = Config::read(&sources, "toolcrib.yaml", Path::new("/")).unwrap();
        // Without discoveries in the background, which any unknown name starts.
        let options = RegistryOptions { revalidate: false, ..RegistryOptions::default() };
        let server = start_with(config, options, &[("slow", &slow)]).await;
        let call = async |source: &str| {
            let (status, body) = server.ask("POST", &format!("/api/tools/{source}__x/call")).await;
            (status, body.replace(source, "SOURCE"))
        };
        assert_eq!(call("slow").await, call("slox").await, "{rules}");
        assert_eq!((call("slow").await.0, slow.discoveries()), (404, 0), "{rules}");
        // A policy on all tools of a source hides it, like a rule of its own.
        for path in ["/api/sources", "/api/stats", "/api/history?after=0", "/sources"] {
            let (status, body) = server.ask("GET", path).await;
            assert!(status == 200 && !body.contains("slow"), "{path}: {body}");
        }
        assert_eq!(server.ask("GET", "/api/sources/slow").await.0, 404);
        slow.resume();
    }
}

#[tokio::test]
async fn a_first_call_waits_for_a_tool_that_its_caller_would_see() {
    let sources = format!("sources: {{ slow: {{ command: x }} }}\n{HIDDEN_BY_GROUP}");
    let slow = ScriptedSource::new(["order"]);
    let config = Config::read(&sources, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("slow", &slow)]).await;
    assert_eq!(server.ask("POST", "/api/tools/slow__order/call").await.0, 200);
    assert_eq!(slow.discoveries(), 1);
}

/// Regression: the unknown name of a call was shown where only rules of a source hide tools.
#[tokio::test]
async fn calls_of_hidden_tools_are_not_shown() {
    let shop = ScriptedSource::new(["order", "refund"]);
    let server = start("sources: { shop: { command: x, tools: { refund: hide } } }", &[("shop", &shop)]).await;
    let mut events = EventStreamReader::open(&server, "/api/events", "").await;
    assert_eq!(server.ask("POST", "/api/tools/shop__refund/call").await.0, 404);
    assert_eq!(server.ask("POST", "/api/tools/shop__order/call").await.0, 200);
    assert_eq!(events.next_named("call").await.data["tool"], "shop__order");
    let (_, activity) = server.ask("GET", "/activity").await;
    assert!(activity.contains("shop__order") && !activity.contains("refund"), "{activity}");
}

/// Regression: the empty list of a source without tools was cached for everyone with the same tools.
#[tokio::test]
async fn an_empty_list_is_not_cached_for_readers_that_may_not_know_of_its_source() {
    const RULES: &str = "sources: { shop: { command: x }, empty: { command: x, tools: { '*': hide } } }";
    let (shop, empty) = (ScriptedSource::new(["order"]), ScriptedSource::new([""; 0]));
    let server = start(RULES, &[("shop", &shop), ("empty", &empty)]).await;
    for path in ["/api/tools?source=empty", "/api/search?q=order&source=empty"] {
        assert_eq!(server.ask("GET", path).await.0, 404, "{path}");
        assert_eq!(server.send_as_admin("GET", path, &Value::Null).await.status, 200, "{path}");
        assert_eq!(server.ask("GET", path).await.0, 404, "{path}");
    }
}

/// Regression: agents did not see that a built-in tool has the name of one of a source.
#[tokio::test]
async fn a_tool_that_a_builtin_one_shadows_is_told_to_agents() {
    const SOURCES: &str = "sources: { git: { command: x, tools: { greet: VERDICT } }, core: { builtin: [calculate] } }";
    let git = ScriptedSource::new(["push", "calculate"]);
    for (verdict, expected) in [("ask", json!(["calculate"])), ("hide", json!([]))] {
        let yaml = SOURCES.replace("greet", "calculate").replace("VERDICT", verdict);
        let server = start(&yaml, &[("git", &git)]).await;
        let source = server.get("/api/sources/git").await.expect_json(200);
        let names: Vec<&Value> = source["set_aside"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(json!(names), expected, "{verdict}");
    }
}

/// Regression: the reason of an invalid configuration quotes names of rules and tools.
#[tokio::test]
async fn the_reason_of_an_invalid_configuration_is_for_readers_from_whom_nothing_is_withheld() {
    let shop = ScriptedSource::new(["order"]);
    let reason = "toolcrib.yaml:5: groups.secrets: unknown key `refund`";
    let place = "toolcrib.yaml:5: the log of `serve` has the reason";
    for (rules, expected) in [("", reason), (HIDDEN_BY_GROUP, place)] {
        let server = start(&format!("sources: {{ shop: {{ command: x }} }}\n{rules}"), &[("shop", &shop)]).await;
        server.app_state.set_config_error(Some(reason.to_owned()));
        assert_eq!(server.get("/readyz").await.expect_json(200)["config"]["reason"], expected);
        let (_, page) = server.ask("GET", "/sources").await;
        assert_eq!(page.contains("refund"), rules.is_empty(), "{page}");
        let admin = server.send_as_admin("GET", "/sources", &Value::Null).await.body;
        assert!(admin.contains("refund"), "{admin}");
    }
}

/// Regression: two sources that hide a tool of the same name were found by it.
#[tokio::test]
async fn a_bare_name_of_hidden_tools_is_unknown() {
    const RULES: &str =
        "sources: { a: { command: x, tools: { refund: hide } }, b: { command: x, tools: { refund: hide } },
           gone: { command: x } }";
    let (a, b) = (ScriptedSource::new(["order", "refund"]), ScriptedSource::new(["refund", "sell"]));
    let gone = ScriptedSource::new([""; 0]);
    gone.fail("gone");
    let server = start(RULES, &[("a", &a), ("b", &b), ("gone", &gone)]).await;
    let hidden = server.ask("POST", "/api/tools/refund/call").await;
    let (status, body) = server.ask("POST", "/api/tools/refuzd/call").await;
    assert_eq!(hidden, (status, body.replace("refuzd", "refund")));
}

/// Regression: an API that the client may not know of added a capability.
#[tokio::test]
async fn the_result_of_initialize_does_not_depend_on_hidden_sources() {
    const GROUP: &str = "groups: { desk: { tools: [shop__order] } }\naccess: [{ name: all, groups: [desk] }]\n";
    let shop = ScriptedSource::new(["order", "refund"]);
    let mut seen = Vec::new();
    for sources in [
        "sources: { shop: { command: x } }",
        "sources: { shop: { command: x, tools: { refund: ask } }, api: { openapi: ./none.yaml } }",
    ] {
        let server = start(&format!("{sources}\n{GROUP}"), &[("shop", &shop)]).await;
        let headers = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
        let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" } } });
        let opened = server.send("POST", "/mcp?mode=search", headers, initialize.to_string()).await.expect_json(200);
        seen.push(opened["result"].clone());
    }
    assert_eq!(seen[0], seen[1]);
}
