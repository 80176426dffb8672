//! Commands on groups, access rules and policies. Those of the configuration are changed by the configuration alone.

use std::sync::Arc;

use super::{Event, Inventory, Origin};
use crate::access_rules::{AccessRules, MAX_RULES_PER_KIND, NamedRule, RuleKind};
use crate::error::{Code, Error, Result};
use crate::text::{did_you_mean, sanitize_truncated};

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
            return Err(unknown_group_error(rule, group, self.rules.groups().map(|group| group.name.as_str())));
        }
        if known.is_none() && self.rules.count(kind) >= MAX_RULES_PER_KIND {
            let message = format!("the limit of {MAX_RULES_PER_KIND} {} is reached; remove one first", kind.plural());
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        if self.rules.has(rule, Origin::Runtime) {
            return Ok(Vec::new());
        }
        Ok(vec![Event::rule_defined(rule.clone(), Origin::Runtime, known.is_some())])
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
    /// has the same name. All events are written together, so that either the old or the new set is in force. Fails with
    /// `CONFIG_INVALID` for a rule that is invalid, and for a missing group that a rule refers to, also one defined at run
    /// time.
    pub(super) fn reconcile_rules(&self, configured: &[NamedRule]) -> Result<Vec<Event>> {
        for rule in configured {
            rule.check()?;
            let groups = configured.iter().filter(|rule| rule.kind() == RuleKind::Group).map(NamedRule::name);
            let is_known = |name: &&String| groups.clone().any(|group| group == *name);
            if let Some(group) = rule.referenced_groups().iter().find(|group| !is_known(group)) {
                return Err(unknown_group_error(rule, group, groups));
            }
        }
        for kind in RuleKind::ALL {
            if configured.iter().filter(|rule| rule.kind() == kind).count() > MAX_RULES_PER_KIND {
                let message = format!("the configuration has more than {MAX_RULES_PER_KIND} {}", kind.plural());
                return Err(Error::new(Code::ConfigInvalid, message));
            }
        }
        let is_configured = |known: &NamedRule| configured.iter().any(|rule| rule.is_same_name(known));
        let gone = self.rules.iter().filter(|(rule, origin)| *origin == Origin::Config && !is_configured(rule));
        let gone: Vec<Event> = gone.map(|(rule, _)| Event::rule_removed(rule.kind(), rule.name().to_owned())).collect();
        if let Some((_, error)) = self.dropped_groups_in_use(configured).into_iter().next() {
            return Err(error);
        }
        let new = configured.iter().filter(|rule| !self.rules.has(rule, Origin::Config));
        let new = new.map(|rule| {
            let replaces = self.rules.origin(rule.kind(), rule.name()).is_some();
            Event::rule_defined(rule.clone(), Origin::Config, replaces)
        });
        Ok(new.chain(gone).collect())
    }

    /// Returns the groups of an earlier configuration that `configured` no longer has although rules that were defined at
    /// run time refer to them, each with the error that names these rules.
    pub fn dropped_groups_in_use(&self, configured: &[NamedRule]) -> Vec<(NamedRule, Error)> {
        let is_configured = |known: &NamedRule| configured.iter().any(|rule| rule.is_same_name(known));
        let left = || self.rules.iter().filter(|(rule, _)| !is_configured(rule));
        let dropped = left().filter(|(rule, origin)| rule.kind() == RuleKind::Group && *origin == Origin::Config);
        let with_error = |(group, _): (NamedRule, Origin)| {
            let refers = |rule: &NamedRule| rule.referenced_groups().iter().any(|name| name == group.name());
            let users: Vec<String> = left()
                .filter(|(rule, origin)| *origin == Origin::Runtime && refers(rule))
                .map(|(rule, _)| rule.to_string())
                .collect();
            let message = format!(
                "{group} is used by {}, defined at run time; keep the group in the configuration, or change or remove \
                 them first",
                users.join(", ")
            );
            (!users.is_empty()).then(|| (group, Error::new(Code::ConfigInvalid, message)))
        };
        dropped.filter_map(with_error).collect()
    }

    /// Folds a definition into the state.
    pub(super) fn apply_rule(&mut self, rule: NamedRule, origin: Origin) {
        Arc::make_mut(&mut self.rules).define(rule, origin);
    }
}

/// Error for a rule that refers to a group that does not exist, with the most similar name.
fn unknown_group_error<'a>(rule: &NamedRule, group: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let near = did_you_mean(group, known);
    let group = sanitize_truncated(group, 80);
    Error::new(Code::ConfigInvalid, format!("{rule} refers to the unknown group `{group}`{near}"))
}

/// Error for a change of a rule of the configuration. The library adds the file and line.
fn configured_rule_error(kind: RuleKind, name: &str) -> Error {
    let message = format!("{} `{name}` is defined in the configuration; change it there", kind.noun());
    Error::new(Code::Conflict, message).with_retryable(false)
}
