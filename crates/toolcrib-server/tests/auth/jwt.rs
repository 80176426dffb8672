//! Tests access tokens of identity providers over HTTP: which are accepted, with which role, and why others are not.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use toolcrib::Code;
use toolcrib::config::Config;
use toolcrib::config_file::LoadedConfig;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::support::{
    AuthTestServer, RawHttpResponse, TEST_TIMEOUT, bearer_header, build_configured_server, open_registry,
};
use super::test_issuer::{AUDIENCE, NOW, SigningKey, TestIssuer, encode, issuer_config, key_set, valid_claims};

/// Starts a server with a configuration that needs a token from every client.
async fn start_server(config: Config, listen: &str) -> AuthTestServer {
    let (registry, manual_clock) = open_registry().await;
    let (http_server, directory) = build_configured_server(&registry, listen, true, config).await.unwrap();
    AuthTestServer::from_server(registry, manual_clock, http_server, directory)
}

async fn whoami(server: &AuthTestServer, token: &str) -> RawHttpResponse {
    server.get("/api/whoami", &bearer_header(token)).await
}

/// Each algorithm, and claims that must not make a difference.
#[tokio::test]
async fn a_valid_token_is_accepted_with_the_highest_role_of_its_claims() {
    let keys = [SigningKey::ed25519("ed"), SigningKey::es256("ec"), SigningKey::rs256("rsa")];
    let issuer = TestIssuer::start(&[&keys[0], &keys[1], &keys[2]]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    for (claims, name, role) in [
        (json!({}), "jwt:user-1", "agent"),
        (json!({ "roles": "viewers" }), "jwt:user-1", "viewer"),
        (json!({ "roles": ["readers", "other"] }), "jwt:user-1", "viewer"),
        (json!({ "roles": ["viewers", "admins", "agents"], "preferred_username": "ada" }), "jwt:ada", "admin"),
        (json!({ "azp": "app\u{1b}[31m\nx", "preferred_username": 7 }), "jwt:app x", "agent"),
        (json!({ "aud": ["other", AUDIENCE], "client_id": "ci", "nbf": null, "iat": null }), "jwt:ci", "agent"),
        (json!({ "exp": NOW - 29, "nbf": NOW + 29, "iat": NOW + 29 }), "jwt:user-1", "agent"),
        (json!({ "caller": { "role": "admin", "kind": "local" } }), "jwt:user-1", "agent"),
    ] {
        for key in &keys {
            let token = key.token(issuer.url(), claims.clone());
            // The second time from the cache.
            for _ in 0..2 {
                let client = whoami(&server, &token).await.expect_json(200);
                let readable_name = client["name"].as_str().unwrap().split_once('#').unwrap().0;
                assert_eq!((readable_name, client["role"].as_str()), (name, Some(role)), "{claims}");
            }
        }
    }
    assert_eq!(issuer.key_fetches(), 1);

    let token = keys[0].token(issuer.url(), json!({ "roles": ["nothing"] }));
    let response = whoami(&server, &token).await;
    assert_eq!((response.status, response.error_code().as_str()), (403, "FORBIDDEN"));
    let untyped = json!({ "alg": "EdDSA", "kid": "ed" });
    assert_eq!(whoami(&server, &keys[0].sign(&untyped, &valid_claims(issuer.url(), json!({})))).await.status, 200);
    let without_kid = json!({ "alg": "ES256", "typ": "JWT" });
    assert_eq!(whoami(&server, &keys[1].sign(&without_kid, &valid_claims(issuer.url(), json!({})))).await.status, 200);
}

/// Roles decide over MCP and REST as they do for stored tokens.
#[tokio::test]
async fn the_role_of_a_token_decides_on_every_interface() {
    let key = SigningKey::ed25519("1");
    let issuer = TestIssuer::start(&[&key]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    for (role, mcp, change, page) in [("viewers", 403, 403, 200), ("agents", 200, 403, 200), ("admins", 200, 200, 200)]
    {
        let headers = bearer_header(&key.token(issuer.url(), json!({ "roles": [role] })));
        let accept = format!("Accept: application/json, text/event-stream\r\n{headers}");
        assert_eq!(server.post("/mcp", &accept, initialize.clone()).await.status, mcp, "{role}");
        assert_eq!(server.post("/api/sources/git/disable", &headers, json!({})).await.status, change, "{role}");
        assert_eq!(server.get("/tools", &format!("Accept: text/html\r\n{headers}")).await.status, page, "{role}");
    }
    let history = server.get("/api/history", &bearer_header(&server.admin_token)).await.json().to_string();
    assert!(history.contains("rest:jwt:user-1"), "{history}");
    // A client elsewhere may not start programs here, whatever its role.
    let admin = bearer_header(&key.token(issuer.url(), json!({ "roles": ["admins"] })));
    let program = json!({ "id": "x", "command": "true" });
    assert_eq!(server.post("/api/sources", &admin, program).await.status, 403);
}

/// Tokens that must not be accepted: how they are made, and the reason in the response.
#[tokio::test]
async fn wrong_tokens_are_refused_with_a_reason_and_without_a_trace_of_their_content() {
    let [ed, ec, rsa] = [SigningKey::ed25519("ed"), SigningKey::es256("ec"), SigningKey::rs256("rsa")];
    let stranger = SigningKey::ed25519("ed");
    let issuer = TestIssuer::start(&[&ed, &ec, &rsa]);
    let url = issuer.url().to_owned();
    let (log, _guard) = LogText::install();
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let claims = |changes: Value| {
        let mut claims = valid_claims(&url, changes);
        // To be found nowhere.
        claims["secret"] = json!("hunter2");
        claims
    };
    let with_claims = |changes: Value| ed.sign(&ed.header(), &claims(changes));
    let with_header = |header: Value| ed.sign(&header, &claims(json!({})));
    let valid = with_claims(json!({}));
    let (signed, signature) = valid.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let unsigned = |header: Value| format!("{}.{payload}.", encode(header.to_string()));
    let hmac_token = {
        let message = format!("{}.{payload}", encode(json!({ "alg": "HS256", "kid": "rsa" }).to_string()));
        let public_key = rsa.to_jwk()["n"].as_str().unwrap().to_owned();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public_key.as_bytes()), message.as_bytes());
        format!("{message}.{}", encode(tag))
    };
    let text_claims = claims(json!({})).to_string();
    let duplicate_claim = text_claims.replacen('{', "{\"sub\":\"root\",", 1);
    let nested_duplicate = text_claims.replacen('{', "{\"x\":[{\"a\":1,\"a\":2}],", 1);
    let deep = text_claims.replacen('{', &format!("{{\"x\":{}1{},", "[".repeat(100), "]".repeat(100)), 1);
    let header_text = ed.header().to_string();

    let expected_reasons = [
        (with_claims(json!({ "iss": "https://id.example" })), "unknown issuer"),
        (with_claims(json!({ "iss": format!("{url}/") })), "unknown issuer"),
        (with_claims(json!({ "iss": [url] })), "it has no issuer (`iss`)"),
        (with_claims(json!({ "iss": null })), "it has no issuer (`iss`)"),
        (with_claims(json!({ "aud": "https://other.example" })), "it is for another audience (`aud`)"),
        (with_claims(json!({ "aud": format!("{AUDIENCE}/") })), "it is for another audience (`aud`)"),
        (with_claims(json!({ "aud": ["https://other.example"] })), "it is for another audience (`aud`)"),
        (with_claims(json!({ "aud": [[AUDIENCE]] })), "it is for another audience (`aud`)"),
        (with_claims(json!({ "aud": null })), "it is for another audience (`aud`)"),
        (with_claims(json!({ "exp": NOW - 30 })), "expired"),
        (with_claims(json!({ "exp": null })), "it has no expiry (`exp`)"),
        (with_claims(json!({ "exp": "tomorrow" })), "one of its times is malformed"),
        (with_claims(json!({ "nbf": NOW + 31 })), "not yet valid (`nbf`)"),
        (with_claims(json!({ "iat": NOW + 31 })), "it was issued in the future (`iat`)"),
        (with_claims(json!({ "sub": null })), "it has no subject (`sub`)"),
        (with_claims(json!({ "sub": "" })), "it has no subject (`sub`)"),
        (with_claims(json!({ "sub": 7 })), "it has no subject (`sub`)"),
        (with_claims(json!({ "token_use": "id" })), "it is another kind of token"),
        (with_claims(json!({ "typ": "Refresh" })), "it is another kind of token"),
        (with_header(json!({ "alg": "EdDSA", "kid": "ed", "typ": "logout+jwt" })), "it is another kind of token"),
        (
            with_header(json!({ "alg": "EdDSA", "kid": "ed", "crit": ["b64"], "b64": false })),
            "its header requires an extension (`crit`) that is not supported",
        ),
        (with_header(json!({ "alg": "EdDSA", "kid": 7 })), "its header is malformed"),
        (with_header(json!({ "kid": "ed" })), "its header is malformed"),
        (unsigned(json!({ "alg": "none" })), "its signature algorithm is not accepted"),
        (unsigned(json!({ "alg": "None", "kid": "ed" })), "its signature algorithm is not accepted"),
        (hmac_token, "its signature algorithm is not accepted"),
        // Supported, but not one of this issuer.
        (with_header(json!({ "alg": "ES384", "kid": "ed" })), "its signature algorithm is not accepted"),
        // The key is of another type than the algorithm.
        (with_header(json!({ "alg": "RS256", "kid": "ed" })), "its key is for another algorithm"),
        (with_header(json!({ "alg": "ES256", "kid": "rsa" })), "its key is for another algorithm"),
        (with_header(json!({ "alg": "EdDSA", "kid": "unknown" })), "the issuer has no such key"),
        (stranger.sign(&stranger.header(), &claims(json!({}))), "its signature is wrong"),
        (format!("{signed}."), "its signature is wrong"),
        (format!("{signed}.{}", encode([0; 64])), "its signature is wrong"),
        (
            format!("{header}.{}.{signature}", encode(claims(json!({ "sub": "root" })).to_string())),
            "its signature is wrong",
        ),
        (ed.sign_text(&header_text, &duplicate_claim), "its payload is malformed"),
        (ed.sign_text(&header_text, &nested_duplicate), "its payload is malformed"),
        (ed.sign_text(&header_text, &deep), "its payload is malformed"),
        (ed.sign_text(&header_text, "[]"), "its payload is malformed"),
        (ed.sign_text(&header_text, "hunter2"), "its payload is malformed"),
        (ed.sign_text(&header_text.replacen('{', "{\"alg\":\"none\",", 1), &text_claims), "its header is malformed"),
        (with_claims(json!({ "x": "x".repeat(16 * 1024) })), "it is longer than 16 KiB"),
    ];
    // More than the limit of wrong tokens: access tokens are never throttled.
    assert!(expected_reasons.len() > 40);
    for (token, reason) in &expected_reasons {
        let response = whoami(&server, token).await;
        assert_eq!((response.status, response.error_code().as_str()), (401, "UNAUTHORIZED"), "{reason}");
        let message = format!("invalid access token: {reason}");
        assert_eq!(response.json()["error"]["message"], message);
        let challenge = response.header("www-authenticate").unwrap();
        let expected = format!(
            "Bearer realm=\"toolcrib\", error=\"invalid_token\", error_description=\"{message}\", \
             resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\"",
            server.address
        );
        assert_eq!(challenge, expected);
    }
    // Not of the form of a JWT, or not one token: opaque tokens, which are unknown.
    for token in [
        &valid[..valid.len() / 2],
        signed,
        &format!("{valid}.{signature}"),
        &format!("{header}=.{payload}.{signature}"),
        &format!("!.{payload}.{signature}"),
    ] {
        let response = whoami(&server, token).await;
        assert_eq!((response.status, response.error_code().as_str()), (401, "UNAUTHORIZED"), "{token}");
    }
    let two = format!("{}{}", bearer_header(&valid), bearer_header(&valid));
    let response = server.get("/api/whoami", &two).await;
    assert_eq!(response.status, 401);
    assert!(response.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));

    assert_eq!(whoami(&server, &valid).await.status, 200);
    let log = log.text();
    assert!(log.contains("http.request"), "{log}");
    for secret in ["hunter2", "user-1", &valid[..40], &encode("hunter2")] {
        assert!(!log.contains(secret), "`{secret}` in {log}");
    }
}

#[tokio::test]
async fn keys_for_other_purposes_are_not_used() {
    let key = SigningKey::ed25519("1");
    let issuer_url = "https://id.example";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    let config = || issuer_config(issuer_url, &format!(", jwks: \"{}\"", file.display()));
    let token = key.token(issuer_url, json!({}));
    for (change, status) in [
        (json!({}), 200),
        (json!({ "use": "enc" }), 401),
        (json!({ "alg": "ES256" }), 401),
        (json!({ "alg": "EdDSA" }), 200),
        (json!({ "alg": "Ed25519" }), 200),
        (json!({ "use": null, "key_ops": ["verify"] }), 200),
        (json!({ "use": null, "key_ops": ["encrypt"] }), 401),
        (json!({ "crv": "X25519" }), 401),
        (json!({ "x": "AAAA" }), 401),
        (json!({ "kid": "2" }), 401),
        (json!({ "kty": "oct", "k": "AAAA" }), 401),
    ] {
        let mut set = key_set(&[&key]);
        for (name, value) in change.as_object().unwrap() {
            set["keys"][0][name] = value.clone();
        }
        // Keys that cannot be read do not affect the others.
        set["keys"].as_array_mut().unwrap().extend([json!({}), json!("x"), json!({ "kty": "RSA", "n": 1 })]);
        std::fs::write(&file, set.to_string()).unwrap();
        let server = start_server(config(), "127.0.0.1:0").await;
        assert_eq!(whoami(&server, &token).await.status, status, "{change}");
    }
    // Without `kid` the key must be the only one that fits.
    let other = SigningKey::ed25519("2");
    std::fs::write(&file, key_set(&[&key, &other]).to_string()).unwrap();
    let server = start_server(config(), "127.0.0.1:0").await;
    let unnamed = key.sign(&json!({ "alg": "EdDSA" }), &valid_claims(issuer_url, json!({})));
    let response = whoami(&server, &unnamed).await;
    assert!(response.expect_json(401).to_string().contains("the issuer has several"));
}

#[tokio::test]
async fn without_issuers_an_access_token_is_refused_with_the_reason() {
    let server = AuthTestServer::on_loopback().await;
    let token = SigningKey::ed25519("1").token("https://id.example", json!({}));
    let response = whoami(&server, &token).await;
    let message = response.expect_json(401)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("accepts no tokens of identity providers"), "{message}");
    let challenge = response.header("www-authenticate").unwrap();
    assert!(challenge.contains("invalid_token") && !challenge.contains("resource_metadata"), "{challenge}");
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        assert_eq!(server.get(&path, "").await.status, 404);
    }
}

#[tokio::test]
async fn a_new_key_is_fetched_once_and_a_removed_key_is_refused() {
    let [old, new, other] = [SigningKey::ed25519("old"), SigningKey::es256("new"), SigningKey::es256("other")];
    let issuer = TestIssuer::start(&[&old]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let old_token = old.token(issuer.url(), json!({}));
    assert_eq!(whoami(&server, &old_token).await.status, 200);
    issuer.set_keys(&[&new]);
    assert_eq!(whoami(&server, &old_token).await.status, 200, "cached");
    // Tokens that no new key could have signed, and those without `kid`, do not use up the fetch for unknown keys.
    let claims = valid_claims(issuer.url(), json!({}));
    for header in [json!({ "alg": "ES256", "kid": "old" }), json!({ "alg": "EdDSA", "kid": "old" })] {
        assert_eq!(whoami(&server, &new.sign(&header, &claims)).await.status, 401);
    }
    assert_eq!(issuer.key_fetches(), 1);
    assert_eq!(whoami(&server, &new.token(issuer.url(), json!({}))).await.status, 200);
    assert_eq!(issuer.key_fetches(), 2);
    assert_eq!(whoami(&server, &old_token).await.status, 401, "its key has left the set");
    for _ in 0..3 {
        assert_eq!(whoami(&server, &other.token(issuer.url(), json!({}))).await.status, 401);
    }
    assert_eq!(issuer.key_fetches(), 2, "at most one fetch a minute for unknown keys");
    issuer.set_keys(&[&other]);
    for _ in 0..3 {
        assert_eq!(whoami(&server, &other.sign(&json!({ "alg": "ES256" }), &claims)).await.status, 200);
    }
    assert_eq!(issuer.key_fetches(), 3, "a token without `kid`, after the only key was replaced");
}

#[tokio::test]
async fn a_key_that_was_removed_from_a_file_is_refused_after_a_reload() {
    let [old, new] = [SigningKey::ed25519("old"), SigningKey::ed25519("new")];
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, key_set(&[&old]).to_string()).unwrap();
    let issuer = "https://id.example";
    let server = start_server(issuer_config(issuer, &format!(", jwks: \"{}\"", file.display())), "127.0.0.1:0").await;
    let tokens = [old.token(issuer, json!({})), new.token(issuer, json!({}))];
    assert_eq!(whoami(&server, &tokens[0]).await.status, 200);
    std::fs::write(&file, key_set(&[&new]).to_string()).unwrap();
    server.app_state.reload_key_files().await;
    assert_eq!((whoami(&server, &tokens[0]).await.status, whoami(&server, &tokens[1]).await.status), (401, 200));
    std::fs::remove_file(&file).unwrap();
    server.app_state.reload_key_files().await;
    assert_eq!(whoami(&server, &tokens[1]).await.status, 200, "known keys stay while there is no file");
}

#[tokio::test]
async fn without_keys_the_response_is_503_and_known_keys_outlive_the_provider() {
    let key = SigningKey::ed25519("1");
    let issuer = TestIssuer::start(&[&key]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    assert_eq!(whoami(&server, &key.token(issuer.url(), json!({}))).await.status, 200);
    issuer.fail();
    assert_eq!(whoami(&server, &key.token(issuer.url(), json!({ "sub": "user-2" }))).await.status, 200);

    let fresh = start_server(issuer.config(), "127.0.0.1:0").await;
    let response = whoami(&fresh, &key.token(issuer.url(), json!({}))).await;
    let error = response.expect_json(503)["error"].clone();
    assert_eq!((error["code"].as_str(), error["retryable"].as_bool()), (Some("UNAUTHORIZED"), Some(true)));
    assert!(response.header("retry-after").is_some() && response.header("www-authenticate").is_none());
}

/// Regression: a provider that answers unknown paths with a page, or OpenID metadata without keys, could not be used.
#[tokio::test]
async fn oauth_metadata_is_read_if_the_openid_metadata_is_of_no_use() {
    use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
    let key = SigningKey::ed25519("1");
    for openid in ["<html>", "{}"] {
        let set = key_set(&[&key]);
        let provider = LoopbackServer::start(move |request| {
            let url = format!("http://{}", request.header("host").unwrap());
            match request.target.as_str() {
                "/.well-known/openid-configuration" => HttpReply::text(200, openid),
                "/.well-known/oauth-authorization-server" => {
                    HttpReply::json(200, json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }))
                }
                _ => HttpReply::json(200, &set),
            }
        });
        let server = start_server(issuer_config(&provider.url, ""), "127.0.0.1:0").await;
        assert_eq!(whoami(&server, &key.token(&provider.url, json!({}))).await.status, 200, "{openid}");
    }
}

/// The metadata of another issuer, or keys at an insecure address, are not used.
#[tokio::test]
async fn metadata_must_name_the_issuer_and_a_secure_address() {
    use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};
    let key = SigningKey::ed25519("1");
    for (change, status) in [
        (json!({}), 200),
        (json!({ "issuer": "https://id.example" }), 503),
        (json!({ "jwks_uri": "http://id.example/keys" }), 503),
        (json!({ "jwks_uri": null }), 503),
    ] {
        let set = key_set(&[&key]);
        // Only the metadata of RFC 8414.
        let provider = LoopbackServer::start(move |request| {
            let url = format!("http://{}", request.header("host").unwrap());
            let mut metadata = json!({ "issuer": format!("{url}/acme"), "jwks_uri": format!("{url}/keys") });
            for (name, value) in change.as_object().unwrap() {
                metadata[name] = value.clone();
            }
            match request.target.as_str() {
                "/.well-known/oauth-authorization-server/acme" => HttpReply::json(200, metadata),
                "/keys" => HttpReply::json(200, &set),
                _ => HttpReply::empty(404),
            }
        });
        let issuer = format!("{}/acme", provider.url);
        let server = start_server(issuer_config(&issuer, ""), "127.0.0.1:0").await;
        assert_eq!(whoami(&server, &key.token(&issuer, json!({}))).await.status, status);
        assert_eq!(provider.request_lines()[0], "GET /acme/.well-known/openid-configuration");
    }
}

#[tokio::test]
async fn a_reload_replaces_issuers_and_keeps_the_keys_of_those_that_stay() {
    let [key, other_key] = [SigningKey::ed25519("1"), SigningKey::ed25519("2")];
    let [issuer, other] = [TestIssuer::start(&[&key]), TestIssuer::start(&[&other_key])];
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let token = key.token(issuer.url(), json!({}));
    let other_token = other_key.token(other.url(), json!({}));
    assert_eq!(whoami(&server, &token).await.status, 200);
    let reload = |config: Config| server.app_state.set_config(LoadedConfig::from_config(config));
    let mut both = issuer.config();
    both.identity.issuers.extend(other.config().identity.issuers);
    reload(both.clone());
    assert_eq!((whoami(&server, &token).await.status, whoami(&server, &other_token).await.status), (200, 200));
    // A changed role takes effect for tokens that were verified before.
    both.identity.issuers[0].roles.agent.clear();
    both.identity.issuers[0].roles.viewer = vec!["agents".to_owned()];
    reload(both);
    assert_eq!(whoami(&server, &token).await.json()["role"], "viewer");
    assert_eq!(issuer.key_fetches(), 1);
    reload(other.config());
    assert_eq!((whoami(&server, &token).await.status, whoami(&server, &other_token).await.status), (401, 200));
}

/// Regression: callers of a new issuer were admitted before the rules of the same configuration were in force.
#[tokio::test]
async fn the_first_step_of_a_reload_only_takes_access_away() {
    let [key, other_key, removed_key] = ["1", "2", "3"].map(SigningKey::ed25519);
    let issuers = [&key, &other_key, &removed_key].map(|key| TestIssuer::start(&[key]));
    let [token, other_token, removed_token] =
        [(&key, 0), (&other_key, 1), (&removed_key, 2)].map(|(key, index)| key.token(issuers[index].url(), json!({})));
    let configs = |indices: &[usize]| {
        let mut config = issuers[0].config();
        config.identity.issuers = indices.iter().flat_map(|index| issuers[*index].config().identity.issuers).collect();
        config
    };
    let server = start_server(configs(&[0, 2]), "127.0.0.1:0").await;
    let statuses = async || {
        [whoami(&server, &token).await, whoami(&server, &other_token).await, whoami(&server, &removed_token).await]
            .map(|response| response.status)
    };
    assert_eq!(statuses().await, [200, 401, 200]);
    // The first issuer is changed, the second added, the third removed.
    let mut next = configs(&[0, 1]);
    next.identity.issuers[0].roles.agent = vec!["others".to_owned(), "agents".to_owned()];
    let next = LoadedConfig::from_config(next);
    server.app_state.restrict(&next);
    assert_eq!(statuses().await, [503, 401, 401]);
    server.app_state.set_config(next.clone());
    assert_eq!(statuses().await, [200, 200, 401]);
    // What stays the same goes on being accepted, and an abandoned change is undone.
    server.app_state.restrict(&LoadedConfig::from_config(configs(&[1])));
    assert_eq!(statuses().await, [401, 200, 401]);
    server.app_state.set_config(next);
    assert_eq!(statuses().await, [200, 200, 401]);
    assert_eq!(issuers[1].key_fetches(), 1);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let key = SigningKey::ed25519("1");
    let issuer = TestIssuer::start(&[&key]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let headers = bearer_header(&key.token(issuer.url(), json!({ "exp": NOW + 60 })));
    let mut stream = server.open_stream("/api/events", &headers).await;
    server.clock.advance(Duration::from_secs(91));
    let mut rest = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(server.get("/api/whoami", &headers).await.status, 401);
}

#[tokio::test]
async fn clients_find_the_provider_through_the_metadata_of_the_resource() {
    let key = SigningKey::ed25519("1");
    let issuer = TestIssuer::start(&[&key]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let base = format!("http://{}", server.address);
    // What a client or proxy claims about the address does not matter.
    let forged = "Host: evil.example\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\n";
    for path in ["", "/mcp", "/mcp/any-group"] {
        let response = server.get(&format!("/.well-known/oauth-protected-resource{path}"), forged).await;
        let expected = json!({
            "resource": format!("{base}/mcp"), "authorization_servers": [issuer.url()],
            "bearer_methods_supported": ["header"], "resource_name": "Toolcrib",
        });
        assert_eq!(response.expect_json(200), expected);
    }
    let challenge = server.post("/mcp", forged, json!({})).await;
    let expected =
        format!("Bearer realm=\"toolcrib\", resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
    assert_eq!((challenge.status, challenge.header("www-authenticate")), (401, Some(expected.as_str())));

    let mut config = issuer.config();
    config.public_url = Some("https://tools.example".to_owned());
    config.identity.issuers[0].audience = None;
    server.app_state.set_config(LoadedConfig::from_config(config));
    let metadata = server.get("/.well-known/oauth-protected-resource", "").await.json();
    assert_eq!(metadata["resource"], AUDIENCE);
    assert_eq!(whoami(&server, &key.token(issuer.url(), json!({}))).await.status, 200, "the default audience");
}

#[tokio::test]
async fn on_the_network_issuers_replace_stored_tokens_and_need_a_public_url() {
    let key = SigningKey::ed25519("1");
    let issuer = TestIssuer::start(&[&key]);
    let (registry, manual_clock) = open_registry().await;
    let refused = build_configured_server(&registry, "0.0.0.0:0", false, issuer.config()).await.unwrap_err();
    assert_eq!(refused.code, Code::ConfigInvalid);
    assert!(refused.message.contains("`identity.issuers` needs `public_url`"), "{}", refused.message);
    let mut config = issuer.config();
    config.public_url = Some("https://tools.example".to_owned());
    let (http_server, directory) = build_configured_server(&registry, "0.0.0.0:0", false, config).await.unwrap();
    let server = AuthTestServer::from_server(registry, manual_clock, http_server, directory);
    let token = key.token(issuer.url(), json!({}));
    assert_eq!(whoami(&server, &token).await.status, 200);
    assert_eq!(server.get("/api/whoami", "").await.status, 401);
    // Without `public_url` the audience is unknown; a reload is refused as a start is.
    let refused = server.app_state.check_config(&LoadedConfig::from_config(issuer.config())).unwrap_err();
    assert!(refused.code == Code::ConfigInvalid && refused.message.contains("needs `public_url`"), "{refused:?}");
    assert_eq!(whoami(&server, &token).await.status, 200);
}

/// The login form takes no access tokens, and does not count them as wrong ones.
#[tokio::test]
async fn an_access_token_opens_no_session_of_the_console() {
    let key = SigningKey::ed25519("1");
    let issuer = TestIssuer::start(&[&key]);
    let server = start_server(issuer.config(), "127.0.0.1:0").await;
    let form = format!("token={}", key.token(issuer.url(), json!({ "roles": ["admins"] })));
    for _ in 0..25 {
        assert_eq!(server.post_form("/login", "", &form).await.status, 401);
    }
}

/// Captures all log events of this thread as text.
#[derive(Clone, Default)]
struct LogText(Arc<Mutex<String>>);

impl LogText {
    fn install() -> (LogText, tracing::subscriber::DefaultGuard) {
        let log = LogText::default();
        (log.clone(), tracing::subscriber::set_default(log))
    }

    fn text(&self) -> String {
        self.0.lock().clone()
    }
}

impl Subscriber for LogText {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        attributes.record(&mut FieldWriter(&mut self.0.lock()));
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut FieldWriter(&mut self.0.lock()));
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut FieldWriter(&mut self.0.lock()));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Appends the fields of an event.
struct FieldWriter<'a>(&'a mut String);

impl Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}
