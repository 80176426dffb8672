//! What was: the inventory folded up to a moment, and the tools of then, read from the manifests that the journal names.
//! Old manifests stay in the store for this.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::catalog::Segment;
use toolcrib_core::compare::ChangeClass;
use toolcrib_core::execution::ExecutionSpec;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::history::{ToolMatcher, concerns_tool, describe_for_tool};
use toolcrib_core::inventory::{Event, Inventory};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::ToolNote;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp, Tool, ToolId, ToolName};

use super::Registry;
use super::blocking::run_blocking;
use super::journal::{JournalEntry, READ_BATCH_SIZE};

/// A tool as it was.
#[derive(Debug, Clone, Serialize)]
pub struct HistoricalTool {
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
    #[serde(skip)]
    pub notes: Vec<ToolNote>,
    /// What lay behind it, where this process carried it out itself.
    #[serde(skip)]
    pub execution_spec: Option<ExecutionSpec>,
}

/// One step in a tool's life.
#[derive(Debug, Clone, Serialize)]
pub struct ToolVersion {
    pub seq: u64,
    pub at: Timestamp,
    pub actor: String,
    pub source: SourceId,
    /// `added`, `changed` or `removed`.
    #[serde(rename = "what")]
    pub change_kind: &'static str,
    pub class: Option<ChangeClass>,
    pub notes: Vec<String>,
    pub fields: Vec<String>,
    /// What happened, in one line.
    pub text: String,
    /// As its source offered it before and after; none where there was none, or where it cannot be read any more.
    pub before: Option<Box<RawValue>>,
    pub after: Option<Box<RawValue>>,
}

/// Clocks differ by so much.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

impl Registry {
    /// A tool by any spelling of its name, as it was offered at a moment. Reads the store.
    pub async fn tool_at(&self, name: &str, at: Timestamp) -> Result<HistoricalTool> {
        let then = self.inventory_at(at).await?;
        let unknown = || {
            let before = if then.all_source_ids().next().is_none() { ", when there was no source yet" } else { "" };
            let message = format!("no tool named `{}` was known at {at}{before}", sanitize_truncated(name, 80));
            Error::new(Code::ToolNotImplemented, message)
        };
        let ToolMatcher::Tool(ToolId { source: id, name: original }) =
            ToolMatcher::find(&then, name, |tool| !tool.deprecated)?
        else {
            return Err(unknown());
        };
        let state = then.source(&id).ok_or_else(unknown)?;
        let (manifest, builtin) = (state.manifest.ok_or_else(unknown)?, state.kind == "builtin");
        let updated_at = state.tools.get(&original).ok_or_else(unknown)?.updated_at;
        let segment = self.load_segment(manifest, builtin).await?;
        let entry = segment.position_of_original(&original).and_then(|position| segment.entries().get(position));
        let lost = || Error::new(Code::NotFound, format!("the list of `{id}` at {at} has no `{original}` in it"));
        let entry = entry.ok_or_else(lost)?;
        let tool = segment.tool(entry)?;
        Ok(HistoricalTool {
            id: format!("{id}:{original}"),
            name: entry.name.clone(),
            source: id.clone(),
            fingerprint: segment.packed_tool(entry).fingerprint,
            definition: offered_definition(&tool)?,
            execution_spec: tool.parse_execution_spec(),
            notes: tool.notes,
            at,
            updated_at,
            original_name: original,
            title: tool.listing.title,
            description: tool.listing.description,
            input_schema: tool.listing.input_schema,
            output_schema: tool.output_schema,
            annotations: tool.listing.annotations,
        })
    }

    /// Every version of a tool, newest first, at most `limit` of them. Reads the store.
    pub async fn tool_history(&self, name: &str, limit: usize) -> Result<Vec<ToolVersion>> {
        let meant = self.resolve_tool_selector(name)?;
        let mut manifests: BTreeMap<SourceId, Fingerprint> = BTreeMap::new();
        // No more of them are held than are shown.
        let mut steps: VecDeque<(JournalEntry, SourceId, Option<Fingerprint>, Fingerprint)> = VecDeque::new();
        let replayed = self.replay(|entry| {
            match &entry.record.event {
                Event::InventoryRecorded { source, fingerprint, .. } => {
                    let (source, fingerprint) = (source.clone(), *fingerprint);
                    let before = manifests.insert(source.clone(), fingerprint);
                    if concerns_tool(&entry.record.event, &meant) {
                        steps.push_back((entry, source, before, fingerprint));
                        steps.drain(..steps.len().saturating_sub(limit));
                    }
                }
                Event::SourceRemoved { source } => {
                    manifests.remove(source);
                }
                Event::SourceDeclared { .. }
                | Event::SourceChanged { .. }
                | Event::SourceEnabled { .. }
                | Event::SourceDisabled { .. }
                | Event::ToolEnabled { .. }
                | Event::ToolDisabled { .. }
                | Event::TokenCreated { .. }
                | Event::TokenChanged { .. }
                | Event::TokenRevoked { .. }
                | Event::DamageAccepted { .. }
                | Event::Unknown => {}
            }
            ControlFlow::Continue(())
        });
        replayed.await?;
        let mut versions = Vec::new();
        // What one step began with is what the one before it came to: each list is read once.
        let mut read: BTreeMap<Fingerprint, Option<Box<RawValue>>> = BTreeMap::new();
        for (entry, source, before, after) in steps.into_iter().rev() {
            for manifest in before.into_iter().chain([after]) {
                if let Place::Vacant(unread) = read.entry(manifest) {
                    unread.insert(self.load_definition(manifest, &source, &meant).await?);
                }
            }
            let definition = |manifest: Fingerprint| read.get(&manifest).cloned().flatten();
            versions.push(build_version(&entry, source, &meant, before.and_then(definition), definition(after)));
            read.retain(|manifest, _| Some(*manifest) == before);
        }
        if versions.is_empty() {
            self.catalog().find(name)?;
        }
        Ok(versions)
    }

    /// The tool that a name means among all that are known now, those that went included.
    pub(super) fn resolve_tool_selector(&self, name: &str) -> Result<ToolMatcher> {
        let inventory = self.shared.snapshot.load().inventory.clone();
        let current = ToolMatcher::find(&inventory, name, |tool| !tool.deprecated)?;
        match current {
            ToolMatcher::Tool(_) => Ok(current),
            ToolMatcher::Name(_) => ToolMatcher::find(&inventory, name, |_| true),
        }
    }

    pub(super) async fn inventory_at(&self, at: Timestamp) -> Result<Inventory> {
        if at > self.now().plus(MAX_CLOCK_SKEW) {
            return Err(Error::new(Code::BadRequest, format!("{at} is yet to come; name a time in the past")));
        }
        let mut inventory = Inventory::default();
        let replayed = self.replay(|entry| {
            if entry.record.at > at {
                return ControlFlow::Break(());
            }
            inventory.apply(&entry.record);
            ControlFlow::Continue(())
        });
        replayed.await?;
        Ok(inventory)
    }

    /// A list that was, with the names agents saw.
    pub(super) async fn load_segment(&self, manifest: Fingerprint, builtin: bool) -> Result<Segment> {
        let packed = self.shared.store.manifests(&[manifest]).await?.pop();
        let lost = || Error::new(Code::NotFound, "that list is not in the store any more");
        let packed = std::sync::Arc::new(packed.ok_or_else(lost)?);
        Ok(if builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) })
    }

    /// The journal from its beginning until it is enough, some at a time; from memory as far as that reaches.
    async fn replay(&self, mut each: impl FnMut(JournalEntry) -> ControlFlow<()>) -> Result<()> {
        let journal = self.shared.snapshot.load().journal.clone();
        let mut after = 0;
        while journal.starts_after(after) {
            let stored = self.shared.store.records(after, READ_BATCH_SIZE).await?;
            let Some(last) = stored.last() else { break };
            after = last.seq;
            let read = run_blocking("the journal could not be read", || {
                Ok(stored.into_iter().map(JournalEntry::parse).collect::<Vec<_>>())
            });
            for entry in read.await? {
                if each(entry).is_break() {
                    return Ok(());
                }
            }
        }
        for entry in journal.entries_after(after) {
            if each(entry.clone()).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn load_definition(
        &self,
        manifest: Fingerprint,
        source: &SourceId,
        meant: &ToolMatcher,
    ) -> Result<Option<Box<RawValue>>> {
        let Some(packed) = self.shared.store.manifests(&[manifest]).await?.pop() else { return Ok(None) };
        find_definition(&packed, source, meant)
    }
}

fn find_definition(packed: &PackedManifest, source: &SourceId, meant: &ToolMatcher) -> Result<Option<Box<RawValue>>> {
    let stored = packed.tools.iter().find(|tool| meant.matches(source, &tool.name));
    stored.map(|stored| offered_definition(&packed.tool(stored)?)).transpose()
}

fn offered_definition(tool: &Tool) -> Result<Box<RawValue>> {
    to_raw_value(&tool.to_offered_fields()).context(Code::Internal, "write a tool as JSON")
}

fn build_version(
    entry: &JournalEntry,
    source: SourceId,
    meant: &ToolMatcher,
    before: Option<Box<RawValue>>,
    after: Option<Box<RawValue>>,
) -> ToolVersion {
    let record = &entry.record;
    let (mut change, mut removed) = (None, false);
    if let Event::InventoryRecorded { changed, removed: gone, .. } = &record.event {
        change = changed.iter().find(|change| meant.matches(&source, &change.name)).cloned();
        removed = gone.iter().any(|gone| meant.matches(&source, gone));
    }
    let what = match (&change, removed) {
        (Some(_), _) => "changed",
        (None, false) => "added",
        (None, true) => "removed",
    };
    let (class, notes, fields) = change.map(|change| (change.class, change.notes, change.fields)).unwrap_or_default();
    ToolVersion {
        seq: record.seq,
        at: record.at,
        actor: record.actor.to_string(),
        change_kind: what,
        class,
        notes,
        fields,
        text: describe_for_tool(&record.event, "", meant),
        before: if what == "added" { None } else { before },
        after,
        source,
    }
}
