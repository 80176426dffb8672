use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use toolcrib_core::access_rules::{
    AccessRule, AccessRules, ClaimCondition, ClaimPath, ClaimTest, Group, NamedRule, Pattern, Policy, PolicyMatch,
    Risk, RuleKind, Selector,
};
use toolcrib_core::expose::ExposeMode;
use toolcrib_core::inventory::Origin;
use toolcrib_core::policy::Verdict;

use crate::{
    Config, ConfigDiagnostic, ConfigDialect, REQUEST_BODY, Secrets, Syntax, export, export_json, parse_rule, reference,
    rule_to_json, show,
};

mod error_messages;

/// The example of the contract.
const SAMPLE: &str = r#"groups:
  support: { title: Support desk, select: [{ source: "zendesk*", name: "regex:^(get|list)_", tags: [read], without_tags: [internal], method: GET, path: "/tickets/*", risk: read_only }], tools: [github__get_issue], exclude: ["*delete*"], instructions: "Be brief.", essential: ["*search*"], mode: search }
access:
  - { name: support-desk, when: [{ claim: realm_access.roles, contains: support }], groups: [support], active: true }
policies:
  - { name: ask-destructive, match: { group: support, risk: destructive, when: [{ claim: caller.kind, equals: jwt }] }, verdict: ask }
"#;

fn parse(text: &str, file: &str) -> Result<Config, Vec<ConfigDiagnostic>> {
    Config::parse(text, file, Path::new("/p"), Syntax::from_file_name(file), ConfigDialect::Toolcrib)
}

fn read(text: &str) -> Config {
    parse(text, "toolcrib.yaml").unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
}

fn rules(config: &Config) -> Vec<NamedRule> {
    config.rules.iter().map(|configured| configured.rule.clone()).collect()
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn condition(claim: &str, test: ClaimTest) -> ClaimCondition {
    ClaimCondition { claim: ClaimPath::parse(claim).unwrap(), test }
}

fn sample_rules() -> [NamedRule; 3] {
    let support = Group {
        title: Some("Support desk".into()),
        select: vec![Selector {
            source: Some(pattern("zendesk*")),
            name: Some(pattern("regex:^(get|list)_")),
            tags: vec!["read".into()],
            without_tags: vec!["internal".into()],
            method: Some("GET".into()),
            path: Some(pattern("/tickets/*")),
            risk: vec![Risk::ReadOnly],
        }],
        tools: vec!["github__get_issue".into()],
        exclude: vec![pattern("*delete*")],
        instructions: Some("Be brief.".into()),
        essential: vec!["*search*".into()],
        mode: Some(ExposeMode::Search),
    };
    let access = AccessRule {
        when: vec![condition("realm_access.roles", ClaimTest::Contains(json!("support")))],
        groups: vec!["support".into()],
        active: true,
    };
    let policy = Policy {
        matches: PolicyMatch {
            selector: Selector { risk: vec![Risk::Destructive], ..Selector::default() },
            group: Some("support".into()),
            when: vec![condition("caller.kind", ClaimTest::Equals(json!("jwt")))],
        },
        verdict: Verdict::Ask,
    };
    [
        NamedRule::Group("support".into(), support),
        NamedRule::Access("support-desk".into(), access),
        NamedRule::Policy("ask-destructive".into(), policy),
    ]
}

#[test]
fn the_sample_of_the_contract_is_parsed() {
    let config = read(SAMPLE);
    assert_eq!(rules(&config), sample_rules());
    let places: Vec<_> = config.rules.iter().map(|rule| (rule.file.as_str(), rule.line)).collect();
    assert_eq!(places, [("toolcrib.yaml", 2), ("toolcrib.yaml", 4), ("toolcrib.yaml", 6)]);
    assert_eq!(config.check_rules(), Ok(()));
    assert_eq!(config.warnings, []);
}

#[test]
fn rules_are_ordered_by_kind_and_then_as_in_the_file() {
    let config = read(
        "policies: [{ name: z, verdict: deny }, { name: a, verdict: disable }]\n\
         access: [{ name: all, groups: [b] }]\n\
         groups: { b: {}, a: }\n",
    );
    let names: Vec<_> =
        config.rules.iter().map(|rule| format!("{} {}", rule.rule.kind().noun(), rule.rule.name())).collect();
    assert_eq!(names, ["group b", "group a", "access rule all", "policy z", "policy a"]);
    assert!(matches!(&config.rules[4].rule, NamedRule::Policy(_, policy) if policy.verdict == Verdict::Hide));
}

#[test]
fn the_same_rules_may_be_yaml_toml_or_json() {
    let toml = r#"
[groups.support]
title = "Support desk"
tools = ["github__get_issue"]
exclude = ["*delete*"]
instructions = "Be brief."
essential = ["*search*"]
mode = "search"

[groups.support.select]
source = "zendesk*"
name = "regex:^(get|list)_"
tags = "read"
without_tags = "internal"
method = "get"
path = "/tickets/*"
risk = ["read_only", "read_only"]

[[access]]
name = "support-desk"
groups = ["support", "support"]

  [[access.when]]
  claim = "realm_access.roles"
  contains = "support"

[[policies]]
name = "ask-destructive"
verdict = "ask"
[policies.match]
group = "support"
risk = "destructive"
when = [{ claim = "caller.kind", equals = "jwt" }]
"#;
    let config = parse(toml, "toolcrib.toml").unwrap();
    assert_eq!(rules(&config), sample_rules());
    assert_eq!(config.rules.iter().map(|rule| rule.line).collect::<Vec<_>>(), [2, 19, 27]);
    let exported = export_json(&[], &in_force(&sample_rules()), Secrets::Masked).to_string();
    assert_eq!(rules(&parse(&exported, "toolcrib.json").unwrap()), sample_rules());
}

#[test]
fn values_of_conditions_keep_their_json_type() {
    let conditions = "[{ claim: a, equals: 1 }, { claim: b, equals: '1' }, { claim: c, equals: true }, { claim: d, equals: yes }, \
        { claim: e, in: [1.5, x, false] }, { claim: f, equals: { g: [1, null] } }, { claim: h, exists: yes }, \
        { claim: i, matches: 'regex:^x' }, { claim: j, not_in: [0x10] }, { claim: k, exists: false }]";
    let config = read(&format!("groups: {{ g: }}\naccess: [{{ name: a, groups: [g], when: {conditions} }}]"));
    let NamedRule::Access(_, rule) = &config.rules[1].rule else { panic!() };
    let values: Vec<_> = rule.when.iter().map(|condition| condition.test.value()).collect();
    let expected = json!([1, "1", true, "yes", [1.5, "x", false], { "g": [1, null] }, true, "regex:^x", [16], false]);
    assert_eq!(json!(values), expected);
}

#[test]
fn references_are_resolved_when_the_file_is_read() {
    let lookup = |text: &str| {
        reference::resolve_references(text, |reference| match reference {
            reference::Reference::Env { name: "TEAM", .. } => Ok("support".to_owned()),
            reference::Reference::Env { .. } | reference::Reference::File { .. } => {
                Err(format!("`{reference}` is not set"))
            }
        })
    };
    let text = "groups: { support: { title: 'Team ${env:TEAM}', select: { tags: '${env:TEAM}', source: '${env:TEAM}_*' } } }\n\
        access: [{ name: a, groups: ['${env:TEAM}'], when: [{ claim: team, in: ['${env:TEAM}', 'a$b'] }] }]\n";
    let config = Config::read_resolved(text, "toolcrib.yaml", Path::new("/p"), &lookup).unwrap();
    assert_eq!(config.check_rules(), Ok(()));
    let rules: Vec<Value> = config.rules.iter().map(|configured| rule_to_json(&configured.rule)).collect();
    assert_eq!(rules[0]["title"], "Team support");
    assert_eq!(rules[0]["select"], json!([{ "source": "support_*", "tags": ["support"] }]));
    assert_eq!(rules[1]["when"][0]["in"], json!(["support", "a$b"]));
    let unset = "policies:\n  - { name: a, match: { name: '${env:NONE}' }, verdict: deny }";
    let errors = Config::read_resolved(unset, "toolcrib.yaml", Path::new("/p"), &lookup).unwrap_err();
    assert_eq!(errors[0].to_string(), "toolcrib.yaml:2: policies[0].match.name: `${env:NONE}` is not set");
}

#[test]
fn rules_of_both_files_apply_and_names_are_unique() {
    let user = |text: &str| parse(text, "user.yaml").unwrap();
    let messages = |config: Config| {
        let errors = config.check_rules().err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let project = "access:\n  - { name: mine, groups: [support] }\npolicies:\n  - { name: p, match: { group: suport }, verdict: deny }";
    let merged = read(project).merge_over(user("groups: { support: {} }\npolicies: [{ name: q, verdict: ask }]"));
    let names: Vec<_> = merged.rules.iter().map(|rule| (rule.rule.name(), rule.file.as_str())).collect();
    let expected = [("support", "user.yaml"), ("mine", "toolcrib.yaml"), ("p", "toolcrib.yaml"), ("q", "user.yaml")];
    assert_eq!(names, expected);
    assert_eq!(
        messages(merged),
        "toolcrib.yaml:4: policies[0].match.group: unknown group `suport`; did you mean `support`?"
    );
    assert_eq!(
        messages(read(project)),
        "toolcrib.yaml:2: access[0].groups[0]: unknown group `support`\n\
         toolcrib.yaml:4: policies[0].match.group: unknown group `suport`"
    );
    // A name may be used once per kind.
    let same = read("groups: { mine: {}, support: {}, suport: {} }").merge_over(user(project));
    assert_eq!(messages(same), "");
    assert_eq!(
        messages(
            read(project).merge_over(user(
                "groups: { support: {}, suport: {} }\naccess:\n  - { name: mine, groups: [support] }"
            ))
        ),
        "user.yaml:3: access: there is another access rule `mine` in `toolcrib.yaml:2`; rename one"
    );
}

#[test]
fn shown_rules_have_their_origins() {
    let shown = show::show_config(&read(SAMPLE));
    assert_eq!(shown["groups"]["support"]["origin"], "toolcrib.yaml:2");
    assert_eq!(
        shown["access"],
        json!([{
            "name": "support-desk", "when": [{ "claim": "realm_access.roles", "contains": "support" }],
            "groups": ["support"], "active": true, "origin": "toolcrib.yaml:4",
        }])
    );
    assert_eq!(
        shown["policies"],
        json!([{
            "name": "ask-destructive",
            "match": { "risk": ["destructive"], "group": "support", "when": [{ "claim": "caller.kind", "equals": "jwt" }] },
            "verdict": "ask", "origin": "toolcrib.yaml:6",
        }])
    );
    let empty = show::show_config(&Config::default());
    assert_eq!((&empty["groups"], &empty["access"], &empty["policies"]), (&json!({}), &json!([]), &json!([])));
}

#[test]
fn a_single_definition_has_the_keys_of_a_file() {
    let group = |text: &str, file: &str| parse_rule(RuleKind::Group, "support", text, file).map(|parsed| parsed.rule);
    let expected = NamedRule::Group("support".into(), Group { tools: vec!["a__b".into()], ..Group::default() });
    assert_eq!(group("tools: [a__b]", "x.yaml").unwrap(), expected);
    assert_eq!(group("tools = ['a__b']", "x.toml").unwrap(), expected);
    assert_eq!(group(r#"{ "tools": ["a__b"], "name": "support" }"#, "-").unwrap(), expected);
    let response = r#"{ "name": "support", "title": null, "select": [], "tools": ["a__b"], "exclude": [], "instructions": null,
        "essential": [], "mode": null, "members": ["a__b"], "missing": [], "origin": "runtime" }"#;
    assert_eq!(group(response, REQUEST_BODY).unwrap(), expected);
    let access = parse_rule(RuleKind::Access, "all", "groups: [support]", "x.yaml").unwrap().rule;
    assert_eq!(rule_to_json(&access), json!({ "name": "all", "when": [], "groups": ["support"], "active": true }));
    let policy = parse_rule(RuleKind::Policy, "none", "verdict: deny", "x.yaml").unwrap().rule;
    assert_eq!(rule_to_json(&policy), json!({ "name": "none", "match": {}, "verdict": "deny" }));
    assert_eq!(
        rule_to_json(&expected),
        json!({
            "name": "support", "title": null, "select": [], "tools": ["a__b"], "exclude": [], "instructions": null,
            "essential": [], "mode": null,
        })
    );
}

#[test]
fn errors_of_a_single_definition_name_its_file() {
    let message = |kind, name, text, file| {
        let errors = parse_rule(kind, name, text, file).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (kind, name, text, file, expected) in [
        (
            RuleKind::Group,
            "a",
            "{\n\"tool\": []}",
            REQUEST_BODY,
            "request body:2: unknown key `tool`; did you mean `tools`?",
        ),
        (RuleKind::Group, "a", "tools: []", REQUEST_BODY, "request body:1:1: unexpected word"),
        (RuleKind::Group, "a", "", "x.yaml", "x.yaml:1: expected a map of keys, found nothing"),
        (RuleKind::Group, "a", "[]", "x.yaml", "x.yaml:1: expected a map of keys, found a list"),
        (RuleKind::Group, "a", "name: b", "x.yaml", "x.yaml:1: name: `b` is not the name of this definition, `a`"),
        (
            RuleKind::Access,
            "A",
            "groups: [g]",
            "x.yaml",
            "x.yaml: `A` is not a valid access rule name: use lower-case letters, digits, `_` and `-`, at most 64 characters",
        ),
        (RuleKind::Policy, "a", "match: {}", "x.yaml", "x.yaml:1: needs `verdict`: `allow`, `ask`, `deny` or `hide`"),
        (
            RuleKind::Group,
            "a",
            r#"{"tools": ["${env:HOME}"]}"#,
            REQUEST_BODY,
            "request body:1: tools[0]: `${env:HOME}` cannot be resolved here",
        ),
    ] {
        assert_eq!(message(kind, name, text, file), expected);
    }
}

fn in_force(rules: &[NamedRule]) -> AccessRules {
    let mut all = AccessRules::default();
    rules.iter().for_each(|rule| all.define(rule.clone(), Origin::Config));
    all
}

fn any_pattern() -> impl Strategy<Value = Pattern> {
    let texts = prop_oneof!["[^\\s$][^$]{0,8}", "regex:\\^[a-z]{1,5}"];
    texts.prop_filter_map("invalid", |text| Pattern::parse(&text).ok().filter(|_| !text.trim().is_empty()))
}

fn any_selector() -> impl Strategy<Value = Selector> {
    let word = || prop::collection::btree_set("[a-zé #:\"]{0,4}[a-z]", 0..3);
    let optional = || prop::option::of(any_pattern());
    let method = prop::option::of(prop::sample::select(vec!["GET", "TRACE"]));
    let risk = prop::sample::subsequence(Risk::ALL.to_vec(), 0..3);
    (optional(), optional(), optional(), word(), word(), method, risk)
        .prop_map(|(source, name, path, tags, without_tags, method, risk)| Selector {
            source,
            name,
            tags: tags.into_iter().collect(),
            without_tags: without_tags.into_iter().collect(),
            method: method.map(str::to_owned),
            path,
            risk,
        })
        .prop_filter("contradicts itself", |selector| selector.contradiction().is_none())
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 4.0)),
        "[^$]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z:# ]{1,4}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_conditions() -> impl Strategy<Value = Vec<ClaimCondition>> {
    let test = prop_oneof![
        any_value().prop_map(ClaimTest::Equals),
        any_value().prop_map(ClaimTest::NotContains),
        any_pattern().prop_map(ClaimTest::Matches),
        any::<bool>().prop_map(ClaimTest::Exists),
        prop::collection::vec(any_value(), 1..3).prop_map(ClaimTest::In),
    ];
    prop::collection::vec(test, 0..3).prop_map(|tests| {
        // A claim for each, so that no two of them contradict each other.
        tests.into_iter().enumerate().map(|(index, test)| condition(&format!("c\\.{index}.x"), test)).collect()
    })
}

fn any_rules() -> impl Strategy<Value = Vec<NamedRule>> {
    let text = || prop::option::of("[a-z][a-zé \"#]{0,8}");
    let essential = prop::collection::vec("[a-z*?]{1,5}", 0..3);
    let mode = prop::option::of(prop::sample::select(ExposeMode::ALL.to_vec()));
    let tools = prop::collection::btree_set("[a-z]{1,3}(__|/|:)[a-z.]{1,3}", 0..3);
    let select = prop::collection::vec(any_selector(), 0..3);
    let exclude = prop::collection::vec("[a-z]{1,3}\\*".prop_map(|text| pattern(&text)), 0..3);
    let group = (text(), select, tools, exclude, text(), essential, mode).prop_map(
        |(title, select, tools, exclude, instructions, essential, mode)| {
            let tools = tools.into_iter().collect();
            NamedRule::Group("my-group".into(), Group { title, select, tools, exclude, instructions, essential, mode })
        },
    );
    let access = (any_conditions(), any::<bool>()).prop_map(|(when, active)| {
        NamedRule::Access("on".into(), AccessRule { when, groups: vec!["my-group".into()], active })
    });
    let verdict = prop::sample::select(Verdict::ALL.to_vec());
    let policy =
        (any_selector(), any::<bool>(), any_conditions(), verdict).prop_map(|(selector, has_group, when, verdict)| {
            let group = has_group.then(|| "my-group".to_owned());
            NamedRule::Policy("9".into(), Policy { matches: PolicyMatch { selector, group, when }, verdict })
        });
    (group, access, policy).prop_map(|(group, access, policy)| vec![group, access, policy])
}

proptest! {
    #[test]
    fn written_rules_read_back_to_the_same(all in any_rules()) {
        let text = export(&[], &in_force(&all), Secrets::Masked);
        let config = parse(&text, "toolcrib.yaml").unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        prop_assert_eq!(&rules(&config), &all, "{}", text);
        let text = export_json(&[], &in_force(&all), Secrets::Masked).to_string();
        prop_assert_eq!(&rules(&parse(&text, "toolcrib.json").unwrap()), &all, "{}", text);
        for rule in all {
            let text = rule_to_json(&rule).to_string();
            let parsed = parse_rule(rule.kind(), rule.name(), &text, REQUEST_BODY).map(|parsed| parsed.rule);
            prop_assert_eq!(parsed, Ok(rule), "{}", text);
        }
    }

    #[test]
    fn reading_rules_never_panics(lines in "([a-z:{}\\[\\]\", \\-']|groups|access|policies|select|when|claim|equals|: ){0,60}") {
        for section in ["groups", "access", "policies"] {
            let _ = parse(&format!("{section}: {lines}"), "toolcrib.yaml");
        }
        for kind in RuleKind::ALL {
            let _ = parse_rule(kind, "a", &lines, "x.yaml");
        }
    }
}
