//! Tests tool lists with their pages and ETags, single tools, search and summary.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Refresh, RegistryOptions};

use super::support::{RestTestServer, start_discovered, start_undiscovered, start_with};
use crate::test_server::SourceScripts;

fn numbered_tools(count: usize) -> Vec<Value> {
    (0..count).map(|number| json!(format!("tool_{number:03}"))).collect()
}

fn tool_names(list: &Value) -> Vec<String> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn list_all_pages(server: &RestTestServer, query: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/api/tools?{query}&cursor={cursor}")).await.expect_json(200);
        all.extend(tool_names(&page));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return all,
        }
    }
}

#[tokio::test]
async fn pages_contain_every_tool_once() {
    let shop = ScriptedSource::new(numbered_tools(250));
    let server = start_discovered(&[("shop", &shop)]).await;
    let first = server.get("/api/tools").await.expect_json(200);
    assert_eq!((tool_names(&first).len(), first["next_cursor"].is_string()), (100, true));
    let all = list_all_pages(&server, "limit=37").await;
    assert_eq!(all.len(), 250);
    assert!(all.is_sorted());
    // A cursor holds a name, so tools removed before it do not shift the next page.
    let page = server.get("/api/tools?limit=10").await.expect_json(200);
    shop.set_tools(numbered_tools(250).into_iter().skip(10));
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(200);
    let next = format!("/api/tools?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(tool_names(&server.get(&next).await.expect_json(200)), ["shop__tool_010"]);
    let gone = server.get("/api/tools?state=deprecated&limit=3").await.expect_json(200);
    assert_eq!(tool_names(&gone), ["shop__tool_000", "shop__tool_001", "shop__tool_002"]);
    assert!(gone["next_cursor"].is_string());
    assert_eq!(list_all_pages(&server, "state=deprecated&limit=3").await.len(), 10);
}

#[tokio::test]
async fn a_hidden_tool_stays_hidden_after_its_removal() {
    let shop = ScriptedSource::new(["list", "order.delete"]);
    let yaml = "sources: { shop: { command: x, tools: { order_delete: hide } } }";
    let config = Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop)]).await;
    server.registry.refresh(Refresh::default()).await;
    let tools = server.get("/api/tools").await.expect_json(200);
    assert_eq!(tool_names(&tools), ["shop__list"]);
    shop.set_tools([json!("other")]);
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(200);
    let removed = server.get("/api/tools?state=deprecated").await.expect_json(200);
    assert_eq!(tool_names(&removed), ["shop__list"]);
}

#[tokio::test]
async fn reads_do_not_contact_sources() {
    let shop = ScriptedSource::new(numbered_tools(3));
    let server = start_undiscovered(&[("shop", &shop)]).await;
    for path in ["/api/tools", "/api/sources", "/api/search?q=tool", "/api/context", "/api/stats", "/api/config"] {
        server.get(path).await.expect_json(200);
    }
    assert_eq!(server.get("/api/tools/shop__tool_001").await.status, 503);
    assert_eq!(shop.discoveries(), 0);
}

#[tokio::test]
async fn an_etag_is_valid_until_the_response_changes() {
    let (shop, mail) = (ScriptedSource::new(numbered_tools(3)), ScriptedSource::new(["send"]));
    let server = start_discovered(&[("shop", &shop), ("mail", &mail)]).await;
    for path in
        ["/api/tools", "/api/tools?source=shop&format=mcp", "/api/search?q=tool", "/api/context", "/api/sources"]
    {
        let tag = server.get(path).await.header("etag").unwrap().to_owned();
        assert_eq!(server.get(path).await.header("etag"), Some(tag.as_str()), "{path}");
        for known in [tag.clone(), format!("\"x\", W/{tag}"), "*".into()] {
            let again = server.send("GET", path, &format!("If-None-Match: {known}\r\n"), b"").await;
            assert_eq!((again.status, again.body.as_str()), (304, ""), "{path} {known}");
        }
        server.registry.refresh(toolcrib::Refresh { force: true, ..Default::default() }).await;
        server.send_as_admin("POST", "/api/tools/shop__tool_001/disable", &Value::Null).await.expect_json(200);
        let changed = server.send("GET", path, &format!("If-None-Match: {tag}\r\n"), b"").await;
        assert_eq!(changed.status, 200, "{path}");
        server.send_as_admin("POST", "/api/tools/shop__tool_001/enable", &Value::Null).await.expect_json(200);
    }
    let one_tool = server.get("/api/tools?limit=1").await;
    let two_tools = server.get("/api/tools?limit=2").await;
    assert_ne!(one_tool.header("etag"), two_tools.header("etag"));
    let head = server.send("HEAD", "/api/tools", "", b"").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("etag"), server.get("/api/tools").await.header("etag"));
}

#[tokio::test]
async fn an_etag_does_not_depend_on_the_version_of_the_journal() {
    let shop = ScriptedSource::new(numbered_tools(3));
    let server = start_discovered(&[("shop", &shop)]).await;
    let paths = ["/api/tools", "/api/tools?source=shop&format=mcp", "/api/search?q=tool", "/api/context"];
    for path in paths {
        let tag = server.get(path).await.header("etag").unwrap().to_owned();
        let token = json!({ "name": format!("ci-{}", path.len()), "role": "viewer" });
        server.send_as_admin("POST", "/api/tokens", &token).await.expect_json(201);
        assert_eq!(server.get(path).await.header("etag"), Some(tag.as_str()), "{path}");
    }
    // The same tools again, but one of them was away: its `updated_at` is another.
    let before = server.get("/api/tools").await;
    for count in [2, 3] {
        shop.set_tools(numbered_tools(count));
        server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    }
    let after = server.get("/api/tools").await;
    assert_eq!(before.expect_json(200)["inventory_hash"], after.expect_json(200)["inventory_hash"]);
    assert_ne!(before.body, after.body);
    assert_ne!(before.header("etag"), after.header("etag"));
}

#[tokio::test]
async fn removed_tools_and_sources_without_tools_are_not_cached() {
    let (shop, mail) = (ScriptedSource::new(numbered_tools(2)), ScriptedSource::new(["send"]));
    mail.fail("down");
    let scripts: SourceScripts<'_> = &[("shop", &shop), ("mail", &mail)];
    let server = start_with(config_with_sources(["shop"]), RegistryOptions::default(), scripts).await;
    server.registry.refresh(Refresh::default()).await;
    // A source that could not be discovered has an empty list, and is unknown after it was removed.
    let declaration = json!({ "name": "mail", "url": "http://127.0.0.1:1/mcp" });
    server.send_as_admin("POST", "/api/sources", &declaration).await.expect_json(201);
    let paths = ["/api/tools?source=mail", "/api/search?q=tool&source=mail"];
    for path in paths {
        server.get(path).await.expect_json(200);
    }
    assert_eq!(server.send_as_admin("DELETE", "/api/sources/mail", &Value::Null).await.status, 204);
    for path in paths {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }

    let path = "/api/tools?state=deprecated";
    let before = server.get(path).await;
    assert_eq!(tool_names(&before.expect_json(200)), [""; 0]);
    shop.set_tools(numbered_tools(1));
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    let after = server.get(path).await;
    assert_eq!(tool_names(&after.expect_json(200)), ["shop__tool_001"]);
    assert_ne!(before.header("etag"), after.header("etag"));
}

#[tokio::test]
async fn disabled_tools_and_sources_disappear_at_once() {
    let shop = ScriptedSource::new(numbered_tools(3));
    let server = start_discovered(&[("shop", &shop)]).await;
    let switched =
        server.send_as_admin("POST", "/api/tools/shop:tool_001/disable", &Value::Null).await.expect_json(200);
    assert_eq!(switched, json!({ "tool": "shop__tool_001", "enabled": false, "changed": true }));
    assert_eq!(tool_names(&server.get("/api/tools").await.expect_json(200)).len(), 3);
    assert_eq!(tool_names(&server.get("/api/tools?state=disabled").await.expect_json(200)), ["shop__tool_001"]);
    assert_eq!(server.get("/api/tools?format=openai").await.expect_json(200).as_array().unwrap().len(), 2);
    let again = server.send_as_admin("POST", "/api/tools/tool_001/disable", &Value::Null).await.expect_json(200);
    assert_eq!(again["changed"], false);
    let switched = server.send_as_admin("POST", "/api/sources/shop/disable", &Value::Null).await.expect_json(200);
    assert_eq!(switched, json!({ "source": "shop", "enabled": false, "changed": true }));
    assert_eq!(tool_names(&server.get("/api/tools").await.expect_json(200)), [""; 0]);
    assert_eq!(server.get("/api/sources/shop").await.expect_json(200)["enabled"], false);
    let unknown = server.send_as_admin("POST", "/api/tools/nowhere/disable", &Value::Null).await;
    assert_eq!((unknown.status, unknown.error_code().as_str()), (404, "TOOL_NOT_IMPLEMENTED"));
}

#[tokio::test]
async fn a_provider_array_links_to_its_next_page() {
    let shop = ScriptedSource::new(numbered_tools(5));
    let server = start_discovered(&[("shop", &shop)]).await;
    let whole = server.get("/api/tools?format=anthropic").await;
    assert_eq!((whole.expect_json(200).as_array().unwrap().len(), whole.header("link")), (5, None));
    let page = server.get("/api/tools?format=anthropic&limit=2&source=shop").await;
    assert_eq!(page.expect_json(200).as_array().unwrap().len(), 2);
    // The cursor itself is opaque, so only the start is compared.
    assert!(page.header("link").unwrap().starts_with("</api/tools?source=shop&format=anthropic&limit=2&cursor="));
}

#[tokio::test]
async fn a_tool_is_found_by_every_name_with_its_counters() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    server.post("/api/tools/shop__order/call", &json!({})).await.expect_json(200);
    for name in ["shop__order", "shop:order", "shop%2Forder", "order"] {
        let tool = server.get(&format!("/api/tools/{name}")).await.expect_json(200);
        assert_eq!((&tool["name"], &tool["calls"]), (&json!("shop__order"), &json!(1)), "{name}");
        assert_eq!(tool["execution"]["mode"], "mcp_call");
    }
    let found = server.get("/api/search?q=order").await.expect_json(200);
    assert_eq!((&found["hits"][0]["name"], &found["total"]), (&json!("shop__order"), &json!(1)));
    assert!(found["tokens"].as_u64().unwrap() > 0);
    // A long text is cut, as on the command line and over MCP.
    let long = server.get(&format!("/api/search?q=order{}", "+please".repeat(1_000))).await.expect_json(200);
    assert_eq!(long["hits"][0]["name"], "shop__order");
    let context = server.get("/api/context?budget=50").await.expect_json(200);
    assert!(context["text"].as_str().unwrap().contains("shop") && context["tools"] == 1, "{context}");
    assert_eq!(server.get("/api/stats").await.expect_json(200)["calls"], 1);
}

/// Starts a server with a source of API operations and one of an MCP server, with rules and tags.
async fn start_with_tags() -> (RestTestServer, std::sync::Arc<ScriptedSource>) {
    let operation = |name: &str, tags: Value| {
        let execution = json!({ "mode": "sync_http", "method": "GET", "server": "https://x", "path": "/x" });
        json!({ "name": name, "inputSchema": { "type": "object" },
                "x-toolcrib-backing": { "execution": execution, "tags": tags } })
    };
    let shop = ScriptedSource::new([operation("list", json!(["orders", "read"])), operation("pay", json!(["orders"]))]);
    let long = json!({ "name": "long", "description": "many words ".repeat(50), "inputSchema": { "type": "object" } });
    let mail = ScriptedSource::new([json!("send"), json!("drop"), json!("secret"), long]);
    let yaml = "sources:\n  shop: { openapi: shop.yaml, tags: [team-a, read] }\n  \
                mail: { command: x, tags: [team-b], tools: { drop: deny, secret: disable } }";
    let config = Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), &[("shop", &shop), ("mail", &mail)]).await;
    server.registry.refresh(Refresh::default()).await;
    (server, mail)
}

#[tokio::test]
async fn tools_are_filtered_and_ordered_by_every_parameter() {
    let (server, _mail) = start_with_tags().await;
    let list = server.get("/api/tools").await.expect_json(200);
    let tags: Vec<&Value> = list["tools"].as_array().unwrap().iter().map(|tool| &tool["tags"]).collect();
    assert_eq!(
        tags,
        [
            &json!(["team-b"]),
            &json!(["team-b"]),
            &json!(["team-a", "read", "orders"]),
            &json!(["team-a", "read", "orders"])
        ]
    );
    assert!(list["tools"].as_array().unwrap().iter().all(|tool| tool["tokens"].as_u64() > Some(0)), "{list}");
    server.post("/api/tools/mail__send/call", &json!({})).await.expect_json(200);
    for (query, expected) in [
        ("kind=openapi", &["shop__list", "shop__pay"][..]),
        ("kind=mcp&tag=team-b", &["mail__long", "mail__send"]),
        ("tag=orders", &["shop__list", "shop__pay"]),
        ("tag=order", &[]),
        ("names=shop__*,send", &["mail__send", "shop__list", "shop__pay"]),
        ("names=*pay&names=long&order=tokens", &["mail__long", "shop__pay"]),
        ("order=calls", &["mail__send", "mail__long", "shop__list", "shop__pay"]),
        ("order=name&state=active&source=mail", &["mail__long", "mail__send"]),
        ("state=held", &[]),
    ] {
        let path = format!("/api/tools?{query}");
        assert_eq!(tool_names(&server.get(&path).await.expect_json(200)), expected, "{query}");
    }
    for order in ["tokens", "calls", "name"] {
        let whole = tool_names(&server.get(&format!("/api/tools?order={order}")).await.expect_json(200));
        assert_eq!(list_all_pages(&server, &format!("order={order}&limit=1")).await, whole, "{order}");
    }
    let etag = async |path: &str| server.get(path).await.header("etag").unwrap().to_owned();
    assert_ne!(etag("/api/tools?order=name").await, etag("/api/tools?order=tokens").await);
    let cursor = server.get("/api/tools?order=tokens&limit=1").await.expect_json(200)["next_cursor"].clone();
    for (query, message) in [
        ("sorce=shop", "unknown query parameter `sorce`; did you mean `source`?"),
        ("kind=rest", "`kind` is one of builtin, mcp, openapi, workflow, not `rest`"),
        ("state=gone", "`state` is one of active, disabled, deprecated, held, not `gone`"),
        ("names=,", "`names` is empty; give globs such as `github__*`, or leave it out"),
        ("names=", "`names` is empty; give globs such as `github__*`, or leave it out"),
        ("order=token", "`order` is one of name, tokens, calls, not `token`; did you mean `tokens`?"),
        (&format!("order=calls&cursor={}", cursor.as_str().unwrap()), "unknown or expired `cursor`; start without one"),
    ] {
        let response = server.get(&format!("/api/tools?{query}")).await;
        let error = response.expect_json(400);
        assert_eq!((&error["error"]["code"], &error["error"]["message"]), (&json!("BAD_REQUEST"), &json!(message)));
    }
    for path in ["/api/sources?x=1", "/api/stats?limit=1", "/api/tools/shop__list?format=mcp", "/api/openapi.json?v=3"]
    {
        assert_eq!(server.get(path).await.error_code(), "BAD_REQUEST", "{path}");
    }
    assert_eq!(server.post("/api/refresh?forced=true", &Value::Null).await.status, 400);
}

#[tokio::test]
async fn denied_tools_are_for_administrators_and_hidden_ones_are_unknown() {
    let (server, mail) = start_with_tags().await;
    let agents = ["mail__long", "mail__send", "shop__list", "shop__pay"];
    assert_eq!(tool_names(&server.get("/api/tools").await.expect_json(200)), agents);
    let all = server.send_as_admin("GET", "/api/tools", &Value::Null).await.expect_json(200);
    let names = ["mail__drop", "mail__long", "mail__secret", "mail__send", "shop__list", "shop__pay"];
    assert_eq!(tool_names(&all), names);
    assert_eq!((&all["tools"][0]["policy"], &all["tools"][2]["policy"]), (&json!("deny"), &json!("hide")));
    for format in ["mcp", "anthropic", "openai", "openai-strict", "gemini"] {
        let path = format!("/api/tools?format={format}");
        let (agent, admin) = (server.get(&path).await, server.send_as_admin("GET", &path, &Value::Null).await);
        assert!(!agent.body.contains("drop") && agent.body.contains("send"), "{format}");
        assert_eq!(agent.body, admin.body, "{format}");
    }
    for path in ["/api/search?q=drop", "/api/context", "/api/sources/mail"] {
        assert!(!server.get(path).await.body.contains("mail__drop"), "{path}");
    }
    let source = server.get("/api/sources/mail").await.expect_json(200);
    assert_eq!((&source["tool_count"], &source["tools"]), (&json!(2), &json!(["mail__long", "mail__send"])));
    let source = server.send_as_admin("GET", "/api/sources/mail", &Value::Null).await.expect_json(200);
    assert_eq!(source["tool_count"], 4);
    let described = server.get("/api/tools/mail__drop").await;
    assert_eq!((described.status, described.error_code().as_str()), (403, "FORBIDDEN"));
    let described = server.send_as_admin("GET", "/api/tools/mail__drop", &Value::Null).await.expect_json(200);
    assert_eq!(described["policy"], "deny");
    let called = server.send_as_admin("POST", "/api/tools/mail__drop/call", &json!({})).await;
    assert_eq!(called.error_code(), "FORBIDDEN");
    for name in ["mail__secret", "mail__dropp"] {
        let unknown = server.get(&format!("/api/tools/{name}")).await.expect_json(404);
        assert_eq!(unknown["error"]["code"], "TOOL_NOT_IMPLEMENTED");
        assert!(!unknown["error"]["details"]["near"].to_string().contains("mail__drop"), "{unknown}");
    }
    assert_eq!(server.get("/api/stats").await.expect_json(200)["tool_count"], 4);

    mail.set_tools(["send"]);
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    let path = "/api/tools?state=deprecated";
    assert_eq!(tool_names(&server.get(path).await.expect_json(200)), ["mail__long"]);
    let all = server.send_as_admin("GET", path, &Value::Null).await.expect_json(200);
    assert_eq!(tool_names(&all), ["mail__drop", "mail__long", "mail__secret"]);
}

#[tokio::test]
async fn a_removed_tool_keeps_its_last_definition() {
    let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
    let push = json!({ "name": "push", "description": "Pushes commits", "inputSchema": schema });
    let git = ScriptedSource::new([json!("pull"), push]);
    let server = start_discovered(&[("git", &git)]).await;
    let before = server.get("/api/tools/git__push").await.expect_json(200);
    // The list changes twice: the last one with the tool counts.
    for tools in [&["pull", "tag"][..], &["tag"]] {
        git.set_tools(tools.iter().copied());
        server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    }
    let after = server.get("/api/tools/git__push").await.expect_json(200);
    assert_eq!((&after["state"], &after["removed_at"]), (&json!("deprecated"), &after["updated_at"]));
    for field in ["id", "name", "description", "input_schema", "fingerprint", "tokens", "created_at", "execution"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let removed = server.get("/api/tools?state=deprecated&order=tokens").await.expect_json(200);
    assert_eq!(tool_names(&removed), ["git__push", "git__pull"]);
    assert_eq!(removed["tools"][0]["input_schema"], schema);
    assert_eq!(list_all_pages(&server, "state=deprecated&order=tokens&limit=1").await, ["git__push", "git__pull"]);
    assert_eq!(tool_names(&server.get("/api/tools").await.expect_json(200)), ["git__tag"]);
    let called = server.post("/api/tools/git__push/call", &json!({})).await.expect_json(404);
    let message = called["error"]["message"].as_str().unwrap();
    assert_eq!(called["error"]["code"], "TOOL_NOT_IMPLEMENTED");
    assert!(
        message.starts_with("`git__push` was removed at ") && message.contains("GET /api/tools/git__push"),
        "{message}"
    );
    assert_eq!(server.get("/api/tools/git__never").await.status, 404);
    // The console shows the definition, and nothing to do with it.
    let page = server.get("/tools/git__push").await;
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("its source no longer offers it") && page.body.contains("Pushes commits"),
        "{}",
        page.body
    );
    assert!(!page.body.contains("Try it") && !page.body.contains("Use it") && !page.body.contains("counting"));
}
