//! Reconciling the configuration with the inventory: only the differences are executed as commands, so a start with an
//! unchanged configuration writes nothing and takes no lock in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib_config::Config;
use toolcrib_core::access_rules::NamedRule;
use toolcrib_core::inventory::{Actor, Command, Inventory, Origin, reconcile};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use super::State;
use crate::notice::RegistryNotice;
use crate::registry::Precondition;
use crate::store::{ErrorSummary, is_contract_pending};

impl State {
    /// Turns the difference between configuration and inventory into commands and executes them. Rules come first, so
    /// that no new tool is visible without them.
    ///
    /// Changes whose records may be written only after the end of an upgrade of all nodes are deferred: until then,
    /// what is in force stays. If the rules are deferred, sources are only removed and disabled.
    pub(crate) async fn reconcile(&self, config: &Config) -> Result<()> {
        let mut deferred_config = self.deferred_config.lock().await;
        // Also if this one fails: the one before it must not come into force again.
        *deferred_config = None;
        let deferral = self.apply_config(config).await?;
        if let Some(error) = &deferral {
            tracing::warn!("a part of the configuration is not applied yet: {error}");
        }
        *deferred_config = deferral.map(|_| config.clone());
        Ok(())
    }

    /// Applies the changes that were deferred once the upgrade has ended. Not before, because other nodes may have
    /// applied other configurations since.
    pub(crate) async fn apply_deferred_config(&self) -> Result<()> {
        let mut deferred_config = self.deferred_config.lock().await;
        let Some(config) = &*deferred_config else { return Ok(()) };
        if self.store.administration().schema_status().await?.is_contract_pending {
            return Ok(());
        }
        match self.apply_config(config).await {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => tracing::info!("the configuration is applied completely"),
            Err(error) if error.code == Code::StoreUnavailable => return Err(error),
            Err(error) => tracing::warn!(%error, "the rest of the configuration is refused"),
        }
        *deferred_config = None;
        Ok(())
    }

    /// The steps of `reconcile`. Returns the reason why changes were left out, if there were such.
    async fn apply_config(&self, config: &Config) -> Result<Option<Error>> {
        let mut deferral = self.reconcile_rules(self.configured_rules(config)).await?;
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
        if config.retains_sources {
            let configured = inventory.sources().filter(|(_, state)| state.origin == Origin::Config);
            retained.extend(configured.map(|(id, _)| id.clone()));
        }
        let commands = reconcile(&inventory, declarations, &retained);
        let mut commands: Vec<Command> =
            commands.into_iter().filter(|command| !is_already_applied(&inventory, command)).collect();
        // A damaged or too new journal opens read-only; the log says that the configuration was not applied.
        if self.snapshot().ensure_usable().is_err() && !commands.is_empty() {
            tracing::warn!(changes = commands.len(), "changes of the configuration are not applied");
            commands.clear();
        }
        if deferral.is_some() {
            commands.retain(|command| matches!(command, Command::Remove(_) | Command::Disable(_)));
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
            let removed = if let Command::Remove(id) = &command { Some(id.clone()) } else { None };
            if let Some(error) = self.execute_configured(command).await? {
                deferral = Some(error);
            } else if let Some(id) = removed {
                // The configuration no longer has it. Old definitions may hold secrets.
                self.remove_outdated_rows(&id).await?;
            }
        }
        let invalid = Arc::new(invalid);
        self.update_snapshot(|snapshot| snapshot.invalid_sources = invalid.clone());
        Ok(deferral)
    }

    /// Executes a command of the configuration. Returns the refusal if nodes of the previous version could not read it.
    async fn execute_configured(&self, command: Command) -> Result<Option<Error>> {
        match self.execute(&[command], Actor::config(), Precondition::NONE).await {
            Err(error) if is_contract_pending(&error) => Ok(Some(error)),
            executed => executed.map(|_| None),
        }
    }

    /// Fails with `CONFIG_INVALID` if the rules of a configuration do not fit to those that were defined at run time.
    pub(crate) fn check_rules(&self, config: &Config) -> Result<()> {
        let inventory = self.snapshot().inventory.clone();
        inventory.decide(&Command::ReconcileRules(wanted_rules(&inventory, config))).map(drop)
    }

    /// Returns the rules that a configuration puts into force. A group of an earlier one stays as long as rules that
    /// were defined at run time refer to it: without it, a policy would match more tools, and an access rule give
    /// fewer.
    fn configured_rules(&self, config: &Config) -> Vec<NamedRule> {
        let inventory = self.snapshot().inventory.clone();
        let mut rules = wanted_rules(&inventory, config);
        for (group, error) in inventory.dropped_groups_in_use(&rules) {
            tracing::warn!("{error}; the group stays in force");
            rules.push(group);
        }
        rules
    }

    /// Replaces the groups, access rules and policies of the configuration, all at once. While the journal cannot be
    /// written, they are pending, and only administrators see tools.
    async fn reconcile_rules(&self, rules: Vec<NamedRule>) -> Result<Option<Error>> {
        let _guard = self.reconciling_rules.lock().await;
        self.write_rules(rules).await
    }

    /// The steps of `reconcile_rules`. Called with the lock held: pending rules must not replace those of a later
    /// reload.
    async fn write_rules(&self, rules: Vec<NamedRule>) -> Result<Option<Error>> {
        let snapshot = self.snapshot();
        let known = snapshot.inventory.rules();
        for rule in rules.iter().filter(|rule| known.origin(rule.kind(), rule.name()) == Some(Origin::Runtime)) {
            tracing::warn!("{rule} of the configuration takes precedence over the one defined at run time");
        }
        let command = Command::ReconcileRules(rules.clone());
        let mut deferral = None;
        let events = snapshot.inventory.decide(&command)?;
        let is_pending = !events.is_empty() && snapshot.ensure_usable().is_err();
        if is_pending {
            tracing::warn!(changes = events.len(), "changes of groups, access rules and policies are not applied");
        } else if !events.is_empty() {
            deferral = self.execute_configured(command).await?;
        }
        let pending = is_pending.then(|| Arc::new(rules));
        if pending.is_some() || snapshot.pending_rules.is_some() {
            self.update_snapshot(|snapshot| snapshot.pending_rules = pending.clone());
            self.notify(RegistryNotice::RulesChanged);
        }
        Ok(deferral)
    }

    /// Writes the rules of the configuration that could not be written before, if the journal can be used again.
    pub(crate) async fn write_pending_rules(&self) -> Result<()> {
        if self.snapshot().pending_rules.is_none() {
            return Ok(());
        }
        let _guard = self.reconciling_rules.lock().await;
        let snapshot = self.snapshot();
        match &snapshot.pending_rules {
            Some(rules) if snapshot.ensure_usable().is_ok() => self.write_rules(rules.to_vec()).await.map(drop),
            Some(_) | None => Ok(()),
        }
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

/// Returns the rules of a configuration, with those of an earlier one that it does not replace.
fn wanted_rules(inventory: &Inventory, config: &Config) -> Vec<NamedRule> {
    let mut rules: Vec<NamedRule> = config.rules.iter().map(|configured| configured.rule.clone()).collect();
    if !config.replaces_rules {
        let configured = inventory.rules().iter().filter(|(_, origin)| *origin == Origin::Config);
        let kept = configured.map(|(rule, _)| rule).filter(|known| !rules.iter().any(|rule| rule.is_same_name(known)));
        let kept: Vec<NamedRule> = kept.collect();
        if !kept.is_empty() {
            tracing::info!(rules = kept.len(), "rules of a configuration that was not read stay in force");
        }
        rules.extend(kept);
    }
    rules
}

/// Whether a command would change nothing. Decided on the snapshot, so that a start with an unchanged configuration
/// takes no lock in the store.
fn is_already_applied(inventory: &Inventory, command: &Command) -> bool {
    inventory.decide(command).is_ok_and(|events| events.is_empty())
}
