//! Damage of a journal: what is missing or unreadable, in words, and which of it was accepted.

use std::fmt;

use crate::text::shown_short;

/// Faults that are listed one by one; the others are counted.
const MAX_LISTED: usize = 100;
/// Longest reason that is quoted. Parts of it come from the file.
const MAX_REASON: usize = 200;

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

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Missing { first, last } if first == last => write!(f, "record {first} is missing"),
            Damage::Missing { first, last } => write!(f, "records {first} to {last} are missing"),
            Damage::Unreadable { seq, reason } => {
                write!(f, "record {seq} cannot be read: {}", shown_short(reason, MAX_REASON))
            }
            Damage::UnreadableAfter { seq, reason } => {
                write!(f, "the records after {seq} cannot be read: {}", shown_short(reason, MAX_REASON))
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
                f.write_str(&shown_short(reason, MAX_REASON))
            }
        }
    }
}

/// The damage found while a journal is read from its beginning. A record that accepts damage covers all that was found
/// before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DamageLog {
    open: Vec<Damage>,
    /// Number of open faults beyond those that are listed.
    more: usize,
    accepted: Vec<Damage>,
    accepted_through: u64,
}

impl DamageLog {
    /// Adds a fault unless it is known.
    pub fn add(&mut self, damage: Damage) {
        if self.open.contains(&damage) {
            return;
        }
        if self.open.len() < MAX_LISTED {
            self.open.push(damage);
        } else {
            self.more += 1;
        }
    }

    /// The record `seq` accepts everything that was found so far.
    pub fn accept(&mut self, seq: u64) {
        self.accepted_through = seq;
        let room = MAX_LISTED.saturating_sub(self.accepted.len());
        self.accepted.extend(self.open.drain(..).take(room));
        self.more = 0;
    }

    /// Faults that no record accepts, oldest first.
    pub fn open(&self) -> &[Damage] {
        &self.open
    }

    /// Number of open faults that are not listed.
    pub fn more(&self) -> usize {
        self.more
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
        assert_eq!(log.open().len(), 1);
        log.accept(5);
        log.add(Damage::Unreadable { seq: 7, reason: "it is not a JSON object".into() });
        assert_eq!(log.accepted(), [Damage::Missing { first: 2, last: 3 }]);
        assert_eq!(log.open()[0].to_string(), "record 7 cannot be read: it is not a JSON object");
        assert_eq!(log.accepted_through(), 5);
    }

    #[test]
    fn a_journal_full_of_damage_is_counted_and_not_listed_whole() {
        let mut log = DamageLog::default();
        for seq in 1..=250 {
            log.add(Damage::Unreadable { seq, reason: String::new() });
        }
        assert_eq!((log.open().len(), log.more()), (MAX_LISTED, 150));
        log.accept(251);
        assert_eq!((log.open().len(), log.more(), log.accepted().len()), (0, 0, MAX_LISTED));
    }
}
