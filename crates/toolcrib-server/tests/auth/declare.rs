//! What reaches into this machine is declared on it, or where the configuration lets everybody who manages.

use serde_json::{Value, json};
use toolcrib::core::access::Role;
use toolcrib::core::config::{Config, parse_source};
use toolcrib::core::inventory::Actor;
use toolcrib::testkit::config_with_sources;

use crate::support::{AuthTestServer, bearer_header, build_configured_server, open_registry};

fn program_source(name: &str) -> Value {
    json!({ "name": name, "command": "/nonexistent/program" })
}

async fn patch_source(server: &AuthTestServer, headers: &str, path: &str, patch: Value) -> u16 {
    let headers = format!("Content-Type: application/json\r\n{headers}");
    server.send("PATCH", path, &headers, &patch.to_string()).await.status
}

#[tokio::test]
async fn nobody_elsewhere_reaches_into_this_machine() {
    let (beyond, [.., admin]) = AuthTestServer::on_network().await;
    let (registry, hand) = open_registry().await;
    let asking = AuthTestServer::start(registry, hand, "127.0.0.1:0", true).await;
    let local = AuthTestServer::on_loopback().await;
    let proxied = format!("X-Forwarded-For: 203.0.113.7\r\n{}", bearer_header(&local.admin_token));
    for (server, headers) in
        [(&beyond, bearer_header(&admin)), (&asking, bearer_header(&asking.admin_token)), (&local, proxied)]
    {
        for wish in [
            program_source("a"),
            json!({ "name": "a", "builtin": ["file_write"], "roots": ["/"] }),
            json!({ "name": "a", "builtin": "all", "roots": ["/"] }),
            json!({ "name": "a", "openapi": "/etc/passwd" }),
            json!({ "name": "a", "url": "http://127.0.0.1:1/", "headers": { "X-Key": "${env:HOME}" } }),
            json!({ "name": "a", "url": "http://127.0.0.1:1/", "auth": { "bearer": "${file:/etc/passwd}" } }),
        ] {
            let refused = server.post("/api/sources", &headers, wish.clone()).await;
            assert_eq!((refused.status, refused.error_code().as_str()), (403, "FORBIDDEN"), "{wish}");
            assert!(refused.body.contains("allow_commands"), "{refused:?}");
        }
        for wish in [
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
            let refused = server.post("/api/sources", &headers, wish.clone()).await;
            assert_eq!((refused.status, refused.error_code().as_str()), (403, "FORBIDDEN"), "{wish}");
            assert!(refused.body.contains("allow_private_sources"), "{refused:?}");
        }
        // Declared on this machine; over the network everything may be changed but where it leads to.
        let local = json!({ "url": "http://127.0.0.1:1/", "headers": { "X-Key": "plain" } });
        let local = parse_source("b", &local, std::path::Path::new("/")).unwrap();
        server.registry.declare_lazily(&local, Actor::new("test")).await.unwrap();
        let safe = json!({ "name": "c", "builtin": "all" });
        assert_eq!(server.post("/api/sources", &headers, safe).await.status, 201);
        for patch in [
            json!({ "url": null, "headers": null, "command": "/nonexistent/program" }),
            json!({ "headers": { "X-Key": "${HOME}" } }),
            json!({ "url": "http://127.0.0.1:2/" }),
            json!({ "url": "http://10.0.0.1/" }),
        ] {
            assert_eq!(patch_source(server, &headers, "/api/sources/b", patch.clone()).await, 403, "{patch}");
        }
        assert_eq!(patch_source(server, &headers, "/api/sources/b", json!({ "title": "B" })).await, 200);
    }
}

#[tokio::test]
async fn who_manages_here_or_is_let_by_the_configuration_may() {
    let local = AuthTestServer::on_loopback().await;
    let admin = bearer_header(&local.admin_token);
    assert_eq!(local.post("/api/sources", &admin, program_source("a")).await.status, 201);
    let wish = json!({ "name": "b", "url": "http://127.0.0.1:1/" });
    assert_eq!(local.post("/api/sources", &admin, wish).await.status, 201);
    let patch = json!({ "url": null, "command": "/nonexistent/program" });
    assert_eq!(patch_source(&local, &admin, "/api/sources/b", patch).await, 200);
    assert_eq!(local.post("/api/sources", "", program_source("c")).await.status, 401);

    let (registry, hand) = open_registry().await;
    let token = registry.create_token("boss", Role::Admin, None, Actor::new("test")).await.unwrap().token;
    let config = Config { allow_commands: true, allow_private_sources: true, ..config_with_sources(["git"]) };
    let (serving, directory) = build_configured_server(&registry, "0.0.0.0:0", false, config).await.unwrap();
    let beyond = AuthTestServer::from_server(registry, hand, serving, directory);
    assert_eq!(beyond.post("/api/sources", &bearer_header(&token), program_source("a")).await.status, 201);
    let wish = json!({ "name": "b", "url": "http://127.0.0.1:1/" });
    assert_eq!(beyond.post("/api/sources", &bearer_header(&token), wish).await.status, 201);
}

#[tokio::test]
async fn of_two_who_declare_one_name_one_is_second() {
    let server = AuthTestServer::on_loopback().await;
    let admin = bearer_header(&server.admin_token);
    let wish = |port: u16| json!({ "name": "a", "url": format!("http://127.0.0.1:{port}/") });
    let both = [server.post("/api/sources", &admin, wish(1)), server.post("/api/sources", &admin, wish(2))];
    let mut statuses = futures_util::future::join_all(both).await.into_iter().map(|one| one.status).collect::<Vec<_>>();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
}
