//! Verification: is the journal complete and undamaged, and whether the served catalogue equals its replay.
//!
//! Reads everything from the store, whatever is cached: all records, the definition and the current manifest of each
//! source, and the store's own integrity check. It changes nothing, so it may run beside other processes.

use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::Result;
use toolcrib_core::inventory::{Damage, Inventory};
use toolcrib_core::principal::Principal;
use toolcrib_core::text::sanitize_truncated;

use super::Registry;
use crate::state::{HeadCheck, InventorySnapshot, JournalDamage, JournalEntry, NewerRecord, READ_BATCH_SIZE};
use crate::store::{JournalPosition, NodeStatus, StoreState, StoredRecord};
use crate::store_health::StoreHealth;

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Verification {
    /// Number of records that were read.
    pub records: u64,
    /// Number of manifests that were checked.
    pub manifests: usize,
    /// Number of lists of prompts and resources that were checked.
    pub feature_lists: usize,
    /// Number of records that a newer Toolcrib wrote and this build does not understand.
    pub unknown_events: u64,
    /// Why calls and writes are refused, if one of those records is critical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// State of the store; omitted from JSON if it is in order.
    #[serde(skip_serializing_if = "StoreState::is_ok")]
    pub store: StoreState,
    /// Descriptions of the damage: calls and writes are refused until it is accepted. Part of `faults`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// Damage that an administrator has accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
    /// Descriptions of all faults; empty if there are none.
    pub faults: Vec<String>,
}

/// Next step after a fault of the snapshot.
const SNAPSHOT_HINT: &str = "; `toolcrib store prune` removes it, and a server writes a new one";

/// Maximum number of faults shown from the store's own integrity check.
const MAX_INTEGRITY_LINES: usize = 20;

/// Checks and repairs the store of a registry; see [`Registry::store`].
#[derive(Debug, Clone, Copy)]
pub struct StoreMaintenance<'a> {
    pub(super) registry: &'a Registry,
}

impl StoreMaintenance<'_> {
    /// Fails if calls cannot be expected to work. A store that is down prevents changes, but not calls. The error names
    /// no path: `/readyz` is answered without credentials.
    pub fn check_ready(&self) -> Result<()> {
        self.registry.maintenance.check_ready()
    }
    /// Returns the health of the store, without accessing it.
    pub fn health(&self) -> StoreHealth {
        self.registry.maintenance.store_health()
    }

    /// Returns the nodes that share the store, as of the last maintenance run, without accessing it. `None` if the store
    /// keeps no reports, because a single machine uses it.
    pub fn nodes(&self) -> Option<Arc<Vec<NodeStatus>>> {
        self.registry.maintenance.nodes()
    }

    /// Like [`StoreMaintenance::nodes`]; `None` also for a principal that is limited to the tools of groups.
    pub fn nodes_for(&self, principal: &Principal) -> Option<Arc<Vec<NodeStatus>>> {
        self.nodes().filter(|_| !self.registry.scope(principal).limits_tools())
    }

    /// Reads everything again, from the first record on. Takes time in proportion to the journal. Fails only if the
    /// store is down; damage is part of the result.
    pub async fn verify(&self) -> Result<Verification> {
        let mut verification = Verification::default();
        let mut replay = Inventory::default();
        let mut newer_record = None;
        let mut snapshot_fault = None;
        let head_file = self.registry.options.head_file.as_ref();
        let store_damage = head_file.and_then(|head| head.store_damage.clone());
        let mut damage = JournalDamage { store: store_damage, ..JournalDamage::default() };
        // The integrity check compares the head that the store keeps.
        let mut head_check = HeadCheck::new(JournalPosition::default(), damage.read_head(head_file).await, 0);
        let snapshot = self.load_snapshot().await;
        // Replay the journal.
        for stored in self.read_journal(&mut damage).await? {
            let entry = JournalEntry::parse(stored);
            head_check.observe(&entry);
            damage.add_record(replay.version, &entry);
            let newer = entry.newer_record();
            verification.unknown_events += u64::from(newer.is_some());
            newer_record = NewerRecord::latest(newer_record, newer.into_iter().filter(|newer| newer.critical));
            replay.apply(&entry.record);
            verification.records += 1;
            if let Ok(Some(snapshot)) = &snapshot
                && snapshot.position.seq == entry.record.seq
                && snapshot.position.checksum == *entry.checksum
                && snapshot.inventory != replay
            {
                let fault =
                    format!("the snapshot of the inventory differs from a replay of the journal{SNAPSHOT_HINT}");
                snapshot_fault = Some(fault);
            }
        }
        verification.upgrade = newer_record.map(|newer| newer.to_error().message);
        head_check.finish(replay.version, &mut damage);
        verification.damage = damage.describe();
        verification.accepted = damage.log.accepted().iter().map(ToString::to_string).collect();
        if !damage.is_empty() {
            verification.store = damage.state();
        }
        verification.faults.clone_from(&verification.damage);
        verification.faults.extend(snapshot.err().or(snapshot_fault));
        // Compare with what is served, then check the content that the journal refers to.
        verification.faults.extend(self.integrity_faults().await);
        self.ignore_damage(self.registry.state.catch_up().await)?;
        let snapshot = self.registry.state.snapshot();
        // Another process may have written since the replay; then the versions differ.
        if *snapshot.inventory != replay && snapshot.inventory.version == replay.version {
            verification.faults.push("the served catalogue differs from a replay of the journal".into());
        }
        // Each source needs its definition to be contacted and its manifest to be listed.
        for (id, state) in replay.sources() {
            if self.ignore_damage(self.registry.state.store.definitions(&[state.definition]).await)?.is_empty() {
                verification.faults.push(format!("the definition of `{id}` is missing"));
            }
            if let Some(fingerprint) = state.features {
                match self.ignore_damage(self.registry.state.store.features(&[fingerprint]).await)?.pop() {
                    None => verification.faults.push(format!("the list of prompts and resources of `{id}` is missing")),
                    Some(features) => {
                        verification.feature_lists += 1;
                        verification.faults.extend(features.find_damage().map(|fault| format!("`{id}`: {fault}")));
                    }
                }
            }
            let Some(fingerprint) = state.manifest else { continue };
            match self.ignore_damage(self.registry.state.store.manifests(&[fingerprint]).await)?.pop() {
                None => verification.faults.push(format!("the manifest of `{id}` is missing")),
                Some(packed) => {
                    verification.manifests += 1;
                    verification.faults.extend(packed.find_damage().map(|fault| format!("`{id}`: {fault}")));
                    // Every tool of the manifest must have been announced by a record.
                    let missing = packed.tools.iter().filter(|tool| !state.tools.contains_key(&tool.name)).count();
                    if missing > 0 {
                        let fault = format!("tools of `{id}` that are in its manifest but in no record: {missing}");
                        verification.faults.push(fault);
                    }
                }
            }
        }
        Ok(verification)
    }

    /// Returns the snapshot of the inventory, if this version wrote it, or a description of its damage.
    async fn load_snapshot(&self) -> Result<Option<InventorySnapshot>, String> {
        let stored = self.registry.state.store.snapshot().await;
        let snapshot =
            stored.and_then(|stored| Ok(stored.as_ref().map(InventorySnapshot::from_stored).transpose()?.flatten()));
        snapshot.map_err(|error| {
            let reason = sanitize_truncated(&error.message, 200);
            format!("the snapshot of the inventory is damaged: {reason}{SNAPSHOT_HINT}")
        })
    }

    /// Runs the store's own integrity check; returns descriptions of faults. Reads everything.
    pub async fn integrity_faults(&self) -> Vec<String> {
        let describe = |line: &str| format!("integrity check of the store: {}", sanitize_truncated(line, 200));
        match self.registry.state.store.check_integrity(MAX_INTEGRITY_LINES).await {
            Ok(lines) => lines.iter().map(|line| describe(line)).collect(),
            Err(error) => vec![describe(&error.message)],
        }
    }

    /// Treats what cannot be read because of damage as absent. The damage itself is reported elsewhere.
    pub(super) fn ignore_damage<T: Default>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(error) if StoreState::from_error(&error) == StoreState::Damaged => Ok(T::default()),
            result => result,
        }
    }

    /// Reads the whole journal; damage ends the reading and is added to `damage`. Returns all records at once, so the
    /// memory grows with the journal.
    pub(super) async fn read_journal(&self, damage: &mut JournalDamage) -> Result<Vec<StoredRecord>> {
        let mut records: Vec<StoredRecord> = Vec::new();
        loop {
            let after = records.last().map_or(0, |last| last.seq);
            let batch = match self.registry.state.store.records(after, READ_BATCH_SIZE).await {
                Err(error) if StoreState::from_error(&error) == StoreState::Damaged => {
                    damage.log.add(Damage::UnreadableAfter { seq: after, reason: error.message });
                    return Ok(records);
                }
                batch => batch?,
            };
            if batch.is_empty() {
                return Ok(records);
            }
            records.extend(batch);
        }
    }
}
