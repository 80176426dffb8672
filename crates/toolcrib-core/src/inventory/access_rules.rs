//! Commands on groups, access rules and policies. Those of the configuration are changed by the configuration alone.

use std::sync::Arc;

use super::{Event, Inventory, Origin};
use crate::access_rules::{AccessRules, MAX_RULES_PER_KIND, NamedRule, RuleKind};
use crate::error::{Code, Error, Result};

impl Inventory {
    /// Groups, access rules and policies in force.
    pub fn rules(&self) -> &Arc<AccessRules> {
        &self.rules
    }

    /// Defines a rule at run time. Fails with `CONFIG_INVALID` for one that contradicts itself or refers to an unknown
    /// group, and with `CONFLICT` for a name that the configuration has, or too many rules.
    pub(super) fn define_rule(&self, rule: &NamedRule) -> Result<Vec<Event>> {
        rule.check()?;
        let (kind, name) = (rule.kind(), rule.name());
        let known = self.rules.origin(kind, name);
        if known == Some(Origin::Config) {
            return Err(configured_rule_error(kind, name));
        }
        if let Some(group) = rule.referenced_groups().iter().find(|group| self.rules.group(group).is_none()) {
            return Err(unknown_group_error(rule, group));
        }
        if known.is_none() && self.rules.count(kind) >= MAX_RULES_PER_KIND {
            let message = format!("the limit of {MAX_RULES_PER_KIND} {} is reached; remove one first", kind.plural());
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        if self.rules.has(rule, Origin::Runtime) {
            return Ok(Vec::new());
        }
        Ok(vec![Event::rule_defined(rule.clone(), Origin::Runtime)])
    }

    /// Removes a rule that was defined at run time. Fails with `CONFLICT` for one of the configuration, and for a group
    /// that other rules refer to.
    pub(super) fn remove_rule(&self, kind: RuleKind, name: &str) -> Result<Vec<Event>> {
        match self.rules.origin(kind, name) {
            None => return Ok(Vec::new()),
            Some(Origin::Config) => return Err(configured_rule_error(kind, name)),
            Some(Origin::Runtime) => {}
        }
        let references = if kind == RuleKind::Group { self.rules.references_to(name) } else { Vec::new() };
        if !references.is_empty() {
            let message = format!("group `{name}` is used by {}; change or remove them first", references.join(", "));
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        Ok(vec![Event::rule_removed(kind, name.to_owned())])
    }

    /// Replaces the rules of the configuration. Rules that were defined at run time stay, except where the configuration
    /// has the same name. All events are written together, so that either the old or the new set is in force.
    pub(super) fn reconcile_rules(&self, configured: &[NamedRule]) -> Result<Vec<Event>> {
        for rule in configured {
            rule.check()?;
            let is_known = |group: &&String| configured.iter().any(|rule| is_group(rule, group));
            if let Some(group) = rule.referenced_groups().iter().find(|group| !is_known(group)) {
                return Err(unknown_group_error(rule, group));
            }
        }
        for kind in RuleKind::ALL {
            if configured.iter().filter(|rule| rule.kind() == kind).count() > MAX_RULES_PER_KIND {
                let message = format!("the configuration has more than {MAX_RULES_PER_KIND} {}", kind.plural());
                return Err(Error::new(Code::ConfigInvalid, message));
            }
        }
        let is_configured = |known: &NamedRule| {
            configured.iter().any(|rule| rule.kind() == known.kind() && rule.name() == known.name())
        };
        let gone = self.rules.iter().filter(|(rule, origin)| *origin == Origin::Config && !is_configured(rule));
        let gone = gone.map(|(rule, _)| Event::rule_removed(rule.kind(), rule.name().to_owned()));
        let new = configured.iter().filter(|rule| !self.rules.has(rule, Origin::Config));
        let new = new.map(|rule| Event::rule_defined(rule.clone(), Origin::Config));
        Ok(new.chain(gone).collect())
    }

    /// Folds a definition into the state.
    pub(super) fn apply_rule(&mut self, rule: NamedRule, origin: Origin) {
        Arc::make_mut(&mut self.rules).define(rule, origin);
    }
}

/// Whether a rule is the group of this name.
fn is_group(rule: &NamedRule, name: &str) -> bool {
    rule.kind() == RuleKind::Group && rule.name() == name
}

/// Error for a rule that refers to a group that does not exist.
fn unknown_group_error(rule: &NamedRule, group: &str) -> Error {
    let message = format!("{} `{}` refers to the unknown group `{group}`", rule.kind().noun(), rule.name());
    Error::new(Code::ConfigInvalid, message)
}

/// Error for a change of a rule of the configuration. The library adds the file and line.
fn configured_rule_error(kind: RuleKind, name: &str) -> Error {
    let message = format!("{} `{name}` is defined in the configuration; change it there", kind.noun());
    Error::new(Code::Conflict, message).with_retryable(false)
}
