//! Explains a verdict: every rule that had a part in it, in the order in which they are applied.

use std::sync::Arc;

use serde::Serialize;

use super::{AccessRules, ToolFacts};
use crate::access::Role;
use crate::policy::Verdict;
use crate::principal::Principal;

/// Verdict on a tool for a caller, with the rules that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub verdict: Verdict,
    /// Whether the caller sees the tool. Administrators see denied and hidden ones.
    pub visible: bool,
    pub rules: Vec<ExplainedRule>,
}

/// A rule that had a part in a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedRule {
    /// `role`, `token`, `access`, `group`, `source` or `policy`.
    pub kind: &'static str,
    pub name: String,
    /// Its part, in words.
    pub effect: String,
}

/// Verdict of a source's own rules on a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceVerdict {
    pub verdict: Verdict,
    /// Glob of the rule that decided; `None` for the default.
    pub glob: Option<String>,
}

impl AccessRules {
    /// Explains the verdict on a tool for a principal.
    pub fn explain(
        self: &Arc<Self>,
        principal: &Principal,
        tool: &ToolFacts<'_>,
        source_verdict: &SourceVerdict,
    ) -> Explanation {
        let scope = self.scope(principal);
        let mut rules = Vec::new();
        let mut push = |kind, name: &str, effect: String| {
            rules.push(ExplainedRule { kind, name: name.to_owned(), effect });
        };
        let list = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if !principal.groups().is_empty() {
            push("token", principal.original_name(), format!("sees only {}", list(principal.groups())));
        } else if principal.role() == Role::Admin {
            if self.restrict_access() {
                push("role", Role::Admin.as_str(), "is limited by no access rule".to_owned());
            }
        } else if self.restrict_access() {
            let mut applicable = self.applicable_access(principal).peekable();
            if applicable.peek().is_none() {
                push("access", "", "no access rule applies to this caller".to_owned());
            }
            for rule in applicable {
                push("access", &rule.name, format!("gives {}", list(&rule.definition.groups)));
            }
        }
        for group in scope.groups().into_iter().flatten() {
            let has = if group.definition.matches(tool) == super::Match::Yes { "has" } else { "does not have" };
            push("group", &group.name, format!("{has} the tool"));
        }
        let is_included = scope.includes(tool);
        if let Some(glob) = &source_verdict.glob {
            push("source", tool.source, format!("rule `{glob}: {}`", source_verdict.verdict.as_str()));
        } else if source_verdict.verdict > Verdict::Allow {
            push("source", tool.source, format!("default `{}`", source_verdict.verdict.as_str()));
        }
        // Those with `allow` too, which have no effect on the verdict.
        for policy in self.applicable_policies(principal).filter(|policy| policy.matches(tool)) {
            push("policy", &policy.policy.name, policy.verdict().as_str().to_owned());
        }
        let verdict = scope.verdict(tool, source_verdict.verdict);
        Explanation { verdict, visible: is_included && scope.shows_verdict(verdict), rules }
    }
}
