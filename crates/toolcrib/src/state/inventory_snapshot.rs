//! Starts from a snapshot of the inventory instead of the first record, and writes new snapshots in the background.
//!
//! A snapshot is used only if this version wrote it and if the record that it ends with is still in the journal,
//! unchanged. Everything else makes the start read the whole journal, as without a snapshot. Records before the snapshot
//! are not checked at a start; `verify` reads all of them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolcrib_core::inventory::Inventory;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::State;
use super::publish::WriterState;
use crate::store::{JournalPosition, Store, StoredSnapshot};

/// Number of records after which a new snapshot is written. A start folds as many in tens of milliseconds.
const SNAPSHOT_INTERVAL: u64 = 10_000;
/// Interval at which a long-running process looks whether a snapshot is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time after a failure before another attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Snapshots of other builds are ignored.
const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The state that a journal leads to, up to a record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InventorySnapshot {
    /// The last record.
    pub(crate) position: JournalPosition,
    pub(crate) inventory: Inventory,
    /// Number of the last record that accepts damage, or 0.
    pub(crate) accepted_through: u64,
}

/// Content of [`StoredSnapshot::body`].
#[derive(Serialize, Deserialize)]
struct SnapshotBody {
    accepted_through: u64,
    inventory: Box<RawValue>,
}

impl InventorySnapshot {
    /// Converts the snapshot for the store. CPU-heavy for many tools.
    pub(crate) fn to_stored(&self) -> Result<StoredSnapshot> {
        let body =
            SnapshotBody { accepted_through: self.accepted_through, inventory: self.inventory.to_saved_state()? };
        let body = serde_json::to_string(&body).context(Code::Internal, "write a snapshot as JSON")?;
        Ok(StoredSnapshot::new(self.position.clone(), PROGRAM_VERSION, body))
    }

    /// Reads a stored snapshot; `None` for one of another version. Fails for a damaged one.
    pub(crate) fn from_stored(stored: &StoredSnapshot) -> Result<Option<InventorySnapshot>> {
        if stored.checksum != stored.compute_checksum() {
            return Err(Error::new(Code::Internal, "its checksum does not match"));
        }
        if stored.version != PROGRAM_VERSION {
            return Ok(None);
        }
        let body: SnapshotBody =
            serde_json::from_str(&stored.body).context(Code::Internal, "it cannot be read as JSON")?;
        let inventory = Inventory::from_saved_state(body.inventory.get())?;
        let position = stored.position.clone();
        Ok(Some(InventorySnapshot { position, inventory, accepted_through: body.accepted_through }))
    }

    /// Whether the record of this position is in the journal, unchanged.
    async fn matches_record(store: &dyn Store, position: &JournalPosition) -> Result<bool> {
        let record = store.records(position.seq.saturating_sub(1), 1).await?.pop();
        Ok(record.is_some_and(|record| record.seq == position.seq && record.compute_checksum() == position.checksum))
    }
}

impl State {
    /// Begins with the stored snapshot, if it can be used. The next `catch_up` reads the records after it and publishes
    /// both. Never fails: without a snapshot, the journal is read from its first record.
    pub(crate) async fn begin_with_snapshot(&self) {
        match self.load_usable_snapshot().await {
            Ok(Some(snapshot)) => self.writer.lock().await.begin_with(snapshot),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "the snapshot of the inventory is ignored; all records are read instead");
            }
        }
    }

    /// Reads the snapshot and compares it with the journal.
    async fn load_usable_snapshot(&self) -> Result<Option<InventorySnapshot>> {
        let Some(stored) = self.store.snapshot().await? else { return Ok(None) };
        // The head file may name an earlier record, if its last update failed. The record is checked here, because the
        // records before the snapshot are not read.
        let head_file = self.options.head_file.as_ref();
        let remembered = match head_file {
            Some(head_file) => head_file.read().await.unwrap_or_default(),
            None => None,
        };
        let remembered = remembered.map(|head| head.position).filter(|head| head.seq < stored.position.seq);
        for position in remembered.iter().chain([&stored.position]) {
            if !InventorySnapshot::matches_record(&*self.store, position).await? {
                let message = format!("record {} of the journal is another one", position.seq);
                return Err(Error::new(Code::Conflict, message));
            }
        }
        let parse = move || InventorySnapshot::from_stored(&stored);
        tokio::task::spawn_blocking(parse).await.context(Code::Internal, "read the snapshot of the inventory")?
    }

    /// Writes a snapshot whenever enough records were applied since the last one. Runs until the registry closes.
    pub(crate) async fn keep_snapshots(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.write_snapshot_if_due().await {
                tracing::warn!(%error, "the snapshot of the inventory cannot be written");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Writes a snapshot if one is due, and no other process has written it. The writer lock is held only to copy the
    /// state.
    async fn write_snapshot_if_due(&self) -> Result<()> {
        let Some(snapshot) = self.writer.lock().await.due_snapshot() else { return Ok(()) };
        let seq = snapshot.position.seq;
        let stored = self.store.snapshot().await?.filter(|stored| stored.version == PROGRAM_VERSION);
        // One beyond this position is of another journal, and is replaced.
        let stored = stored.map(|stored| stored.position.seq).filter(|stored| *stored <= seq);
        if let Some(stored) = stored.filter(|stored| seq - stored < SNAPSHOT_INTERVAL) {
            self.writer.lock().await.snapshot_seq = stored;
            return Ok(());
        }
        let convert = move || snapshot.to_stored();
        let stored = tokio::task::spawn_blocking(convert).await.context(Code::Internal, "write a snapshot")??;
        self.store.put_snapshot(&stored).await?;
        self.writer.lock().await.snapshot_seq = seq;
        tracing::debug!(seq, "wrote a snapshot of the inventory");
        Ok(())
    }
}

impl WriterState {
    /// Replaces the state before any record was read.
    fn begin_with(&mut self, snapshot: InventorySnapshot) {
        let InventorySnapshot { position, inventory, accepted_through } = snapshot;
        self.snapshot_seq = position.seq;
        self.damage.log.resume(accepted_through);
        Arc::make_mut(&mut self.journal).begin_after(position.seq);
        self.position = position;
        self.inventory = inventory;
        self.is_unpublished = true;
    }

    /// Returns the state for a new snapshot if one is due. None is written of a journal that another version might fold
    /// in another way.
    fn due_snapshot(&self) -> Option<InventorySnapshot> {
        let is_due = self.position.seq.saturating_sub(self.snapshot_seq) >= SNAPSHOT_INTERVAL;
        let is_certain = self.damage.is_empty() && self.newer_record.is_none() && self.inventory.unknown_events == 0;
        if !is_due || !is_certain {
            return None;
        }
        Some(InventorySnapshot {
            position: self.position.clone(),
            inventory: self.inventory.clone(),
            accepted_through: self.damage.log.accepted_through(),
        })
    }
}
