//! Access tokens: groups, claims and last use, across restarts and processes.

use std::time::Duration;

use serde_json::json;
use toolcrib::Principal;
use toolcrib::core::Timestamp;
use toolcrib::core::access::Role;
use toolcrib::core::access_rules::{Group, NamedRule};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::inventory::{Actor, TokenChange};
use toolcrib::core::principal::PrincipalIdentity;
use toolcrib::registry::TokenRequest;
use toolcrib::store::TokenUse;

use crate::support::{SqliteRegistry, TestRegistry, open_at, open_yaml, skip_time, wait_until};

fn actor() -> Actor {
    Actor::new("test")
}

fn request(name: &str, groups: &[&str], claims: serde_json::Value) -> TokenRequest {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    let claims = claims.as_object().unwrap().clone();
    TokenRequest { name: name.to_owned(), role: Role::Agent, expires: None, groups, claims }
}

async fn open() -> TestRegistry {
    open_yaml("sources: {}", &[]).await
}

#[tokio::test]
async fn groups_and_claims_survive_a_restart() {
    let registry = SqliteRegistry::open(json!({})).await;
    for name in ["a", "b"] {
        let group = NamedRule::Group(name.to_owned(), Group::default());
        registry.rules().define(group, actor()).await.unwrap();
    }
    let created =
        registry.tokens().create_from(request("ci", &["b", "a"], json!({"team": "x"})), actor()).await.unwrap();
    let hash = Fingerprint::digest(&created.token);
    let principal = registry.tokens().find_by_hash(&hash).unwrap().principal;
    assert_eq!(
        (principal.groups(), principal.claims().get("team")),
        (&["a".into(), "b".into()][..], Some(&json!("x")))
    );
    let change = TokenChange { id: "ci".into(), claims: Some(Default::default()), ..TokenChange::default() };
    let changed = registry.tokens().change(change, actor()).await.unwrap();
    let registry = registry.reopen(json!({})).await;
    let shown = json!(changed);
    assert_eq!((&shown["groups"], &shown["claims"]), (&json!(["a", "b"]), &json!({})));
    assert_eq!(registry.tokens().list(), [changed]);
    assert_eq!(registry.store().verify().await.unwrap().faults, Vec::<String>::new());
}

#[tokio::test]
async fn the_last_use_is_known_at_once_and_survives_a_restart() {
    let registry = SqliteRegistry::open(json!({})).await;
    registry.tokens().create("ci", Role::Agent, None, actor()).await.unwrap();
    let last_used = |registry: &SqliteRegistry| registry.tokens().get("ci").unwrap().last_used;
    assert_eq!(last_used(&registry), None);
    let before = registry.now();
    let id = registry.tokens().get("ci").unwrap().id;
    registry.tokens().record_use(&registry.tokens().find_by_id(&id).unwrap().principal);
    let used = last_used(&registry).unwrap();
    assert!((before..=registry.now()).contains(&used), "{used}");
    let registry = registry.reopen(json!({})).await;
    assert_eq!(last_used(&registry), Some(used));
    registry.tokens().revoke("ci", actor()).await.unwrap();
    assert_eq!(registry.tokens().list(), []);
}

#[tokio::test]
async fn other_processes_see_the_last_use_and_the_latest_wins() {
    let one = SqliteRegistry::open(json!({})).await;
    let id = one.tokens().create("ci", Role::Agent, None, actor()).await.unwrap().view.id;
    let other = open_at(one.home.path(), json!({})).await;
    wait_until("the token is known", || other.tokens().get("ci").is_ok()).await;
    let principal = other.tokens().find_by_id(&id).unwrap().principal;
    for registry in [&one.registry, &other] {
        registry.tokens().record_use(&principal);
        let used = registry.tokens().get("ci").unwrap().last_used;
        // The time until the next write passes at once.
        skip_time(Duration::from_secs(3)).await;
        for reader in [&one.registry, &other] {
            wait_until("it is read", || reader.tokens().get("ci").unwrap().last_used >= used).await;
        }
    }
    other.close().await;
}

#[tokio::test]
async fn only_stored_tokens_and_their_sessions_have_a_last_use() {
    let fixture = open().await;
    let id = fixture.tokens().create("ci", Role::Agent, None, actor()).await.unwrap().view.id;
    let token = fixture.tokens().find_by_id(&id).unwrap().principal;
    let session = token.with_identity(PrincipalIdentity::Console { token: id.as_str().into() });
    let admin = PrincipalIdentity::Token { id: PrincipalIdentity::ADMIN_TOKEN.into() };
    for other in [Principal::local("local"), Principal::new(admin, "admin", Role::Admin)] {
        fixture.tokens().record_use(&other);
    }
    fixture.tokens().record_use(&session);
    let used = fixture.now();
    fixture.manual_clock.advance(Duration::from_secs(1));
    assert_eq!(fixture.tokens().get("ci").unwrap().last_used, Some(used));
    fixture.tokens().record_use(&token);
    let used = Timestamp(used.0 + 1_000);
    assert_eq!(fixture.tokens().get("ci").unwrap().last_used, Some(used));
    fixture.registry.close().await;
    assert_eq!(fixture.store.token_uses().await.unwrap(), [TokenUse { token: id, last_used: used }]);
}
