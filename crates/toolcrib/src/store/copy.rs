//! Copies one store into another, of any kind: `toolcrib store copy`, `backup` and `restore`.
//!
//! The source may be in use; the copy ends with the record that was the last when it began. The target is marked as
//! unfinished until everything was compared. An interrupted copy is continued by the same call: records that are there
//! are compared instead of written.
//!
//! ```text
//! read the source: is it complete? ── begin_copy ── records, content, measurements ── compare ── finish_copy
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::features::FeatureList;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Event, Inventory};
use toolcrib_core::manifest::PackedManifest;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId, Timestamp};

use super::{JournalPosition, Measurements, OpenedStore, RememberedHead, SourceStatus, Store, VERIFY_HINT};
use crate::state::{HeadCheck, JournalDamage, JournalEntry};

/// Number of records that are read and written at once.
const RECORD_BATCH: usize = 2_000;
/// Number of manifests or lists that are in memory at once. One of a large source has several megabytes.
const LIST_BATCH: usize = 16;
/// Number of definitions that are in memory at once.
const DEFINITION_BATCH: usize = 500;
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

/// Copies a store into an empty one, or continues an interrupted copy. A target that is the finished copy of this source
/// is only compared. Fails with `STORE_UNAVAILABLE` for a damaged source, and with `CONFLICT` for a target with other
/// content; nothing is changed then.
pub async fn copy_store(from: &OpenedStore, to: &dyn Store, progress: ReportProgress<'_>) -> Result<CopyReport> {
    let source = SourceJournal::read(from, progress).await?;
    let store = &*from.store;
    let key = store.key().await?;
    let content = match to.administration().begin_copy(key).await {
        Ok(()) => {
            copy_records(store, to, &source, progress).await?;
            progress(CopyProgress::CopyingContent);
            let content = copy_content(store, to, &source, ContentStep::Write).await?;
            copy_measurements(store, to).await?;
            compare_records(store, to, &source, progress).await?;
            to.administration().finish_copy().await?;
            content
        }
        // A command that was killed between the last write and its output is repeated.
        Err(refusal) => {
            let is_copy = source.records > 0 && to.key().await? == key;
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

/// The journal of the source, as it was when the copy began.
struct SourceJournal {
    head: RememberedHead,
    records: u64,
    /// Definitions of the sources that exist at its end.
    definitions: Vec<Fingerprint>,
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
    /// Reads the journal and refuses a damaged one, like a registry.
    async fn read(from: &OpenedStore, progress: ReportProgress<'_>) -> Result<SourceJournal> {
        let head_file = from.head.as_ref();
        let store_damage = head_file.and_then(|head| head.store_damage.clone());
        let mut damage = JournalDamage { store: store_damage, ..JournalDamage::default() };
        // Before the records: another process may write on, see `apply_new_records`.
        let mut head_check = HeadCheck::new(JournalPosition::default(), damage.read_head(head_file).await);
        let mut inventory = Inventory::default();
        let mut references = RecordReferences::default();
        let mut position = JournalPosition::default();
        let mut records = 0;
        loop {
            progress(CopyProgress::Reading(records));
            let batch = from.store.records(position.seq, RECORD_BATCH).await?;
            if batch.is_empty() {
                break;
            }
            for stored in batch {
                let entry = JournalEntry::parse(stored);
                head_check.observe(&entry);
                damage.add_record(inventory.version, &entry);
                inventory.apply(&entry.record);
                references.add(&entry.record.event);
                position = JournalPosition { seq: entry.record.seq, checksum: entry.checksum.to_string() };
                records += 1;
            }
        }
        head_check.finish(inventory.version, &mut damage);
        if !damage.is_empty() {
            return Err(damage.to_error());
        }
        let definitions = inventory.sources().map(|(_, state)| state.definition).collect();
        let head = RememberedHead { position, has_rules: !inventory.rules().is_empty() };
        Ok(SourceJournal { head, records, definitions, references })
    }
}

/// Copies the records that the target does not have. Those that it has are compared at the end.
async fn copy_records(
    from: &dyn Store,
    to: &dyn Store,
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
        to.administration().restore_records(after, &batch).await?;
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
    let mut copied = CopiedContent::default();
    for names in source.definitions.chunks(DEFINITION_BATCH) {
        let mut found = from.definitions(names).await?;
        for (name, definition) in found.iter().filter(|_| writes) {
            to.put_definition(*name, definition).await?;
        }
        let mut written = to.definitions(names).await?;
        found.sort_by_key(|(name, _)| *name);
        written.sort_by_key(|(name, _)| *name);
        ensure_equal(&found, &written, "the definitions")?;
        copied.definitions += found.len();
        copied.missing += names.len() - found.len();
    }
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
async fn copy_measurements(from: &dyn Store, to: &dyn Store) -> Result<()> {
    let measured = read_measurements(from).await?;
    to.administration().restore_measurements(&measured).await?;
    ensure_equal(&measured, &read_measurements(to).await?, "the measurements")?;
    let sources = from.administration().checked_sources().await?;
    for sources in sources.chunks(CHECKED_SOURCE_BATCH) {
        let checks = read_checks(from, sources).await?;
        to.administration().restore_measurements(&checks).await?;
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
        let Some(last) = written.last().map(|record| record.seq) else { break };
        let mut expected = from.records(after, RECORD_BATCH).await?;
        expected.truncate(written.len());
        if expected != written {
            return Err(other_content_error("the records"));
        }
        count += written.len() as u64;
        after = last;
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
