//! Cache of the newest journal records, from which `history` and subscribers read without store access. Part of the
//! snapshot; a new version shares all chunks but the last with the one before.
//!
//! A stored record is parsed once, into a `JournalEntry`, and never fails: one that is damaged or of an unknown type
//! keeps its place in the sequence with the event `Unknown`, so that positions stay dense and every reader sees the
//! same sequence.

use std::collections::VecDeque;
use std::sync::Arc;

use toolcrib_core::inventory::{Event, Record, StoredEvent, event_type};

use super::newer_records::{NewerRecord, is_newer_version};
use crate::store::StoredRecord;

/// Number of records read from the store at once. Bounds the memory of one step; a long journal is read in several.
pub(crate) const READ_BATCH_SIZE: usize = 5_000;
/// Minimum number of records that stay in memory, unless they exceed [`MAX_CACHED_BYTES`].
const MIN_CACHED_RECORDS: usize = 10_000;
/// Approximate limit on the size of the cached event bodies.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of records of a chunk. Appending copies at most one chunk. Together with the byte limit this bounds
/// the cost of a write in a process with many cached records.
const MAX_CHUNK_RECORDS: usize = 256;
/// Maximum size of a chunk; eviction works in whole chunks, so this is small against [`MAX_CACHED_BYTES`].
const MAX_CHUNK_BYTES: usize = MAX_CACHED_BYTES / 64;

/// Newest records of the journal, without gaps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    /// Oldest first; only the last one is appended to.
    chunks: VecDeque<Arc<Chunk>>,
    /// Number of records in all chunks.
    count: usize,
    bytes: usize,
    /// Sequence number of the record before the cached ones, if it was not read because a snapshot contains it; else 0.
    begins_after: u64,
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    entries: Vec<JournalEntry>,
    bytes: usize,
}

/// A record as this build understands it, with what the store keeps beyond that.
#[derive(Debug, Clone)]
pub(crate) struct JournalEntry {
    pub(crate) record: Arc<Record>,
    /// Stored JSON of an event that this build does not understand.
    pub(crate) unknown_body: Option<Arc<str>>,
    pub(crate) status: EntryStatus,
    /// Checksum over all stored fields, as computed now.
    pub(crate) checksum: Arc<str>,
    /// Whether the record was stored with a checksum. Records of versions before checksums have none and are not
    /// verified.
    pub(crate) has_checksum: bool,
    /// Length of the event's JSON.
    bytes: usize,
}

/// Whether this build understands a stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryStatus {
    Understood,
    /// Written by a newer Toolcrib, with an unknown type or with fields that must not be ignored.
    Newer(Arc<NewerRecord>),
    /// Unreadable, with the reason.
    Damaged(Arc<str>),
}

impl EntryStatus {
    /// Builds the status of a record from a newer version.
    fn from_newer(kind: String, min_version: String, critical: bool) -> EntryStatus {
        EntryStatus::Newer(Arc::new(NewerRecord { kind, min_version, critical }))
    }
}

impl JournalEntry {
    /// Parses a stored record and verifies its checksum.
    pub(crate) fn parse(stored: StoredRecord) -> JournalEntry {
        let computed = stored.compute_checksum();
        let StoredRecord { seq, at, actor, body, critical, min_version, checksum } = stored;
        let has_checksum = checksum.is_some();
        let reading = if checksum.is_none_or(|written| written == computed) {
            StoredEvent::parse(&body)
        } else {
            StoredEvent::Damaged("its checksum does not match".to_owned())
        };
        // A record that is not understood keeps its place in the sequence, as `Event::Unknown`.
        let (event, status) = match reading {
            // A known type may have fields that this build does not know. If those must not be ignored, the record
            // carries a version later than this build's.
            StoredEvent::Known(event) if (critical || event.is_critical()) && is_newer_version(&min_version) => {
                let kind = event_type(&body).unwrap_or_default();
                // A token whose restrictions are unknown is not admitted, not even for reading.
                let event = if matches!(event, Event::TokenCreated { .. }) { Event::Unknown } else { event };
                (event, EntryStatus::from_newer(kind, min_version, true))
            }
            StoredEvent::Known(event) => (event, EntryStatus::Understood),
            StoredEvent::Newer { kind } => {
                let critical = critical || Event::is_critical_type(&kind);
                (Event::Unknown, EntryStatus::from_newer(kind, min_version, critical))
            }
            StoredEvent::Damaged(reason) => (Event::Unknown, EntryStatus::Damaged(reason.into())),
        };
        let bytes = body.len();
        let unknown_body = (event == Event::Unknown).then(|| body.into());
        let record = Arc::new(Record { seq, at, actor, event });
        JournalEntry { record, unknown_body, status, checksum: computed.into(), has_checksum, bytes }
    }
}

impl Journal {
    /// Begins an empty cache after a record.
    pub(crate) fn begin_after(&mut self, seq: u64) {
        *self = Journal { begins_after: seq, ..Journal::default() };
    }

    /// Appends records and evicts the oldest ones.
    pub(crate) fn append(&mut self, entries: &[JournalEntry]) {
        // Of a long batch, as at a start, only the end is kept; earlier chunks are dropped too, so that there is no
        // gap.
        if entries.len() > MIN_CACHED_RECORDS {
            *self = Journal::default();
        }
        for entry in &entries[entries.len().saturating_sub(MIN_CACHED_RECORDS)..] {
            let is_full =
                |chunk: &Arc<Chunk>| chunk.entries.len() >= MAX_CHUNK_RECORDS || chunk.bytes >= MAX_CHUNK_BYTES;
            if self.chunks.back().is_none_or(is_full) {
                self.chunks.push_back(Arc::default());
            }
            if let Some(last) = self.chunks.back_mut() {
                let last = Arc::make_mut(last);
                last.entries.push(entry.clone());
                last.bytes += entry.bytes;
            }
            self.count += 1;
            self.bytes += entry.bytes;
            self.evict_oldest();
        }
    }

    /// Evicts the oldest chunks while the limits are exceeded. The last chunk stays, whatever its size. Whole chunks
    /// only, so somewhat more than the minimum stays.
    fn evict_oldest(&mut self) {
        while self.chunks.len() > 1
            && let Some(oldest) = self.chunks.front()
            && (self.count - oldest.entries.len() >= MIN_CACHED_RECORDS || self.bytes > MAX_CACHED_BYTES)
        {
            self.count -= oldest.entries.len();
            self.bytes -= oldest.bytes;
            self.chunks.pop_front();
            self.begins_after = 0;
        }
    }

    /// Returns the sequence number of the oldest cached record.
    pub(crate) fn oldest_seq(&self) -> Option<u64> {
        self.chunks.front()?.entries.first().map(|entry| entry.record.seq)
    }

    /// Returns the sequence number of the newest record, which is cached unless a snapshot contains it.
    pub(crate) fn newest_seq(&self) -> Option<u64> {
        let cached = self.chunks.back().and_then(|chunk| chunk.entries.last()).map(|entry| entry.record.seq);
        cached.or_else(|| Some(self.begins_after).filter(|seq| *seq > 0))
    }

    /// Whether some records after `seq` are not cached. The caller then reads the store first.
    pub(crate) fn starts_after(&self, seq: u64) -> bool {
        match self.oldest_seq() {
            Some(oldest) => seq.saturating_add(1) < oldest,
            None => seq < self.begins_after,
        }
    }

    /// Returns the range of records that would be cached if they had been read: the number of the record before the
    /// first, and that of the last. `None` if none were skipped.
    pub(crate) fn skipped_range(&self) -> Option<(u64, u64)> {
        let missing = MIN_CACHED_RECORDS.saturating_sub(self.count) as u64;
        let last = self.begins_after;
        (missing > 0 && last > 0).then_some((last.saturating_sub(missing), last))
    }

    /// Returns the cached records after `seq`, oldest first.
    pub(crate) fn entries_after(&self, seq: u64) -> impl Iterator<Item = &JournalEntry> {
        let is_older = |chunk: &Arc<Chunk>| chunk.entries.last().is_none_or(|entry| entry.record.seq <= seq);
        let first = self.chunks.partition_point(is_older);
        let entries = self.chunks.range(first..).flat_map(|chunk| &chunk.entries);
        entries.skip_while(move |entry| entry.record.seq <= seq)
    }

    /// Returns the cached records, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &JournalEntry> {
        self.chunks.iter().rev().flat_map(|chunk| chunk.entries.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Timestamp;
    use toolcrib_core::inventory::Actor;

    use super::*;

    fn stored_record(seq: u64, body: String, critical: bool, min_version: &str) -> StoredRecord {
        let actor = Actor::new("test");
        let min_version = min_version.into();
        StoredRecord { seq, at: Timestamp(0), actor, body, critical, min_version, checksum: None }
    }

    fn make_entries(seqs: std::ops::RangeInclusive<u64>, size: usize) -> Vec<JournalEntry> {
        let body = |seq: u64| format!(r#"{{"type":"SourceEnabled","source":"s{seq}","x":"{}"}}"#, "x".repeat(size));
        seqs.map(|seq| JournalEntry::parse(stored_record(seq, body(seq), false, "0.1.0"))).collect()
    }

    fn seqs<'a>(entries: impl Iterator<Item = &'a JournalEntry>) -> Vec<u64> {
        entries.map(|entry| entry.record.seq).collect()
    }

    #[test]
    fn a_record_is_critical_when_its_type_or_the_store_says_so() {
        let changed = r#"{"type":"TokenChanged","token":"a","name":"b","role":"owner"}"#;
        let disabled = r#"{"type":"SourceDisabled","source":"git","until":"noon"}"#;
        let enabled = r#"{"type":"SourceEnabled","source":"git","until":"noon"}"#;
        let painted = r#"{"type":"ToolPainted"}"#;
        for (body, critical, min_version, expected) in [
            (painted, false, "0.9.0", Some(("ToolPainted", false))),
            (painted, true, "0.9.0", Some(("ToolPainted", true))),
            // A claimed old version does not make an unknown type understood.
            (painted, true, "0.0.1", Some(("ToolPainted", true))),
            (changed, false, "0.9.0", Some(("TokenChanged", true))),
            (disabled, false, "99.0.0", Some(("SourceDisabled", true))),
            (disabled, true, env!("CARGO_PKG_VERSION"), None),
            (disabled, true, "?", None),
            (enabled, true, "99.0.0", Some(("SourceEnabled", true))),
            // Unknown fields of a type that is not critical may be ignored.
            (enabled, false, "99.0.0", None),
        ] {
            let entry = JournalEntry::parse(stored_record(1, body.into(), critical, min_version));
            let newer = entry.newer_record().map(|newer| (newer.kind.as_str(), newer.critical));
            assert_eq!(newer, expected, "{body} {critical} {min_version}");
            let known = body == disabled || body == enabled;
            assert_eq!(entry.record.event != Event::Unknown, known, "the known part is used");
        }
    }

    #[test]
    fn records_can_be_read_from_any_position() {
        let mut journal = Journal::default();
        assert_eq!(journal.oldest_seq(), None);
        for seq in 1..=1_000 {
            journal.append(&make_entries(seq..=seq, 0));
        }
        for after in [0, 1, 255, 256, 257, 600, 999, 1_000, 2_000] {
            assert_eq!(seqs(journal.entries_after(after)), (after + 1..=1_000).collect::<Vec<_>>(), "{after}");
        }
        assert_eq!(seqs(journal.newest_first()), (1..=1_000).rev().collect::<Vec<_>>());
    }

    #[test]
    fn the_newest_ten_thousand_records_stay_cached_within_the_byte_limit() {
        let mut journal = Journal::default();
        journal.append(&make_entries(1..=25_000, 0));
        assert_eq!(journal.oldest_seq(), Some(15_001));
        journal.append(&make_entries(25_001..=25_300, 0));
        assert!((10_000..10_000 + MAX_CHUNK_RECORDS).contains(&journal.count), "{}", journal.count);
        journal.append(&make_entries(25_301..=25_700, 100_000));
        assert!(journal.bytes <= MAX_CACHED_BYTES + MAX_CHUNK_BYTES, "{}", journal.bytes);
        assert_eq!(seqs(journal.newest_first()).first(), Some(&25_700));
        journal.append(&make_entries(25_701..=25_701, 2 * MAX_CACHED_BYTES));
        assert_eq!(seqs(journal.entries_after(25_700)), [25_701], "the newest is kept, whatever its size");
        assert_eq!(journal.chunks.len(), 1);
    }

    #[test]
    fn records_before_a_snapshot_are_known_to_be_missing() {
        let mut journal = Journal::default();
        assert_eq!((journal.newest_seq(), journal.skipped_range(), journal.starts_after(0)), (None, None, false));
        journal.begin_after(25_000);
        assert_eq!((journal.newest_seq(), journal.skipped_range()), (Some(25_000), Some((15_000, 25_000))));
        assert!(journal.starts_after(24_999) && !journal.starts_after(25_000));
        journal.append(&make_entries(25_001..=25_100, 0));
        assert_eq!((journal.newest_seq(), journal.skipped_range()), (Some(25_100), Some((15_100, 25_000))));
        assert!(journal.starts_after(24_999) && !journal.starts_after(25_000));
        journal.append(&make_entries(25_101..=35_000, 0));
        assert_eq!(journal.skipped_range(), None, "enough records are cached");
        let mut journal = Journal::default();
        journal.begin_after(25_000);
        journal.append(&make_entries(25_001..=25_600, 100_000));
        assert_eq!(journal.skipped_range(), None, "records after the snapshot were evicted");
    }

    #[test]
    fn a_long_batch_leaves_no_gap() {
        let mut journal = Journal::default();
        journal.append(&make_entries(1..=100, 0));
        journal.append(&make_entries(101..=20_000, 0));
        assert_eq!(journal.oldest_seq(), Some(10_001));
        assert_eq!(seqs(journal.entries_after(0)), (10_001..=20_000).collect::<Vec<_>>());
    }

    #[test]
    fn appending_does_not_change_a_clone() {
        let mut journal = Journal::default();
        journal.append(&make_entries(1..=300, 0));
        let clone = journal.clone();
        journal.append(&make_entries(301..=600, 0));
        assert_eq!((clone.entries_after(0).count(), journal.entries_after(0).count()), (300, 600));
        assert!(Arc::ptr_eq(&clone.chunks[0], &journal.chunks[0]), "full chunks are shared");
    }
}
