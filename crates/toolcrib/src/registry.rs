//! The front door: the one type an embedder must learn. It holds the inventory, publishes the catalogue, and sends each
//! call to its source. Opening one contacts nobody.

mod access_tokens;
mod api_requirements;
mod assemble;
mod blocking;
mod damage;
mod declare;
mod effective_config;
mod enable;
mod historical;
mod history;
mod journal;
mod list_hints;
mod lockfile;
mod newer_records;
mod open;
mod publish;
mod readiness;
mod source_view;
mod sources_version;
mod stats;
mod token_counts;
mod tool_detail;
mod tools;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
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
use toolcrib_core::manifest::ToolLimits;
use toolcrib_core::source::SourceSettings;
use toolcrib_core::text::{closest_match, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use crate::builtin::{BuiltinDefinition, BuiltinHandler};
use crate::call::ValidationPermits;
use crate::clock::Clock;
use crate::connections::Connectors;
use crate::guard::GuardExe;
use crate::metrics::{Metrics, MetricsSnapshot};
use crate::refresh::{InFlightDiscoveries, Refresh, RefreshOutcome};
use crate::result_pages::PageStore;
use crate::spans::SpanQueue;
use crate::store::{
    Commit, CommitOutcome, DiscoveryCheck, ErrorSummary, HeadFile, JournalPosition, SourceStatus, Store,
};
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

/// Cheap to clone; all clones are one registry.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) shared: Arc<RegistryInner>,
    /// When the last clone goes, the registry's tasks, connections and processes end.
    _shutdown_guard: Arc<DropGuard>,
}

/// How a registry runs. The default suits an embedder: in memory, changes of others followed, stale lists revalidated.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    pub store: Option<Arc<dyn Store>>,
    /// Where the end of the store's journal is remembered, as [`store::open_remembered`](crate::store::open_remembered)
    /// gives it. Without it a journal that lost its end is not noticed.
    pub head_file: Option<HeadFile>,
    /// Where servers' last words are kept; nowhere when there is none.
    pub logs_directory: Option<PathBuf>,
    pub clock: Clock,
    pub guard: GuardExe,
    /// How many sources are discovered at once. Discovery is waiting for others, so it goes by how many may wait
    /// together and not by the cores at hand; it only bounds the processes and sockets that are open meanwhile.
    pub max_parallel_discoveries: usize,
    pub bounds: ToolLimits,
    /// Whether to notice, within two seconds, what other processes write to the same store.
    pub follow_writes: bool,
    /// Whether a stale list, served at once, is refreshed behind the scenes.
    pub revalidate: bool,
    /// Variables named `TOOLCRIB_SOURCE_…`, which override single sources for this process.
    pub environment: Vec<(String, String)>,
    pub trust: Trust,
    /// What all work here is part of that is part of nothing else: a command's, say.
    pub trace: Option<Trace>,
    /// Where finished work is told for export. With it, those who are asked are told of every trace.
    pub span_queue: Option<SpanQueue>,
    /// Connectors to use instead of real ones, for tests.
    pub connector_factory: Option<crate::connections::ConnectorFactory>,
}

/// What the trust in a project's file covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Set where the file is not trusted. What the store has of it then stays as it is and is not contacted.
    pub untrusted: Option<UntrustedFile>,
    /// Where the documents of sources may send requests, by source: what they named when they were trusted. A source
    /// that is not listed is not bound.
    pub document_servers: BTreeMap<SourceId, BTreeSet<String>>,
}

impl Trust {
    /// The sources of the file that is not trusted, each with the reason.
    fn blocked_sources(&self) -> BTreeMap<SourceId, String> {
        let untrusted = self.untrusted.iter();
        untrusted.flat_map(|file| file.sources.iter().map(|id| (id.clone(), file.reason.clone()))).collect()
    }
}

/// A file that is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedFile {
    /// Why its sources are not contacted, and what to do about it.
    pub reason: String,
    /// Those that it declares.
    pub sources: Vec<SourceId>,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        RegistryOptions {
            store: None,
            head_file: None,
            logs_directory: None,
            clock: Clock::system(),
            guard: GuardExe::detect(),
            max_parallel_discoveries: 32,
            bounds: ToolLimits::default(),
            follow_writes: true,
            revalidate: true,
            environment: override_variables(),
            trust: Trust::default(),
            trace: None,
            span_queue: None,
            connector_factory: None,
        }
    }
}

/// One that is not Unicode overrides nothing, and must not end the process either.
fn override_variables() -> Vec<(String, String)> {
    let readable =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    readable.filter(|(name, _)| name.starts_with("TOOLCRIB_SOURCE_")).collect()
}

#[derive(Debug)]
pub(crate) struct RegistryInner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: RegistryOptions,
    /// What holds for a source that says nothing else; replaced when the configuration is read again.
    pub(crate) default_settings: ArcSwap<SourceSettings>,
    /// What the configuration says about what agents are shown; replaced likewise.
    pub(crate) expose: ArcSwap<Expose>,
    /// When the configuration wants what is due to be discovered; replaced likewise.
    pub(crate) warm: ArcSwap<WarmPolicy>,
    /// The store's secret, for hashes that must not be guessed.
    pub(crate) store_key: [u8; 32],
    /// The one lock, for writers. Readers take `now`.
    pub(crate) writer: tokio::sync::Mutex<WriterState>,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) notices: broadcast::Sender<RegistryNotice>,
    pub(crate) connectors: Connectors,
    pub(crate) result_pages: PageStore,
    pub(crate) usage: UsageCounters,
    pub(crate) metrics: Metrics,
    pub(crate) maintenance: MaintenanceState,
    pub(crate) discoveries: InFlightDiscoveries,
    /// How many discoveries may go on at once, whoever asked for them.
    pub(crate) discovery_permits: Semaphore,
    pub(crate) validation_permits: ValidationPermits,
    /// Tokens are counted by one for all.
    pub(crate) token_count_lock: tokio::sync::Mutex<()>,
    /// What the trust in the project's file covers.
    pub(crate) trust: ArcSwap<Trust>,
    /// Sources that must not be contacted, and why: derived from `trust` and from what is declared.
    pub(crate) blocked_sources: ArcSwap<BTreeMap<SourceId, String>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

/// What came of writing.
#[derive(Debug)]
pub(crate) enum WriteOutcome {
    /// These facts; none when it was so already.
    Applied(Vec<Event>),
    /// A discovery that began later has been recorded: ours is old news.
    Superseded,
}

/// Everything readers see, replaced whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) inventory: Arc<Inventory>,
    /// Each source as it was declared.
    pub(crate) declared_sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    /// Each source as it is used here: with the defaults and this process's overrides.
    pub(crate) effective_sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    pub(crate) statuses: Arc<BTreeMap<SourceId, SourceStatus>>,
    /// What each connects to, hashed; `None` where a reference cannot be resolved here.
    pub(crate) connection_fingerprints: Arc<BTreeMap<SourceId, Option<Fingerprint>>>,
    /// Sources that a configuration states wrongly.
    pub(crate) invalid_sources: Arc<BTreeMap<SourceId, ErrorSummary>>,
    /// The end of the journal, up to the inventory's version.
    pub(crate) journal: Arc<Journal>,
    /// A record that must not be ignored and that only a newer Toolcrib understands: nothing is called or written.
    pub(crate) newer_record: Option<Arc<NewerRecord>>,
    /// What is wrong with the journal: nothing is called or written.
    pub(crate) damage: Option<Arc<JournalDamage>>,
    /// The last record of the journal.
    pub(crate) position: JournalPosition,
}

/// How long connections may take to end; what is left after that ends with the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

impl Registry {
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.snapshot.load().catalog.clone()
    }

    /// The folded truth behind the catalogue: disabled sources, and tools that are gone, included.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.shared.snapshot.load().inventory.clone()
    }

    pub fn view(&self, caller: &Caller) -> View {
        View { catalog: self.catalog(), caller: caller.clone() }
    }

    /// What the configuration says about what agents are shown.
    pub fn expose(&self) -> Arc<Expose> {
        self.shared.expose.load_full()
    }

    /// When the configuration wants what is missing or stale to be discovered, for a program that serves others.
    pub fn warm(&self) -> WarmPolicy {
        **self.shared.warm.load()
    }

    /// Makes a wish come true, or says why not. The version is that of the journal afterwards.
    pub async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.shared.execute(command, actor).await
    }

    /// Declares a source at run time and discovers it at once. When discovery fails the source is kept, marked failed.
    /// The discovery is part of `trace`, if of anything.
    pub async fn declare(&self, source: Source, actor: Actor, trace: Option<Trace>) -> Result<RefreshOutcome> {
        let id = source.id.clone();
        self.declare_lazily(&source, actor).await?;
        self.refresh_source(&id, Refresh { force: true, trace, ..Refresh::default() }).await
    }

    /// Removes a source that was declared at run time. One of the configuration must go there.
    pub async fn remove(&self, id: &SourceId, actor: Actor) -> Result<()> {
        let now = self.shared.snapshot.load_full();
        let state = now.inventory.source(id).ok_or_else(|| self.shared.unknown_source_error(id.as_str()))?;
        if state.origin == Origin::Config {
            let message = format!("`{id}` is declared in the configuration; remove it there, or `disable` it");
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        self.execute(Command::Remove(id.clone()), actor).await?;
        self.shared.store.remove_definitions(id, None).await?;
        self.shared.store.remove_source_status(id).await?;
        if let Some(logs) = &self.shared.options.logs_directory {
            // Its last words go with it; where there are none, nothing is left to remove.
            let _absent = std::fs::remove_file(crate::server_logs::log_path(logs, id));
        }
        Ok(())
    }

    /// Makes sources due: they are discovered again at the next need, and their tools stay meanwhile.
    pub async fn invalidate(&self, source: Option<&SourceId>) -> Result<()> {
        self.shared.ensure_usable()?;
        let now = self.shared.snapshot.load_full();
        let ids: Vec<SourceId> = match source {
            Some(id) if now.inventory.source(id).is_none() => {
                return Err(self.shared.unknown_source_error(id.as_str()));
            }
            Some(id) => vec![id.clone()],
            None => now.inventory.sources().map(|(id, _)| id.clone()).collect(),
        };
        for id in &ids {
            self.shared.store.invalidate(id).await?;
            self.shared.clone().invalidate_after_run(id.clone());
        }
        self.shared.catch_up().await
    }

    /// Adds a tool of the host's own. It needs no configuration and lives as long as this process;
    /// without a handler it is listed, and the host executes it.
    pub fn register_builtin(&self, definition: BuiltinDefinition, handler: Option<BuiltinHandler>) -> Result<()> {
        self.shared.connectors.builtins().register(definition, handler)?;
        self.shared.publish_embedded();
        Ok(())
    }

    /// What must not be contacted, and why.
    pub fn blocked_sources(&self) -> Arc<BTreeMap<SourceId, String>> {
        self.shared.blocked_sources.load_full()
    }

    /// Whether the configuration's project file is trusted, or there is none that needs to be.
    pub fn is_trusted(&self) -> bool {
        self.shared.trust.load().untrusted.is_none()
    }

    /// What trust covers from now on. `reconfigure` with the same configuration follows.
    pub fn set_trust(&self, trust: Trust) {
        self.shared.blocked_sources.store(Arc::new(trust.blocked_sources()));
        self.shared.trust.store(Arc::new(trust));
    }

    /// The error for a source that is not there, with the nearest that is.
    pub fn unknown_source_error(&self, name: &str) -> Error {
        self.shared.unknown_source_error(name)
    }

    pub fn subscribe(&self) -> broadcast::Receiver<RegistryNotice> {
        self.shared.notices.subscribe()
    }

    /// What this process has done since it opened the registry.
    pub fn metrics(&self) -> MetricsSnapshot {
        let spans_lost = self.shared.options.span_queue.as_ref().map(SpanQueue::dropped);
        MetricsSnapshot { dropped_spans: spans_lost, ..self.shared.metrics.snapshot() }
    }

    /// Writes what is counted, ends every connection and every process behind it, and closes the store.
    pub async fn close(self) {
        self.close_within(SHUTDOWN_TIMEOUT).await;
    }

    /// As `close`, with another limit for the end of the connections; what is left after it ends with the process.
    pub async fn close_within(self, limit: Duration) {
        self.shared.shutdown.cancel();
        self.shared.tasks.close();
        let ending = futures_util::future::join(self.shared.connectors.close_all(), self.shared.tasks.wait());
        if tokio::time::timeout(limit, ending).await.is_err() {
            tracing::warn!("some connections did not end in time; they end with the process");
        }
        // What could not be written was told, and is lost with this process.
        let _lost = self.shared.usage.flush(&*self.shared.store).await;
        self.shared.store.close().await;
    }
}

impl RegistryInner {
    pub(crate) fn declaration(&self, source: &Source, origin: Origin) -> Result<Declaration> {
        Ok(Declaration {
            source: source.id.clone(),
            kind: source.kind.name().to_owned(),
            origin,
            definition: self.definition_fingerprint(source)?,
            enabled: source.settings.enabled,
        })
    }

    fn definition_fingerprint(&self, source: &Source) -> Result<Fingerprint> {
        let failed = || Error::new(Code::Internal, format!("the definition of `{}` cannot be hashed", source.id));
        let text = serde_json::to_string(source).map_err(|error| failed().with_cause(error))?;
        crate::secret::keyed_hash(&self.store_key, &text).ok_or_else(failed)
    }

    pub(crate) async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.write(&actor, None, |writer| writer.inventory.decide(&command)).await?;
        Ok(self.snapshot.load().inventory.version)
    }

    /// The one way into the journal: catch up, decide, append, catch up; again when somebody else was faster.
    /// A measurement is written with the facts, in one transaction.
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

    /// As `write`, for the one decision that is made on a damaged journal.
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
        // After the lock was given back: writers that follow need not wait for it, and one write serves them all.
        self.remember_head().await;
        Ok(written)
    }

    async fn append_locked(
        &self,
        actor: &Actor,
        check: Option<(&DiscoveryCheck, &SourceStatus)>,
        decide: impl Fn(&WriterState) -> Result<Vec<Event>>,
    ) -> Result<WriteOutcome> {
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
            let expected = writer.inventory.version;
            let at = self.options.clock.now();
            let commit =
                Commit { expected_head: expected, first_seq: writer.next_seq(), at, actor, events: &events, check };
            let written = match self.store.commit(commit).await? {
                CommitOutcome::Committed => WriteOutcome::Applied(events),
                CommitOutcome::Superseded => WriteOutcome::Superseded,
                CommitOutcome::Conflict => continue,
            };
            writer.statuses_dirty = check.is_some();
            self.apply_new_records(&mut writer).await?;
            return Ok(written);
        }
        Err(Error::new(Code::Conflict, "others keep writing to the store; try again"))
    }

    /// Takes in what was written since, by whomever.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        writer.statuses_dirty = true;
        self.apply_new_records(&mut writer).await?;
        drop(writer);
        self.remember_head().await;
        Ok(())
    }

    /// What a piece of work is part of, if anything.
    pub(crate) fn parent_trace<'a>(&'a self, given: Option<&'a Trace>) -> Option<&'a Trace> {
        given.or(self.options.trace.as_ref())
    }

    /// The trace of work that begins now.
    pub(crate) fn start_trace(&self, given: Option<&Trace>) -> Trace {
        let parent = self.parent_trace(given);
        match &self.options.span_queue {
            Some(spans) => spans.start_trace(parent),
            None => parent.map_or_else(Trace::log_only, Trace::child),
        }
    }

    /// Whether a source may be contacted at all.
    pub(crate) fn ensure_can_contact(&self, id: &SourceId) -> Result<()> {
        self.ensure_usable()?;
        self.ensure_trusted(id)
    }

    /// Whether a source is none of those that must not be contacted.
    pub(crate) fn ensure_trusted(&self, id: &SourceId) -> Result<()> {
        let forbidden = self.blocked_sources.load();
        let Some(reason) = forbidden.get(id) else { return Ok(()) };
        // A file that is not trusted does not take away what was added by command.
        let now = self.snapshot.load();
        if now.inventory.source(id).is_some_and(|state| state.origin == Origin::Runtime) {
            return Ok(());
        }
        Err(Error::new(Code::Forbidden, reason.clone()))
    }

    /// Whether a source's document names no server but those that were trusted.
    pub(crate) fn ensure_servers_are_trusted(&self, id: &SourceId, servers: &BTreeSet<String>) -> Result<()> {
        let trust = self.trust.load();
        let unknown = trust.document_servers.get(id).and_then(|trusted| servers.difference(trusted).next());
        let Some(unknown) = unknown else { return Ok(()) };
        let unknown = sanitize_truncated(unknown, 200);
        let message = format!(
            "the document of `{id}` leads to `{unknown}`, which was not so when the project's file was trusted; look at \
             it, then run `toolcrib trust`"
        );
        Err(Error::new(Code::Forbidden, message))
    }

    pub(crate) fn unknown_source_error(&self, name: &str) -> Error {
        let now = self.snapshot.load();
        // A source of a damaged journal may be among the records that are lost.
        if let Err(damaged) = now.ensure_undamaged() {
            return damaged;
        }
        let near = closest_match(name, now.inventory.sources().map(|(id, _)| id.as_str()));
        let hint = match near {
            Some(near) => format!("; did you mean `{near}`?"),
            None => "; `toolcrib sources` lists them".to_owned(),
        };
        Error::new(Code::NotFound, format!("no source named `{name}`{hint}"))
    }
}
