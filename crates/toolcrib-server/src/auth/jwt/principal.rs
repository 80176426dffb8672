//! The principal of a verified access token: its identity, name, role and claims. No I/O.

use serde_json::{Map, Value};
use toolcrib::config::{IssuerConfig, find_role};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::principal::{Claims, PrincipalIdentity};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{Code, Error, Principal, Result};

/// Prefix of the names of principals with an access token. Names of stored tokens and built-in actors have no colon, so
/// that none of them can be imitated by a claim.
pub(crate) const JWT_NAME_PREFIX: &str = "jwt:";
/// Maximum length of the readable part of a name.
const MAX_NAME_LEN: usize = 64;
/// Claims with a readable name, the best first. None of them is unique or verified; they are for logs.
const NAME_CLAIMS: [&str; 4] = ["preferred_username", "client_id", "azp", "sub"];

/// Number of hexadecimal digits of the hash in a name.
const IDENTITY_DIGITS: usize = 8;

/// Creates the principal of a token whose signature and registered claims were verified. `FORBIDDEN` if it has no role.
pub(super) fn create_principal(issuer: &IssuerConfig, claims: Map<String, Value>) -> Result<Principal> {
    // Before anything is decided by them: a claim named `caller` is dropped.
    let claims = Claims::new(claims)?;
    let Some(role) = find_role(&issuer.roles, claims.as_map()) else {
        let message = "the access token has none of the roles that this server knows (`roles` of its issuer in \
                       `identity.issuers`)";
        return Err(Error::new(Code::Forbidden, message));
    };
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let identity = PrincipalIdentity::Jwt { issuer: issuer.issuer.as_str().into(), sub: subject.into() };
    let name = unique_name(&identity, claims.as_map());
    Ok(Principal::new(identity, name, role).with_claims(claims))
}

/// Returns a name with which a person finds the client in logs and history, and with the beginning of a hash that tells it
/// apart: two clients may choose the same readable name.
fn unique_name(identity: &PrincipalIdentity, claims: &Map<String, Value>) -> String {
    let hash = Fingerprint::digest(identity.owner_key().as_bytes()).short_hex(IDENTITY_DIGITS);
    format!("{JWT_NAME_PREFIX}{}#{hash}", readable_name(claims))
}

/// Returns the first readable name among the claims, on one line.
fn readable_name(claims: &Map<String, Value>) -> String {
    let names = NAME_CLAIMS.iter().filter_map(|claim| claims.get(*claim).and_then(Value::as_str));
    let mut names = names.map(|name| sanitize_truncated(name, MAX_NAME_LEN));
    names.find(|name| !name.is_empty()).unwrap_or_else(|| "unnamed".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib::config::RoleMapping;
    use toolcrib::core::access::Role;

    use super::*;

    #[test]
    fn only_scope_is_a_list_of_words_and_no_part_of_a_text_matches() {
        let mapping = |claim: &[&str], default: Option<Role>| RoleMapping {
            claim: claim.iter().map(|key| (*key).to_owned()).collect(),
            admin: vec!["root".to_owned()],
            agent: vec!["tools:call".to_owned(), "dev team".to_owned()],
            viewer: vec!["read".to_owned()],
            default,
        };
        for (path, claims, expected) in [
            (&["scope"][..], json!({ "scope": "openid read tools:call" }), Some(Role::Agent)),
            (&["scope"], json!({ "scope": "reader tools:call:none" }), None),
            (&["scope"], json!({ "scope": ["read"] }), Some(Role::Viewer)),
            (&["role"], json!({ "role": "read root" }), None),
            (&["role"], json!({ "role": "dev team" }), Some(Role::Agent)),
            (&["role"], json!({ "role": "Root" }), None),
            (&["role"], json!({ "role": { "root": true } }), None),
            (&["role"], json!({ "role": [["root"], 1, null, "read"] }), Some(Role::Viewer)),
            (&["realm.x", "roles"], json!({ "realm.x": { "roles": ["read", "root"] } }), Some(Role::Admin)),
            (&["realm", "x"], json!({ "realm.x": "root", "realm": "x" }), None),
            (&[], json!({ "role": "root" }), None),
        ] {
            let claims = claims.as_object().unwrap();
            assert_eq!(find_role(&mapping(path, None), claims), expected, "{claims:?}");
            let with_default = find_role(&mapping(path, Some(Role::Viewer)), claims);
            assert_eq!(with_default, expected.or(Some(Role::Viewer)), "{claims:?}");
        }
    }

    /// Regression: the role was read before the reserved claim was dropped.
    #[test]
    fn a_claim_named_caller_gives_no_role() {
        let text =
            "identity: { issuers: [{ issuer: \"https://id.example\", roles: { claim: caller.role, admin: admin } }] }";
        let config = toolcrib::config::Config::read(text, "toolcrib.yaml", std::path::Path::new("/")).unwrap();
        let claims = json!({ "sub": "1", "caller": { "role": "admin" } }).as_object().cloned().unwrap();
        let error = create_principal(&config.identity.issuers[0], claims).unwrap_err();
        assert_eq!(error.code, Code::Forbidden);
    }

    /// Regression: with the claim `preferred_username` a client could take the name of another in the history.
    #[test]
    fn names_of_different_clients_differ() {
        let claims = json!({ "preferred_username": "ada" });
        let name = |issuer: &str, sub: &str| {
            let identity = PrincipalIdentity::Jwt { issuer: issuer.into(), sub: sub.into() };
            unique_name(&identity, claims.as_object().unwrap())
        };
        let ada = name("https://id.example", "1");
        assert!(ada.starts_with("jwt:ada#") && ada.len() == "jwt:ada#".len() + IDENTITY_DIGITS, "{ada}");
        assert_eq!(ada, name("https://id.example", "1"));
        assert!(ada != name("https://id.example", "2") && ada != name("https://other.example", "1"));
    }

    #[test]
    fn a_name_is_one_short_line() {
        for (claims, expected) in [
            (json!({ "sub": "s", "azp": "a", "client_id": "c", "preferred_username": "p" }), "p"),
            (json!({ "sub": "s", "azp": "a", "preferred_username": " \n" }), "a"),
            (json!({ "sub": "token:admin\u{202e}\r\nx" }), "token:admin x"),
            (json!({ "sub": "\u{200b}" }), "unnamed"),
        ] {
            assert_eq!(readable_name(claims.as_object().unwrap()), expected);
        }
        let long = json!({ "sub": "x".repeat(1000) });
        assert_eq!(readable_name(long.as_object().unwrap()).chars().count(), MAX_NAME_LEN);
    }
}
