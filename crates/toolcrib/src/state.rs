//! State of a registry: the journal's only write path, and the immutable [`Snapshot`] that readers see.
//!
//! A write decides on the folded journal, appends with the expected version, catches up, and publishes
//! ([`State::write`]). Readers load the snapshot and never take a lock. The inventory is derived from the journal;
//! definitions, manifests and measurements are rows of the store.
//!
//! `WriterState` (in `publish`) is what the next snapshot is built from, behind the writer lock. `State` knows the
//! connectors for three things: to say which sources changed, so that their connections are closed, to load built-in
//! tools, and to read the files of references. It never contacts a source.

mod snapshot;
mod tool_names;

// From the journal to the published snapshot.
mod assemble;
mod connection_fingerprints;
mod inventory_snapshot;
mod journal;
mod publish;
mod reconcile;

// States in which calls and writes are refused.
mod damage;
mod newer_records;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::futures::Notified;
use tokio::sync::{MutexGuard, Notify, broadcast};
use tokio::time::{Instant, sleep};
use toolcrib_catalog::search::embeddings::LazyModel;
use toolcrib_catalog::{Catalog, CatalogSource};
use toolcrib_config::{Config, ConfigOrigin, Expose, IssuerConfig, WarmPolicy};
use toolcrib_core::access_rules::RuleKind;
use toolcrib_core::features::{FeatureList, RecordedFeatures};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, Declaration, Event, Origin};
use toolcrib_core::limits::CallLimits;
use toolcrib_core::source::SourceSettings;
use toolcrib_core::{Code, Error, Result, Source, SourceId, Timestamp};

use crate::connectors::Connectors;
use crate::node::NodeId;
use crate::notice::RegistryNotice;
use crate::options::{RegistryOptions, Trust};
use crate::registry::Precondition;
use crate::search_model::configured_model;
use crate::store::{Commit, CommitOutcome, Measurement, Store};
use crate::store_health::StoreMonitor;
use crate::tasks::Tasks;

pub(crate) use damage::{HeadCheck, JournalDamage};
pub(crate) use inventory_snapshot::InventorySnapshot;
pub(crate) use journal::{EntryStatus, Journal, JournalEntry, READ_BATCH_SIZE};
pub(crate) use newer_records::NewerRecord;
pub(crate) use publish::{PrecomputedDelta, WriterState};
pub(crate) use snapshot::{EnvironmentOverrides, Snapshot, list_timeout};
pub(crate) use tool_names::SourceToolNames;

/// Time for which a write is repeated that other processes forestall. Each conflict means that another process made
/// progress; with many busy writers a single one needs many attempts.
const CONFLICT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum pause after the first conflict; doubled after each one.
const MIN_CONFLICT_PAUSE: Duration = Duration::from_millis(1);
/// Maximum pause after any conflict.
const MAX_CONFLICT_PAUSE: Duration = Duration::from_millis(20);

/// The only write path to the journal, and the snapshot that readers see.
///
/// More than twenty methods, because every way to change the snapshot is one of them: an owner of a part of it could
/// publish a snapshot in which the parts do not fit together.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Arc<dyn Store>,
    /// Secret of the store: key of the hashes over definitions and connection data, which must not be guessable.
    pub(crate) store_key: [u8; 32],
    /// Identity of this process, with which its handles begin.
    pub(crate) node: NodeId,
    /// Results of the accesses to the store.
    pub(crate) store_monitor: StoreMonitor,
    /// Whether other nodes can share the store: it keeps their reports.
    is_shared: AtomicBool,
    options: Arc<RegistryOptions>,
    /// Settings of the configuration that hold for all sources; replaced by `reconfigure`.
    pub(crate) settings: ArcSwap<ConfiguredSettings>,
    /// Extent of the trust in the project's file.
    pub(crate) trust: ArcSwap<Trust>,
    /// Held while the rules of the configuration are written, so that an earlier set does not replace a later one. Taken
    /// before `writer`.
    reconciling_rules: tokio::sync::Mutex<()>,
    /// Configuration with changes whose records may be written only after the end of an upgrade of all nodes.
    deferred_config: tokio::sync::Mutex<Option<Config>>,
    /// State of the write path, which every writer locks. Readers use `snapshot`.
    writer: tokio::sync::Mutex<WriterState>,
    /// Current state for readers; replaced as a whole.
    snapshot: ArcSwap<Snapshot>,
    /// Notified whenever `snapshot` was replaced.
    published: Notify,
    /// Sends to every subscriber of the registry.
    notices: broadcast::Sender<RegistryNotice>,
    /// Told which sources changed; also holds the built-in tools.
    connectors: Arc<Connectors>,
    /// Background tasks of the registry, such as closing connections of changed sources.
    tasks: Tasks,
}

/// Settings of the configuration that hold for all sources.
#[derive(Debug)]
pub(crate) struct ConfiguredSettings {
    /// Names of the sources in the configuration.
    pub(crate) source_names: BTreeMap<SourceId, String>,
    /// Default settings of sources.
    pub(crate) defaults: SourceSettings,
    /// Which tools agents are shown.
    pub(crate) expose: Arc<Expose>,
    /// Limits on the calls of each caller.
    pub(crate) caller_limits: CallLimits,
    /// Policy for discovering due sources ahead of requests.
    pub(crate) warm: WarmPolicy,
    /// Model for semantic search, which the first search reads.
    pub(crate) search_model: Option<Arc<LazyModel>>,
    /// Identity providers, whose mapping of roles previews use.
    pub(crate) issuers: Vec<IssuerConfig>,
    /// File and line of each group, access rule and policy.
    pub(crate) rule_origins: BTreeMap<(RuleKind, String), ConfigOrigin>,
}

impl ConfiguredSettings {
    pub(crate) fn from_config(config: &Config) -> ConfiguredSettings {
        let names = config.sources.iter().map(|source| (source.id.clone(), source.original_name.clone()));
        let rule_origins = config.rules.iter().map(|configured| {
            let key = (configured.rule.kind(), configured.rule.name().to_owned());
            (key, ConfigOrigin { file: configured.file.clone(), line: configured.line })
        });
        ConfiguredSettings {
            source_names: names.collect(),
            defaults: config.defaults.clone(),
            expose: Arc::new(config.expose.clone()),
            caller_limits: config.limits,
            warm: config.warm,
            search_model: config.search_model.as_deref().map(configured_model),
            issuers: config.identity.issuers.clone(),
            rule_origins: rule_origins.collect(),
        }
    }

    /// Keeps the model of the previous settings, which may be loaded, if the configuration names the same one.
    pub(crate) fn with_model_of(mut self, previous: &ConfiguredSettings) -> ConfiguredSettings {
        let label = |model: &Option<Arc<LazyModel>>| model.as_ref().map(|model| model.label().to_owned());
        if label(&self.search_model) == label(&previous.search_model) {
            self.search_model.clone_from(&previous.search_model);
        }
        self
    }

    /// Builds a catalogue, with the tools marked that the configuration calls essential.
    fn build_catalog(&self, version: u64, sources: Vec<Arc<CatalogSource>>) -> Catalog {
        let catalog = Catalog::build(version, sources).with_essential(self.expose.essential.clone());
        let catalog = catalog.with_essential_patterns(&self.expose.essential_patterns);
        catalog.with_search_model(self.search_model.clone())
    }
}

/// Result of an append to the journal.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// The events that were written; empty when the state was already as requested.
    Applied(Vec<Event>),
    /// A discovery that started later has already been recorded, so this one was dropped.
    Superseded,
}

impl State {
    /// Creates the state before any record was read; `catch_up` reads the journal.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        store_key: [u8; 32],
        config: &Config,
        options: &Arc<RegistryOptions>,
        notices: &broadcast::Sender<RegistryNotice>,
        connectors: Arc<Connectors>,
        tasks: Tasks,
    ) -> State {
        let snapshot = Snapshot {
            environment: EnvironmentOverrides::new(&options.environment),
            blocked_sources: Arc::new(options.trust.blocked_sources()),
            node_label: options.node_label.as_str().into(),
            ..Snapshot::default()
        };
        State {
            store,
            store_key,
            node: NodeId::random(&store_key),
            store_monitor: StoreMonitor::new(options.clock.now()),
            is_shared: AtomicBool::new(false),
            settings: ArcSwap::from_pointee(ConfiguredSettings::from_config(config)),
            trust: ArcSwap::from_pointee(options.trust.clone()),
            reconciling_rules: tokio::sync::Mutex::default(),
            deferred_config: tokio::sync::Mutex::default(),
            writer: tokio::sync::Mutex::new(WriterState::new(options)),
            snapshot: ArcSwap::from_pointee(snapshot),
            published: Notify::new(),
            notices: notices.clone(),
            connectors,
            tasks,
            options: options.clone(),
        }
    }

    /// Returns the current snapshot, to be held for the length of one request.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Completes when a snapshot is published after this call.
    pub(crate) fn next_snapshot(&self) -> Notified<'_> {
        self.published.notified()
    }

    /// Whether this process is a node of a store that others can share. Not whether they do at present: nodes that start
    /// together have not reported yet.
    pub(crate) fn is_shared(&self) -> bool {
        self.options.follow_writes && self.is_shared.load(Ordering::Relaxed)
    }

    pub(crate) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Ordering::Relaxed);
    }

    /// Returns the wall-clock time of the registry's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    /// Returns the prompts and resources of a source. The first reader after a start reads them from the store. `None` if
    /// the store has lost them.
    pub(crate) async fn feature_list(&self, features: &RecordedFeatures) -> Result<Option<Arc<FeatureList>>> {
        if let Some(list) = features.list() {
            return Ok(Some(list.clone()));
        }
        let list = self.store.features(&[features.summary.fingerprint]).await?.pop().map(Arc::new);
        if let Some(list) = &list {
            features.keep(list);
        }
        Ok(list)
    }

    /// Sends a notice to every subscriber.
    pub(crate) fn notify(&self, notice: RegistryNotice) {
        // Fails only without subscribers.
        let _ = self.notices.send(notice);
    }

    /// Replaces the trust and the sources that it blocks. The configuration must be reconciled afterwards.
    pub(crate) fn set_trust(&self, trust: Trust) {
        self.publish_blocked(trust.blocked_sources());
        self.trust.store(Arc::new(trust));
    }

    /// Builds the content of a `Declare` command for a source. The hash of the definition, under which the store keeps
    /// it, is keyed, because a definition may hold literal secrets.
    pub(crate) fn declaration(&self, source: &Source, origin: Origin) -> Result<Declaration> {
        let failed = || Error::new(Code::Internal, format!("the definition of `{}` cannot be hashed", source.id));
        let definition = serde_json::to_string(source).map_err(|error| failed().with_cause(error))?;
        Ok(Declaration {
            source: source.id.clone(),
            kind: source.kind.name().to_owned(),
            origin,
            definition: crate::secret::keyed_hash(&self.store_key, &definition),
            enabled: source.settings.enabled,
            enabled_reference: source.settings.references.get("enabled").map(Fingerprint::digest),
        })
    }

    /// Decides commands and writes their events, all or none, if the precondition holds; returns the events. Each command
    /// is decided on the state before all of them.
    pub(crate) async fn execute(
        &self,
        commands: &[Command],
        actor: Actor,
        precondition: Precondition<'_>,
    ) -> Result<Vec<Event>> {
        let decide = |writer: &WriterState| {
            precondition.check(&writer.inventory)?;
            let mut events = Vec::new();
            for command in commands {
                // Each command is decided on the state before all of them, so two may lead to the same event.
                let new = writer.decide(command)?;
                events.extend(new.into_iter().filter(|event| !events.contains(event)).collect::<Vec<_>>());
            }
            Ok(events)
        };
        Ok(match self.write(&actor, None, decide).await? {
            WriteOutcome::Applied(events) => events,
            WriteOutcome::Superseded => Vec::new(),
        })
    }

    /// Removes what a source has left in the store: definitions that are not the declared one, and the status of a source
    /// that is not declared. Only at the position that this was decided on: another process may have declared the source
    /// since. What is left after many writes of others is removed by `prune`.
    pub(crate) async fn remove_outdated_rows(&self, id: &SourceId) -> Result<()> {
        let started_at = Instant::now();
        loop {
            let inventory = self.snapshot().inventory.clone();
            let (declared, head) = (inventory.source(id).map(|state| state.definition), inventory.version);
            let is_done = self.store.remove_definitions(id, declared, head).await?
                && (declared.is_some() || self.store.remove_source_status(id, head).await?);
            if is_done || started_at.elapsed() >= CONFLICT_TIMEOUT {
                return Ok(());
            }
            self.catch_up().await?;
        }
    }

    /// The only write path to the journal: catch up, decide, append, catch up; repeated when another process appended
    /// meanwhile. `measurement` is written with the events, in one transaction. `decide` may run several times.
    pub(crate) async fn write(
        &self,
        actor: &Actor,
        measurement: Option<Measurement<'_>>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        let decide = |writer: &WriterState| {
            writer.ensure_undamaged()?;
            decide(writer)
        };
        self.write_despite_damage(actor, measurement, decide).await
    }

    /// Like `write`, also on a damaged journal: for the decision to accept the damage.
    pub(crate) async fn write_despite_damage(
        &self,
        actor: &Actor,
        measurement: Option<Measurement<'_>>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        let mut writer = self.writer.lock().await;
        let written = self.append_locked(&mut writer, actor, measurement, decide).await;
        self.release(writer, &written).await;
        written
    }

    /// Releases the writer lock after a write or a read of new records. What follows needs files and happens without
    /// the lock, so that other writers need not wait for them: one write of the head file serves several writers, and a
    /// secret file that hangs delays only the writer that published its source.
    async fn release<T>(&self, mut writer: MutexGuard<'_, WriterState>, outcome: &Result<T>) {
        let unresolved_sources = std::mem::take(&mut writer.unresolved_sources);
        drop(writer);
        if outcome.is_ok() {
            self.remember_head().await;
        }
        self.resolve_published(unresolved_sources).await;
    }

    async fn append_locked(
        &self,
        writer: &mut WriterState,
        actor: &Actor,
        measurement: Option<Measurement<'_>>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        let started_at = Instant::now();
        let mut pause = MIN_CONFLICT_PAUSE;
        loop {
            self.apply_new_records(writer).await?;
            if let Some(newer) = &writer.newer_record {
                return Err(newer.to_error());
            }
            let events = decide(writer)?;
            if events.is_empty() && measurement.is_none() {
                return Ok(WriteOutcome::Applied(events));
            }
            // The store rejects the commit if the journal has grown since `inventory` was folded.
            let expected_head = writer.expected_head();
            let at = self.options.clock.now();
            let first_seq = writer.next_seq();
            let commit = Commit { expected_head, first_seq, at, actor, events: &events, measurement };
            let committed = self.store.commit(commit).await;
            let written = match committed.inspect_err(|error| self.store_monitor.record_failure(error))? {
                CommitOutcome::Committed => WriteOutcome::Applied(events),
                CommitOutcome::Superseded => WriteOutcome::Superseded,
                CommitOutcome::Conflict if started_at.elapsed() < CONFLICT_TIMEOUT => {
                    // At random times, so that writers of many processes do not try together.
                    sleep(pause.mul_f64(rand::random())).await;
                    pause = (pause * 2).min(MAX_CONFLICT_PAUSE);
                    continue;
                }
                CommitOutcome::Conflict => {
                    return Err(Error::new(Code::Conflict, "other processes keep writing to the store; try again"));
                }
            };
            // The records are read back instead of being applied directly: all processes then derive the same state
            // from the same bytes.
            writer.statuses_dirty = measurement.is_some();
            self.apply_new_records(writer).await?;
            return Ok(written);
        }
    }

    /// Applies and publishes the records and measurements that were written since, by any process.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        // Leases and measurements change without a record.
        writer.statuses_dirty = true;
        let applied = self.apply_new_records(&mut writer).await;
        self.release(writer, &applied).await;
        applied
    }
}
