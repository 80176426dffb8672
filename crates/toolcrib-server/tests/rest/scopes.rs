//! Tests that a client reads only of the tools of its groups, on every route and in every event.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib::Refresh;
use toolcrib::testkit::ScriptedSource;

use super::events::EventStreamReader;
use super::support::{RawHttpResponse, RestTestServer, start_discovered};

/// A server with the sources `shop` and `vault`. The token `desk` sees `shop__order` by an access rule, the token `ops` all of
/// `vault` by its own group; local processes see nothing.
struct ScopedServer {
    server: RestTestServer,
    vault: Arc<ScriptedSource>,
    shop: Arc<ScriptedSource>,
    /// Header lines of the tokens.
    desk: String,
    ops: String,
}

/// Words that the holder of the token `desk` must not read.
const HIDDEN_WORDS: [&str; 5] = ["refund", "unlock", "vault", "reopen", "secret-rule"];

async fn start_scoped() -> ScopedServer {
    let shop = ScriptedSource::new(["order", "refund", "reopen"]);
    let vault = ScriptedSource::new(["unlock"]);
    let server = start_discovered(&[("shop", &shop), ("vault", &vault)]).await;
    // Every tool has a history, and one was removed.
    shop.set_tools(["order", "refund"].map(|name| json!({ "name": name, "description": "Changed" })));
    vault.set_tools([json!({ "name": "unlock", "description": "Changed" })]);
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    for (path, body) in [
        ("/api/groups/desk", json!({ "tools": ["shop__order"] })),
        ("/api/groups/vaults", json!({ "select": [{ "source": "vault" }] })),
        ("/api/access/desk", json!({ "when": [{ "claim": "team", "equals": "desk" }], "groups": ["desk"] })),
        ("/api/policies/secret-rule", json!({ "match": { "source": "vault" }, "verdict": "ask" })),
    ] {
        server.send_as_admin("PUT", path, &body).await.expect_json(201);
    }
    let create = async |token: Value| {
        let created = server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
        format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", created["token"].as_str().unwrap())
    };
    let desk = create(json!({ "name": "desk", "role": "agent", "claims": { "team": "desk" } })).await;
    let ops = create(json!({ "name": "ops", "role": "agent", "groups": ["vaults"] })).await;
    server.send_as_admin("POST", "/api/tools/shop__refund/call", &json!({})).await.expect_json(200);
    server.send_as_admin("POST", "/api/tools/vault__unlock/disable", &Value::Null).await.expect_json(200);
    server.send_as_admin("POST", "/api/tools/vault__unlock/enable", &Value::Null).await.expect_json(200);
    server.send_as_admin("POST", "/api/tools/vault__reopen/call", &json!({})).await.expect_json(404);
    ScopedServer { server, vault, shop, desk, ops }
}

impl ScopedServer {
    async fn read(&self, path: &str, headers: &str) -> RawHttpResponse {
        self.server.send("GET", path, headers, "").await
    }

    async fn admin(&self, method: &str, path: &str, body: Value) -> RawHttpResponse {
        self.server.send_as_admin(method, path, &body).await
    }
}

/// Returns the paths of all operations with a method, from the OpenAPI document, with values for their parameters.
pub(super) async fn operation_paths(server: &RestTestServer, method: &str, source: &str, tool: &str) -> Vec<String> {
    let document = server.get("/api/openapi.json").await.expect_json(200);
    let paths = document["paths"].as_object().unwrap().iter();
    let paths = paths.filter_map(|(path, operations)| Some((path, operations.get(method)?)));
    let required = |operation: &Value| -> Vec<String> {
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let required = parameters.filter(|parameter| parameter["in"] == "query" && parameter["required"] == true);
        let values = [("q", "order+unlock+refund"), ("since", "2020-01-01")];
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).unwrap().1;
        required
            .map(|parameter| parameter["name"].as_str().unwrap())
            .map(|name| format!("{name}={}", value(name)))
            .collect()
    };
    let fill = |(path, operation): (&String, &Value)| {
        let filled = path.replace("{id}", source).replace("{name}", tool);
        format!("{filled}?{}", required(operation).join("&"))
    };
    paths.map(fill).map(|path| path.trim_end_matches('?').to_owned()).collect()
}

#[tokio::test]
async fn no_read_route_names_tools_and_sources_outside_of_the_groups() {
    let ScopedServer { server, desk, .. } = &start_scoped().await;
    let mut paths = operation_paths(server, "get", "shop", "shop__order").await;
    // A stream, which has its own test.
    paths.retain(|path| path != "/api/events");
    paths.extend(
        [
            "/api/tools?state=deprecated",
            "/api/tools?state=disabled",
            "/api/tools?order=calls&names=*",
            "/api/tools?format=mcp",
            "/api/tools?group=desk",
            "/api/history?after=0",
            "/api/history?after=0&format=cloudevents",
            "/api/history?source=shop",
            "/api/history?tool=shop__order",
            "/api/diff?since=2020-01-01",
            "/",
            "/sources",
            "/sources/shop",
            "/tools",
            "/tools?q=unlock+refund",
            "/tools/shop__order",
            "/activity",
        ]
        .map(str::to_owned),
    );
    let mut read = 0;
    for path in paths {
        let response = server.send("GET", &path, desk, "").await;
        assert!([200, 400, 403, 404].contains(&response.status), "{path}: {response:?}");
        read += usize::from(response.status == 200);
        let body = response.body.replace("unlock+refund", "").replace("unlock refund", "");
        for word in HIDDEN_WORDS {
            assert!(!body.contains(word), "{path} has `{word}`: {body}");
        }
    }
    assert!(read >= 25, "{read}");
    let overview = server.send("GET", "/", desk, "").await.body;
    assert!(overview.contains("no calls"), "the chart does not count calls of tools outside of the groups: {overview}");
}

#[tokio::test]
async fn names_outside_of_the_groups_are_unknown() {
    let ScopedServer { server, desk, .. } = &start_scoped().await;
    let ask = async |method: &str, path: &str| {
        let response = server.send(method, path, desk, "").await;
        (response.status, response.body)
    };
    for method in ["get", "post", "patch", "delete", "put"] {
        let hidden = operation_paths(server, method, "vault", "vault__unlock").await;
        let unknown = operation_paths(server, method, "valut", "valut__unlock").await;
        for (hidden, unknown) in hidden.iter().zip(&unknown).filter(|(hidden, unknown)| hidden != unknown) {
            let method = method.to_uppercase();
            let (status, body) = ask(&method, hidden).await;
            assert!(status >= 400, "{method} {hidden}: {status} {body}");
            assert_eq!((status, body.replace("vault", "valut")), ask(&method, unknown).await, "{method} {hidden}");
        }
    }
}

#[tokio::test]
async fn lists_and_counts_are_those_of_the_client() {
    let scoped = start_scoped().await;
    let names = async |path: &str, headers: &str| -> Vec<String> {
        let list = scoped.read(path, headers).await.expect_json(200);
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("/api/tools", &scoped.desk).await, ["shop__order"]);
    assert_eq!(names("/api/tools", &scoped.ops).await, ["vault__unlock"]);
    assert_eq!(names("/api/tools", "").await, [""; 0]);
    let sources = async |headers: &str| scoped.read("/api/sources", headers).await.expect_json(200)["sources"].clone();
    assert_eq!(sources(&scoped.desk).await[0]["tool_count"], 1);
    assert_eq!(sources(&scoped.desk).await[0]["id"], "shop");
    assert_eq!(sources(&scoped.ops).await[0]["id"], "vault");
    assert_eq!(sources("").await, json!([]));
    let groups = async |headers: &str| scoped.read("/api/whoami", headers).await.expect_json(200)["groups"].clone();
    assert_eq!(groups(&scoped.desk).await, json!(["desk"]));
    assert_eq!(groups(&scoped.ops).await, json!(["vaults"]));
    assert_eq!(groups("").await, json!([]));
    let stats = scoped.read("/api/stats", &scoped.desk).await.expect_json(200);
    assert_eq!((&stats["tool_count"], &stats["calls"]), (&json!(1), &json!(0)));
}

/// Two scopes may have the same tools and differ in the sources without tools.
#[tokio::test]
async fn a_cached_list_of_sources_is_for_clients_with_the_same_scope() {
    let scoped = start_scoped().await;
    scoped.admin("POST", "/api/sources/vault/disable", Value::Null).await.expect_json(200);
    let sources = async |headers: &str| scoped.read("/api/sources", headers).await.expect_json(200)["sources"].clone();
    for _ in 0..2 {
        assert_eq!(sources("").await, json!([]));
        assert_eq!(sources(&scoped.ops).await[0]["id"], "vault", "a disabled source stays known");
    }
}

#[tokio::test]
async fn a_list_can_be_narrowed_to_a_group() {
    let scoped = start_scoped().await;
    let admin = format!("Authorization: Bearer {}\r\n", scoped.server.admin_token);
    let shop = json!({ "select": [{ "source": "shop" }] });
    scoped.admin("PUT", "/api/groups/shop", shop).await.expect_json(201);
    let list = scoped.read("/api/tools?group=shop", &admin).await;
    assert_eq!(list.expect_json(200)["tools"].as_array().unwrap().len(), 2);
    let etag = list.header("etag").unwrap().to_owned();
    let unchanged = scoped.read("/api/tools?group=shop", &format!("{admin}If-None-Match: {etag}\r\n")).await;
    assert_eq!(unchanged.status, 304);
    let found = scoped.read("/api/search?q=order+unlock&group=vaults", &admin).await.expect_json(200);
    assert!(found.to_string().contains("vault__unlock") && !found.to_string().contains("shop__"), "{found}");
    let context = scoped.read("/api/context?group=vaults", &admin).await.expect_json(200);
    assert_eq!(context["tools"], 1);
    let page = scoped.read("/api/tools?group=shop&format=mcp&limit=1", &admin).await;
    assert!(page.header("link").unwrap().contains("group=shop"), "{page:?}");

    for path in ["/api/tools?", "/api/tools?state=deprecated&", "/api/search?q=order&", "/api/context?"] {
        let hidden = scoped.read(&format!("{path}group=vaults"), &scoped.desk).await;
        let unknown = scoped.read(&format!("{path}group=nowhere"), &scoped.desk).await;
        assert_eq!((hidden.status, hidden.error_code()), (404, "NOT_FOUND".to_owned()), "{path}");
        assert_eq!(hidden.body.replace("vaults", "nowhere"), unknown.body, "{path}");
    }
    // A group with all tools of the view has its key. Its list is not found in the cache when it is gone.
    assert_eq!(scoped.read("/api/tools?group=desk", &scoped.desk).await.status, 200);
    scoped.admin("PUT", "/api/access/desk", json!({ "groups": ["shop"] })).await.expect_json(200);
    assert_eq!(scoped.read("/api/tools?group=desk", &scoped.desk).await.status, 404);
    assert_eq!(scoped.read("/api/tools?group=shop", &scoped.desk).await.status, 200);
}

#[tokio::test]
async fn metrics_and_configuration_need_an_administrator_while_access_rules_exist() {
    let scoped = start_scoped().await;
    for path in ["/metrics", "/api/config"] {
        assert_eq!(scoped.read(path, "").await.error_code(), "UNAUTHORIZED", "{path}");
        assert_eq!(scoped.read(path, &scoped.desk).await.error_code(), "FORBIDDEN", "{path}");
        let shown = scoped.admin("GET", path, Value::Null).await;
        assert_eq!((shown.status, shown.body.contains("vault")), (200, true), "{path}");
    }
    assert_eq!(scoped.server.delete_rule("/api/access/desk").await, 204);
    for path in ["/metrics", "/api/config"] {
        assert_eq!(scoped.read(path, "").await.status, 200, "{path}");
    }
}

impl RestTestServer {
    async fn delete_rule(&self, path: &str) -> u16 {
        self.send_as_admin("DELETE", path, &Value::Null).await.status
    }
}

#[tokio::test]
async fn a_client_refreshes_only_the_sources_that_it_may_know_of() {
    let scoped = start_scoped().await;
    let before = (scoped.shop.discoveries(), scoped.vault.discoveries());
    let refreshed = scoped.server.send("POST", "/api/refresh?force=true", &scoped.desk, "").await.expect_json(200);
    assert_eq!((&refreshed["totals"]["sources"], &refreshed["results"][0]["source"]), (&json!(1), &json!("shop")));
    assert_eq!((scoped.shop.discoveries(), scoped.vault.discoveries()), (before.0 + 1, before.1));
    let refused = scoped.server.send("POST", "/api/sources/vault/refresh?force=true", &scoped.desk, "").await;
    assert_eq!((refused.status, scoped.vault.discoveries()), (404, before.1));
}

/// Reads events until the record of a disabled source, and returns their names and data as text.
async fn read_until_disabled(events: &mut EventStreamReader, source: &str) -> String {
    let mut text = String::new();
    loop {
        let event = events.next_event().await.unwrap();
        text.push_str(&format!("{} {}\n", event.event, event.data));
        if event.data["type"] == "SourceDisabled" && event.data["source"] == source {
            return text;
        }
    }
}

#[tokio::test]
async fn listeners_get_events_about_what_they_may_see() {
    let scoped = start_scoped().await;
    let ScopedServer { server, shop, vault, desk, ops } = &scoped;
    let mut desk_events = EventStreamReader::open(server, "/api/events?after=0", desk).await;
    let mut ops_events = EventStreamReader::open(server, "/api/events?after=0", ops).await;
    shop.set_tools(["order", "refund", "reopen"]);
    vault.set_tools(["unlock", "open"]);
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    scoped
        .admin("POST", "/api/tools/vault__unlock/call", json!({ "arguments": {}, "yes": true }))
        .await
        .expect_json(200);
    scoped.admin("POST", "/api/tools/shop__order/call", json!({})).await.expect_json(200);
    scoped.admin("PUT", "/api/policies/secret-rule", json!({ "verdict": "allow" })).await.expect_json(200);
    scoped.admin("POST", "/api/sources/vault/disable", Value::Null).await.expect_json(200);
    scoped.admin("POST", "/api/sources/shop/disable", Value::Null).await.expect_json(200);
    let desk_text = read_until_disabled(&mut desk_events, "shop").await;
    let ops_text = read_until_disabled(&mut ops_events, "vault").await;
    for word in HIDDEN_WORDS {
        assert!(!desk_text.contains(word), "`{word}`: {desk_text}");
    }
    for word in ["order", "refund", "shop", "secret-rule", "Policy", "Token"] {
        assert!(!ops_text.contains(word), "`{word}`: {ops_text}");
    }
    assert!(desk_text.contains("call ") && desk_text.contains("shop__order") && desk_text.contains("discovered "));
    assert!(
        ops_text.contains("call ") && ops_text.contains("vault__unlock") && ops_text.contains("\"open\""),
        "{ops_text}"
    );
    // A lagging or reconnecting listener reads the journal, with the same restrictions.
    let mut resumed = EventStreamReader::open(server, "/api/events", &format!("{desk}Last-Event-ID: 1\r\n")).await;
    let resumed = read_until_disabled(&mut resumed, "shop").await;
    assert!(HIDDEN_WORDS.iter().all(|word| !resumed.contains(word)), "{resumed}");
}

#[tokio::test]
async fn listeners_are_told_of_a_changed_list_if_their_own_has_changed() {
    let scoped = start_scoped().await;
    let ScopedServer { server, shop, desk, ops, .. } = &scoped;
    let mut desk_events = EventStreamReader::open(server, "/api/events", desk).await;
    let mut ops_events = EventStreamReader::open(server, "/api/events", ops).await;
    let hash =
        async |headers: &str| scoped.read("/api/tools", headers).await.expect_json(200)["inventory_hash"].clone();

    // Another description of `shop__order` concerns `desk`, and one of `shop__refund` no listener.
    shop.set_tools(["order", "refund"].map(|name| json!({ "name": name, "description": "Changed again" })));
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_eq!(desk_events.next_named("catalog").await.data["inventory_hash"], hash(desk).await);
    shop.set_tools([json!({ "name": "order", "description": "Changed again" }), json!("refund")]);
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    // A rule that gives the token another group: the open stream goes on with it.
    scoped.admin("PUT", "/api/groups/desk", json!({ "select": [{ "source": "shop" }] })).await.expect_json(200);
    assert_eq!(desk_events.next_named("catalog").await.data["inventory_hash"], hash(desk).await);
    scoped.admin("POST", "/api/tools/shop__refund/call", json!({})).await.expect_json(200);
    assert_eq!(desk_events.next_named("call").await.data["tool"], "shop__refund");

    // The first change of the list of `ops` is the last of these changes.
    scoped.admin("POST", "/api/tools/vault__unlock/disable", Value::Null).await.expect_json(200);
    assert_eq!(ops_events.next_named("catalog").await.data["inventory_hash"], hash(ops).await);
}
