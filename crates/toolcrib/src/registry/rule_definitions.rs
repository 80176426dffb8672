//! Groups, access rules and policies of a registry: read, changed at run time, explained.
//!
//! Their meaning is decided by `toolcrib_core::access_rules`; this module reads and writes them, and applies them to the
//! tools and callers that are known.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};
use toolcrib_catalog::{ToolRef, View};
use toolcrib_config::{ConfigOrigin, IssuerConfig, find_role, rule_to_json};
use toolcrib_core::access::Role;
use toolcrib_core::access_rules::{
    AccessRules, AccessScope, Defined, Explanation, Group, NamedRule, RuleKind, SourceVerdict,
};
use toolcrib_core::inventory::{Actor, Command, Origin};
use toolcrib_core::principal::{Claims, Principal, PrincipalIdentity};
use toolcrib_core::text::{did_you_mean, sanitize_truncated};
use toolcrib_core::tool::ToolName;
use toolcrib_core::{Code, Error, Result};

use super::rule_preview::{PreviewBuilder, RuleChange, RuleChangePreview, ToolChanges};
use super::{Precondition, Registry};
use crate::call::find_readable_tool;

/// The groups, access rules and policies of a registry; see [`Registry::rules`].
#[derive(Debug, Clone, Copy)]
pub struct RuleDefinitions<'a> {
    pub(super) registry: &'a Registry,
    /// Decides which tools are named.
    pub(super) reader: &'a Principal,
    /// Condition on which rules are changed.
    pub(super) precondition: Precondition<'a>,
}

/// Tools of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupMembers {
    /// Names of the tools, denied, hidden and disabled ones included.
    pub members: Vec<ToolName>,
    /// Tools that the group names and that are not there.
    pub missing: Vec<String>,
}

/// Groups and callers that may use a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolAccess {
    /// Groups that have the tool, in the order of their names. They tell which callers that are not known see it.
    pub groups: Vec<ToolGroup>,
    /// Verdict for each caller that is known.
    pub callers: Vec<CallerVerdict>,
}

/// A group that has a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolGroup {
    /// Name of the group.
    pub name: String,
    /// Names of the active access rules that give it to callers.
    pub access: Vec<String>,
}

/// Verdict on a tool for one caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerVerdict {
    /// Name of the caller, such as that of its token.
    pub caller: String,
    /// `local`, `token`, `console` or `jwt`.
    pub kind: &'static str,
    /// Role of the caller.
    pub role: Role,
    /// The verdict and the rules that led to it.
    #[serde(flatten)]
    pub explanation: Explanation,
}

impl<'a> RuleDefinitions<'a> {
    /// Returns the rules for changes that are made only if a condition holds.
    #[must_use]
    pub fn only_if(self, precondition: Precondition<'a>) -> RuleDefinitions<'a> {
        RuleDefinitions { precondition, ..self }
    }
}

impl RuleDefinitions<'_> {
    /// Returns the rules in force.
    pub fn in_force(&self) -> Arc<AccessRules> {
        self.registry.inventory().rules().clone()
    }

    /// Whether an access rule exists, or may exist among the rules that cannot be read.
    pub fn may_restrict_access(&self) -> bool {
        let snapshot = self.registry.state.snapshot();
        snapshot.may_lack_rules() || snapshot.inventory.rules().restrict_access()
    }

    /// Returns the error for an unknown rule, with the most similar known name.
    pub fn unknown_error(&self, kind: RuleKind, name: &str) -> Error {
        let rules = self.in_force();
        let names: Vec<String> =
            rules.iter().filter(|(rule, _)| rule.kind() == kind).map(|(rule, _)| rule.name().to_owned()).collect();
        let near = did_you_mean(name, names.iter().map(String::as_str));
        let (noun, name) = (kind.noun(), sanitize_truncated(name, 80));
        Error::new(Code::NotFound, format!("no {noun} named `{name}`{near}"))
    }

    /// Returns the tools of a group, among those that the reader may know of.
    pub fn members(&self, group: &Defined<Group>) -> GroupMembers {
        group_members(&self.registry.view(self.reader), group)
    }

    /// Renders a rule as JSON: its definition and origin, and of a group that is in force also its tools.
    pub fn to_json(&self, rule: &NamedRule, origin: Origin) -> Value {
        let mut object = rule_to_json(rule);
        if let NamedRule::Group(name, _) = rule
            && let Some(group) = self.in_force().group(name)
        {
            let GroupMembers { members, missing } = self.members(group);
            object["members"] = json!(members);
            object["missing"] = json!(missing);
        }
        object["origin"] = json!(origin);
        object
    }

    /// Defines a rule at run time, or replaces it. Returns whether something changed.
    ///
    /// # Errors
    /// `CONFIG_INVALID` for a rule that contradicts itself or refers to an unknown group, `CONFLICT` for one of the
    /// configuration, with its file and line.
    pub async fn define(&self, rule: NamedRule, actor: Actor) -> Result<bool> {
        let (kind, name) = (rule.kind(), rule.name().to_owned());
        let command = Command::DefineRule(Box::new(rule));
        self.execute(command, kind, &name, actor).await
    }

    /// Removes a rule that was defined at run time.
    ///
    /// # Errors
    /// `NOT_FOUND` for an unknown one, `CONFLICT` for one of the configuration and for a group that others refer to.
    pub async fn remove(&self, kind: RuleKind, name: &str, actor: Actor) -> Result<()> {
        if self.in_force().origin(kind, name).is_none() {
            return Err(self.unknown_error(kind, name));
        }
        let command = Command::RemoveRule { kind, name: name.to_owned() };
        self.execute(command, kind, name, actor).await.map(drop)
    }

    async fn execute(&self, command: Command, kind: RuleKind, name: &str, actor: Actor) -> Result<bool> {
        let written = self.registry.state.execute(&[command], actor, self.precondition).await;
        let events = written.map_err(|error| self.locate_conflict(error, kind, name))?;
        Ok(!events.is_empty())
    }

    /// Names file and line in the error of a change of a rule of the configuration.
    fn locate_conflict(&self, error: Error, kind: RuleKind, name: &str) -> Error {
        match self.configured_at(kind, name) {
            Some(origin) if error.code == Code::Conflict => {
                let message = format!("{} `{name}` is defined in `{origin}`; change it there", kind.noun());
                Error::new(Code::Conflict, message).with_retryable(false)
            }
            _ => error,
        }
    }

    /// Returns file and line of a rule of the configuration; `None` for any other rule, and for one that another process
    /// read from its configuration.
    pub fn configured_at(&self, kind: RuleKind, name: &str) -> Option<ConfigOrigin> {
        self.registry.state.settings.load().rule_origins.get(&(kind, name.to_owned())).cloned()
    }

    /// Explains the verdict on a tool for a principal. Administrators may ask for any principal, others for themselves.
    ///
    /// # Errors
    /// Those of an unknown tool. For anyone but an administrator a tool that they may not know of is unknown.
    pub fn explain(&self, reader: &Principal, principal: &Principal, name: &str) -> Result<Explanation> {
        let snapshot = self.registry.state.snapshot();
        let view = snapshot.view(reader);
        let now = self.registry.state.now();
        let tool = match find_readable_tool(&snapshot, &view, reader, name, now) {
            // Its caller may know that it is denied, and so also why.
            Err(error) if error.code == Code::Forbidden => view.find_included(name)?,
            found => found?,
        };
        Ok(explain_tool(snapshot.inventory.rules(), principal, &tool))
    }

    /// Returns the groups that have a tool, and the verdict on it for the callers that are known: local processes and
    /// tokens, then these others, each of them once.
    ///
    /// # Errors
    /// Those of an unknown tool, which one that the reader may not know of is too.
    pub fn access_to(&self, tool: &str, others: &[Principal]) -> Result<ToolAccess> {
        let snapshot = self.registry.state.snapshot();
        let view = snapshot.view(self.reader);
        let tool = find_readable_tool(&snapshot, &view, self.reader, tool, self.registry.state.now())?;
        let rules = snapshot.inventory.rules();
        let groups = rules.groups().filter(|group| view.is_in_group(&tool, group)).map(|group| {
            let giving = rules.access().filter(|rule| rule.definition.active);
            let giving = giving.filter(|rule| rule.definition.groups.contains(&group.name));
            ToolGroup { name: group.name.clone(), access: giving.map(|rule| rule.name.clone()).collect() }
        });
        let verdict = |principal: Principal| CallerVerdict {
            caller: principal.original_name().to_owned(),
            kind: principal.identity().kind(),
            role: principal.role(),
            explanation: explain_tool(rules, &principal, &tool),
        };
        Ok(ToolAccess { groups: groups.collect(), callers: self.known_callers(others).map(verdict).collect() })
    }

    /// Returns what a change would do to the callers that are known: local processes and tokens, then these others, each of
    /// them once. Writes nothing, and names no tool that the reader may not know of.
    ///
    /// # Errors
    /// Those of the change itself.
    pub fn preview(&self, change: &RuleChange, others: &[Principal]) -> Result<RuleChangePreview> {
        let snapshot = self.registry.state.snapshot();
        let before = snapshot.inventory.rules();
        let after = Arc::new(self.rules_after(change)?);
        let reader_view = snapshot.view(self.reader);
        let is_readable = |tool: &ToolRef<'_>| reader_view.included_tool(tool.source(), tool.original_name()).is_some();
        let mut preview = PreviewBuilder::default();
        for principal in self.known_callers(others) {
            let (old, new) = (before.scope(&principal), after.scope(&principal));
            preview.add(&principal, [old.key(), new.key()], || {
                let view = |scope: &AccessScope| View::for_scope(snapshot.catalog.clone(), scope);
                ToolChanges::between(&view(&old), &view(&new), is_readable)
            });
        }
        Ok(preview.finish())
    }

    /// Returns the rules as a change would leave them.
    fn rules_after(&self, change: &RuleChange) -> Result<AccessRules> {
        let inventory = self.registry.inventory();
        let command = match change {
            RuleChange::Define(rule) => Command::DefineRule(rule.clone()),
            RuleChange::Remove(kind, name) => Command::RemoveRule { kind: *kind, name: name.clone() },
        };
        let (kind, name) = match change {
            RuleChange::Define(rule) => (rule.kind(), rule.name()),
            RuleChange::Remove(kind, name) => (*kind, name.as_str()),
        };
        inventory.decide(&command).map_err(|error| self.locate_conflict(error, kind, name))?;
        let mut rules = AccessRules::clone(inventory.rules());
        match change {
            RuleChange::Define(rule) => rules.define((**rule).clone(), Origin::Runtime),
            RuleChange::Remove(kind, name) => rules.remove(*kind, name),
        }
        Ok(rules)
    }

    /// Whether the rules leave local processes without a token without tools: they give them no group, or none of the tools
    /// that are known.
    pub fn leave_local_without_tools(&self) -> bool {
        self.leaves_local_without_tools(&self.in_force())
    }

    /// Whether a change would leave local processes without tools, which they are not before it.
    ///
    /// # Errors
    /// Those of the change itself.
    pub fn would_leave_local_without_tools(&self, change: &RuleChange) -> Result<bool> {
        let after = Arc::new(self.rules_after(change)?);
        Ok(self.leaves_local_without_tools(&after) && !self.leave_local_without_tools())
    }

    /// Returns a warning if the rules leave local processes without tools.
    pub fn local_warning(&self) -> Option<String> {
        if !self.leave_local_without_tools() {
            return None;
        }
        let remedy = if self.in_force().restrict_access() {
            "an access rule with `when: [{ claim: caller.kind, equals: local }]` gives them groups"
        } else {
            "policies deny or hide all of them"
        };
        Some(format!("processes on this machine without a token see no tools now; {remedy}"))
    }

    fn leaves_local_without_tools(&self, rules: &Arc<AccessRules>) -> bool {
        let scope = rules.scope(&Principal::local("local"));
        // Decided by the rules alone, because no tool is known before the first discovery.
        if scope.groups().is_some_and(<[_]>::is_empty) {
            return true;
        }
        let catalog = self.registry.unrestricted_catalog();
        let has_tools = |view: View| view.offered_tools().next().is_some();
        has_tools(View::for_agents(catalog.clone())) && !has_tools(View::for_scope(catalog, &scope))
    }

    /// Returns the principal of a token, by its name or id, or the one that an access token with these claims would have.
    ///
    /// # Errors
    /// `NOT_FOUND` for an unknown token, `FORBIDDEN` for claims that give no role of the issuer.
    pub fn preview_principal(&self, caller: &PreviewCaller) -> Result<Principal> {
        match caller {
            PreviewCaller::Token(name) => {
                let id = self.registry.tokens().get(name)?.id;
                let inventory = self.registry.inventory();
                let token = inventory.token(&id).ok_or_else(|| Error::new(Code::NotFound, "the token was revoked"))?;
                Ok(token.principal.clone())
            }
            PreviewCaller::Claims(claims) => self.jwt_principal(claims),
        }
    }

    /// Returns the principal that an access token with these claims would have. Its issuer is the one in the claims, or the
    /// only one of the configuration; without any, there is no fact about it and the role is `agent`.
    fn jwt_principal(&self, claims: &Map<String, Value>) -> Result<Principal> {
        // As for a token: a claim named `caller` is dropped before anything is decided by the claims.
        let claims = Claims::new(claims.clone())?;
        let settings = self.registry.state.settings.load();
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let configured = match (text("iss"), &settings.issuers[..]) {
            (Some(named), issuers) => issuers.iter().find(|known| known.issuer == named),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let no_role = |known: &IssuerConfig| {
            let message = "a caller with these claims has no access: it has none of the roles of";
            Error::new(Code::Forbidden, format!("{message} `{}` (`roles` in `identity.issuers`)", known.issuer))
        };
        let role = configured
            .map_or(Ok(Role::Agent), |known| find_role(&known.roles, claims.as_map()).ok_or_else(|| no_role(known)))?;
        let issuer = text("iss").or(configured.map(|known| known.issuer.as_str())).unwrap_or_default();
        let identity = PrincipalIdentity::Jwt { issuer: issuer.into(), sub: text("sub").unwrap_or_default().into() };
        Ok(Principal::new(identity, "preview", role).with_claims(claims))
    }

    /// Local processes and the holders of tokens, then others, without duplicates.
    fn known_callers(&self, others: &[Principal]) -> impl Iterator<Item = Principal> {
        let inventory = self.registry.inventory();
        let now = self.registry.now();
        let mut tokens: Vec<Principal> =
            inventory.tokens().filter(|token| !token.is_expired(now)).map(|token| token.principal.clone()).collect();
        tokens.sort_by(|a, b| a.original_name().cmp(b.original_name()));
        let local = Principal::local("local");
        let mut others = others.to_vec();
        others.sort_by(|a, b| a.original_name().cmp(b.original_name()));
        let mut identities = HashSet::new();
        let callers = std::iter::once(local).chain(tokens).chain(others);
        callers.filter(move |principal| identities.insert(principal.identity().clone()))
    }
}

/// Caller whose view is previewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviewCaller {
    /// The holder of a token, by its name or id.
    Token(String),
    /// The holder of an access token of an identity provider with these claims.
    Claims(Map<String, Value>),
}

/// Explains the verdict on a tool for a principal.
fn explain_tool(rules: &Arc<AccessRules>, principal: &Principal, tool: &ToolRef<'_>) -> Explanation {
    let glob = tool.deciding_rule().map(|rule| rule.glob.clone());
    let source_verdict = SourceVerdict { verdict: tool.source_verdict(), glob };
    tool.with_facts(|facts| rules.explain(principal, facts, &source_verdict))
}

/// Returns the tools of a group among those of a view.
fn group_members(view: &View, group: &Defined<Group>) -> GroupMembers {
    let tools = view.listed_tools().filter(|tool| view.is_in_group(tool, group));
    let members = tools.map(|tool| tool.name().clone()).collect();
    let names = group.definition.tools.iter();
    let is_missing = |name: &&String| {
        let found = view.find_known(name);
        !found.is_some_and(|tool| tool.with_facts(|facts| facts.is_named(name)))
    };
    GroupMembers { members, missing: names.filter(is_missing).cloned().collect() }
}
