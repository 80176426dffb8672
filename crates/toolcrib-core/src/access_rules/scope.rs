//! [`AccessScope`]: what holds for a principal among all rules.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use super::{AccessRules, Defined, Group, Match, Policy, ToolFacts};
use crate::access::Role;
use crate::fingerprint::Fingerprint;
use crate::policy::Verdict;
use crate::principal::{Principal, ViewNarrowing};

/// Groups and policies that hold for a principal. Two principals with equal keys see and may do the same.
#[derive(Debug, Clone)]
pub struct AccessScope {
    key: Fingerprint,
    /// Tools of these groups are visible; `None`: all tools.
    groups: Option<Vec<Arc<Defined<Group>>>>,
    policies: Vec<ScopePolicy>,
    audience: Audience,
    /// Group of the endpoint `/mcp/{group}`, to which everything is narrowed.
    endpoint_group: Option<Arc<Defined<Group>>>,
    /// Globs on names, of which one must match; empty for no such restriction.
    only: Vec<String>,
}

/// A policy whose conditions on the caller hold.
#[derive(Debug, Clone)]
pub struct ScopePolicy {
    pub policy: Arc<Defined<Policy>>,
    /// The group that it refers to; `None` inside if that group does not exist.
    group: Option<Option<Arc<Defined<Group>>>>,
    /// Digest of the policy and its group.
    pub fingerprint: Fingerprint,
}

/// Whether denied and hidden tools are visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// They are left out.
    Agents,
    /// They are listed with their verdict.
    Administrators,
}

impl Audience {
    /// The audience that a role belongs to.
    pub fn of_role(role: Role) -> Audience {
        match role {
            Role::Admin => Audience::Administrators,
            Role::Agent | Role::Viewer => Audience::Agents,
        }
    }
}

impl AccessRules {
    /// Returns what holds for a principal, as its interface narrows it. Computed once per principal, narrowing and set of
    /// rules.
    pub fn scope(self: &Arc<Self>, principal: &Principal) -> Arc<AccessScope> {
        if *principal.narrowing() != ViewNarrowing::default() {
            return principal.cached_scope(self, || self.narrow_scope(principal));
        }
        if self.is_empty() && principal.groups().is_empty() {
            return AccessScope::unrestricted(Audience::of_role(principal.role()));
        }
        principal.cached_scope(self, || Arc::new(self.resolve_scope(principal)))
    }

    /// Returns what holds for a principal whose interface narrows it.
    fn narrow_scope(self: &Arc<Self>, principal: &Principal) -> Arc<AccessScope> {
        let scope = self.scope(&principal.narrowed(ViewNarrowing::default()));
        let ViewNarrowing { as_agent, group, only } = principal.narrowing();
        let scope = if *as_agent { scope.for_agents() } else { scope };
        let scope = match group.as_ref().map(|name| self.group(name).filter(|group| scope.allows_endpoint(group))) {
            Some(Some(group)) => scope.narrowed_to(group.clone()),
            Some(None) => return AccessScope::nothing(),
            None => scope,
        };
        if only.is_empty() { scope } else { scope.only(only.clone()) }
    }

    /// Finds the groups and policies that hold for a principal.
    fn resolve_scope(&self, principal: &Principal) -> AccessScope {
        // `allow` is the weakest verdict and has no effect beside others.
        let policies = self.applicable_policies(principal).filter(|policy| policy.verdict() > Verdict::Allow).collect();
        let scope = AccessScope {
            key: Fingerprint::digest(""),
            groups: self.visible_groups(principal),
            policies,
            audience: Audience::of_role(principal.role()),
            endpoint_group: None,
            only: Vec::new(),
        };
        scope.with_key()
    }

    /// Returns the policies whose conditions a principal meets, in the order of their names.
    pub(super) fn applicable_policies(&self, principal: &Principal) -> impl Iterator<Item = ScopePolicy> {
        let holds = |policy: &&Arc<Defined<Policy>>| {
            policy.definition.matches.when.iter().all(|condition| condition.holds(principal))
        };
        self.policies().filter(holds).map(|policy| ScopePolicy::new(policy, self))
    }

    /// Returns the groups whose tools a principal sees; `None` for all tools. A group that does not exist has no tools.
    fn visible_groups(&self, principal: &Principal) -> Option<Vec<Arc<Defined<Group>>>> {
        let mut names: Vec<&str> = if !principal.groups().is_empty() {
            principal.groups().iter().map(String::as_str).collect()
        } else if principal.role() == Role::Admin || !self.restrict_access() {
            return None;
        } else {
            let rules = self.applicable_access(principal);
            rules.flat_map(|rule| rule.definition.groups.iter().map(String::as_str)).collect()
        };
        names.sort_unstable();
        names.dedup();
        Some(names.into_iter().filter_map(|name| self.group(name).cloned()).collect())
    }
}

impl AccessScope {
    /// The scope without rules.
    pub fn unrestricted(audience: Audience) -> Arc<AccessScope> {
        static SCOPES: LazyLock<[Arc<AccessScope>; 2]> = LazyLock::new(|| {
            [Audience::Agents, Audience::Administrators].map(|audience| Arc::new(AccessScope::new(None, audience)))
        });
        SCOPES[audience as usize].clone()
    }

    /// The scope in which no tool is visible: where rules exist that cannot be read.
    pub fn nothing() -> Arc<AccessScope> {
        static SCOPE: LazyLock<Arc<AccessScope>> =
            LazyLock::new(|| Arc::new(AccessScope::new(Some(Vec::new()), Audience::Agents)));
        SCOPE.clone()
    }

    fn new(groups: Option<Vec<Arc<Defined<Group>>>>, audience: Audience) -> AccessScope {
        let key = Fingerprint::digest("");
        AccessScope { key, groups, policies: Vec::new(), audience, endpoint_group: None, only: Vec::new() }.with_key()
    }

    /// Computes the key from everything else.
    fn with_key(mut self) -> AccessScope {
        let mut text = format!("{:?}", self.audience);
        let mut push = |label: &str, fingerprint: Fingerprint| {
            // Writing to a `String` cannot fail.
            let _ = write!(text, " {label}{fingerprint}");
        };
        for group in self.groups.iter().flatten() {
            push("g", group.fingerprint);
        }
        for policy in &self.policies {
            push("p", policy.fingerprint);
        }
        if let Some(group) = &self.endpoint_group {
            push("e", group.fingerprint);
        }
        let _ = write!(text, " {} {:?}", self.groups.is_some(), self.only);
        self.key = Fingerprint::digest(text);
        self
    }

    /// Returns the scope for what agents read: without denied and hidden tools, whatever the role.
    fn for_agents(self: &Arc<Self>) -> Arc<AccessScope> {
        match self.audience {
            Audience::Agents => self.clone(),
            Audience::Administrators => {
                Arc::new(AccessScope { audience: Audience::Agents, ..(**self).clone() }.with_key())
            }
        }
    }

    /// Returns the scope narrowed to a group.
    fn narrowed_to(&self, group: Arc<Defined<Group>>) -> Arc<AccessScope> {
        Arc::new(AccessScope { endpoint_group: Some(group), ..self.clone() }.with_key())
    }

    /// Returns the scope narrowed to tools whose name matches one of the globs.
    fn only(&self, globs: Vec<String>) -> Arc<AccessScope> {
        Arc::new(AccessScope { only: globs, ..self.clone() }.with_key())
    }

    /// Digest of everything in the scope.
    pub fn key(&self) -> Fingerprint {
        self.key
    }

    /// Groups whose tools are visible; `None` for all tools.
    pub fn groups(&self) -> Option<&[Arc<Defined<Group>>]> {
        self.groups.as_deref()
    }

    pub fn policies(&self) -> &[ScopePolicy] {
        &self.policies
    }

    pub fn audience(&self) -> Audience {
        self.audience
    }

    pub fn endpoint_group(&self) -> Option<&Arc<Defined<Group>>> {
        self.endpoint_group.as_ref()
    }

    /// Globs on names, of which one must match; empty for no such restriction.
    pub fn only_globs(&self) -> &[String] {
        &self.only
    }

    /// Whether rules, an endpoint or globs leave out tools or give them verdicts.
    pub fn has_rules(&self) -> bool {
        self.limits_tools() || !self.policies.is_empty()
    }

    /// Whether tools may be invisible whatever their verdict.
    pub fn limits_tools(&self) -> bool {
        self.groups.is_some() || self.endpoint_group.is_some() || !self.only.is_empty()
    }

    /// Whether the endpoint of a group may be used: the caller sees the group, or everything.
    pub fn allows_endpoint(&self, group: &Defined<Group>) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.iter().any(|known| known.name == group.name))
    }

    /// Whether a policy denies or hides every tool of a source, whatever the source offers.
    pub fn withholds_source(&self, source: &str) -> bool {
        let withholds = |policy: &ScopePolicy| policy.verdict() >= Verdict::Deny && policy.covers_source(source);
        self.audience == Audience::Agents && self.policies.iter().any(withholds)
    }

    /// Whether tools may be left out because of their verdict, which the audience does not see.
    pub fn withholds_by_policy(&self) -> bool {
        self.audience == Audience::Agents && self.policies.iter().any(|policy| policy.verdict() >= Verdict::Deny)
    }

    /// Whether a tool is visible, apart from its verdict. Of a tool of which only names are known, only what is sure to be
    /// visible is.
    pub fn includes(&self, tool: &ToolFacts<'_>) -> bool {
        let is_in = |group: &Arc<Defined<Group>>| group.definition.matches(tool) == Match::Yes;
        self.groups.as_ref().is_none_or(|groups| groups.iter().any(is_in))
            && self.endpoint_group.as_ref().is_none_or(is_in)
            && (self.only.is_empty() || self.accepts_name(tool))
    }

    /// Whether one of the globs of `only` matches the tool.
    pub fn accepts_name(&self, tool: &ToolFacts<'_>) -> bool {
        let names = || tool.names.iter().copied().chain([tool.original_name]);
        self.only.iter().any(|glob| names().any(|name| crate::policy::glob_matches(glob, name)))
    }

    /// Returns the strictest verdict of all policies on a tool.
    pub fn policy_verdict(&self, tool: &ToolFacts<'_>) -> Verdict {
        let verdicts = self.policies.iter().filter(|policy| policy.matches(tool)).map(ScopePolicy::verdict);
        verdicts.max().unwrap_or_default()
    }

    /// Returns the verdict on a tool, given that of its source's own rules. A tool that is not visible is hidden.
    pub fn verdict(&self, tool: &ToolFacts<'_>, source_verdict: Verdict) -> Verdict {
        if self.includes(tool) { source_verdict.max(self.policy_verdict(tool)) } else { Verdict::Hide }
    }

    /// Whether a tool with a verdict is shown to the audience.
    pub fn shows_verdict(&self, verdict: Verdict) -> bool {
        self.audience == Audience::Administrators || verdict < Verdict::Deny
    }
}

impl ScopePolicy {
    fn new(policy: &Arc<Defined<Policy>>, rules: &AccessRules) -> ScopePolicy {
        let group = policy.definition.matches.group.as_ref().map(|name| rules.group(name).cloned());
        let fingerprint = match group.as_ref().map(Option::as_ref) {
            Some(Some(group)) => Fingerprint::digest(format!("{} {}", policy.fingerprint, group.fingerprint)),
            Some(None) => Fingerprint::digest(format!("{} no group", policy.fingerprint)),
            None => policy.fingerprint,
        };
        ScopePolicy { policy: policy.clone(), group, fingerprint }
    }

    /// Verdict on the tools that match.
    pub fn verdict(&self) -> Verdict {
        self.policy.definition.verdict
    }

    /// Whether the policy is about every tool that a source may have.
    fn covers_source(&self, source: &str) -> bool {
        let group_covers = match self.group.as_ref().map(Option::as_ref) {
            Some(Some(group)) => group.definition.covers_source(source),
            Some(None) | None => true,
        };
        group_covers && self.policy.definition.matches.selector.covers_source(source)
    }

    /// Whether the policy is about a tool. It is in case of doubt: if only names of the tool are known, or if the group
    /// that it refers to is gone.
    pub fn matches(&self, tool: &ToolFacts<'_>) -> bool {
        let in_group = match self.group.as_ref().map(Option::as_ref) {
            Some(Some(group)) => group.definition.matches(tool) != Match::No,
            Some(None) | None => true,
        };
        in_group && self.policy.definition.matches.selector.matches(tool) != Match::No
    }
}
