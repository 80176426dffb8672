//! Reconciling the configuration with the inventory: only the differences are executed as commands, so a start with an
//! unchanged configuration writes nothing and takes no lock in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_config::Config;
use toolcrib_core::access_rules::NamedRule;
use toolcrib_core::inventory::{Actor, Command, Inventory, Origin, reconcile};
use toolcrib_core::{Code, Result, Source, SourceId};

use super::State;
use crate::registry::Precondition;
use crate::store::ErrorSummary;

impl State {
    /// Turns the difference between configuration and inventory into commands and executes them. Rules come first, so that
    /// no new tool is visible without them.
    pub(crate) async fn reconcile(&self, config: &Config) -> Result<()> {
        self.reconcile_rules(config).await?;
        let mut declared = Vec::new();
        let mut invalid = BTreeMap::new();
        for declaration in &config.sources {
            match &declaration.source {
                Ok(source) => declared.push(source),
                Err(faults) => {
                    let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    invalid.insert(declaration.id.clone(), ErrorSummary::new(Code::ConfigInvalid, message));
                }
            }
        }
        // Compare the configuration with the journal. A source with an invalid declaration is reported as such and
        // otherwise left as it is: a typing error must not remove its tools and history.
        let inventory = self.snapshot().inventory.clone();
        let declarations =
            declared.iter().map(|source| self.declaration(source, Origin::Config)).collect::<Result<Vec<_>>>()?;
        // Sources that stay in the inventory although no valid declaration was read for them.
        let mut retained: Vec<SourceId> = invalid.keys().cloned().collect();
        retained.extend(self.block_untrusted_sources(&inventory, &declared, &mut invalid));
        let commands = reconcile(&inventory, declarations, &retained);
        let mut commands: Vec<Command> =
            commands.into_iter().filter(|command| !is_already_applied(&inventory, command)).collect();
        // A damaged or too new journal opens read-only; the log says that the configuration was not applied.
        if self.snapshot().ensure_usable().is_err() && !commands.is_empty() {
            tracing::warn!(changes = commands.len(), "changes of the configuration are not applied");
            commands.clear();
        }
        for command in commands {
            if let Command::Declare(declaration) = &command {
                // First the content, then the event that refers to it.
                let source: Option<&&Source> = declared.iter().find(|source| source.id == declaration.source);
                if let Some(source) = source {
                    self.store.put_definition(declaration.definition, source).await?;
                }
                // A source added at run time under the same name gives way, with a warning.
                if inventory.source(&declaration.source).is_some_and(|state| state.origin == Origin::Runtime) {
                    tracing::warn!(source = %declaration.source, "the declaration in the configuration takes precedence over the one made at run time");
                }
            }
            // The configuration no longer has it. Old definitions may hold secrets.
            if let Command::Remove(id) = &command {
                self.store.remove_definitions(id, None).await?;
                self.store.remove_source_status(id).await?;
            }
            self.execute(&[command], Actor::config(), Precondition::NONE).await?;
        }
        let invalid = Arc::new(invalid);
        self.update_snapshot(|snapshot| snapshot.invalid_sources = invalid.clone());
        Ok(())
    }

    /// Replaces the groups, access rules and policies of the configuration, all at once. Those of a file that lost its trust
    /// stay as they are: without them, tools would become visible.
    async fn reconcile_rules(&self, config: &Config) -> Result<()> {
        let inventory = self.snapshot().inventory.clone();
        let mut rules: Vec<NamedRule> = config.rules.iter().map(|configured| configured.rule.clone()).collect();
        if self.trust.load().untrusted.is_some() {
            let is_known = |known: &NamedRule| {
                let has_name = |rule: &NamedRule| rule.kind() == known.kind() && rule.name() == known.name();
                config.rules.iter().any(|configured| has_name(&configured.rule))
            };
            let kept = inventory.rules().iter().filter(|(rule, origin)| *origin == Origin::Config && !is_known(rule));
            rules.extend(kept.map(|(rule, _)| rule));
        }
        let overridden =
            rules.iter().filter(|rule| inventory.rules().origin(rule.kind(), rule.name()) == Some(Origin::Runtime));
        for rule in overridden {
            let (kind, name) = (rule.kind().noun(), rule.name());
            tracing::warn!("{kind} `{name}` of the configuration takes precedence over the one defined at run time");
        }
        let command = Command::ReconcileRules(rules);
        let events = inventory.decide(&command)?;
        if events.is_empty() {
            return Ok(());
        }
        if self.snapshot().ensure_usable().is_err() {
            tracing::warn!(changes = events.len(), "changes of groups, access rules and policies are not applied");
            return Ok(());
        }
        self.execute(&[command], Actor::config(), Precondition::NONE).await?;
        Ok(())
    }

    /// Blocks the sources of an untrusted file: those it declares, and those of the store that it may have declared
    /// before, which stay as they are and are returned. A blocked source that the store does not know is listed as
    /// invalid, with the reason. Without this, a file that lost its trust would lose all its sources in the store,
    /// because none of its declarations is read.
    fn block_untrusted_sources(
        &self,
        inventory: &Inventory,
        declared: &[&Source],
        invalid: &mut BTreeMap<SourceId, ErrorSummary>,
    ) -> Vec<SourceId> {
        let trust = self.trust.load();
        let mut blocked = trust.blocked_sources();
        let Some(untrusted) = &trust.untrusted else {
            self.publish_blocked(blocked);
            return Vec::new();
        };
        let configured = inventory.sources().filter(|(_, state)| state.origin == Origin::Config);
        let undeclared = configured.map(|(id, _)| id).filter(|id| !declared.iter().any(|source| source.id == **id));
        let undeclared: Vec<SourceId> = undeclared.cloned().collect();
        for id in untrusted.sources.iter().filter(|id| inventory.source(id).is_none()) {
            let failure = ErrorSummary::new(Code::Forbidden, untrusted.reason.clone());
            invalid.entry(id.clone()).or_insert(failure);
        }
        blocked.extend(undeclared.iter().map(|id| (id.clone(), untrusted.reason.clone())));
        self.publish_blocked(blocked);
        undeclared
    }
}

/// Whether a command would change nothing. Decided on the snapshot, so that a start with an unchanged configuration
/// takes no lock in the store.
fn is_already_applied(inventory: &Inventory, command: &Command) -> bool {
    inventory.decide(command).is_ok_and(|events| events.is_empty())
}
