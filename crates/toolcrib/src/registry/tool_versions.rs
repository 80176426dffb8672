//! Tools as they were at a time in the past, and the versions of a tool: folds the journal up to that time and reads
//! the manifests it refers to. Old manifests stay in the store for this.
//!
//! Nothing here is cached: each question folds the journal from its first record. `tool_at` resolves names in the
//! inventory of that time, so a tool that was renamed or removed since is found under its name of then.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::Segment;
use toolcrib_core::delta::ChangeClass;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::history::{ToolMatcher, concerns_tool, describe_for_tool};
use toolcrib_core::inventory::{Event, Inventory, Record};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp, ToolId};

use super::{History, ToolView};
use crate::connector::run_blocking;
use crate::state::{JournalEntry, READ_BATCH_SIZE};

/// A change of a tool: one entry of its version history.
#[derive(Debug, Clone, Serialize)]
pub struct ToolVersion {
    /// Sequence number of the record in the journal.
    pub seq: u64,
    /// Time of the change.
    pub at: Timestamp,
    /// Client or process that made the change.
    pub actor: String,
    /// Source of the tool.
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
    /// Definition before the change; `None` if there was none, or if it can no longer be read.
    pub before: Option<Box<RawValue>>,
    /// Definition after the change; `None` like `before`.
    pub after: Option<Box<RawValue>>,
}

/// Tolerance for clients whose clock is ahead of the server's. A time further ahead is refused, because its answer
/// would change later.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

impl History<'_> {
    /// Returns a tool, by any spelling of its name, as its source offered it at a time. Reads the store. Fails with
    /// `TOOL_NOT_IMPLEMENTED` if no such tool was known then, with `NOT_FOUND` if its manifest is lost, and with `FORBIDDEN`
    /// if the tool is denied.
    pub async fn tool_at(&self, name: &str, at: Timestamp) -> Result<ToolView> {
        let then = self.inventory_at(at).await?;
        let unknown = || {
            let before = if then.all_source_ids().next().is_none() { ", when there was no source yet" } else { "" };
            let message = format!("no tool named `{}` was known at {at}{before}", sanitize_truncated(name, 80));
            Error::new(Code::ToolNotImplemented, message)
        };
        let visibility = self.registry.visibility(self.principal);
        let ToolMatcher::Tool(ToolId { source: id, name: original }) =
            visibility.match_tool(&then, name, |tool| !tool.deprecated)?
        else {
            return Err(unknown());
        };
        let state = then.source(&id).ok_or_else(unknown)?;
        let manifest = state.manifest.ok_or_else(unknown)?;
        let history = *state.tools.get(&original).ok_or_else(unknown)?;
        let segment = self.load_segment(manifest, state.kind == "builtin").await?;
        let entry = segment.position_of_original(&original).and_then(|position| segment.entries().get(position));
        let lost = || Error::new(Code::NotFound, format!("the tool list of `{id}` at {at} has no `{original}` in it"));
        let entry = entry.ok_or_else(lost)?;
        ToolView::from_past(&segment, entry, &state.kind, history, at)
    }

    /// Returns the versions of a tool, newest first, at most `limit` of them. Reads the store. A tool that exists and
    /// never changed has none; an unknown name is an error.
    pub async fn tool_versions(&self, name: &str, limit: usize) -> Result<Vec<ToolVersion>> {
        let matcher = self.resolve_tool_name(name)?;
        let visibility = self.registry.visibility(self.principal);
        let mut manifests: BTreeMap<SourceId, Fingerprint> = BTreeMap::new();
        // Only the last `limit` steps are kept in memory.
        let mut steps: VecDeque<(JournalEntry, SourceId, Option<Fingerprint>, Fingerprint)> = VecDeque::new();
        // Collect the events of this tool, with the manifest before and after each.
        let replayed = self.replay(|mut entry| {
            if let Event::SourceRemoved { source, .. } = &entry.record.event {
                manifests.remove(source);
            }
            if let Event::InventoryRecorded { source, fingerprint, .. } = &entry.record.event {
                let source = source.clone();
                let fingerprint = *fingerprint;
                let before = manifests.insert(source.clone(), fingerprint);
                // Most records are about other tools; only those about this one are copied.
                let is_concerned = |record: &Record| concerns_tool(&record.event, &matcher);
                let visible = Some(&*entry.record).filter(|record| is_concerned(record));
                let visible = visible.and_then(|record| visibility.restrict_record(record));
                if let Some(record) = visible.filter(|record| is_concerned(record)).map(Cow::into_owned) {
                    entry.record = Arc::new(record);
                    steps.push_back((entry, source, before, fingerprint));
                    steps.drain(..steps.len().saturating_sub(limit));
                }
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
            visibility.view().find(name)?;
        }
        Ok(versions)
    }

    /// Resolves a tool name among the current tools first, then among deprecated ones.
    pub(super) fn resolve_tool_name(&self, name: &str) -> Result<ToolMatcher> {
        let visibility = self.registry.visibility(self.principal);
        let inventory = &visibility.snapshot().inventory;
        let current = visibility.match_tool(inventory, name, |tool| !tool.deprecated)?;
        match current {
            ToolMatcher::Tool(_) => Ok(current),
            ToolMatcher::Name(_) => visibility.match_tool(inventory, name, |_| true),
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
        let packed = Arc::new(packed.ok_or_else(lost)?);
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
            let entries = run_blocking(|| Ok(stored.into_iter().map(JournalEntry::parse).collect::<Vec<_>>()));
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
        let Some(stored) = packed.tools.iter().find(|tool| matcher.matches(source, &tool.name)) else {
            return Ok(None);
        };
        let offered = packed.tool(stored)?.to_offered_fields();
        to_raw_value(&offered).map(Some).context(Code::Internal, "write a tool as JSON")
    }
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
