//! The newest part of the journal, in memory: what `history` and those who watch read without touching the store.
//! It is replaced whole like everything that readers see, and shares all but its last chunk with the one before.

use std::collections::VecDeque;
use std::sync::Arc;

use toolcrib_core::inventory::{Event, Reading, Record, type_of};

use super::newer::{NewerRecord, is_newer_version};
use crate::store::StoredRecord;

/// How many records are read from the store at once.
pub(super) const BATCH: usize = 5_000;
/// How many records are kept at least, as long as they are small enough.
const MOST: usize = 10_000;
/// How much of the journal's text is kept, about.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// Appending copies at most one chunk.
const CHUNK: usize = 256;
const CHUNK_BYTES: usize = MOST_BYTES / 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    chunks: VecDeque<Arc<Chunk>>,
    count: usize,
    bytes: usize,
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    entries: Vec<Entry>,
    bytes: usize,
}

/// A record, and what the store says of it where that is more than we can read.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) record: Arc<Record>,
    /// The text of an event that this build does not understand.
    pub(crate) unknown: Option<Arc<str>>,
    pub(crate) understood: Understood,
    /// Over all that is stored of it.
    pub(crate) checksum: Arc<str>,
    /// Whether it was written with a checksum.
    pub(crate) has_checksum: bool,
    bytes: usize,
}

/// How much of a stored record this build understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Understood {
    Wholly,
    /// A newer Toolcrib wrote it, and it says more than this build knows.
    Newer(Arc<NewerRecord>),
    /// It cannot be read, and why.
    Damaged(Arc<str>),
}

impl Understood {
    fn newer(kind: String, since: String, critical: bool) -> Understood {
        Understood::Newer(Arc::new(NewerRecord { kind, since, critical }))
    }
}

impl Entry {
    pub(crate) fn read(stored: StoredRecord) -> Entry {
        let computed = stored.compute_checksum();
        let StoredRecord { seq, at, actor, body, critical, since, checksum } = stored;
        let has_checksum = checksum.is_some();
        let reading = if checksum.is_none_or(|written| written == computed) {
            Reading::of(&body)
        } else {
            Reading::Damaged("its checksum does not match".to_owned())
        };
        // What is not understood keeps its place.
        let (event, understood) = match reading {
            // A known type may have more fields than this build knows. Where those must not be ignored, the record says
            // so by a version that is later than ours.
            Reading::Known(event) if (critical || event.critical()) && is_newer_version(&since) => {
                let kind = type_of(&body).unwrap_or_default();
                (event, Understood::newer(kind, since, true))
            }
            Reading::Known(event) => (event, Understood::Wholly),
            Reading::Newer { kind } => {
                let critical = critical || Event::is_critical_type(&kind);
                (Event::Unknown, Understood::newer(kind, since, critical))
            }
            Reading::Damaged(reason) => (Event::Unknown, Understood::Damaged(reason.into())),
        };
        let bytes = body.len();
        let unknown = (event == Event::Unknown).then(|| body.into());
        let record = Arc::new(Record { seq, at, actor, event });
        Entry { record, unknown, understood, checksum: computed.into(), has_checksum, bytes }
    }
}

impl Journal {
    pub(crate) fn append(&mut self, news: &[Entry]) {
        // Of much at once, as at a start, only the end is kept, and nothing of what lies before it: there are no holes.
        if news.len() > MOST {
            *self = Journal::default();
        }
        for entry in &news[news.len().saturating_sub(MOST)..] {
            let full = |chunk: &Arc<Chunk>| chunk.entries.len() >= CHUNK || chunk.bytes >= CHUNK_BYTES;
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
            self.forget();
        }
    }

    /// Lets go of the oldest chunks. The last one stays, whatever its size.
    fn forget(&mut self) {
        while self.chunks.len() > 1
            && let Some(oldest) = self.chunks.front()
            && (self.count - oldest.entries.len() >= MOST || self.bytes > MOST_BYTES)
        {
            self.count -= oldest.entries.len();
            self.bytes -= oldest.bytes;
            self.chunks.pop_front();
        }
    }

    /// The number of the oldest record that is kept.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.chunks.front()?.entries.first().map(|entry| entry.record.seq)
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        self.chunks.back()?.entries.last().map(|entry| entry.record.seq)
    }

    /// Whether records that follow `seq` are no longer kept.
    pub(crate) fn begins_after(&self, seq: u64) -> bool {
        self.oldest().is_some_and(|oldest| seq.saturating_add(1) < oldest)
    }

    /// What is kept of the records after `seq`, oldest first.
    pub(crate) fn after(&self, seq: u64) -> impl Iterator<Item = &Entry> {
        let old = |chunk: &Arc<Chunk>| chunk.entries.last().is_none_or(|entry| entry.record.seq <= seq);
        let first = self.chunks.partition_point(old);
        let entries = self.chunks.range(first..).flat_map(|chunk| &chunk.entries);
        entries.skip_while(move |entry| entry.record.seq <= seq)
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().rev().flat_map(|chunk| chunk.entries.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Timestamp;
    use toolcrib_core::inventory::Actor;

    use super::*;

    fn stored(seq: u64, body: String, critical: bool, since: &str) -> StoredRecord {
        let (actor, since) = (Actor::new("test"), since.into());
        StoredRecord { seq, at: Timestamp(0), actor, body, critical, since, checksum: None }
    }

    fn entries(seqs: std::ops::RangeInclusive<u64>, size: usize) -> Vec<Entry> {
        let body = |seq: u64| format!(r#"{{"type":"SourceEnabled","source":"s{seq}","x":"{}"}}"#, "x".repeat(size));
        seqs.map(|seq| Entry::read(stored(seq, body(seq), false, "0.1.0"))).collect()
    }

    fn seqs<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<u64> {
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
            let entry = Entry::read(stored(1, body.into(), critical, since));
            let newer = entry.newer().map(|newer| (newer.kind.as_str(), newer.critical));
            assert_eq!(newer, expected, "{body} {critical} {since}");
            let known = body == disabled || body == enabled;
            assert_eq!(entry.record.event != Event::Unknown, known, "what is understood of it holds");
        }
    }

    #[test]
    fn records_are_found_from_any_place_on() {
        let mut journal = Journal::default();
        assert_eq!(journal.oldest(), None);
        for seq in 1..=1_000 {
            journal.append(&entries(seq..=seq, 0));
        }
        for after in [0, 1, 255, 256, 257, 600, 999, 1_000, 2_000] {
            assert_eq!(seqs(journal.after(after)), (after + 1..=1_000).collect::<Vec<_>>(), "{after}");
        }
        assert_eq!(seqs(journal.newest_first()), (1..=1_000).rev().collect::<Vec<_>>());
    }

    #[test]
    fn the_newest_ten_thousand_are_kept_and_no_more_than_their_bytes_allow() {
        let mut journal = Journal::default();
        journal.append(&entries(1..=25_000, 0));
        assert_eq!(journal.oldest(), Some(15_001));
        journal.append(&entries(25_001..=25_300, 0));
        assert!((10_000..10_000 + CHUNK).contains(&journal.count), "{}", journal.count);
        journal.append(&entries(25_301..=25_700, 100_000));
        assert!(journal.bytes <= MOST_BYTES + CHUNK_BYTES, "{}", journal.bytes);
        assert_eq!(seqs(journal.newest_first()).first(), Some(&25_700));
        journal.append(&entries(25_701..=25_701, 2 * MOST_BYTES));
        assert_eq!(seqs(journal.after(25_700)), [25_701], "the newest is kept, whatever its size");
        assert_eq!(journal.chunks.len(), 1);
    }

    #[test]
    fn much_at_once_leaves_no_hole() {
        let mut journal = Journal::default();
        journal.append(&entries(1..=100, 0));
        journal.append(&entries(101..=20_000, 0));
        assert_eq!(journal.oldest(), Some(10_001));
        assert_eq!(seqs(journal.after(0)), (10_001..=20_000).collect::<Vec<_>>());
    }

    #[test]
    fn appending_leaves_what_readers_hold_as_it_was() {
        let mut journal = Journal::default();
        journal.append(&entries(1..=300, 0));
        let held = journal.clone();
        journal.append(&entries(301..=600, 0));
        assert_eq!((held.after(0).count(), journal.after(0).count()), (300, 600));
        assert!(Arc::ptr_eq(&held.chunks[0], &journal.chunks[0]), "full chunks are shared");
    }
}
