//! Tools as they were at a time in the past, and the versions of a tool: folds the journal up to that time and reads
//! the manifests it refers to. Old manifests stay in the store for this.
//!
//! Nothing here is cached: each question folds the journal from its first record. `tool_at` resolves names in the
//! inventory of that time, so a tool that was renamed or removed since is found under its name of then.

use std::collections::{BTreeMap, VecDeque, btree_map};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::Segment;
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::execution::ExecutionSpec;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Event, Inventory};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::tool::ToolNote;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp, Tool, ToolId, ToolName};
use toolcrib_diff::history::{ToolMatcher, concerns_tool, describe_for_tool};

use super::History;
use super::blocking::run_blocking;
use crate::state::{JournalEntry, READ_BATCH_SIZE};

/// A tool as it was at a time in the past.
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
    /// The requested time.
    pub at: Timestamp,
    /// Time of the change that led to this version.
    pub updated_at: Timestamp,
    /// The definition as the source offered it.
    pub definition: Box<RawValue>,
    #[serde(skip)]
    pub notes: Vec<ToolNote>,
    /// Execution specification, for tools that are not simply forwarded (OpenAPI, workflows).
    #[serde(skip)]
    pub execution_spec: Option<ExecutionSpec>,
}

/// A change of a tool: one entry of its version history.
#[derive(Debug, Clone, Serialize)]
pub struct ToolVersion {
    pub seq: u64,
    pub at: Timestamp,
    pub actor: String,
    pub source: SourceId,
    /// `added`, `changed` or `removed`.
    #[serde(rename = "what")]
    pub change_kind: &'static str,
    /// Severity of a change, e.g. breaking.
    pub class: Option<ChangeClass>,
    /// Explanations of the classification.
    pub notes: Vec<String>,
    /// Fields of the definition that changed.
    pub fields: Vec<String>,
    /// Description of the change in one line.
    pub text: String,
    /// Definition before and after; `None` if there was none, or if it can no longer be read.
    pub before: Option<Box<RawValue>>,
    pub after: Option<Box<RawValue>>,
}

/// Tolerance for clients whose clock is ahead of the server's. A time further ahead is refused, because its answer
/// would change later.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

impl History<'_> {
    /// Returns a tool, by any spelling of its name, as its source offered it at a time. Reads the store. Fails with
    /// `TOOL_NOT_IMPLEMENTED` if no such tool was known then, and with `NOT_FOUND` if its manifest is lost.
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
        let manifest = state.manifest.ok_or_else(unknown)?;
        let is_builtin = state.kind == "builtin";
        let updated_at = state.tools.get(&original).ok_or_else(unknown)?.updated_at;
        let segment = self.load_segment(manifest, is_builtin).await?;
        let entry = segment.position_of_original(&original).and_then(|position| segment.entries().get(position));
        let lost = || Error::new(Code::NotFound, format!("the tool list of `{id}` at {at} has no `{original}` in it"));
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

    /// Returns the versions of a tool, newest first, at most `limit` of them. Reads the store. A tool that exists and
    /// never changed has none; an unknown name is an error.
    pub async fn tool_versions(&self, name: &str, limit: usize) -> Result<Vec<ToolVersion>> {
        let matcher = self.resolve_tool_name(name)?;
        let mut manifests: BTreeMap<SourceId, Fingerprint> = BTreeMap::new();
        // Only the last `limit` steps are kept in memory.
        let mut steps: VecDeque<(JournalEntry, SourceId, Option<Fingerprint>, Fingerprint)> = VecDeque::new();
        // Collect the events of this tool, with the manifest before and after each.
        let replayed = self.replay(|entry| {
            match &entry.record.event {
                Event::InventoryRecorded { source, fingerprint, .. } => {
                    let source = source.clone();
                    let fingerprint = *fingerprint;
                    let before = manifests.insert(source.clone(), fingerprint);
                    if concerns_tool(&entry.record.event, &matcher) {
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
        // A step starts with the manifest that the previous step ended with: each manifest is read once.
        let mut definitions: BTreeMap<Fingerprint, Option<Box<RawValue>>> = BTreeMap::new();
        for (entry, source, before, after) in steps.into_iter().rev() {
            for manifest in before.into_iter().chain([after]) {
                if let btree_map::Entry::Vacant(entry) = definitions.entry(manifest) {
                    entry.insert(self.load_definition(manifest, &source, &matcher).await?);
                }
            }
            let definition = |manifest: Fingerprint| definitions.get(&manifest).cloned().flatten();
            versions.push(build_version(&entry, source, &matcher, before.and_then(definition), definition(after)));
            // Only the older manifest is needed by the next (earlier) step.
            definitions.retain(|manifest, _| Some(*manifest) == before);
        }
        // No version: an unknown name is an error, a tool that never changed is not.
        if versions.is_empty() {
            self.registry.unrestricted_catalog().find(name)?;
        }
        Ok(versions)
    }

    /// Resolves a tool name among the current tools first, then among deprecated ones.
    pub(super) fn resolve_tool_name(&self, name: &str) -> Result<ToolMatcher> {
        let inventory = self.registry.state.snapshot().inventory.clone();
        let current = ToolMatcher::find(&inventory, name, |tool| !tool.deprecated)?;
        match current {
            ToolMatcher::Tool(_) => Ok(current),
            ToolMatcher::Name(_) => ToolMatcher::find(&inventory, name, |_| true),
        }
    }

    /// Folds the journal up to a time. Records are in the order of their commits; the first one after `at` ends the
    /// reading.
    pub(super) async fn inventory_at(&self, at: Timestamp) -> Result<Inventory> {
        if at > self.registry.now().plus(MAX_CLOCK_SKEW) {
            return Err(Error::new(Code::BadRequest, format!("{at} is in the future; give a time in the past")));
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

    /// Reads a manifest as a segment, which has the names that agents saw.
    pub(super) async fn load_segment(&self, manifest: Fingerprint, is_builtin: bool) -> Result<Segment> {
        let packed = self.registry.state.store.manifests(&[manifest]).await?.pop();
        let lost = || Error::new(Code::NotFound, "that tool list is no longer in the store");
        let packed = std::sync::Arc::new(packed.ok_or_else(lost)?);
        Ok(if is_builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) })
    }

    /// Replays the journal from its first record, in batches, until `each` breaks. Reads from memory as far as that
    /// goes back. Parsing runs on a blocking thread, batch by batch, because long journals take a while.
    async fn replay(&self, mut each: impl FnMut(JournalEntry) -> ControlFlow<()>) -> Result<()> {
        let journal = self.registry.state.snapshot().journal.clone();
        let mut after = 0;
        while journal.starts_after(after) {
            let stored = self.registry.state.store.records(after, READ_BATCH_SIZE).await?;
            let Some(last) = stored.last() else { break };
            after = last.seq;
            let entries = run_blocking("the journal could not be read", || {
                Ok(stored.into_iter().map(JournalEntry::parse).collect::<Vec<_>>())
            });
            for entry in entries.await? {
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

    /// Reads a tool's definition from a manifest; `None` if either is missing.
    async fn load_definition(
        &self,
        manifest: Fingerprint,
        source: &SourceId,
        matcher: &ToolMatcher,
    ) -> Result<Option<Box<RawValue>>> {
        let Some(packed) = self.registry.state.store.manifests(&[manifest]).await?.pop() else { return Ok(None) };
        find_definition(&packed, source, matcher)
    }
}

/// Finds a tool's definition in a manifest.
fn find_definition(packed: &PackedManifest, source: &SourceId, matcher: &ToolMatcher) -> Result<Option<Box<RawValue>>> {
    let stored = packed.tools.iter().find(|tool| matcher.matches(source, &tool.name));
    stored.map(|stored| offered_definition(&packed.tool(stored)?)).transpose()
}

/// Returns a tool's definition as its source offered it.
fn offered_definition(tool: &Tool) -> Result<Box<RawValue>> {
    to_raw_value(&tool.to_offered_fields()).context(Code::Internal, "write a tool as JSON")
}

/// Builds the version entry of one recorded change. `before` and `after` are the definitions around the change.
fn build_version(
    entry: &JournalEntry,
    source: SourceId,
    matcher: &ToolMatcher,
    before: Option<Box<RawValue>>,
    after: Option<Box<RawValue>>,
) -> ToolVersion {
    let record = &entry.record;
    // A tool that is neither changed nor removed by the event was added by it.
    let mut change = None;
    let mut is_removed = false;
    if let Event::InventoryRecorded { changed, removed, .. } = &record.event {
        change = changed.iter().find(|change| matcher.matches(&source, &change.name)).cloned();
        is_removed = removed.iter().any(|name| matcher.matches(&source, name));
    }
    let change_kind = match (&change, is_removed) {
        (Some(_), _) => "changed",
        (None, false) => "added",
        (None, true) => "removed",
    };
    let (class, notes, fields) = change.map(|change| (change.class, change.notes, change.fields)).unwrap_or_default();
    ToolVersion {
        seq: record.seq,
        at: record.at,
        actor: record.actor.to_string(),
        change_kind,
        class,
        notes,
        fields,
        text: describe_for_tool(&record.event, "", matcher),
        before: if change_kind == "added" { None } else { before },
        after,
        source,
    }
}
