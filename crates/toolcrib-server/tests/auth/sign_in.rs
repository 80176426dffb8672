//! Tests signing in with a one-time link or a token, and the rules for sessions.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::{Actor, TokenChange};

use super::support::{AuthTestServer, bearer_header};
use crate::test_server::cookie_header;

#[tokio::test]
async fn a_login_link_works_once() {
    let server = AuthTestServer::on_loopback().await;
    let link = server.login_link().await;
    // `HEAD` and prefetch requests do not use up the link.
    assert_eq!(server.send("HEAD", &link, "", "").await.status, 204);
    assert_eq!(server.get(&link, "Sec-Purpose: prefetch;prerender\r\n").await.status, 204);
    let first = server.get(&link, "").await;
    assert_eq!((first.status, first.header("location")), (303, Some("/")));
    let set = first.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(set.contains(part), "{set}");
    }
    let who = server.get("/api/whoami", &cookie_header(&first)).await.json();
    assert_eq!((&who["name"], &who["role"]), (&json!("admin"), &json!("admin")));

    let second = server.get(&link, "").await;
    assert_eq!((second.status, second.header("set-cookie")), (410, None));
    assert!(second.body.contains("used already") && second.body.contains("name=\"token\""), "{}", second.body);
    let late = server.login_link().await;
    server.clock.advance(Duration::from_secs(600));
    assert_eq!(server.get(&late, "").await.status, 410);
    assert_eq!(server.get("/login?key=guess", "").await.status, 410);
    // If the link was followed from another site, the browser would not send the cookie after a redirect.
    let elsewhere = server.get(&server.login_link().await, "Sec-Fetch-Site: cross-site\r\n").await;
    assert!(elsewhere.status == 200 && elsewhere.body.contains("http-equiv=\"refresh\""), "{elsewhere:?}");
    assert!(elsewhere.header("set-cookie").is_some());
}

#[tokio::test]
async fn a_session_needs_its_csrf_token_for_changes() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    let request_body = |name: &str| json!({ "name": name, "role": "viewer" });
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 200);
    for headers in [
        cookie.clone(),
        format!("{cookie}X-CSRF-Token: guess\r\n"),
        format!("{cookie}X-CSRF-Token: \r\n"),
        format!("{cookie}X-CSRF-Token: {csrf}\r\nOrigin: https://evil.example\r\n"),
        format!("{cookie}X-CSRF-Token: {csrf}\r\nSec-Fetch-Site: cross-site\r\n"),
    ] {
        let rejection = server.post("/api/tokens", &headers, request_body("one")).await;
        assert_eq!((rejection.status, rejection.error_code().as_str()), (403, "FORBIDDEN"), "{headers}");
    }
    let created = server.post("/api/tokens", &format!("{cookie}X-CSRF-Token: {csrf}\r\n"), request_body("one")).await;
    assert_eq!(created.status, 201, "{created:?}");
    // A request with a bearer token does not use the cookie and therefore needs no CSRF token.
    let both = format!("{cookie}{}", bearer_header(&server.admin_token));
    assert_eq!(server.post("/api/tokens", &both, request_body("two")).await.status, 201);
    // The CSRF token of another session is rejected.
    let (other, _) = server.sign_in(&server.admin_token).await;
    let rejection =
        server.post("/api/tokens", &format!("{other}X-CSRF-Token: {csrf}\r\n"), request_body("three")).await;
    assert_eq!(rejection.status, 403);
}

#[tokio::test]
async fn signing_out_needs_the_csrf_field_and_ends_the_session() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    assert_eq!(server.post_form("/logout", &cookie, "").await.status, 403);
    assert_eq!(server.post_form("/logout", &cookie, "csrf=guess").await.status, 403);
    assert_eq!(server.get("/api/whoami", &cookie).await.json()["name"], "admin");
    let signed_out = server.post_form("/logout", &cookie, &format!("csrf={csrf}")).await;
    assert_eq!((signed_out.status, signed_out.header("location")), (303, Some("/login")));
    assert!(signed_out.header("set-cookie").unwrap().contains("Max-Age=0"), "{signed_out:?}");
    assert_eq!(server.get("/api/whoami", &cookie).await.json()["name"], "local");
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_session_follows_the_role_and_validity_of_its_token() {
    let server = AuthTestServer::on_loopback().await;
    let token = server.create_token("ada", Role::Viewer, None).await;
    let (cookie, csrf) = server.sign_in(&token).await;
    let who = server.get("/api/whoami", &cookie).await.json();
    assert_eq!((&who["name"], &who["role"]), (&json!("ada"), &json!("viewer")));
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 403);
    let change = TokenChange { id: "ada".into(), role: Some(Role::Admin), ..TokenChange::default() };
    server.registry.tokens().change(change, Actor::new("test")).await.unwrap();
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 200);
    server.registry.tokens().revoke("ada", Actor::new("test")).await.unwrap();
    let rejection = server.post("/api/tokens", &format!("{cookie}X-CSRF-Token: {csrf}\r\n"), json!({})).await;
    assert_eq!(rejection.status, 401);

    let (cookie, _) = server.sign_in(&server.admin_token).await;
    server.clock.advance(Duration::from_secs(12 * 3600 - 1));
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 200);
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_wrong_token_shows_the_login_form_without_echoing_it() {
    let server = AuthTestServer::on_loopback().await;
    let rejection = server.post_form("/login", "", "token=%3Cscript%3Ealert(1)%3C/script%3E&next=//evil.example").await;
    assert_eq!(rejection.status, 401);
    assert!(
        rejection.body.contains("revoked or expired token") && !rejection.body.contains("alert(1)"),
        "{}",
        rejection.body
    );
    assert!(
        !rejection.body.contains("evil.example") && !rejection.body.contains(&server.admin_token),
        "{}",
        rejection.body
    );
    assert_eq!(server.post("/login", "", json!({ "token": "x" })).await.status, 415);
}
