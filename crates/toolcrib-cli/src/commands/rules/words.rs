//! Conditions, selectors and matches in words, for tables and pages.

use toolcrib::core::access_rules::{ClaimCondition, ClaimTest, PolicyMatch, Selector};
use toolcrib::core::text::sanitize;

/// Returns conditions on a caller: `team is "support" and caller.kind is one of ["jwt","token"]`.
pub(super) fn describe_conditions(conditions: &[ClaimCondition]) -> String {
    if conditions.is_empty() {
        return "every caller".to_owned();
    }
    let words: Vec<String> = conditions.iter().map(describe_condition).collect();
    words.join(" and ")
}

fn describe_condition(ClaimCondition { claim, test }: &ClaimCondition) -> String {
    let words = match test {
        ClaimTest::Equals(_) => "is",
        ClaimTest::NotEquals(_) => "is not",
        ClaimTest::Contains(_) => "contains",
        ClaimTest::NotContains(_) => "does not contain",
        ClaimTest::Matches(_) => "matches",
        ClaimTest::In(_) => "is one of",
        ClaimTest::NotIn(_) => "is none of",
        ClaimTest::Exists(true) => return sanitize(&format!("{} exists", claim.as_str())),
        ClaimTest::Exists(false) => return sanitize(&format!("{} does not exist", claim.as_str())),
    };
    // As JSON, because types count: `"1"` is not `1`.
    sanitize(&format!("{} {words} {}", claim.as_str(), test.value()))
}

/// Returns the conditions of a selector: `source zendesk*, risk read_only`.
pub(super) fn describe_selector(selector: &Selector) -> String {
    let conditions = selector_conditions(selector);
    if conditions.is_empty() { "every tool".to_owned() } else { conditions.join(", ") }
}

fn selector_conditions(selector: &Selector) -> Vec<String> {
    let Selector { source, name, tags, without_tags, method, path, risk } = selector;
    let risks: Vec<&str> = risk.iter().map(|risk| risk.as_str()).collect();
    let conditions = [
        ("source", source.as_ref().map(|pattern| pattern.as_str().to_owned())),
        ("name", name.as_ref().map(|pattern| pattern.as_str().to_owned())),
        ("tags", join(tags)),
        ("without tags", join(without_tags)),
        ("method", method.clone()),
        ("path", path.as_ref().map(|pattern| pattern.as_str().to_owned())),
        ("risk", Some(risks.join(" and ")).filter(|risks| !risks.is_empty())),
    ];
    let set = conditions.into_iter().filter_map(|(key, value)| Some((key, value?)));
    set.map(|(key, value)| sanitize(&format!("{key} {value}"))).collect()
}

fn join(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join(" and "))
}

/// Returns the tools and callers of a policy: `group support, risk destructive, when caller.kind is "jwt"`.
pub(super) fn describe_match(PolicyMatch { selector, group, when }: &PolicyMatch) -> String {
    let group = group.iter().map(|group| format!("group {group}"));
    let tools: Vec<String> = group.chain(selector_conditions(selector)).collect();
    let tools = if tools.is_empty() { "every tool".to_owned() } else { tools.join(", ") };
    if when.is_empty() { tools } else { format!("{tools}, when {}", describe_conditions(when)) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_match_is_described_in_words() {
        let check = |value: Value, expected: &str| {
            let matches: PolicyMatch = serde_json::from_value(value).unwrap();
            assert_eq!(describe_match(&matches), expected);
        };
        check(json!({}), "every tool");
        check(json!({"source": "git*", "risk": ["destructive"]}), "source git*, risk destructive");
        check(
            json!({"group": "a", "tags": ["x", "y"], "when": [{"claim": "n", "not_in": [1, "1"]}, {"claim": "m", "exists": false}]}),
            "group a, tags x and y, when n is none of [1,\"1\"] and m does not exist",
        );
        check(json!({"when": [{"claim": "caller.kind", "equals": "jwt"}]}), "every tool, when caller.kind is \"jwt\"");
    }
}
