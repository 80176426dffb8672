//! The journal as people and programs read it: which records are wanted, and how one is shown.
//! What is recent is in memory; only who asks for what lies further back makes the store read.

use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_core::history::{self, Meant};
use toolcrib_core::inventory::Record;
use toolcrib_core::{Result, SourceId, Timestamp};

use super::Registry;
use super::journal::Entry;
use crate::store::Check;

/// Which records of the journal are wanted. All of those in memory, when nothing is said.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
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

const BATCH: usize = 5_000;

impl Registry {
    /// The journal, oldest first. To follow it: subscribe, read from where you are, and with every
    /// [`Notice::Recorded`](super::Notice::Recorded) read on; it is in memory by then.
    pub async fn history(&self, wanted: &Wanted) -> Result<Vec<HistoryRecord>> {
        let journal = self.shared.now.load().journal.clone();
        let most = wanted.limit.unwrap_or(usize::MAX);
        let meant = wanted.tool.as_deref().map(|name| self.meant(name)).transpose()?;
        let meant = meant.as_ref();
        let Some(mut after) = wanted.after else {
            let newest = journal.newest_first().filter(|entry| wanted.admits(entry, meant)).take(most);
            let mut records: Vec<HistoryRecord> = newest.map(|entry| shown(entry, meant)).collect();
            records.reverse();
            return Ok(records);
        };
        let mut records = Vec::new();
        while records.len() < most && journal.oldest().is_some_and(|oldest| after.saturating_add(1) < oldest) {
            let batch = self.shared.store.records(after, BATCH).await?;
            let Some(last) = batch.last() else { break };
            after = last.seq;
            let entries = batch.into_iter().map(Entry::read).filter(|entry| wanted.admits(entry, meant));
            records.extend(entries.map(|entry| shown(&entry, meant)));
        }
        let recent = journal.after(after).filter(|entry| wanted.admits(entry, meant));
        records.extend(recent.take(most).map(|entry| shown(entry, meant)));
        records.truncate(most);
        Ok(records)
    }

    /// The last checks of a source, newest first.
    pub async fn checks(&self, id: &SourceId) -> Result<Vec<Check>> {
        self.shared.store.checks(id).await
    }
}

impl Wanted {
    /// Everything after a record, from the first on with 0.
    pub fn after(seq: u64) -> Wanted {
        Wanted { after: Some(seq), ..Wanted::default() }
    }

    fn admits(&self, entry: &Entry, meant: Option<&Meant>) -> bool {
        let Entry { record, unknown, .. } = entry;
        if self.since.is_some_and(|since| record.at < since) {
            return false;
        }
        if self.source.is_none() && self.tool.is_none() {
            return true;
        }
        if unknown.is_some() {
            let shown = HistoryRecord::read(entry);
            let of_source = self.source.as_ref().is_none_or(|id| shown.source.as_deref() == Some(id.as_str()));
            return of_source && self.tool.as_ref().is_none_or(|tool| shown.tool.as_ref() == Some(tool));
        }
        self.source.as_ref().is_none_or(|id| record.event.source() == Some(id))
            && meant.is_none_or(|meant| history::touches(&record.event, meant))
    }
}

/// What is asked about one tool is told of that tool alone.
fn shown(entry: &Entry, meant: Option<&Meant>) -> HistoryRecord {
    let shown = HistoryRecord::read(entry);
    match meant {
        Some(meant) => HistoryRecord { text: history::told_about(&entry.record.event, &shown.kind, meant), ..shown },
        None => shown,
    }
}

impl HistoryRecord {
    /// A record as it was told. An event of a newer Toolcrib is not known by more than its place;
    /// [`Registry::history`] has the rest of it.
    pub fn of(record: &Record) -> HistoryRecord {
        let data = serde_json::to_value(&record.event);
        HistoryRecord::shown(record, data.ok().and_then(object).unwrap_or_default())
    }

    fn read(entry: &Entry) -> HistoryRecord {
        match &entry.unknown {
            Some(text) => HistoryRecord::shown(&entry.record, serde_json::from_str(text).unwrap_or_default()),
            None => HistoryRecord::of(&entry.record),
        }
    }

    fn shown(record: &Record, mut data: Map<String, Value>) -> HistoryRecord {
        let mut text = |key: &str| data.shift_remove(key).and_then(|value| value.as_str().map(str::to_owned));
        let (kind, source, tool) = (text("type").unwrap_or_default(), text("source"), text("tool"));
        // Of a token not even its hash is shown. Definitions and lists are named by fingerprints of their own.
        data.shift_remove("hash");
        HistoryRecord {
            seq: record.seq,
            at: record.at,
            actor: record.actor.to_string(),
            text: history::told(&record.event, &kind),
            kind,
            source,
            tool,
            data: Value::Object(data),
        }
    }
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}
