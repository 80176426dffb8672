//! Tests groups, access rules and policies over REST: definitions, tags, previews, explanations.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, RegistryOptions};

use super::support::{RawHttpResponse, RestTestServer, start_discovered, start_with};

async fn start_shop() -> RestTestServer {
    start_discovered(&[("shop", &ScriptedSource::new(["order", "refund"]))]).await
}

impl RestTestServer {
    async fn put(&self, path: &str, body: &Value, headers: &str) -> RawHttpResponse {
        let headers =
            format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n{headers}", self.admin_token);
        self.send("PUT", path, &headers, body.to_string()).await
    }

    async fn delete(&self, path: &str, headers: &str) -> RawHttpResponse {
        self.send("DELETE", path, &format!("Authorization: Bearer {}\r\n{headers}", self.admin_token), "").await
    }

    async fn get_as_admin(&self, path: &str) -> Value {
        self.send_as_admin("GET", path, &Value::Null).await.expect_json(200)
    }
}

fn message(response: &RawHttpResponse) -> String {
    response.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn rules_of_each_kind_are_defined_read_replaced_and_removed() {
    let server = start_shop().await;
    let group = json!({ "title": "Desk", "tools": ["shop__order", "shop__gone"] });
    let created = server.put("/api/groups/desk", &group, "").await;
    let expected = json!({
        "name": "desk", "title": "Desk", "select": [], "tools": ["shop__order", "shop__gone"], "exclude": [],
        "instructions": null, "essential": [], "mode": null, "members": ["shop__order"], "missing": ["shop__gone"],
        "origin": "runtime",
    });
    assert_eq!(created.expect_json(201), expected);
    assert_eq!(created.header("location"), Some("/api/groups/desk"));
    assert_eq!(server.get_as_admin("/api/groups").await, json!({ "groups": [expected] }));
    assert_eq!(server.put("/api/groups/desk", &expected, "").await.expect_json(200), expected, "read and sent back");

    // An empty group would open what a policy on it denies.
    let headers = format!("Authorization: Bearer {}\r\n", server.admin_token);
    let empty = server.send("PUT", "/api/groups/desk", &headers, "").await;
    assert_eq!((empty.status, empty.error_code()), (400, "BAD_REQUEST".to_owned()));
    assert_eq!(server.get_as_admin("/api/groups/desk").await, expected);

    let local = json!([{ "claim": "caller.kind", "equals": "local" }]);
    let access =
        server.put("/api/access/all", &json!({ "when": local, "groups": ["desk"] }), "").await.expect_json(201);
    assert_eq!(
        access,
        json!({ "name": "all", "when": local, "groups": ["desk"], "active": true, "origin": "runtime" })
    );
    assert_eq!(server.get_as_admin("/api/access").await, json!({ "access": [access] }));
    assert_eq!(server.get_as_admin("/api/access/all").await, access);

    let policy = json!({ "match": { "source": "shop" }, "verdict": "ask" });
    let policy = server.put("/api/policies/careful", &policy, "").await.expect_json(201);
    assert_eq!((&policy["verdict"], &policy["match"]), (&json!("ask"), &json!({ "source": "shop" })));
    assert_eq!(server.get_as_admin("/api/policies").await, json!({ "policies": [policy] }));

    let used = server.delete("/api/groups/desk", "").await;
    assert_eq!((used.status, message(&used).contains("access rule `all`")), (409, true), "{used:?}");
    for path in ["/api/policies/careful", "/api/access/all", "/api/groups/desk"] {
        assert_eq!(server.delete(path, "").await.status, 204, "{path}");
        assert_eq!(server.delete(path, "").await.error_code(), "NOT_FOUND", "{path}");
        assert_eq!(server.send_as_admin("GET", path, &Value::Null).await.status, 404, "{path}");
    }
    let kinds: Vec<Value> = server.get_as_admin("/api/history?after=0").await["records"].as_array().unwrap().clone();
    let kinds: Vec<&str> = kinds.iter().filter_map(|record| record["type"].as_str()).collect();
    assert!(kinds.ends_with(&["PolicyDefined", "PolicyRemoved", "AccessRuleRemoved", "GroupRemoved"]), "{kinds:?}");
}

#[tokio::test]
async fn only_administrators_read_and_change_rules() {
    let server = start_shop().await;
    let token = json!({ "name": "bot", "role": "agent" });
    let created = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    let headers =
        format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", created["token"].as_str().unwrap());
    for path in ["/api/groups", "/api/access", "/api/policies", "/api/tools/shop__order/callers"] {
        assert_eq!(server.get(path).await.error_code(), "UNAUTHORIZED", "{path}");
        assert_eq!(server.send("GET", path, &headers, "").await.error_code(), "FORBIDDEN", "{path}");
    }
    assert_eq!(server.send("PUT", "/api/groups/desk", &headers, "{}").await.error_code(), "FORBIDDEN");
}

#[tokio::test]
async fn a_change_needs_the_current_tag() {
    let server = start_shop().await;
    let group = |title: &str| json!({ "title": title, "select": [{ "source": "shop" }] });
    let first = server.put("/api/groups/desk", &group("One"), "If-None-Match: *\r\n").await;
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!(first.status, 201);
    let exists = server.put("/api/groups/desk", &group("Two"), "If-None-Match: *\r\n").await;
    assert_eq!((exists.status, exists.error_code()), (412, "CONFLICT".to_owned()));

    // Another list of tools does not change the definition.
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    let read = server.send_as_admin("GET", "/api/groups/desk", &Value::Null).await;
    assert_eq!(read.header("etag"), Some(tag.as_str()));
    let condition = format!("If-Match: {tag}\r\n");
    let replaced = server.put("/api/groups/desk", &group("Two"), &condition).await;
    assert_eq!((replaced.status, replaced.header("etag") != Some(tag.as_str())), (200, true));
    for response in [
        server.put("/api/groups/desk", &group("Three"), &condition).await,
        server.put("/api/groups/desk?dry_run=true", &group("Three"), &condition).await,
        server.delete("/api/groups/desk", &condition).await,
        server.put("/api/groups/other", &group("Three"), &condition).await,
    ] {
        let error = response.expect_json(412)["error"].clone();
        assert_eq!((&error["code"], &error["retryable"]), (&json!("CONFLICT"), &json!(false)));
    }
    assert_eq!(server.get_as_admin("/api/groups/desk").await["title"], "Two");
    let current = format!("If-Match: {}\r\n", replaced.header("etag").unwrap());
    assert_eq!(server.delete("/api/groups/desk", &current).await.status, 204);
}

#[tokio::test]
async fn an_invalid_definition_is_refused_with_its_faults() {
    let server = start_shop().await;
    let typo = server.put("/api/groups/desk", &json!({ "tool": ["shop__order"] }), "").await.expect_json(400);
    assert_eq!(typo["error"]["code"], "CONFIG_INVALID");
    let fault = &typo["error"]["details"]["faults"][0];
    assert!(fault["message"].as_str().unwrap().contains("did you mean `tools`"), "{typo}");
    server.put("/api/groups/counter", &json!({}), "").await;
    let unknown = server.put("/api/access/desk", &json!({ "groups": ["conter"] }), "").await.expect_json(400);
    let message = "unknown group `conter`; did you mean `counter`?";
    let expected = json!([{ "file": "request body", "line": 1, "key": "groups[0]", "message": message }]);
    assert_eq!(unknown["error"]["details"]["faults"], expected);
    assert_eq!(server.delete("/api/groups/counter", "").await.status, 204);
    for (path, body) in [
        ("/api/access/desk", json!({ "groups": ["nowhere"] })),
        ("/api/access/desk", json!({ "groups": [] })),
        ("/api/policies/desk", json!({ "match": {} })),
        ("/api/groups/Desk", json!({})),
        ("/api/groups/desk", json!({ "name": "other" })),
    ] {
        assert_eq!(server.put(path, &body, "").await.error_code(), "CONFIG_INVALID", "{path} {body}");
        assert_eq!(server.put(&format!("{path}?dry_run=true"), &body, "").await.status, 400, "{path} {body}");
    }
    assert_eq!(server.put("/api/groups/desk", &json!([]), "").await.error_code(), "BAD_REQUEST");
    assert_eq!(server.get_as_admin("/api/groups").await, json!({ "groups": [] }));
}

#[tokio::test]
async fn a_rule_of_the_file_is_changed_there() {
    let yaml = "sources: { shop: { command: x } }\ngroups:\n  desk: { tools: [shop__order] }\n";
    let config = Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap();
    let shop = ScriptedSource::new(["order"]);
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop)]).await;
    assert_eq!(server.get_as_admin("/api/groups/desk").await["origin"], "config");
    for response in [
        server.put("/api/groups/desk", &json!({}), "").await,
        server.put("/api/groups/desk?dry_run=1", &json!({}), "").await,
        server.delete("/api/groups/desk", "").await,
    ] {
        assert_eq!(response.status, 409, "{response:?}");
        assert!(message(&response).contains("`toolcrib.yaml:3`"), "{response:?}");
    }
}

#[tokio::test]
async fn a_dry_run_tells_what_would_change_and_writes_nothing() {
    let server = start_shop().await;
    let token = json!({ "name": "bot", "role": "agent", "claims": { "team": "desk" } });
    server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    server.put("/api/groups/desk", &json!({ "tools": ["shop__order"] }), "").await.expect_json(201);
    let head = server.registry.inventory().version;
    let rule = json!({ "when": [{ "claim": "team", "equals": "desk" }], "groups": ["desk"] });
    let preview = server.put("/api/access/desk?dry_run=true", &rule, "").await.expect_json(200);
    let change = |caller: &str, kind: &str, loses: &[&str]| {
        json!({
            "caller": caller, "kind": kind, "gains": [], "gains_count": 0, "loses": loses, "loses_count": loses.len(),
            "verdicts": [], "verdicts_count": 0,
        })
    };
    let local = change("local", "local", &["shop__order", "shop__refund"]);
    let bot = change("bot", "token", &["shop__refund"]);
    assert_eq!(preview, json!({ "callers": [local, bot], "changed": 2, "unchanged": 0 }));
    let removal = server.delete("/api/groups/desk?dry_run=true", "").await.expect_json(200);
    assert_eq!(removal, json!({ "callers": [], "changed": 0, "unchanged": 2 }));
    assert_eq!(server.delete("/api/groups/none?dry_run=true", "").await.status, 404);
    assert_eq!(server.registry.inventory().version, head);
}

#[tokio::test]
async fn a_rule_that_leaves_local_processes_without_tools_is_warned_about_once() {
    let server = start_shop().await;
    server.put("/api/groups/desk", &json!({ "select": [{ "source": "shop" }] }), "").await.expect_json(201);
    let rule = |team: &str| json!({ "when": [{ "claim": "team", "equals": team }], "groups": ["desk"] });
    let first = server.put("/api/access/a", &rule("a"), "").await.expect_json(201);
    let warning = first["warnings"][0].as_str().unwrap();
    assert!(warning.contains("claim: caller.kind, equals: local"), "{warning}");
    let second = server.put("/api/access/b", &rule("b"), "").await.expect_json(201);
    assert!(second.get("warnings").is_none(), "{second}");
    assert_eq!(server.put("/api/access/a", &first, "").await.status, 200, "a response may be sent back");
}

#[tokio::test]
async fn verdicts_are_explained_to_administrators_for_everybody_and_to_others_for_themselves() {
    let server = start_shop().await;
    server.put("/api/groups/desk", &json!({ "tools": ["shop__order"] }), "").await.expect_json(201);
    let rule = json!({ "when": [{ "claim": "team", "equals": "desk" }], "groups": ["desk"] });
    server.put("/api/access/desk", &rule, "").await.expect_json(201);
    server.put("/api/policies/careful", &json!({ "verdict": "ask" }), "").await.expect_json(201);
    let token = json!({ "name": "bot", "role": "viewer", "claims": { "team": "desk" } });
    let created = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    let bot =
        format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", created["token"].as_str().unwrap());

    let expected = json!({ "verdict": "ask", "visible": true, "rules": [
        { "kind": "access", "name": "desk", "effect": "gives `desk`" },
        { "kind": "group", "name": "desk", "effect": "has the tool" },
        { "kind": "policy", "name": "careful", "effect": "ask" },
    ] });
    let explain = async |body: Value| server.send_as_admin("POST", "/api/explain", &body).await;
    for caller in [json!({ "token": "bot" }), json!({ "claims": { "team": "desk" } })] {
        let mut body = caller;
        body["tool"] = json!("shop__order");
        assert_eq!(explain(body).await.expect_json(200), expected);
    }
    let hidden = explain(json!({ "tool": "shop__refund", "token": "bot" })).await.expect_json(200);
    assert_eq!((&hidden["verdict"], &hidden["visible"]), (&json!("hide"), &json!(false)));
    assert_eq!(explain(json!({ "tool": "shop__refund" })).await.expect_json(200)["verdict"], "ask", "itself");
    assert_eq!(explain(json!({ "tool": "shop__order", "token": "x", "claims": {} })).await.status, 400);
    assert_eq!(explain(json!({ "tool": "shop__order", "token": "x" })).await.status, 404);
    assert_eq!(explain(json!({ "tool": "nothing" })).await.status, 404);

    let explain_as_bot = async |body: Value| server.send("POST", "/api/explain", &bot, body.to_string()).await;
    assert_eq!(explain_as_bot(json!({ "tool": "shop__order" })).await.expect_json(200), expected);
    for body in [json!({ "tool": "shop__order", "token": "bot" }), json!({ "tool": "shop__order", "claims": {} })] {
        assert_eq!(explain_as_bot(body).await.error_code(), "FORBIDDEN");
    }
    let unseen = explain_as_bot(json!({ "tool": "shop__refund" })).await.expect_json(404);
    let unknown = explain_as_bot(json!({ "tool": "shop__refumd" })).await.expect_json(404);
    assert_eq!(unseen.to_string().replace("refund", "refumd"), unknown.to_string());

    let callers = server.get_as_admin("/api/tools/shop__order/callers").await;
    assert_eq!(callers["groups"], json!([{ "name": "desk", "access": ["desk"] }]));
    let callers: Vec<(&str, &str, bool)> = callers["callers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|caller| {
            (caller["caller"].as_str().unwrap(), caller["verdict"].as_str().unwrap(), caller["visible"] == true)
        })
        .collect();
    assert_eq!(callers, [("local", "hide", false), ("bot", "ask", true)]);
}

#[tokio::test]
async fn an_administrator_limited_to_groups_reads_the_tools_of_these_groups_only() {
    let server = start_shop().await;
    server.put("/api/groups/reading", &json!({ "tools": ["shop__order"] }), "").await.expect_json(201);
    let all = json!({ "select": [{ "source": "shop" }], "tools": ["shop__refund"] });
    server.put("/api/groups/all", &all, "").await.expect_json(201);
    let token = json!({ "name": "desk", "role": "admin", "groups": ["reading"] });
    let created = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    let headers =
        format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", created["token"].as_str().unwrap());
    let send =
        async |method: &str, path: &str, body: Value| server.send(method, path, &headers, body.to_string()).await;
    assert_eq!(send("GET", "/api/tools/shop__order/callers", Value::Null).await.status, 200);
    let unseen = send("GET", "/api/tools/shop__refund/callers", Value::Null).await.expect_json(404);
    let unknown = send("GET", "/api/tools/shop__refumd/callers", Value::Null).await.expect_json(404);
    assert_eq!(unseen.to_string().replace("refund", "refumd"), unknown.to_string());
    // A tool outside the groups is not told from one that is not there.
    let group = send("GET", "/api/groups/all", Value::Null).await.expect_json(200);
    assert_eq!((&group["members"], &group["missing"]), (&json!(["shop__order"]), &json!(["shop__refund"])));
    let rule = json!({ "match": { "source": "shop" }, "verdict": "deny" });
    let preview = send("PUT", "/api/policies/none?dry_run=true", rule).await.expect_json(200);
    assert_eq!(preview["callers"][0]["loses"], json!(["shop__order"]), "{preview}");
}

#[tokio::test]
async fn a_preview_for_many_callers_and_tools_is_bounded_and_computed_once_per_scope() {
    let names: Vec<String> = (0..300).map(|number| format!("tool_{number}")).collect();
    let shop = ScriptedSource::new(names);
    let server = start_discovered(&[("shop", &shop)]).await;
    for number in 0..150 {
        let token = json!({ "name": format!("bot-{number}"), "role": "agent" });
        server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
    }
    let preview = server.put("/api/policies/ask?dry_run=true", &json!({ "verdict": "ask" }), "").await.expect_json(200);
    assert_eq!((&preview["changed"], &preview["unchanged"]), (&json!(151), &json!(0)));
    assert_eq!(preview["callers"].as_array().unwrap().len(), 100);
    for caller in preview["callers"].as_array().unwrap() {
        assert_eq!((caller["verdicts"].as_array().unwrap().len(), &caller["verdicts_count"]), (100, &json!(300)));
    }
}
