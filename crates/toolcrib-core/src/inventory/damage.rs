//! Damage of a journal: what is missing or unreadable, in words, and which of it was accepted.

use std::fmt;

use crate::text::sanitize_truncated;

/// Faults that are listed one by one; the others are counted.
const MAX_LISTED_DAMAGE: usize = 100;
/// Longest reason that is quoted. Parts of it come from the file.
const MAX_REASON_LEN: usize = 200;

/// One fault of a journal or of the file that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// Records that must be there, because later ones are, and are not.
    Missing { first: u64, last: u64 },
    /// A record that cannot be read, or that is not as it was written.
    Unreadable { seq: u64, reason: String },
    /// Everything after this record: the file has damaged pages.
    UnreadableAfter { seq: u64, reason: String },
    /// The journal ends before the last record that is remembered outside of it.
    MissingEnd { head: u64, remembered: u64 },
    /// The remembered record is there, and is another one: this is another journal.
    Replaced { seq: u64 },
    /// The remembered head cannot be read, so that it is unknown whether records are missing.
    HeadUnreadable { reason: String },
    /// The file of the store is gone, empty, cut, or no database.
    Unusable { reason: String },
}

impl Damage {
    /// The records that it is about, from and to, where it is about certain ones.
    fn records(&self) -> Option<(u64, u64)> {
        match self {
            Damage::Missing { first, last } => Some((*first, *last)),
            Damage::Unreadable { seq, .. } => Some((*seq, *seq)),
            // They are seen as missing once the decision stands behind them.
            Damage::MissingEnd { head, remembered } => Some((*head + 1, *remembered)),
            Damage::UnreadableAfter { .. }
            | Damage::Replaced { .. }
            | Damage::HeadUnreadable { .. }
            | Damage::Unusable { .. } => None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Missing { first, last } if first == last => write!(f, "record {first} is missing"),
            Damage::Missing { first, last } => write!(f, "records {first} to {last} are missing"),
            Damage::Unreadable { seq, reason } => {
                write!(f, "record {seq} cannot be read: {}", sanitize_truncated(reason, MAX_REASON_LEN))
            }
            Damage::UnreadableAfter { seq, reason } => {
                write!(f, "the records after {seq} cannot be read: {}", sanitize_truncated(reason, MAX_REASON_LEN))
            }
            Damage::MissingEnd { head, remembered } => {
                write!(
                    f,
                    "the end is missing: the journal ends with record {head}, and record {remembered} was written"
                )
            }
            Damage::Replaced { seq } => {
                write!(f, "record {seq} is not the one that was written: the store was replaced by another one")
            }
            Damage::HeadUnreadable { reason } | Damage::Unusable { reason } => {
                f.write_str(&sanitize_truncated(reason, MAX_REASON_LEN))
            }
        }
    }
}

/// The damage found while a journal is read from its beginning. A record that accepts damage covers what it names, as far
/// as that was found before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DamageLog {
    unaccepted: Vec<Damage>,
    /// Number of open faults beyond those that are listed.
    unlisted_count: usize,
    accepted: Vec<Damage>,
    accepted_through: u64,
}

impl DamageLog {
    /// Adds a fault unless it is known.
    pub fn add(&mut self, damage: Damage) {
        if self.unaccepted.contains(&damage) {
            return;
        }
        if self.unaccepted.len() < MAX_LISTED_DAMAGE {
            self.unaccepted.push(damage);
        } else {
            self.unlisted_count += 1;
        }
    }

    /// The record `seq` accepts what was found so far of these records, or of all. What is damaged later is not accepted.
    pub fn accept(&mut self, seq: u64, records: Option<&[(u64, u64)]>) {
        self.accepted_through = seq;
        let is_accepted = |damage: &Damage| match (records, damage.records()) {
            (None, _) | (_, None) => true,
            (Some(records), Some((first, last))) => records.iter().any(|(from, to)| *from <= first && last <= *to),
        };
        let (accepted, open): (Vec<Damage>, Vec<Damage>) = self.unaccepted.drain(..).partition(is_accepted);
        let room = MAX_LISTED_DAMAGE.saturating_sub(self.accepted.len());
        self.accepted.extend(accepted.into_iter().take(room));
        self.unaccepted = open;
        if records.is_none() {
            self.unlisted_count = 0;
        }
    }

    /// The records that a decision has to name to accept all open faults; `None` where it cannot name them all.
    pub fn records(&self) -> Option<Vec<(u64, u64)>> {
        let known = self.unlisted_count == 0
            && !self.unaccepted.iter().any(|damage| matches!(damage, Damage::UnreadableAfter { .. }));
        known.then(|| self.unaccepted.iter().filter_map(Damage::records).collect())
    }

    /// Faults that no record accepts, oldest first.
    pub fn unaccepted(&self) -> &[Damage] {
        &self.unaccepted
    }

    /// Number of open faults that are not listed.
    pub fn unlisted_count(&self) -> usize {
        self.unlisted_count
    }

    pub fn accepted(&self) -> &[Damage] {
        &self.accepted
    }

    /// The last record that accepts damage, or 0.
    pub fn accepted_through(&self) -> u64 {
        self.accepted_through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_covers_what_was_found_before_it() {
        let mut log = DamageLog::default();
        log.add(Damage::Missing { first: 2, last: 3 });
        log.add(Damage::Missing { first: 2, last: 3 });
        assert_eq!(log.unaccepted().len(), 1);
        log.accept(5, None);
        log.add(Damage::Unreadable { seq: 7, reason: "it is not a JSON object".into() });
        assert_eq!(log.accepted(), [Damage::Missing { first: 2, last: 3 }]);
        assert_eq!(log.unaccepted()[0].to_string(), "record 7 cannot be read: it is not a JSON object");
        assert_eq!(log.accepted_through(), 5);
    }

    #[test]
    fn a_journal_full_of_damage_is_counted_and_not_listed_whole() {
        let mut log = DamageLog::default();
        for seq in 1..=250 {
            log.add(Damage::Unreadable { seq, reason: String::new() });
        }
        assert_eq!((log.unaccepted().len(), log.unlisted_count()), (MAX_LISTED_DAMAGE, 150));
        log.accept(251, None);
        assert_eq!((log.unaccepted().len(), log.unlisted_count(), log.accepted().len()), (0, 0, MAX_LISTED_DAMAGE));
    }

    #[test]
    fn acceptance_does_not_cover_what_is_damaged_later() {
        let mut log = DamageLog::default();
        log.add(Damage::Missing { first: 2, last: 3 });
        log.add(Damage::MissingEnd { head: 5, remembered: 6 });
        let records = log.records().unwrap();
        assert_eq!(records, [(2, 3), (6, 6)]);
        let mut later = DamageLog::default();
        later.add(Damage::Missing { first: 2, last: 3 });
        later.add(Damage::Unreadable { seq: 4, reason: String::new() });
        later.add(Damage::Missing { first: 6, last: 6 });
        later.accept(7, Some(&records));
        assert_eq!(later.unaccepted(), [Damage::Unreadable { seq: 4, reason: String::new() }]);
        assert_eq!(later.accepted().len(), 2);
    }
}
