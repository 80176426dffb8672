//! From the journal to what readers see: the only place where state changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_core::catalog::{Catalog, Part, Segment};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Before, Damage, Inventory, Record};
use toolcrib_core::manifest::{Delta, Packed};
use toolcrib_core::{Result, Source, SourceId};

use super::damage::{HeadCheck, JournalDamage, warn_of_damage};
use super::journal::{BATCH, Entry, Journal};
use super::newer::{NewerRecord, warn_of};
use super::{Options, Shared, Snapshot};
use crate::call::Called;
use crate::refresh::Outcome;
use crate::secret::{connects_to, refers_to_file};
use crate::store::{Failure, Position, Standing, StoreState};

/// What is told to those who subscribed.
#[derive(Debug, Clone)]
pub enum Notice {
    Recorded(Arc<Record>),
    /// Measurements: a source is being discovered, and what came of it.
    Discovering(SourceId),
    Discovered(Arc<Outcome>),
    /// How far a discovery has come.
    Progress {
        source: SourceId,
        stage: Stage,
    },
    /// A call ended, whatever came of it.
    Called(Arc<Called>),
    /// What lists show has changed.
    CatalogChanged,
    /// An MCP source says that its resources or prompts changed.
    Said {
        source: SourceId,
        method: String,
        params: Option<Arc<RawValue>>,
    },
}

/// What a discovery is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "stage", rename_all = "lowercase")]
pub enum Stage {
    /// The source is asked for its tools.
    Contacting,
    /// It has answered; its list is being taken in.
    Recording { tools: usize },
}

/// The writers' copy of everything, behind the one lock.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) inventory: Inventory,
    pub(super) definitions: BTreeMap<SourceId, (Fingerprint, Arc<Source>)>,
    pub(super) segments: BTreeMap<SourceId, Arc<Segment>>,
    parts: BTreeMap<SourceId, Arc<Part>>,
    journal: Arc<Journal>,
    /// The record that must not be ignored and that only a newer Toolcrib understands.
    pub(super) upgrade_for: Option<Arc<NewerRecord>>,
    /// What is wrong with the journal.
    pub(super) damage: JournalDamage,
    /// The last record that was read.
    position: Position,
    /// The number of the last record that the data directory remembers.
    remembered: u64,
    /// What was found at addresses and with tokens that hold for this process only. It is recorded nowhere.
    here: BTreeMap<SourceId, Here>,
    /// Whether measurements may have changed too.
    pub(crate) standings_due: bool,
}

/// A source as this process alone sees it, because its environment says otherwise than the declaration.
#[derive(Debug)]
struct Here {
    segment: Option<Arc<Segment>>,
    standing: Standing,
}

/// What differs between the list that was known and a new one, found out before others have to wait for it.
pub(crate) struct Compared {
    before: Option<Fingerprint>,
    delta: Delta,
}

impl Compared {
    pub(crate) fn between(before: Option<&Packed>, after: &Packed) -> Result<Compared> {
        Ok(Compared { before: before.map(|before| before.fingerprint), delta: Delta::between(before, after)? })
    }

    /// Nothing where another list was recorded meanwhile.
    pub(crate) fn delta(&self, before: &Before) -> Option<Delta> {
        let readable = before.packed().map(|packed| packed.fingerprint);
        (readable == self.before && before.fingerprint() == self.before).then(|| self.delta.clone())
    }
}

impl Writer {
    /// Before anything was read.
    pub(super) fn over(options: &Options) -> Writer {
        let store = options.head.as_ref().and_then(|head| head.unusable.clone());
        Writer { damage: JournalDamage { store, ..JournalDamage::default() }, ..Writer::default() }
    }

    /// What a source offered when it was last discovered.
    pub(crate) fn before(&self, id: &SourceId) -> Before {
        match (self.segment(id), self.inventory.source(id).and_then(|state| state.manifest)) {
            (Some(segment), _) => Before::Known(segment.packed().clone()),
            (None, Some(fingerprint)) => Before::Lost(fingerprint),
            (None, None) => Before::Nothing,
        }
    }

    /// Number of the next record. Numbers of records that are known to be lost are not used again.
    pub(crate) fn next_seq(&self) -> u64 {
        self.inventory.version.max(self.remembered) + 1
    }

    pub(super) fn segment(&self, id: &SourceId) -> Option<&Arc<Segment>> {
        let here = self.here.get(id).and_then(|here| here.segment.as_ref());
        here.or_else(|| self.segments.get(id))
    }

    fn with_here(&self, mut standings: BTreeMap<SourceId, Standing>) -> Arc<BTreeMap<SourceId, Standing>> {
        standings.extend(self.here.iter().map(|(id, here)| (id.clone(), here.standing.clone())));
        Arc::new(standings)
    }
}

impl Shared {
    /// Reads the journal from where we are, changes a copy, and swaps it in last: an error on the way changes nothing.
    pub(crate) async fn take_news(&self, writer: &mut Writer) -> Result<()> {
        let taken = self.take_readable_news(writer).await;
        if let Err(error) = &taken {
            self.note_store_error(writer, error);
        }
        taken
    }

    async fn take_readable_news(&self, writer: &mut Writer) -> Result<()> {
        let mut inventory = writer.inventory.clone();
        let mut damage = writer.damage.clone();
        let mut news: Vec<Entry> = Vec::new();
        // Before the records: a writer commits first and has it remembered then.
        let remembered = self.remembered_position(&mut damage);
        let remembered_seq = remembered.as_ref().map_or(0, |position| position.seq);
        let mut head_check = HeadCheck::new(writer.position.clone(), remembered);
        let mut after = head_check.read_after();
        loop {
            let stored = match self.store.records(after, BATCH).await {
                // What was read up to there can be served.
                Err(error) if self.options.head.is_some() && StoreState::of(&error) == StoreState::Damaged => {
                    damage.log.add(Damage::UnreadableAfter { seq: inventory.version, reason: error.message });
                    break;
                }
                stored => stored?,
            };
            // Only an empty answer is the end: a damaged page ends the one before it early.
            let Some(last) = stored.last().map(|record| record.seq) else { break };
            after = last;
            for record in stored {
                let entry = Entry::read(record);
                head_check.see(&entry);
                if entry.record.seq <= inventory.version {
                    continue;
                }
                damage.read(inventory.version, &entry);
                inventory.apply(&entry.record);
                news.push(entry);
            }
        }
        head_check.conclude(after.max(inventory.version), &mut damage);
        let standings = match writer.standings_due || !news.is_empty() {
            true => writer.with_here(self.readable_standings().await?),
            false => self.now.load().standings.clone(),
        };
        let is_new_damage = writer.damage != damage;
        let shown_damage = warn_of_damage(&writer.damage, &damage);
        writer.remembered = remembered_seq;
        if news.is_empty() {
            writer.damage = damage;
            writer.standings_due = false;
            self.swap(|now| {
                now.standings = standings.clone();
                if is_new_damage {
                    now.damage = shown_damage.clone();
                }
            });
            return Ok(());
        }
        let touched: BTreeSet<SourceId> =
            news.iter().filter_map(|entry| entry.record.event.source().cloned()).collect();
        let definitions = self.definitions(writer, &inventory, &touched).await?;
        let segments = self.segments(writer, &inventory, &definitions, &touched).await?;
        let gone: Vec<(SourceId, usize)> = touched
            .iter()
            .filter(|id| self.usable(&inventory, id).is_none())
            .filter_map(|id| writer.parts.get(id).map(|part| (id.clone(), part.segment.entries().len())))
            .collect();
        let critical = news.iter().filter_map(Entry::newer).filter(|newer| newer.critical);
        let upgrade_for = NewerRecord::latest(writer.upgrade_for.clone(), critical);
        if let Some(newer) = upgrade_for.as_ref().filter(|_| upgrade_for != writer.upgrade_for) {
            tracing::error!("{}; until then nothing is called or written", newer.refusal());
        }
        warn_of(&news);
        writer.upgrade_for = upgrade_for;
        writer.damage = damage;
        writer.position = news.last().map_or_else(Position::default, |last| Position {
            seq: last.record.seq,
            checksum: last.checksum.to_string(),
        });
        writer.inventory = inventory;
        writer.definitions = definitions;
        writer.segments = segments;
        Arc::make_mut(&mut writer.journal).append(&news);
        writer.standings_due = false;
        for id in &touched {
            match self.part(writer, id) {
                Some(part) => writer.parts.insert(id.clone(), part),
                None => writer.parts.remove(id),
            };
        }
        self.publish(writer, standings);
        let now = self.now.load_full();
        let enabled = |id: &SourceId| self.usable(&now.inventory, id).is_some();
        for connector in self.connections.take_changed(&now.sources, enabled) {
            // Calls in flight may finish; nobody waits for them here.
            self.tasks.spawn(async move { connector.close().await });
        }
        for (id, removed_count) in gone {
            tracing::info!(server_name = %id, removed_count, "tools.registry.server.removed");
        }
        for entry in news {
            let _nobody_listens = self.notices.send(Notice::Recorded(entry.record));
        }
        Ok(())
    }

    /// What the data directory remembers of the store. That it cannot be read is damage until it can.
    pub(super) fn remembered_position(&self, damage: &mut JournalDamage) -> Option<Position> {
        let remembered = self.options.head.as_ref()?.read();
        if matches!(damage.head, Some(Damage::HeadUnreadable { .. })) {
            damage.head = None;
        }
        remembered.unwrap_or_else(|unreadable| {
            damage.head = Some(unreadable);
            None
        })
    }

    /// Measurements that lie on a damaged page are no loss.
    async fn readable_standings(&self) -> Result<BTreeMap<SourceId, Standing>> {
        match self.store.standings().await {
            Err(error) if self.options.head.is_some() && StoreState::of(&error) == StoreState::Damaged => {
                tracing::warn!(%error, "measurements cannot be read and are left out");
                Ok(BTreeMap::new())
            }
            standings => standings,
        }
    }

    /// The journal was found to be damaged; nothing else changed.
    pub(super) fn publish_damage(&self, writer: &Writer) {
        let damage = Some(Arc::new(writer.damage.clone())).filter(|damage| !damage.is_empty());
        self.swap(|now| now.damage = damage.clone());
    }

    /// Whether the environment of this process leads to another server, or as somebody else, than the declaration.
    pub(crate) fn overridden(&self, id: &SourceId) -> bool {
        self.overriding(id).is_some_and(|overriding| overriding.url.is_some() || overriding.token.is_some())
    }

    /// Takes a list in for this process alone, or why there is none; says what differs from the one before.
    pub(crate) async fn record_here(
        &self,
        source: &Source,
        after: Option<(Arc<Packed>, Compared)>,
        standing: Standing,
    ) -> Result<Delta> {
        let mut writer = self.writer.lock().await;
        let before = writer.before(&source.id);
        let delta = match &after {
            Some((after, compared)) => match compared.delta(&before) {
                Some(delta) => delta,
                None => Delta::between(before.packed(), after)?,
            },
            None => Delta::default(),
        };
        let after = after.map(|(after, _)| after);
        let known = writer.here.remove(&source.id).and_then(|here| here.segment);
        let segment = after.map(|after| Arc::new(Segment::prefixed(after))).or(known);
        writer.here.insert(source.id.clone(), Here { segment, standing });
        if let Some(part) = self.part(&writer, &source.id) {
            writer.parts.insert(source.id.clone(), part);
        }
        let standings = BTreeMap::clone(&self.now.load().standings);
        self.publish(&writer, writer.with_here(standings));
        Ok(delta)
    }

    /// Takes in a list whose source offers what it offered, in place of one that an older version made of it: what is
    /// shown of a tool is no part of its fingerprint.
    pub(crate) async fn replace_segment(&self, after: &Arc<Packed>) {
        let mut writer = self.writer.lock().await;
        let known = writer.segments.get(&after.source);
        let Some(known) = known.filter(|known| known.fingerprint() == after.fingerprint) else { return };
        if known.packed().body == after.body {
            return;
        }
        writer.segments.insert(after.source.clone(), Arc::new(Segment::prefixed(after.clone())));
        if let Some(part) = self.part(&writer, &after.source) {
            writer.parts.insert(after.source.clone(), part);
        }
        self.publish(&writer, self.now.load().standings.clone());
    }

    /// The defaults changed, and with them every source.
    pub(crate) async fn republish(&self) {
        let mut writer = self.writer.lock().await;
        let ids: Vec<SourceId> = writer.definitions.keys().cloned().collect();
        for id in ids {
            match self.part(&writer, &id) {
                Some(part) => writer.parts.insert(id, part),
                None => writer.parts.remove(&id),
            };
        }
        self.publish(&writer, self.now.load().standings.clone());
    }

    fn publish(&self, writer: &Writer, standings: Arc<BTreeMap<SourceId, Standing>>) {
        let before = self.now.load().catalog.hash();
        let sources = self.effective_sources(writer);
        let declared = writer.definitions.iter().map(|(id, (_, source))| (id.clone(), source.clone()));
        let declared: Arc<BTreeMap<SourceId, Arc<Source>>> = Arc::new(declared.collect());
        let inventory = Arc::new(writer.inventory.clone());
        let connects_to = self.hashes(&sources);
        let damage = Some(Arc::new(writer.damage.clone())).filter(|damage| !damage.is_empty());
        self.swap(|now| {
            // Looked up in here: a tool that the host registers meanwhile makes this run once more.
            let embedded = self.connections.builtins().embedded_part();
            let parts = writer.parts.values().cloned().chain(embedded).collect();
            now.catalog = Arc::new(self.catalog_of(inventory.version, parts));
            now.inventory = inventory.clone();
            now.declared = declared.clone();
            now.sources = sources.clone();
            now.connects_to = connects_to.clone();
            now.standings = standings.clone();
            now.journal = writer.journal.clone();
            now.upgrade_for = writer.upgrade_for.clone();
            now.damage = damage.clone();
            now.position = writer.position.clone();
        });
        let catalog = self.now.load().catalog.clone();
        if before != catalog.hash() {
            self.tell_updated(&catalog);
        }
    }

    fn catalog_of(&self, version: u64, parts: Vec<Arc<Part>>) -> Catalog {
        Catalog::build(version, parts).with_essential(self.expose.load().essential.clone())
    }

    /// References may resolve to something else than when they were last looked up: a file rewritten, say.
    pub(crate) fn look_again(&self, among: Option<&[SourceId]>) {
        let now = self.now.load_full();
        // The environment of a process stays as it is; a file may be rewritten, and what is missing may appear.
        let unsettled = |id: &SourceId, source: &Source| {
            now.connects_to.get(id).is_none_or(Option::is_none) || refers_to_file(&source.kind)
        };
        let all = among.is_none().then(|| now.sources.iter()).into_iter().flatten();
        let some = among.unwrap_or_default().iter().filter_map(|id| now.sources.get_key_value(id));
        let wanted = all.chain(some).filter(|(id, source)| unsettled(id, source));
        let moved: Vec<_> = wanted
            .map(|(id, source)| (id.clone(), self.hash(source)))
            .filter(|(id, hash)| now.connects_to.get(id) != Some(hash))
            .collect();
        if !moved.is_empty() {
            self.swap(|now| Arc::make_mut(&mut now.connects_to).extend(moved.iter().cloned()));
        }
    }

    /// A source that must not be contacted is not looked up either: its references may be anybody's.
    fn hash(&self, source: &Source) -> Option<Fingerprint> {
        self.trusted(&source.id).ok().and_then(|()| connects_to(&self.key, &source.kind))
    }

    fn hashes(&self, sources: &BTreeMap<SourceId, Arc<Source>>) -> Arc<BTreeMap<SourceId, Option<Fingerprint>>> {
        let hashes = sources.iter().map(|(id, source)| (id.clone(), self.hash(source)));
        Arc::new(hashes.collect())
    }

    /// The embedded tools changed; nothing else did.
    pub(crate) fn publish_embedded(&self) {
        let builtins = self.connections.builtins();
        self.swap(|now| {
            let known = now.catalog.parts().filter(|part| part.segment.source() != builtins.embedded_id()).cloned();
            let parts = known.chain(builtins.embedded_part()).collect();
            now.catalog = Arc::new(self.catalog_of(now.catalog.version, parts));
        });
        self.tell_updated(&self.now.load().catalog);
    }

    pub(crate) fn publish_invalid(&self, invalid: BTreeMap<SourceId, Failure>) {
        let invalid = Arc::new(invalid);
        self.swap(|now| now.invalid = invalid.clone());
    }

    fn tell_updated(&self, catalog: &Catalog) {
        let count = |kind: &str| {
            catalog
                .parts()
                .filter(|part| part.manner.kind == kind)
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
        let _nobody_listens = self.notices.send(Notice::CatalogChanged);
    }

    fn swap(&self, change: impl Fn(&mut Snapshot)) {
        self.now.rcu(|now| {
            let mut next = Snapshot::clone(now);
            change(&mut next);
            next
        });
    }
}
