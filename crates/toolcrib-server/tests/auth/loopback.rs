//! Tests access on loopback: reading and calling need no token, changing needs one, and an invalid token is rejected
//! everywhere.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use toolcrib::config::LoopbackAccess;
use toolcrib::config_file::LoadedConfig;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;
use toolcrib::registry::RegistryNotice;
use toolcrib::testkit::config_with_sources;

use super::support::{AuthTestServer, TEST_TIMEOUT, bearer_header};

#[tokio::test]
async fn local_clients_read_and_call_without_a_token_but_change_only_with_one() {
    let server = AuthTestServer::on_loopback().await;
    for path in ["/", "/api/sources", "/api/openapi.json", "/healthz", "/login"] {
        assert_eq!(server.get(path, "").await.status, 200, "{path}");
    }
    assert_eq!(server.post("/mcp", "", json!({})).await.status, 400);
    let request_body = json!({ "name": "ci", "role": "agent" });
    let rejection = server.post("/api/tokens", "", request_body.clone()).await;
    assert_eq!((rejection.status, rejection.error_code().as_str()), (401, "UNAUTHORIZED"));
    assert_eq!(rejection.header("www-authenticate"), Some("Bearer realm=\"toolcrib\""));
    assert!(rejection.body.contains("admin.token"), "{rejection:?}");
    assert_eq!(server.get("/api/tokens", "").await.status, 401);

    let admin = bearer_header(&server.admin_token);
    let created = server.post("/api/tokens", &admin, request_body.clone()).await;
    assert_eq!((created.status, created.header("cache-control")), (201, Some("no-store")), "{created:?}");
    let created = created.json();
    let token = created["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("tcb_") && token.len() == 47, "{token}");
    assert_eq!(server.post("/api/tokens", &admin, request_body).await.error_code(), "CONFLICT");

    let listed = server.get("/api/tokens", &admin).await;
    assert_eq!(listed.json()["tokens"].as_array().unwrap().len(), 1);
    assert!(!listed.body.contains("hash") && !listed.body.contains(&token), "{}", listed.body);
    let rejection = server.get("/api/tokens", &bearer_header(&token)).await;
    assert_eq!((rejection.status, rejection.error_code().as_str()), (403, "FORBIDDEN"));
    assert!(rejection.body.contains("role `admin`") && rejection.body.contains("`ci`"), "{rejection:?}");

    // An agent may read the history but not list tokens, so a record contains only the name and the role.
    let history = server.get("/api/history", &bearer_header(&token)).await;
    let records = history.json()["records"].as_array().unwrap().clone();
    let record = records.iter().find(|record| record["type"] == "TokenCreated").unwrap();
    assert_eq!(record["data"], json!({ "name": "ci", "role": created["role"] }));
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

/// The checked host must be the one that the request is for; otherwise a page of another site could name both.
#[tokio::test]
async fn ambiguous_and_foreign_hosts_are_rejected() {
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
        let rejection = server.get(path, &headers).await;
        assert_eq!((rejection.status, rejection.error_code().as_str()), (status, code), "{path} {headers}");
    }
    assert_eq!(server.get(&own, &here).await.status, 200);
    assert_eq!(server.get("/api/sources", "Host: LOCALHOST:80\r\n").await.status, 200);
}

/// Behind a proxy on this machine, as in the examples for nginx and Caddy. Its clients always need a token.
#[tokio::test]
async fn requests_for_the_public_host_come_over_the_network() {
    let server = AuthTestServer::on_loopback().await;
    let token = bearer_header(&server.create_token("ci", Role::Agent, None).await);
    let nginx = "Host: tools.example.com\r\nX-Forwarded-Proto: https\r\n";
    let bare = "Host: tools.example.com\r\n";
    for headers in [nginx, bare] {
        assert_eq!(server.get("/api/sources", &format!("{headers}{token}")).await.status, 403);
    }
    let mut config = config_with_sources(["git"]);
    config.public_url = Some("https://tools.example.com".to_owned());
    server.app_state.set_config(LoadedConfig::from_config(config));
    for headers in [nginx, bare, "Host: Tools.Example.com:443\r\n"] {
        let response = server.get("/api/sources", headers).await;
        assert_eq!(response.status, 401, "{headers}");
        assert!(response.body.contains("a request that a proxy forwarded needs"), "{}", response.body);
        assert_eq!(server.post("/mcp", headers, json!({})).await.status, 401);
        assert_eq!(server.get("/api/sources", &format!("{headers}{token}")).await.status, 200, "{headers}");
        assert_eq!(server.post("/mcp", &format!("{headers}{token}"), json!({})).await.status, 400);
        let page = format!("{headers}{token}Origin: https://tools.example.com\r\n");
        assert_eq!(server.get("/api/sources", &page).await.status, 200);
        let foreign = format!("{headers}{token}Origin: http://localhost:3000\r\n");
        assert_eq!(server.get("/api/sources", &foreign).await.status, 403);
    }
    // The protection against DNS rebinding stays.
    for host in ["evil.example", "tools.example.com:7450", "tools.example.com.evil.example"] {
        for headers in [format!("Host: {host}\r\n"), format!("Host: {host}\r\nX-Forwarded-For: 192.0.2.7\r\n{token}")] {
            assert_eq!(server.get("/api/sources", &headers).await.status, 403, "{headers}");
        }
    }
    assert_eq!(server.get("/api/sources", "").await.status, 200);
}

#[tokio::test]
async fn invalid_token_requests_are_rejected() {
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
        let rejection = server.post("/api/tokens", &admin, body.clone()).await;
        assert_eq!((rejection.status, rejection.error_code().as_str()), (400, "BAD_REQUEST"), "{body}");
    }
    assert_eq!(server.registry.tokens().list(), []);
}

#[tokio::test]
async fn an_invalid_token_is_rejected_even_where_none_is_needed() {
    let server = AuthTestServer::on_loopback().await;
    let short = server.create_token("short", Role::Admin, Some(Duration::from_secs(60))).await;
    let revoked = server.create_token("revoked", Role::Admin, None).await;
    for token in [&short, &revoked] {
        assert_eq!(server.get("/api/sources", &bearer_header(token)).await.status, 200);
    }
    server.registry.tokens().revoke("revoked", Actor::new("test")).await.unwrap();
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
        let rejection = server.get("/api/sources", &header).await;
        assert_eq!((rejection.status, rejection.error_code().as_str()), (401, "UNAUTHORIZED"), "{header}");
        assert!(rejection.header("www-authenticate").is_some());
        assert!(!rejection.body.contains("tcb_"), "{}", rejection.body);
    }
    let lower = format!("authorization: bearer {}\r\n", server.admin_token);
    assert_eq!(server.get("/api/sources", &lower).await.status, 200);
}

#[tokio::test]
async fn failed_tokens_are_rate_limited_and_valid_ones_are_not() {
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
async fn a_client_whose_token_has_expired_is_not_rate_limited() {
    let server = AuthTestServer::on_loopback().await;
    let role = toolcrib::core::access::Role::Agent;
    let hour = Some(Duration::from_secs(3600));
    let created = server.registry.tokens().create("ci", role, hour, Actor::new("test")).await.unwrap();
    server.clock.advance(Duration::from_secs(3600));
    for _ in 0..30 {
        assert_eq!(server.get("/api/sources", &bearer_header(&created.token)).await.status, 401);
    }
}

#[tokio::test]
async fn cross_site_requests_are_rejected() {
    let server = AuthTestServer::on_loopback().await;
    for headers in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Host: evil.example\r\n",
    ] {
        let rejection = server.post("/api/sources/git/refresh", headers, json!({})).await;
        assert_eq!((rejection.status, rejection.error_code().as_str()), (403, "FORBIDDEN"), "{headers}");
        let rejection = server.post_form("/login", headers, &format!("token={}", server.admin_token)).await;
        assert_eq!(rejection.status, 403, "{headers}");
    }
    // A page of another local program is rejected; a page of this server is accepted under each of its host names.
    let port = server.address.rsplit_once(':').unwrap().1;
    let other_port = server.post("/api/sources/git/refresh", "Origin: http://localhost:1\r\n", json!({})).await;
    assert_eq!((other_port.status, other_port.error_code().as_str()), (403, "FORBIDDEN"));
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
async fn every_response_has_security_headers() {
    let server = AuthTestServer::on_loopback().await;
    for path in ["/", "/login", "/api/sources", "/nowhere", "/healthz"] {
        let response = server.get(path, "").await;
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(response.header("cache-control").is_some(), "{path}");
        let page = response.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
        assert_eq!(response.header("x-frame-options"), page.then_some("DENY"), "{path}");
        // With `no-referrer`, the origin of a form would be `null`.
        assert_eq!(response.header("referrer-policy"), page.then_some("same-origin"), "{path}");
        let policy = response.header("content-security-policy").unwrap_or_default();
        assert_eq!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), page, "{path}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn the_history_contains_no_token_secrets() {
    let server = AuthTestServer::on_loopback().await;
    let token = server.create_token("ci", Role::Agent, None).await;
    server.registry.tokens().revoke("ci", Actor::new("test")).await.unwrap();
    let hash = toolcrib::core::fingerprint::Fingerprint::digest(&token).to_string();
    let history = json!(server.registry.history().records(&toolcrib::registry::HistoryQuery::default()).await.unwrap())
        .to_string();
    assert!(history.contains("TokenCreated") && history.contains("TokenRevoked"), "{history}");
    let response_body = server.get("/api/history", "").await.body;
    for text in [history, response_body] {
        assert!(!text.contains(&token) && !text.contains(&hash), "{text}");
    }
    let who: Value = server.get("/api/whoami", "").await.json();
    let expected = json!({
        "name": "local", "role": "agent", "csrf": null, "kind": "local", "issuer": null, "sub": null, "claims": {},
        "groups": [],
    });
    assert_eq!(who, expected);
}

#[tokio::test]
async fn forwarded_requests_are_not_local() {
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
        let forwarded_header = format!("{name}: 203.0.113.7\r\n");
        let rejection = server.get("/api/sources", &forwarded_header).await;
        assert_eq!((rejection.status, rejection.error_code().as_str()), (401, "UNAUTHORIZED"), "{name}");
        assert!(rejection.body.contains("a proxy"), "{rejection:?}");
        assert_eq!(server.post("/mcp", &forwarded_header, json!({})).await.status, 401, "{name}");
        let with_token = format!("{forwarded_header}{}", bearer_header(&server.admin_token));
        assert_eq!(server.get("/api/sources", &with_token).await.status, 200, "{name}");
    }
}

#[tokio::test]
async fn the_caller_is_named_by_its_token_and_cannot_impersonate_one() {
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
        let response = server.post("/mcp", &headers, body).await;
        assert_eq!(response.status, 200, "{response:?}");
        let caller = loop {
            if let RegistryNotice::CallFinished(called) = notices.recv().await.unwrap() {
                break called.caller.clone();
            }
        };
        assert_eq!(caller, expected);
    }
}

#[tokio::test]
async fn streams_without_a_token_end_when_tokens_become_required() {
    let server = AuthTestServer::on_loopback().await;
    let accept = "Accept: application/json, text/event-stream\r\n";
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    }});
    let initialized = server.post("/mcp", accept, initialize).await;
    let session = format!("{accept}Mcp-Session-Id: {}\r\n", initialized.header("mcp-session-id").unwrap());
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
    // A reload that does not change the access of local clients does not end their streams.
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
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(text) {
        received.push(tokio::time::timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
}
