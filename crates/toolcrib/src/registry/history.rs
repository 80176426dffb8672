//! Queries on the journal (`history`) and the form in which records are shown. Recent records are served from memory;
//! only a query for older ones reads the store.
//!
//! ```json
//! {"seq": 7, "at": "…", "actor": "cli", "type": "ToolDisabled", "source": "git", "tool": "push", "data": {}, …}
//! ```
//!
//! A page is bounded twice: by `limit`, the number of matching records, and by the number of records that are scanned
//! for them. A page may therefore be empty and still have a `next_after`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_core::inventory::history::{self, ToolMatcher};
use toolcrib_core::inventory::{Event, Record};
use toolcrib_core::principal::Principal;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Result, SourceId, Timestamp};

use super::{Registry, Visibility};
use crate::connector::run_blocking;
use crate::state::{EntryStatus, Journal, JournalEntry, READ_BATCH_SIZE};
use crate::store::{DiscoveryCheck, StoredRecord};

/// Which records of the journal to return; by default all that are in memory.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Only records after this sequence number, oldest first, read from the store if necessary. Without it, the newest
    /// records in memory, which needs no store access.
    pub after: Option<u64>,
    /// Only records of this source.
    pub source: Option<SourceId>,
    /// Only records of this tool, by its original name or any accepted spelling.
    pub tool: Option<String>,
    /// Only records since this time.
    pub since: Option<Timestamp>,
    /// Maximum number of records.
    pub limit: Option<usize>,
}

/// A journal record in the form that `history` returns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRecord {
    /// Sequence number in the journal.
    pub seq: u64,
    /// Time of the record.
    pub at: Timestamp,
    /// Client or process that wrote it.
    pub actor: String,
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Source that the event concerns.
    pub source: Option<String>,
    /// Tool that the event concerns.
    pub tool: Option<String>,
    /// Further fields of the event, without hashes.
    pub data: Value,
    /// Description of the event in one line.
    pub text: String,
}

/// A part of the journal, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HistoryPage {
    /// Matching records.
    pub records: Vec<HistoryRecord>,
    /// Value of `after` for the next page, if there may be more matching records.
    pub next_after: Option<u64>,
}

/// Maximum number of records that one page scans for matching ones; keeps a request over a long journal short. A page
/// that ends here continues with `next_after`.
const MAX_SCANNED_RECORDS: usize = 4 * READ_BATCH_SIZE;

/// The past of a registry, as a principal may see it: records of its journal, discoveries, and tools as they were; see
/// [`Registry::history`].
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    pub(super) registry: &'a Registry,
    pub(super) principal: &'a Principal,
}

impl History<'_> {
    /// Returns the matching records, oldest first. To follow the journal: subscribe, read from the last known record
    /// on, and read on at every [`RegistryNotice::RecordAppended`](super::RegistryNotice::RecordAppended); the record
    /// is in memory by then. A tool that never existed is an error.
    pub async fn records(&self, query: &HistoryQuery) -> Result<Vec<HistoryRecord>> {
        let mut query = query.clone();
        let mut records = Vec::new();
        loop {
            let page = self.page(&query).await?;
            query.limit = query.limit.map(|limit| limit.saturating_sub(page.records.len()));
            records.extend(page.records);
            match page.next_after {
                Some(next) if query.limit != Some(0) && query.after != Some(next) => query.after = Some(next),
                Some(_) | None => return Ok(records),
            }
        }
    }

    /// Returns the matching records among those that one scan covers, and where to continue.
    pub async fn page(&self, query: &HistoryQuery) -> Result<HistoryPage> {
        let page = self.scan_journal(query).await?;
        if let Some(name) = query.tool.as_deref().filter(|_| page.records.is_empty() && page.next_after.is_none()) {
            self.ensure_tool_existed(name).await?;
        }
        Ok(page)
    }

    /// Fails if a tool never existed. Tools of a removed source are known only to the journal; if that is too long for
    /// one scan, the tool is assumed to have existed. Distinguishes a misspelt name from a tool without records in the
    /// requested range.
    async fn ensure_tool_existed(&self, name: &str) -> Result<()> {
        let Err(unknown) = self.registry.view(self.principal).find(name).map(drop) else { return Ok(()) };
        let query = HistoryQuery { tool: Some(name.to_owned()), limit: Some(1), ..HistoryQuery::after(0) };
        match self.resolve_tool_name(name)? {
            ToolMatcher::Name(_) if self.scan_journal(&query).await? == HistoryPage::default() => Err(unknown),
            ToolMatcher::Name(_) | ToolMatcher::Tool(_) => Ok(()),
        }
    }

    /// Scans the journal for matching records: the store first, then memory.
    async fn scan_journal(&self, query: &HistoryQuery) -> Result<HistoryPage> {
        let journal = self.registry.state.snapshot().journal.clone();
        let limit = query.limit.unwrap_or(usize::MAX);
        let matcher = query.tool.as_deref().map(|name| self.resolve_tool_name(name)).transpose()?;
        let visibility = self.registry.visibility(self.principal);
        let filter = Arc::new(HistoryFilter { query: query.clone(), matcher, visibility });
        let Some(after) = query.after else {
            let mut records = self.scan_newest(&filter, &journal, limit).await?;
            records.reverse();
            return Ok(HistoryPage { records, next_after: None });
        };
        // With a start: from the store up to where memory begins, then from memory.
        let mut scan = HistoryScan { records: Vec::new(), limit, last_seq: after };
        let newest = journal.newest_seq();
        let mut scanned = 0;
        let mut in_memory = !journal.starts_after(scan.last_seq);
        while scan.has_room() && !in_memory && scanned < MAX_SCANNED_RECORDS {
            // Without a filter, read no more records than are returned.
            let batch =
                if query.is_filtered() { READ_BATCH_SIZE } else { READ_BATCH_SIZE.min(limit - scan.records.len()) };
            let stored = self.registry.state.store.records(scan.last_seq, batch).await?;
            if stored.is_empty() {
                // The store has lost records that are still in memory: continue there, so that the scan ends.
                in_memory = true;
                break;
            }
            scanned += stored.len();
            let read = move |filter: &HistoryFilter| {
                stored.into_iter().map(JournalEntry::parse).all(|entry| scan.add(filter, &entry));
                scan
            };
            scan = run_with_filter(&filter, read).await?;
            in_memory = !journal.starts_after(scan.last_seq);
        }
        if scan.has_room() && in_memory {
            let read = move |filter: &HistoryFilter| {
                journal.entries_after(scan.last_seq).all(|entry| scan.add(filter, entry));
                scan
            };
            scan = run_with_filter(&filter, read).await?;
        }
        // `None` once the newest record of this snapshot was examined.
        let next_after = newest.filter(|newest| scan.last_seq < *newest).map(|_| scan.last_seq);
        Ok(HistoryPage { records: scan.records, next_after })
    }

    /// Returns the newest matching records, newest first: those in memory, and if these are too few, those before them
    /// that a start with a snapshot has skipped. While the store is down, the ones in memory are the answer.
    async fn scan_newest(
        &self,
        filter: &Arc<HistoryFilter>,
        journal: &Arc<Journal>,
        limit: usize,
    ) -> Result<Vec<HistoryRecord>> {
        let cached = journal.clone();
        let mut records: Vec<HistoryRecord> = run_with_filter(filter, move |filter| {
            cached.newest_first().filter_map(|entry| filter.describe(entry)).take(limit).collect()
        })
        .await?;
        if records.len() >= limit {
            return Ok(records);
        }
        let skipped = match self.read_skipped_records(journal).await {
            Ok(skipped) => skipped,
            Err(error) if error.code == Code::StoreUnavailable => return Ok(records),
            Err(error) => return Err(error),
        };
        let room = limit - records.len();
        let older: Vec<HistoryRecord> = run_with_filter(filter, move |filter| {
            let entries = skipped.into_iter().rev().map(JournalEntry::parse);
            entries.filter_map(|entry| filter.describe(&entry)).take(room).collect()
        })
        .await?;
        records.extend(older);
        Ok(records)
    }

    /// Reads the newest records that are not in memory because the start began with a snapshot.
    async fn read_skipped_records(&self, journal: &Journal) -> Result<Vec<StoredRecord>> {
        let Some((mut after, last)) = journal.skipped_range() else { return Ok(Vec::new()) };
        let mut records = Vec::new();
        // A store returns fewer records than it is asked for if they are large.
        while after < last {
            let count = usize::try_from(last - after).unwrap_or(usize::MAX);
            let batch = self.registry.state.store.records(after, count).await?;
            let Some(newest) = batch.last() else { break };
            after = newest.seq;
            records.extend(batch);
        }
        Ok(records)
    }

    /// Returns a record from a notice in the form of `history`. For an event of a newer Toolcrib, its stored text is
    /// used. A notice carries the parsed record only, in which an unknown event has no content.
    pub fn describe(&self, record: &Record) -> HistoryRecord {
        if record.event == Event::Unknown {
            let journal = self.registry.state.snapshot().journal.clone();
            let entry = journal.entries_after(record.seq.saturating_sub(1)).next();
            if let Some(entry) = entry.filter(|entry| entry.record.seq == record.seq) {
                return HistoryRecord::from_entry(entry);
            }
        }
        HistoryRecord::from_record(record)
    }

    /// Like [`History::describe`], without the tools that the principal may not know of; `None` if the record is about
    /// nothing else.
    pub fn describe_visible(&self, record: &Record) -> Option<HistoryRecord> {
        let visibility = self.registry.visibility(self.principal);
        if record.event == Event::Unknown {
            return Some(self.describe(record)).filter(|record| is_visible_unknown(&visibility, record));
        }
        Some(describe_restricted(&visibility, &*visibility.restrict_record(record)?))
    }

    /// Returns the URI that identifies the store in events for other programs. Made from the key of the store, which it
    /// does not reveal.
    pub fn store_uri(&self) -> String {
        let id = crate::secret::keyed_hash(&self.registry.state.store_key, "cloudevents");
        format!("urn:toolcrib:{}", id.short_hex(16))
    }

    /// Returns the last discovery checks of a source, newest first. Each is one attempt, successful or not. Without the
    /// numbers of tools if there may be some that the principal may not know of. Reads the store.
    pub async fn checks(&self, id: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        let mut checks = self.registry.state.store.checks(id).await?;
        if self.registry.visibility(self.principal).restricts(id) {
            checks.iter_mut().for_each(|check| check.tool_count = None);
        }
        Ok(checks)
    }
}

/// Runs a scan on a blocking thread: describing many records takes a while.
async fn run_with_filter<T: Send + 'static>(
    filter: &Arc<HistoryFilter>,
    work: impl FnOnce(&HistoryFilter) -> T + Send + 'static,
) -> Result<T> {
    let filter = filter.clone();
    run_blocking(move || Ok(work(&filter))).await
}

impl HistoryQuery {
    /// Returns a query for everything after a record; 0 for the whole journal.
    pub fn after(seq: u64) -> HistoryQuery {
        HistoryQuery { after: Some(seq), ..HistoryQuery::default() }
    }

    /// Whether the query excludes records by their content.
    fn is_filtered(&self) -> bool {
        self.source.is_some() || self.tool.is_some() || self.since.is_some()
    }
}

/// Progress of a scan.
struct HistoryScan {
    records: Vec<HistoryRecord>,
    limit: usize,
    /// Last record that was examined, matching or not.
    last_seq: u64,
}

impl HistoryScan {
    /// Whether the limit is not reached yet.
    fn has_room(&self) -> bool {
        self.records.len() < self.limit
    }

    /// Examines a record; returns `false`, without doing so, once the limit is reached.
    fn add(&mut self, filter: &HistoryFilter, entry: &JournalEntry) -> bool {
        if !self.has_room() {
            return false;
        }
        self.last_seq = entry.record.seq;
        self.records.extend(filter.describe(entry));
        true
    }
}

/// A query with its tool name resolved, and what its reader may know of.
struct HistoryFilter {
    query: HistoryQuery,
    matcher: Option<ToolMatcher>,
    visibility: Visibility,
}

impl HistoryFilter {
    /// Converts a record if it matches the query and the reader may know of it; the description is limited to the queried
    /// tool. Tool names are compared by the matcher, which knows the spellings of the name.
    fn describe(&self, entry: &JournalEntry) -> Option<HistoryRecord> {
        let JournalEntry { record, unknown_body, .. } = entry;
        let HistoryQuery { source, tool, since, .. } = &self.query;
        if since.is_some_and(|since| record.at < since) {
            return None;
        }
        if unknown_body.is_some() {
            // The event is opaque: compare the fields of its JSON.
            let record = HistoryRecord::from_entry(entry);
            let matches_source = source.as_ref().is_none_or(|id| record.source.as_deref() == Some(id.as_str()));
            let matches_tool = tool.as_ref().is_none_or(|tool| record.tool.as_ref() == Some(tool));
            let is_visible = is_visible_unknown(&self.visibility, &record);
            return (matches_source && matches_tool && is_visible).then_some(record);
        }
        if source.as_ref().is_some_and(|id| record.event.source() != Some(id)) {
            return None;
        }
        let visible = self.visibility.restrict_record(record)?;
        let Some(matcher) = &self.matcher else { return Some(describe_restricted(&self.visibility, &visible)) };
        if !history::concerns_tool(&visible.event, matcher) {
            return None;
        }
        let described = describe_restricted(&self.visibility, &visible);
        let text = history::describe_for_tool(&visible.event, &described.kind, matcher);
        Some(HistoryRecord { text, ..described })
    }
}

/// Converts a record that has only what its reader may know of. The fingerprint of a tool list covers the other tools
/// too, so it is left out where there may be some.
fn describe_restricted(visibility: &Visibility, record: &Record) -> HistoryRecord {
    let mut described = HistoryRecord::from_record(record);
    if record.event.source().is_some_and(|source| visibility.restricts(source))
        && let Some(data) = described.data.as_object_mut()
    {
        data.shift_remove("fingerprint");
    }
    described
}

/// Whether a reader may know of a record of a newer version: its content is unknown, so it must not be about a source
/// with tools that the reader may not know of.
fn is_visible_unknown(visibility: &Visibility, record: &HistoryRecord) -> bool {
    let source = record.source.as_deref().and_then(|source| SourceId::parse(source).ok());
    source.is_none_or(|source| !visibility.restricts(&source))
}

impl HistoryRecord {
    /// Returns what the record is about: a source, or a tool as `source:tool`.
    pub fn subject(&self) -> Option<String> {
        match (&self.source, &self.tool) {
            (Some(source), Some(tool)) => Some(format!("{source}:{tool}")),
            (source, _) => source.clone(),
        }
    }

    /// Converts a record of a notice. An event of a newer Toolcrib has no fields here.
    fn from_record(record: &Record) -> HistoryRecord {
        let mut data = serde_json::to_value(&record.event).unwrap_or_default();
        HistoryRecord::from_fields(record, data.as_object_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Converts a journal entry; an unknown event is shown by its stored JSON.
    fn from_entry(entry: &JournalEntry) -> HistoryRecord {
        let Some(text) = &entry.unknown_body else { return HistoryRecord::from_record(&entry.record) };
        let mut record = HistoryRecord::from_fields(&entry.record, serde_json::from_str(text).unwrap_or_default());
        if let EntryStatus::Damaged(reason) = &entry.status {
            record.text = format!("a damaged record: {}", sanitize_truncated(reason, 200));
        }
        record
    }

    /// Converts the fields of an event's JSON.
    fn from_fields(record: &Record, mut data: Map<String, Value>) -> HistoryRecord {
        let mut text = |key: &str| data.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let kind = text("type").unwrap_or_default();
        let source = text("source");
        let tool = text("tool");
        // History may be read with less than administrator rights: of a token it shows name, role and groups only, and
        // never a claim or hash. (Definitions and manifests are named by fingerprints, which are other fields.)
        data.shift_remove("hash");
        if is_token_event(&kind) {
            data.retain(|key, _| matches!(key.as_str(), "name" | "role" | "groups"));
        }
        HistoryRecord {
            seq: record.seq,
            at: record.at,
            actor: record.actor.to_string(),
            text: history::describe(&record.event, &kind),
            kind,
            source,
            tool,
            data: Value::Object(data),
        }
    }
}

/// Whether an event is about a token. By the name of its type, so that token events of newer versions are covered.
fn is_token_event(kind: &str) -> bool {
    kind.starts_with("Token")
}
