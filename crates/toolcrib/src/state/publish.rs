//! Applies journal records to the writer's state and publishes the result as a new [`Snapshot`]. No other place changes
//! what readers see.
//!
//! Invariant: `apply_new_records` reads and checks everything first and then replaces the writer's state and the
//! snapshot without another fallible step. A failure at any point leaves readers with the previous snapshot, complete
//! and consistent; only damage of the store that the failure reveals is added to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_catalog::{Catalog, CatalogSource, Segment};
use toolcrib_core::delta::Delta;
use toolcrib_core::features::{FeatureList, RecordedFeatures};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Command, Damage, Event, Inventory, PreviousManifest, SourceState};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::policy::Verdict;
use toolcrib_core::tool::name_prefix;
use toolcrib_core::{Result, Source, SourceId};
use toolcrib_diff::compare::compare_manifests;

use super::assemble::{build_catalog_source, effective_source, load_definitions, load_features, load_segments};
use super::damage::{HeadCheck, JournalDamage};
use super::journal::{Journal, JournalEntry, READ_BATCH_SIZE};
use super::newer_records::{NewerRecord, log_ignored_records};
use super::{EnvironmentOverrides, Snapshot, State};
use crate::notice::{RegistryNotice, SourceTransitionNotice};
use crate::options::RegistryOptions;
use crate::secret::ReferenceValues;
use crate::store::{JournalPosition, SourceStatus, StoreState};

/// State of the write path, behind the writer lock. Holds what the next snapshot is built from.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// The folded journal.
    pub(crate) inventory: Inventory,
    /// Definition of each source, with the fingerprint under which the store keeps it.
    pub(super) definitions: BTreeMap<SourceId, (Fingerprint, Arc<Source>)>,
    /// Segment of each source's recorded manifest.
    pub(super) segments: BTreeMap<SourceId, Arc<Segment>>,
    /// Recorded prompts, resources and instructions of each source.
    pub(super) features: BTreeMap<SourceId, Arc<RecordedFeatures>>,
    /// Catalogue entry of each enabled and discovered source; reused until the source changes. Building one takes time
    /// in proportion to the tools of the source.
    catalog_sources: BTreeMap<SourceId, Arc<CatalogSource>>,
    /// Newest records, for `history`.
    pub(super) journal: Arc<Journal>,
    /// A critical record that only a newer Toolcrib understands.
    pub(super) newer_record: Option<Arc<NewerRecord>>,
    /// Whether one of those records is about a group, access rule or policy.
    has_newer_rules: bool,
    /// Damage of the journal and the store's file.
    pub(super) damage: JournalDamage,
    /// Last record that was applied.
    pub(super) position: JournalPosition,
    /// Last record of the newest snapshot of the inventory that this process has read or written.
    pub(super) snapshot_seq: u64,
    /// Whether the inventory is that of a stored snapshot, and nothing of it is published yet.
    pub(super) is_unpublished: bool,
    /// Sequence number of the last record according to the head file and the store. Larger than the last record only if
    /// records were lost.
    last_written: u64,
    /// The one according to the store, which accepts a commit only after that.
    kept_head: u64,
    /// Tool lists and statuses of sources whose URL or token this process overrides. They are not recorded: they hold
    /// for no other process.
    local_overrides: BTreeMap<SourceId, LocalOverride>,
    /// Sources that were published although files with their values must be read first; see `connection_fingerprints`.
    pub(super) unresolved_sources: BTreeMap<SourceId, Arc<Source>>,
    /// Whether the measurements must be read again with the next records.
    pub(crate) statuses_dirty: bool,
}

/// Discovery results of a source whose URL or token is overridden by this process's environment.
#[derive(Debug)]
struct LocalOverride {
    /// The tools found at the overridden address; `None` until a discovery succeeded.
    segment: Option<Arc<Segment>>,
    /// The prompts and resources found there.
    features: Option<Arc<RecordedFeatures>>,
    status: SourceStatus,
}

/// Delta between the known manifest and a new one, computed before the writer lock is taken because comparing large
/// lists takes a while.
pub(crate) struct PrecomputedDelta {
    /// Fingerprint of the manifest that the delta starts from.
    before: Option<Fingerprint>,
    delta: Delta,
}

impl PrecomputedDelta {
    /// Compares two manifests. CPU-heavy for large lists.
    pub(crate) fn between(before: Option<&PackedManifest>, after: &PackedManifest) -> Result<PrecomputedDelta> {
        Ok(PrecomputedDelta {
            before: before.map(|before| before.fingerprint),
            delta: compare_manifests(before, after)?,
        })
    }

    /// Returns the delta. Compares again, under the writer lock, if another manifest than the compared one has been
    /// recorded meanwhile.
    pub(crate) fn delta(&self, before: &PreviousManifest, after: &PackedManifest) -> Result<Delta> {
        let readable = before.manifest().map(|packed| packed.fingerprint);
        if readable == self.before && before.fingerprint() == self.before {
            return Ok(self.delta.clone());
        }
        compare_manifests(before.manifest(), after)
    }
}

impl WriterState {
    /// Creates the state before any record was read.
    pub(super) fn new(options: &RegistryOptions) -> WriterState {
        let store = options.head_file.as_ref().and_then(|head| head.store_damage.clone());
        WriterState { damage: JournalDamage { store, ..JournalDamage::default() }, ..WriterState::default() }
    }

    /// Returns the manifest that the next discovery of a source is compared with. `Unreadable` if the journal names a
    /// manifest that the store has lost.
    pub(crate) fn previous_manifest(&self, id: &SourceId) -> PreviousManifest {
        match (self.segment(id), self.inventory.source(id).and_then(|state| state.manifest)) {
            (Some(segment), _) => PreviousManifest::Available(segment.packed().clone()),
            (None, Some(fingerprint)) => PreviousManifest::Unreadable(fingerprint),
            (None, None) => PreviousManifest::None,
        }
    }

    /// Returns the sequence number of the next record. Numbers of records that are known to be lost are not reused.
    pub(crate) fn next_seq(&self) -> u64 {
        self.inventory.version.max(self.last_written) + 1
    }

    /// Returns the head that the store expects of the next commit.
    pub(crate) fn expected_head(&self) -> u64 {
        self.inventory.version.max(self.kept_head)
    }

    /// Returns the segment of a source as this process sees it: that of a local override first.
    pub(super) fn segment(&self, id: &SourceId) -> Option<&Arc<Segment>> {
        let local = self.local_overrides.get(id).and_then(|local| local.segment.as_ref());
        local.or_else(|| self.segments.get(id))
    }

    /// Decides a command on the folded journal. The removal of a source names the tools that its rules keep from agents,
    /// because the rules are removed with it.
    pub(crate) fn decide(&self, command: &Command) -> Result<Vec<Event>> {
        let mut events = self.inventory.decide(command)?;
        for event in &mut events {
            if let Event::SourceRemoved { source, withheld } = event {
                *withheld = self.withheld_tools(source);
            }
        }
        Ok(events)
    }

    /// Returns the tools that a source ever offered and its rules keep from agents, by their own names.
    fn withheld_tools(&self, id: &SourceId) -> Vec<String> {
        let Some((state, (_, source))) = self.inventory.source(id).zip(self.definitions.get(id)) else {
            return Vec::new();
        };
        let prefix = name_prefix(id, &state.kind);
        let rules = &source.settings.tools;
        let withheld =
            state.tools.keys().filter(|name| rules.unlisted_verdict(&prefix, name, Verdict::Allow) >= Verdict::Deny);
        withheld.cloned().collect()
    }

    /// Returns the prompts, resources and instructions of a source as this process sees them.
    pub(super) fn features(&self, id: &SourceId) -> Option<&Arc<RecordedFeatures>> {
        match self.local_overrides.get(id).filter(|local| local.segment.is_some()) {
            // At another address the recorded ones may not exist.
            Some(local) => local.features.as_ref(),
            None => self.features.get(id),
        }
    }

    /// Lays the statuses of local overrides over those of the store.
    fn with_local_overrides(
        &self,
        mut statuses: BTreeMap<SourceId, SourceStatus>,
    ) -> Arc<BTreeMap<SourceId, SourceStatus>> {
        statuses.extend(self.local_overrides.iter().map(|(id, local)| (id.clone(), local.status.clone())));
        Arc::new(statuses)
    }
}

impl State {
    /// Reads new records, applies them to a copy and swaps it in last: an error on the way changes nothing. An error
    /// that reveals a damaged store stops calls and writes.
    pub(crate) async fn apply_new_records(&self, writer: &mut WriterState) -> Result<()> {
        let applied = self.apply_readable_records(writer).await;
        if let Err(error) = &applied {
            self.store_monitor.record_failure(error);
            self.note_store_error(writer, error);
        }
        applied
    }

    /// The steps of `apply_new_records`: read, check, load definitions and segments, publish, notify.
    async fn apply_readable_records(&self, writer: &mut WriterState) -> Result<()> {
        let mut inventory = writer.inventory.clone();
        let mut damage = writer.damage.clone();
        let mut new_entries: Vec<JournalEntry> = Vec::new();
        // Read before the records: a writer commits first and updates the head file afterwards, so a head file that is
        // ahead of the records read later is damage, never a race. Reading it afterwards would report a record that
        // another process committed in between as lost.
        let remembered = damage.read_head(self.options.head_file.as_ref()).await;
        // The same holds for the head that the store keeps.
        let kept_head = self.store.kept_head().await?;
        let mut head_check = HeadCheck::new(writer.position.clone(), remembered, kept_head);
        let last_written = head_check.last_written();
        let mut after = head_check.read_after();
        loop {
            let stored = match self.store.records(after, READ_BATCH_SIZE).await {
                // The records before the damage can still be served.
                Err(error)
                    if self.options.head_file.is_some() && StoreState::from_error(&error) == StoreState::Damaged =>
                {
                    damage.log.add(Damage::UnreadableAfter { seq: inventory.version, reason: error.message });
                    break;
                }
                stored => stored?,
            };
            // Only an empty batch is the end of the journal: SQLite ends a batch early at a damaged page.
            let Some(last) = stored.last().map(|record| record.seq) else { break };
            after = last;
            for record in stored {
                let entry = JournalEntry::parse(record);
                head_check.observe(&entry);
                // `read_after` makes the last known record come again, for the head check only.
                if entry.record.seq <= inventory.version {
                    continue;
                }
                damage.add_record(inventory.version, &entry);
                inventory.apply(&entry.record);
                new_entries.push(entry);
            }
        }
        head_check.finish(after.max(inventory.version), &mut damage);
        let has_news = writer.is_unpublished || !new_entries.is_empty();
        let statuses = if writer.statuses_dirty || has_news {
            writer.with_local_overrides(self.read_statuses().await?)
        } else {
            self.snapshot.load().statuses.clone()
        };
        let is_new_damage = writer.damage != damage;
        if is_new_damage && !damage.is_empty() {
            tracing::error!("{}", damage.to_error());
        }
        if !has_news {
            let published_damage = damage.to_published();
            writer.damage = damage;
            writer.last_written = last_written;
            writer.kept_head = kept_head;
            writer.statuses_dirty = false;
            let before = self.snapshot().statuses.clone();
            self.update_snapshot(|snapshot| {
                snapshot.statuses = statuses.clone();
                if is_new_damage {
                    snapshot.damage = published_damage.clone();
                }
            });
            if is_new_damage {
                self.notify(RegistryNotice::RulesChanged);
            }
            self.notify_transitions(&before, &statuses);
            return Ok(());
        }
        // Load what the touched sources need. Nothing of `writer` has changed up to here.
        let touched: BTreeSet<SourceId> = if writer.is_unpublished {
            inventory.all_source_ids().cloned().collect()
        } else {
            new_entries.iter().filter_map(|entry| entry.record.event.source().cloned()).collect()
        };
        let definitions = load_definitions(&*self.store, writer, &inventory, &touched).await?;
        let segments = load_segments(&*self.store, writer, &inventory, &definitions, &touched).await?;
        let features = load_features(&*self.store, writer, &inventory, &touched).await?;
        // For the log: sources that leave the catalogue with this batch.
        let environment = self.environment(&definitions);
        let removed: Vec<(SourceId, usize)> = touched
            .iter()
            .filter(|id| inventory.source(id).is_none_or(|state| !environment.is_enabled(id, state)))
            .filter_map(|id| writer.catalog_sources.get(id).map(|source| (id.clone(), source.segment.entries().len())))
            .collect();
        let critical = new_entries.iter().filter_map(JournalEntry::newer_record).filter(|newer| newer.critical);
        let has_newer_rules = critical.clone().any(|newer| Event::is_rule_type(&newer.kind));
        let newest_newer_record = NewerRecord::latest(writer.newer_record.clone(), critical);
        if let Some(newer) = newest_newer_record.as_ref().filter(|_| newest_newer_record != writer.newer_record) {
            tracing::error!("{}; calls and changes are refused until Toolcrib is upgraded", newer.to_error());
        }
        log_ignored_records(&new_entries);
        // From here on nothing can fail: replace the writer's state, then publish it.
        writer.newer_record = newest_newer_record;
        writer.has_newer_rules |= has_newer_rules;
        writer.damage = damage;
        writer.last_written = last_written;
        writer.kept_head = kept_head;
        if let Some(last) = new_entries.last() {
            writer.position = JournalPosition { seq: last.record.seq, checksum: last.checksum.to_string() };
        }
        writer.is_unpublished = false;
        writer.inventory = inventory;
        writer.definitions = definitions;
        writer.segments = segments;
        writer.features = features;
        Arc::make_mut(&mut writer.journal).append(&new_entries);
        writer.statuses_dirty = false;
        for id in &touched {
            self.update_catalog_source(writer, id, &environment);
        }
        // Readers see the new state from here on; connections, log and subscribers follow.
        self.publish(writer, statuses);
        let snapshot = self.snapshot();
        let may_connect = |id: &SourceId| snapshot.is_enabled(id) && snapshot.ensure_may_start(id).is_ok();
        for connector in self.connectors.take_changed(&snapshot.effective_sources, may_connect) {
            // Runs in the background: calls in flight may finish first.
            self.tasks.spawn(async move { connector.close().await });
        }
        for (id, removed_count) in removed {
            tracing::info!(server_name = %id, removed_count, "tools.registry.server.removed");
        }
        for entry in new_entries {
            self.notify(RegistryNotice::RecordAppended(entry.record));
        }
        Ok(())
    }

    /// Reads the measurements. Those on a damaged page are skipped: they can be measured again.
    async fn read_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        match self.store.source_statuses().await {
            Err(error) if self.options.head_file.is_some() && StoreState::from_error(&error) == StoreState::Damaged => {
                tracing::warn!(%error, "measurements cannot be read and are skipped");
                Ok(BTreeMap::new())
            }
            statuses => statuses,
        }
    }

    /// Publishes damage that was found; everything else stays.
    pub(super) fn publish_damage(&self, writer: &WriterState) {
        let damage = writer.damage.to_published();
        self.update_snapshot(|snapshot| snapshot.damage = damage.clone());
        self.notify(RegistryNotice::RulesChanged);
    }

    /// Records a discovery of an overridden source for this process alone: new lists, or only the status of a failure.
    /// Returns the changes to the previous tools. Nothing is written to the store: another process would otherwise serve
    /// the tools of an address that it does not use.
    pub(crate) async fn record_local(
        &self,
        source: &Source,
        manifest: Option<(Arc<PackedManifest>, PrecomputedDelta)>,
        features: Option<Arc<FeatureList>>,
        status: SourceStatus,
    ) -> Result<Delta> {
        let mut writer = self.writer.lock().await;
        let before = writer.previous_manifest(&source.id);
        let changes = match &manifest {
            Some((after, precomputed)) => precomputed.delta(&before, after)?,
            None => Delta::default(),
        };
        let known = writer.local_overrides.remove(&source.id);
        let (known_segment, known_features) = known.map_or((None, None), |known| (known.segment, known.features));
        let segment = match (manifest, known_segment) {
            (Some((after, _)), Some(known)) if known.packed().has_same_content(&after) => Some(known),
            (Some((after, _)), _) => Some(Arc::new(Segment::with_prefix(after))),
            (None, known) => known,
        };
        let features = features.map(|list| Arc::new(RecordedFeatures::with_list(list))).or(known_features);
        writer.local_overrides.insert(source.id.clone(), LocalOverride { segment, features, status });
        let environment = self.environment(&writer.definitions);
        self.update_catalog_source(&mut writer, &source.id, &environment);
        let statuses = BTreeMap::clone(&self.snapshot.load().statuses);
        let statuses = writer.with_local_overrides(statuses);
        self.publish(&mut writer, statuses);
        Ok(changes)
    }

    /// Replaces the segment of a source by one with the same fingerprint that is stored in another form or with more in
    /// its index, as an older version may not have stored it, or adds one that could not be read. Another order of keys
    /// is no other form: other processes have read what is stored. Does nothing if another manifest was recorded
    /// meanwhile.
    pub(crate) async fn replace_segment(&self, after: &Arc<PackedManifest>) {
        let mut writer = self.writer.lock().await;
        let id = &after.source;
        if writer.inventory.source(id).and_then(|state| state.manifest) != Some(after.fingerprint) {
            return;
        }
        let is_current = |known: &Arc<Segment>| {
            let same_body = known.packed().body == after.body;
            known.packed().has_same_content(after) && (!same_body || known.packed().tools == after.tools)
        };
        if writer.segments.get(id).is_some_and(is_current) {
            return;
        }
        writer.segments.insert(id.clone(), Arc::new(Segment::with_prefix(after.clone())));
        let environment = self.environment(&writer.definitions);
        self.update_catalog_source(&mut writer, id, &environment);
        self.publish(&mut writer, self.snapshot.load().statuses.clone());
    }

    /// Adds the features of a source that were recorded before and could not be read since. Their fingerprint is the
    /// same, so no event is written. Does nothing if other features were recorded meanwhile.
    pub(crate) async fn restore_features(&self, list: &Arc<FeatureList>) {
        let mut writer = self.writer.lock().await;
        let id = &list.summary.source;
        let recorded = writer.inventory.source(id).and_then(|state| state.features);
        if recorded != Some(list.summary.fingerprint) || writer.features.contains_key(id) {
            return;
        }
        writer.features.insert(id.clone(), Arc::new(RecordedFeatures::with_list(list.clone())));
        let environment = self.environment(&writer.definitions);
        self.update_catalog_source(&mut writer, id, &environment);
        self.publish(&mut writer, self.snapshot.load().statuses.clone());
    }

    /// Rebuilds every catalogue entry, after the default settings changed. Segments are reused, only the options are
    /// derived anew.
    pub(crate) async fn republish(&self) {
        let mut writer = self.writer.lock().await;
        let ids: Vec<SourceId> = writer.definitions.keys().cloned().collect();
        let environment = self.environment(&writer.definitions);
        for id in ids {
            self.update_catalog_source(&mut writer, &id, &environment);
        }
        self.publish(&mut writer, self.snapshot.load().statuses.clone());
        self.release(writer, &Ok(())).await;
    }

    /// Loads built-in tools with the values of their references, and adds them to the catalogue.
    pub(super) async fn publish_builtins(&self, source: &Source, references: &ReferenceValues) {
        let mut writer = self.writer.lock().await;
        // Another declaration may have been published while the files of this one were read.
        if !self.snapshot().has_connection(source) {
            return;
        }
        if let Err(error) = self.connectors.builtins().load_source(source, references) {
            tracing::warn!(server_name = %source.id, %error, "built-in tools cannot be used");
            return;
        }
        let environment = self.environment(&writer.definitions);
        self.update_catalog_source(&mut writer, &source.id, &environment);
        self.publish(&mut writer, self.snapshot.load().statuses.clone());
    }

    /// Returns what the environment overrides of the sources with these definitions, and declares besides.
    fn environment(&self, definitions: &BTreeMap<SourceId, (Fingerprint, Arc<Source>)>) -> EnvironmentOverrides {
        let definitions = definitions.values().map(|(_, source)| source);
        self.snapshot.load().environment.for_sources(definitions, &self.settings.load().source_names)
    }

    /// Builds the catalogue entry of a source again, or removes it if the source is disabled or has no tool list.
    fn update_catalog_source(&self, writer: &mut WriterState, id: &SourceId, environment: &EnvironmentOverrides) {
        let local = environment.declared().get(id);
        let state = writer.inventory.source(id).cloned().or_else(|| local.map(|(_, state)| Arc::new(state.clone())));
        let state = state.filter(|state| environment.is_enabled(id, state));
        let definition = writer.definitions.get(id).map(|(_, source)| source).or(local.map(|(source, _)| source));
        let source = definition.map(|source| effective_source(source, environment, &self.settings.load().defaults));
        let built = state
            .zip(source)
            .and_then(|(state, source)| build_catalog_source(writer, state, source, self.connectors.builtins()));
        match built {
            // The known entry keeps what views have computed from it.
            Some(built) if writer.catalog_sources.get(id).is_some_and(|known| known.has_same_content(&built)) => {}
            Some(built) => drop(writer.catalog_sources.insert(id.clone(), built)),
            None => drop(writer.catalog_sources.remove(id)),
        }
    }

    /// Builds and publishes a snapshot of the writer's state, and notifies subscribers if the catalogue or the rules
    /// changed. Called with the writer lock held.
    fn publish(&self, writer: &mut WriterState, statuses: Arc<BTreeMap<SourceId, SourceStatus>>) {
        let before = self.snapshot();
        let environment = self.environment(&writer.definitions);
        let settings = self.settings.load_full();
        let declared = writer.definitions.iter().map(|(id, (_, source))| (id.clone(), source.clone()));
        let local = environment.declared().iter().map(|(id, (source, _))| (id.clone(), source.clone()));
        let declared: Arc<BTreeMap<SourceId, Arc<Source>>> = Arc::new(declared.chain(local).collect());
        let effective = declared
            .iter()
            .map(|(id, source)| (id.clone(), Arc::new(effective_source(source, &environment, &settings.defaults))));
        let effective_sources: Arc<BTreeMap<SourceId, Arc<Source>>> = Arc::new(effective.collect());
        let mut inventory = writer.inventory.clone();
        for (id, (_, state)) in environment.declared() {
            inventory.add_local_source(id.clone(), state.clone());
        }
        let inventory = Arc::new(inventory);
        let changed_connections = self.changed_connections(writer, &effective_sources);
        let damage = writer.damage.to_published();
        self.update_snapshot(|snapshot| {
            // Looked up inside: `rcu` runs this again if a host registers a tool meanwhile, and must then see that
            // tool.
            let embedded = self.connectors.builtins().embedded_catalog_source();
            let sources = writer.catalog_sources.values().cloned().chain(embedded).collect();
            let catalog = settings.build_catalog(inventory.version, sources);
            snapshot.catalog = Arc::new(catalog.sharing_views_of(&snapshot.catalog));
            snapshot.inventory = inventory.clone();
            snapshot.environment = environment.clone();
            snapshot.declared_sources = declared.clone();
            snapshot.effective_sources = effective_sources.clone();
            snapshot.replace_connections(&changed_connections);
            snapshot.statuses = statuses.clone();
            snapshot.journal = writer.journal.clone();
            snapshot.newer_record = writer.newer_record.clone();
            snapshot.has_newer_rules = writer.has_newer_rules;
            snapshot.damage = damage.clone();
            snapshot.position = writer.position.clone();
        });
        let may_lack_rules = self.snapshot.load().may_lack_rules();
        if before.inventory.rules() != inventory.rules() || before.may_lack_rules() != may_lack_rules {
            self.notify(RegistryNotice::RulesChanged);
        }
        let catalog = self.snapshot.load().catalog.clone();
        if before.catalog.hash() != catalog.hash() {
            self.notify_catalog_changed(&catalog);
        }
        if before.catalog.features_hash() != catalog.features_hash() {
            self.notify(RegistryNotice::FeaturesChanged);
        }
        self.notify_transitions(&before.statuses, &statuses);
    }

    /// Notifies subscribers of the sources that failed or recovered between two states. Compares states instead of
    /// watching discoveries, so that those of other processes count too. The first state is that of the store at the
    /// start, before there are subscribers.
    fn notify_transitions(
        &self,
        before: &BTreeMap<SourceId, SourceStatus>,
        after: &Arc<BTreeMap<SourceId, SourceStatus>>,
    ) {
        let unknown = SourceStatus::default();
        let notices = after
            .iter()
            .filter_map(|(id, status)| SourceTransitionNotice::between(id, before.get(id).unwrap_or(&unknown), status));
        notices.for_each(|notice| self.notify(RegistryNotice::SourceTransition(Arc::new(notice))));
    }

    /// Publishes a catalogue with the tools that the host registered; nothing else changes.
    pub(crate) fn publish_embedded(&self) {
        let builtins = self.connectors.builtins();
        self.update_snapshot(|snapshot| {
            let others =
                snapshot.catalog.sources().filter(|source| source.segment.source() != builtins.embedded_id()).cloned();
            let sources = others.chain(builtins.embedded_catalog_source()).collect();
            snapshot.catalog = Arc::new(self.settings.load().build_catalog(snapshot.catalog.version, sources));
        });
        self.notify_catalog_changed(&self.snapshot.load().catalog);
    }

    /// Publishes the sources that must not be contacted.
    pub(super) fn publish_blocked(&self, blocked: BTreeMap<SourceId, String>) {
        let blocked = Arc::new(blocked);
        self.update_snapshot(|snapshot| snapshot.blocked_sources = blocked.clone());
    }

    /// Logs which sources the environment of this process switches, and the tool counts that follow. No record says so:
    /// the switch holds for this process alone.
    pub(crate) fn log_environment_switches(&self) {
        let snapshot = self.snapshot();
        let switched: Vec<(&SourceId, &Arc<SourceState>)> = snapshot
            .inventory
            .sources()
            .filter(|(id, state)| snapshot.environment.is_enabled(id, state) != state.enabled)
            .collect();
        if switched.is_empty() {
            return;
        }
        for (id, state) in switched {
            let removed_count = state.tools.values().filter(|tool| !tool.deprecated).count();
            if !snapshot.is_enabled(id) && removed_count > 0 {
                tracing::info!(server_name = %id, removed_count, "tools.registry.server.removed");
            }
        }
        log_tool_counts(&snapshot.catalog);
    }

    /// Logs the new tool counts and notifies subscribers.
    fn notify_catalog_changed(&self, catalog: &Catalog) {
        log_tool_counts(catalog);
        self.notify(RegistryNotice::CatalogChanged);
    }

    /// Swaps in a changed copy of the snapshot. `change` runs again when another thread swapped meanwhile. `change`
    /// must therefore have no effects besides the copy.
    pub(super) fn update_snapshot(&self, change: impl Fn(&mut Snapshot)) {
        self.snapshot.rcu(|snapshot| {
            let mut next = Snapshot::clone(snapshot);
            change(&mut next);
            next
        });
        self.published.notify_waiters();
    }
}

/// Logs the number of tools of each kind.
fn log_tool_counts(catalog: &Catalog) {
    let count = |kind: &str| {
        catalog
            .sources()
            .filter(|source| source.options.kind == kind)
            .map(|source| source.segment.entries().len())
            .sum::<usize>()
    };
    tracing::info!(
        static_count = count("builtin"),
        mcp_count = count("mcp"),
        openapi_count = count("openapi"),
        workflow_count = count("workflow"),
        "tools.registry.updated"
    );
}
