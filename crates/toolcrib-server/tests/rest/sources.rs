//! Tests how sources are listed, declared, changed, removed and refreshed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::store::MemoryStore;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Refresh, RegistryOptions};

use super::support::{start_discovered, start_undiscovered, start_with, wait_until};
use crate::test_server::SourceScripts;

#[tokio::test]
async fn the_cached_source_list_is_never_stale() {
    let shop = ScriptedSource::new(["order"]);
    let (clock, manual_clock) = Clock::manual(Timestamp(1_700_000_000_000));
    // `revalidate: false`: no discovery runs in the background.
    let options = RegistryOptions { clock, revalidate: false, ..RegistryOptions::default() };
    let server = start_with(config_with_sources(["shop"]), options, &[("shop", &shop)]).await;
    let source = async || server.get("/api/sources").await.expect_json(200)["sources"][0].clone();
    assert_eq!(source().await["status"], "never");
    server.registry.refresh(Refresh::default()).await;
    let fresh = source().await;
    assert_eq!(
        (&fresh["status"], &fresh["freshness"], &fresh["tool_count"]),
        (&json!("success"), &json!("fresh"), &json!(1))
    );
    manual_clock.advance(Duration::from_secs(299));
    assert_eq!(source().await["freshness"], "fresh");
    manual_clock.advance(Duration::from_secs(1));
    assert_eq!(source().await["freshness"], "stale");
    assert_eq!(source().await["connection"], "none");
    server.post("/api/tools/shop__order/call", &json!({})).await.expect_json(200);
    assert_eq!(source().await["connection"], "connected");
    shop.fail("it is away");
    server.post("/api/sources/shop/refresh?force=true", &Value::Null).await.expect_json(503);
    assert_eq!(source().await["last_error"]["message"], "it is away");
}

#[tokio::test]
async fn a_refresh_reports_changes_and_failures() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_undiscovered(&[("shop", &shop)]).await;
    let first = server.post("/api/refresh", &Value::Null).await.expect_json(200);
    assert_eq!(first["results"][0]["added"], json!(["shop__order"]));
    let totals = &first["totals"];
    assert_eq!((&totals["sources"], &totals["succeeded"], &totals["added"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!((&totals["failed"], &totals["changed"], &totals["removed"]), (&json!(0), &json!(0), &json!(0)));
    let fresh = server.post("/api/sources/shop/refresh", &Value::Null).await.expect_json(200);
    assert_eq!((&fresh["status"], &fresh["contacted"]), (&json!("fresh"), &json!(false)));
    shop.set_tools(["order", "return"]);
    let forced = server.post("/api/sources/shop/refresh?force=1", &Value::Null).await.expect_json(200);
    assert_eq!((&forced["status"], &forced["added"]), (&json!("success"), &json!(["shop__return"])));
    let due = server.send_as_admin("POST", "/api/sources/shop/invalidate", &Value::Null).await.expect_json(200);
    assert_eq!(due, json!({ "invalidated": ["shop"] }));
    assert_eq!(server.get("/api/sources/shop").await.expect_json(200)["freshness"], "stale");
    shop.fail("nobody is there");
    let failed = server.post("/api/sources/shop/refresh", &Value::Null).await.expect_json(503);
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("TOOL_UNAVAILABLE")));
    let unknown = server.post("/api/sources/shap/refresh", &Value::Null).await;
    assert_eq!((unknown.status, unknown.error_code().as_str()), (404, "NOT_FOUND"));
}

#[tokio::test]
async fn a_source_can_be_declared_changed_and_removed() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_with(config_with_sources([]), RegistryOptions::default(), &[("shop", &shop)]).await;
    let body =
        json!({ "name": "Shop", "url": "http://127.0.0.1:1/mcp", "headers": { "X-Key": "hunter2" }, "ttl": "1m" });
    assert_eq!(server.post("/api/sources", &body).await.status, 401);
    let declared = server.send_as_admin("POST", "/api/sources", &body).await;
    let source = declared.expect_json(201);
    assert_eq!(declared.header("location"), Some("/api/sources/shop"));
    assert_eq!(
        (&source["id"], &source["origin"], &source["tool_count"]),
        (&json!("shop"), &json!("runtime"), &json!(1))
    );
    assert_eq!(source["outcome"]["added"], json!(["shop__order"]));
    let again = server.send_as_admin("POST", "/api/sources", &body).await;
    assert!(again.status == 409 && again.body.contains("PATCH /api/sources/shop"), "{again:?}");

    let changed = server
        .send_as_admin("PATCH", "/api/sources/shop", &json!({ "title": "The shop", "ttl": null }))
        .await
        .expect_json(200);
    assert_eq!((&changed["title"], &changed["ttl_ms"]), (&json!("The shop"), &json!(300_000)));
    let off = server.send_as_admin("PATCH", "/api/sources/shop", &json!({ "enabled": false })).await.expect_json(200);
    assert_eq!((&off["enabled"], &off["title"]), (&json!(false), &json!("The shop")));
    assert_eq!(off["tool_count"], 1, "the tools of a disabled source are still known");
    // A reference becomes part of the declaration, and `null` removes it there.
    let is_enabled = async |patch: &Value| {
        server.send_as_admin("PATCH", "/api/sources/shop", patch).await.expect_json(200)["enabled"] == true
    };
    assert!(!is_enabled(&json!({ "enabled": "${env:TOOLCRIB_TEST_UNSET:-false}" })).await);
    assert!(is_enabled(&json!({ "enabled": true })).await);
    assert!(is_enabled(&json!({ "enabled": "${env:TOOLCRIB_TEST_UNSET:-true}" })).await);
    assert!(!is_enabled(&json!({ "enabled": false })).await);
    assert!(is_enabled(&json!({ "enabled": null, "title": "The shop" })).await);
    assert!(!is_enabled(&json!({ "enabled": false })).await);
    assert!(is_enabled(&json!({ "enabled": null })).await);
    let config = server.get("/api/config").await;
    assert_eq!(config.expect_json(200)["sources"]["shop"].get("enabled"), None);
    assert_eq!(config.expect_json(200)["sources"]["shop"]["headers"]["X-Key"], "***");
    assert!(!config.body.contains("hunter2"));

    let actors: Vec<String> = server
        .registry
        .history()
        .records(&Default::default())
        .await
        .unwrap()
        .into_iter()
        .map(|record| record.actor)
        .collect();
    assert!(actors.iter().any(|actor| actor == "rest:admin"), "{actors:?}");
    let removed = server.send_as_admin("DELETE", "/api/sources/shop", &Value::Null).await;
    assert_eq!((removed.status, removed.body.as_str()), (204, ""));
    assert_eq!(server.get("/api/sources/shop").await.status, 404);
    // The history still knows the tool of a removed source; a filter that matches nothing is not an unknown tool.
    let tool_history = server.get("/api/history?tool=shop__order").await.expect_json(200);
    assert!(tool_history["records"].as_array().is_some_and(|records| !records.is_empty()), "{tool_history}");
    assert_eq!(server.get("/api/history?tool=shop__order&after=9999").await.expect_json(200)["records"], json!([]));
    assert_eq!(server.send_as_admin("DELETE", "/api/sources/shop", &Value::Null).await.status, 404);
}

#[tokio::test]
async fn a_source_that_cannot_be_discovered_stays_with_its_error() {
    let server = start_with(config_with_sources([]), RegistryOptions::default(), &[]).await;
    let body = json!({ "id": "away", "url": "http://127.0.0.1:1/mcp", "connect_timeout": "1s" });
    let source = server.send_as_admin("POST", "/api/sources", &body).await.expect_json(201);
    assert_eq!((&source["status"], &source["last_error"]["code"]), (&json!("failed"), &json!("TOOL_UNAVAILABLE")));
    assert_eq!(server.get("/api/sources/away").await.expect_json(200)["status"], "failed");
    // A local administrator may also declare programs.
    let program = json!({ "name": "program", "command": "/nonexistent/program" });
    assert_eq!(server.send_as_admin("POST", "/api/sources", &program).await.expect_json(201)["status"], "failed");
}

#[tokio::test]
async fn configured_sources_cannot_be_changed_or_removed_over_rest() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let patches = [json!({ "title": "x" }), json!({ "enabled": null }), json!({ "enabled": "${env:X}" })];
    for (method, body) in patches.map(|patch| ("PATCH", patch)).into_iter().chain([("DELETE", Value::Null)]) {
        let rejection = server.send_as_admin(method, "/api/sources/shop", &body).await;
        assert!(rejection.status == 409 && rejection.body.contains("scripted:1"), "{rejection:?}");
    }
    let off = server.send_as_admin("PATCH", "/api/sources/shop", &json!({ "enabled": false })).await.expect_json(200);
    assert_eq!(off["enabled"], false);
}

#[tokio::test]
async fn changes_honour_if_match() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let send = async |method: &str, path: &str, if_match: &str, body: &Value| {
        let headers = format!(
            "Authorization: Bearer {}\r\nContent-Type: application/json\r\nIf-Match: {if_match}\r\n",
            server.admin_token
        );
        let body = if body.is_null() { String::new() } else { body.to_string() };
        server.send(method, path, &headers, body).await
    };
    let etag = |response: &super::support::RawHttpResponse| response.header("etag").unwrap().to_owned();
    let new = json!({ "name": "away", "url": "http://127.0.0.1:1", "connect_timeout": "1s" });
    let created = server.send_as_admin("POST", "/api/sources", &new).await;
    let first = etag(&server.get("/api/sources/away").await);
    assert_eq!((created.status, etag(&created)), (201, first.clone()));

    let changed = send("PATCH", "/api/sources/away", &format!("\"x\", {first}"), &json!({ "title": "A" })).await;
    let second = etag(&changed);
    assert_eq!(changed.status, 200);
    assert_ne!(first, second);
    for (method, if_match) in [("PATCH", first.as_str()), ("DELETE", &first), ("DELETE", &format!("W/{second}"))] {
        let refused = send(method, "/api/sources/away", if_match, &json!({ "title": "B" })).await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["code"], &error["retryable"]), (412, &json!("CONFLICT"), &json!(false)));
    }
    assert_eq!(server.get("/api/sources/away").await.expect_json(200)["title"], "A");
    // A discovery is no change of the declaration.
    server.post("/api/sources/away/refresh?force=true", &Value::Null).await;
    assert_eq!(etag(&server.get("/api/sources/away").await), second);
    assert_eq!(send("POST", "/api/sources/away/disable", &first, &Value::Null).await.status, 412);
    assert_eq!(send("POST", "/api/sources/away/disable", &second, &Value::Null).await.status, 200);
    assert_eq!(send("DELETE", "/api/sources/away", &second, &Value::Null).await.status, 412, "it was disabled");
    assert_eq!(send("DELETE", "/api/sources/away", "*", &Value::Null).await.status, 204);

    let tool = etag(&server.get("/api/tools/shop__order").await);
    assert_eq!(send("POST", "/api/tools/shop__order/disable", "\"x\"", &Value::Null).await.status, 412);
    // A call changes the counters, and so the response, but not the tool.
    server.send_as_admin("POST", "/api/tools/shop__order/call", &json!({})).await.expect_json(200);
    assert_ne!(etag(&server.get("/api/tools/shop__order").await), tool);
    assert_eq!(send("POST", "/api/tools/shop__order/disable", &tool, &Value::Null).await.status, 200);
    assert_eq!(send("POST", "/api/tools/shop__order/enable", &tool, &Value::Null).await.status, 412);

    server.send_as_admin("POST", "/api/tokens", &json!({ "name": "ci", "role": "viewer" })).await.expect_json(201);
    let token = etag(&server.send_as_admin("GET", "/api/tokens/ci", &Value::Null).await);
    let role = json!({ "role": "agent" });
    assert_eq!(send("PATCH", "/api/tokens/ci", "\"x\"", &role).await.status, 412);
    assert_eq!(send("PATCH", "/api/tokens/ci", &token, &role).await.status, 200);
    assert_eq!(send("DELETE", "/api/tokens/ci", &token, &Value::Null).await.status, 412);
    assert_eq!(send("DELETE", "/api/tokens/ci", "*", &Value::Null).await.status, 204);
}

/// Regression: of two processes that changed different keys at once, one overwrote the change of the other.
#[tokio::test]
async fn concurrent_changes_of_different_keys_are_all_made() {
    let options = RegistryOptions { store: Some(Arc::new(MemoryStore::new())), ..RegistryOptions::default() };
    let first = start_with(config_with_sources([]), options.clone(), &[]).await;
    let second = start_with(config_with_sources([]), options, &[]).await;
    let away = json!({ "name": "away", "url": "http://127.0.0.1:1", "enabled": false });
    first.send_as_admin("POST", "/api/sources", &away).await.expect_json(201);
    wait_until("the other process to know it", async || second.get("/api/sources/away").await.status == 200).await;
    for number in 0..4 {
        let title = json!({ "title": format!("title {number}") });
        let tags = json!({ "tags": [format!("tag {number}")] });
        let (one, two) = tokio::join!(
            first.send_as_admin("PATCH", "/api/sources/away", &title),
            second.send_as_admin("PATCH", "/api/sources/away", &tags),
        );
        assert_eq!((one.status, two.status), (200, 200), "{one:?} {two:?}");
        wait_until("both changes", async || {
            let config = first.get("/api/config").await.expect_json(200);
            let source = &config["sources"]["away"];
            (&source["title"], &source["tags"]) == (&title["title"], &tags["tags"])
        })
        .await;
    }
}

#[tokio::test]
async fn of_concurrent_changes_with_the_same_tag_one_is_made() {
    let shop = ScriptedSource::new(["order"]);
    let options = RegistryOptions { store: Some(Arc::new(MemoryStore::new())), ..RegistryOptions::default() };
    let config = config_with_sources(["shop"]);
    let sources: SourceScripts<'_> = &[("shop", &shop)];
    // Two processes on one store.
    let first = start_with(config.clone(), options.clone(), sources).await;
    first.registry.refresh(Refresh::default()).await;
    let away = json!({ "name": "away", "url": "http://127.0.0.1:1", "connect_timeout": "1s" });
    first.send_as_admin("POST", "/api/sources", &away).await.expect_json(201);
    let token = first.send_as_admin("POST", "/api/tokens", &json!({ "name": "ada", "role": "agent" })).await;
    let token = format!("/api/tokens/{}", token.expect_json(201)["id"].as_str().unwrap());
    let second = start_with(config, options, sources).await;

    let changes = [
        ("PATCH", "/api/sources/away", "/api/sources/away", json!({ "title": "N" })),
        ("POST", "/api/sources/away/disable", "/api/sources/away", Value::Null),
        ("DELETE", "/api/sources/away", "/api/sources/away", Value::Null),
        ("POST", "/api/tools/shop__order/disable", "/api/tools/shop__order", Value::Null),
        ("PATCH", token.as_str(), token.as_str(), json!({ "name": "N" })),
        ("DELETE", token.as_str(), token.as_str(), Value::Null),
    ];
    for (method, path, read, body) in changes {
        let tag = first.send_as_admin("GET", read, &Value::Null).await.header("etag").unwrap().to_owned();
        let requests = (0..8).map(|number| {
            let server = if number % 2 == 0 { &first } else { &second };
            let headers = format!(
                "Authorization: Bearer {}\r\nContent-Type: application/json\r\nIf-Match: {tag}\r\n",
                server.admin_token
            );
            let body =
                if body.is_null() { String::new() } else { body.to_string().replace('N', &format!("n{number}")) };
            async move { server.send(method, path, &headers, body).await.status }
        });
        let statuses = futures_util::future::join_all(requests).await;
        let made = statuses.iter().filter(|status| (200..300).contains(*status)).count();
        assert_eq!(made, 1, "{method} {path}: {statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 204 | 404 | 412)), "{method} {path}: {statuses:?}");
    }
}
