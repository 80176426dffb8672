//! Damage of the journal. What can be read of a damaged journal is served, but calls and writes are refused until an
//! administrator accepts the damage: a lost record may have disabled a tool or revoked a token.
//!
//! Three kinds are told apart. Damage of records is found while reading: a gap in the sequence, a wrong checksum,
//! invalid JSON. Damage of the head is found by comparing with `DATA/head`: the journal is shorter than remembered, or
//! has another record at that position. Damage of the store's file means that it is missing or no database; accepting
//! it needs a new file.

use std::sync::Arc;

use toolcrib_core::inventory::{Damage, DamageLog, Event};
use toolcrib_core::{Code, Error, Result};

use super::State;
use super::journal::{EntryStatus, JournalEntry};
use super::publish::WriterState;
use crate::store::{HeadFile, JournalPosition, RememberedHead, StoreState};

/// Maximum number of faults quoted in an error message; `verify` lists all of them. Every refused call repeats the
/// message, so it stays short.
const MAX_QUOTED_FAULTS: usize = 2;

/// Rest of the message: what the damage means, and the next step.
const DAMAGE_CONSEQUENCES: &str = "revoked tokens, disabled tools, rules and sources added at run time may be lost, so calls and changes are \
                            refused; run `toolcrib verify`";

/// Damage of the journal; `faults` returns what no administrator has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct JournalDamage {
    /// Damage found while reading records, and which of it was accepted.
    pub(crate) log: DamageLog,
    /// Damage found by comparing the journal with the head file.
    pub(crate) head: Option<Damage>,
    /// Damage of the store's file as a whole.
    pub(crate) store: Option<(StoreState, Damage)>,
    /// Entry of the head file, as it was last read.
    pub(crate) remembered: Option<RememberedHead>,
}

impl JournalDamage {
    /// Checks the next record after `before`: sequence numbers have no gaps, and the record must be readable. Called
    /// for every record in order; `before` is the sequence number of the previous one.
    pub(crate) fn add_record(&mut self, before: u64, entry: &JournalEntry) {
        let seq = entry.record.seq;
        if seq > before + 1 {
            self.log.add(Damage::Missing { first: before + 1, last: seq - 1 });
        }
        match &entry.status {
            EntryStatus::Damaged(reason) => self.log.add(Damage::Unreadable { seq, reason: reason.to_string() }),
            EntryStatus::Understood | EntryStatus::Newer(_) => {}
        }
        // A `DamageAccepted` without a checksum may be a garbled record of another type, so it accepts nothing.
        if let Event::DamageAccepted { records, .. } = &entry.record.event
            && entry.has_checksum
        {
            self.log.accept(seq, records.as_deref());
            self.head = None;
        }
    }

    /// Returns the position in the head file, if there is one. A file that cannot be read counts as damage until it can
    /// be read again.
    pub(crate) async fn read_head(&mut self, head: Option<&HeadFile>) -> Option<JournalPosition> {
        let read = head?.read().await;
        if matches!(self.head, Some(Damage::HeadUnreadable { .. })) {
            self.head = None;
        }
        self.remembered = read.unwrap_or_else(|unreadable| {
            self.head = Some(unreadable);
            None
        });
        self.remembered.as_ref().map(|remembered| remembered.position.clone())
    }

    /// Whether groups, access rules or policies may be among the records that are damaged or lost. The type of a
    /// damaged record cannot be trusted; the head file tells whether there were rules at its position.
    pub(crate) fn may_hide_rules(&self) -> bool {
        let mut records = self.log.unaccepted().iter().filter_map(Damage::records);
        match &self.remembered {
            Some(RememberedHead { position, has_rules }) => {
                // A process may have ended after it wrote a record and before it wrote the head file.
                *has_rules || self.log.unlisted_count() > 0 || records.any(|(_, last)| last > position.seq)
            }
            None => self.store.is_some() || self.head.is_some() || !self.log.unaccepted().is_empty(),
        }
    }

    /// Returns every fault: of the store, of the head, of records.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Damage> {
        let store = self.store.iter().map(|(_, damage)| damage);
        store.chain(&self.head).chain(self.log.unaccepted())
    }

    /// Whether there is no unaccepted damage.
    pub(crate) fn is_empty(&self) -> bool {
        self.faults().next().is_none()
    }

    /// Returns the damage as snapshots have it; `None` if there is none.
    pub(super) fn to_published(&self) -> Option<Arc<JournalDamage>> {
        (!self.is_empty()).then(|| Arc::new(self.clone()))
    }

    /// Returns the state of the store that `/readyz` reports.
    pub(crate) fn state(&self) -> StoreState {
        self.store.as_ref().map_or(StoreState::Damaged, |(state, _)| *state)
    }

    /// Returns a description of each fault.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.faults().map(ToString::to_string).collect();
        if self.log.unlisted_count() > 0 {
            faults.push(format!("and {} more", self.log.unlisted_count()));
        }
        faults
    }

    /// Returns the ranges of records that an acceptance has to name; `None` if it covers everything. An acceptance that
    /// names ranges does not cover damage that happens to other records later.
    pub(crate) fn damaged_records(&self) -> Option<Vec<(u64, u64)>> {
        let end = match &self.head {
            Some(Damage::MissingEnd { head, remembered }) => Some((head + 1, *remembered)),
            Some(_) | None => None,
        };
        let records = self.log.records().filter(|_| self.store.is_none())?;
        Some(records.into_iter().chain(end).collect())
    }

    /// Whether the store's file cannot be appended to, so that a new one is needed.
    pub(crate) fn needs_new_store(&self) -> bool {
        self.store.is_some()
            // Unreadable pages: appending to such a database could destroy more.
            || self.log.unaccepted().iter().any(|damage| matches!(damage, Damage::UnreadableAfter { .. }))
    }

    /// Returns the error with which calls and writes are refused.
    pub(crate) fn to_error(&self) -> Error {
        let mut quoted: Vec<String> = self.faults().take(MAX_QUOTED_FAULTS).map(ToString::to_string).collect();
        let more = self.faults().count() - quoted.len() + self.log.unlisted_count();
        if more > 0 {
            quoted.push(format!("and {more} more"));
        }
        let message = format!("the journal is damaged ({}): {DAMAGE_CONSEQUENCES}", quoted.join("; "));
        self.state().annotate(Error::new(Code::StoreUnavailable, message))
    }

    /// Like `to_error` for clients without credentials: reveals no paths and no details. Used by `/readyz` and for
    /// requests with a token that cannot be checked.
    pub(crate) fn to_public_error(&self) -> Error {
        let message = format!("the journal is damaged: {DAMAGE_CONSEQUENCES}");
        self.state().annotate(Error::new(Code::StoreUnavailable, message))
    }
}

impl WriterState {
    /// Fails while there is unaccepted damage.
    pub(crate) fn ensure_undamaged(&self) -> Result<()> {
        if self.damage.is_empty() { Ok(()) } else { Err(self.damage.to_error()) }
    }
}

/// Checks while reading that records which must be in the store are there, unchanged.
pub(crate) struct HeadCheck {
    /// Last record that this process read earlier.
    last_read: JournalPosition,
    /// Last record according to the head file.
    remembered: Option<JournalPosition>,
    /// Sequence number of the last record according to the store itself, or 0.
    kept_head: u64,
    /// Whether the record at `last_read` was seen again.
    last_read_found: bool,
    /// Sequence number of a record that has another checksum than expected: the journal was replaced, e.g. by a backup.
    replaced: Option<u64>,
}

impl HeadCheck {
    /// Starts a check; `last_read` is the default position before the first read. `kept_head` is that of the store,
    /// read before the records.
    pub(crate) fn new(last_read: JournalPosition, remembered: Option<JournalPosition>, kept_head: u64) -> HeadCheck {
        HeadCheck { last_read_found: last_read.seq == 0, last_read, remembered, kept_head, replaced: None }
    }

    /// Returns the sequence number of the last record that was ever written, as far as it is known, or 0.
    pub(crate) fn last_written(&self) -> u64 {
        self.remembered.as_ref().map_or(0, |position| position.seq).max(self.kept_head)
    }

    /// Returns the sequence number to read after, so that the last record read earlier is read again. One record per
    /// catch-up is the price for noticing a store that was replaced under a running process.
    pub(crate) fn read_after(&self) -> u64 {
        self.last_read.seq.saturating_sub(1)
    }

    /// Compares a record with the expected ones.
    pub(crate) fn observe(&mut self, entry: &JournalEntry) {
        let seq = entry.record.seq;
        self.last_read_found |= seq == self.last_read.seq;
        for expected in [Some(&self.last_read), self.remembered.as_ref()].into_iter().flatten() {
            if expected.seq == seq && expected.checksum != *entry.checksum {
                self.replaced = Some(seq);
            }
        }
    }

    /// Adds what was found to `damage`, after all records up to `last` were observed. `last` is the sequence number of
    /// the last record in the store. A head file that is behind the journal is no damage: a process may end between the
    /// commit and the update of the file.
    pub(crate) fn finish(self, last: u64, damage: &mut JournalDamage) {
        // Losses before the record that accepted them are no damage any more.
        let accepted = damage.log.accepted_through();
        if !self.last_read_found && self.last_read.seq > accepted {
            damage.log.add(Damage::Missing { first: self.last_read.seq, last: self.last_read.seq });
        }
        if let Some(seq) = self.replaced.filter(|seq| *seq > accepted) {
            damage.head = Some(Damage::Replaced { seq });
            return;
        }
        let written = self.last_written();
        if written > last && written > accepted {
            damage.head = Some(Damage::MissingEnd { head: last, remembered: written });
        } else if !matches!(damage.head, Some(Damage::Replaced { .. } | Damage::HeadUnreadable { .. })) {
            damage.head = None;
        }
    }
}

impl State {
    /// Writes the position of the last applied record to the head file. A failure is only logged: the record itself is
    /// durable.
    pub(crate) async fn remember_head(&self) {
        let Some(head) = &self.options.head_file else { return };
        let snapshot = self.snapshot();
        // The head file is evidence of the damage and stays as it is.
        if snapshot.damage.is_some() {
            return;
        }
        if let Err(error) = head.remember(snapshot.remembered_head()).await {
            tracing::warn!(%error, cause = error.cause_chain(), "the head of the journal cannot be written");
        }
    }

    /// Stops calls and writes if an error says that the store is damaged. Stays so until the registry is opened again.
    pub(crate) fn note_store_error(&self, writer: &mut WriterState, error: &Error) {
        if StoreState::from_error(error) == StoreState::Damaged && writer.damage.store.is_none() {
            tracing::error!(%error, "the store is damaged; calls and writes are refused from now on");
            writer.damage.store = Some((StoreState::Damaged, Damage::Unusable { reason: error.message.clone() }));
            self.publish_damage(writer);
        }
    }
}
