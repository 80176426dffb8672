//! Whether the journal is whole and the catalogue equals its replay.

use serde::Serialize;
use toolcrib_core::Result;
use toolcrib_core::inventory::Inventory;

use super::Registry;
use super::journal::{BATCH, Entry, Understood};
use super::newer::NewerRecord;
use crate::store::StoredRecord;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    pub records: u64,
    pub manifests: usize,
    /// How many records a newer Toolcrib wrote and this build does not know.
    pub unknown_events: u64,
    /// Why nothing is called or written, where one of those records must not be ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// What is wrong, in words. Empty when all is well.
    pub faults: Vec<String>,
}

impl Registry {
    /// Reads everything again, from the first record on.
    pub async fn verify(&self) -> Result<Verification> {
        let mut found = Verification { records: 0, manifests: 0, unknown_events: 0, upgrade: None, faults: Vec::new() };
        let mut replay = Inventory::default();
        let mut upgrade_for = None;
        for stored in self.journal(0).await? {
            if stored.seq != replay.version + 1 {
                found.faults.push(format!("record {} follows record {}: some are missing", stored.seq, replay.version));
            }
            let entry = Entry::read(stored);
            if let Understood::Damaged(reason) = &entry.understood {
                found.faults.push(format!("record {} cannot be read: {reason}", entry.record.seq));
            }
            let newer = entry.newer();
            found.unknown_events += u64::from(newer.is_some());
            upgrade_for = NewerRecord::latest(upgrade_for, newer.into_iter().filter(|newer| newer.critical));
            replay.apply(&entry.record);
            found.records += 1;
        }
        found.upgrade = upgrade_for.map(|newer| newer.refusal().message);
        self.shared.catch_up().await?;
        let now = self.shared.now.load_full();
        if *now.inventory != replay && now.inventory.version == replay.version {
            found.faults.push("what is served differs from a replay of the journal".into());
        }
        for (id, state) in replay.sources() {
            if self.shared.store.definitions(&[state.definition]).await?.is_empty() {
                found.faults.push(format!("the definition of `{id}` is missing"));
            }
            let Some(fingerprint) = state.manifest else { continue };
            match self.shared.store.manifests(&[fingerprint]).await?.pop() {
                None => found.faults.push(format!("the manifest of `{id}` is missing")),
                Some(packed) => {
                    found.manifests += 1;
                    found.faults.extend(packed.fault().map(|fault| format!("`{id}`: {fault}")));
                    let missing = packed.tools.iter().filter(|tool| !state.tools.contains_key(&tool.name)).count();
                    if missing > 0 {
                        found.faults.push(format!("{missing} tools of `{id}` are in its manifest but in no record"));
                    }
                }
            }
        }
        Ok(found)
    }

    async fn journal(&self, after: u64) -> Result<Vec<StoredRecord>> {
        let (mut records, mut after) = (Vec::new(), after);
        loop {
            let batch = self.shared.store.records(after, BATCH).await?;
            let Some(last) = batch.last() else { return Ok(records) };
            after = last.seq;
            records.extend(batch);
        }
    }
}
