//! Tests that invalid input gets a client error, never an internal one.

use serde_json::{Value, json};
use toolcrib::testkit::ScriptedSource;

use super::support::start_discovered;

#[tokio::test]
async fn invalid_input_gets_an_error_envelope_with_the_right_status() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let json = "Content-Type: application/json\r\n";
    let admin = &format!("Authorization: Bearer {}\r\n{json}", server.admin_token);
    let deep = format!("{{\"arguments\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let gzip_encoded = &format!("{json}Content-Encoding: gzip\r\n");
    let doubly_encoded = &format!("{json}Content-Encoding: identity, br\r\n");
    let utf16 = "Content-Type: application/json; charset=utf-16\r\n";
    let (order, hash) = ("/api/tools/shop__order/call", "0".repeat(64));
    let locked = |tool: &str| {
        let source = format!(r#"{{"inventory_hash":"{hash}","tools":{{"shop__order":{tool}}}}}"#);
        format!(r#"{{"version":1,"sources":{{"shop":{source}}}}}"#)
    };
    let huge = "x".repeat(4 * 1024 * 1024 + 1);
    for (method, path, headers, body, status, code) in [
        ("GET", "/api/nowhere", "", "", 404, "NOT_FOUND"),
        ("PUT", "/api/tools", "", "", 405, "BAD_REQUEST"),
        ("DELETE", "/api/stats", "", "", 405, "BAD_REQUEST"),
        ("GET", "/api/tools?limit=0", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?limit=1001", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?limit=-1", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?limit=99999999999999999999", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?limit=%zz", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?source=%ff", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?limit=1&limit=2", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?cursor=nonsense", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?cursor=%F0%9F%8D%B5", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?format=yaml", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?state=odd", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools?source=nowhere", "", "", 404, "NOT_FOUND"),
        ("GET", "/api/tools?group=ops", "", "", 404, "NOT_FOUND"),
        ("GET", "/api/sources/%00", "", "", 404, "NOT_FOUND"),
        ("GET", "/api/sources/%ff", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools/%ff", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/tools/%00", "", "", 400, "TOOL_INVALID_INPUT"),
        ("GET", "/api/history?source=nope", "", "", 404, "NOT_FOUND"),
        ("GET", "/api/history?tool=nope", "", "", 404, "TOOL_NOT_IMPLEMENTED"),
        ("GET", "/api/history?tool=shop__nope&since=1d", "", "", 404, "TOOL_NOT_IMPLEMENTED"),
        ("GET", "/api/search", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/search?q=x&limit=many", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/context?budget=0", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/events?after=-1", "", "", 400, "BAD_REQUEST"),
        ("GET", "/api/events", "Last-Event-ID: x\r\n", "", 400, "BAD_REQUEST"),
        ("POST", "/api/refresh?force=perhaps", "", "", 400, "BAD_REQUEST"),
        ("POST", "/api/tools/shop__order/call", json, "{", 400, "BAD_REQUEST"),
        ("POST", "/api/tools/shop__order/call", json, "[]", 400, "BAD_REQUEST"),
        ("POST", "/api/tools/shop__order/call", json, &deep, 400, "BAD_REQUEST"),
        ("POST", "/api/tools/shop__order/call", json, &huge, 413, "BAD_REQUEST"),
        // A lockfile may be that large, so this body is read and rejected because it is no lockfile.
        ("POST", "/api/diff", json, &huge, 400, "BAD_REQUEST"),
        ("POST", "/api/tools/shop__order/call", "Content-Type: text/plain\r\n", "{}", 415, "BAD_REQUEST"),
        ("POST", "/api/tools/shop__order/call", "", "{}", 415, "BAD_REQUEST"),
        ("POST", order, gzip_encoded, "{}", 415, "BAD_REQUEST"),
        ("POST", order, doubly_encoded, "{}", 415, "BAD_REQUEST"),
        ("POST", order, utf16, "{}", 415, "BAD_REQUEST"),
        ("POST", "/mcp", gzip_encoded, "{}", 415, "BAD_REQUEST"),
        ("POST", "/api/diff", json, &locked("5"), 400, "BAD_REQUEST"),
        ("POST", "/api/diff", json, &locked("[]"), 400, "BAD_REQUEST"),
        ("POST", "/api/diff", json, r#"{"version":"1","sources":{}}"#, 400, "BAD_REQUEST"),
        ("POST", "/api/diff", json, r#"{"version":1,"sources":{"shop":[]}}"#, 400, "BAD_REQUEST"),
        ("POST", "/api/tokens", admin, r#"{"name":{},"role":[]}"#, 400, "BAD_REQUEST"),
        ("POST", "/api/sources", admin, "", 400, "BAD_REQUEST"),
        ("POST", "/api/sources", admin, "[]", 400, "BAD_REQUEST"),
        ("POST", "/api/sources", admin, r#"{"name":7}"#, 400, "BAD_REQUEST"),
        ("POST", "/api/sources", admin, r#"{"name":"a","id":"b"}"#, 400, "BAD_REQUEST"),
        ("POST", "/api/sources", admin, r#"{"name":"a"}"#, 400, "CONFIG_INVALID"),
        ("POST", "/api/sources", admin, r#"{"name":"call_tool","url":"http://x"}"#, 400, "CONFIG_INVALID"),
        ("POST", "/api/sources", admin, r#"{"name":"a","url":"x","ttl":7,"odd":1}"#, 400, "CONFIG_INVALID"),
        (
            "POST",
            "/api/sources",
            admin,
            r#"{"name":"a","url":"http://x","discovery_timeout":"9223372036854775807s"}"#,
            400,
            "CONFIG_INVALID",
        ),
        ("POST", "/api/tokens", admin, r#"{"name":"a","role":"viewer","expires":"36526d"}"#, 400, "BAD_REQUEST"),
        (
            "POST",
            "/api/tokens",
            admin,
            r#"{"name":"a","role":"viewer","expires":"9223372036854775807s"}"#,
            400,
            "BAD_REQUEST",
        ),
        ("POST", "/api/sources", admin, r#"{"name":"shop","url":"http://x"}"#, 409, "CONFLICT"),
        ("PATCH", "/api/sources/shop", admin, r#"{"enabled":"yes"}"#, 400, "BAD_REQUEST"),
        ("PATCH", "/api/sources/nowhere", admin, "{}", 404, "NOT_FOUND"),
        ("POST", "/api/sources/shop/enable", "", "", 401, "UNAUTHORIZED"),
        ("DELETE", "/api/sources/shop", "Authorization: Bearer nonsense\r\n", "", 401, "UNAUTHORIZED"),
    ] {
        let response = server.send(method, path, headers, body.as_bytes()).await;
        let request: String = format!("{method} {path} {body}").chars().take(120).collect();
        assert_eq!((response.status, response.error_code().as_str()), (status, code), "{request}: {response:?}");
        let error = response.json()["error"].clone();
        assert!(error["retryable"].is_boolean() && error["message"].is_string(), "{request}: {error}");
        let internal_words = ["struct ", "enum ", "u32", "u64", "tuple", "map,", "sequence"];
        let message = error["message"].as_str().unwrap_or_default();
        assert!(
            !internal_words.iter().any(|word| message.contains(word)),
            "names an internal type: {request}: {message}"
        );
    }
    let plain = "Content-Type: application/json; charset=\"UTF-8\"\r\nContent-Encoding: identity\r\n";
    server.send("POST", "/api/refresh", plain, b"{}").await.expect_json(200);
    let rejection = server.send("PUT", "/api/sources/shop", "", b"").await;
    let allowed = rejection.header("allow").unwrap_or_default().to_lowercase();
    assert!(["get", "patch", "delete"].iter().all(|method| allowed.contains(method)), "{rejection:?}");
    let faults =
        server.send_as_admin("POST", "/api/sources", &json!({ "name": "a", "url": "x", "ttl": 7, "odd": 1 })).await;
    assert_eq!(faults.json()["error"]["details"]["faults"].as_array().map(Vec::len), Some(3), "{faults:?}");
    assert_eq!(server.get("/api/stats").await.expect_json(200)["calls"], Value::from(0));
}

/// A declaration that is invalid by itself is rejected; one that only fails when the source is contacted is kept.
#[tokio::test]
async fn an_invalid_source_is_rejected_with_the_name_of_its_field() {
    let server = start_discovered(&[]).await;
    for (keys, field) in [
        (json!({ "url": "http://127.0.0.1:99999/mcp" }), "away.url"),
        (json!({ "url": "http://[::1/mcp" }), "away.url"),
        (json!({ "url": "http://ho st/mcp" }), "away.url"),
        (json!({ "openapi": "http://a:b/openapi.json" }), "away.openapi"),
        (json!({ "openapi": "http://a/openapi.json", "base_url": "http://a:b" }), "away.base_url"),
        (json!({ "url": "http://127.0.0.1:1", "headers": { "X Key": "hunter2" } }), "away.headers"),
        (json!({ "url": "http://127.0.0.1:1", "headers": { "X-Key": "hunter2\r\nX-Evil: 1" } }), "away.headers.X-Key"),
        (json!({ "url": "http://127.0.0.1:1", "auth": { "bearer": "hunter2\n" } }), "away.auth.bearer"),
    ] {
        let mut body = keys.clone();
        body["name"] = json!("away");
        let rejection = server.send_as_admin("POST", "/api/sources", &body).await;
        assert_eq!(
            (rejection.status, rejection.error_code().as_str()),
            (400, "CONFIG_INVALID"),
            "{keys}: {rejection:?}"
        );
        let error = rejection.json()["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| message.contains(field)), "{keys}: {error}");
        let fault = &error["details"]["faults"][0];
        assert_eq!((&fault["key"], &fault["line"]), (&json!(format!("sources.{field}")), &json!(null)), "{error}");
        assert!(!rejection.body.contains("hunter2"), "{rejection:?}");
    }
    assert_eq!(server.get("/api/sources").await.expect_json(200)["sources"], json!([]));
}
