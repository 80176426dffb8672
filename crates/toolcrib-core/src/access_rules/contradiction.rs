//! Finds conditions that no caller can meet. Only what follows from one condition or from two of them: a rule that can
//! never apply is a mistake, and the common ones are of this kind.

use std::slice;

use serde_json::Value;

use super::condition::is_equal;
use super::{ClaimCondition, ClaimTest};
use crate::access::Role;
use crate::principal::PrincipalIdentity;
use crate::text::sanitize_truncated;

/// Finds a condition that no caller can meet, alone or with another one. Returns the position of the later one, and the
/// reason. A value that a fact of Toolcrib never has is a mistake also in a `not_` form.
pub fn find_contradiction(conditions: &[ClaimCondition]) -> Option<(usize, String)> {
    conditions.iter().enumerate().find_map(|(index, condition)| {
        if let Some(reason) = condition.impossible_fact() {
            return Some((index, reason));
        }
        let rest = &conditions[index + 1..];
        let other = rest.iter().position(|other| condition.contradicts(other))?;
        let reason = format!("no caller can meet both `{}` and `{}`", describe(condition), describe(&rest[other]));
        Some((index + 1 + other, reason))
    })
}

fn describe(ClaimCondition { claim, test }: &ClaimCondition) -> String {
    sanitize_truncated(&format!("{}: {} {}", claim.as_str(), test.name(), test.value()), 120)
}

impl ClaimCondition {
    /// All values of the fact that the condition is about; `None` for a claim, and for a fact with any values.
    fn fact_values(&self) -> Option<Vec<&'static str>> {
        match self.claim.fact()? {
            "kind" => Some(PrincipalIdentity::KINDS.to_vec()),
            "role" => Some(Role::ALL.map(Role::as_str).to_vec()),
            _ => None,
        }
    }

    /// Returns why the condition makes no sense for the fact that it is about: it names a value that the fact never has, or
    /// none of the values passes.
    fn impossible_fact(&self) -> Option<String> {
        let values = self.fact_values()?;
        let is_known = |value: &&Value| value.as_str().is_some_and(|text| values.contains(&text));
        if let Some(unknown) = self.test.listed_values().iter().find(|value| !is_known(value)) {
            let unknown = sanitize_truncated(&unknown.to_string(), 80);
            return Some(format!("`{}` is one of {}, never {unknown}", self.claim.as_str(), values.join(", ")));
        }
        let is_possible = values.iter().any(|value| self.test.accepts(Some(&Value::from(*value))));
        (!is_possible).then(|| format!("no caller can meet `{}`", describe(self)))
    }

    /// Whether no principal can meet both conditions.
    fn contradicts(&self, other: &ClaimCondition) -> bool {
        if !self.claim.is_same(&other.claim) {
            return false;
        }
        if let Some(values) = self.fact_values() {
            let accept = |value: &Value| self.test.accepts(Some(value)) && other.test.accepts(Some(value));
            return !values.iter().any(|value| accept(&Value::from(*value)));
        }
        // A claim may be a list, and have both of two values. An issuer is one text.
        let is_single = self.claim.fact() == Some("issuer");
        let excludes = |a: &ClaimTest, b: &ClaimTest| {
            a.excludes(b)
                || (is_single
                    && a.required_values().is_some_and(|values| !values.iter().any(|value| b.accepts(Some(value)))))
        };
        excludes(&self.test, &other.test) || excludes(&other.test, &self.test)
    }
}

impl ClaimTest {
    /// Values that are compared for equality.
    fn listed_values(&self) -> &[Value] {
        match self {
            ClaimTest::Equals(value) | ClaimTest::NotEquals(value) => slice::from_ref(value),
            ClaimTest::In(values) | ClaimTest::NotIn(values) => values,
            ClaimTest::Contains(_) | ClaimTest::NotContains(_) | ClaimTest::Matches(_) | ClaimTest::Exists(_) => &[],
        }
    }

    /// Values of which each claim that passes is one, or has one as an element.
    fn required_values(&self) -> Option<&[Value]> {
        match self {
            // A list may equal a list as a whole.
            ClaimTest::Equals(value) if !value.is_array() => Some(slice::from_ref(value)),
            // A text may contain another text.
            ClaimTest::Contains(value) if !value.is_string() => Some(slice::from_ref(value)),
            ClaimTest::In(values) => Some(values),
            ClaimTest::Equals(_)
            | ClaimTest::NotEquals(_)
            | ClaimTest::Contains(_)
            | ClaimTest::NotContains(_)
            | ClaimTest::Matches(_)
            | ClaimTest::Exists(_)
            | ClaimTest::NotIn(_) => None,
        }
    }

    /// Whether a claim that passes `self` never passes `other`: each value that `self` requires fails a `not_` form, or
    /// `self` needs a claim where `other` wants none.
    fn excludes(&self, other: &ClaimTest) -> bool {
        let requires_only =
            |test: &dyn Fn(&Value) -> bool| self.required_values().is_some_and(|values| values.iter().all(test));
        match (self, other) {
            (ClaimTest::Equals(a), ClaimTest::NotEquals(b)) | (ClaimTest::Contains(a), ClaimTest::NotContains(b))
                if is_equal(a, b) =>
            {
                true
            }
            (_, ClaimTest::NotEquals(b)) => requires_only(&|value| is_equal(value, b)),
            // Of other values than texts only a list contains one.
            (_, ClaimTest::NotContains(b)) => b.is_string() && requires_only(&|value| is_equal(value, b)),
            (_, ClaimTest::NotIn(list)) => requires_only(&|value| list.iter().any(|b| is_equal(value, b))),
            (
                ClaimTest::Exists(true)
                | ClaimTest::Equals(_)
                | ClaimTest::Contains(_)
                | ClaimTest::Matches(_)
                | ClaimTest::In(_),
                ClaimTest::Exists(false),
            ) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn condition(claim: &str, test: &str, value: Value) -> ClaimCondition {
        serde_json::from_value(json!({"claim": claim, test: value})).unwrap()
    }

    #[track_caller]
    fn check(claim: &str, a: (&str, Value), b: (&str, Value), expected: bool) {
        let (a, b) = (condition(claim, a.0, a.1), condition(claim, b.0, b.1));
        for pair in [[a.clone(), b.clone()], [b, a]] {
            assert_eq!(find_contradiction(&pair).map(|(index, _)| index), expected.then_some(1), "{pair:?}");
        }
    }

    #[test]
    fn conditions_that_no_caller_can_meet_together_are_found() {
        for (a, b) in [
            (("equals", json!(1)), ("not_equals", json!(1))),
            (("equals", json!("a")), ("not_in", json!(["a", "b"]))),
            (("equals", json!("a")), ("not_contains", json!("a"))),
            (("in", json!(["a"])), ("not_equals", json!("a"))),
            (("in", json!(["a", "b"])), ("not_in", json!(["a", "b", "c"]))),
            (("in", json!(["a"])), ("not_contains", json!("a"))),
            (("contains", json!("a")), ("not_contains", json!("a"))),
            (("contains", json!(1)), ("not_equals", json!(1))),
            (("exists", json!(false)), ("matches", json!("*"))),
        ] {
            check("a", a, b, true);
        }
    }

    #[test]
    fn conditions_that_some_claim_meets_together_are_allowed() {
        for (a, b) in [
            // A list may have both.
            (("equals", json!("a")), ("equals", json!("b"))),
            (("in", json!(["a", "b"])), ("not_equals", json!("a"))),
            (("equals", json!("ab")), ("not_contains", json!("a"))),
            (("equals", json!(1)), ("not_contains", json!(1))),
            (("equals", json!(["a"])), ("not_in", json!([["a"]]))),
            (("contains", json!("a")), ("not_equals", json!("a"))),
            (("exists", json!(false)), ("not_in", json!(["x"]))),
        ] {
            check("a", a, b, false);
        }
    }

    #[test]
    fn facts_have_one_of_their_values() {
        check("caller.kind", ("equals", json!("jwt")), ("equals", json!("token")), true);
        check("caller.kind", ("in", json!(["jwt", "token"])), ("not_equals", json!("jwt")), false);
        check("caller.kind", ("contains", json!("c")), ("not_in", json!(["local", "console"])), true);
        check("caller.role", ("equals", json!("admin")), ("matches", json!("a*")), false);
        check("caller.issuer", ("equals", json!("a")), ("equals", json!("b")), true);
        check("caller.issuer", ("equals", json!("ab")), ("contains", json!("b")), false);
        check("caller.token", ("equals", json!("ci")), ("equals", json!("0123")), false);
        for (claim, test, value, reason) in [
            (
                "caller.kind",
                "equals",
                json!("jwtt"),
                "`caller.kind` is one of local, token, console, jwt, never \"jwtt\"",
            ),
            (
                "caller.role",
                "not_in",
                json!(["admin", "root"]),
                "`caller.role` is one of viewer, agent, admin, never \"root\"",
            ),
            ("caller.kind", "exists", json!(false), "no caller can meet `caller.kind: exists false`"),
            ("caller.role", "matches", json!("A*"), "no caller can meet `caller.role: matches \"A*\"`"),
        ] {
            assert_eq!(find_contradiction(&[condition(claim, test, value)]), Some((0, reason.to_owned())));
        }
        for kind in PrincipalIdentity::KINDS {
            assert_eq!(find_contradiction(&[condition("caller.kind", "equals", json!(kind))]), None);
        }
    }

    proptest! {
        /// No pair is refused that a claim meets.
        #[test]
        fn a_claim_never_meets_a_contradiction(
            tests in prop::array::uniform2((0..8_usize, prop::collection::vec(0..4_usize, 1..3))),
            claim in prop::collection::vec(0..4_usize, 0..3),
            is_list in any::<bool>(),
        ) {
            let value = |index: usize| [json!("a"), json!("ab"), json!(1), json!(["a"])][index].clone();
            let [a, b] = tests.map(|(test, values)| {
                let name = ClaimTest::NAMES[test];
                let value = match name {
                    "in" | "not_in" => values.into_iter().map(value).collect(),
                    "exists" => json!(values[0] % 2 == 0),
                    "matches" => json!("a*"),
                    _ => value(values[0]),
                };
                condition("a", name, value)
            });
            let claim = match (is_list, &claim[..]) {
                (false, []) => None,
                (false, [first, ..]) => Some(value(*first)),
                (true, elements) => Some(elements.iter().map(|index| value(*index)).collect()),
            };
            let is_met = a.test.accepts(claim.as_ref()) && b.test.accepts(claim.as_ref());
            prop_assert!(!(is_met && a.contradicts(&b)), "{a:?} {b:?} {claim:?}");
        }
    }
}
