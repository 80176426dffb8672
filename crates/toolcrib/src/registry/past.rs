//! What was: the inventory folded up to a moment, and the tools of then, read from the manifests that the journal names.
//! Old manifests stay in the store for this.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::catalog::Segment;
use toolcrib_core::compare::Class;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::history::{is_meant, told_about, touches};
use toolcrib_core::inventory::{Event, Inventory};
use toolcrib_core::manifest::Packed;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp, Tool, ToolName};

use super::Registry;
use super::journal::Entry;

/// A tool as it was.
#[derive(Debug, Clone, Serialize)]
pub struct PastTool {
    pub id: String,
    pub name: ToolName,
    pub source: SourceId,
    pub original_name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Box<RawValue>,
    pub output_schema: Option<Box<RawValue>>,
    pub annotations: Option<Box<RawValue>>,
    pub fingerprint: Fingerprint,
    /// The moment that was asked about.
    pub at: Timestamp,
    /// Since when it was so.
    pub updated_at: Timestamp,
    /// The tool as its source offered it.
    pub definition: Box<RawValue>,
}

/// One step in a tool's life.
#[derive(Debug, Clone, Serialize)]
pub struct Version {
    pub seq: u64,
    pub at: Timestamp,
    pub actor: String,
    pub source: SourceId,
    /// `added`, `changed` or `removed`.
    pub what: &'static str,
    pub class: Option<Class>,
    pub notes: Vec<String>,
    pub fields: Vec<String>,
    /// What happened, in one line.
    pub text: String,
    /// As its source offered it before and after; none where there was none, or where it cannot be read any more.
    pub before: Option<Box<RawValue>>,
    pub after: Option<Box<RawValue>>,
}

const BATCH: usize = 5_000;

impl Registry {
    /// A tool by any spelling of its name, as it was offered at a moment. Reads the store.
    pub async fn tool_at(&self, name: &str, at: Timestamp) -> Result<PastTool> {
        let then = self.inventory_at(at).await?;
        let mut found: Vec<(SourceId, String, Fingerprint, bool, Timestamp)> = Vec::new();
        for (id, state) in then.sources() {
            let Some(manifest) = state.manifest else { continue };
            let own = state.tools.iter().filter(|(tool, state)| !state.deprecated && is_meant(id, tool, name));
            found.extend(
                own.map(|(tool, known)| {
                    (id.clone(), tool.clone(), manifest, state.kind == "builtin", known.updated_at)
                }),
            );
        }
        let (id, original, manifest, builtin, updated_at) = match &found[..] {
            [only] => only.clone(),
            [] => {
                let message = format!("no tool named `{}` was known at {at}", shown_short(name, 80));
                return Err(Error::new(Code::ToolNotImplemented, message));
            }
            several => {
                let names: Vec<String> = several.iter().map(|(id, tool, ..)| format!("{id}__{tool}")).collect();
                let message =
                    format!("`{}` was offered by several sources: {}", shown_short(name, 80), names.join(", "));
                return Err(Error::new(Code::ToolInvalidInput, message));
            }
        };
        let segment = self.segment_of(manifest, builtin).await?;
        let entry = segment.position_of_original(&original).and_then(|position| segment.entries().get(position));
        let lost = || Error::new(Code::NotFound, format!("the list of `{id}` at {at} has no `{original}` in it"));
        let entry = entry.ok_or_else(lost)?;
        let tool = segment.tool(entry)?;
        Ok(PastTool {
            id: format!("{id}:{original}"),
            name: entry.name.clone(),
            source: id.clone(),
            fingerprint: segment.stored(entry).fingerprint,
            definition: offered(&tool)?,
            at,
            updated_at,
            original_name: original,
            title: tool.face.title,
            description: tool.face.description,
            input_schema: tool.face.input_schema,
            output_schema: tool.output_schema,
            annotations: tool.face.annotations,
        })
    }

    /// Every version of a tool, newest first, at most `limit` of them. Reads the store.
    pub async fn tool_history(&self, name: &str, limit: usize) -> Result<Vec<Version>> {
        let mut inventory = Inventory::default();
        let mut steps: Vec<(Entry, SourceId, Option<Fingerprint>, Fingerprint)> = Vec::new();
        for entry in self.entries().await? {
            let event = &entry.record.event;
            if let Event::InventoryRecorded { source, fingerprint, .. } = event
                && touches(event, name)
            {
                let before = inventory.source(source).and_then(|state| state.manifest);
                steps.push((entry.clone(), source.clone(), before, *fingerprint));
            }
            inventory.apply(&entry.record);
        }
        let mut versions = Vec::new();
        for (entry, source, before, after) in steps.into_iter().rev().take(limit) {
            let read = |manifest: Option<Fingerprint>| self.definition_in(manifest, &source, name);
            let (before, after) = (read(before).await?, read(Some(after)).await?);
            versions.push(version(&entry, source, name, before, after));
        }
        if versions.is_empty() {
            self.catalog().find(name)?;
        }
        Ok(versions)
    }

    pub(super) async fn inventory_at(&self, at: Timestamp) -> Result<Inventory> {
        let mut inventory = Inventory::default();
        for entry in self.entries().await? {
            if entry.record.at > at {
                break;
            }
            inventory.apply(&entry.record);
        }
        Ok(inventory)
    }

    /// A list that was, with the names agents saw.
    pub(super) async fn segment_of(&self, manifest: Fingerprint, builtin: bool) -> Result<Segment> {
        let packed = self.shared.store.manifests(&[manifest]).await?.pop();
        let lost = || Error::new(Code::NotFound, "that list is not in the store any more");
        let packed = std::sync::Arc::new(packed.ok_or_else(lost)?);
        Ok(if builtin { Segment::bare(packed) } else { Segment::prefixed(packed) })
    }

    /// The whole journal, from memory as far as it reaches.
    async fn entries(&self) -> Result<Vec<Entry>> {
        let journal = self.shared.now.load().journal.clone();
        let (mut entries, mut after) = (Vec::new(), 0);
        while journal.oldest().is_some_and(|oldest| after + 1 < oldest) {
            let batch = self.shared.store.records(after, BATCH).await?;
            let Some(last) = batch.last() else { break };
            after = last.seq;
            entries.extend(batch.into_iter().map(Entry::read));
        }
        entries.extend(journal.after(after).cloned());
        Ok(entries)
    }

    async fn definition_in(
        &self,
        manifest: Option<Fingerprint>,
        source: &SourceId,
        name: &str,
    ) -> Result<Option<Box<RawValue>>> {
        let Some(manifest) = manifest else { return Ok(None) };
        let Some(packed) = self.shared.store.manifests(&[manifest]).await?.pop() else { return Ok(None) };
        definition(&packed, source, name)
    }
}

fn definition(packed: &Packed, source: &SourceId, name: &str) -> Result<Option<Box<RawValue>>> {
    let stored = packed.tools.iter().find(|tool| is_meant(source, &tool.name, name));
    stored.map(|stored| offered(&packed.tool(stored)?)).transpose()
}

fn offered(tool: &Tool) -> Result<Box<RawValue>> {
    to_raw_value(&tool.as_offered()).context(Code::Internal, "write a tool as JSON")
}

fn version(
    entry: &Entry,
    source: SourceId,
    name: &str,
    before: Option<Box<RawValue>>,
    after: Option<Box<RawValue>>,
) -> Version {
    let record = &entry.record;
    let (mut change, mut removed) = (None, false);
    if let Event::InventoryRecorded { changed, removed: gone, .. } = &record.event {
        change = changed.iter().find(|change| is_meant(&source, &change.name, name)).cloned();
        removed = gone.iter().any(|gone| is_meant(&source, gone, name));
    }
    let what = match (&change, removed) {
        (Some(_), _) => "changed",
        (None, false) => "added",
        (None, true) => "removed",
    };
    let (class, notes, fields) = change.map(|change| (change.class, change.notes, change.fields)).unwrap_or_default();
    Version {
        seq: record.seq,
        at: record.at,
        actor: record.actor.to_string(),
        what,
        class,
        notes,
        fields,
        text: told_about(&record.event, "", name),
        before: if what == "added" { None } else { before },
        after,
        source,
    }
}
