//! Groups, access rules and policies: what callers see and may call, where the rules come from, and what a change does.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::core::access::Role;
use toolcrib::core::access_rules::{ClaimCondition, NamedRule, RuleKind};
use toolcrib::core::inventory::{Actor, Origin};
use toolcrib::core::policy::Verdict;
use toolcrib::core::principal::{Claims, PrincipalIdentity};
use toolcrib::registry::{HistoryQuery, PreviewCaller, RuleChange, TokenRequest};
use toolcrib::testkit::{ScriptedSource, open_with_connectors};
use toolcrib::{Code, Principal, Registry};

use crate::support::{TestRegistry, config, id, list_tools, open_yaml};

const SOURCES: &str = "sources: { git: { command: scripted }, shop: { command: scripted } }\n";
const RULES: &str = "
groups:
  readers: { select: { name: \"read_*\" } }
  git: { select: { source: git } }
access:
  - { name: support, when: [{ claim: team, equals: support }], groups: [readers] }
  - { name: dev, when: [{ claim: roles, contains: dev }], groups: [git] }
policies:
  - { name: no-push, match: { name: push, when: [{ claim: caller.kind, equals: jwt }] }, verdict: deny }
";

async fn open(rules: &str) -> (TestRegistry, Arc<ScriptedSource>, Arc<ScriptedSource>) {
    let git = ScriptedSource::new(["push", "read_log"]);
    let shop = ScriptedSource::new(["read_orders", "wipe"]);
    let fixture = open_yaml(&format!("{SOURCES}{rules}"), &[("git", &git), ("shop", &shop)]).await;
    list_tools(&fixture).await;
    (fixture, git, shop)
}

fn actor() -> Actor {
    Actor::new("test")
}

fn jwt(claims: Value) -> Principal {
    let identity = PrincipalIdentity::Jwt { issuer: "https://id.example".into(), sub: "ada".into() };
    let claims = Claims::new(claims.as_object().unwrap().clone()).unwrap();
    Principal::new(identity, "jwt:ada", Role::Agent).with_claims(claims)
}

fn admin() -> Principal {
    Principal::local("root").with_role(Role::Admin)
}

fn seen(registry: &Registry, principal: &Principal) -> Vec<String> {
    registry.view(principal).offered_tools().map(|tool| tool.name().to_string()).collect()
}

fn group(name: &str, definition: Value) -> NamedRule {
    NamedRule::Group(name.to_owned(), serde_json::from_value(definition).unwrap())
}

fn access(name: &str, definition: Value) -> NamedRule {
    NamedRule::Access(name.to_owned(), serde_json::from_value(definition).unwrap())
}

fn policy(name: &str, definition: Value) -> NamedRule {
    NamedRule::Policy(name.to_owned(), serde_json::from_value(definition).unwrap())
}

#[tokio::test]
async fn callers_see_the_groups_that_rules_give_them() {
    let (registry, ..) = open(RULES).await;
    for (caller, expected) in [
        (jwt(json!({"team": "support"})), vec!["git__read_log", "shop__read_orders"]),
        (jwt(json!({"roles": ["dev"]})), vec!["git__read_log"]),
        (jwt(json!({"team": "support", "roles": ["dev"]})), vec!["git__read_log", "shop__read_orders"]),
        (jwt(json!({"team": "sales"})), vec![]),
        (Principal::local("agent"), vec![]),
        (admin(), vec!["git__push", "git__read_log", "shop__read_orders", "shop__wipe"]),
        (admin().with_groups(["git".to_owned()]), vec!["git__push", "git__read_log"]),
        (Principal::local("x").with_groups(["readers".to_owned()]), vec!["git__read_log", "shop__read_orders"]),
        (Principal::local("x").with_groups(["gone".to_owned()]), vec![]),
    ] {
        assert_eq!(seen(&registry, &caller), expected, "{caller:?}");
    }
    let support = jwt(json!({"team": "support"}));
    let visibility = registry.visibility(&support);
    assert!(visibility.shows_source(&id("shop")) && !registry.visibility(&jwt(json!({}))).shows_source(&id("git")));
    let statistics = registry.statistics_for(&support).totals();
    assert_eq!(statistics.tool_count, 2);
}

#[tokio::test]
async fn calls_outside_the_callers_groups_are_calls_of_unknown_tools() {
    let (registry, git, shop) = open(RULES).await;
    let dev = jwt(json!({"roles": ["dev"]}));
    let call = async |caller: &Principal, name: &str| registry.call(name, json!({})).caller(caller.clone()).await;
    call(&dev, "git__read_log").await.unwrap();
    let hidden = call(&dev, "shop__wipe").await.unwrap_err();
    let unknown = call(&dev, "shop__gone").await.unwrap_err();
    assert_eq!((hidden.code, unknown.code), (Code::ToolNotImplemented, Code::ToolNotImplemented));
    let without_name = |error: &toolcrib::Error, name: &str| error.message.replace(name, "X");
    assert_eq!(without_name(&hidden, "shop__wipe"), without_name(&unknown, "shop__gone"));
    assert_eq!(hidden.details, unknown.details);
    let denied = call(&dev, "git__push").await.unwrap_err();
    assert_eq!(denied.code, Code::Forbidden);
    assert!(denied.message.contains("policy `no-push`"), "{}", denied.message);
    assert_eq!((git.calls(), shop.calls()), (1, 0));
    // The verdict of the policy is for callers of identity providers alone.
    call(&admin(), "git__push").await.unwrap();
}

#[tokio::test]
async fn rules_of_the_configuration_are_recorded_and_cannot_be_changed_at_run_time() {
    let (registry, ..) = open(RULES).await;
    let rules = registry.rules();
    assert_eq!(rules.in_force().iter().filter(|(_, origin)| *origin == Origin::Config).count(), 5);
    let error = rules.define(group("git", json!({"select": [{}]})), actor()).await.unwrap_err();
    assert_eq!((error.code, error.is_retryable()), (Code::Conflict, false));
    assert!(error.message.contains("toolcrib.yaml:5"), "{}", error.message);
    assert_eq!(rules.remove(RuleKind::Group, "git", actor()).await.unwrap_err().code, Code::Conflict);
    let page = registry.history().page(&HistoryQuery::after(0)).await.unwrap();
    let defined: Vec<&str> = page.records.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(defined.iter().filter(|kind| **kind == "AccessRuleDefined").count(), 2);
    assert!(page.records.iter().filter(|record| record.kind == "PolicyDefined").all(|record| record.actor == "config"));
    // Another configuration replaces them, and leaves those that were defined at run time.
    rules.define(policy("mine", json!({"match": {"source": "shop"}, "verdict": "ask"})), actor()).await.unwrap();
    registry.configuration().apply(&config(SOURCES)).await.unwrap();
    let left: Vec<String> = rules.in_force().iter().map(|(rule, _)| rule.name().to_owned()).collect();
    assert_eq!(left, ["mine"]);
    assert_eq!(seen(&registry, &Principal::local("agent")).len(), 4);
}

/// Work grows with what changed: views keep what they have computed from sources that stay as they are.
#[tokio::test]
async fn changed_rules_rebuild_no_source() {
    let (registry, ..) = open(RULES).await;
    let before = registry.unrestricted_catalog();
    let is_kept = || {
        let after = registry.unrestricted_catalog();
        before.sources().zip(after.sources()).all(|(old, new)| Arc::ptr_eq(old, new))
    };
    let policy = policy("mine", json!({"match": {"source": "shop"}, "verdict": "ask"}));
    registry.rules().define(policy, actor()).await.unwrap();
    assert!(is_kept());
    registry
        .configuration()
        .apply(&config(&format!("{SOURCES}policies: [{{ name: x, verdict: ask }}]")))
        .await
        .unwrap();
    assert!(is_kept());
    assert_eq!(registry.rules().in_force().policies().count(), 2);
}

/// A process without a configuration file, such as a command with `--data` alone, shares the store with a server.
#[tokio::test]
async fn a_process_without_a_configuration_file_keeps_the_rules_of_the_file() {
    let (registry, ..) = open(RULES).await;
    let without_file = Config { replaces_rules: false, ..config(SOURCES) };
    let other = open_with_connectors(without_file, registry.options.clone(), registry.factory.clone()).await.unwrap();
    let support = jwt(json!({"team": "support"}));
    for registry in [&other, &registry.registry] {
        assert_eq!(registry.rules().in_force().iter().count(), 5);
        assert_eq!(seen(registry, &support), ["git__read_log", "shop__read_orders"]);
        assert_eq!(seen(registry, &Principal::local("agent")), [""; 0]);
    }
    // It may define its own, and does not change the others.
    let own = "policies: [{ name: own, match: { name: read_log }, verdict: deny }]\n";
    let own = Config { replaces_rules: false, ..config(&format!("{SOURCES}{own}")) };
    other.configuration().apply(&own).await.unwrap();
    assert_eq!(seen(&other, &support), ["shop__read_orders"]);
    assert_eq!(other.rules().in_force().iter().count(), 6);
    other.close().await;
}

#[tokio::test]
async fn a_group_of_the_file_stays_while_rules_defined_at_run_time_refer_to_it() {
    let (registry, ..) = open(RULES).await;
    let mine = policy("mine", json!({"match": {"group": "git"}, "verdict": "hide"}));
    registry.rules().define(mine, actor()).await.unwrap();
    let local = Principal::local("agent");
    for rules in ["", "groups: { readers: {} }"] {
        let without = config(&format!("{SOURCES}{rules}"));
        let error = registry.configuration().apply(&without).await.unwrap_err();
        let message = "group `git` is used by policy `mine`, defined at run time; keep the group in the configuration, or \
                       change or remove them first";
        assert_eq!((error.code, error.message.as_str()), (Code::ConfigInvalid, message));
        assert_eq!(registry.rules().in_force().iter().count(), 6, "the rules in force stay");
    }
    // A start applies the rest, so that the policy can be removed.
    let other = registry.open_again(SOURCES).await;
    let left: Vec<String> = other.rules().in_force().iter().map(|(rule, _)| rule.to_string()).collect();
    assert_eq!(left, ["group `git`", "policy `mine`"]);
    assert_eq!(seen(&other, &local), ["shop__read_orders", "shop__wipe"]);
    other.rules().remove(RuleKind::Policy, "mine", actor()).await.unwrap();
    other.configuration().apply(&config(SOURCES)).await.unwrap();
    assert!(other.rules().in_force().is_empty());
    other.close().await;
}

#[tokio::test]
async fn rules_are_defined_explained_and_previewed() {
    let (registry, ..) = open("").await;
    let rules = registry.rules();
    let local = Principal::local("local");
    assert_eq!(seen(&registry, &local).len(), 4);
    assert!(
        rules
            .define(group("git", json!({"select": [{"source": "git"}], "tools": ["gone__x"]})), actor())
            .await
            .unwrap()
    );
    assert!(
        !rules
            .define(group("git", json!({"select": [{"source": "git"}], "tools": ["gone__x"]})), actor())
            .await
            .unwrap()
    );
    let members = rules.members(rules.in_force().group("git").unwrap());
    assert_eq!(json!(members), json!({"members": ["git__push", "git__read_log"], "missing": ["gone__x"]}));
    let unknown = access("all", json!({"groups": ["gti"]}));
    assert_eq!(rules.define(unknown, actor()).await.unwrap_err().code, Code::ConfigInvalid);

    let token = TokenRequest { claims: json!({"team": "a"}).as_object().unwrap().clone(), ..request("ci") };
    registry.tokens().create_from(token, actor()).await.unwrap();
    let team = access("team", json!({"when": [{"claim": "team", "equals": "a"}], "groups": ["git"]}));
    let preview = rules.preview(&RuleChange::Define(Box::new(team.clone())), &[]).unwrap();
    let loses = |caller: &str| {
        let change = preview.callers.iter().find(|change| change.caller == caller).unwrap();
        (change.tools.gains_count, change.tools.loses.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(loses("ci"), (0, vec!["shop__read_orders".to_owned(), "shop__wipe".to_owned()]));
    assert_eq!(loses("local").1.len(), 4);
    assert_eq!(seen(&registry, &local).len(), 4, "a preview changes nothing");
    rules.define(team, actor()).await.unwrap();
    assert!(rules.leave_local_without_tools());
    assert_eq!(rules.remove(RuleKind::Group, "git", actor()).await.unwrap_err().code, Code::Conflict, "it is in use");

    rules.define(policy("ask", json!({"match": {"group": "git"}, "verdict": "ask"})), actor()).await.unwrap();
    let ci = rules.preview_principal(&PreviewCaller::Token("ci".into())).unwrap();
    let explanation = rules.explain(&admin(), &ci, "git__push").unwrap();
    assert_eq!(
        json!(explanation),
        json!({"verdict": "ask", "visible": true, "rules": [
            {"kind": "access", "name": "team", "effect": "gives `git`"},
            {"kind": "group", "name": "git", "effect": "has the tool"},
            {"kind": "policy", "name": "ask", "effect": "ask"},
        ]})
    );
    let explanation = rules.explain(&admin(), &ci, "shop__wipe").unwrap();
    assert_eq!((explanation.verdict, explanation.visible), (Verdict::Hide, false));
    assert_eq!(rules.explain(&ci, &ci, "shop__wipe").unwrap_err().code, Code::ToolNotImplemented);
    let access = rules.access_to("git__push", std::slice::from_ref(&ci)).unwrap();
    assert_eq!(json!(access.groups), json!([{"name": "git", "access": ["team"]}]));
    let visible: Vec<(&str, bool)> =
        access.callers.iter().map(|caller| (caller.caller.as_str(), caller.explanation.visible)).collect();
    assert_eq!(visible, [("local", false), ("ci", true)]);
}

#[tokio::test]
async fn a_previewed_caller_has_the_role_and_issuer_of_the_configuration() {
    let issuer =
        |name: &str, roles: &str| format!("{{ issuer: \"https://{name}\", audience: a, roles: {{ {roles} }} }}");
    let preview = async |issuers: &[String], claims: Value| {
        let (registry, ..) = open(&format!("identity: {{ issuers: [{}] }}\n", issuers.join(", "))).await;
        let claims = PreviewCaller::Claims(claims.as_object().unwrap().clone());
        let principal = registry.rules().preview_principal(&claims)?;
        let has_issuer: ClaimCondition =
            serde_json::from_value(json!({"claim": "caller.issuer", "exists": true})).unwrap();
        assert_eq!(has_issuer.holds(&principal), principal.identity().issuer() != Some(""));
        let issuer = principal.identity().issuer().unwrap().to_owned();
        Ok::<(Role, String), toolcrib::Error>((principal.role(), issuer))
    };
    let issuers = [issuer("one", "claim: team, viewer: desk, admin: ops"), issuer("other", "default: agent")];
    for (count, claims, expected) in [
        (0, json!({}), (Role::Agent, "")),
        (0, json!({"iss": "https://x"}), (Role::Agent, "https://x")),
        (1, json!({"team": "desk"}), (Role::Viewer, "https://one")),
        (1, json!({"team": ["desk", "ops"]}), (Role::Admin, "https://one")),
        (2, json!({}), (Role::Agent, "")),
        (2, json!({"iss": "https://other"}), (Role::Agent, "https://other")),
    ] {
        let found = preview(&issuers[..count], claims.clone()).await.unwrap();
        assert_eq!((found.0, found.1.as_str()), expected, "{claims}");
    }
    let refused = preview(&issuers[..1], json!({"team": "sales"})).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    assert!(refused.message.contains("no access: it has none of the roles of `https://one`"), "{refused}");
}

fn request(name: &str) -> TokenRequest {
    TokenRequest { name: name.into(), role: Role::Agent, expires: None, groups: Vec::new(), claims: Default::default() }
}

#[tokio::test]
async fn history_of_rules_is_for_administrators() {
    let (registry, ..) = open(RULES).await;
    let kinds = async |principal: &Principal| -> Vec<String> {
        let page = registry.history_for(principal).page(&HistoryQuery::after(0)).await.unwrap();
        page.records.into_iter().map(|record| record.kind).collect()
    };
    assert!(kinds(&admin()).await.contains(&"GroupDefined".to_owned()));
    let support = kinds(&jwt(json!({"team": "support"}))).await;
    assert!(support.contains(&"InventoryRecorded".to_owned()) && !support.iter().any(|kind| kind.contains("Defined")));
    let page = registry.history_for(&jwt(json!({"team": "support"}))).page(&HistoryQuery::after(0)).await.unwrap();
    let text = serde_json::to_string(&page.records.iter().map(|record| &record.data).collect::<Vec<_>>()).unwrap();
    assert!(text.contains("read_orders") && !text.contains("wipe") && !text.contains("push"), "{text}");
}
