//! On loopback: reading and calling is free, changing is not, and whoever shows a token shows a good one.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use toolcrib::core::access::Role;
use toolcrib::core::config::LoopbackAccess;
use toolcrib::core::inventory::Actor;
use toolcrib::registry::RegistryNotice;

use crate::support::{AuthTestServer, TEST_TIMEOUT, bearer_header};

#[tokio::test]
async fn looking_and_calling_is_free_and_changing_is_not() {
    let server = AuthTestServer::on_loopback().await;
    for path in ["/", "/api/sources", "/api/openapi.json", "/healthz", "/login"] {
        assert_eq!(server.get(path, "").await.status, 200, "{path}");
    }
    assert_eq!(server.post("/mcp", "", json!({})).await.status, 400);
    let wish = json!({ "name": "ci", "role": "agent" });
    let refused = server.post("/api/tokens", "", wish.clone()).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (401, "UNAUTHORIZED"));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"toolcrib\""));
    assert!(refused.body.contains("admin.token"), "{refused:?}");
    assert_eq!(server.get("/api/tokens", "").await.status, 401);

    let admin = bearer_header(&server.admin_token);
    let created = server.post("/api/tokens", &admin, wish.clone()).await;
    assert_eq!((created.status, created.header("cache-control")), (201, Some("no-store")), "{created:?}");
    let (created, token) = (created.json(), created.json()["token"].as_str().unwrap().to_owned());
    assert!(token.starts_with("tcb_") && token.len() == 47, "{token}");
    assert_eq!(server.post("/api/tokens", &admin, wish).await.error_code(), "CONFLICT");

    let listed = server.get("/api/tokens", &admin).await;
    assert_eq!(listed.json()["tokens"].as_array().unwrap().len(), 1);
    assert!(!listed.body.contains("hash") && !listed.body.contains(&token), "{}", listed.body);
    let refused = server.get("/api/tokens", &bearer_header(&token)).await;
    assert_eq!((refused.status, refused.error_code().as_str()), (403, "FORBIDDEN"));
    assert!(refused.body.contains("role `admin`") && refused.body.contains("`ci`"), "{refused:?}");

    // Who may read the history may not list tokens: it tells the name and the role.
    let history = server.get("/api/history", &bearer_header(&token)).await;
    let records = history.json()["records"].as_array().unwrap().clone();
    let made = records.iter().find(|record| record["type"] == "TokenCreated").unwrap();
    assert_eq!(made["data"], json!({ "name": "ci", "role": created["role"] }));
    assert!(!history.body.contains(created["id"].as_str().unwrap()), "{}", history.body);

    let path = format!("/api/tokens/{}", created["id"].as_str().unwrap());
    let json = "Content-Type: application/json\r\n";
    let changed = server.send("PATCH", &path, &format!("{admin}{json}"), r#"{"role":"admin"}"#).await;
    assert_eq!(changed.json()["role"], "admin");
    assert_eq!(server.get("/api/tokens/ci", &bearer_header(&token)).await.json()["name"], "ci");
    assert_eq!(server.send("DELETE", &path, &admin, "").await.status, 204);
    assert_eq!(server.send("DELETE", &path, &admin, "").await.status, 404);
    assert_eq!(server.get("/api/sources", &bearer_header(&token)).await.status, 401);
}

/// The host that is looked at must be the one that the request is for, or a page elsewhere could name both.
#[tokio::test]
async fn a_request_names_one_host_and_that_is_this_machine() {
    let server = AuthTestServer::on_loopback().await;
    let here = format!("Host: {}\r\n", server.address);
    let own = format!("http://{}/api/sources", server.address);
    for (path, headers, status, code) in [
        ("/api/sources", format!("{here}Host: evil.example\r\n"), 400, "BAD_REQUEST"),
        ("/api/sources", format!("Host: evil.example\r\n{here}"), 400, "BAD_REQUEST"),
        ("/api/sources", format!("{here}{here}"), 400, "BAD_REQUEST"),
        ("/api/sources", "Host: \u{e4}\r\n".into(), 400, "BAD_REQUEST"),
        ("/api/sources", "Host: evil.example\r\n".into(), 403, "FORBIDDEN"),
        ("http://evil.example/api/sources", here.clone(), 400, "BAD_REQUEST"),
        ("http://evil.example/api/sources", "Host: evil.example\r\n".into(), 403, "FORBIDDEN"),
        ("http://localhost@evil.example/api/sources", here.clone(), 400, "BAD_REQUEST"),
        (&own, "Host: evil.example\r\n".into(), 400, "BAD_REQUEST"),
    ] {
        let refused = server.get(path, &headers).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (status, code), "{path} {headers}");
    }
    assert_eq!(server.get(&own, &here).await.status, 200);
    assert_eq!(server.get("/api/sources", "Host: LOCALHOST:80\r\n").await.status, 200);
}

#[tokio::test]
async fn what_a_token_is_made_with_is_checked() {
    let server = AuthTestServer::on_loopback().await;
    let admin = bearer_header(&server.admin_token);
    for body in [
        json!({}),
        json!({ "name": "ci" }),
        json!({ "name": "ci", "role": "root" }),
        json!({ "name": "a b", "role": "agent" }),
        json!({ "name": "admin", "role": "agent" }),
        json!({ "name": "ci", "role": "agent", "expires": "soon" }),
        json!({ "name": "ci", "role": "agent", "expires": "0s" }),
        json!({ "name": "ci", "role": "agent", "hash": "x" }),
        json!([]),
    ] {
        let refused = server.post("/api/tokens", &admin, body.clone()).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (400, "BAD_REQUEST"), "{body}");
    }
    assert_eq!(server.registry.tokens(), []);
}

#[tokio::test]
async fn a_token_that_is_no_good_is_refused_even_where_none_is_needed() {
    let server = AuthTestServer::on_loopback().await;
    let short = server.create_token("short", Role::Admin, Some(Duration::from_secs(60))).await;
    let revoked = server.create_token("revoked", Role::Admin, None).await;
    for token in [&short, &revoked] {
        assert_eq!(server.get("/api/sources", &bearer_header(token)).await.status, 200);
    }
    server.registry.revoke_token("revoked", Actor::new("test")).await.unwrap();
    server.clock.advance(Duration::from_secs(60));
    for header in [
        bearer_header(&short),
        bearer_header(&revoked),
        bearer_header("tcb_wrong"),
        "Authorization: Bearer\r\n".into(),
        "Authorization: Bearer \r\n".into(),
        "Authorization: Basic eDp5\r\n".into(),
        format!("Authorization: {}\r\n", server.admin_token),
        format!("{}{}", bearer_header(&server.admin_token), bearer_header(&server.admin_token)),
    ] {
        let refused = server.get("/api/sources", &header).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (401, "UNAUTHORIZED"), "{header}");
        assert!(refused.header("www-authenticate").is_some());
        assert!(!refused.body.contains("tcb_"), "{}", refused.body);
    }
    let lower = format!("authorization: bearer {}\r\n", server.admin_token);
    assert_eq!(server.get("/api/sources", &lower).await.status, 200);
}

#[tokio::test]
async fn guessing_is_slowed_down_and_a_right_token_is_not() {
    let server = AuthTestServer::on_loopback().await;
    let wrong = bearer_header("tcb_guess");
    for _ in 0..20 {
        assert_eq!(server.get("/api/sources", &wrong).await.status, 401);
    }
    assert_eq!(server.get("/api/sources", &wrong).await.error_code(), "RATE_LIMITED");
    assert_eq!(server.get("/api/sources", &wrong).await.header("retry-after"), Some("60"));
    let form = server.post_form("/login", "", "token=guess").await;
    assert_eq!((form.status, form.header("retry-after")), (429, Some("60")));
    assert_eq!(server.get("/api/sources", &bearer_header(&server.admin_token)).await.status, 200);
    assert_eq!(server.get("/api/sources", "").await.status, 200);
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(server.get("/api/sources", &wrong).await.status, 401);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_make_a_browser_act_here() {
    let server = AuthTestServer::on_loopback().await;
    for headers in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Host: evil.example\r\n",
    ] {
        let refused = server.post("/api/sources/git/refresh", headers, json!({})).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (403, "FORBIDDEN"), "{headers}");
        let refused = server.post_form("/login", headers, &format!("token={}", server.admin_token)).await;
        assert_eq!(refused.status, 403, "{headers}");
    }
    // Another program's page on this machine, and our own under its other names.
    let port = server.address.rsplit_once(':').unwrap().1;
    let neighbour = server.post("/api/sources/git/refresh", "Origin: http://localhost:1\r\n", json!({})).await;
    assert_eq!((neighbour.status, neighbour.error_code().as_str()), (403, "FORBIDDEN"));
    assert_eq!(server.post("/mcp", "Origin: http://127.0.0.1:1\r\n", json!({})).await.status, 403);
    for name in ["localhost", "127.0.0.1", "[::1]"] {
        let own = format!("Origin: http://{name}:{port}\r\n");
        assert_eq!(server.post("/api/sources/git/refresh", &own, json!({})).await.status, 200, "{name}");
    }
    let followed = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
    assert_eq!(server.get("/", followed).await.status, 200);
    let own = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.address);
    assert_eq!(server.post_form("/login", &own, &format!("token={}", server.admin_token)).await.status, 303);
}

#[tokio::test]
async fn every_answer_says_how_a_browser_is_to_treat_it() {
    let server = AuthTestServer::on_loopback().await;
    for path in ["/", "/login", "/api/sources", "/nowhere", "/healthz"] {
        let answer = server.get(path, "").await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(answer.header("cache-control").is_some(), "{path}");
        let page = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
        assert_eq!(answer.header("x-frame-options"), page.then_some("DENY"), "{path}");
        // With `no-referrer` a form's origin would be `null`.
        assert_eq!(answer.header("referrer-policy"), page.then_some("same-origin"), "{path}");
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert_eq!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), page, "{path}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn history_tells_of_tokens_and_not_what_they_are() {
    let server = AuthTestServer::on_loopback().await;
    let token = server.create_token("ci", Role::Agent, None).await;
    server.registry.revoke_token("ci", Actor::new("test")).await.unwrap();
    let hash = toolcrib::core::fingerprint::Fingerprint::digest(&token).to_string();
    let history =
        json!(server.registry.history(&toolcrib::registry::HistoryQuery::default()).await.unwrap()).to_string();
    assert!(history.contains("TokenCreated") && history.contains("TokenRevoked"), "{history}");
    let told = server.get("/api/history", "").await.body;
    for text in [history, told] {
        assert!(!text.contains(&token) && !text.contains(&hash), "{text}");
    }
    let who: Value = server.get("/api/whoami", "").await.json();
    assert_eq!(who, json!({ "name": "local", "role": "agent", "csrf": null }));
}

#[tokio::test]
async fn what_a_proxy_passes_on_is_not_from_this_machine() {
    let server = AuthTestServer::on_loopback().await;
    for name in [
        "forwarded",
        "x-forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "X-Forwarded-Anything",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "cf-connecting-ip",
        "True-Client-IP",
        "fly-client-ip",
        "fastly-client-ip",
        "x-envoy-external-address",
        "cdn-loop",
        "via",
    ] {
        let passed_on = format!("{name}: 203.0.113.7\r\n");
        let refused = server.get("/api/sources", &passed_on).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (401, "UNAUTHORIZED"), "{name}");
        assert!(refused.body.contains("a proxy"), "{refused:?}");
        assert_eq!(server.post("/mcp", &passed_on, json!({})).await.status, 401, "{name}");
        let shown = format!("{passed_on}{}", bearer_header(&server.admin_token));
        assert_eq!(server.get("/api/sources", &shown).await.status, 200, "{name}");
    }
}

#[tokio::test]
async fn a_client_is_known_by_its_token_and_not_by_what_it_says() {
    let server = AuthTestServer::on_loopback().await;
    server.post("/api/refresh", "", json!({})).await;
    let token = server.create_token("ci", Role::Agent, None).await;
    let mut notices = server.registry.subscribe();
    for (headers, named, expected) in [
        (bearer_header(&token), "somebody", "token:ci"),
        (String::new(), "somebody", "somebody"),
        (String::new(), "token:ci", "mcp"),
    ] {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": named, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": "git__push", "arguments": {}, "_meta": meta });
        let headers = format!(
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: git__push\r\n{headers}"
        );
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let answer = server.post("/mcp", &headers, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let caller = loop {
            if let RegistryNotice::CallFinished(called) = notices.recv().await.unwrap() {
                break called.caller.clone();
            }
        };
        assert_eq!(caller, expected);
    }
}

#[tokio::test]
async fn a_stream_without_a_token_ends_when_every_client_needs_one() {
    let server = AuthTestServer::on_loopback().await;
    let accept = "Accept: application/json, text/event-stream\r\n";
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    }});
    let greeted = server.post("/mcp", accept, hello).await;
    let session = format!("{accept}Mcp-Session-Id: {}\r\n", greeted.header("mcp-session-id").unwrap());
    let listen = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
        "notifications": { "toolsListChanged": true },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let modern = format!(
        "{accept}Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: subscriptions/listen\r\n"
    );
    let mut streams = [
        server.open_stream("/api/events", "").await,
        server.open_stream("/mcp", &session).await,
        server.open_stream_with("POST", "/mcp", &modern, &listen.to_string()).await,
    ];
    let mut with_token = server.open_stream("/api/events", &bearer_header(&server.admin_token)).await;
    // Read again without a change for local clients, every stream goes on.
    server.set_loopback(LoopbackAccess::Open);
    server.set_loopback(LoopbackAccess::Owner);
    server.create_token("heard", Role::Viewer, None).await;
    read_until_contains(&mut streams[0], "TokenCreated").await;

    server.set_loopback(LoopbackAccess::Token);
    for mut stream in streams {
        let mut rest = Vec::new();
        tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
    server.create_token("still-heard", Role::Viewer, None).await;
    read_until_contains(&mut with_token, "still-heard").await;
}

async fn read_until_contains(stream: &mut TcpStream, text: &str) {
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(text) {
        heard.push(tokio::time::timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
}
