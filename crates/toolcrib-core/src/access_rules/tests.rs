use serde_json::{Value, json};

use super::*;
use crate::access::Role;
use crate::principal::{Claims, PrincipalIdentity, ViewNarrowing};

/// Rules from `{"groups": {…}, "access": {…}, "policies": {…}}`.
fn rules(value: Value) -> Arc<AccessRules> {
    let mut rules = AccessRules::default();
    let entries = |key: &str| value[key].as_object().cloned().unwrap_or_default().into_iter();
    for (name, group) in entries("groups") {
        rules.define(NamedRule::Group(name, serde_json::from_value(group).unwrap()), Origin::Runtime);
    }
    for (name, rule) in entries("access") {
        rules.define(NamedRule::Access(name, serde_json::from_value(rule).unwrap()), Origin::Runtime);
    }
    for (name, policy) in entries("policies") {
        rules.define(NamedRule::Policy(name, serde_json::from_value(policy).unwrap()), Origin::Runtime);
    }
    Arc::new(rules)
}

fn caller(role: Role, claims: Value) -> Principal {
    let identity = PrincipalIdentity::Token { id: "0123456789ab".into() };
    let claims = Claims::new(claims.as_object().unwrap().clone()).unwrap();
    Principal::new(identity, "ci", role).with_claims(claims)
}

/// A tool of the source `shop`, without a method.
fn with_tool<T>(name: &str, tags: &[&str], use_facts: impl FnOnce(&ToolFacts<'_>) -> T) -> T {
    let details = ToolDetails { tags, method: None, path: None, risk: RiskSet::UNKNOWN };
    let shown = format!("shop__{name}");
    use_facts(&ToolFacts { source: "shop", names: &[&shown], original_name: name, details: Some(details) })
}

fn verdict(rules: &Arc<AccessRules>, caller: &Principal, tool: &str) -> Verdict {
    with_tool(tool, &[], |facts| rules.scope(caller).verdict(facts, Verdict::Allow))
}

fn example() -> Arc<AccessRules> {
    rules(json!({
        "groups": { "orders": { "select": [{ "name": "get_*" }] }, "stock": { "tools": ["shop/count"] } },
        "access": {
            "desk": { "when": [{ "claim": "team", "equals": "desk" }], "groups": ["orders"] },
            "store": { "when": [{ "claim": "team", "in": ["desk", "store"] }], "groups": ["stock"] },
            "off": { "groups": ["orders", "stock"], "active": false },
        },
        "policies": {
            "careful": { "match": { "name": "get_secret" }, "verdict": "deny" },
            "fine": { "match": { "name": "get_*" }, "verdict": "allow" },
            "ask-store": { "match": { "group": "stock", "when": [{ "claim": "team", "equals": "store" }] }, "verdict": "ask" },
        },
    }))
}

#[test]
fn a_caller_sees_the_union_of_its_groups_with_the_strictest_verdict() {
    use Verdict::{Allow, Ask, Deny, Hide};
    let rules = example();
    for (role, claims, expected) in [
        // Verdicts on `get_order`, `get_secret`, `count` and `wipe`.
        (Role::Agent, json!({ "team": "desk" }), [Allow, Deny, Allow, Hide]),
        (Role::Viewer, json!({ "team": "store" }), [Hide, Hide, Ask, Hide]),
        (Role::Agent, json!({}), [Hide, Hide, Hide, Hide]),
        (Role::Admin, json!({}), [Allow, Deny, Allow, Allow]),
    ] {
        let caller = caller(role, claims.clone());
        let verdicts = ["get_order", "get_secret", "count", "wipe"].map(|tool| verdict(&rules, &caller, tool));
        assert_eq!(verdicts, expected, "{role:?} {claims}");
    }
}

#[test]
fn groups_of_a_token_replace_access_rules_also_for_administrators() {
    let groups = ["orders".to_owned(), "gone".to_owned()];
    for role in [Role::Agent, Role::Admin] {
        let caller = caller(role, json!({ "team": "store" })).with_groups(groups.clone());
        let verdicts = ["get_order", "count", "wipe"].map(|tool| verdict(&example(), &caller, tool));
        assert_eq!(verdicts, [Verdict::Allow, Verdict::Hide, Verdict::Hide], "{role:?}");
    }
}

#[test]
fn everything_is_visible_until_there_is_an_access_rule() {
    let agent = caller(Role::Agent, json!({}));
    let without = rules(json!({ "groups": { "none": {} } }));
    assert_eq!(verdict(&without, &agent, "wipe"), Verdict::Allow);
    let inactive =
        rules(json!({ "groups": { "none": {} }, "access": { "off": { "groups": ["none"], "active": false } } }));
    assert_eq!(verdict(&inactive, &agent, "wipe"), Verdict::Hide);
}

#[test]
fn callers_with_equal_rights_share_a_scope_and_others_do_not() {
    let rules = example();
    let key = |claims: Value| rules.scope(&caller(Role::Agent, claims)).key();
    assert_eq!(key(json!({ "team": "desk", "sub": "ada" })), key(json!({ "team": ["desk"], "sub": "bob" })));
    assert_ne!(key(json!({ "team": "desk" })), key(json!({ "team": "store" })));
    assert_ne!(key(json!({ "team": "desk" })), rules.scope(&caller(Role::Admin, json!({}))).key());
}

/// Each narrowing has a scope of its own, which is resolved once for all requests of a principal.
#[test]
fn narrowed_scopes_are_resolved_once_per_principal_and_rules() {
    let rules = example();
    let admin = caller(Role::Admin, json!({}));
    let narrowed = |only: &[&str]| {
        let only = only.iter().map(|glob| (*glob).to_owned()).collect();
        rules.scope(&admin.narrowed(ViewNarrowing { as_agent: true, group: None, only }))
    };
    let pages = narrowed(&["*page*"]);
    assert!(Arc::ptr_eq(&pages, &narrowed(&["*page*"])));
    assert_ne!(pages.key(), narrowed(&["*list*"]).key());
    assert_ne!(narrowed(&[]).key(), rules.scope(&admin).key());
}

#[test]
fn an_explanation_lists_the_rules_in_the_order_in_which_they_apply() {
    let rules = example();
    let explain = |claims: Value, tool: &str, source_verdict: SourceVerdict| {
        let explanation =
            with_tool(tool, &[], |facts| rules.explain(&caller(Role::Agent, claims), facts, &source_verdict));
        let steps: Vec<String> =
            explanation.rules.iter().map(|rule| format!("{} {}: {}", rule.kind, rule.name, rule.effect)).collect();
        (explanation.verdict, explanation.visible, steps)
    };
    let source_rule = SourceVerdict { verdict: Verdict::Ask, glob: Some("get_*".to_owned()) };
    assert_eq!(
        explain(json!({ "team": "desk" }), "get_secret", source_rule),
        (
            Verdict::Deny,
            false,
            [
                "access desk: gives `orders`",
                "access store: gives `stock`",
                "group orders: has the tool",
                "group stock: does not have the tool",
                "source shop: rule `get_*: ask`",
                "policy careful: deny",
                "policy fine: allow",
            ]
            .map(str::to_owned)
            .to_vec()
        )
    );
    let no_rule = SourceVerdict { verdict: Verdict::Allow, glob: None };
    let expected = vec!["access : no access rule applies to this caller".to_owned()];
    assert_eq!(explain(json!({}), "count", no_rule), (Verdict::Hide, false, expected));
}

#[test]
fn rules_that_cannot_apply_are_refused() {
    let group = |value: Value| NamedRule::Group("g".into(), serde_json::from_value(value).unwrap());
    let access = |value: Value| NamedRule::Access("a".into(), serde_json::from_value(value).unwrap());
    for (rule, reason) in [
        (group(json!({ "tools": ["a"], "exclude": ["a"] })), "`a` is both in `tools` and in `exclude`"),
        (group(json!({ "select": [{ "tags": ["x"], "without_tags": ["x"] }] })), "`x` is both in"),
        (access(json!({ "groups": [] })), "at least one group"),
        (
            access(json!({ "groups": ["g"], "when": [
                { "claim": "team", "equals": "a" }, { "claim": "team", "not_equals": "a" }] })),
            "no caller can meet both `team: equals \"a\"` and `team: not_equals \"a\"`",
        ),
        (NamedRule::Group("No".into(), Group::default()), "`No` is not a valid group name"),
    ] {
        let error = rule.check().unwrap_err();
        assert!(error.code == Code::ConfigInvalid && error.message.contains(reason), "{}", error.message);
    }
}
