//! Tests that denied and hidden tools are for administrators alone, on every route.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, RegistryOptions};

use super::support::{RestTestServer, start_with};

const RULES: &str = "sources:
  shop: { command: x, tools: { wipe: hide, refund: deny } }
  vault: { command: x, tools: { '*': hide } }
";

fn read_config(yaml: &str) -> Config {
    Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap()
}

/// A server whose tools `wipe` and `refund` and whose source `vault` are not for agents. Every tool changed once, and the
/// tools `old_*` were removed.
async fn start_with_rules() -> RestTestServer {
    let shop = ScriptedSource::new(["order", "wipe", "refund", "old_wipe"]);
    let vault = ScriptedSource::new(["unlock"]);
    let server =
        start_with(read_config(RULES), RegistryOptions::default(), &[("shop", &shop), ("vault", &vault)]).await;
    server.registry.refresh(Refresh::default()).await;
    let changed = ["order", "wipe", "refund"].map(|name| json!({ "name": name, "description": "Changed" }));
    shop.set_tools(changed);
    vault.set_tools([json!({ "name": "unlock", "description": "Changed" })]);
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    server
}

async fn get_as_admin(server: &RestTestServer, path: &str) -> Value {
    server.send_as_admin("GET", path, &Value::Null).await.expect_json(200)
}

fn policies(list: &Value) -> Vec<(&str, &str)> {
    let tools = list["tools"].as_array().unwrap().iter();
    tools.map(|tool| (tool["name"].as_str().unwrap(), tool["policy"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn administrators_see_denied_and_hidden_tools_with_their_policy() {
    let server = start_with_rules().await;
    let list = get_as_admin(&server, "/api/tools").await;
    let expected =
        [("shop__order", "allow"), ("shop__refund", "deny"), ("shop__wipe", "hide"), ("vault__unlock", "hide")];
    assert_eq!(policies(&list), expected);
    assert_eq!(get_as_admin(&server, "/api/tools/shop__wipe").await["policy"], "hide");
    assert_eq!(get_as_admin(&server, "/api/sources/vault").await["tools"], json!(["vault__unlock"]));
    assert_eq!(get_as_admin(&server, "/api/stats").await["tool_count"], 4);
    assert!(get_as_admin(&server, "/api/lock").await["sources"]["shop"]["tools"]["shop__wipe"].is_object());
    for format in ["mcp", "anthropic", "openai"] {
        let tools = get_as_admin(&server, &format!("/api/tools?format={format}")).await;
        assert_eq!(tools.as_array().unwrap().len(), 1, "{format}: only what models may use");
    }
    let disabled = server.send_as_admin("POST", "/api/tools/shop__wipe/disable", &Value::Null).await.expect_json(200);
    assert_eq!(disabled, json!({ "tool": "shop__wipe", "enabled": false, "changed": true }));
}

#[tokio::test]
async fn agents_read_of_denied_and_hidden_tools_nowhere() {
    let server = start_with_rules().await;
    server.send_as_admin("POST", "/api/tools/shop__wipe/disable", &Value::Null).await.expect_json(200);
    server.send_as_admin("POST", "/api/tools/shop__refund/call", &json!({})).await.expect_json(403);
    let reads = [
        "/api/tools",
        "/api/tools?state=disabled",
        "/api/tools?state=deprecated",
        "/api/tools?order=calls&names=*wipe*,*refund*,*unlock*",
        "/api/sources",
        "/api/sources/shop",
        "/api/stats",
        "/api/config",
        "/api/context",
        "/metrics",
        "/api/search?q=wipe+refund+unlock",
        "/api/history?after=0",
        "/api/history?after=0&format=cloudevents",
        "/api/history",
        "/api/lock",
        "/api/diff?since=2020-01-01",
        "/api/tools/shop__order/history",
        "/",
        "/sources",
        "/sources/shop",
        "/tools",
        "/tools/shop__order",
        "/activity",
    ];
    for path in reads {
        let response = server.get(path).await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
        // The removed tool `old_wipe` has no rule against it.
        let body = response.body.replace("old_wipe", "").replace("wipe+refund+unlock", "");
        for word in ["wipe", "refund", "unlock", "vault"] {
            assert!(!body.contains(word), "{path} has `{word}`: {body}");
        }
    }
    for path in ["/api/refresh?force=true", "/api/sources/shop/refresh?force=true"] {
        let body = server.post(path, &Value::Null).await.expect_json(200).to_string();
        assert!(!body.contains("wipe") && !body.contains("vault"), "{body}");
    }
    let shop = server.get("/api/sources/shop").await.expect_json(200);
    assert_eq!((&shop["tool_count"], &shop["tools"]), (&json!(1), &json!(["shop__order"])));
    assert_ne!(shop["inventory_hash"], get_as_admin(&server, "/api/sources/shop").await["inventory_hash"]);
    let outcome = server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(200);
    assert_eq!((&outcome["status"], &outcome["unchanged"]), (&json!("unchanged"), &json!(1)));
}

#[tokio::test]
async fn agents_get_the_same_answer_for_hidden_and_unknown_names() {
    let server = start_with_rules().await;
    let ask = async |method: &str, path: &str, name: &str| {
        let response = server.send(method, &path.replace("NAME", name), "", b"").await;
        (response.status, response.body.replace(name, "NAME"))
    };
    let at = format!("/api/tools/NAME?at={}", server.registry.now());
    let tool_routes = [
        ("GET", "/api/tools/NAME"),
        ("GET", at.as_str()),
        ("GET", "/api/tools/NAME/history"),
        ("GET", "/api/history?tool=NAME"),
        ("GET", "/api/history?tool=NAME&after=0"),
        ("POST", "/api/tools/NAME/call"),
        ("GET", "/tools/NAME"),
    ];
    for (method, path) in tool_routes {
        let hidden = ask(method, path, "shop__wipe").await;
        assert_eq!(hidden, ask(method, path, "shop__mipe").await, "{method} {path}");
        assert_eq!(hidden.0, 404, "{method} {path}");
        if path.starts_with("/api/") && !path.contains("call") {
            let denied = server.send(method, &path.replace("NAME", "shop__refund"), "", b"").await;
            assert_eq!(denied.expect_json(403)["error"]["code"], "FORBIDDEN", "{method} {path}");
        }
    }
    let source_routes = [
        ("GET", "/api/sources/NAME"),
        ("GET", "/api/tools?source=NAME"),
        ("GET", "/api/search?q=x&source=NAME"),
        ("GET", "/api/history?source=NAME"),
        ("POST", "/api/sources/NAME/refresh"),
        ("GET", "/sources/NAME"),
    ];
    for (method, path) in source_routes {
        let hidden = ask(method, path, "vault").await;
        assert_eq!(hidden, ask(method, path, "xxxxx").await, "{method} {path}");
        assert_eq!(hidden.0, 404, "{method} {path}");
    }
    // Neither does it matter that the source is disabled.
    server.send_as_admin("POST", "/api/sources/vault/disable", &Value::Null).await.expect_json(200);
    for (method, path) in tool_routes {
        let hidden = ask(method, path, "vault__unlock").await;
        assert_eq!(hidden, ask(method, path, "xxxxx__unlock").await, "{method} {path}");
        assert_eq!(hidden.0, 404, "{method} {path}");
    }
    let answer = server.send_as_admin("GET", "/api/tools/vault__unlock", &Value::Null).await.expect_json(404);
    assert_eq!(
        answer["error"]["message"],
        "the source `vault` is disabled; `POST /api/sources/vault/enable` enables it"
    );
}

#[tokio::test]
async fn a_lockfile_of_an_agent_is_compared_with_what_it_sees() {
    let server = start_with_rules().await;
    let lockfile = get_as_admin(&server, "/api/lock").await;
    let own = server.get("/api/lock").await.expect_json(200);
    assert_eq!(server.post("/api/diff", &own).await.expect_json(200)["differs"], false);
    let diff = server.post("/api/diff", &lockfile).await.expect_json(200);
    let removed: Vec<&Value> = diff["sources"].as_array().unwrap().iter().map(|source| &source["removed"]).collect();
    assert_eq!(removed, [&json!(["shop__refund", "shop__wipe"]), &json!(["vault__unlock"])], "as if they were gone");
}

#[tokio::test]
async fn the_rules_of_a_removed_source_hold_for_its_history() {
    let server = start_with_rules().await;
    server.registry.configuration().apply(&read_config("sources: {}")).await.unwrap();
    let agents = server.get("/api/history?after=0&source=shop").await.expect_json(200);
    let kinds: Vec<&Value> = agents["records"].as_array().unwrap().iter().map(|record| &record["type"]).collect();
    assert_eq!(kinds, ["SourceDeclared", "InventoryRecorded", "InventoryRecorded", "SourceRemoved"]);
    let text = agents.to_string().replace("old_wipe", "");
    assert!(text.contains("order") && !text.contains("wipe") && !text.contains("refund"), "{text}");
    let all = get_as_admin(&server, "/api/history?after=0&source=shop").await;
    assert_eq!(all["records"][3]["data"]["withheld"], json!(["refund", "wipe"]));
    let everything = server.get("/api/history?after=0").await.expect_json(200).to_string();
    assert!(everything.contains("order") && !everything.contains("vault"), "{everything}");
    let hidden = server.get("/api/history?after=0&source=vault").await;
    let unknown = server.get("/api/history?after=0&source=xxxxx").await;
    assert_eq!((hidden.status, hidden.body.replace("vault", "xxxxx")), (404, unknown.body));
}

/// Regression: a removed tool whose name had a hash got the name of another tool, and a rule on its own name was ignored.
#[tokio::test]
async fn a_removed_tool_keeps_a_name_with_a_hash() {
    const RULES: &str = "sources: { shop: { command: x, tools: { 'get_it_*': hide, 'pay_it_*': deny } } }";
    let all = ["do.it", "do_it", "get.it", "get_it", "keep", "pay.it", "pay_it"];
    let shop = ScriptedSource::new(all);
    let server = start_with(read_config(RULES), RegistryOptions::default(), &[("shop", &shop)]).await;
    server.registry.refresh(Refresh::default()).await;
    let before = get_as_admin(&server, "/api/tools").await;
    let names_of = |list: &Value, original: &str| -> Vec<String> {
        let tools = list["tools"].as_array().unwrap().iter().filter(|tool| tool["original_name"] == original);
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let [hashed, hidden, denied] = ["do.it", "get.it", "pay.it"].map(|original| names_of(&before, original).remove(0));
    assert!(hashed.starts_with("shop__do_it_") && hidden.starts_with("shop__get_it_"), "{hashed} {hidden}");

    shop.set_tools(["do_it", "get_it", "keep", "pay_it"]);
    let outcome = server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(200);
    assert_eq!(outcome["removed"], json!([hashed]));
    let removed = server.get("/api/tools?state=deprecated").await.expect_json(200);
    assert_eq!(policies(&removed), [(hashed.as_str(), "allow")]);
    assert_eq!(server.get(&format!("/api/tools/{hashed}")).await.expect_json(200)["original_name"], "do.it");
    let called = server.post(&format!("/api/tools/{hashed}/call"), &json!({})).await.expect_json(404);
    assert!(called["error"]["message"].as_str().unwrap().starts_with(&format!("`{hashed}` was removed")), "{called}");
    server.get(&format!("/api/tools/{hidden}")).await.expect_json(404);
    for (method, path) in [("GET", ""), ("GET", "/history"), ("POST", "/call")] {
        let answer = server.send(method, &format!("/api/tools/{denied}{path}"), "", b"").await;
        assert_eq!(answer.expect_json(403)["error"]["code"], "FORBIDDEN", "{path}");
    }
    let history = server.get("/api/history?after=0").await.expect_json(200).to_string();
    assert!(history.contains("do.it") && !history.contains("get.it") && !history.contains("pay.it"), "{history}");

    shop.set_tools(["keep"]);
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    let all = get_as_admin(&server, "/api/tools?state=deprecated").await;
    let names: Vec<&str> = policies(&all).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 6);
    assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    assert_eq!(names_of(&all, "do.it"), [hashed]);
}

/// A failing source is shown, so that its error can be seen, but not one of which agents could see no tool anyway.
#[tokio::test]
async fn a_source_that_hides_everything_is_unknown_before_its_discovery() {
    const RULES: &str = "sources:
  shop: { command: x, tools: { wipe: hide } }
  vault: { command: x, tools: { '*': hide, unlock: deny } }
";
    let server = start_with(read_config(RULES), RegistryOptions::default(), &[]).await;
    for path in ["/api/sources", "/api/stats", "/api/history?after=0", "/sources"] {
        let body = server.get(path).await.body;
        assert!(body.contains("shop") && !body.contains("vault"), "{path}: {body}");
    }
    let refreshed = server.post("/api/refresh", &Value::Null).await.expect_json(200).to_string();
    assert!(refreshed.contains("shop") && !refreshed.contains("vault"), "{refreshed}");
    assert_eq!(server.get("/api/sources/vault").await.status, 404);
    assert_eq!(get_as_admin(&server, "/api/sources/vault").await["id"], "vault");
}

#[tokio::test]
async fn responses_depend_on_the_credentials() {
    let server = start_with_rules().await;
    let vary = "Authorization, Cookie";
    for path in ["/api/tools", "/api/sources", "/api/search?q=order", "/api/context", "/api/stats", "/tools"] {
        assert_eq!(server.get(path).await.header("vary"), Some(vary), "{path}");
    }
    let etag = server.get("/api/tools").await.header("etag").unwrap().to_owned();
    let unchanged = server.send("GET", "/api/tools", &format!("If-None-Match: {etag}\r\n"), b"").await;
    assert_eq!((unchanged.status, unchanged.header("vary")), (304, Some(vary)));
}
