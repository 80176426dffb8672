//! Accepting damage of the journal, and reading what is left of a damaged store.
//!
//! While there is unaccepted damage, calls and writes are refused. Accepting it is a decision of an administrator: it
//! is recorded in the journal, and revokes every token, because the record that revoked one may be lost.

use serde::Serialize;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, Origin, StoredEvent};
use toolcrib_core::{Error, Result};

use super::StoreMaintenance;
use crate::state::JournalDamage;
use crate::store::{RecordReferences, Salvage};

/// Result of accepting damage: what was revoked, and what may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamageAcceptance {
    /// Descriptions of the damage.
    pub damage: Vec<String>,
    /// Names of the known tokens; every token is revoked now, known or not.
    pub revoked_tokens: Vec<String>,
    /// Settings that are still known, as a reminder to check them: lost records may have held more of each kind.
    pub disabled_sources: Vec<String>,
    /// Tools that are disabled, as `source/name`.
    pub disabled_tools: Vec<String>,
    /// Sources that were declared at run time.
    pub runtime_sources: Vec<String>,
    /// Groups, access rules and policies that were defined at run time, such as ``policy `ask` ``.
    pub runtime_rules: Vec<String>,
    /// Sequence number of the record of the decision.
    pub seq: u64,
}

impl StoreMaintenance<'_> {
    /// Returns the error with which calls and writes are refused, if the journal is damaged.
    pub fn damage_error(&self) -> Option<Error> {
        self.registry.state.snapshot().ensure_undamaged().err()
    }

    /// Whether the store's file is unusable, so that accepting the damage requires a new one.
    pub fn needs_new_store(&self) -> bool {
        self.registry.state.snapshot().damage.as_ref().is_some_and(|damage| damage.needs_new_store())
    }

    /// Records that the damage of the journal is accepted: every token is revoked, and calls and writes resume with
    /// what can be read. Returns `None` if nothing is damaged. Writes one `DamageAccepted` and a `TokenRevoked` for
    /// each known token. If [`StoreMaintenance::needs_new_store`] is true, salvage and rebuild the store instead.
    pub async fn accept_damage(&self, actor: Actor) -> Result<Option<DamageAcceptance>> {
        self.registry.state.catch_up().await?;
        let Some(damage) = self.registry.state.snapshot().damage.clone() else { return Ok(None) };
        let records = damage.damaged_records();
        self.record_acceptance(damage.describe(), records, actor).await.map(Some)
    }

    /// Returns a description of each fault of the journal and of the store's file.
    pub async fn describe_damage(&self) -> Vec<String> {
        let mut descriptions =
            self.registry.state.snapshot().damage.as_ref().map(|damage| damage.describe()).unwrap_or_default();
        descriptions.extend(self.integrity_faults().await);
        descriptions
    }

    /// Reads everything that can still be read from the store, to fill a new one. Measurements are not part of it: they
    /// can be measured again.
    pub async fn salvage(&self) -> Result<Salvage> {
        let store = &self.registry.state.store;
        let records = self.read_journal(&mut JournalDamage::default()).await?;
        let inventory = self.registry.inventory();
        let fingerprints: Vec<Fingerprint> = inventory.sources().map(|(_, state)| state.definition).collect();
        let definitions = self.ignore_damage(store.definitions(&fingerprints).await)?;
        let mut references = RecordReferences::default();
        for record in &records {
            if let StoredEvent::Known(event) = StoredEvent::parse(&record.body) {
                references.add(&event);
            }
        }
        let manifests: Vec<Fingerprint> = references.manifests.into_iter().collect();
        let manifests = self.ignore_damage(store.manifests(&manifests).await)?;
        let features: Vec<Fingerprint> = references.features.into_iter().collect();
        let features = self.ignore_damage(store.features(&features).await)?;
        let key = store.key().await.ok();
        Ok(Salvage { key, records, definitions, manifests, features })
    }

    /// Like `accept_damage`, for the given faults: those of the old store, after a new one was filled from it.
    pub async fn accept_described_damage(&self, descriptions: Vec<String>, actor: Actor) -> Result<DamageAcceptance> {
        self.record_acceptance(descriptions, None, actor).await
    }

    /// Writes the acceptance and resets the head file. The reminder lists come from the inventory before the
    /// acceptance, which clears the tokens.
    async fn record_acceptance(
        &self,
        descriptions: Vec<String>,
        records: Option<Vec<(u64, u64)>>,
        actor: Actor,
    ) -> Result<DamageAcceptance> {
        let before = self.registry.inventory();
        let command = Command::AcceptDamage { damage: descriptions.clone(), records };
        self.registry.state.write_despite_damage(&actor, None, |writer| writer.inventory.decide(&command)).await?;
        let written = self.registry.state.snapshot().remembered_head();
        let seq = written.position.seq;
        if let Some(head) = &self.registry.options.head_file {
            head.reset(written).await?;
        }
        self.registry.state.catch_up().await?;
        let disabled_sources = before.sources().filter(|(_, state)| !state.enabled);
        let disabled_tools = before.sources().flat_map(|(id, state)| {
            let disabled = state.tools.iter().filter(|(_, tool)| tool.disabled);
            disabled.map(move |(name, _)| format!("{id}/{name}"))
        });
        let runtime_sources = before.sources().filter(|(_, state)| state.origin == Origin::Runtime);
        let runtime_rules = before.rules().iter().filter(|(_, origin)| *origin == Origin::Runtime);
        let mut revoked_tokens: Vec<String> = before.tokens().map(|token| token.name().to_owned()).collect();
        revoked_tokens.sort();
        Ok(DamageAcceptance {
            damage: descriptions,
            revoked_tokens,
            disabled_sources: disabled_sources.map(|(id, _)| id.to_string()).collect(),
            disabled_tools: disabled_tools.collect(),
            runtime_sources: runtime_sources.map(|(id, _)| id.to_string()).collect(),
            runtime_rules: runtime_rules.map(|(rule, _)| rule.to_string()).collect(),
            seq,
        })
    }
}
