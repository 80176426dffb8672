//! Conditions on the claims of a principal, and on Toolcrib's own facts about it (`caller.kind`, `caller.role`,
//! `caller.issuer`, `caller.token`).
//!
//! ```text
//! { claim: realm_access.roles, contains: support }
//! { claim: caller.kind, in: [jwt, token] }
//! { claim: "https://example\\.com/team", exists: true }
//! ```
//!
//! A list meets a condition if one of its elements does. A `not_` form holds where the positive one does not, also for a
//! missing claim. `null` is missing. Values are compared by their JSON type: `"1"` is not `1`.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Pattern;
use crate::principal::Principal;

/// Maximum length of a claim path in bytes.
const MAX_CLAIM_PATH_LEN: usize = 256;

/// Condition on one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCondition {
    pub claim: ClaimPath,
    pub test: ClaimTest,
}

/// Dotted path of a claim: `realm_access.roles`. `\.` is a literal dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath {
    text: String,
    segments: Vec<String>,
}

/// Test of the value of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimTest {
    Equals(Value),
    NotEquals(Value),
    /// Substring of a text, or an equal element of a list.
    Contains(Value),
    NotContains(Value),
    Matches(Pattern),
    Exists(bool),
    In(Vec<Value>),
    NotIn(Vec<Value>),
}

impl ClaimTest {
    /// Names of the tests in a condition.
    pub const NAMES: [&str; 8] =
        ["equals", "not_equals", "contains", "not_contains", "matches", "exists", "in", "not_in"];

    /// Creates a test from its name and the value beside it. The error says what is wrong.
    pub fn parse(name: &str, value: &Value) -> Result<ClaimTest, String> {
        let null_error = || "`null` means that a claim is missing; use `exists: false`".to_owned();
        let scalar = || if value.is_null() { Err(null_error()) } else { Ok(value.clone()) };
        let list = || {
            let values = value.as_array().filter(|values| !values.is_empty());
            let values = values.ok_or_else(|| "expected a list with at least one value".to_owned())?;
            if values.iter().any(Value::is_null) { Err(null_error()) } else { Ok(values.clone()) }
        };
        Ok(match name {
            "equals" => ClaimTest::Equals(scalar()?),
            "not_equals" => ClaimTest::NotEquals(scalar()?),
            "contains" => ClaimTest::Contains(scalar()?),
            "not_contains" => ClaimTest::NotContains(scalar()?),
            "matches" => {
                let text = value.as_str().ok_or_else(|| "expected a pattern as text".to_owned())?;
                ClaimTest::Matches(Pattern::parse(text)?)
            }
            "exists" => {
                let exists = value.as_bool().ok_or_else(|| "expected true or false".to_owned())?;
                ClaimTest::Exists(exists)
            }
            "in" => ClaimTest::In(list()?),
            "not_in" => ClaimTest::NotIn(list()?),
            _ => return Err(format!("unknown test; the known ones are {}", ClaimTest::NAMES.join(", "))),
        })
    }

    /// Name of the test in a condition.
    pub fn name(&self) -> &'static str {
        match self {
            ClaimTest::Equals(_) => "equals",
            ClaimTest::NotEquals(_) => "not_equals",
            ClaimTest::Contains(_) => "contains",
            ClaimTest::NotContains(_) => "not_contains",
            ClaimTest::Matches(_) => "matches",
            ClaimTest::Exists(_) => "exists",
            ClaimTest::In(_) => "in",
            ClaimTest::NotIn(_) => "not_in",
        }
    }

    /// Value beside the name of the test.
    pub fn value(&self) -> Value {
        match self {
            ClaimTest::Equals(value)
            | ClaimTest::NotEquals(value)
            | ClaimTest::Contains(value)
            | ClaimTest::NotContains(value) => value.clone(),
            ClaimTest::Matches(pattern) => pattern.as_str().into(),
            ClaimTest::Exists(exists) => (*exists).into(),
            ClaimTest::In(values) | ClaimTest::NotIn(values) => values.clone().into(),
        }
    }

    /// Whether the value of a claim passes; `None` is a missing claim.
    pub(super) fn accepts(&self, claim: Option<&Value>) -> bool {
        match self {
            ClaimTest::Equals(expected) => equals(claim, expected),
            ClaimTest::NotEquals(expected) => !equals(claim, expected),
            ClaimTest::Contains(expected) => contains(claim, expected),
            ClaimTest::NotContains(expected) => !contains(claim, expected),
            ClaimTest::Matches(pattern) => {
                any_element(claim, |value| value.as_str().is_some_and(|text| pattern.matches(text)))
            }
            ClaimTest::Exists(exists) => claim.is_some() == *exists,
            ClaimTest::In(values) => is_in(claim, values),
            ClaimTest::NotIn(values) => !is_in(claim, values),
        }
    }
}

/// Whether a claim, or an element of it if it is a list, passes a test.
fn any_element(claim: Option<&Value>, test: impl Fn(&Value) -> bool) -> bool {
    match claim {
        Some(Value::Array(elements)) => elements.iter().any(test),
        Some(value) => test(value),
        None => false,
    }
}

/// Whether a claim equals a value. A list equals it as a whole or by an element.
fn equals(claim: Option<&Value>, expected: &Value) -> bool {
    claim.is_some_and(|value| is_equal(value, expected)) || any_element(claim, |value| is_equal(value, expected))
}

/// Whether a list has an equal element, or a text this part.
fn contains(claim: Option<&Value>, expected: &Value) -> bool {
    match (claim, expected) {
        (Some(Value::Array(elements)), _) => elements.iter().any(|element| is_equal(element, expected)),
        (Some(Value::String(text)), Value::String(part)) => text.contains(part.as_str()),
        _ => false,
    }
}

/// Whether a claim, or an element of it, equals one of the values.
fn is_in(claim: Option<&Value>, values: &[Value]) -> bool {
    any_element(claim, |value| values.iter().any(|listed| is_equal(value, listed)))
}

/// Compares two JSON values. Numbers are equal by value: JSON does not distinguish `1` from `1.0`.
pub(super) fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || ((a.is_f64() || b.is_f64()) && a.as_f64().is_some() && a.as_f64() == b.as_f64())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

impl ClaimPath {
    /// Parses a dotted path.
    pub fn parse(text: &str) -> Result<ClaimPath, String> {
        if text.len() > MAX_CLAIM_PATH_LEN {
            return Err(format!("the path of a claim has at most {MAX_CLAIM_PATH_LEN} bytes"));
        }
        let mut segments = vec![String::new()];
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' if letters.next_if_eq(&'.').is_some() => push_letter(&mut segments, '.'),
                '.' => segments.push(String::new()),
                letter => push_letter(&mut segments, letter),
            }
        }
        if segments.iter().any(String::is_empty) {
            return Err("the path of a claim has an empty part; write a literal dot as `\\.`".to_owned());
        }
        let is_fact = |rest: &[String]| matches!(rest, [fact] if FACT_NAMES.contains(&fact.as_str()));
        if let [first, rest @ ..] = &segments[..]
            && first == CALLER
            && !is_fact(rest)
        {
            let names = FACT_NAMES.map(|name| format!("{CALLER}.{name}")).join(", ");
            return Err(format!("there is no fact `{text}`; the known ones are {names}"));
        }
        Ok(ClaimPath { text: text.to_owned(), segments })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Name of the fact, if the path is one of Toolcrib's own facts.
    pub(super) fn fact(&self) -> Option<&str> {
        match &self.segments[..] {
            [first, fact] if first == CALLER => Some(fact),
            _ => None,
        }
    }

    /// Whether both are the same path, however it is written.
    pub(super) fn is_same(&self, other: &ClaimPath) -> bool {
        self.segments == other.segments
    }

    /// Finds the value for a principal. `null` is missing.
    pub fn find<'p>(&self, principal: &'p Principal) -> Option<Cow<'p, Value>> {
        let (first, rest) = self.segments.split_first()?;
        if first == CALLER {
            return match rest {
                [fact] => caller_fact(principal, fact).map(Cow::Owned),
                _ => None,
            };
        }
        let value = rest.iter().try_fold(principal.claims().get(first)?, |value, key| value.get(key))?;
        Some(Cow::Borrowed(value)).filter(|value| !value.is_null())
    }
}

/// Appends a letter to the last segment of a path.
fn push_letter(segments: &mut [String], letter: char) {
    if let Some(last) = segments.last_mut() {
        last.push(letter);
    }
}

/// Reserved key of Toolcrib's own facts about a principal.
const CALLER: &str = "caller";
/// Names of these facts.
const FACT_NAMES: [&str; 4] = ["kind", "role", "issuer", "token"];

/// Returns a fact about a principal.
fn caller_fact(principal: &Principal, name: &str) -> Option<Value> {
    match name {
        "kind" => Some(principal.identity().kind().into()),
        "role" => Some(principal.role().as_str().into()),
        // A previewed caller may have none.
        "issuer" => principal.identity().issuer().filter(|issuer| !issuer.is_empty()).map(Value::from),
        // A token is known by its name and by its id.
        "token" => principal.identity().token_id().map(|id| vec![principal.original_name(), id].into()),
        _ => None,
    }
}

impl ClaimCondition {
    /// Whether the condition holds for a principal.
    pub fn holds(&self, principal: &Principal) -> bool {
        self.test.accepts(self.claim.find(principal).as_deref())
    }
}

impl Serialize for ClaimCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("claim", self.claim.as_str())?;
        map.serialize_entry(self.test.name(), &self.test.value())?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for ClaimCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClaimCondition, D::Error> {
        let mut map = Map::<String, Value>::deserialize(deserializer)?;
        let claim = map.remove("claim").ok_or_else(|| D::Error::missing_field("claim"))?;
        let claim = claim.as_str().ok_or_else(|| D::Error::custom("`claim` is not text"))?;
        let claim = ClaimPath::parse(claim).map_err(D::Error::custom)?;
        let mut tests = map.into_iter();
        let (Some((name, value)), None) = (tests.next(), tests.next()) else {
            return Err(D::Error::custom("a condition has exactly one test"));
        };
        Ok(ClaimCondition { claim, test: ClaimTest::parse(&name, &value).map_err(D::Error::custom)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::access::Role;
    use crate::principal::{Claims, PrincipalIdentity};

    fn condition(value: Value) -> ClaimCondition {
        serde_json::from_value(value).unwrap()
    }

    fn principal() -> Principal {
        let claims = json!({
            "sub": "ada", "team": "support desk", "level": 3, "ratio": 1.0, "none": null, "empty": [],
            "realm_access": { "roles": ["support", "dev", 7] }, "a.b": { "c": true }, "flags": [true, "x"],
        });
        let identity = PrincipalIdentity::Token { id: "0123456789ab".into() };
        let claims = Claims::new(claims.as_object().unwrap().clone()).unwrap();
        Principal::new(identity, "ci", Role::Agent).with_claims(claims).with_name("rest:ci")
    }

    #[test]
    fn conditions_hold_as_documented() {
        for (value, expected) in [
            (json!({"claim": "sub", "equals": "ada"}), true),
            (json!({"claim": "sub", "equals": "Ada"}), false),
            (json!({"claim": "level", "equals": "3"}), false),
            (json!({"claim": "level", "equals": 3.0}), true),
            (json!({"claim": "ratio", "in": [0, 1]}), true),
            (json!({"claim": "realm_access.roles", "equals": "dev"}), true),
            (json!({"claim": "realm_access.roles", "equals": ["support", "dev", 7]}), true),
            (json!({"claim": "realm_access.roles", "contains": "support"}), true),
            (json!({"claim": "realm_access.roles", "contains": "supp"}), false),
            (json!({"claim": "realm_access.roles", "contains": 7}), true),
            (json!({"claim": "realm_access.roles", "not_contains": "admin"}), true),
            (json!({"claim": "realm_access.roles", "not_equals": "dev"}), false),
            (json!({"claim": "realm_access.roles", "matches": "supp*"}), true),
            (json!({"claim": "realm_access.roles", "matches": "regex:^7$"}), false),
            (json!({"claim": "realm_access.roles", "not_in": ["support"]}), false),
            (json!({"claim": "team", "contains": "desk"}), true),
            (json!({"claim": "team", "not_contains": "desk"}), false),
            (json!({"claim": "level", "contains": 3}), false),
            (json!({"claim": "none", "exists": true}), false),
            (json!({"claim": "none", "exists": false}), true),
            (json!({"claim": "none", "not_equals": "x"}), true),
            (json!({"claim": "empty", "exists": true}), true),
            (json!({"claim": "empty", "equals": []}), true),
            (json!({"claim": "empty", "not_in": ["x"]}), true),
            (json!({"claim": "missing", "equals": "x"}), false),
            (json!({"claim": "missing", "matches": "*"}), false),
            (json!({"claim": "missing", "in": ["x"]}), false),
            (json!({"claim": "missing.deep", "not_contains": "x"}), true),
            (json!({"claim": "a\\.b.c", "equals": true}), true),
            (json!({"claim": "a.b.c", "exists": true}), false),
            (json!({"claim": "flags", "equals": true}), true),
            (json!({"claim": "caller.kind", "equals": "token"}), true),
            (json!({"claim": "caller.role", "in": ["agent", "admin"]}), true),
            (json!({"claim": "caller.issuer", "exists": false}), true),
            (json!({"claim": "caller.token", "equals": "ci"}), true),
            (json!({"claim": "caller.token", "equals": "0123456789ab"}), true),
            (json!({"claim": "caller.token", "equals": "rest:ci"}), false),
        ] {
            let condition = condition(value);
            assert_eq!(condition.holds(&principal()), expected, "{condition:?}");
            let stored = serde_json::to_value(&condition).unwrap();
            assert_eq!(serde_json::from_value::<ClaimCondition>(stored).unwrap(), condition);
        }
    }

    #[test]
    fn malformed_conditions_are_refused_with_a_reason() {
        for (value, reason) in [
            (json!({"claim": "a"}), "exactly one test"),
            (json!({"claim": "a", "equals": 1, "in": [1]}), "exactly one test"),
            (json!({"claim": "a..b", "equals": 1}), "empty part"),
            (json!({"claim": "a", "like": 1}), "unknown test"),
            (json!({"claim": "a", "equals": null}), "exists: false"),
            (json!({"claim": "a", "in": []}), "at least one value"),
            (json!({"claim": "a", "matches": "regex:("}), "unclosed group"),
            (json!({"claim": "a", "exists": "yes"}), "true or false"),
            (json!({"claim": "caller.name", "exists": true}), "no fact `caller.name`"),
            (json!({"claim": "caller", "exists": true}), "no fact `caller`"),
            (json!({"claim": "caller.kind.x", "exists": true}), "no fact `caller.kind.x`"),
        ] {
            let error = serde_json::from_value::<ClaimCondition>(value).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
