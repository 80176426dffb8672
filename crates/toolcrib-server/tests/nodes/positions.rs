//! Tests the header `x-toolcrib-position` and the parameter `min_position`.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncReadExt;
use toolcrib::store::StoreState;

use super::support::{NodeGroup, position};

#[tokio::test]
async fn every_response_has_the_position() {
    let (_group, one, _other) = NodeGroup::start_two().await;
    let expected = one.registry.position();
    let etag = one.get("/api/tools", "").await.header("etag").unwrap().to_owned();
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" } },
    });
    for (path, headers, status) in [
        ("/api/tools", "", 200),
        ("/api/tools", &*format!("If-None-Match: {etag}\r\n"), 304),
        ("/api/search?q=order", "", 200),
        ("/api/history", "", 200),
        ("/api/nothing", "", 404),
        ("/api/tools?nothing=1", "", 400),
        ("/api/tools", "Authorization: Bearer tcb_wrong\r\n", 401),
        ("/api/tools", "Host: evil.example\r\n", 403),
        ("/", "Accept: text/html\r\n", 200),
        ("/nothing", "Accept: text/html\r\n", 404),
        ("/login", "", 200),
        ("/healthz", "", 200),
        ("/readyz", "", 200),
        ("/metrics", "", 200),
        ("/mcp", "", 405),
    ] {
        let response = one.get(path, headers).await;
        assert_eq!((response.status, position(&response)), (status, expected), "{path} {headers}");
        assert_eq!(response.header("x-toolcrib-stale"), None, "{path}");
    }
    assert_eq!(position(&one.post_mcp("/mcp", "", &initialize).await), expected);
    let mut stream = one.server.start_request("GET", "/api/events", "", "").await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(String::from_utf8(head).unwrap().contains(&format!("x-toolcrib-position: {expected}\r\n")));
    assert_eq!(one.registry.store().health().state, StoreState::Ok);
}

#[tokio::test]
async fn a_client_reads_what_it_wrote_to_another_node() {
    let (_group, one, other) = NodeGroup::start_two().await;
    for number in 0..20 {
        let (action, is_enabled) = if number % 2 == 0 { ("disable", false) } else { ("enable", true) };
        let written = one.post_as_admin(&format!("/api/sources/shop/{action}"), &json!({})).await;
        assert_eq!(written.status, 200, "{written:?}");
        let written = position(&written);
        assert_eq!(written, one.registry.position(), "the answer to a change has the position of its record");
        let started_at = Instant::now();
        let read = other.get(&format!("/api/sources/shop?min_position={written}"), "").await;
        assert_eq!(read.expect_json(200)["enabled"], is_enabled);
        assert!(position(&read) >= written);
        assert!(started_at.elapsed() < Duration::from_millis(1_500), "the node reads the record at once");
    }
}

#[tokio::test]
async fn a_position_that_is_not_reached_is_unavailable_after_two_seconds() {
    let (_group, one, _other) = NodeGroup::start_two().await;
    let reached = one.registry.position();
    let (far, next) = (reached + 1_000, reached + 1);
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let started_at = Instant::now();
    let (api, mcp, page) = (
        format!("/api/tools?min_position={far}"),
        format!("/mcp?min_position={next}"),
        format!("/?min_position={next}"),
    );
    let responses =
        tokio::join!(one.get(&api, ""), one.post_mcp(&mcp, "", &initialize), one.get(&page, "Accept: text/html\r\n"));
    assert!((2..10).contains(&started_at.elapsed().as_secs()), "{:?}", started_at.elapsed());
    for (response, wanted) in [(responses.0, far), (responses.1, next), (responses.2, next)] {
        let error = &response.expect_json(503)["error"];
        assert_eq!((&error["code"], &error["retryable"]), (&json!("STORE_UNAVAILABLE"), &json!(true)));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&wanted.to_string()) && message.contains(&reached.to_string()), "{message}");
        assert_eq!((response.header("retry-after"), position(&response)), (Some("1"), reached));
    }
    for path in ["/api/tools?min_position=x", "/mcp?min_position=-1", "/healthz?min_position=", "/?min_position=1.5"] {
        let response = one.get(path, "").await;
        assert_eq!((response.status, response.error_code().as_str()), (400, "BAD_REQUEST"), "{path}");
    }
}

#[tokio::test]
async fn a_minimum_position_changes_neither_the_response_nor_its_tag() {
    let (_group, one, _other) = NodeGroup::start_two().await;
    for path in ["/api/tools?limit=2", "/api/tools?format=openai", "/api/context", "/api/search?q=order"] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let plain = one.get(path, "").await;
        let with_position = one.get(&format!("{path}{separator}min_position=1"), "").await;
        assert_eq!((&with_position.body, with_position.header("etag")), (&plain.body, plain.header("etag")), "{path}");
        assert_eq!(with_position.header("link"), plain.header("link"));
        let headers = format!("If-None-Match: {}\r\n", plain.header("etag").unwrap());
        assert_eq!(one.get(&format!("{path}{separator}min_position=1"), &headers).await.status, 304);
    }
}
