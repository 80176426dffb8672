//! [`Registry`], the entry point of the library: holds the inventory, publishes the catalogue, and dispatches each call
//! to its source.
//!
//! There is one write path (`RegistryInner::write`): decide on the folded journal, append, catch up, publish. Readers
//! load an immutable `Snapshot` and never take a lock. Opening a registry makes no network requests and starts no
//! process.
//!
//! State: `WriterState` (in `publish`) is what the next snapshot is built from, behind the writer lock; `Snapshot` is
//! what readers see; `Connectors` holds the connections; `Store` persists the rest. The inventory is derived from the
//! journal; definitions, manifests and measurements are rows of the store.

// Opening, and the write path: from the journal to the published snapshot.
mod assemble;
mod journal;
mod open;
mod options;
mod publish;

// States in which calls and writes are refused.
mod damage;
mod newer_records;
mod readiness;
mod verify;

// Commands that change the inventory.
mod access_tokens;
mod declare;
mod enable;

// Reading sources and tools.
mod api_requirements;
mod effective_config;
mod list_hints;
mod source_view;
mod sources_version;
mod stats;
mod token_counts;
mod tool_detail;
mod tools;

// Reading the past.
mod blocking;
mod historical;
mod history;
mod lockfile;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolcrib_core::catalog::{Caller, Catalog, View};
use toolcrib_core::config::{Expose, WarmPolicy};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, Declaration, Event, Inventory, Origin};
use toolcrib_core::source::SourceSettings;
use toolcrib_core::text::{closest_match, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use crate::builtin::{BuiltinDefinition, BuiltinHandler};
use crate::call::ValidationPermits;
use crate::connectors::Connectors;
use crate::metrics::{Metrics, MetricsSnapshot};
use crate::refresh::{InFlightDiscoveries, Refresh, RefreshOutcome};
use crate::result_pages::PageStore;
use crate::spans::SpanQueue;
use crate::store::{Commit, CommitOutcome, DiscoveryCheck, ErrorSummary, JournalPosition, SourceStatus, Store};
use crate::trace::Trace;
use crate::usage::UsageCounters;

pub use crate::breaker::{BreakerState, BreakerView};
pub use access_tokens::{CreatedToken, TokenView, random_secret, random_token};
pub use api_requirements::{ApiRequirements, ApiServer, MissingScheme, api_requirements};
pub use damage::DamageAcceptance;
pub use declare::DeclareOutcome;
pub use enable::{EnableOutcome, EnableTarget, EnabledState};
pub use historical::{HistoricalTool, ToolVersion};
pub use history::{HistoryPage, HistoryQuery, HistoryRecord};
pub use list_hints::ListHints;
pub use options::{RegistryOptions, Trust, UntrustedFile};
pub use publish::{DiscoveryStage, RegistryNotice};
pub(crate) use publish::{PrecomputedDelta, WriterState};
pub(crate) use readiness::MaintenanceState;
pub use readiness::StoreHealth;
pub use source_view::{ConnectionState, DiscoveryStatus, SourceHealth, SourceView};
pub use sources_version::SourcesVersion;
pub use stats::{SourceStats, Stats, ToolStats};
pub use tool_detail::{ExecutionView, ToolDetail};
pub use tools::{ToolFilter, ToolView};
pub use verify::Verification;

use damage::JournalDamage;
use journal::Journal;
use newer_records::NewerRecord;

/// One catalogue of tools over a store, with the connections to the sources behind it.
///
/// Cheap to clone; all clones are handles to the same registry.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) inner: Arc<RegistryInner>,
    /// Cancels `shutdown` when the last clone is dropped, which ends the registry's tasks, connections and processes.
    _shutdown_guard: Arc<DropGuard>,
}

/// State behind every clone of a [`Registry`]; background tasks hold it too.
#[derive(Debug)]
pub(crate) struct RegistryInner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: RegistryOptions,
    /// Default settings of sources, from the configuration; replaced by `reconfigure`.
    pub(crate) default_settings: ArcSwap<SourceSettings>,
    /// Which tools agents are shown, from the configuration; replaced by `reconfigure`.
    pub(crate) expose: ArcSwap<Expose>,
    /// Policy for discovering due sources ahead of requests, from the configuration; replaced by `reconfigure`.
    pub(crate) warm: ArcSwap<WarmPolicy>,
    /// Secret of the store: key of the hashes over definitions and connection data, which must not be guessable.
    pub(crate) store_key: [u8; 32],
    /// State of the write path; the only lock that writers take. Readers use `snapshot`.
    pub(crate) writer: tokio::sync::Mutex<WriterState>,
    /// Current state for readers; replaced as a whole.
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// Sends to every [`Registry::subscribe`]r.
    pub(crate) notices: broadcast::Sender<RegistryNotice>,
    pub(crate) connectors: Connectors,
    /// Large results that clients read page by page.
    pub(crate) result_pages: PageStore,
    /// Call and cache counts, written to the store in batches.
    pub(crate) usage: UsageCounters,
    /// Counts since the start of this process, for monitoring.
    pub(crate) metrics: Metrics,
    /// Result of the last maintenance run, for readiness checks.
    pub(crate) maintenance: MaintenanceState,
    /// Discoveries that are running in this process.
    pub(crate) discoveries: InFlightDiscoveries,
    /// Bounds the discoveries that run at once, whichever request started them.
    pub(crate) discovery_permits: Semaphore,
    /// Bounds the argument validations that run on blocking threads.
    pub(crate) validation_permits: ValidationPermits,
    /// Held while tokens are counted, so that concurrent requests count each tool once.
    pub(crate) token_count_lock: tokio::sync::Mutex<()>,
    /// Extent of the trust in the project's file.
    pub(crate) trust: ArcSwap<Trust>,
    /// Sources that must not be contacted, each with the reason; derived from `trust` and the declared sources.
    pub(crate) blocked_sources: ArcSwap<BTreeMap<SourceId, String>>,
    /// Background tasks, awaited by `close`.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the registry closes.
    pub(crate) shutdown: CancellationToken,
}

/// Result of an append to the journal.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// The events that were written; empty when the state was already as requested.
    Applied(Vec<Event>),
    /// A discovery that started later has already been recorded, so this one was dropped.
    Superseded,
}

/// Immutable state that readers see; replaced as a whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) inventory: Arc<Inventory>,
    /// Each source as it was declared.
    pub(crate) declared_sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    /// Each source with the default settings and this process's overrides applied.
    pub(crate) effective_sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    /// Result of the latest discoveries of each source.
    pub(crate) statuses: Arc<BTreeMap<SourceId, SourceStatus>>,
    /// Keyed hash of what each source connects to (address, command, credentials); `None` when a reference cannot be
    /// resolved in this process.
    pub(crate) connection_fingerprints: Arc<BTreeMap<SourceId, Option<Fingerprint>>>,
    /// Sources whose configuration is invalid, or that are blocked and unknown to the store.
    pub(crate) invalid_sources: Arc<BTreeMap<SourceId, ErrorSummary>>,
    /// Newest records of the journal, up to the inventory's version.
    pub(crate) journal: Arc<Journal>,
    /// A critical record that only a newer Toolcrib understands. While it is set, calls and writes are refused.
    pub(crate) newer_record: Option<Arc<NewerRecord>>,
    /// Damage of the journal. While it is set, calls and writes are refused.
    pub(crate) damage: Option<Arc<JournalDamage>>,
    /// Sequence number and checksum of the last record that was applied.
    pub(crate) position: JournalPosition,
}

/// Time that connections get to close; what is still open after that ends with the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

impl Registry {
    /// Returns the current catalogue. Lock-free.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.inner.snapshot.load().catalog.clone()
    }

    /// Returns the folded journal behind the catalogue, which also has disabled sources and deprecated tools.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.inner.snapshot.load().inventory.clone()
    }

    /// Returns the current catalogue as `caller` may see it.
    pub fn view(&self, caller: &Caller) -> View {
        View { catalog: self.catalog(), caller: caller.clone() }
    }

    /// Returns which tools agents are shown, per configuration.
    pub fn expose(&self) -> Arc<Expose> {
        self.inner.expose.load_full()
    }

    /// Returns when missing and stale sources are discovered ahead of requests, per configuration; for programs that
    /// serve clients.
    pub fn warm(&self) -> WarmPolicy {
        **self.inner.warm.load()
    }

    /// Executes a command and returns the version of the journal afterwards. A command that changes nothing succeeds
    /// and writes nothing. Fails with `CONFLICT` if other processes keep writing, and with `STORE_UNAVAILABLE` while
    /// the journal is damaged or too new.
    pub async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.inner.execute(command, actor).await
    }

    /// Declares a source at run time and discovers it at once, as part of `trace`. The source stays declared when its
    /// discovery fails.
    pub async fn declare(&self, source: Source, actor: Actor, trace: Option<Trace>) -> Result<RefreshOutcome> {
        let id = source.id.clone();
        self.declare_lazily(&source, actor).await?;
        self.refresh_source(&id, Refresh { force: true, trace, ..Refresh::default() }).await
    }

    /// Removes a source that was declared at run time. A source of the configuration must be removed there. Its
    /// definitions and its log file are deleted, because they may hold secrets; its history and manifests stay.
    pub async fn remove(&self, id: &SourceId, actor: Actor) -> Result<()> {
        let snapshot = self.inner.snapshot.load_full();
        let state = snapshot.inventory.source(id).ok_or_else(|| self.inner.unknown_source_error(id.as_str()))?;
        if state.origin == Origin::Config {
            let message =
                format!("`{id}` is declared in the configuration; remove it there, or run `toolcrib disable {id}`");
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        // The event first: if the process ends in between, the source is removed, and only rows without use are left.
        self.execute(Command::Remove(id.clone()), actor).await?;
        self.inner.store.remove_definitions(id, None).await?;
        self.inner.store.remove_source_status(id).await?;
        if let Some(logs) = &self.inner.options.logs_directory {
            // The log file goes with its source; it may not exist.
            let _ = std::fs::remove_file(crate::server_logs::log_path(logs, id));
        }
        Ok(())
    }

    /// Marks one or all sources as stale: they are discovered again when they are next needed, and their tools stay
    /// listed until then.
    pub async fn invalidate(&self, source: Option<&SourceId>) -> Result<()> {
        self.inner.ensure_usable()?;
        let snapshot = self.inner.snapshot.load_full();
        let ids: Vec<SourceId> = match source {
            Some(id) if snapshot.inventory.source(id).is_none() => {
                return Err(self.inner.unknown_source_error(id.as_str()));
            }
            Some(id) => vec![id.clone()],
            None => snapshot.inventory.sources().map(|(id, _)| id.clone()).collect(),
        };
        for id in &ids {
            self.inner.store.invalidate(id).await?;
            // A discovery that is running now may have read the list before this request.
            self.inner.clone().invalidate_after_run(id.clone());
        }
        self.inner.catch_up().await
    }

    /// Adds a tool of the host program. It needs no configuration and lives as long as this process. Without a handler
    /// it is only listed, and the host executes it. Visible at once, without a record in the journal.
    pub fn register_builtin(&self, definition: BuiltinDefinition, handler: Option<BuiltinHandler>) -> Result<()> {
        self.inner.connectors.builtins().register(definition, handler)?;
        self.inner.publish_embedded();
        Ok(())
    }

    /// Returns the sources that must not be contacted, each with the reason.
    pub fn blocked_sources(&self) -> Arc<BTreeMap<SourceId, String>> {
        self.inner.blocked_sources.load_full()
    }

    /// Whether the project's configuration file is trusted; also true when there is none.
    pub fn is_trusted(&self) -> bool {
        self.inner.trust.load().untrusted.is_none()
    }

    /// Replaces the trust. Call [`Registry::reconfigure`] with the same configuration afterwards.
    pub fn set_trust(&self, trust: Trust) {
        self.inner.blocked_sources.store(Arc::new(trust.blocked_sources()));
        self.inner.trust.store(Arc::new(trust));
    }

    /// Returns the error for an unknown source, with the most similar known name.
    pub fn unknown_source_error(&self, name: &str) -> Error {
        self.inner.unknown_source_error(name)
    }

    /// Subscribes to notices. A slow subscriber misses notices (`RecvError::Lagged`) instead of delaying the registry.
    pub fn subscribe(&self) -> broadcast::Receiver<RegistryNotice> {
        self.inner.notices.subscribe()
    }

    /// Returns what this process has counted since it opened the registry.
    pub fn metrics(&self) -> MetricsSnapshot {
        let dropped_spans = self.inner.options.span_queue.as_ref().map(SpanQueue::dropped);
        MetricsSnapshot { dropped_spans, ..self.inner.metrics.snapshot() }
    }

    /// Writes the counts, closes every connection and its process, and closes the store. Waits 15 seconds at most.
    pub async fn close(self) {
        self.close_within(SHUTDOWN_TIMEOUT).await;
    }

    /// Like [`Registry::close`], with another limit for closing connections; what is still open after that ends with
    /// the process. Other clones can still read the last snapshot; their writes fail.
    pub async fn close_within(self, limit: Duration) {
        self.inner.shutdown.cancel();
        self.inner.tasks.close();
        let ending = futures_util::future::join(self.inner.connectors.close_all(), self.inner.tasks.wait());
        if tokio::time::timeout(limit, ending).await.is_err() {
            tracing::warn!("some connections were not closed in time; they end with the process");
        }
        // The failure has been logged; these counts are lost with the process.
        let _ = self.inner.usage.flush(&*self.inner.store).await;
        self.inner.store.close().await;
    }
}

impl RegistryInner {
    /// Builds the content of a `Declare` command for a source.
    pub(crate) fn declaration(&self, source: &Source, origin: Origin) -> Result<Declaration> {
        Ok(Declaration {
            source: source.id.clone(),
            kind: source.kind.name().to_owned(),
            origin,
            definition: self.definition_fingerprint(source)?,
            enabled: source.settings.enabled,
        })
    }

    /// Returns the keyed hash under which the store keeps a definition. Keyed, because a definition may hold literal
    /// secrets.
    fn definition_fingerprint(&self, source: &Source) -> Result<Fingerprint> {
        let failed = || Error::new(Code::Internal, format!("the definition of `{}` cannot be hashed", source.id));
        let text = serde_json::to_string(source).map_err(|error| failed().with_cause(error))?;
        crate::secret::keyed_hash(&self.store_key, &text).ok_or_else(failed)
    }

    /// Decides and writes a command; returns the version of the journal afterwards.
    pub(crate) async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.write(&actor, None, |writer| writer.inventory.decide(&command)).await?;
        Ok(self.snapshot.load().inventory.version)
    }

    /// The only write path to the journal: catch up, decide, append, catch up; repeated when another process appended
    /// meanwhile. `check` is written with the events, in one transaction. `decide` may run several times.
    pub(crate) async fn write(
        &self,
        actor: &Actor,
        check: Option<(&DiscoveryCheck, &SourceStatus)>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        let decide = |writer: &WriterState| {
            writer.ensure_undamaged()?;
            decide(writer)
        };
        self.append(actor, check, decide).await
    }

    /// Like `write`, for the one decision that is allowed on a damaged journal: accepting the damage.
    pub(crate) async fn write_despite_damage(
        &self,
        actor: &Actor,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        self.append(actor, None, decide).await
    }

    async fn append(
        &self,
        actor: &Actor,
        check: Option<(&DiscoveryCheck, &SourceStatus)>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        let written = self.append_locked(actor, check, decide).await?;
        // After the writer lock is released: other writers need not wait for the file, and one write serves several of
        // them.
        self.remember_head().await;
        Ok(written)
    }

    async fn append_locked(
        &self,
        actor: &Actor,
        check: Option<(&DiscoveryCheck, &SourceStatus)>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
        // Each conflict means that another process made progress; 20 in a row are a livelock or a broken store.
        const MAX_COMMIT_ATTEMPTS: usize = 20;
        let mut writer = self.writer.lock().await;
        for _ in 0..MAX_COMMIT_ATTEMPTS {
            self.apply_new_records(&mut writer).await?;
            if let Some(newer) = &writer.newer_record {
                return Err(newer.to_error());
            }
            let events = decide(&writer)?;
            if events.is_empty() && check.is_none() {
                return Ok(WriteOutcome::Applied(events));
            }
            // The store rejects the commit if the journal has grown since `inventory` was folded.
            let expected_head = writer.inventory.version;
            let at = self.options.clock.now();
            let commit = Commit { expected_head, first_seq: writer.next_seq(), at, actor, events: &events, check };
            let written = match self.store.commit(commit).await? {
                CommitOutcome::Committed => WriteOutcome::Applied(events),
                CommitOutcome::Superseded => WriteOutcome::Superseded,
                CommitOutcome::Conflict => continue,
            };
            // The records are read back instead of being applied directly: all processes then derive the same state
            // from the same bytes.
            writer.statuses_dirty = check.is_some();
            self.apply_new_records(&mut writer).await?;
            return Ok(written);
        }
        Err(Error::new(Code::Conflict, "other processes keep writing to the store; try again"))
    }

    /// Applies and publishes the records and measurements that were written since, by any process.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        // Leases and measurements change without a record.
        writer.statuses_dirty = true;
        self.apply_new_records(&mut writer).await?;
        drop(writer);
        self.remember_head().await;
        Ok(())
    }

    /// Returns the trace that new work belongs to: the given one, or that of the registry's options.
    pub(crate) fn parent_trace<'a>(&'a self, parent: Option<&'a Trace>) -> Option<&'a Trace> {
        parent.or(self.options.trace.as_ref())
    }

    /// Starts the trace of a call or discovery. Without a span queue, an orphan trace only correlates log lines.
    pub(crate) fn start_trace(&self, parent: Option<&Trace>) -> Trace {
        let parent = self.parent_trace(parent);
        match &self.options.span_queue {
            Some(queue) => queue.start_trace(parent),
            None => parent.map_or_else(Trace::log_only, Trace::child),
        }
    }

    /// Fails when a source must not be contacted: the journal is unusable, or the source is not trusted.
    pub(crate) fn ensure_can_contact(&self, id: &SourceId) -> Result<()> {
        self.ensure_usable()?;
        self.ensure_trusted(id)
    }

    /// Fails when a source is blocked because its configuration file is not trusted.
    pub(crate) fn ensure_trusted(&self, id: &SourceId) -> Result<()> {
        let blocked = self.blocked_sources.load();
        let Some(reason) = blocked.get(id) else { return Ok(()) };
        // A source of the same name that was added by command is the user's own: the untrusted file must not disable
        // it.
        let snapshot = self.snapshot.load();
        if snapshot.inventory.source(id).is_some_and(|state| state.origin == Origin::Runtime) {
            return Ok(());
        }
        Err(Error::new(Code::Forbidden, reason.clone()))
    }

    /// Fails when a source's document names a server that it did not name when the project's file was trusted.
    pub(crate) fn ensure_servers_are_trusted(&self, id: &SourceId, servers: &BTreeSet<String>) -> Result<()> {
        let trust = self.trust.load();
        let unknown = trust.document_servers.get(id).and_then(|trusted| servers.difference(trusted).next());
        let Some(unknown) = unknown else { return Ok(()) };
        let unknown = sanitize_truncated(unknown, 200);
        let message = format!(
            "the document of `{id}` sends requests to `{unknown}`, which it did not when the project's file was trusted; \
             review it, then run `toolcrib trust`"
        );
        Err(Error::new(Code::Forbidden, message))
    }

    /// Returns the error for an unknown source, with a suggestion. Suggests the most similar name, or else the command
    /// that lists all.
    pub(crate) fn unknown_source_error(&self, name: &str) -> Error {
        let snapshot = self.snapshot.load();
        // The missing source may be among the lost records of a damaged journal: report the damage instead.
        if let Err(damaged) = snapshot.ensure_undamaged() {
            return damaged;
        }
        let near = closest_match(name, snapshot.inventory.sources().map(|(id, _)| id.as_str()));
        let message = format!("no source named `{name}`");
        match near {
            Some(near) => Error::new(Code::NotFound, format!("{message}; did you mean `{near}`?")),
            None => {
                let error = Error::new(Code::NotFound, message);
                error.with_next_step("toolcrib sources", "GET /api/sources", "lists them")
            }
        }
    }
}
