//! From the journal to what readers see: the only place where state changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_core::catalog::{Catalog, CatalogSource, Segment};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Damage, Inventory, PreviousManifest, Record};
use toolcrib_core::manifest::{Delta, PackedManifest};
use toolcrib_core::{Result, Source, SourceId};

use super::damage::{HeadCheck, JournalDamage, log_new_damage};
use super::journal::{Journal, JournalEntry, READ_BATCH_SIZE};
use super::newer_records::{NewerRecord, log_ignored_records};
use super::{RegistryInner, RegistryOptions, Snapshot};
use crate::call::CallFinished;
use crate::refresh::RefreshOutcome;
use crate::secret::{connection_fingerprint, refers_to_file};
use crate::store::{ErrorSummary, JournalPosition, SourceStatus, StoreState};

/// What is told to those who subscribed.
#[derive(Debug, Clone)]
pub enum RegistryNotice {
    RecordAppended(Arc<Record>),
    /// Measurements: a source is being discovered, and what came of it.
    DiscoveryStarted(SourceId),
    DiscoveryFinished(Arc<RefreshOutcome>),
    /// How far a discovery has come.
    DiscoveryProgress {
        source: SourceId,
        stage: DiscoveryStage,
    },
    /// A call ended, whatever came of it.
    CallFinished(Arc<CallFinished>),
    /// What lists show has changed.
    CatalogChanged,
    /// An MCP source says that its resources or prompts changed.
    SourceNotification {
        source: SourceId,
        method: String,
        params: Option<Arc<RawValue>>,
    },
}

/// What a discovery is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum DiscoveryStage {
    /// The source is asked for its tools.
    Contacting,
    /// It has answered; its list is being taken in.
    Recording { tools: usize },
}

/// The writers' copy of everything, behind the one lock.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    pub(crate) inventory: Inventory,
    pub(super) definitions: BTreeMap<SourceId, (Fingerprint, Arc<Source>)>,
    pub(super) segments: BTreeMap<SourceId, Arc<Segment>>,
    catalog_sources: BTreeMap<SourceId, Arc<CatalogSource>>,
    journal: Arc<Journal>,
    /// The record that must not be ignored and that only a newer Toolcrib understands.
    pub(super) newer_record: Option<Arc<NewerRecord>>,
    /// What is wrong with the journal.
    pub(super) damage: JournalDamage,
    /// The last record that was read.
    position: JournalPosition,
    /// The number of the last record that the data directory remembers.
    remembered_seq: u64,
    /// What was found at addresses and with tokens that hold for this process only. It is recorded nowhere.
    local_overrides: BTreeMap<SourceId, LocalOverride>,
    /// Whether measurements may have changed too.
    pub(crate) statuses_dirty: bool,
}

/// A source as this process alone sees it, because its environment says otherwise than the declaration.
#[derive(Debug)]
struct LocalOverride {
    segment: Option<Arc<Segment>>,
    status: SourceStatus,
}

/// What differs between the list that was known and a new one, found out before others have to wait for it.
pub(crate) struct PrecomputedDelta {
    before: Option<Fingerprint>,
    delta: Delta,
}

impl PrecomputedDelta {
    pub(crate) fn between(before: Option<&PackedManifest>, after: &PackedManifest) -> Result<PrecomputedDelta> {
        Ok(PrecomputedDelta { before: before.map(|before| before.fingerprint), delta: Delta::between(before, after)? })
    }

    /// Nothing where another list was recorded meanwhile.
    pub(crate) fn delta(&self, before: &PreviousManifest) -> Option<Delta> {
        let readable = before.manifest().map(|packed| packed.fingerprint);
        (readable == self.before && before.fingerprint() == self.before).then(|| self.delta.clone())
    }
}

impl WriterState {
    /// Before anything was read.
    pub(super) fn new(options: &RegistryOptions) -> WriterState {
        let store = options.head_file.as_ref().and_then(|head| head.store_damage.clone());
        WriterState { damage: JournalDamage { store, ..JournalDamage::default() }, ..WriterState::default() }
    }

    /// What a source offered when it was last discovered.
    pub(crate) fn previous_manifest(&self, id: &SourceId) -> PreviousManifest {
        match (self.segment(id), self.inventory.source(id).and_then(|state| state.manifest)) {
            (Some(segment), _) => PreviousManifest::Available(segment.packed().clone()),
            (None, Some(fingerprint)) => PreviousManifest::Unreadable(fingerprint),
            (None, None) => PreviousManifest::None,
        }
    }

    /// Number of the next record. Numbers of records that are known to be lost are not used again.
    pub(crate) fn next_seq(&self) -> u64 {
        self.inventory.version.max(self.remembered_seq) + 1
    }

    pub(super) fn segment(&self, id: &SourceId) -> Option<&Arc<Segment>> {
        let here = self.local_overrides.get(id).and_then(|here| here.segment.as_ref());
        here.or_else(|| self.segments.get(id))
    }

    fn with_local_overrides(
        &self,
        mut standings: BTreeMap<SourceId, SourceStatus>,
    ) -> Arc<BTreeMap<SourceId, SourceStatus>> {
        standings.extend(self.local_overrides.iter().map(|(id, here)| (id.clone(), here.status.clone())));
        Arc::new(standings)
    }
}

impl RegistryInner {
    /// Reads the journal from where we are, changes a copy, and swaps it in last: an error on the way changes nothing.
    pub(crate) async fn apply_new_records(&self, writer: &mut WriterState) -> Result<()> {
        let taken = self.apply_readable_records(writer).await;
        if let Err(error) = &taken {
            self.note_store_error(writer, error);
        }
        taken
    }

    async fn apply_readable_records(&self, writer: &mut WriterState) -> Result<()> {
        let mut inventory = writer.inventory.clone();
        let mut damage = writer.damage.clone();
        let mut news: Vec<JournalEntry> = Vec::new();
        // Before the records: a writer commits first and has it remembered then.
        let remembered = self.remembered_position(&mut damage);
        let remembered_seq = remembered.as_ref().map_or(0, |position| position.seq);
        let mut head_check = HeadCheck::new(writer.position.clone(), remembered);
        let mut after = head_check.read_after();
        loop {
            let stored = match self.store.records(after, READ_BATCH_SIZE).await {
                // What was read up to there can be served.
                Err(error)
                    if self.options.head_file.is_some() && StoreState::from_error(&error) == StoreState::Damaged =>
                {
                    damage.log.add(Damage::UnreadableAfter { seq: inventory.version, reason: error.message });
                    break;
                }
                stored => stored?,
            };
            // Only an empty answer is the end: a damaged page ends the one before it early.
            let Some(last) = stored.last().map(|record| record.seq) else { break };
            after = last;
            for record in stored {
                let entry = JournalEntry::parse(record);
                head_check.observe(&entry);
                if entry.record.seq <= inventory.version {
                    continue;
                }
                damage.add_record(inventory.version, &entry);
                inventory.apply(&entry.record);
                news.push(entry);
            }
        }
        head_check.finish(after.max(inventory.version), &mut damage);
        let standings = match writer.statuses_dirty || !news.is_empty() {
            true => writer.with_local_overrides(self.read_statuses().await?),
            false => self.snapshot.load().statuses.clone(),
        };
        let is_new_damage = writer.damage != damage;
        let shown_damage = log_new_damage(&writer.damage, &damage);
        writer.remembered_seq = remembered_seq;
        if news.is_empty() {
            writer.damage = damage;
            writer.statuses_dirty = false;
            self.update_snapshot(|now| {
                now.statuses = standings.clone();
                if is_new_damage {
                    now.damage = shown_damage.clone();
                }
            });
            return Ok(());
        }
        let touched: BTreeSet<SourceId> =
            news.iter().filter_map(|entry| entry.record.event.source().cloned()).collect();
        let definitions = self.load_definitions(writer, &inventory, &touched).await?;
        let segments = self.load_segments(writer, &inventory, &definitions, &touched).await?;
        let gone: Vec<(SourceId, usize)> = touched
            .iter()
            .filter(|id| self.enabled_source(&inventory, id).is_none())
            .filter_map(|id| writer.catalog_sources.get(id).map(|part| (id.clone(), part.segment.entries().len())))
            .collect();
        let critical = news.iter().filter_map(JournalEntry::newer_record).filter(|newer| newer.critical);
        let upgrade_for = NewerRecord::latest(writer.newer_record.clone(), critical);
        if let Some(newer) = upgrade_for.as_ref().filter(|_| upgrade_for != writer.newer_record) {
            tracing::error!("{}; until then nothing is called or written", newer.to_error());
        }
        log_ignored_records(&news);
        writer.newer_record = upgrade_for;
        writer.damage = damage;
        writer.position = news.last().map_or_else(JournalPosition::default, |last| JournalPosition {
            seq: last.record.seq,
            checksum: last.checksum.to_string(),
        });
        writer.inventory = inventory;
        writer.definitions = definitions;
        writer.segments = segments;
        Arc::make_mut(&mut writer.journal).append(&news);
        writer.statuses_dirty = false;
        for id in &touched {
            match self.build_catalog_source(writer, id) {
                Some(part) => writer.catalog_sources.insert(id.clone(), part),
                None => writer.catalog_sources.remove(id),
            };
        }
        self.publish(writer, standings);
        let now = self.snapshot.load_full();
        let enabled = |id: &SourceId| self.enabled_source(&now.inventory, id).is_some();
        for connector in self.connectors.take_changed(&now.effective_sources, enabled) {
            // Calls in flight may finish; nobody waits for them here.
            self.tasks.spawn(async move { connector.close().await });
        }
        for (id, removed_count) in gone {
            tracing::info!(server_name = %id, removed_count, "tools.registry.server.removed");
        }
        for entry in news {
            let _nobody_listens = self.notices.send(RegistryNotice::RecordAppended(entry.record));
        }
        Ok(())
    }

    /// What the data directory remembers of the store. That it cannot be read is damage until it can.
    pub(super) fn remembered_position(&self, damage: &mut JournalDamage) -> Option<JournalPosition> {
        let remembered = self.options.head_file.as_ref()?.read();
        if matches!(damage.head, Some(Damage::HeadUnreadable { .. })) {
            damage.head = None;
        }
        remembered.unwrap_or_else(|unreadable| {
            damage.head = Some(unreadable);
            None
        })
    }

    /// Measurements that lie on a damaged page are no loss.
    async fn read_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        match self.store.source_statuses().await {
            Err(error) if self.options.head_file.is_some() && StoreState::from_error(&error) == StoreState::Damaged => {
                tracing::warn!(%error, "measurements cannot be read and are left out");
                Ok(BTreeMap::new())
            }
            standings => standings,
        }
    }

    /// The journal was found to be damaged; nothing else changed.
    pub(super) fn publish_damage(&self, writer: &WriterState) {
        let damage = Some(Arc::new(writer.damage.clone())).filter(|damage| !damage.is_empty());
        self.update_snapshot(|now| now.damage = damage.clone());
    }

    /// Whether the environment of this process leads to another server, or as somebody else, than the declaration.
    pub(crate) fn is_overridden(&self, id: &SourceId) -> bool {
        self.source_override(id).is_some_and(|overriding| overriding.url.is_some() || overriding.token.is_some())
    }

    /// Takes a list in for this process alone, or why there is none; says what differs from the one before.
    pub(crate) async fn record_local(
        &self,
        source: &Source,
        after: Option<(Arc<PackedManifest>, PrecomputedDelta)>,
        standing: SourceStatus,
    ) -> Result<Delta> {
        let mut writer = self.writer.lock().await;
        let before = writer.previous_manifest(&source.id);
        let delta = match &after {
            Some((after, compared)) => match compared.delta(&before) {
                Some(delta) => delta,
                None => Delta::between(before.manifest(), after)?,
            },
            None => Delta::default(),
        };
        let after = after.map(|(after, _)| after);
        let known = writer.local_overrides.remove(&source.id).and_then(|here| here.segment);
        let segment = after.map(|after| Arc::new(Segment::with_prefix(after))).or(known);
        writer.local_overrides.insert(source.id.clone(), LocalOverride { segment, status: standing });
        if let Some(part) = self.build_catalog_source(&writer, &source.id) {
            writer.catalog_sources.insert(source.id.clone(), part);
        }
        let standings = BTreeMap::clone(&self.snapshot.load().statuses);
        self.publish(&writer, writer.with_local_overrides(standings));
        Ok(delta)
    }

    /// Takes in a list whose source offers what it offered, in place of one that an older version made of it: what is
    /// shown of a tool is no part of its fingerprint.
    pub(crate) async fn replace_segment(&self, after: &Arc<PackedManifest>) {
        let mut writer = self.writer.lock().await;
        let known = writer.segments.get(&after.source);
        let Some(known) = known.filter(|known| known.fingerprint() == after.fingerprint) else { return };
        if known.packed().body == after.body {
            return;
        }
        writer.segments.insert(after.source.clone(), Arc::new(Segment::with_prefix(after.clone())));
        if let Some(part) = self.build_catalog_source(&writer, &after.source) {
            writer.catalog_sources.insert(after.source.clone(), part);
        }
        self.publish(&writer, self.snapshot.load().statuses.clone());
    }

    /// The defaults changed, and with them every source.
    pub(crate) async fn republish(&self) {
        let mut writer = self.writer.lock().await;
        let ids: Vec<SourceId> = writer.definitions.keys().cloned().collect();
        for id in ids {
            match self.build_catalog_source(&writer, &id) {
                Some(part) => writer.catalog_sources.insert(id, part),
                None => writer.catalog_sources.remove(&id),
            };
        }
        self.publish(&writer, self.snapshot.load().statuses.clone());
    }

    fn publish(&self, writer: &WriterState, standings: Arc<BTreeMap<SourceId, SourceStatus>>) {
        let before = self.snapshot.load().catalog.hash();
        let sources = self.effective_sources(writer);
        let declared = writer.definitions.iter().map(|(id, (_, source))| (id.clone(), source.clone()));
        let declared: Arc<BTreeMap<SourceId, Arc<Source>>> = Arc::new(declared.collect());
        let inventory = Arc::new(writer.inventory.clone());
        let connects_to = self.connection_fingerprints(&sources);
        let damage = Some(Arc::new(writer.damage.clone())).filter(|damage| !damage.is_empty());
        self.update_snapshot(|now| {
            // Looked up in here: a tool that the host registers meanwhile makes this run once more.
            let embedded = self.connectors.builtins().embedded_catalog_source();
            let parts = writer.catalog_sources.values().cloned().chain(embedded).collect();
            now.catalog = Arc::new(self.build_catalog(inventory.version, parts));
            now.inventory = inventory.clone();
            now.declared_sources = declared.clone();
            now.effective_sources = sources.clone();
            now.connection_fingerprints = connects_to.clone();
            now.statuses = standings.clone();
            now.journal = writer.journal.clone();
            now.newer_record = writer.newer_record.clone();
            now.damage = damage.clone();
            now.position = writer.position.clone();
        });
        let catalog = self.snapshot.load().catalog.clone();
        if before != catalog.hash() {
            self.notify_catalog_changed(&catalog);
        }
    }

    fn build_catalog(&self, version: u64, parts: Vec<Arc<CatalogSource>>) -> Catalog {
        Catalog::build(version, parts).with_essential(self.expose.load().essential.clone())
    }

    /// References may resolve to something else than when they were last looked up: a file rewritten, say.
    pub(crate) fn rehash_references(&self, among: Option<&[SourceId]>) {
        let now = self.snapshot.load_full();
        // The environment of a process stays as it is; a file may be rewritten, and what is missing may appear.
        let unsettled = |id: &SourceId, source: &Source| {
            now.connection_fingerprints.get(id).is_none_or(Option::is_none) || refers_to_file(&source.kind)
        };
        let all = among.is_none().then(|| now.effective_sources.iter()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| now.effective_sources.get_key_value(id));
        let wanted = all.chain(some).filter(|(id, source)| unsettled(id, source));
        let moved: Vec<_> = wanted
            .map(|(id, source)| (id.clone(), self.connection_fingerprint(source)))
            .filter(|(id, hash)| now.connection_fingerprints.get(id) != Some(hash))
            .collect();
        if !moved.is_empty() {
            self.update_snapshot(|now| Arc::make_mut(&mut now.connection_fingerprints).extend(moved.iter().cloned()));
        }
    }

    /// A source that must not be contacted is not looked up either: its references may be anybody's.
    fn connection_fingerprint(&self, source: &Source) -> Option<Fingerprint> {
        self.ensure_trusted(&source.id).ok().and_then(|()| connection_fingerprint(&self.store_key, &source.kind))
    }

    fn connection_fingerprints(
        &self,
        sources: &BTreeMap<SourceId, Arc<Source>>,
    ) -> Arc<BTreeMap<SourceId, Option<Fingerprint>>> {
        let hashes = sources.iter().map(|(id, source)| (id.clone(), self.connection_fingerprint(source)));
        Arc::new(hashes.collect())
    }

    /// The embedded tools changed; nothing else did.
    pub(crate) fn publish_embedded(&self) {
        let builtins = self.connectors.builtins();
        self.update_snapshot(|now| {
            let known = now.catalog.sources().filter(|part| part.segment.source() != builtins.embedded_id()).cloned();
            let parts = known.chain(builtins.embedded_catalog_source()).collect();
            now.catalog = Arc::new(self.build_catalog(now.catalog.version, parts));
        });
        self.notify_catalog_changed(&self.snapshot.load().catalog);
    }

    pub(crate) fn publish_invalid(&self, invalid: BTreeMap<SourceId, ErrorSummary>) {
        let invalid = Arc::new(invalid);
        self.update_snapshot(|now| now.invalid_sources = invalid.clone());
    }

    fn notify_catalog_changed(&self, catalog: &Catalog) {
        let count = |kind: &str| {
            catalog
                .sources()
                .filter(|part| part.options.kind == kind)
                .map(|part| part.segment.entries().len())
                .sum::<usize>()
        };
        tracing::info!(
            static_count = count("builtin"),
            mcp_count = count("mcp"),
            openapi_count = count("openapi"),
            workflow_count = count("workflow"),
            "tools.registry.updated"
        );
        let _nobody_listens = self.notices.send(RegistryNotice::CatalogChanged);
    }

    fn update_snapshot(&self, change: impl Fn(&mut Snapshot)) {
        self.snapshot.rcu(|now| {
            let mut next = Snapshot::clone(now);
            change(&mut next);
            next
        });
    }
}
