//! Signing in: by a link that is good once, or with a token; and what a session may and must.

use std::time::Duration;

use serde_json::json;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;

use crate::support::{AuthTestServer, bearer_header, cookie_header};

#[tokio::test]
async fn the_link_signs_its_first_visitor_in() {
    let house = AuthTestServer::on_loopback().await;
    let link = house.login_link();
    // Who only looks whether it leads anywhere does not use it up.
    assert_eq!(house.send("HEAD", &link, "", "").await.status, 204);
    assert_eq!(house.get(&link, "Sec-Purpose: prefetch;prerender\r\n").await.status, 204);
    let first = house.get(&link, "").await;
    assert_eq!((first.status, first.header("location")), (303, Some("/")));
    let set = first.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(set.contains(part), "{set}");
    }
    let who = house.get("/api/whoami", &cookie_header(&first)).await.json();
    assert_eq!((&who["name"], &who["role"]), (&json!("admin"), &json!("admin")));

    let second = house.get(&link, "").await;
    assert_eq!((second.status, second.header("set-cookie")), (410, None));
    assert!(second.body.contains("used already") && second.body.contains("name=\"token\""), "{}", second.body);
    let late = house.login_link();
    house.clock.advance(Duration::from_secs(600));
    assert_eq!(house.get(&late, "").await.status, 410);
    assert_eq!(house.get("/login?key=guess", "").await.status, 410);
    // Followed from another site, a redirect would arrive without the cookie.
    let elsewhere = house.get(&house.login_link(), "Sec-Fetch-Site: cross-site\r\n").await;
    assert!(elsewhere.status == 200 && elsewhere.body.contains("http-equiv=\"refresh\""), "{elsewhere:?}");
    assert!(elsewhere.header("set-cookie").is_some());
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing() {
    let house = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = house.sign_in(&house.admin_token).await;
    let wish = |name: &str| json!({ "name": name, "role": "viewer" });
    assert_eq!(house.get("/api/tokens", &cookie).await.status, 200);
    for headers in [
        cookie.clone(),
        format!("{cookie}X-CSRF-Token: guess\r\n"),
        format!("{cookie}X-CSRF-Token: \r\n"),
        format!("{cookie}X-CSRF-Token: {csrf}\r\nOrigin: https://evil.example\r\n"),
        format!("{cookie}X-CSRF-Token: {csrf}\r\nSec-Fetch-Site: cross-site\r\n"),
    ] {
        let refused = house.post("/api/tokens", &headers, wish("one")).await;
        assert_eq!((refused.status, refused.error_code().as_str()), (403, "FORBIDDEN"), "{headers}");
    }
    let made = house.post("/api/tokens", &format!("{cookie}X-CSRF-Token: {csrf}\r\n"), wish("one")).await;
    assert_eq!(made.status, 201, "{made:?}");
    // Whoever shows a token needs no cookie, and so no proof that a page of ours sent it.
    let both = format!("{cookie}{}", bearer_header(&house.admin_token));
    assert_eq!(house.post("/api/tokens", &both, wish("two")).await.status, 201);
    // Another session's will not do.
    let (other, _) = house.sign_in(&house.admin_token).await;
    let refused = house.post("/api/tokens", &format!("{other}X-CSRF-Token: {csrf}\r\n"), wish("three")).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn forms_carry_it_as_a_field_and_signing_out_ends_the_session() {
    let house = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = house.sign_in(&house.admin_token).await;
    assert_eq!(house.post_form("/logout", &cookie, "").await.status, 403);
    assert_eq!(house.post_form("/logout", &cookie, "csrf=guess").await.status, 403);
    assert_eq!(house.get("/api/whoami", &cookie).await.json()["name"], "admin");
    let out = house.post_form("/logout", &cookie, &format!("csrf={csrf}")).await;
    assert_eq!((out.status, out.header("location")), (303, Some("/login")));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
    assert_eq!(house.get("/api/whoami", &cookie).await.json()["name"], "local");
    assert_eq!(house.get("/api/tokens", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_session_is_what_its_token_is_and_ends_with_it() {
    let house = AuthTestServer::on_loopback().await;
    let token = house.create_token("ada", Role::Viewer, None).await;
    let (cookie, csrf) = house.sign_in(&token).await;
    let who = house.get("/api/whoami", &cookie).await.json();
    assert_eq!((&who["name"], &who["role"]), (&json!("ada"), &json!("viewer")));
    assert_eq!(house.get("/api/tokens", &cookie).await.status, 403);
    house.registry.change_token("ada", None, Some(Role::Admin), Actor::new("test")).await.unwrap();
    assert_eq!(house.get("/api/tokens", &cookie).await.status, 200);
    house.registry.revoke_token("ada", Actor::new("test")).await.unwrap();
    let refused = house.post("/api/tokens", &format!("{cookie}X-CSRF-Token: {csrf}\r\n"), json!({})).await;
    assert_eq!(refused.status, 401);

    let (cookie, _) = house.sign_in(&house.admin_token).await;
    house.clock.advance(Duration::from_secs(12 * 3600 - 1));
    assert_eq!(house.get("/api/tokens", &cookie).await.status, 200);
    house.clock.advance(Duration::from_secs(1));
    assert_eq!(house.get("/api/tokens", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_wrong_token_is_not_repeated_and_the_form_is_offered_again() {
    let house = AuthTestServer::on_loopback().await;
    let refused = house.post_form("/login", "", "token=%3Cscript%3Ealert(1)%3C/script%3E&next=//evil.example").await;
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("not known here") && !refused.body.contains("alert(1)"), "{}", refused.body);
    assert!(!refused.body.contains("evil.example") && !refused.body.contains(&house.admin_token), "{}", refused.body);
    assert_eq!(house.post("/login", "", json!({ "token": "x" })).await.status, 415);
}
