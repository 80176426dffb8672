//! Tests that sessions and login links belong to the store and not to one node.

use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;

use super::support::{NodeGroup, SharedStore, on_each_store, wait_until};
use crate::test_server::cookie_header;

on_each_store!(
    a_session_works_on_every_node_with_its_next_request_and_survives_a_restart,
    a_replaced_admin_token_ends_its_sessions_and_links_on_all_nodes,
    the_store_holds_no_session_or_link_in_clear,
    a_login_link_works_once_over_all_nodes,
    a_logout_on_one_node_ends_the_session_on_all,
    a_revoked_token_ends_its_sessions_on_all_nodes,
);

async fn a_session_works_on_every_node_with_its_next_request_and_survives_a_restart(store: SharedStore) {
    let (group, one, other) = NodeGroup::start_two(store).await;
    // Cached for local processes without a session.
    other.get("/api/tools", "").await.expect_json(200);
    let cookie = one.sign_in(&one.server.admin_token).await;
    let tools = other.get("/api/tools", &cookie).await.expect_json(200);
    assert_eq!(tools["tools"].as_array().unwrap().len(), 3);
    let cookie_2 = one.sign_in(&one.server.admin_token).await;
    assert_eq!(other.get("/api/tokens", &cookie_2).await.status, 200, "only administrators may list tokens");
    let (here, there) = (one.whoami(&cookie).await, other.whoami(&cookie).await);
    assert_eq!((&there["name"], &there["csrf"]), (&here["name"], &here["csrf"]));
    assert_ne!(other.whoami(&cookie_2).await["csrf"], here["csrf"], "each session has its own");

    let data_dir = one.stop().await;
    other.stop().await;
    let restarted = group.start_node_in(data_dir).await;
    assert_eq!(restarted.whoami(&cookie).await, here);
    assert_eq!(group.start_node().await.whoami(&cookie).await, here);
}

async fn the_store_holds_no_session_or_link_in_clear(store: SharedStore) {
    let (group, one, _other) = NodeGroup::start_two(store).await;
    let cookie = one.sign_in(&one.server.admin_token).await;
    let link = one.server.app_state.create_login_path().await.unwrap();
    let secret = |text: &str| text.trim().rsplit_once('=').unwrap().1.to_owned();
    let stored = group.stored_text();
    assert!(stored.contains("session") && stored.contains("link"), "both are stored: {stored}");
    for secret in [secret(&cookie), secret(&link)] {
        assert!(secret.len() >= 16 && !stored.contains(&secret), "{secret}");
    }
}

/// Regression: the administrator stayed signed in with a token that had been replaced.
async fn a_replaced_admin_token_ends_its_sessions_and_links_on_all_nodes(store: SharedStore) {
    let (group, one, other) = NodeGroup::start_two(store).await;
    let former_token = one.server.admin_token.clone();
    let by_token = one.sign_in(&former_token).await;
    let link = one.server.app_state.create_login_path().await.unwrap();
    let by_link = cookie_header(&other.get(&link, "").await);
    let unused_link = one.server.app_state.create_login_path().await.unwrap();
    let of_other = other.sign_in(&other.server.admin_token).await;

    let data_dir = one.stop().await;
    std::fs::remove_file(data_dir.path().join("admin.token")).unwrap();
    let one = group.start_node_in(data_dir).await;
    for cookie in [&by_token, &by_link] {
        assert_eq!(one.whoami(cookie).await["name"], "local");
        wait_until("the session ends on the other node", async || other.whoami(cookie).await["name"] == "local").await;
    }
    assert_eq!((one.get(&unused_link, "").await.status, other.get(&unused_link, "").await.status), (410, 410));
    for node in [&one, &other] {
        assert_eq!(node.whoami(&of_other).await["name"], "admin");
    }
    assert_ne!(one.server.admin_token, former_token);
    let cookie = one.sign_in(&one.server.admin_token).await;
    let one = group.start_node_in(one.stop().await).await;
    assert_eq!(one.whoami(&cookie).await["name"], "admin", "the token is the same");
}

async fn a_login_link_works_once_over_all_nodes(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    for _ in 0..5 {
        let link = one.server.app_state.create_login_path().await.unwrap();
        let (first, second) = tokio::join!(one.get(&link, ""), other.get(&link, ""));
        let (used, refused) = if first.status == 303 { (first, second) } else { (second, first) };
        assert_eq!((used.status, refused.status), (303, 410));
        assert_eq!(other.whoami(&cookie_header(&used)).await["name"], "admin");
        assert_eq!((one.get(&link, "").await.status, other.get(&link, "").await.status), (410, 410));
    }
}

async fn a_logout_on_one_node_ends_the_session_on_all(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    let cookie = one.sign_in(&one.server.admin_token).await;
    let csrf = one.whoami(&cookie).await["csrf"].as_str().unwrap().to_owned();
    // The node that gets the logout has not seen the session before, and checks its CSRF token nevertheless.
    assert_eq!(other.post_form("/logout", &cookie, "csrf=guess").await.status, 403);
    assert_eq!(other.post_form("/logout", &cookie, &format!("csrf={csrf}")).await.status, 303);
    assert_eq!(other.whoami(&cookie).await["name"], "local");
    wait_until("the session ends on the other node", async || one.whoami(&cookie).await["name"] == "local").await;
    assert_eq!(other.whoami(&cookie).await["name"], "local", "no read of the store brings it back");
}

async fn a_revoked_token_ends_its_sessions_on_all_nodes(store: SharedStore) {
    let (_group, one, other) = NodeGroup::start_two(store).await;
    let created = one.registry.tokens().create("ada", Role::Viewer, None, Actor::new("test")).await.unwrap();
    let cookie = one.sign_in(&created.token).await;
    wait_until("the token is known", async || other.whoami(&cookie).await["name"] == "ada").await;
    other.registry.tokens().revoke("ada", Actor::new("test")).await.unwrap();
    assert_eq!(other.whoami(&cookie).await["name"], "local");
    wait_until("the session ends on the other node", async || one.whoami(&cookie).await["name"] == "local").await;
}
