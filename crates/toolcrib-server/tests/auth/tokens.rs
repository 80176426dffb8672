//! Tokens with groups and claims over REST, their last use, and what `whoami` returns for each kind of client.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use toolcrib::config::LoopbackAccess;
use toolcrib::core::access_rules::{Group, NamedRule};
use toolcrib::core::inventory::Actor;

use super::support::{AuthTestServer, RawHttpResponse, TEST_TIMEOUT, bearer_header};

impl AuthTestServer {
    fn admin(&self) -> String {
        bearer_header(&self.admin_token)
    }

    async fn patch_token(&self, path: &str, headers: &str, body: Value) -> RawHttpResponse {
        let headers = format!("Content-Type: application/json\r\n{}{headers}", self.admin());
        self.send("PATCH", path, &headers, body.to_string()).await
    }

    async fn last_used(&self, token: &str) -> Value {
        self.get(&format!("/api/tokens/{token}"), &self.admin()).await.json()["last_used"].clone()
    }
}

/// Creates a token with groups and claims and returns the response.
async fn create_desk_token(server: &AuthTestServer) -> Value {
    for name in ["support", "docs"] {
        let group = NamedRule::Group(name.to_owned(), Group::default());
        server.registry.rules().define(group, Actor::new("test")).await.unwrap();
    }
    let claims = json!({ "team": "desk", "regions": ["eu"] });
    let new = json!({ "name": "desk", "role": "agent", "groups": ["support", "docs"], "claims": claims });
    let created = server.post("/api/tokens", &server.admin(), new).await;
    assert_eq!(created.status, 201, "{created:?}");
    created.json()
}

#[tokio::test]
async fn groups_and_claims_are_created_read_and_changed() {
    let server = AuthTestServer::on_loopback().await;
    let created = create_desk_token(&server).await;
    let claims = json!({ "team": "desk", "regions": ["eu"] });
    assert_eq!((&created["groups"], &created["claims"]), (&json!(["docs", "support"]), &claims));
    assert_eq!(created["last_used"], json!(null));
    let path = format!("/api/tokens/{}", created["id"].as_str().unwrap());
    let read = server.get(&path, &server.admin()).await;
    let etag = read.header("etag").unwrap().to_owned();
    let mut expected = created.clone();
    expected.as_object_mut().unwrap().shift_remove("token");
    assert_eq!(read.json(), expected);
    assert_eq!(server.get("/api/tokens", &server.admin()).await.json(), json!({ "tokens": [expected] }));

    // A use is no change.
    server.get("/api/sources", &bearer_header(created["token"].as_str().unwrap())).await;
    let if_match = format!("If-Match: {etag}\r\n");
    let changed = server.patch_token(&path, &if_match, json!({ "groups": [], "claims": { "team": "docs" } })).await;
    assert_eq!((changed.status, &changed.json()["groups"]), (200, &json!([])), "{changed:?}");
    assert_eq!(changed.json()["claims"], json!({ "team": "docs" }));
    assert_eq!(server.patch_token(&path, &if_match, json!({ "groups": ["docs"] })).await.status, 412);
    let unchanged = server.patch_token(&path, "", json!({ "name": "front", "groups": null, "claims": null })).await;
    assert_eq!((&unchanged.json()["name"], &unchanged.json()["claims"]), (&json!("front"), &json!({ "team": "docs" })));

    let history = server.get("/api/history", "").await.body;
    assert!(history.contains("token `desk` created (agent, groups: docs, support)"), "{history}");
    assert!(!history.contains("regions") && !history.contains("team"), "{history}");
}

#[tokio::test]
async fn invalid_groups_and_claims_are_rejected() {
    let server = AuthTestServer::on_loopback().await;
    create_desk_token(&server).await;
    let many: Vec<String> = (0..101).map(|number| format!("g{number}")).collect();
    let deep = (0..100).fold(json!("secret"), |value, _| json!([value]));
    for (restriction, says) in [
        (json!({ "groups": ["Support"] }), "not a valid group name"),
        (json!({ "groups": [""] }), "not a valid group name"),
        (json!({ "groups": ["x"] }), "no group named `x`; `GET /api/groups` lists the groups"),
        (json!({ "groups": ["suport"] }), "no group named `suport`; did you mean `support`?"),
        (json!({ "groups": many }), "at most 100 groups"),
        (json!({ "groups": "support" }), "invalid body"),
        (json!({ "claims": ["secret"] }), "invalid body"),
        (json!({ "claims": { "caller": "secret" } }), "`caller` is reserved"),
        (json!({ "claims": { "caller.kind": "secret" } }), "`caller.kind` is reserved"),
        (json!({ "claims": { "sub": "secret" } }), "`sub` is reserved"),
        (json!({ "claims": { "deep": deep } }), "nested"),
        (json!({ "claims": { "large": "secret".repeat(6_000) } }), "at most"),
    ] {
        let mut new = json!({ "name": "x", "role": "agent" });
        new.as_object_mut().unwrap().extend(restriction.as_object().unwrap().clone());
        for response in [
            server.post("/api/tokens", &server.admin(), new).await,
            server.patch_token("/api/tokens/desk", "", restriction.clone()).await,
        ] {
            assert_eq!((response.status, response.error_code().as_str()), (400, "BAD_REQUEST"), "{restriction}");
            assert!(response.body.contains(says) && !response.body.contains("secret"), "{response:?}");
        }
    }
    assert_eq!(server.registry.tokens().list().len(), 1);
}

#[tokio::test]
async fn whoami_returns_identity_claims_and_groups() {
    let server = AuthTestServer::on_loopback().await;
    let created = create_desk_token(&server).await;
    let token = created["token"].as_str().unwrap();
    let (session, csrf) = server.sign_in(token).await;
    let who = |name: &str, role: &str, csrf: Value, kind: &str| {
        let (claims, groups) = match name {
            "desk" => (created["claims"].clone(), created["groups"].clone()),
            _ => (json!({}), json!([])),
        };
        json!({ "name": name, "role": role, "csrf": csrf, "kind": kind, "issuer": null, "sub": null,
                "claims": claims, "groups": groups })
    };
    for (headers, expected) in [
        (String::new(), who("local", "agent", Value::Null, "local")),
        (server.admin(), who("admin", "admin", Value::Null, "token")),
        (bearer_header(token), who("desk", "agent", Value::Null, "token")),
        (session, who("desk", "agent", csrf.into(), "console")),
    ] {
        assert_eq!(server.get("/api/whoami", &headers).await.json(), expected);
    }
}

#[tokio::test]
async fn the_last_admitted_request_is_the_last_use() {
    let server = AuthTestServer::on_loopback().await;
    let created = create_desk_token(&server).await;
    let token = bearer_header(created["token"].as_str().unwrap());
    assert_eq!(server.last_used("desk").await, Value::Null);
    let now = || json!(server.registry.now());
    // The second one is answered from the cache of responses.
    for _ in 0..2 {
        server.clock.advance(Duration::from_secs(60));
        assert_eq!(server.get("/api/tools", &token).await.status, 200);
        assert_eq!(server.last_used("desk").await, now());
    }
    let used = now();
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(server.get("/api/tokens", &token).await.status, 403);
    assert_eq!(server.last_used("desk").await, used, "a rejected request is no use");
    let (session, _) = server.sign_in(created["token"].as_str().unwrap()).await;
    assert_eq!(server.get("/api/sources", &session).await.status, 200);
    assert_eq!(server.last_used("desk").await, now(), "a session was opened with the token");
    let used = now();
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(server.post("/api/refresh", &session, json!({})).await.status, 403);
    assert_eq!(server.last_used("desk").await, used, "without its CSRF token a session is rejected");
}

#[tokio::test]
async fn a_stream_ends_when_the_groups_of_its_token_change() {
    let server = AuthTestServer::on_loopback().await;
    let created = create_desk_token(&server).await;
    let token = bearer_header(created["token"].as_str().unwrap());
    let mut stream = server.open_stream("/api/events", &token).await;
    assert_eq!(server.patch_token("/api/tokens/desk", "", json!({ "groups": ["docs"] })).await.status, 200);
    let mut rest = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(server.get("/api/whoami", &token).await.json()["groups"], json!(["docs"]));
}

/// An administrator who locked everyone out can still undo it on the machine itself.
#[tokio::test]
async fn the_administrators_token_works_whatever_is_configured() {
    let server = AuthTestServer::on_loopback().await;
    let created = create_desk_token(&server).await;
    server.set_loopback(LoopbackAccess::Token);
    let revoked = server.send("DELETE", "/api/tokens/desk", &server.admin(), "").await;
    assert_eq!(revoked.status, 204);
    assert_eq!(server.get("/api/sources", "").await.status, 401);
    // Wrong tokens are throttled, but not the right one.
    for _ in 0..25 {
        assert_ne!(server.get("/api/sources", &bearer_header(created["token"].as_str().unwrap())).await.status, 200);
    }
    assert_eq!(server.get("/api/sources", &server.admin()).await.status, 200);
    assert_eq!(server.post("/api/sources/git/disable", &server.admin(), json!({})).await.status, 200);
}
