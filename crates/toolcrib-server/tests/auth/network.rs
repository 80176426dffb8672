//! Tests access where the server listens on the network: every request needs a token, and its role decides.

use serde_json::json;
use tokio::io::AsyncReadExt;
use toolcrib::core::inventory::{Actor, TokenChange};
use toolcrib::{Code, Refresh};

use super::support::{AuthTestServer, TEST_TIMEOUT, bearer_header, build_server, open_registry};

#[tokio::test]
async fn a_server_on_the_network_needs_a_valid_token_to_start() {
    let (registry, manual_clock) = open_registry().await;
    let rejection = build_server(&registry, "0.0.0.0:0", false).await.unwrap_err();
    assert_eq!(rejection.code, Code::ConfigInvalid);
    assert!(rejection.message.contains("toolcrib token create"), "{}", rejection.message);
    let hour = Some(std::time::Duration::from_secs(3600));
    registry.tokens().create("ci", "viewer".parse().unwrap(), hour, Actor::new("test")).await.unwrap();
    assert!(build_server(&registry, "0.0.0.0:0", false).await.is_ok());
    manual_clock.advance(std::time::Duration::from_secs(3600));
    assert!(build_server(&registry, "0.0.0.0:0", false).await.is_err());
}

#[tokio::test]
async fn every_route_checks_authentication_and_role() {
    let (server, [viewer, agent, admin]) = AuthTestServer::on_network().await;
    assert_eq!(server.get("/api/openapi.json", "").await.status, 401);
    let document = server.get("/api/openapi.json", &bearer_header(&viewer)).await.json();
    let free_for_agents = ["call", "refresh"];
    let mut checked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let address = path.replace("{id}", "nobody").replace("{name}", "nobody");
        for method in operations.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            if path == "/api/events" {
                assert_eq!(server.get(&address, "").await.status, 401);
                continue;
            }
            if ["/healthz", "/readyz"].contains(&path.as_str()) {
                assert_eq!(server.get(&address, &bearer_header("tcb_unknown")).await.status, 200);
                continue;
            }
            checked += 1;
            let send = async |headers: String| {
                let headers = format!("Content-Type: application/json\r\n{headers}");
                server.send(&method, &address, &headers, "{}").await.status
            };
            assert_eq!(send(String::new()).await, 401, "{method} {path}");
            assert!(matches!(send(bearer_header("tcb_unknown")).await, 401 | 429), "{method} {path}");
            let secret = ["/api/tokens", "/api/groups", "/api/access", "/api/policies"];
            let secret = secret.iter().any(|start| path.starts_with(start)) || path.ends_with("/callers");
            // `/api/diff` only compares the lockfile that is posted to it, `/api/explain` changes nothing.
            let reads = (method == "GET" && !secret) || ["/api/diff", "/api/explain"].contains(&path.as_str());
            let uses = free_for_agents.iter().any(|end| path.ends_with(end));
            // Viewer and agent are checked again after the admin, because a response could have been cached.
            let as_viewer = (&viewer, reads);
            let as_agent = (&agent, reads || uses);
            for (token, allowed) in [as_viewer, as_agent, (&admin, true), as_viewer, as_agent] {
                let status = send(bearer_header(token)).await;
                assert_eq!(status != 403, allowed, "{method} {path}: {status}");
                assert!(status != 401 && status != 500, "{method} {path}: {status}");
            }
            assert_eq!(send(String::new()).await, 401, "{method} {path}: cached for another caller");
        }
    }
    assert!(checked > 10, "{checked}");
}

#[tokio::test]
async fn pages_mcp_and_metrics_need_a_token_and_health_checks_do_not() {
    let (server, [viewer, agent, _]) = AuthTestServer::on_network().await;
    for path in ["/healthz", "/readyz", "/login"] {
        assert_eq!(server.get(path, "").await.status, 200, "{path}");
    }
    for path in ["/", "/mcp", "/metrics"] {
        assert_eq!(server.get(path, "").await.status, 401, "{path}");
    }
    assert_eq!(server.post("/mcp", &bearer_header(&viewer), json!({})).await.status, 403);
    assert_eq!(server.post("/mcp", &bearer_header(&agent), json!({})).await.status, 400);
    assert_eq!(server.get("/metrics", &bearer_header(&viewer)).await.status, 200);
    // A browser is redirected to the login page and back.
    let redirect = server.get("/?a=1", "Accept: text/html\r\n").await;
    assert_eq!((redirect.status, redirect.header("location")), (303, Some("/login?next=%2F%3Fa%3D1")));
    let signed = server.post_form("/login", "", &format!("token={viewer}&next=%2F%3Fa%3D1")).await;
    assert_eq!((signed.status, signed.header("location")), (303, Some("/?a=1")));
    let api_response = server.get("/api/sources", "Accept: text/html\r\n").await;
    assert_eq!(api_response.status, 401);
}

#[tokio::test]
async fn console_forms_check_role_and_csrf_token() {
    let (server, [viewer, _, admin]) = AuthTestServer::on_network().await;
    let (cookie, csrf) = server.sign_in(&admin).await;
    for path in [
        "/sources",
        "/refresh",
        "/sources/git/refresh",
        "/sources/git/disable",
        "/tools/git__push/call",
        "/tools/git__push/disable",
        "/access/groups",
        "/access/rules",
        "/access/policies",
        "/access/tokens",
        "/access/callers",
    ] {
        assert_eq!(server.post_form(path, "", "").await.status, 401, "{path}");
        assert_eq!(server.post_form(path, &bearer_header(&viewer), "").await.status, 403, "{path}");
        assert_eq!(server.post_form(path, &cookie, "csrf=guess").await.status, 403, "{path}");
        let status = server.post_form(path, &cookie, &format!("csrf={csrf}")).await.status;
        assert!(![401, 403, 500].contains(&status), "{path}: {status}");
    }
    // Another token is suggested for a role that is too low, not for an outdated form.
    let low = server.post_form("/refresh", &bearer_header(&viewer), "").await.body;
    let old = server.post_form("/refresh", &cookie, "csrf=guess").await.body;
    assert!(low.contains("with a token that has this role") && !old.contains("with a token that has"), "{low}\n{old}");
    // A source may be named `refresh`.
    assert_eq!(server.get("/sources/refresh", &bearer_header(&viewer)).await.status, 404);
}

#[tokio::test]
async fn the_curl_snippet_uses_the_requested_host_and_a_token() {
    let (server, [viewer, ..]) = AuthTestServer::on_network().await;
    server.registry.refresh(Refresh::default()).await;
    let page =
        server.get("/tools/git__push", &format!("Host: tools.example:80\r\n{}", bearer_header(&viewer))).await.body;
    assert!(page.contains("curl http://tools.example:80/api/tools/git__push/call"), "{page}");
    assert!(page.contains("Authorization: Bearer $TOKEN"), "{page}");
}

#[tokio::test]
async fn on_the_network_any_host_is_accepted_and_the_origin_must_match_it() {
    let (server, [viewer, ..]) = AuthTestServer::on_network().await;
    for (headers, status) in [
        ("Host: tools.example\r\n", 200),
        ("Host: tools.example\r\nOrigin: https://tools.example\r\n", 200),
        ("Host: tools.example:7450\r\nOrigin: http://tools.example:7450\r\n", 200),
        ("Host: tools.example\r\nOrigin: https://evil.example\r\n", 403),
        ("Host: tools.example\r\nOrigin: http://localhost\r\n", 403),
        ("Host: tools.example\r\nOrigin: null\r\n", 403),
    ] {
        let response = server.get("/api/sources", &format!("{headers}{}", bearer_header(&viewer))).await;
        assert_eq!(response.status, status, "{headers}");
    }
    let secure = "Host: tools.example\r\nOrigin: https://tools.example\r\n";
    let signed = server.post_form("/login", secure, &format!("token={viewer}")).await;
    assert!(signed.header("set-cookie").unwrap().ends_with("; Secure"), "{signed:?}");
}

#[tokio::test]
async fn require_token_applies_on_loopback() {
    let (registry, manual_clock) = open_registry().await;
    let server = AuthTestServer::start(registry, manual_clock, "127.0.0.1:0", true).await;
    assert_eq!(server.get("/api/sources", "").await.status, 401);
    let proxied = format!("Host: tools.example\r\n{}", bearer_header(&server.admin_token));
    assert_eq!(server.get("/api/sources", &proxied).await.status, 200);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let (server, [viewer, ..]) = AuthTestServer::on_network().await;
    let mut stream = server.open_stream("/api/events", &bearer_header(&viewer)).await;
    server.registry.tokens().revoke("the-viewer", Actor::new("test")).await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_mcp_session_belongs_to_the_principal_that_opened_it() {
    let (server, [_, agent, admin]) = AuthTestServer::on_network().await;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let accept = "Accept: application/json, text/event-stream\r\n";
    let initialized = server.post("/mcp", &format!("{accept}{}", bearer_header(&agent)), initialize).await;
    assert_eq!(initialized.status, 200, "{initialized:?}");
    let session = format!("{accept}Mcp-Session-Id: {}\r\n", initialized.header("mcp-session-id").unwrap());
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let foreign_session = format!("{session}{}", bearer_header(&admin));
    assert_eq!(server.post("/mcp", &foreign_session, ping.clone()).await.status, 404);
    assert_eq!(server.get("/mcp", &foreign_session).await.status, 404);
    assert_eq!(server.send("DELETE", "/mcp", &foreign_session, "").await.status, 404);
    // A renamed token is still the same principal.
    let change = TokenChange { id: "the-agent".into(), name: Some("renamed".into()), ..TokenChange::default() };
    server.registry.tokens().change(change, Actor::new("test")).await.unwrap();
    let own_session = format!("{session}{}", bearer_header(&agent));
    assert_eq!(server.post("/mcp", &own_session, ping).await.status, 200);
    assert_eq!(server.send("DELETE", "/mcp", &own_session, "").await.status, 200);
}
