//! Checks of groups, access rules and tokens: what has no effect, or refers to what is not there.

use toolcrib::Principal;
use toolcrib::core::access_rules::{AccessRules, NamedRule, RuleKind};
use toolcrib::core::inventory::Origin;
use toolcrib::registry::{GroupMembers, PreviewCaller};

use super::DoctorCheck;
use crate::plural::{join_truncated, pluralize};
use crate::session::CliSession;

/// Further names are only counted.
const MAX_LISTED_NAMES: usize = 5;

/// Checks the rules in force, and the groups of tokens. Empty where there are neither.
pub(super) fn check_rules(session: &CliSession) -> Vec<DoctorCheck> {
    let rules = session.registry.rules().in_force();
    let mut checks = Vec::new();
    if !rules.is_empty() {
        checks.push(count_rules(&rules));
    }
    checks.extend(check_origins(session, &rules));
    checks.extend(check_groups(session, &rules));
    checks.extend(check_access(session, &rules));
    checks.extend(check_tokens(session, &rules));
    if session.registry.rules().leave_local_without_tools() {
        let message = "agents on this machine without a token, and `toolcrib mcp`, see no tool";
        let fix =
            "intended? If not, give them a group: an access rule with `when: [{ claim: caller.kind, equals: local }]`";
        checks.push(DoctorCheck::ok("access", message).with_fix(fix));
    }
    checks
}

fn count_rules(rules: &AccessRules) -> DoctorCheck {
    let count = |kind: RuleKind, noun: &str| pluralize(rules.count(kind), noun);
    let policies = match rules.count(RuleKind::Policy) {
        1 => "1 policy".to_owned(),
        count => format!("{count} policies"),
    };
    let (groups, access) = (count(RuleKind::Group, "group"), count(RuleKind::Access, "access rule"));
    DoctorCheck::ok("access", format!("{groups}, {access}, {policies}"))
}

/// Reports rules of a configuration that are in force and not in the one that was read.
fn check_origins(session: &CliSession, rules: &AccessRules) -> Option<DoctorCheck> {
    let is_read = |rule: &NamedRule| session.registry.rules().configured_at(rule.kind(), rule.name()).is_some();
    let unread = rules.iter().filter(|(rule, origin)| *origin == Origin::Config && !is_read(rule));
    let unread: Vec<String> = unread.map(|(rule, _)| rule.to_string()).collect();
    let message =
        format!("in force, but not in the configuration that was read: {}", join_truncated(&unread, MAX_LISTED_NAMES));
    let fix = "`--config FILE` names the file that defines them; a file without them removes them, except groups that \
               rules defined at run time refer to";
    (!unread.is_empty()).then(|| DoctorCheck::warn("access".to_owned(), message, fix))
}

/// Reports groups that name tools that are not there, and groups without tools.
fn check_groups(session: &CliSession, rules: &AccessRules) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    for group in rules.groups() {
        let check_name = format!("group {}", group.name);
        let GroupMembers { members, missing } = session.registry.rules().members(group);
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
            let message = format!("no source offers {}", join_truncated(&names, MAX_LISTED_NAMES));
            let fix = "`toolcrib refresh` discovers new tools; correct the names under `tools` of the group";
            checks.push(DoctorCheck::warn(check_name, message, fix));
        } else if members.is_empty() {
            let fix = format!(
                "`toolcrib group show {}` prints its selectors; `toolcrib refresh` discovers tools",
                group.name
            );
            checks.push(DoctorCheck::warn(check_name, "no known tool belongs to it", fix));
        }
    }
    checks
}

/// Reports active access rules that apply to no local process and to no token.
fn check_access(session: &CliSession, rules: &AccessRules) -> Vec<DoctorCheck> {
    let registry = &session.registry;
    let tokens: Vec<_> = registry.tokens().list().into_iter().filter(|token| !token.expired).collect();
    let holders = tokens
        .iter()
        .filter_map(|token| registry.rules().preview_principal(&PreviewCaller::Token(token.id.clone())).ok());
    let callers: Vec<Principal> = std::iter::once(Principal::local("local")).chain(holders).collect();
    let applies = |name: &str| {
        callers.iter().any(|caller| rules.applicable_access(caller).any(|applicable| applicable.name == name))
    };
    let unused = rules.access().filter(|rule| rule.definition.active && !applies(&rule.name));
    let warn = |name: &str| {
        let message = format!("applies neither to local processes nor to {}", pluralize(tokens.len(), "token"));
        let fix = "`toolcrib tools --claims JSON` previews callers of an identity provider; if there are none, correct its \
                   conditions";
        DoctorCheck::warn(format!("access {name}"), message, fix)
    };
    unused.map(|rule| warn(&rule.name)).collect()
}

/// Reports tokens that are restricted to groups that do not exist.
fn check_tokens(session: &CliSession, rules: &AccessRules) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    for token in session.registry.tokens().list() {
        let unknown = token.groups.iter().filter(|group| rules.group(group).is_none());
        let unknown: Vec<String> = unknown.map(|group| format!("`{group}`")).collect();
        if !unknown.is_empty() {
            let message = format!("is restricted to groups that do not exist: {}", unknown.join(", "));
            let fix =
                format!("define them with `toolcrib group set`, or revoke it: `toolcrib token revoke {}`", token.name);
            checks.push(DoctorCheck::warn(format!("token {}", token.name), message, fix));
        }
    }
    checks
}
