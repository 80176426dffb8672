//! Tests which principals may declare sources that run programs, read files or connect to private addresses: local administrators, and remote ones only if the
//! configuration permits it.

use serde_json::{Value, json};
use toolcrib::config::{Config, parse_source};
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;
use toolcrib::testkit::config_with_sources;

use super::support::{AuthTestServer, bearer_header, build_configured_server, open_registry};

fn program_source(name: &str) -> Value {
    json!({ "name": name, "command": "/nonexistent/program" })
}

async fn patch_source(server: &AuthTestServer, headers: &str, path: &str, patch: Value) -> u16 {
    let headers = format!("Content-Type: application/json\r\n{headers}");
    server.send("PATCH", path, &headers, &patch.to_string()).await.status
}

#[tokio::test]
async fn remote_administrators_cannot_declare_privileged_sources() {
    let (remote, [.., admin]) = AuthTestServer::on_network().await;
    let (registry, manual_clock) = open_registry().await;
    let token_required = AuthTestServer::start(registry, manual_clock, "127.0.0.1:0", true).await;
    let local = AuthTestServer::on_loopback().await;
    let proxied = format!("X-Forwarded-For: 203.0.113.7\r\n{}", bearer_header(&local.admin_token));
    for (server, headers) in [
        (&remote, bearer_header(&admin)),
        (&token_required, bearer_header(&token_required.admin_token)),
        (&local, proxied),
    ] {
        for request_body in [
            program_source("a"),
            json!({ "name": "a", "builtin": ["file_write"], "roots": ["/"] }),
            json!({ "name": "a", "builtin": "all", "roots": ["/"] }),
            json!({ "name": "a", "openapi": "/etc/passwd" }),
            json!({ "name": "a", "url": "http://127.0.0.1:1/", "headers": { "X-Key": "${env:HOME}" } }),
            json!({ "name": "a", "url": "http://127.0.0.1:1/", "auth": { "bearer": "${file:/etc/passwd}" } }),
            // Settings are resolved when they are parsed, and responses show them.
            json!({ "name": "a", "builtin": ["calculate"], "title": "${env:HOME}" }),
            json!({ "name": "a", "builtin": ["calculate"], "tags": ["x", "${HOME}"] }),
            json!({ "name": "a", "builtin": ["calculate"], "enabled": "${env:HOME}" }),
            json!({ "name": "a", "builtin": ["calculate"], "ttl": "${env:HOME}" }),
            json!({ "name": "a", "builtin": ["calculate"], "tools": { "*": "${env:HOME}" } }),
        ] {
            let rejection = server.post("/api/sources", &headers, request_body.clone()).await;
            assert_eq!((rejection.status, rejection.error_code().as_str()), (403, "FORBIDDEN"), "{request_body}");
            assert!(rejection.body.contains("allow_commands"), "{rejection:?}");
        }
        for request_body in [
            json!({ "name": "a", "url": "http://127.0.0.1:1/" }),
            json!({ "name": "a", "url": "http://localhost:1/mcp" }),
            json!({ "name": "a", "url": "http://[::ffff:10.0.0.1]/", "transport": "sse" }),
            json!({ "name": "a", "url": "http://169.254.169.254/latest" }),
            json!({ "name": "a", "openapi": "http://192.168.1.1/openapi.json" }),
            json!({ "name": "a", "openapi": "https://93.184.216.34/openapi.json", "base_url": "http://10.0.0.1" }),
            json!({ "name": "a", "openapi": "https://93.184.216.34/openapi.json", "allow_refs": ["http://10.0.0.1/"] }),
            json!({ "name": "a", "openapi": "https://93.184.216.34/openapi.json", "allow_private": true }),
            json!({ "name": "a", "openapi": "https://93.184.216.34/openapi.json",
                "auth": { "oauth2": { "token_url": "http://10.0.0.1/t", "client_id": "i", "client_secret": "s" } } }),
            json!({ "name": "a", "builtin": ["url_fetch"], "allow_private": true }),
        ] {
            let rejection = server.post("/api/sources", &headers, request_body.clone()).await;
            assert_eq!((rejection.status, rejection.error_code().as_str()), (403, "FORBIDDEN"), "{request_body}");
            assert!(rejection.body.contains("allow_private_sources"), "{rejection:?}");
        }
        // A remote administrator may change a locally declared source, except for its target.
        let declaration = json!({ "url": "http://127.0.0.1:1/", "headers": { "X-Key": "plain" } });
        let source = parse_source("b", &declaration, std::path::Path::new("/")).unwrap();
        server.registry.sources().declare_lazily(&source, Actor::new("test")).await.unwrap();
        let safe = json!({ "name": "c", "builtin": "all" });
        assert_eq!(server.post("/api/sources", &headers, safe).await.status, 201);
        for patch in [
            json!({ "url": null, "headers": null, "command": "/nonexistent/program" }),
            json!({ "headers": { "X-Key": "${HOME}" } }),
            json!({ "title": "${env:HOME}" }),
            json!({ "enabled": "${env:HOME}" }),
            json!({ "url": "http://127.0.0.1:2/" }),
            json!({ "url": "http://10.0.0.1/" }),
        ] {
            assert_eq!(patch_source(server, &headers, "/api/sources/b", patch.clone()).await, 403, "{patch}");
        }
        assert_eq!(patch_source(server, &headers, "/api/sources/b", json!({ "title": "B" })).await, 200);
    }
}

#[tokio::test]
async fn local_administrators_and_permitted_remote_ones_can_declare_privileged_sources() {
    let local = AuthTestServer::on_loopback().await;
    let admin = bearer_header(&local.admin_token);
    assert_eq!(local.post("/api/sources", &admin, program_source("a")).await.status, 201);
    let request_body = json!({ "name": "b", "url": "http://127.0.0.1:1/" });
    assert_eq!(local.post("/api/sources", &admin, request_body).await.status, 201);
    let patch = json!({ "url": null, "command": "/nonexistent/program" });
    assert_eq!(patch_source(&local, &admin, "/api/sources/b", patch).await, 200);
    assert_eq!(local.post("/api/sources", "", program_source("c")).await.status, 401);

    let (registry, manual_clock) = open_registry().await;
    let token = registry.tokens().create("boss", Role::Admin, None, Actor::new("test")).await.unwrap().token;
    let config = Config { allow_commands: true, allow_private_sources: true, ..config_with_sources(["git"]) };
    let (http_server, directory) = build_configured_server(&registry, "0.0.0.0:0", false, config).await.unwrap();
    let remote = AuthTestServer::from_server(registry, manual_clock, http_server, directory);
    assert_eq!(remote.post("/api/sources", &bearer_header(&token), program_source("a")).await.status, 201);
    let request_body = json!({ "name": "b", "url": "http://127.0.0.1:1/" });
    assert_eq!(remote.post("/api/sources", &bearer_header(&token), request_body).await.status, 201);
}

#[tokio::test]
async fn of_two_concurrent_declarations_of_one_name_one_conflicts() {
    let server = AuthTestServer::on_loopback().await;
    let admin = bearer_header(&server.admin_token);
    let request_body = |port: u16| json!({ "name": "a", "url": format!("http://127.0.0.1:{port}/") });
    let both =
        [server.post("/api/sources", &admin, request_body(1)), server.post("/api/sources", &admin, request_body(2))];
    let responses = futures_util::future::join_all(both).await;
    let mut statuses = responses.into_iter().map(|response| response.status).collect::<Vec<_>>();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
}
