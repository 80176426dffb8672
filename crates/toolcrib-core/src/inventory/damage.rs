//! Damage of a journal: missing and unreadable records, and which of that an administrator has accepted.
//!
//! The journal decides what is allowed, so a lost record may be a lost restriction. Unaccepted damage therefore stops
//! calls and changes (in the library) until an administrator accepts it, which is itself a record:
//!
//! ```text
//! 1 2 3 _ 5 6        record 4 is missing: unaccepted
//! 1 2 3 _ 5 6 A      A is `DamageAccepted` for (4, 4): accepted, all tokens revoked
//! 1 2 _ _ 5 6 A      record 3 is lost later: unaccepted again, because A does not name it
//! ```

use std::fmt;

use crate::text::sanitize_truncated;

/// Maximum number of defects that are listed individually; further ones are only counted.
/// A file of damaged pages can have one per record.
const MAX_LISTED_DAMAGE: usize = 100;
/// Maximum length of a quoted reason, which may contain bytes of the damaged file.
const MAX_REASON_LEN: usize = 200;

/// One defect of a journal or of the file that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Records that are missing although later ones exist.
    Missing { first: u64, last: u64 },
    /// A record that cannot be read, or that does not match its checksum.
    Unreadable { seq: u64, reason: String },
    /// All records after this one are unreadable: the file has damaged pages.
    UnreadableAfter { seq: u64, reason: String },
    /// The journal ends before the last record that the head file outside of it names.
    MissingEnd { head: u64, remembered: u64 },
    /// The record that the head file names has other content: the journal was replaced by another one.
    Replaced { seq: u64 },
    /// The head file cannot be read, so that missing records at the end would go unnoticed.
    HeadUnreadable { reason: String },
    /// The store file is missing, empty, truncated, or not a database.
    Unusable { reason: String },
}

impl Damage {
    /// Range of affected records (first, last), where it is known.
    pub fn records(&self) -> Option<(u64, u64)> {
        match self {
            Damage::Missing { first, last } => Some((*first, *last)),
            Damage::Unreadable { seq, .. } => Some((*seq, *seq)),
            // Once the acceptance is written behind the end, these records count as missing.
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

/// Collects damage while a journal is read from its beginning. A `DamageAccepted` record covers the damage that it
/// names, as far as that was found before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DamageLog {
    /// At most [`MAX_LISTED_DAMAGE`] defects, in the order in which they were found.
    unaccepted: Vec<Damage>,
    /// Number of unaccepted defects beyond those that are listed.
    unlisted_count: usize,
    /// For reports; bounded in the same way.
    accepted: Vec<Damage>,
    /// Sequence number of the last acceptance, or 0.
    accepted_through: u64,
}

impl DamageLog {
    /// Adds a defect unless it is listed already.
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

    /// Marks the damage of these records, or of all, as accepted by record `seq`. Damage that is found later is not
    /// covered. A defect without a known range is covered by any acceptance, since no acceptance could name it.
    pub fn accept(&mut self, seq: u64, records: Option<&[(u64, u64)]>) {
        self.accepted_through = seq;
        let is_accepted = |damage: &Damage| match (records, damage.records()) {
            (None, _) | (_, None) => true,
            (Some(records), Some((first, last))) => records.iter().any(|(from, to)| *from <= first && last <= *to),
        };
        let (accepted, unaccepted): (Vec<Damage>, Vec<Damage>) = self.unaccepted.drain(..).partition(is_accepted);
        let room = MAX_LISTED_DAMAGE.saturating_sub(self.accepted.len());
        self.accepted.extend(accepted.into_iter().take(room));
        self.unaccepted = unaccepted;
        if records.is_none() {
            self.unlisted_count = 0;
        }
    }

    /// Begins after records that were read before, of which `accepted_through` is the last acceptance.
    pub fn resume(&mut self, accepted_through: u64) {
        self.accepted_through = accepted_through;
    }

    /// Returns the ranges of records that an acceptance must name to cover all unaccepted damage; `None` where they are
    /// not all known.
    pub fn records(&self) -> Option<Vec<(u64, u64)>> {
        let known = self.unlisted_count == 0
            && !self.unaccepted.iter().any(|damage| matches!(damage, Damage::UnreadableAfter { .. }));
        known.then(|| self.unaccepted.iter().filter_map(Damage::records).collect())
    }

    /// Returns damage that no record accepts, oldest first.
    pub fn unaccepted(&self) -> &[Damage] {
        &self.unaccepted
    }

    /// Number of unaccepted defects that are not listed.
    pub fn unlisted_count(&self) -> usize {
        self.unlisted_count
    }

    /// Returns the accepted damage, at most 100 items.
    pub fn accepted(&self) -> &[Damage] {
        &self.accepted
    }

    /// Sequence number of the last record that accepts damage, or 0.
    pub fn accepted_through(&self) -> u64 {
        self.accepted_through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_covers_damage_found_before_it() {
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
    fn damage_beyond_the_limit_is_counted_only() {
        let mut log = DamageLog::default();
        for seq in 1..=250 {
            log.add(Damage::Unreadable { seq, reason: String::new() });
        }
        assert_eq!((log.unaccepted().len(), log.unlisted_count()), (MAX_LISTED_DAMAGE, 150));
        log.accept(251, None);
        assert_eq!((log.unaccepted().len(), log.unlisted_count(), log.accepted().len()), (0, 0, MAX_LISTED_DAMAGE));
    }

    #[test]
    fn acceptance_does_not_cover_later_damage() {
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
