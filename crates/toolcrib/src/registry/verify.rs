//! Whether the journal is whole and the catalogue equals its replay.

use serde::Serialize;
use toolcrib_core::Result;
use toolcrib_core::inventory::{Damage, Inventory};
use toolcrib_core::text::sanitize_truncated;

use super::Registry;
use super::damage::{HeadCheck, JournalDamage};
use super::journal::{JournalEntry, READ_BATCH_SIZE};
use super::newer_records::NewerRecord;
use crate::store::{JournalPosition, StoreState, StoredRecord};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    pub records: u64,
    pub manifests: usize,
    /// How many records a newer Toolcrib wrote and this build does not know.
    pub unknown_events: u64,
    /// Why nothing is called or written, where one of those records must not be ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// How the store is; left out of JSON where it is in order.
    #[serde(skip_serializing_if = "StoreState::is_ok")]
    pub store: StoreState,
    /// What is damaged, in words: nothing is called or written until it is accepted. Part of `faults`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
    /// Damage that an administrator has accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
    /// What is wrong, in words. Empty when all is well.
    pub faults: Vec<String>,
}

/// Lines of the store's own check that are shown.
const MAX_INTEGRITY_LINES: usize = 20;

impl Registry {
    /// Reads everything again, from the first record on.
    pub async fn verify(&self) -> Result<Verification> {
        let mut found = Verification {
            records: 0,
            manifests: 0,
            unknown_events: 0,
            upgrade: None,
            store: StoreState::Ok,
            damage: Vec::new(),
            accepted: Vec::new(),
            faults: Vec::new(),
        };
        let mut replay = Inventory::default();
        let mut upgrade_for = None;
        let unusable = self.shared.options.head_file.as_ref().and_then(|head| head.store_damage.clone());
        let mut damage = JournalDamage { store: unusable, ..JournalDamage::default() };
        let mut head_check = HeadCheck::new(JournalPosition::default(), self.shared.remembered_position(&mut damage));
        for stored in self.read_journal(&mut damage).await? {
            let entry = JournalEntry::parse(stored);
            head_check.observe(&entry);
            damage.add_record(replay.version, &entry);
            let newer = entry.newer_record();
            found.unknown_events += u64::from(newer.is_some());
            upgrade_for = NewerRecord::latest(upgrade_for, newer.into_iter().filter(|newer| newer.critical));
            replay.apply(&entry.record);
            found.records += 1;
        }
        found.upgrade = upgrade_for.map(|newer| newer.to_error().message);
        head_check.finish(replay.version, &mut damage);
        found.damage = damage.describe();
        found.accepted = damage.log.accepted().iter().map(ToString::to_string).collect();
        if !damage.is_empty() {
            found.store = damage.state();
        }
        found.faults.clone_from(&found.damage);
        found.faults.extend(self.integrity_faults().await);
        self.ignore_damage(self.shared.catch_up().await)?;
        let snapshot = self.shared.snapshot.load_full();
        if *snapshot.inventory != replay && snapshot.inventory.version == replay.version {
            found.faults.push("what is served differs from a replay of the journal".into());
        }
        for (id, state) in replay.sources() {
            if self.ignore_damage(self.shared.store.definitions(&[state.definition]).await)?.is_empty() {
                found.faults.push(format!("the definition of `{id}` is missing"));
            }
            let Some(fingerprint) = state.manifest else { continue };
            match self.ignore_damage(self.shared.store.manifests(&[fingerprint]).await)?.pop() {
                None => found.faults.push(format!("the manifest of `{id}` is missing")),
                Some(packed) => {
                    found.manifests += 1;
                    found.faults.extend(packed.find_damage().map(|fault| format!("`{id}`: {fault}")));
                    let missing = packed.tools.iter().filter(|tool| !state.tools.contains_key(&tool.name)).count();
                    if missing > 0 {
                        found.faults.push(format!("{missing} tools of `{id}` are in its manifest but in no record"));
                    }
                }
            }
        }
        Ok(found)
    }

    /// What the store's own check finds, in words. Reads everything.
    pub async fn integrity_faults(&self) -> Vec<String> {
        let described = |line: &str| format!("the store's own check: {}", sanitize_truncated(line, 200));
        match self.shared.store.check_integrity(MAX_INTEGRITY_LINES).await {
            Ok(lines) => lines.iter().map(|line| described(line)).collect(),
            Err(error) => vec![described(&error.message)],
        }
    }

    /// What cannot be read for damage counts as absent, and was named before.
    pub(super) fn ignore_damage<T: Default>(&self, read: Result<T>) -> Result<T> {
        match read {
            Err(error) if StoreState::from_error(&error) == StoreState::Damaged => Ok(T::default()),
            read => read,
        }
    }

    pub(super) async fn read_journal(&self, damage: &mut JournalDamage) -> Result<Vec<StoredRecord>> {
        let mut records: Vec<StoredRecord> = Vec::new();
        loop {
            let after = records.last().map_or(0, |last| last.seq);
            let batch = match self.shared.store.records(after, READ_BATCH_SIZE).await {
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
