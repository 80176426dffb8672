//! Tests the header `x-toolcrib-position` and the parameter `min_position`.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::io::AsyncReadExt;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;
use toolcrib::store::StoreState;

use super::support::{Node, NodeGroup, SharedStore, on_each_store, position};
use crate::rest::events::EventStreamReader;
use crate::test_server::finish_request;

on_each_store!(
    every_response_has_the_position,
    a_client_reads_what_it_wrote_to_another_node,
    a_position_that_is_not_reached_is_unavailable_after_two_seconds,
    a_request_is_answered_when_its_position_is_reached,
    only_authenticated_clients_wait_for_a_position,
    a_minimum_position_changes_neither_the_response_nor_its_tag,
    responses_show_at_least_their_position,
    the_first_list_has_the_position_after_its_discovery,
    clients_without_credentials_are_answered_at_once_on_any_route,
    a_token_is_refused_from_the_position_of_its_revocation_on,
    a_stream_resumed_at_a_node_that_lags_repeats_no_record,
);

async fn every_response_has_the_position(store: SharedStore) {
    let (_group, one, _other) = NodeGroup::start_two(store).await;
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

async fn a_client_reads_what_it_wrote_to_another_node(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    for number in 0..20 {
        let (action, is_enabled) = if number % 2 == 0 { ("disable", false) } else { ("enable", true) };
        let written = one.post_as_admin(&format!("/api/sources/shop/{action}"), &json!({})).await;
        assert_eq!(written.status, 200, "{written:?}");
        let written = position(&written);
        assert_eq!(written, one.registry.position(), "the answer to a change has the position of its record");
        let read = other.get(&format!("/api/sources/shop?min_position={written}"), "").await;
        assert_eq!(read.expect_json(200)["enabled"], is_enabled);
        assert!(position(&read) >= written);
    }
}

async fn a_position_that_is_not_reached_is_unavailable_after_two_seconds(store: SharedStore) {
    let (_group, one, _other) = NodeGroup::start_two(store).await;
    let reached = one.registry.position();
    let (far, next) = (reached + 1_000, reached + 1);
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let (api, mcp, page) = (
        format!("/api/tools?min_position={far}"),
        format!("/mcp?min_position={next}"),
        format!("/?min_position={next}"),
    );
    let responses =
        tokio::join!(one.get(&api, ""), one.post_mcp(&mcp, "", &initialize), one.get(&page, "Accept: text/html\r\n"));
    assert_eq!((responses.2.status, position(&responses.2)), (503, reached));
    assert!(responses.2.body.contains("STORE_UNAVAILABLE"), "{}", responses.2.body);
    for (response, wanted) in [(responses.0, far), (responses.1, next)] {
        let error = &response.expect_json(503)["error"];
        assert_eq!((&error["code"], &error["retryable"]), (&json!("STORE_UNAVAILABLE"), &json!(true)));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&wanted.to_string()) && message.contains(&reached.to_string()), "{message}");
        assert_eq!((response.header("retry-after"), position(&response)), (Some("1"), reached));
    }
    for path in [
        "/api/tools?min_position=x",
        "/mcp?min_position=-1",
        "/mcp?min_position=+1",
        "/healthz?min_position=",
        "/?min_position=1.5",
    ] {
        let response = one.get(path, "").await;
        assert_eq!((response.status, response.error_code().as_str()), (400, "BAD_REQUEST"), "{path}");
    }
}

async fn a_request_is_answered_when_its_position_is_reached(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    let next = one.registry.position() + 1;
    let mut requests = Vec::new();
    for path in [format!("/api/tools?min_position={next}"), format!("/api/history?min_position={next}")] {
        requests.push(one.server.start_request("GET", &path, "", "").await);
    }
    let written = other.post_as_admin("/api/tools/shop__ship/disable", &json!({})).await;
    assert_eq!(position(&written), next);
    for mut request in requests {
        let response = finish_request(&mut request, b"").await;
        assert_eq!((response.status, position(&response)), (200, next), "{response:?}");
    }
}

/// Regression: the wait came before the authentication, so that requests without a token could be held open.
async fn only_authenticated_clients_wait_for_a_position(store: SharedStore) {
    let (_group, one, _other) = NodeGroup::start_two(store).await;
    let far = one.registry.position() + 1_000;
    let wrong = "Authorization: Bearer tcb_wrong\r\n";
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let check = async {
        for path in ["/api/tools", "/api/sources", "/"] {
            assert_eq!(one.get(&format!("{path}?min_position={far}"), wrong).await.status, 401, "{path}");
        }
        assert_eq!(one.post_mcp(&format!("/mcp?min_position={far}"), wrong, &ping).await.status, 401);
    };
    // That request waits until its timeout.
    let waiting_path = format!("/api/tools?min_position={far}");
    tokio::select! {
        biased;
        () = check => {}
        response = one.get(&waiting_path, "") => panic!("the others waited: {response:?}"),
    }
}

/// Regression: a node that had not applied the last record of the client yet sent it again.
async fn a_stream_resumed_at_a_node_that_lags_repeats_no_record(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    let next = one.registry.position() + 1;
    let mut events = EventStreamReader::start(&one.server, &format!("/api/events?after={next}"), "").await;
    for action in ["disable", "enable"] {
        other.post_as_admin(&format!("/api/tools/shop__ship/{action}"), &json!({})).await.expect_json(200);
    }
    assert_eq!(events.next_named("record").await.id, Some(next + 1));
}

/// Regression: the position was that before the discovery which the first list waits for, so that two nodes had different
/// lists of one position.
async fn the_first_list_has_the_position_after_its_discovery(store: SharedStore) {
    let group = NodeGroup::new(store);
    let node = group.start_node().await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    } } });
    let headers = "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
    let first = node.post_mcp("/mcp?mode=full", headers, &list).await;
    assert!(first.body.contains("shop__ship"), "{first:?}");
    // Discoveries of prompts and resources may follow, which do not change the list of tools.
    let settled = node.post_mcp("/mcp?mode=full", headers, &list).await;
    assert_eq!(first.body, settled.body);
    let history = node.get("/api/history?after=0", "").await.expect_json(200);
    let records = history["records"].as_array().unwrap();
    let discovered = records.iter().find(|record| record["type"] == "InventoryRecorded").unwrap();
    assert!(discovered["seq"].as_u64().unwrap() <= position(&first), "{discovered}");
}

/// Regression: routes without authorization ignored the parameter.
async fn clients_without_credentials_are_answered_at_once_on_any_route(store: SharedStore) {
    let group = NodeGroup::new(store);
    let node = group.start_node_requiring_token().await;
    let reached = node.registry.position();
    for path in ["/healthz", "/readyz", "/login", "/assets/style.css", "/nothing", "/api/tools", "/mcp"] {
        let response = node.get(&format!("{path}?min_position={}", reached + 1), "").await;
        assert_eq!((response.status, position(&response)), (503, reached), "{path}");
        assert_eq!(response.error_code(), "STORE_UNAVAILABLE", "{path}");
    }
    assert_eq!(node.get(&format!("/healthz?min_position={reached}"), "").await.status, 200);
}

/// Regression: the client was authenticated before the wait, so that a token worked which was revoked at that position.
async fn a_token_is_refused_from_the_position_of_its_revocation_on(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    for number in 0..10 {
        let name = format!("agent{number}");
        let created = one.registry.tokens().create(&name, Role::Viewer, None, Actor::new("test")).await.unwrap();
        let header = format!("Authorization: Bearer {}\r\n", created.token);
        // Not known to the other node yet, which reads the store before it refuses a token.
        assert_eq!(other.get("/api/whoami", &header).await.expect_json(200)["name"], name);
        one.registry.tokens().revoke(&name, Actor::new("test")).await.unwrap();
        let path = format!("/api/whoami?min_position={}", one.registry.position());
        assert_eq!(other.get(&path, &header).await.status, 401);
    }
}

/// Reads while another node writes: no response claims a position that its body does not show, and bodies of the same
/// position are equal.
async fn responses_show_at_least_their_position(store: SharedStore) {
    const WRITES: u64 = 40;
    let (_group, one, other) = NodeGroup::start_two(store).await;
    let end = one.registry.position() + WRITES;
    let write = async {
        for number in 0..WRITES {
            let action = if number % 2 == 0 { "disable" } else { "enable" };
            let written = other.post_as_admin(&format!("/api/tools/shop__ship/{action}"), &json!({})).await;
            assert_eq!(written.status, 200, "{written:?}");
        }
    };
    let read = async |node: &Node| {
        let mut bodies = Vec::new();
        loop {
            let history = node.get("/api/history", "").await;
            let last = history.expect_json(200)["records"].as_array().unwrap().last().unwrap()["seq"].as_u64().unwrap();
            assert!(last >= position(&history), "{last} < {}", position(&history));
            for path in ["/api/tools", "/api/tools?format=mcp", "/api/search?q=ship", "/api/context"] {
                let response = node.get(path, "").await;
                bodies.push(((path, position(&response)), response.body));
            }
            if position(&history) == end {
                return bodies;
            }
        }
    };
    let ((), here, there) = tokio::join!(write, read(&one), read(&other));
    let mut by_position = BTreeMap::new();
    for (key, body) in here.into_iter().chain(there) {
        let first = by_position.entry(key).or_insert_with(|| body.clone());
        assert_eq!(*first, body, "{key:?}");
    }
    assert!(by_position.keys().any(|(_, position)| *position < end), "nothing was read during the writes");
}

async fn a_minimum_position_changes_neither_the_response_nor_its_tag(store: SharedStore) {
    let (_group, one, _other) = NodeGroup::start_two(store).await;
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
