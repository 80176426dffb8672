//! Copies one store into another, of any kind: `toolcrib store copy`, `backup` and `restore`.
//!
//! The source may be in use; the copy ends with the record that was the last when it began. The target is marked as
//! unfinished until everything was compared. An interrupted copy is continued by the same call: records that are there
//! are compared instead of written.
//!
//! ```text
//! read the source: is it complete? ── begin_copy ── records, content, measurements ── compare ── finish_copy
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::features::FeatureList;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Event, Inventory};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId, Timestamp};

use super::{CopyRun, JournalPosition, Measurements, OpenedStore, RememberedHead, SourceStatus, Store, VERIFY_HINT};
use crate::state::{HeadCheck, JournalDamage, JournalEntry};

/// Number of records that are read and written at once.
const RECORD_BATCH: usize = 2_000;
/// Number of manifests or lists that are in memory at once. One of a large source has several megabytes.
const LIST_BATCH: usize = 16;
/// Number of definitions that are read at once.
const DEFINITION_BATCH: usize = 500;
/// Maximum number of attempts to read the definitions at the end of a journal that grows.
const MAX_DEFINITION_READS: usize = 20;
/// Number of sources whose checks are in memory at once.
const CHECKED_SOURCE_BATCH: usize = 100;

/// Result of a copy, after everything was compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Number of records.
    pub records: u64,
    /// Sequence number of the last record.
    pub position: u64,
    /// Number of manifests.
    pub manifests: usize,
    /// Number of lists of prompts and resources.
    pub features: usize,
    /// Number of definitions of sources.
    pub definitions: usize,
    /// Number of definitions and lists that records refer to and the source does not have.
    #[serde(skip_serializing_if = "is_zero")]
    pub missing: usize,
    /// Always true: a copy that differs from its source is an error.
    pub verified: bool,
    /// Entry for the head file of the copy.
    #[serde(skip)]
    pub(crate) head: RememberedHead,
}

/// For `skip_serializing_if`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Step of a copy, with the number of records that it has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyProgress {
    /// The journal of the source is checked.
    Reading(u64),
    /// Records are written, of a total.
    Copying(u64, u64),
    /// Manifests, definitions and measurements are written.
    CopyingContent,
    /// Records of both stores are compared, of a total.
    Comparing(u64, u64),
}

/// Reports the progress of a copy.
pub type ReportProgress<'a> = &'a (dyn Fn(CopyProgress) + Send + Sync);

/// Copies a store into an empty one, or continues an interrupted copy. A target that is the finished copy of this
/// source is only compared. Fails with `STORE_UNAVAILABLE` for a damaged source, and with `CONFLICT` for a target with
/// other content; nothing is changed then.
pub async fn copy_store(from: &OpenedStore, to: &dyn Store, progress: ReportProgress<'_>) -> Result<CopyReport> {
    let source = SourceJournal::read(from, progress).await?;
    let store = &*from.store;
    let key = store.key().await?;
    let run = CopyRun::new();
    let content = match to.administration().begin_copy(key, run).await {
        Ok(()) => {
            copy_records(store, to, run, &source, progress).await?;
            progress(CopyProgress::CopyingContent);
            let content = copy_content(store, to, &source, ContentStep::Write).await?;
            copy_measurements(store, to, run).await?;
            compare_records(store, to, &source, progress).await?;
            to.administration().finish_copy(run).await?;
            content
        }
        // A command that was killed between the last write and its output is repeated.
        Err(refusal) => {
            let is_copy = to.key().await? == key && is_finished_copy(store, to).await?;
            if !is_copy || compare_records(store, to, &source, progress).await.is_err() {
                return Err(refusal);
            }
            copy_content(store, to, &source, ContentStep::Compare).await?
        }
    };
    Ok(CopyReport {
        records: source.records,
        position: source.head.position.seq,
        manifests: content.manifests,
        features: content.features,
        definitions: content.definitions,
        missing: content.missing,
        verified: true,
        head: source.head,
    })
}

/// Whether the target is a finished copy, and not the source under another name, which would be compared with itself.
/// Each finished copy has a mark of its own, and only copying makes one.
async fn is_finished_copy(from: &dyn Store, to: &dyn Store) -> Result<bool> {
    let finished = to.administration().finished_copy().await?;
    Ok(finished.is_some() && finished != from.administration().finished_copy().await?)
}

/// The journal of the source, as it was when the copy began, and the definitions of the sources that exist at its end.
struct SourceJournal {
    head: RememberedHead,
    records: u64,
    definitions: BTreeMap<Fingerprint, Source>,
    /// Number of definitions that the store does not have.
    missing_definitions: usize,
    references: RecordReferences,
}

/// Manifests and lists that records refer to: every one, not only the current ones, because `history` reads old ones
/// too.
#[derive(Debug, Default)]
pub(crate) struct RecordReferences {
    pub(crate) manifests: BTreeSet<Fingerprint>,
    pub(crate) features: BTreeSet<Fingerprint>,
}

impl RecordReferences {
    /// Adds those of an event.
    pub(crate) fn add(&mut self, event: &Event) {
        if let Event::InventoryRecorded { fingerprint, .. } = event {
            self.manifests.insert(*fingerprint);
        } else if let Event::FeaturesRecorded { fingerprint, .. } = event {
            self.features.insert(*fingerprint);
        }
    }
}

impl SourceJournal {
    /// Reads the journal and refuses a damaged one, like a registry. Reads the definitions together with it: those of
    /// changed and removed sources are removed from a store that is in use.
    async fn read(from: &OpenedStore, progress: ReportProgress<'_>) -> Result<SourceJournal> {
        let head_file = from.head.as_ref();
        let store_damage = head_file.and_then(|head| head.store_damage.clone());
        let mut damage = JournalDamage { store: store_damage, ..JournalDamage::default() };
        // Before the records: another process may write on, see `apply_new_records`.
        let remembered = damage.read_head(head_file).await;
        let kept_head = from.store.kept_head().await?;
        let head_check = HeadCheck::new(JournalPosition::default(), remembered, kept_head);
        let mut reader = JournalReader {
            store: &*from.store,
            head_check,
            damage,
            inventory: Inventory::default(),
            references: RecordReferences::default(),
            position: JournalPosition::default(),
            records: 0,
        };
        reader.read_new_records(progress).await?;
        let mut definitions = BTreeMap::new();
        for _ in 0..MAX_DEFINITION_READS {
            let missing = reader.read_missing_definitions(&mut definitions, progress).await?;
            let position = reader.position.seq;
            if missing > 0 {
                reader.read_new_records(progress).await?;
            }
            // Without a new record, the source lacks what is missing.
            if reader.position.seq == position {
                return reader.finish(definitions, missing);
            }
        }
        Err(Error::new(Code::StoreUnavailable, "the sources of the store keep changing; try again"))
    }
}

/// Reads a journal that may grow meanwhile.
struct JournalReader<'a> {
    store: &'a dyn Store,
    head_check: HeadCheck,
    damage: JournalDamage,
    inventory: Inventory,
    references: RecordReferences,
    position: JournalPosition,
    records: u64,
}

impl JournalReader<'_> {
    /// Reads the records that were written since the last call.
    async fn read_new_records(&mut self, progress: ReportProgress<'_>) -> Result<()> {
        loop {
            progress(CopyProgress::Reading(self.records));
            let batch = self.store.records(self.position.seq, RECORD_BATCH).await?;
            if batch.is_empty() {
                return Ok(());
            }
            for stored in batch {
                let entry = JournalEntry::parse(stored);
                self.head_check.observe(&entry);
                self.damage.add_record(self.inventory.version, &entry);
                self.inventory.apply(&entry.record);
                self.references.add(&entry.record.event);
                self.position = JournalPosition { seq: entry.record.seq, checksum: entry.checksum.to_string() };
                self.records += 1;
            }
        }
    }

    /// Adds definitions of the current sources that were not read yet. Returns how many the store does not have.
    async fn read_missing_definitions(
        &self,
        definitions: &mut BTreeMap<Fingerprint, Source>,
        progress: ReportProgress<'_>,
    ) -> Result<usize> {
        progress(CopyProgress::Reading(self.records));
        let names: BTreeSet<Fingerprint> = self.inventory.sources().map(|(_, state)| state.definition).collect();
        definitions.retain(|name, _| names.contains(name));
        let unread: Vec<Fingerprint> = names.into_iter().filter(|name| !definitions.contains_key(name)).collect();
        let mut missing = unread.len();
        for names in unread.chunks(DEFINITION_BATCH) {
            let found = self.store.definitions(names).await?;
            missing -= found.len();
            definitions.extend(found);
        }
        Ok(missing)
    }

    /// Fails if the journal is damaged.
    fn finish(mut self, definitions: BTreeMap<Fingerprint, Source>, missing: usize) -> Result<SourceJournal> {
        self.head_check.finish(self.inventory.version, &mut self.damage);
        if !self.damage.is_empty() {
            return Err(self.damage.to_error());
        }
        let head = RememberedHead { position: self.position, has_rules: !self.inventory.rules().is_empty() };
        let JournalReader { records, references, .. } = self;
        Ok(SourceJournal { head, records, definitions, missing_definitions: missing, references })
    }
}

/// Copies the records that the target does not have. Those that it has are compared at the end.
async fn copy_records(
    from: &dyn Store,
    to: &dyn Store,
    run: CopyRun,
    source: &SourceJournal,
    progress: ReportProgress<'_>,
) -> Result<()> {
    let end = source.head.position.seq;
    let mut after = last_seq(to).await?;
    while after < end {
        progress(CopyProgress::Copying(after, end));
        let mut batch = from.records(after, RECORD_BATCH).await?;
        // Records that were written since the copy began are left out.
        batch.retain(|record| record.seq <= end);
        let Some(last) = batch.last().map(|record| record.seq) else {
            return Err(changed_source_error("records were removed"));
        };
        to.administration().restore_records(run, after, &batch).await?;
        after = last;
    }
    Ok(())
}

/// Returns the sequence number of the last record of a store, or 0.
async fn last_seq(store: &dyn Store) -> Result<u64> {
    let mut after = 0;
    while let Some(last) = store.records(after, RECORD_BATCH).await?.last() {
        after = last.seq;
    }
    Ok(after)
}

/// Number of items that were copied and compared.
#[derive(Debug, Default)]
struct CopiedContent {
    manifests: usize,
    features: usize,
    definitions: usize,
    missing: usize,
}

/// Whether content is written before it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentStep {
    Write,
    Compare,
}

/// Copies definitions, manifests and lists, and reads each back.
async fn copy_content(
    from: &dyn Store,
    to: &dyn Store,
    source: &SourceJournal,
    step: ContentStep,
) -> Result<CopiedContent> {
    let writes = step == ContentStep::Write;
    let mut copied = CopiedContent {
        definitions: source.definitions.len(),
        missing: source.missing_definitions,
        ..CopiedContent::default()
    };
    for (name, definition) in source.definitions.iter().filter(|_| writes) {
        to.put_definition(*name, definition).await?;
    }
    let names: Vec<Fingerprint> = source.definitions.keys().copied().collect();
    let mut written = BTreeMap::new();
    for names in names.chunks(DEFINITION_BATCH) {
        written.extend(to.definitions(names).await?);
    }
    ensure_equal(&source.definitions, &written, "the definitions")?;
    let manifests: Vec<Fingerprint> = source.references.manifests.iter().copied().collect();
    for fingerprints in manifests.chunks(LIST_BATCH) {
        let found = from.manifests(fingerprints).await?;
        for manifest in found.iter().filter(|_| writes) {
            to.put_manifest(manifest).await?;
        }
        let written = to.manifests(fingerprints).await?;
        ensure_equal(&manifest_contents(&found)?, &manifest_contents(&written)?, "the manifests")?;
        copied.manifests += found.len();
        copied.missing += fingerprints.len() - found.len();
    }
    let features: Vec<Fingerprint> = source.references.features.iter().copied().collect();
    for fingerprints in features.chunks(LIST_BATCH) {
        let found = from.features(fingerprints).await?;
        for list in found.iter().filter(|_| writes) {
            to.put_features(list).await?;
        }
        let written = to.features(fingerprints).await?;
        ensure_equal(&feature_contents(&found)?, &feature_contents(&written)?, "the lists of prompts and resources")?;
        copied.features += found.len();
        copied.missing += fingerprints.len() - found.len();
    }
    Ok(copied)
}

/// Returns everything that is stored of manifests, in order.
fn manifest_contents(manifests: &[PackedManifest]) -> Result<BTreeSet<(Fingerprint, String, Arc<String>)>> {
    let contents = |manifest: &PackedManifest| {
        let index = manifest.index_json().context(Code::Internal, "write the index of a manifest")?;
        Ok((manifest.fingerprint, index, Arc::clone(&manifest.body)))
    };
    manifests.iter().map(contents).collect()
}

/// Returns everything that is stored of lists of prompts and resources, in order.
fn feature_contents(lists: &[FeatureList]) -> Result<BTreeSet<(Fingerprint, String, String)>> {
    let contents =
        |list: &FeatureList| Ok((list.summary.fingerprint, list.summary.to_json()?, list.items_text()?.to_string()));
    lists.iter().map(contents).collect()
}

/// Copies statuses, checks, counts, uses of tokens and logins, and reads them back. The source may go on counting: what
/// was read once is written and compared.
async fn copy_measurements(from: &dyn Store, to: &dyn Store, run: CopyRun) -> Result<()> {
    let measured = read_measurements(from).await?;
    to.administration().restore_measurements(run, &measured).await?;
    ensure_equal(&measured, &read_measurements(to).await?, "the measurements")?;
    let sources = from.administration().checked_sources().await?;
    for sources in sources.chunks(CHECKED_SOURCE_BATCH) {
        let checks = read_checks(from, sources).await?;
        to.administration().restore_measurements(run, &checks).await?;
        ensure_equal(&checks, &read_checks(to, sources).await?, "the checks")?;
    }
    Ok(())
}

/// Reads all measurements but checks, of which there may be many.
async fn read_measurements(store: &dyn Store) -> Result<Measurements> {
    let mut statuses = store.source_statuses().await?;
    // A lease is of a running process; a source that has nothing else was never discovered.
    for status in statuses.values_mut() {
        status.discovering_until = None;
    }
    statuses.retain(|_, status| *status != SourceStatus::default());
    let mut logins = store.logins(Timestamp(i64::MIN)).await?;
    logins.sort_by_key(|login| login.digest);
    Ok(Measurements {
        statuses,
        checks: Vec::new(),
        call_counts: store.call_counts().await?,
        cache_counts: store.cache_counts().await?,
        token_uses: store.token_uses().await?,
        logins,
    })
}

/// Reads the checks of some sources, oldest first.
async fn read_checks(store: &dyn Store, sources: &[SourceId]) -> Result<Measurements> {
    let mut checks = Vec::new();
    for source in sources {
        checks.extend(store.checks(source).await?.into_iter().rev());
    }
    Ok(Measurements { checks, ..Measurements::default() })
}

/// Compares all records of both stores, read again: every field, checksums included, and their number.
async fn compare_records(
    from: &dyn Store,
    to: &dyn Store,
    source: &SourceJournal,
    progress: ReportProgress<'_>,
) -> Result<()> {
    let end = source.head.position.seq;
    let mut count = 0;
    let mut after = 0;
    loop {
        progress(CopyProgress::Comparing(after, end));
        let written = to.records(after, RECORD_BATCH).await?;
        if written.is_empty() {
            break;
        }
        let expected = from.records(after, RECORD_BATCH).await?;
        // A store may return fewer records than requested.
        let compared = written.len().min(expected.len());
        if compared == 0 || written[..compared] != expected[..compared] {
            return Err(other_content_error("the records"));
        }
        count += compared as u64;
        after = written[compared - 1].seq;
    }
    if (count, after) == (source.records, end) { Ok(()) } else { Err(other_content_error("the number of records")) }
}

/// Fails if what was read back differs from what was written.
fn ensure_equal<T: PartialEq>(expected: &T, written: &T, what: &str) -> Result<()> {
    if expected == written { Ok(()) } else { Err(other_content_error(what)) }
}

/// Error for a target that has other content than the source: an unfinished copy of a source that was replaced since,
/// or a target that another process writes to.
fn other_content_error(what: &str) -> Error {
    let message = format!("{what} in the target differ from those of the source; copy into an empty store");
    Error::new(Code::Conflict, message).with_retryable(false)
}

/// Error for a source that lost content during the copy.
fn changed_source_error(what: &str) -> Error {
    Error::new(Code::StoreUnavailable, format!("the source has changed: {what}{VERIFY_HINT}")).with_retryable(false)
}
