//! Views by scope compared with a plain evaluation of the same rules: random catalogues, groups, access rules, policies
//! and callers. The plain evaluation works on the JSON of the rules and shares no code with the real one, apart from the
//! rules of sources.

mod plain;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};
use toolcrib_core::SourceId;
use toolcrib_core::access::Role;
use toolcrib_core::access_rules::{AccessRules, NamedRule, SourceVerdict};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Origin, SourceState};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::policy::{Rule, Rules};
use toolcrib_core::principal::{Claims, Principal, PrincipalIdentity, ViewNarrowing};
use toolcrib_core::tool::EXECUTION_SPEC_KEY;

use super::*;
use crate::{Catalog, Segment, SourceOptions, View};

const SOURCES: [(&str, &str); 3] = [("core", "builtin"), ("git", "mcp"), ("zendesk_eu", "openapi")];
const NAMES: [&str; 5] = ["get_issue", "list_issues", "delete_repo", "search", "a.b"];
const TAGS: [&str; 3] = ["read", "internal", "tickets"];
const METHODS: [&str; 4] = ["GET", "HEAD", "POST", "DELETE"];
const PATHS: [&str; 2] = ["/tickets/{id}", "/users"];
const PATTERNS: [&str; 9] =
    ["*", "git*", "*issue*", "zendesk_eu", "get_?ssue", "regex:^(get|list)_", "regex:delete", "/tickets/*", "core"];
const GROUPS: [&str; 3] = ["a", "b", "c"];
/// Groups that rules refer to, one of which does not exist.
const REFERENCES: [&str; 4] = ["a", "b", "c", "gone"];
const CLAIMS: [&str; 8] =
    ["team", "roles", "level", "deep.a\\.b", "caller.kind", "caller.role", "caller.issuer", "caller.token"];

/// A tool of a random catalogue.
#[derive(Debug, Clone)]
struct RuledTool {
    name: &'static str,
    tags: Vec<&'static str>,
    method: &'static str,
    path: &'static str,
    /// Values of `readOnlyHint`, `destructiveHint` and `openWorldHint`.
    hints: [Option<bool>; 3],
}

#[derive(Debug, Clone)]
struct RuledSource {
    id: &'static str,
    kind: &'static str,
    tools: Vec<RuledTool>,
    tags: Vec<&'static str>,
    trust_hints: bool,
    rule: Option<(&'static str, Verdict)>,
}

/// Rules as JSON, by name.
#[derive(Debug, Clone, Default)]
struct SampleRules {
    groups: BTreeMap<&'static str, Value>,
    access: Vec<Value>,
    policies: Vec<Value>,
}

#[derive(Debug, Clone)]
struct SampleCaller {
    kind: &'static str,
    role: Role,
    groups: Vec<&'static str>,
    claims: Value,
    narrowing: ViewNarrowing,
}

fn pick<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(values)
}

fn some_of(values: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(values, 0..=values.len())
}

fn sample_tool(name: &'static str) -> impl Strategy<Value = RuledTool> {
    let hint = || prop::option::of(any::<bool>());
    (some_of(&TAGS), pick(&METHODS), pick(&PATHS), [hint(), hint(), hint()])
        .prop_map(move |(tags, method, path, hints)| RuledTool { name, tags, method, path, hints })
}

fn sample_source((id, kind): (&'static str, &'static str)) -> impl Strategy<Value = RuledSource> {
    let rules =
        vec![None, None, Some(("get_*", Verdict::Hide)), Some(("*", Verdict::Ask)), Some(("a.b", Verdict::Deny))];
    let tools = NAMES.map(|name| prop::option::weighted(0.8, sample_tool(name)));
    (tools, some_of(&TAGS[..1]), any::<bool>(), prop::sample::select(rules)).prop_map(
        move |(tools, tags, trust_hints, rule)| {
            let tools = tools.into_iter().flatten().collect();
            RuledSource { id, kind, tools, tags, trust_hints, rule }
        },
    )
}

fn sample_sources() -> impl Strategy<Value = Vec<RuledSource>> {
    SOURCES.map(sample_source).prop_map(Vec::from)
}

/// A value with a key, or nothing.
fn maybe(
    key: &'static str,
    value: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Option<(&'static str, Value)>> {
    prop::option::weighted(0.3, value.prop_map(move |value| (key, value)))
}

fn to_object(fields: Vec<Option<(&'static str, Value)>>) -> Value {
    fields.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
}

fn pattern() -> impl Strategy<Value = Value> {
    pick(&PATTERNS).prop_map(Value::from)
}

fn sample_selector() -> impl Strategy<Value = Value> {
    let risks = ["read_only", "writes", "destructive", "open_world"];
    let risk = prop::sample::subsequence(Vec::from(risks), 1..=2).prop_map(|risks| json!(risks));
    let fields = (
        maybe("source", pattern()),
        maybe("name", pattern()),
        maybe("tags", some_of(&TAGS).prop_map(|tags| json!(tags))),
        maybe("without_tags", some_of(&TAGS).prop_map(|tags| json!(tags))),
        maybe("method", pick(&METHODS).prop_map(Value::from)),
        maybe("path", pattern()),
        maybe("risk", risk),
    );
    fields.prop_map(|(a, b, c, d, e, f, g)| to_object(vec![a, b, c, d, e, f, g]))
}

fn sample_group() -> impl Strategy<Value = Value> {
    const TOOLS: [&str; 4] = ["git__search", "zendesk_eu/a.b", "search", "gone__tool"];
    let parts = (prop::collection::vec(sample_selector(), 0..3), some_of(&TOOLS), prop::option::of(pattern()));
    parts.prop_map(|(select, tools, exclude)| {
        json!({ "select": select, "tools": tools, "exclude": exclude.into_iter().collect::<Vec<_>>() })
    })
}

/// A random claim with a random test. Values are those that callers have, parts of them, and others of each JSON type.
fn sample_condition() -> impl Strategy<Value = Value> {
    let values = [
        json!("support"),
        json!("sup"),
        json!("dev"),
        json!(1),
        json!("1"),
        json!(true),
        json!(["dev"]),
        json!("jwt"),
        json!("admin"),
        json!("https://id"),
        json!("0123456789ab"),
    ];
    let value = prop::sample::select(Vec::from(values));
    let test = pick(&["equals", "not_equals", "contains", "not_contains", "matches", "exists", "in", "not_in"]);
    let values =
        (prop::collection::vec(value, 1..3), pick(&["*", "s*", "d?v", "http*", "regex:^(get|list)_"]), any::<bool>());
    (pick(&CLAIMS), test, values).prop_map(|(claim, test, (values, pattern, exists))| {
        let value = match test {
            "matches" => json!(pattern),
            "exists" => json!(exists),
            "in" | "not_in" => json!(values),
            _ => values[0].clone(),
        };
        json!({ "claim": claim, test: value })
    })
}

fn sample_rules() -> impl Strategy<Value = SampleRules> {
    let conditions = || prop::collection::vec(sample_condition(), 0..3);
    let access = (conditions(), prop::sample::subsequence(&REFERENCES[..], 1..=2), prop::bool::weighted(0.8))
        .prop_map(|(when, groups, active)| json!({ "when": when, "groups": groups, "active": active }));
    let verdict = pick(&["allow", "ask", "deny", "hide"]);
    let policy = (sample_selector(), prop::option::weighted(0.4, pick(&REFERENCES)), conditions(), verdict);
    let policy = policy.prop_map(|(mut selector, group, when, verdict)| {
        selector["when"] = json!(when);
        if let Some(group) = group {
            selector["group"] = json!(group);
        }
        json!({ "match": selector, "verdict": verdict })
    });
    let groups = GROUPS.map(|_| sample_group());
    (groups, prop::collection::vec(access, 0..3), prop::collection::vec(policy, 0..3)).prop_map(
        |(groups, access, policies)| {
            let groups = GROUPS.into_iter().zip(groups).collect();
            SampleRules { groups, access, policies }
        },
    )
}

fn sample_caller() -> impl Strategy<Value = SampleCaller> {
    let team = [json!("support"), json!("sales"), json!(["support", "dev"]), json!([["dev"]])];
    let claims = (
        maybe("team", prop::sample::select(Vec::from(team))),
        maybe("roles", some_of(&["dev", "ops"]).prop_map(|roles| json!(roles))),
        maybe("level", prop::sample::select(vec![json!(1), json!("1"), json!(null), json!([1, true])])),
        maybe("deep", Just(json!({ "a.b": true }))),
    );
    let claims = claims.prop_map(|(a, b, c, d)| to_object(vec![a, b, c, d]));
    let groups = prop_oneof![3 => Just(Vec::new()), 1 => some_of(&["a", "b", "none"])];
    let only = prop_oneof![3 => Just(Vec::new()), 1 => some_of(&["git*", "*issue*", "a.b"])];
    let narrowing = (any::<bool>(), prop::option::weighted(0.3, pick(&REFERENCES)), only);
    let narrowing = narrowing.prop_map(|(as_agent, group, only)| ViewNarrowing {
        as_agent,
        group: group.map(str::to_owned),
        only: only.into_iter().map(str::to_owned).collect(),
    });
    let roles = [Role::Viewer, Role::Agent, Role::Admin];
    (pick(&PrincipalIdentity::KINDS), prop::sample::select(Vec::from(roles)), groups, claims, narrowing)
        .prop_map(|(kind, role, groups, claims, narrowing)| SampleCaller { kind, role, groups, claims, narrowing })
}

fn build_source(sample: &RuledSource) -> Arc<CatalogSource> {
    let id = SourceId::parse(sample.id).unwrap();
    let tools = sample.tools.iter().map(|tool| {
        let mut json = json!({ "name": tool.name });
        for (hint, value) in ["readOnlyHint", "destructiveHint", "openWorldHint"].iter().zip(tool.hints) {
            if let Some(value) = value {
                json["annotations"][hint] = json!(value);
            }
        }
        // What a server of another kind than `openapi` sends in this field must not count.
        let execution = json!({ "mode": "sync_http", "method": tool.method, "server": "https://x", "path": tool.path });
        json[EXECUTION_SPEC_KEY] = json!({ "execution": execution, "tags": tool.tags });
        to_raw_value(&json).unwrap()
    });
    let tools: Vec<_> = tools.collect();
    let packed = PackedManifest::new(&Manifest::new(&id, &tools, Vec::new(), &ToolLimits::default())).unwrap();
    let packed = Arc::new(packed);
    let state = SourceState::new(sample.kind, Origin::Config, Fingerprint::digest("x"), None);
    let rule = sample.rule.map(|(glob, verdict)| Rule { glob: glob.into(), verdict });
    let options = SourceOptions {
        kind: sample.kind.into(),
        builtin: sample.kind == "builtin",
        keep_conflicts: true,
        rules: Rules::new(rule.into_iter().collect()),
        tags: sample.tags.iter().map(|tag| (*tag).to_owned()).collect(),
        trust_hints: sample.trust_hints,
        ..SourceOptions::default()
    };
    let segment = if options.builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) };
    Arc::new(CatalogSource::new(Arc::new(segment), Arc::new(state), options))
}

fn build_rules(sample: &SampleRules) -> Arc<AccessRules> {
    let mut rules = AccessRules::default();
    for (name, group) in &sample.groups {
        let group = serde_json::from_value(group.clone()).unwrap();
        rules.define(NamedRule::Group((*name).to_owned(), group), Origin::Config);
    }
    for (index, rule) in sample.access.iter().enumerate() {
        let rule = serde_json::from_value(rule.clone()).unwrap();
        rules.define(NamedRule::Access(format!("rule{index}"), rule), Origin::Runtime);
    }
    for (index, policy) in sample.policies.iter().enumerate() {
        let policy = serde_json::from_value(policy.clone()).unwrap();
        rules.define(NamedRule::Policy(format!("policy{index}"), policy), Origin::Runtime);
    }
    Arc::new(rules)
}

fn build_caller(sample: &SampleCaller) -> Principal {
    let identity = match sample.kind {
        "jwt" => PrincipalIdentity::Jwt { issuer: "https://id".into(), sub: "ada".into() },
        "token" => PrincipalIdentity::Token { id: "0123456789ab".into() },
        "console" => PrincipalIdentity::Console { token: "0123456789ab".into() },
        _ => PrincipalIdentity::Local,
    };
    let claims = Claims::new(sample.claims.as_object().unwrap().clone()).unwrap();
    let groups: Vec<String> = sample.groups.iter().map(|group| (*group).to_owned()).collect();
    let principal = Principal::new(identity, "ada", sample.role).with_claims(claims).with_groups(groups);
    principal.narrowed(sample.narrowing.clone())
}

/// Tools that a view must show, with their verdicts.
fn expected_tools(
    catalog: &Arc<Catalog>,
    sources: &[RuledSource],
    rules: &SampleRules,
    caller: &SampleCaller,
) -> BTreeMap<String, Verdict> {
    let full = View::full(catalog.clone());
    let mut expected = BTreeMap::new();
    for source in sources {
        for tool in &source.tools {
            let id = SourceId::parse(source.id).unwrap();
            let listed = full.included_tool(&id, tool.name).unwrap();
            let verdict = plain::verdict(rules, caller, source, tool, listed.source_verdict());
            if plain::is_visible(rules, caller, source, tool, verdict) {
                expected.insert(listed.name().to_string(), verdict);
            }
        }
    }
    expected
}

/// Checks that an explanation has the plain verdict, and every policy that matches.
fn check_explanation(
    catalog: &Arc<Catalog>,
    (rules, sample): (&Arc<AccessRules>, &SampleRules),
    (principal, caller): (&Principal, &SampleCaller),
    (source, tool): (&RuledSource, &RuledTool),
) -> Result<(), TestCaseError> {
    let full = View::full(catalog.clone());
    let listed = full.included_tool(&SourceId::parse(source.id).unwrap(), tool.name).unwrap();
    let source_verdict = SourceVerdict { verdict: listed.source_verdict(), glob: None };
    let explanation = listed.with_facts(|facts| rules.explain(principal, facts, &source_verdict));
    let verdict = plain::verdict(sample, caller, source, tool, source_verdict.verdict);
    let is_visible = plain::is_visible(sample, caller, source, tool, verdict);
    prop_assert_eq!((explanation.verdict, explanation.visible), (verdict, is_visible), "{:?} {:?}", caller, tool);
    let explained: Vec<(String, String)> = explanation
        .rules
        .into_iter()
        .filter(|rule| rule.kind == "policy")
        .map(|rule| (rule.name, rule.effect))
        .collect();
    let policies = plain::matching_policies(sample, caller, source, tool).into_iter();
    let policies = policies.map(|(index, verdict)| (format!("policy{index}"), verdict.as_str().to_owned()));
    prop_assert_eq!(explained, policies.collect::<Vec<_>>());
    Ok(())
}

fn shown_tools(view: &View) -> BTreeMap<String, Verdict> {
    view.tools().map(|tool| (tool.name().to_string(), tool.verdict())).collect()
}

proptest! {
    #[test]
    fn a_view_shows_what_the_rules_say(
        sources in sample_sources(),
        other in sample_source(SOURCES[1]),
        rules in prop::collection::vec(sample_rules(), 2),
        callers in prop::collection::vec(sample_caller(), 1..5),
    ) {
        let built: Vec<_> = sources.iter().map(build_source).collect();
        let catalog = Arc::new(Catalog::build(1, built.clone()));
        // A later catalogue shares the sources that did not change.
        let mut changed = sources.clone();
        changed[1] = other;
        let later = vec![built[0].clone(), build_source(&changed[1]), built[2].clone()];
        let later = Arc::new(Catalog::build(2, later));
        let mut keys: BTreeMap<String, BTreeMap<String, Verdict>> = BTreeMap::new();
        let principals: Vec<Principal> = callers.iter().map(build_caller).collect();
        for sample in &rules {
            let rules = build_rules(sample);
            for (caller, principal) in callers.iter().zip(&principals) {
                for (catalog, sources) in [(&catalog, &sources), (&later, &changed), (&catalog, &sources)] {
                    let scope = rules.scope(principal);
                    let view = View::for_scope(catalog.clone(), &scope);
                    let expected = expected_tools(catalog, sources, sample, caller);
                    prop_assert_eq!(&shown_tools(&view), &expected, "{:?}", caller);
                    prop_assert_eq!(view.tool_count(), expected.len());
                    // What is left out is not found, and denied tools are found for calls alone.
                    for source in sources {
                        for tool in &source.tools {
                            let id = SourceId::parse(source.id).unwrap();
                            let is_included = plain::is_included(sample, caller, source, tool);
                            prop_assert_eq!(view.included_tool(&id, tool.name).is_some(), is_included);
                            check_explanation(catalog, (&rules, sample), (principal, caller), (source, tool))?;
                        }
                    }
                    if Arc::ptr_eq(catalog, &later) {
                        continue;
                    }
                    let known = keys.entry(view.key().to_string()).or_insert_with(|| expected.clone());
                    prop_assert_eq!(&*known, &expected, "views with equal keys show the same");
                }
            }
        }
    }
}
