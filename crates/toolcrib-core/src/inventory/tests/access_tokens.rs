//! Commands and state of access tokens.

use std::time::Duration;

use serde_json::json;

use super::{check, inventory_after};
use crate::access::{MAX_TOKEN_LIFETIME, Role};
use crate::access_rules::Group;
use crate::inventory::*;
use crate::principal::PrincipalIdentity;

fn group_event(name: &str) -> Event {
    Event::GroupDefined {
        group: name.to_owned(),
        origin: Origin::Runtime,
        definition: Group::default(),
        replaces: false,
    }
}

fn new_token(id: &str, name: &str, now: i64) -> NewToken {
    let expires_at = Some(Timestamp(1_000));
    let (id, name, hash) = (id.to_owned(), name.to_owned(), Fingerprint::digest(id));
    let (groups, claims) = (Vec::new(), serde_json::Map::new());
    NewToken { id, name, role: Role::Agent, hash, expires_at, requested_at: Timestamp(now), groups, claims }
}

fn token_created_event(id: &str, name: &str) -> Event {
    token_event(new_token(id, name, 0))
}

fn token_event(new: NewToken) -> Event {
    let NewToken { id: token, name, role, hash, expires_at, groups, claims, .. } = new;
    Event::TokenCreated { token, name, role, hash, expires_at, groups, claims }
}

#[test]
fn a_token_name_is_unique_until_the_token_is_revoked_or_expires() {
    let one = token_created_event("a1", "ci");
    let two = token_created_event("b2", "ci");
    let revoked = Event::TokenRevoked { token: "a1".into(), name: "ci".into() };
    check(&[], Command::CreateToken(new_token("a1", "ci", 0)), std::slice::from_ref(&one));
    check(std::slice::from_ref(&one), Command::CreateToken(new_token("a1", "ci", 0)), &[]);
    let second = Command::CreateToken(new_token("b2", "ci", 999));
    let taken = inventory_after(std::slice::from_ref(&one)).decide(&second).unwrap_err();
    assert_eq!((taken.code, taken.is_retryable()), (Code::Conflict, false));
    check(&[one.clone(), revoked.clone()], second, std::slice::from_ref(&two));
    check(std::slice::from_ref(&one), Command::CreateToken(new_token("b2", "ci", 1_000)), &[revoked.clone(), two]);
    check(std::slice::from_ref(&one), Command::RevokeToken("a1".into()), std::slice::from_ref(&revoked));
    check(&[one, revoked], Command::RevokeToken("a1".into()), &[]);
}

#[test]
fn the_lifetime_of_a_token_is_limited() {
    let create_with_lifetime = |lifetime: Duration| {
        let new = NewToken { expires_at: Some(Timestamp(1_000).plus(lifetime)), ..new_token("a1", "ci", 1_000) };
        Inventory::default().decide(&Command::CreateToken(new))
    };
    assert!(create_with_lifetime(MAX_TOKEN_LIFETIME).is_ok());
    for lifetime in [MAX_TOKEN_LIFETIME + Duration::from_millis(1), Duration::MAX] {
        assert_eq!(create_with_lifetime(lifetime).unwrap_err().code, Code::BadRequest);
    }
}

#[test]
fn a_token_id_wins_over_an_equal_token_name() {
    let inventory = inventory_after(&[token_created_event("a1", "ci"), token_created_event("b2", "a1")]);
    assert_eq!(inventory.token("a1").unwrap().name(), "ci");
}

#[test]
fn a_token_keeps_its_hash_when_its_name_or_role_changes() {
    let events = [token_created_event("a1", "ci"), token_created_event("b2", "build")];
    let change = |name: Option<&str>, role| {
        let name = name.map(str::to_owned);
        Command::ChangeToken(TokenChange { id: "a1".into(), name, role, ..TokenChange::default() })
    };
    let changed =
        Event::TokenChanged { token: "a1".into(), name: "ci".into(), role: Role::Admin, groups: None, claims: None };
    check(&events, change(None, Some(Role::Admin)), std::slice::from_ref(&changed));
    check(&events, change(Some("ci"), Some(Role::Agent)), &[]);
    assert_eq!(inventory_after(&events).decide(&change(Some("build"), None)).unwrap_err().code, Code::Conflict);
    assert_eq!(inventory_after(&events).decide(&change(Some("a b"), None)).unwrap_err().code, Code::BadRequest);
    let inventory = inventory_after(&[events[0].clone(), changed]);
    let token = inventory.token("ci").unwrap();
    assert_eq!((token.role(), token.hash), (Role::Admin, Fingerprint::digest("a1")));
    assert_eq!(inventory.token("a1"), Some(token));
}

fn json_object(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    value.as_object().unwrap().clone()
}

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn a_token_has_a_principal_with_its_groups_and_claims() {
    let claims = json_object(json!({"team": "support"}));
    let given = NewToken { groups: groups(&["support", "dev", "dev"]), claims, ..new_token("a1", "ci", 0) };
    let created = token_event(NewToken { groups: groups(&["dev", "support"]), ..given.clone() });
    let [support, dev] = ["support", "dev"].map(group_event);
    check(&[support.clone(), dev.clone()], Command::CreateToken(given), std::slice::from_ref(&created));
    let inventory = inventory_after(std::slice::from_ref(&created));
    let token = inventory.token("ci").unwrap();
    let identity = PrincipalIdentity::Token { id: "a1".into() };
    assert_eq!((token.principal.identity(), token.name(), token.role()), (&identity, "ci", Role::Agent));
    assert_eq!(
        (token.groups(), token.claims().get("team")),
        (&groups(&["dev", "support"])[..], Some(&"support".into()))
    );

    let change = |groups: Option<Vec<String>>, claims: Option<serde_json::Value>| {
        let claims = claims.map(json_object);
        Command::ChangeToken(TokenChange { id: "a1".into(), groups, claims, ..TokenChange::default() })
    };
    let changed = |groups, claims: Option<serde_json::Value>| Event::TokenChanged {
        token: "a1".into(),
        name: "ci".into(),
        role: Role::Agent,
        groups,
        claims: claims.map(json_object),
    };
    let events = [created, support, dev];
    check(&events, change(Some(groups(&["support", "dev"])), Some(json!({"team": "support"}))), &[]);
    check(&events, change(Some(groups(&[])), None), &[changed(Some(groups(&[])), None)]);
    let other = Some(json!({"team": "sales"}));
    check(&events, change(None, other.clone()), &[changed(None, other.clone())]);
    let inventory = inventory_after(&[events[0].clone(), changed(None, other), changed(Some(groups(&[])), None)]);
    let token = inventory.token("ci").unwrap();
    assert_eq!((token.groups(), token.claims().get("team")), (&[][..], Some(&"sales".into())));
    for invalid in [change(Some(groups(&["No"])), None), change(None, Some(json!({"sub": "ada"})))] {
        assert_eq!(inventory_after(&events).decide(&invalid).unwrap_err().code, Code::BadRequest);
    }
    let reserved = NewToken { claims: json_object(json!({"role": "x"})), ..new_token("b2", "x", 0) };
    let refused = Inventory::default().decide(&Command::CreateToken(reserved)).unwrap_err();
    assert_eq!(refused.code, Code::BadRequest);
}

#[test]
fn a_token_is_refused_for_a_group_that_does_not_exist() {
    let new = NewToken { groups: groups(&["suport"]), ..new_token("a1", "ci", 0) };
    let events = [group_event("support"), token_created_event("b2", "build")];
    let change = TokenChange { id: "b2".into(), groups: Some(groups(&["suport"])), ..TokenChange::default() };
    for command in [Command::CreateToken(new), Command::ChangeToken(change)] {
        let refused = inventory_after(&events).decide(&command).unwrap_err();
        assert_eq!(refused.code, Code::BadRequest);
        assert!(refused.message.starts_with("no group named `suport`; did you mean `support`?"), "{}", refused.message);
    }
}

#[test]
fn a_token_keeps_a_removed_group() {
    let created = token_event(NewToken { groups: groups(&["support"]), ..new_token("a1", "ci", 0) });
    let events = [group_event("support"), created, Event::GroupRemoved { group: "support".into() }];
    assert_eq!(inventory_after(&events).token("ci").unwrap().groups(), groups(&["support"]));
    let renamed = TokenChange { id: "a1".into(), name: Some("build".into()), ..TokenChange::default() };
    assert!(inventory_after(&events).decide(&Command::ChangeToken(renamed)).is_ok());
}

/// No version writes such claims. Without them the token might see more than with them.
#[test]
fn a_token_with_invalid_stored_claims_is_not_admitted() {
    let claims = json_object(json!({"text": "x".repeat(40_000)}));
    let created = token_event(NewToken { claims: claims.clone(), ..new_token("a1", "ci", 0) });
    assert_eq!(inventory_after(&[created]).token("a1"), None);
    let (token, name, role) = ("a1".into(), "ci".into(), Role::Agent);
    let changed = Event::TokenChanged { token, name, role, groups: None, claims: Some(claims) };
    assert_eq!(inventory_after(&[token_created_event("a1", "ci"), changed]).token("a1"), None);
}

#[test]
fn a_token_is_described_with_its_groups_and_without_its_claims() {
    let claims = json_object(json!({"team": "secret"}));
    let created = |groups, claims| token_event(NewToken { groups, claims, ..new_token("a1", "ci", 0) });
    let changed = |groups, claims| {
        let (token, name, role) = ("a1".into(), "ci".into(), Role::Viewer);
        Event::TokenChanged { token, name, role, groups, claims }
    };
    for (event, text) in [
        (created(groups(&[]), claims.clone()), "token `ci` created (agent)"),
        (created(groups(&["dev", "support"]), claims.clone()), "token `ci` created (agent, groups: dev, support)"),
        (changed(None, None), "token `ci` changed (viewer)"),
        (changed(Some(groups(&[])), None), "token `ci` changed (viewer, no groups)"),
        (changed(Some(groups(&["dev"])), Some(claims)), "token `ci` changed (viewer, groups: dev, other claims)"),
    ] {
        assert_eq!(history::describe(&event, ""), text);
    }
}
