//! The journal as people and programs read it: which records are wanted, and how one is shown.
//! What is recent is in memory; only who asks for what lies further back makes the store read.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_core::history::{self, ToolMatcher};
use toolcrib_core::inventory::{Event, Record};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Result, SourceId, Timestamp};

use super::Registry;
use super::blocking::run_blocking;
use super::journal::{EntryStatus, JournalEntry, READ_BATCH_SIZE};
use crate::store::DiscoveryCheck;

/// Which records of the journal are wanted. All of those in memory, when nothing is said.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Only those after this number, the oldest of them when there is a limit, however far back they lie.
    /// Without it the newest of those in memory, which touches no store.
    pub after: Option<u64>,
    pub source: Option<SourceId>,
    /// By its own name, or by any that agents see or people write.
    pub tool: Option<String>,
    pub since: Option<Timestamp>,
    pub limit: Option<usize>,
}

/// A journal entry as `history` shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRecord {
    pub seq: u64,
    pub at: Timestamp,
    pub actor: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub source: Option<String>,
    pub tool: Option<String>,
    pub data: Value,
    /// What happened, in one line.
    pub text: String,
}

/// A part of the journal, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct HistoryPage {
    pub records: Vec<HistoryRecord>,
    /// What to go on after, when there may be more that is wanted.
    pub next_after: Option<u64>,
}

/// How many records of the store one page looks at to find those that are wanted.
const MAX_SCANNED_RECORDS: usize = 4 * READ_BATCH_SIZE;

impl Registry {
    /// The journal, oldest first. To follow it: subscribe, read from where you are, and with every
    /// [`Notice::Recorded`](super::Notice::Recorded) read on; it is in memory by then.
    /// A tool that never was is an error.
    pub async fn history(&self, wanted: &HistoryQuery) -> Result<Vec<HistoryRecord>> {
        let (mut wanted, mut records) = (wanted.clone(), Vec::new());
        loop {
            let page = self.history_page(&wanted).await?;
            wanted.limit = wanted.limit.map(|limit| limit.saturating_sub(page.records.len()));
            records.extend(page.records);
            match page.next_after {
                Some(next) if wanted.limit != Some(0) && wanted.after != Some(next) => wanted.after = Some(next),
                Some(_) | None => return Ok(records),
            }
        }
    }

    /// As much of the journal as is looked at in one go: who chooses few of many records is told where to go on.
    pub async fn history_page(&self, wanted: &HistoryQuery) -> Result<HistoryPage> {
        let page = self.scan_journal(wanted).await?;
        if let Some(name) = wanted.tool.as_deref().filter(|_| page.records.is_empty() && page.next_after.is_none()) {
            self.ensure_tool_existed(name).await?;
        }
        Ok(page)
    }

    /// There is such a tool, or there was: of a source that was removed only the journal knows. Where that is too long to
    /// be looked through, nobody can say that there never was one.
    async fn ensure_tool_existed(&self, name: &str) -> Result<()> {
        let Err(unknown) = self.catalog().find(name) else { return Ok(()) };
        let ever = HistoryQuery { tool: Some(name.to_owned()), limit: Some(1), ..HistoryQuery::after(0) };
        match self.resolve_tool_selector(name)? {
            ToolMatcher::Name(_) if self.scan_journal(&ever).await? == HistoryPage::default() => Err(unknown),
            ToolMatcher::Name(_) | ToolMatcher::Tool(_) => Ok(()),
        }
    }

    async fn scan_journal(&self, wanted: &HistoryQuery) -> Result<HistoryPage> {
        let journal = self.shared.snapshot.load().journal.clone();
        let most = wanted.limit.unwrap_or(usize::MAX);
        let meant = wanted.tool.as_deref().map(|name| self.resolve_tool_selector(name)).transpose()?;
        let choice = Arc::new(HistoryFilter { query: wanted.clone(), selector: meant });
        let Some(after) = wanted.after else {
            return run_with_filter(&choice, move |choice| {
                let newest = journal.newest_first().filter(|entry| choice.matches(entry)).take(most);
                let mut records: Vec<HistoryRecord> = newest.map(|entry| choice.to_history_record(entry)).collect();
                records.reverse();
                HistoryPage { records, next_after: None }
            })
            .await;
        };
        let mut found = HistoryScan { records: Vec::new(), limit: most, last_seq: after };
        let (newest, mut looked_at) = (journal.newest_seq(), 0);
        let mut in_memory = !journal.starts_after(found.last_seq);
        while found.has_room() && !in_memory && looked_at < MAX_SCANNED_RECORDS {
            // Where all are wanted, no more are read than are shown.
            let batch =
                if wanted.is_filtered() { READ_BATCH_SIZE } else { READ_BATCH_SIZE.min(most - found.records.len()) };
            let stored = self.shared.store.records(found.last_seq, batch).await?;
            if stored.is_empty() {
                // The store has lost what memory has kept, and who reads on must come to an end.
                in_memory = true;
                break;
            }
            looked_at += stored.len();
            let read = move |choice: &HistoryFilter| {
                stored.into_iter().map(JournalEntry::parse).take_while(|entry| found.add(choice, entry)).for_each(drop);
                found
            };
            found = run_with_filter(&choice, read).await?;
            in_memory = !journal.starts_after(found.last_seq);
        }
        if found.has_room() && in_memory {
            let read = move |choice: &HistoryFilter| {
                journal.entries_after(found.last_seq).take_while(|entry| found.add(choice, entry)).for_each(drop);
                found
            };
            found = run_with_filter(&choice, read).await?;
        }
        let next_after = newest.filter(|newest| found.last_seq < *newest).map(|_| found.last_seq);
        Ok(HistoryPage { records: found.records, next_after })
    }

    /// A record that was told just now, as `history` shows it: what a newer Toolcrib wrote has its own words there.
    pub fn history_record(&self, record: &Record) -> HistoryRecord {
        if record.event == Event::Unknown {
            let journal = self.shared.snapshot.load().journal.clone();
            let entry = journal.entries_after(record.seq.saturating_sub(1)).next();
            if let Some(entry) = entry.filter(|entry| entry.record.seq == record.seq) {
                return HistoryRecord::from_entry(entry);
            }
        }
        HistoryRecord::from_record(record)
    }

    /// The last checks of a source, newest first.
    pub async fn checks(&self, id: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        self.shared.store.checks(id).await
    }
}

async fn run_with_filter<T: Send + 'static>(
    choice: &Arc<HistoryFilter>,
    work: impl FnOnce(&HistoryFilter) -> T + Send + 'static,
) -> Result<T> {
    let choice = choice.clone();
    run_blocking("the history could not be read", move || Ok(work(&choice))).await
}

impl HistoryQuery {
    /// Everything after a record, from the first on with 0.
    pub fn after(seq: u64) -> HistoryQuery {
        HistoryQuery { after: Some(seq), ..HistoryQuery::default() }
    }

    /// Whether some records are not wanted.
    fn is_filtered(&self) -> bool {
        self.source.is_some() || self.tool.is_some() || self.since.is_some()
    }
}

/// What was found of what is wanted, up to the last record that was looked at.
struct HistoryScan {
    records: Vec<HistoryRecord>,
    limit: usize,
    last_seq: u64,
}

impl HistoryScan {
    fn has_room(&self) -> bool {
        self.records.len() < self.limit
    }

    /// Whether there was room to look at one more.
    fn add(&mut self, choice: &HistoryFilter, entry: &JournalEntry) -> bool {
        if !self.has_room() {
            return false;
        }
        self.last_seq = entry.record.seq;
        if choice.matches(entry) {
            self.records.push(choice.to_history_record(entry));
        }
        true
    }
}

/// What is wanted, and which tool its name means.
struct HistoryFilter {
    query: HistoryQuery,
    selector: Option<ToolMatcher>,
}

impl HistoryFilter {
    fn matches(&self, entry: &JournalEntry) -> bool {
        let JournalEntry { record, unknown_body: unknown, .. } = entry;
        let HistoryQuery { source, tool, since, .. } = &self.query;
        if since.is_some_and(|since| record.at < since) {
            return false;
        }
        if source.is_none() && tool.is_none() {
            return true;
        }
        if unknown.is_some() {
            let shown = HistoryRecord::from_entry(entry);
            let of_source = source.as_ref().is_none_or(|id| shown.source.as_deref() == Some(id.as_str()));
            return of_source && tool.as_ref().is_none_or(|tool| shown.tool.as_ref() == Some(tool));
        }
        source.as_ref().is_none_or(|id| record.event.source() == Some(id))
            && self.selector.as_ref().is_none_or(|meant| history::concerns_tool(&record.event, meant))
    }

    /// What is asked about one tool is told of that tool alone.
    fn to_history_record(&self, entry: &JournalEntry) -> HistoryRecord {
        let shown = HistoryRecord::from_entry(entry);
        match &self.selector {
            Some(meant) => {
                HistoryRecord { text: history::describe_for_tool(&entry.record.event, &shown.kind, meant), ..shown }
            }
            None => shown,
        }
    }
}

impl HistoryRecord {
    /// A record as it was told. An event of a newer Toolcrib is not known by more than its place.
    fn from_record(record: &Record) -> HistoryRecord {
        let data = serde_json::to_value(&record.event);
        HistoryRecord::from_fields(record, data.ok().and_then(into_object).unwrap_or_default())
    }

    fn from_entry(entry: &JournalEntry) -> HistoryRecord {
        match &entry.unknown_body {
            Some(text) => {
                let shown = HistoryRecord::from_fields(&entry.record, serde_json::from_str(text).unwrap_or_default());
                match &entry.status {
                    EntryStatus::Damaged(reason) => {
                        let text = format!("a damaged record: {}", sanitize_truncated(reason, 200));
                        HistoryRecord { text, ..shown }
                    }
                    EntryStatus::Understood | EntryStatus::Newer(_) => shown,
                }
            }
            None => HistoryRecord::from_record(&entry.record),
        }
    }

    fn from_fields(record: &Record, mut data: Map<String, Value>) -> HistoryRecord {
        let mut text = |key: &str| data.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let (kind, source, tool) = (text("type").unwrap_or_default(), text("source"), text("tool"));
        // Of a token only its name and role are shown: who may read this may not list tokens, and nobody sees a hash.
        // Definitions and lists are named by fingerprints of their own.
        data.shift_remove("hash");
        if is_token_event(&kind) {
            data.retain(|key, _| matches!(key.as_str(), "name" | "role"));
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

/// By the name of its type, for an event that a newer Toolcrib wrote is not known otherwise.
fn is_token_event(kind: &str) -> bool {
    kind.starts_with("Token")
}

fn into_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}
