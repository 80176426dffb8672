//! Rules about callers and tools: groups of tools, access rules that give groups to callers, and policies with verdicts.
//!
//! Two pure steps. [`AccessRules::scope`] finds out what holds for a principal: its groups, and the policies whose
//! conditions its claims meet. A [`AccessScope`] says for each tool whether it is visible and which verdict it has. Principals
//! with equal scopes see the same.
//!
//! ```text
//! principal ── access rules ──▶ groups   ─┐
//!           └─ policies' `when` ─▶ policies ┴▶ Scope ── tool ──▶ visible or not, allow / ask / deny / hide
//! ```
//!
//! With no access rule at all, a principal without groups of its own sees everything. With one or more, also inactive
//! ones, it sees the tools of the groups that the active rules give it, and nothing without one.

mod condition;
mod contradiction;
mod explain;
mod group;
mod pattern;
mod scope;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::inventory::Origin;
use crate::policy::Verdict;
use crate::principal::Principal;
use crate::text::sanitize_truncated;

pub use condition::{ClaimCondition, ClaimPath, ClaimTest};
pub use contradiction::find_contradiction;
pub use explain::{ExplainedRule, Explanation, SourceVerdict};
pub use group::{Group, Match, Risk, RiskHints, RiskSet, Selector, ToolDetails, ToolFacts};
pub use pattern::Pattern;
pub use scope::{AccessScope, Audience, ScopePolicy};

/// Maximum number of groups, of access rules and of policies. All of them are in memory, and each is looked at for a
/// new caller.
pub const MAX_RULES_PER_KIND: usize = 1_000;
/// Maximum length of a name in bytes; allowed names are ASCII.
const MAX_RULE_NAME_LEN: usize = 64;

/// All groups, access rules and policies in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRules {
    groups: BTreeMap<String, Arc<Defined<Group>>>,
    access: BTreeMap<String, Arc<Defined<AccessRule>>>,
    policies: BTreeMap<String, Arc<Defined<Policy>>>,
}

/// A group, access rule or policy with its name and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defined<T> {
    pub name: String,
    pub origin: Origin,
    pub definition: T,
    /// Digest of the definition: equal definitions match the same tools, whatever their names.
    pub fingerprint: Fingerprint,
}

/// Gives groups to the callers that meet all conditions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRule {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<ClaimCondition>,
    pub groups: Vec<String>,
    /// An inactive rule gives nothing, but counts as a rule.
    #[serde(default = "default_active")]
    pub active: bool,
}

fn default_active() -> bool {
    true
}

/// Verdict on tools, for callers that meet its conditions. Combined with the rules of the source: the strictest verdict
/// applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    #[serde(rename = "match", default)]
    pub matches: PolicyMatch,
    pub verdict: Verdict,
}

/// Tools and callers that a policy is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyMatch {
    #[serde(flatten)]
    pub selector: Selector,
    /// The tool belongs to this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Conditions on the claims of the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<ClaimCondition>,
}

/// Kind of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleKind {
    Group,
    Access,
    Policy,
}

crate::name_variants!(RuleKind { Group => "group", Access => "access", Policy => "policy" });

impl RuleKind {
    /// Name of the kind in messages.
    pub fn noun(self) -> &'static str {
        match self {
            RuleKind::Group => "group",
            RuleKind::Access => "access rule",
            RuleKind::Policy => "policy",
        }
    }

    /// Key of the kind in the configuration, in routes and in JSON lists.
    pub fn plural(self) -> &'static str {
        match self {
            RuleKind::Group => "groups",
            RuleKind::Access => "access",
            RuleKind::Policy => "policies",
        }
    }
}

/// A rule of any kind, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedRule {
    Group(String, Group),
    Access(String, AccessRule),
    Policy(String, Policy),
}

/// Kind and name, such as ``access rule `desk` ``.
impl fmt::Display for NamedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind().noun(), self.name())
    }
}

impl NamedRule {
    pub fn kind(&self) -> RuleKind {
        match self {
            NamedRule::Group(..) => RuleKind::Group,
            NamedRule::Access(..) => RuleKind::Access,
            NamedRule::Policy(..) => RuleKind::Policy,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            NamedRule::Group(name, _) | NamedRule::Access(name, _) | NamedRule::Policy(name, _) => name,
        }
    }

    /// Whether both are of the same kind and have the same name.
    pub fn is_same_name(&self, other: &NamedRule) -> bool {
        self.kind() == other.kind() && self.name() == other.name()
    }

    /// Groups that the rule refers to.
    pub fn referenced_groups(&self) -> &[String] {
        match self {
            NamedRule::Group(..) => &[],
            NamedRule::Access(_, rule) => &rule.groups,
            NamedRule::Policy(_, policy) => policy.matches.group.as_slice(),
        }
    }

    /// Checks what does not depend on other rules: the name, and that the rule can ever apply.
    ///
    /// # Errors
    /// `CONFIG_INVALID` with the reason.
    pub fn check(&self) -> Result<()> {
        check_rule_name(self.kind(), self.name())?;
        match self.contradiction() {
            Some(reason) => Err(Error::new(Code::ConfigInvalid, reason)),
            None => Ok(()),
        }
    }

    /// Returns why the rule contradicts itself or has no effect, if it does.
    fn contradiction(&self) -> Option<String> {
        match self {
            NamedRule::Group(_, group) => {
                let excluded = |name: &&String| group.exclude.iter().any(|pattern| pattern.as_str() == **name);
                let excluded = group.tools.iter().find(excluded);
                excluded
                    .map(|name| format!("`{}` is both in `tools` and in `exclude`", sanitize_truncated(name, 80)))
                    .or_else(|| group.select.iter().find_map(Selector::contradiction))
            }
            NamedRule::Access(_, rule) if rule.groups.is_empty() => {
                Some("an access rule gives at least one group; name it under `groups`".to_owned())
            }
            NamedRule::Access(_, rule) => find_contradiction(&rule.when).map(|(_, reason)| reason),
            NamedRule::Policy(_, policy) => {
                let of_conditions = || find_contradiction(&policy.matches.when).map(|(_, reason)| reason);
                policy.matches.selector.contradiction().or_else(of_conditions)
            }
        }
    }
}

/// Checks the name of a group, access rule or policy: it stands in URLs, commands and logs.
///
/// # Errors
/// `CONFIG_INVALID` with what is allowed.
pub fn check_rule_name(kind: RuleKind, name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if (1..=MAX_RULE_NAME_LEN).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let message = format!(
        "`{}` is not a valid {} name: use lower-case letters, digits, `_` and `-`, at most {MAX_RULE_NAME_LEN} characters",
        sanitize_truncated(name, 80),
        kind.noun()
    );
    Err(Error::new(Code::ConfigInvalid, message))
}

impl<T: Serialize> Defined<T> {
    fn new(name: &str, origin: Origin, definition: T) -> Arc<Defined<T>> {
        // Definitions are maps with text keys, which can always be written.
        let text = serde_json::to_string(&definition).unwrap_or_default();
        Arc::new(Defined { name: name.to_owned(), origin, definition, fingerprint: Fingerprint::digest(text) })
    }
}

impl AccessRules {
    /// Whether there are no rules of any kind.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.access.is_empty() && self.policies.is_empty()
    }

    /// Whether an access rule exists, active or not: callers then see only what a rule gives them.
    pub fn restrict_access(&self) -> bool {
        !self.access.is_empty()
    }

    /// Groups in the order of their names.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<Defined<Group>>> {
        self.groups.values()
    }

    /// Access rules in the order of their names.
    pub fn access(&self) -> impl Iterator<Item = &Arc<Defined<AccessRule>>> {
        self.access.values()
    }

    /// Policies in the order of their names.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Defined<Policy>>> {
        self.policies.values()
    }

    pub fn group(&self, name: &str) -> Option<&Arc<Defined<Group>>> {
        self.groups.get(name)
    }

    pub fn access_rule(&self, name: &str) -> Option<&Arc<Defined<AccessRule>>> {
        self.access.get(name)
    }

    pub fn policy(&self, name: &str) -> Option<&Arc<Defined<Policy>>> {
        self.policies.get(name)
    }

    /// Active access rules whose conditions a principal meets, in the order of their names.
    pub fn applicable_access(&self, principal: &Principal) -> impl Iterator<Item = &Arc<Defined<AccessRule>>> {
        self.access().filter(|rule| {
            rule.definition.active && rule.definition.when.iter().all(|condition| condition.holds(principal))
        })
    }

    /// All rules, in the order groups, access rules, policies, with their origins.
    pub fn iter(&self) -> impl Iterator<Item = (NamedRule, Origin)> {
        let groups =
            self.groups().map(|group| (NamedRule::Group(group.name.clone(), group.definition.clone()), group.origin));
        let access =
            self.access().map(|rule| (NamedRule::Access(rule.name.clone(), rule.definition.clone()), rule.origin));
        let policies = self
            .policies()
            .map(|policy| (NamedRule::Policy(policy.name.clone(), policy.definition.clone()), policy.origin));
        groups.chain(access).chain(policies)
    }

    /// Returns a rule with its origin.
    pub fn find(&self, kind: RuleKind, name: &str) -> Option<(NamedRule, Origin)> {
        let name = name.to_owned();
        match kind {
            RuleKind::Group => {
                self.group(&name).map(|group| (NamedRule::Group(name, group.definition.clone()), group.origin))
            }
            RuleKind::Access => {
                self.access_rule(&name).map(|rule| (NamedRule::Access(name, rule.definition.clone()), rule.origin))
            }
            RuleKind::Policy => {
                self.policy(&name).map(|policy| (NamedRule::Policy(name, policy.definition.clone()), policy.origin))
            }
        }
    }

    /// Returns the origin of a rule; `None` if there is none of this name.
    pub fn origin(&self, kind: RuleKind, name: &str) -> Option<Origin> {
        match kind {
            RuleKind::Group => self.group(name).map(|group| group.origin),
            RuleKind::Access => self.access_rule(name).map(|rule| rule.origin),
            RuleKind::Policy => self.policy(name).map(|policy| policy.origin),
        }
    }

    /// Number of rules of a kind.
    pub fn count(&self, kind: RuleKind) -> usize {
        match kind {
            RuleKind::Group => self.groups.len(),
            RuleKind::Access => self.access.len(),
            RuleKind::Policy => self.policies.len(),
        }
    }

    /// Whether exactly this rule is in force.
    pub fn has(&self, rule: &NamedRule, origin: Origin) -> bool {
        match rule {
            NamedRule::Group(name, group) => {
                self.group(name).is_some_and(|known| known.origin == origin && known.definition == *group)
            }
            NamedRule::Access(name, rule) => {
                self.access_rule(name).is_some_and(|known| known.origin == origin && known.definition == *rule)
            }
            NamedRule::Policy(name, policy) => {
                self.policy(name).is_some_and(|known| known.origin == origin && known.definition == *policy)
            }
        }
    }

    /// Adds a rule, or replaces the one of the same kind and name.
    pub fn define(&mut self, rule: NamedRule, origin: Origin) {
        match rule {
            NamedRule::Group(name, group) => {
                self.groups.insert(name.clone(), Defined::new(&name, origin, group));
            }
            NamedRule::Access(name, rule) => {
                self.access.insert(name.clone(), Defined::new(&name, origin, rule));
            }
            NamedRule::Policy(name, policy) => {
                self.policies.insert(name.clone(), Defined::new(&name, origin, policy));
            }
        }
    }

    /// Removes a rule, if there is one of this name.
    pub fn remove(&mut self, kind: RuleKind, name: &str) {
        match kind {
            RuleKind::Group => drop(self.groups.remove(name)),
            RuleKind::Access => drop(self.access.remove(name)),
            RuleKind::Policy => drop(self.policies.remove(name)),
        }
    }

    /// Access rules and policies that refer to a group, as `access rule `x``.
    pub fn references_to(&self, group: &str) -> Vec<String> {
        let referring = self.iter().filter(|(rule, _)| rule.referenced_groups().iter().any(|name| name == group));
        referring.map(|(rule, _)| rule.to_string()).collect()
    }
}

#[cfg(test)]
mod tests;
