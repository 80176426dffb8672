//! Signing in: by a link that is good once, or with a token; and what a session may and must.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;

use crate::support::{AuthTestServer, bearer_header, cookie_header};

#[tokio::test]
async fn the_link_signs_its_first_visitor_in() {
    let server = AuthTestServer::on_loopback().await;
    let link = server.login_link();
    // Who only looks whether it leads anywhere does not use it up.
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
    let late = server.login_link();
    server.clock.advance(Duration::from_secs(600));
    assert_eq!(server.get(&late, "").await.status, 410);
    assert_eq!(server.get("/login?key=guess", "").await.status, 410);
    // Followed from another site, a redirect would arrive without the cookie.
    let elsewhere = server.get(&server.login_link(), "Sec-Fetch-Site: cross-site\r\n").await;
    assert!(elsewhere.status == 200 && elsewhere.body.contains("http-equiv=\"refresh\""), "{elsewhere:?}");
    assert!(elsewhere.header("set-cookie").is_some());
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    let wish = |name: &str| json!({ "name": name, "role": "viewer" });
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 200);
    for headers in [
        cookie.clone(),
        format!("{cookie}X-CSRF-Token: guess\r\n"),
        format!("{cookie}X-CSRF-Token: \r\n"),
        format!("{cookie}X-CSRF-Token: {csrf}\r\nOrigin: https://evil.example\r\n"),
        format!("{cookie}X-CSRF-Token: {csrf}\r\nSec-Fetch-Site: cross-site\r\n"),
    ] {
        let refused = server.post("/api/tokens", &headers, wish("one")).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (403, "FORBIDDEN"), "{headers}");
    }
    let made = server.post("/api/tokens", &format!("{cookie}X-CSRF-Token: {csrf}\r\n"), wish("one")).await;
    assert_eq!(made.status, 201, "{made:?}");
    // Whoever shows a token needs no cookie, and so no proof that a page of ours sent it.
    let both = format!("{cookie}{}", bearer_header(&server.admin_token));
    assert_eq!(server.post("/api/tokens", &both, wish("two")).await.status, 201);
    // Another session's will not do.
    let (other, _) = server.sign_in(&server.admin_token).await;
    let refused = server.post("/api/tokens", &format!("{other}X-CSRF-Token: {csrf}\r\n"), wish("three")).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn forms_carry_it_as_a_field_and_signing_out_ends_the_session() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    assert_eq!(server.post_form("/logout", &cookie, "").await.status, 403);
    assert_eq!(server.post_form("/logout", &cookie, "csrf=guess").await.status, 403);
    assert_eq!(server.get("/api/whoami", &cookie).await.json()["name"], "admin");
    let out = server.post_form("/logout", &cookie, &format!("csrf={csrf}")).await;
    assert_eq!((out.status, out.header("location")), (303, Some("/login")));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
    assert_eq!(server.get("/api/whoami", &cookie).await.json()["name"], "local");
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_session_is_what_its_token_is_and_ends_with_it() {
    let server = AuthTestServer::on_loopback().await;
    let token = server.create_token("ada", Role::Viewer, None).await;
    let (cookie, csrf) = server.sign_in(&token).await;
    let who = server.get("/api/whoami", &cookie).await.json();
    assert_eq!((&who["name"], &who["role"]), (&json!("ada"), &json!("viewer")));
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 403);
    server.registry.change_token("ada", None, Some(Role::Admin), Actor::new("test")).await.unwrap();
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 200);
    server.registry.revoke_token("ada", Actor::new("test")).await.unwrap();
    let refused = server.post("/api/tokens", &format!("{cookie}X-CSRF-Token: {csrf}\r\n"), json!({})).await;
    assert_eq!(refused.status, 401);

    let (cookie, _) = server.sign_in(&server.admin_token).await;
    server.clock.advance(Duration::from_secs(12 * 3600 - 1));
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 200);
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(server.get("/api/tokens", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_wrong_token_is_not_repeated_and_the_form_is_offered_again() {
    let server = AuthTestServer::on_loopback().await;
    let refused = server.post_form("/login", "", "token=%3Cscript%3Ealert(1)%3C/script%3E&next=//evil.example").await;
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("not known here") && !refused.body.contains("alert(1)"), "{}", refused.body);
    assert!(!refused.body.contains("evil.example") && !refused.body.contains(&server.admin_token), "{}", refused.body);
    assert_eq!(server.post("/login", "", json!({ "token": "x" })).await.status, 415);
}
