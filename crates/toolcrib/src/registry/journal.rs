//! The newest part of the journal, in memory: what `history` and those who watch read without touching the store.
//! It is replaced whole like everything that readers see, and shares all but its last chunk with the one before.

use std::collections::VecDeque;
use std::sync::Arc;

use toolcrib_core::inventory::{Event, Record, StoredEvent, event_type};

use super::newer_records::{NewerRecord, is_newer_version};
use crate::store::StoredRecord;

/// How many records are read from the store at once.
pub(super) const READ_BATCH_SIZE: usize = 5_000;
/// How many records are kept at least, as long as they are small enough.
const MAX_CACHED_RECORDS: usize = 10_000;
/// How much of the journal's text is kept, about.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;
/// Appending copies at most one chunk.
const MAX_CHUNK_RECORDS: usize = 256;
const MAX_CHUNK_BYTES: usize = MAX_CACHED_BYTES / 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    chunks: VecDeque<Arc<Chunk>>,
    count: usize,
    bytes: usize,
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    entries: Vec<JournalEntry>,
    bytes: usize,
}

/// A record, and what the store says of it where that is more than we can read.
#[derive(Debug, Clone)]
pub(crate) struct JournalEntry {
    pub(crate) record: Arc<Record>,
    /// The text of an event that this build does not understand.
    pub(crate) unknown_body: Option<Arc<str>>,
    pub(crate) status: EntryStatus,
    /// Over all that is stored of it.
    pub(crate) checksum: Arc<str>,
    /// Whether it was written with a checksum.
    pub(crate) has_checksum: bool,
    bytes: usize,
}

/// How much of a stored record this build understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryStatus {
    Understood,
    /// A newer Toolcrib wrote it, and it says more than this build knows.
    Newer(Arc<NewerRecord>),
    /// It cannot be read, and why.
    Damaged(Arc<str>),
}

impl EntryStatus {
    fn from_newer(kind: String, since: String, critical: bool) -> EntryStatus {
        EntryStatus::Newer(Arc::new(NewerRecord { kind, since, critical }))
    }
}

impl JournalEntry {
    pub(crate) fn parse(stored: StoredRecord) -> JournalEntry {
        let computed = stored.compute_checksum();
        let StoredRecord { seq, at, actor, body, critical, since, checksum } = stored;
        let has_checksum = checksum.is_some();
        let reading = if checksum.is_none_or(|written| written == computed) {
            StoredEvent::parse(&body)
        } else {
            StoredEvent::Damaged("its checksum does not match".to_owned())
        };
        // What is not understood keeps its place.
        let (event, understood) = match reading {
            // A known type may have more fields than this build knows. Where those must not be ignored, the record says
            // so by a version that is later than ours.
            StoredEvent::Known(event) if (critical || event.is_critical()) && is_newer_version(&since) => {
                let kind = event_type(&body).unwrap_or_default();
                (event, EntryStatus::from_newer(kind, since, true))
            }
            StoredEvent::Known(event) => (event, EntryStatus::Understood),
            StoredEvent::Newer { kind } => {
                let critical = critical || Event::is_critical_type(&kind);
                (Event::Unknown, EntryStatus::from_newer(kind, since, critical))
            }
            StoredEvent::Damaged(reason) => (Event::Unknown, EntryStatus::Damaged(reason.into())),
        };
        let bytes = body.len();
        let unknown = (event == Event::Unknown).then(|| body.into());
        let record = Arc::new(Record { seq, at, actor, event });
        JournalEntry {
            record,
            unknown_body: unknown,
            status: understood,
            checksum: computed.into(),
            has_checksum,
            bytes,
        }
    }
}

impl Journal {
    pub(crate) fn append(&mut self, news: &[JournalEntry]) {
        // Of much at once, as at a start, only the end is kept, and nothing of what lies before it: there are no holes.
        if news.len() > MAX_CACHED_RECORDS {
            *self = Journal::default();
        }
        for entry in &news[news.len().saturating_sub(MAX_CACHED_RECORDS)..] {
            let full = |chunk: &Arc<Chunk>| chunk.entries.len() >= MAX_CHUNK_RECORDS || chunk.bytes >= MAX_CHUNK_BYTES;
            if self.chunks.back().is_none_or(full) {
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

    /// Lets go of the oldest chunks. The last one stays, whatever its size.
    fn evict_oldest(&mut self) {
        while self.chunks.len() > 1
            && let Some(oldest) = self.chunks.front()
            && (self.count - oldest.entries.len() >= MAX_CACHED_RECORDS || self.bytes > MAX_CACHED_BYTES)
        {
            self.count -= oldest.entries.len();
            self.bytes -= oldest.bytes;
            self.chunks.pop_front();
        }
    }

    /// The number of the oldest record that is kept.
    pub(crate) fn oldest_seq(&self) -> Option<u64> {
        self.chunks.front()?.entries.first().map(|entry| entry.record.seq)
    }

    pub(crate) fn newest_seq(&self) -> Option<u64> {
        self.chunks.back()?.entries.last().map(|entry| entry.record.seq)
    }

    /// Whether records that follow `seq` are no longer kept.
    pub(crate) fn starts_after(&self, seq: u64) -> bool {
        self.oldest_seq().is_some_and(|oldest| seq.saturating_add(1) < oldest)
    }

    /// What is kept of the records after `seq`, oldest first.
    pub(crate) fn entries_after(&self, seq: u64) -> impl Iterator<Item = &JournalEntry> {
        let old = |chunk: &Arc<Chunk>| chunk.entries.last().is_none_or(|entry| entry.record.seq <= seq);
        let first = self.chunks.partition_point(old);
        let entries = self.chunks.range(first..).flat_map(|chunk| &chunk.entries);
        entries.skip_while(move |entry| entry.record.seq <= seq)
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &JournalEntry> {
        self.chunks.iter().rev().flat_map(|chunk| chunk.entries.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Timestamp;
    use toolcrib_core::inventory::Actor;

    use super::*;

    fn stored_record(seq: u64, body: String, critical: bool, since: &str) -> StoredRecord {
        let (actor, since) = (Actor::new("test"), since.into());
        StoredRecord { seq, at: Timestamp(0), actor, body, critical, since, checksum: None }
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
        for (body, critical, since, expected) in [
            (painted, false, "0.9.0", Some(("ToolPainted", false))),
            (painted, true, "0.9.0", Some(("ToolPainted", true))),
            // A version that says otherwise does not make it understood.
            (painted, true, "0.0.1", Some(("ToolPainted", true))),
            (changed, false, "0.9.0", Some(("TokenChanged", true))),
            (disabled, false, "99.0.0", Some(("SourceDisabled", true))),
            (disabled, true, env!("CARGO_PKG_VERSION"), None),
            (disabled, true, "?", None),
            (enabled, true, "99.0.0", Some(("SourceEnabled", true))),
            // What is added to it may be ignored.
            (enabled, false, "99.0.0", None),
        ] {
            let entry = JournalEntry::parse(stored_record(1, body.into(), critical, since));
            let newer = entry.newer_record().map(|newer| (newer.kind.as_str(), newer.critical));
            assert_eq!(newer, expected, "{body} {critical} {since}");
            let known = body == disabled || body == enabled;
            assert_eq!(entry.record.event != Event::Unknown, known, "what is understood of it holds");
        }
    }

    #[test]
    fn records_are_found_from_any_place_on() {
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
    fn the_newest_ten_thousand_are_kept_and_no_more_than_their_bytes_allow() {
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
    fn much_at_once_leaves_no_hole() {
        let mut journal = Journal::default();
        journal.append(&make_entries(1..=100, 0));
        journal.append(&make_entries(101..=20_000, 0));
        assert_eq!(journal.oldest_seq(), Some(10_001));
        assert_eq!(seqs(journal.entries_after(0)), (10_001..=20_000).collect::<Vec<_>>());
    }

    #[test]
    fn appending_leaves_what_readers_hold_as_it_was() {
        let mut journal = Journal::default();
        journal.append(&make_entries(1..=300, 0));
        let held = journal.clone();
        journal.append(&make_entries(301..=600, 0));
        assert_eq!((held.entries_after(0).count(), journal.entries_after(0).count()), (300, 600));
        assert!(Arc::ptr_eq(&held.chunks[0], &journal.chunks[0]), "full chunks are shared");
    }
}
