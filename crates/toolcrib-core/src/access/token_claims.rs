//! Rules for the claims that an administrator gives a token. Claims of an identity provider are not checked here: they
//! have the reserved names by right.

use serde_json::{Map, Value};

use crate::error::{Code, Error, Result};
use crate::principal::Claims;
use crate::text::sanitize_truncated;

/// Claims that state who the principal is and what it may do. A token with such a claim could pass for a user of an
/// identity provider, in a rule that reads them.
const RESERVED_CLAIMS: [&str; 6] = ["caller", "sub", "iss", "aud", "exp", "role"];
/// Maximum nesting of lists and objects in a claim. An event is parsed with a limit of 128, and a record that cannot be
/// parsed is damage.
const MAX_CLAIM_DEPTH: usize = 32;
/// Maximum length of the name of a claim in bytes.
const MAX_CLAIM_NAME_LEN: usize = 128;

/// Checks the claims of a token and wraps them.
///
/// Fails with `BAD_REQUEST` for reserved, empty and too long names, for claims that are nested too deeply, and above the
/// size limit of [`Claims::new`]. Messages name claims, and never contain their values.
pub fn check_token_claims(claims: &Map<String, Value>) -> Result<Claims> {
    for (name, value) in claims {
        let shown = sanitize_truncated(name, 80);
        let problem = if RESERVED_CLAIMS.contains(&name.as_str()) || name.starts_with("caller.") {
            format!("the claim `{shown}` is reserved; choose another name")
        } else if name.is_empty() || name.len() > MAX_CLAIM_NAME_LEN {
            format!("the name of a claim has 1 to {MAX_CLAIM_NAME_LEN} bytes; `{shown}` has {}", name.len())
        } else if !is_nested_within(value, MAX_CLAIM_DEPTH) {
            format!("the claim `{shown}` is nested more than {MAX_CLAIM_DEPTH} levels deep")
        } else {
            continue;
        };
        return Err(Error::new(Code::BadRequest, problem));
    }
    Claims::new(claims.clone())
}

/// Whether a value has at most `levels` lists and objects inside each other.
fn is_nested_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_nested_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_nested_within(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(claims: Value) -> Result<Claims> {
        check_token_claims(claims.as_object().unwrap())
    }

    #[test]
    fn reserved_names_and_excessive_claims_are_rejected() {
        for claims in [json!({}), json!({"team": "support", "callers": 1, "realm_access": {"sub": 1, "roles": ["a"]}})]
        {
            let checked = check(claims.clone()).unwrap();
            assert_eq!(serde_json::to_value(checked).unwrap(), claims);
        }
        for name in ["caller", "caller.kind", "sub", "iss", "aud", "exp", "role", "", &"x".repeat(129)] {
            let error = check(json!({"team": "a", name: "secret value"})).unwrap_err();
            assert_eq!(error.code, Code::BadRequest, "{name}");
            assert!(!error.message.contains("secret value"), "{error}");
        }
        assert_eq!(check(json!({"sub": 1})).unwrap_err().message, "the claim `sub` is reserved; choose another name");
        assert_eq!(check(json!({"text": "x".repeat(40_000)})).unwrap_err().code, Code::BadRequest);
    }

    /// A record that is nested more deeply than the parser allows would count as damage of the journal.
    #[test]
    fn the_depth_of_claims_is_bounded() {
        let nested = |depth| (0..depth).fold(json!(1), |value, _| json!([value]));
        assert!(check(json!({"a": nested(MAX_CLAIM_DEPTH)})).is_ok());
        assert_eq!(check(json!({"a": nested(MAX_CLAIM_DEPTH + 1)})).unwrap_err().code, Code::BadRequest);
    }
}
