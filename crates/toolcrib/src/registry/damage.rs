//! A damaged journal. What can be read of it is served; nothing is called or written, because a lost record may have
//! disabled a tool or revoked a token, until an administrator accepts the damage.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, Damage, DamageLog, Event, Origin, StoredEvent};
use toolcrib_core::{Code, Error, Result};

use super::journal::{EntryStatus, JournalEntry};
use super::publish::WriterState;
use super::{Registry, RegistryInner, Snapshot};
use crate::store::{JournalPosition, Salvage, StoreState};

/// Faults that the message of a refusal quotes; `verify` lists all of them.
const MAX_QUOTED_FAULTS: usize = 2;

const DAMAGE_CONSEQUENCES: &str = "revoked tokens, disabled tools and sources added at run time may be lost, so nothing is called or \
                            written; run `toolcrib verify`";

/// What is wrong with the journal and no administrator has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct JournalDamage {
    /// Found while reading records.
    pub(super) log: DamageLog,
    /// Found by comparing the journal with the remembered head.
    pub(super) head: Option<Damage>,
    /// Why the store's file cannot be relied on.
    pub(super) store: Option<(StoreState, Damage)>,
}

/// What accepting damage did, and what may be lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamageAcceptance {
    /// The damage, in words.
    pub damage: Vec<String>,
    /// Names of the tokens that were known, and are revoked now like all others.
    pub revoked_tokens: Vec<String>,
    /// What of the rest is still known. Lost records may have held more of each kind.
    pub disabled_sources: Vec<String>,
    pub disabled_tools: Vec<String>,
    pub runtime_sources: Vec<String>,
    /// Number of the record of the decision.
    pub seq: u64,
}

impl JournalDamage {
    /// Takes in the next record: the numbers of a journal have no gaps.
    pub(super) fn add_record(&mut self, before: u64, entry: &JournalEntry) {
        let seq = entry.record.seq;
        if seq > before + 1 {
            self.log.add(Damage::Missing { first: before + 1, last: seq - 1 });
        }
        match &entry.status {
            EntryStatus::Damaged(reason) => self.log.add(Damage::Unreadable { seq, reason: reason.to_string() }),
            EntryStatus::Understood | EntryStatus::Newer(_) => {}
        }
        // A decision without a checksum may be a garbled record of another kind.
        if let Event::DamageAccepted { records, .. } = &entry.record.event
            && entry.has_checksum
        {
            self.log.accept(seq, records.as_deref());
            self.head = None;
        }
    }

    pub(super) fn faults(&self) -> impl Iterator<Item = &Damage> {
        let store = self.store.iter().map(|(_, damage)| damage);
        store.chain(&self.head).chain(self.log.unaccepted())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults().next().is_none()
    }

    pub(super) fn state(&self) -> StoreState {
        self.store.as_ref().map_or(StoreState::Damaged, |(state, _)| *state)
    }

    /// Each fault, in words.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.faults().map(ToString::to_string).collect();
        if self.log.unlisted_count() > 0 {
            faults.push(format!("and {} more", self.log.unlisted_count()));
        }
        faults
    }

    /// The records that a decision has to name to accept this damage; `None` for all.
    fn damaged_records(&self) -> Option<Vec<(u64, u64)>> {
        let end = match &self.head {
            Some(Damage::MissingEnd { head, remembered }) => Some((head + 1, *remembered)),
            Some(_) | None => None,
        };
        let records = self.log.records().filter(|_| self.store.is_none())?;
        Some(records.into_iter().chain(end).collect())
    }

    /// Whether nothing can be appended to the store any more.
    fn needs_new_store(&self) -> bool {
        self.store.is_some()
            || self.log.unaccepted().iter().any(|damage| matches!(damage, Damage::UnreadableAfter { .. }))
    }

    /// Why nothing is called or written.
    pub(crate) fn to_error(&self) -> Error {
        let mut quoted: Vec<String> = self.faults().take(MAX_QUOTED_FAULTS).map(ToString::to_string).collect();
        let more = self.faults().count() - quoted.len() + self.log.unlisted_count();
        if more > 0 {
            quoted.push(format!("and {more} more"));
        }
        let message = format!("the journal is damaged ({}): {DAMAGE_CONSEQUENCES}", quoted.join("; "));
        self.state().annotate(Error::new(Code::StoreUnavailable, message))
    }

    /// The same for clients that have shown no credentials: it tells nothing of this machine.
    pub(super) fn to_public_error(&self) -> Error {
        let message = format!("the journal is damaged: {DAMAGE_CONSEQUENCES}");
        self.state().annotate(Error::new(Code::StoreUnavailable, message))
    }
}

impl WriterState {
    pub(super) fn ensure_undamaged(&self) -> Result<()> {
        if self.damage.is_empty() { Ok(()) } else { Err(self.damage.to_error()) }
    }
}

/// Compares records that must be in the store with those that are.
pub(super) struct HeadCheck {
    /// The last record that this process has read before.
    last_read: JournalPosition,
    /// The last record that the data directory remembers.
    remembered: Option<JournalPosition>,
    last_read_found: bool,
    replaced: Option<u64>,
}

impl HeadCheck {
    pub(super) fn new(own: JournalPosition, remembered: Option<JournalPosition>) -> HeadCheck {
        HeadCheck { last_read_found: own.seq == 0, last_read: own, remembered, replaced: None }
    }

    /// The record to read after, so that the last one that was read before comes again.
    pub(super) fn read_after(&self) -> u64 {
        self.last_read.seq.saturating_sub(1)
    }

    pub(super) fn observe(&mut self, entry: &JournalEntry) {
        let seq = entry.record.seq;
        self.last_read_found |= seq == self.last_read.seq;
        for expected in [Some(&self.last_read), self.remembered.as_ref()].into_iter().flatten() {
            if expected.seq == seq && expected.checksum != *entry.checksum {
                self.replaced = Some(seq);
            }
        }
    }

    /// What is found after all records up to `last` were seen.
    pub(super) fn finish(self, last: u64, damage: &mut JournalDamage) {
        // What was lost before a record that accepts it is no damage any more.
        let accepted = damage.log.accepted_through();
        if !self.last_read_found && self.last_read.seq > accepted {
            damage.log.add(Damage::Missing { first: self.last_read.seq, last: self.last_read.seq });
        }
        if let Some(seq) = self.replaced.filter(|seq| *seq > accepted) {
            damage.head = Some(Damage::Replaced { seq });
            return;
        }
        let Some(remembered) = self.remembered else { return };
        if remembered.seq > last && remembered.seq > accepted {
            damage.head = Some(Damage::MissingEnd { head: last, remembered: remembered.seq });
        } else if !matches!(damage.head, Some(Damage::Replaced { .. })) {
            damage.head = None;
        }
    }
}

impl Snapshot {
    /// Refuses while the journal is damaged.
    pub(crate) fn ensure_undamaged(&self) -> Result<()> {
        match &self.damage {
            Some(damage) => Err(damage.to_error()),
            None => Ok(()),
        }
    }
}

impl RegistryInner {
    /// Remembers the last record that was read. A failure is logged: the record itself is durable.
    pub(super) async fn remember_head(&self) {
        let Some(head) = &self.options.head_file else { return };
        let position = {
            let snapshot = self.snapshot.load();
            if snapshot.damage.is_some() {
                return;
            }
            snapshot.position.clone()
        };
        if let Err(error) = head.remember(position).await {
            tracing::warn!(%error, cause = error.cause_chain(), "the end of the journal cannot be remembered");
        }
    }

    /// Stops calls and writes after an error by which the store says that it is damaged.
    pub(super) fn note_store_error(&self, writer: &mut WriterState, error: &Error) {
        if StoreState::from_error(error) == StoreState::Damaged && writer.damage.store.is_none() {
            tracing::error!(%error, "the store is damaged; nothing is called or written any more");
            writer.damage.store = Some((StoreState::Damaged, Damage::Unusable { reason: error.message.clone() }));
            self.publish_damage(writer);
        }
    }
}

impl Registry {
    /// Refuses while stored tokens cannot be relied on: the record that revoked one may be lost.
    pub fn ensure_tokens_reliable(&self) -> Result<()> {
        match &self.shared.snapshot.load().damage {
            Some(damage) => Err(damage.to_public_error()),
            None => Ok(()),
        }
    }

    /// Why nothing is called or written, where the journal is damaged.
    pub fn damage_error(&self) -> Option<Error> {
        self.shared.snapshot.load().ensure_undamaged().err()
    }

    /// Whether the store's file cannot be used any more, so that accepting the damage takes a new one.
    pub fn needs_new_store(&self) -> bool {
        self.shared.snapshot.load().damage.as_ref().is_some_and(|damage| damage.needs_new_store())
    }

    /// Records that the damage of the journal is accepted: every token is revoked, and calls and writes go on with what
    /// can be read. `None` where nothing is damaged.
    pub async fn accept_damage(&self, actor: Actor) -> Result<Option<DamageAcceptance>> {
        self.shared.catch_up().await?;
        let Some(damage) = self.shared.snapshot.load().damage.clone() else { return Ok(None) };
        let records = damage.damaged_records();
        self.record_acceptance(damage.describe(), records, actor).await.map(Some)
    }

    /// Each fault of the journal and of the store's file, in words.
    pub async fn describe_damage(&self) -> Vec<String> {
        let mut words = self.shared.snapshot.load().damage.as_ref().map(|damage| damage.describe()).unwrap_or_default();
        words.extend(self.integrity_faults().await);
        words
    }

    /// Everything that can be read of the store, for a new one.
    pub async fn salvage(&self) -> Result<Salvage> {
        let store = &self.shared.store;
        let records = self.read_journal(&mut JournalDamage::default()).await?;
        let inventory = self.inventory();
        let wanted: Vec<Fingerprint> = inventory.sources().map(|(_, state)| state.definition).collect();
        let definitions = self.ignore_damage(store.definitions(&wanted).await)?;
        let mut wanted = BTreeSet::new();
        for record in &records {
            if let StoredEvent::Known(Event::InventoryRecorded { fingerprint, .. }) = StoredEvent::parse(&record.body) {
                wanted.insert(fingerprint);
            }
        }
        let wanted: Vec<Fingerprint> = wanted.into_iter().collect();
        let manifests = self.ignore_damage(store.manifests(&wanted).await)?;
        let key = store.key().await.ok();
        Ok(Salvage { key, records, definitions, manifests })
    }

    /// As `accept_damage`, of these faults: those of the store before, where a new one was begun.
    pub async fn accept_described_damage(&self, words: Vec<String>, actor: Actor) -> Result<DamageAcceptance> {
        self.record_acceptance(words, None, actor).await
    }

    async fn record_acceptance(
        &self,
        words: Vec<String>,
        records: Option<Vec<(u64, u64)>>,
        actor: Actor,
    ) -> Result<DamageAcceptance> {
        let before = self.inventory();
        let command = Command::AcceptDamage { damage: words.clone(), records };
        self.shared.write_despite_damage(&actor, |writer| writer.inventory.decide(&command)).await?;
        let position = self.shared.snapshot.load().position.clone();
        let seq = position.seq;
        if let Some(head) = &self.shared.options.head_file {
            head.reset(position).await?;
        }
        self.shared.catch_up().await?;
        let disabled = before.sources().filter(|(_, state)| !state.enabled);
        let tools = before.sources().flat_map(|(id, state)| {
            let disabled = state.tools.iter().filter(|(_, tool)| tool.disabled);
            disabled.map(move |(name, _)| format!("{id}/{name}"))
        });
        let runtime = before.sources().filter(|(_, state)| state.origin == Origin::Runtime);
        let mut revoked_tokens: Vec<String> = before.tokens().map(|token| token.name.clone()).collect();
        revoked_tokens.sort();
        Ok(DamageAcceptance {
            damage: words,
            revoked_tokens,
            disabled_sources: disabled.map(|(id, _)| id.to_string()).collect(),
            disabled_tools: tools.collect(),
            runtime_sources: runtime.map(|(id, _)| id.to_string()).collect(),
            seq,
        })
    }
}

/// Tells of damage when it is found, once.
pub(super) fn log_new_damage(before: &JournalDamage, after: &JournalDamage) -> Option<Arc<JournalDamage>> {
    if after.is_empty() {
        return None;
    }
    if before != after {
        tracing::error!("{}", after.to_error());
    }
    Some(Arc::new(after.clone()))
}
