//! The front door: the one type an embedder must learn. It holds the inventory, publishes the catalogue, and sends each
//! call to its source. Opening one contacts nobody.

mod access;
mod apart;
mod damage;
mod declare;
mod detail;
mod hints;
mod history;
mod journal;
mod lock;
mod merged;
mod moment;
mod needs;
mod newer;
mod open;
mod parts;
mod past;
mod publish;
mod ready;
mod source_view;
mod stats;
mod switch;
mod tokens;
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
use toolcrib_core::config::{Expose, Warm};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Actor, Command, Declaration, Event, Inventory, Origin};
use toolcrib_core::manifest::Bounds;
use toolcrib_core::source::Settings;
use toolcrib_core::text::{nearest, shown_short};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use crate::builtin::{Definition, Handler};
use crate::call::ValidationPermits;
use crate::clock::Clock;
use crate::connections::Connections;
use crate::counters::Counters;
use crate::guard::GuardExe;
use crate::held::Held;
use crate::meters::{Measures, Meters};
use crate::refresh::{Outcome, Refresh, Runs};
use crate::spans::Spans;
use crate::store::{Check, Commit, Committed, Failure, HeadFile, Position, Standing, Store};
use crate::trace::Trace;

pub use crate::breaker::{BreakerState, BreakerView};
pub use access::{CreatedToken, TokenView, random_secret, random_token};
pub use damage::DamageAcceptance;
pub use declare::Declared;
pub use detail::{Execution, ToolDetail};
pub use hints::ListHints;
pub use history::{HistoryPage, HistoryRecord, Wanted};
pub use moment::Moment;
pub use needs::{MissingScheme, Needs, Server, needs};
pub use past::{PastTool, Version};
pub(crate) use publish::{Compared, Writer};
pub use publish::{Notice, Stage};
pub use ready::StoreHealth;
pub(crate) use ready::Upkeep;
pub use source_view::{Connection, Health, SourceView, Status};
pub use stats::{SourceStats, Stats, ToolStats};
pub use switch::{Switch, Switched, Target};
pub use tools::{Filter, ToolView};
pub use verify::Verification;

use damage::JournalDamage;
use journal::Journal;
use newer::NewerRecord;

/// Cheap to clone; all clones are one registry.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) shared: Arc<Shared>,
    /// When the last clone goes, the registry's tasks, connections and processes end.
    _alive: Arc<DropGuard>,
}

/// How a registry runs. The default suits an embedder: in memory, changes of others followed, stale lists revalidated.
#[derive(Debug, Clone)]
pub struct Options {
    pub store: Option<Arc<dyn Store>>,
    /// Where the end of the store's journal is remembered, as [`store::open_remembered`](crate::store::open_remembered)
    /// gives it. Without it a journal that lost its end is not noticed.
    pub head: Option<HeadFile>,
    /// Where servers' last words are kept; nowhere when there is none.
    pub logs: Option<PathBuf>,
    pub clock: Clock,
    pub guard: GuardExe,
    /// How many sources are discovered at once. Discovery is waiting for others, so it goes by how many may wait
    /// together and not by the cores at hand; it only bounds the processes and sockets that are open meanwhile.
    pub parallel: usize,
    pub bounds: Bounds,
    /// Whether to notice, within two seconds, what other processes write to the same store.
    pub follow: bool,
    /// Whether a stale list, served at once, is refreshed behind the scenes.
    pub revalidate: bool,
    /// Variables named `TOOLCRIB_SOURCE_…`, which override single sources for this process.
    pub environment: Vec<(String, String)>,
    pub trust: Trust,
    /// What all work here is part of that is part of nothing else: a command's, say.
    pub trace: Option<Trace>,
    /// Where finished work is told for export. With it, those who are asked are told of every trace.
    pub spans: Option<Spans>,
    /// Connectors to use instead of real ones, for tests.
    pub connect: Option<crate::connections::Connect>,
}

/// What the trust in a project's file covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Set where the file is not trusted. What the store has of it then stays as it is and is not contacted.
    pub untrusted: Option<Untrusted>,
    /// Where the documents of sources may send requests, by source: what they named when they were trusted. A source
    /// that is not listed is not bound.
    pub document_servers: BTreeMap<SourceId, BTreeSet<String>>,
}

impl Trust {
    /// The sources of the file that is not trusted, each with the reason.
    fn forbidden(&self) -> BTreeMap<SourceId, String> {
        let untrusted = self.untrusted.iter();
        untrusted.flat_map(|file| file.sources.iter().map(|id| (id.clone(), file.reason.clone()))).collect()
    }
}

/// A file that is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// Why its sources are not contacted, and what to do about it.
    pub reason: String,
    /// Those that it declares.
    pub sources: Vec<SourceId>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            store: None,
            head: None,
            logs: None,
            clock: Clock::system(),
            guard: GuardExe::detect(),
            parallel: 32,
            bounds: Bounds::default(),
            follow: true,
            revalidate: true,
            environment: overriding_variables(),
            trust: Trust::default(),
            trace: None,
            spans: None,
            connect: None,
        }
    }
}

/// One that is not Unicode overrides nothing, and must not end the process either.
fn overriding_variables() -> Vec<(String, String)> {
    let readable =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    readable.filter(|(name, _)| name.starts_with("TOOLCRIB_SOURCE_")).collect()
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
    /// What holds for a source that says nothing else; replaced when the configuration is read again.
    pub(crate) defaults: ArcSwap<Settings>,
    /// What the configuration says about what agents are shown; replaced likewise.
    pub(crate) expose: ArcSwap<Expose>,
    /// When the configuration wants what is due to be discovered; replaced likewise.
    pub(crate) warm: ArcSwap<Warm>,
    /// The store's secret, for hashes that must not be guessed.
    pub(crate) key: [u8; 32],
    /// The one lock, for writers. Readers take `now`.
    pub(crate) writer: tokio::sync::Mutex<Writer>,
    pub(crate) now: ArcSwap<Snapshot>,
    pub(crate) notices: broadcast::Sender<Notice>,
    pub(crate) connections: Connections,
    pub(crate) held: Held,
    pub(crate) counters: Counters,
    pub(crate) meters: Meters,
    pub(crate) upkeep: Upkeep,
    pub(crate) runs: Runs,
    /// How many discoveries may go on at once, whoever asked for them.
    pub(crate) turns: Semaphore,
    pub(crate) validation_permits: ValidationPermits,
    /// Tokens are counted by one for all.
    pub(crate) counting: tokio::sync::Mutex<()>,
    /// What the trust in the project's file covers.
    pub(crate) trust: ArcSwap<Trust>,
    /// Sources that must not be contacted, and why: derived from `trust` and from what is declared.
    pub(crate) forbidden: ArcSwap<BTreeMap<SourceId, String>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) ended: CancellationToken,
}

/// What came of writing.
#[derive(Debug)]
pub(crate) enum Written {
    /// These facts; none when it was so already.
    Done(Vec<Event>),
    /// A discovery that began later has been recorded: ours is old news.
    Superseded,
}

/// Everything readers see, replaced whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) inventory: Arc<Inventory>,
    /// Each source as it was declared.
    pub(crate) declared: Arc<BTreeMap<SourceId, Arc<Source>>>,
    /// Each source as it is used here: with the defaults and this process's overrides.
    pub(crate) sources: Arc<BTreeMap<SourceId, Arc<Source>>>,
    pub(crate) standings: Arc<BTreeMap<SourceId, Standing>>,
    /// What each connects to, hashed; `None` where a reference cannot be resolved here.
    pub(crate) connects_to: Arc<BTreeMap<SourceId, Option<Fingerprint>>>,
    /// Sources that a configuration states wrongly.
    pub(crate) invalid: Arc<BTreeMap<SourceId, Failure>>,
    /// The end of the journal, up to the inventory's version.
    pub(crate) journal: Arc<Journal>,
    /// A record that must not be ignored and that only a newer Toolcrib understands: nothing is called or written.
    pub(crate) upgrade_for: Option<Arc<NewerRecord>>,
    /// What is wrong with the journal: nothing is called or written.
    pub(crate) damage: Option<Arc<JournalDamage>>,
    /// The last record of the journal.
    pub(crate) position: Position,
}

/// How long connections may take to end; what is left after that ends with the process.
const LONGEST_FAREWELL: Duration = Duration::from_secs(15);

impl Registry {
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.now.load().catalog.clone()
    }

    /// The folded truth behind the catalogue: disabled sources, and tools that are gone, included.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.shared.now.load().inventory.clone()
    }

    pub fn view(&self, caller: &Caller) -> View {
        View { catalog: self.catalog(), caller: caller.clone() }
    }

    /// What the configuration says about what agents are shown.
    pub fn expose(&self) -> Arc<Expose> {
        self.shared.expose.load_full()
    }

    /// When the configuration wants what is missing or stale to be discovered, for a program that serves others.
    pub fn warm(&self) -> Warm {
        **self.shared.warm.load()
    }

    /// Makes a wish come true, or says why not. The version is that of the journal afterwards.
    pub async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.shared.execute(command, actor).await
    }

    /// Declares a source at run time and discovers it at once. When discovery fails the source is kept, marked failed.
    /// The discovery is part of `trace`, if of anything.
    pub async fn declare(&self, source: Source, actor: Actor, trace: Option<Trace>) -> Result<Outcome> {
        let id = source.id.clone();
        self.declare_lazily(&source, actor).await?;
        self.refresh_source(&id, Refresh { force: true, trace, ..Refresh::default() }).await
    }

    /// Removes a source that was declared at run time. One of the configuration must go there.
    pub async fn remove(&self, id: &SourceId, actor: Actor) -> Result<()> {
        let now = self.shared.now.load_full();
        let state = now.inventory.source(id).ok_or_else(|| self.shared.unknown_source(id.as_str()))?;
        if state.origin == Origin::Config {
            let message = format!("`{id}` is declared in the configuration; remove it there, or `disable` it");
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        self.execute(Command::Remove(id.clone()), actor).await?;
        self.shared.store.forget_definitions(id, None).await?;
        self.shared.store.forget(id).await?;
        if let Some(logs) = &self.shared.options.logs {
            // Its last words go with it; where there are none, nothing is left to remove.
            let _absent = std::fs::remove_file(crate::logs::path(logs, id));
        }
        Ok(())
    }

    /// Makes sources due: they are discovered again at the next need, and their tools stay meanwhile.
    pub async fn invalidate(&self, source: Option<&SourceId>) -> Result<()> {
        self.shared.ensure_up_to_date()?;
        let now = self.shared.now.load_full();
        let ids: Vec<SourceId> = match source {
            Some(id) if now.inventory.source(id).is_none() => return Err(self.shared.unknown_source(id.as_str())),
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
    pub fn register_builtin(&self, definition: Definition, handler: Option<Handler>) -> Result<()> {
        self.shared.connections.builtins().register(definition, handler)?;
        self.shared.publish_embedded();
        Ok(())
    }

    /// What must not be contacted, and why.
    pub fn forbidden(&self) -> Arc<BTreeMap<SourceId, String>> {
        self.shared.forbidden.load_full()
    }

    /// Whether the configuration's project file is trusted, or there is none that needs to be.
    pub fn is_trusted(&self) -> bool {
        self.shared.trust.load().untrusted.is_none()
    }

    /// What trust covers from now on. `reconfigure` with the same configuration follows.
    pub fn set_trust(&self, trust: Trust) {
        self.shared.forbidden.store(Arc::new(trust.forbidden()));
        self.shared.trust.store(Arc::new(trust));
    }

    /// The error for a source that is not there, with the nearest that is.
    pub fn unknown_source(&self, name: &str) -> Error {
        self.shared.unknown_source(name)
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Notice> {
        self.shared.notices.subscribe()
    }

    /// What this process has done since it opened the registry.
    pub fn measures(&self) -> Measures {
        let spans_lost = self.shared.options.spans.as_ref().map(Spans::lost);
        Measures { spans_lost, ..self.shared.meters.read() }
    }

    /// Writes what is counted, ends every connection and every process behind it, and closes the store.
    pub async fn close(self) {
        self.close_within(LONGEST_FAREWELL).await;
    }

    /// As `close`, with another limit for the end of the connections; what is left after it ends with the process.
    pub async fn close_within(self, limit: Duration) {
        self.shared.ended.cancel();
        self.shared.tasks.close();
        let ending = futures_util::future::join(self.shared.connections.close_all(), self.shared.tasks.wait());
        if tokio::time::timeout(limit, ending).await.is_err() {
            tracing::warn!("some connections did not end in time; they end with the process");
        }
        // What could not be written was told, and is lost with this process.
        let _lost = self.shared.counters.flush(&*self.shared.store).await;
        self.shared.store.close().await;
    }
}

impl Shared {
    pub(crate) fn declaration(&self, source: &Source, origin: Origin) -> Result<Declaration> {
        Ok(Declaration {
            source: source.id.clone(),
            kind: source.kind.name().to_owned(),
            origin,
            definition: self.definition_name(source)?,
            enabled: source.settings.enabled,
        })
    }

    fn definition_name(&self, source: &Source) -> Result<Fingerprint> {
        let failed = || Error::new(Code::Internal, format!("the definition of `{}` cannot be hashed", source.id));
        let text = serde_json::to_string(source).map_err(|error| failed().with_cause(error))?;
        crate::secret::keyed_hash(&self.key, &text).ok_or_else(failed)
    }

    pub(crate) async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.write(&actor, None, |writer| writer.inventory.decide(&command)).await?;
        Ok(self.now.load().inventory.version)
    }

    /// The one way into the journal: catch up, decide, append, catch up; again when somebody else was faster.
    /// A measurement is written with the facts, in one transaction.
    pub(crate) async fn write(
        &self,
        actor: &Actor,
        check: Option<(&Check, &Standing)>,
        decide: impl Fn(&Writer) -> Result<Vec<Event>>,
    ) -> Result<Written> {
        let decide = |writer: &Writer| {
            writer.ensure_undamaged()?;
            decide(writer)
        };
        self.append(actor, check, decide).await
    }

    /// As `write`, for the one decision that is made on a damaged journal.
    pub(crate) async fn write_accepting(
        &self,
        actor: &Actor,
        decide: impl Fn(&Writer) -> Result<Vec<Event>>,
    ) -> Result<Written> {
        self.append(actor, None, decide).await
    }

    async fn append(
        &self,
        actor: &Actor,
        check: Option<(&Check, &Standing)>,
        decide: impl Fn(&Writer) -> Result<Vec<Event>>,
    ) -> Result<Written> {
        let written = self.append_locked(actor, check, decide).await?;
        // After the lock was given back: writers that follow need not wait for it, and one write serves them all.
        self.remember_head().await;
        Ok(written)
    }

    async fn append_locked(
        &self,
        actor: &Actor,
        check: Option<(&Check, &Standing)>,
        decide: impl Fn(&Writer) -> Result<Vec<Event>>,
    ) -> Result<Written> {
        const TRIES: usize = 20;
        let mut writer = self.writer.lock().await;
        for _ in 0..TRIES {
            self.take_news(&mut writer).await?;
            if let Some(newer) = &writer.upgrade_for {
                return Err(newer.refusal());
            }
            let events = decide(&writer)?;
            if events.is_empty() && check.is_none() {
                return Ok(Written::Done(events));
            }
            let expected = writer.inventory.version;
            let at = self.options.clock.now();
            let commit = Commit { expected, first: writer.next_seq(), at, actor, events: &events, check };
            let written = match self.store.commit(commit).await? {
                Committed::Done => Written::Done(events),
                Committed::Superseded => Written::Superseded,
                Committed::Conflict => continue,
            };
            writer.standings_due = check.is_some();
            self.take_news(&mut writer).await?;
            return Ok(written);
        }
        Err(Error::new(Code::Conflict, "others keep writing to the store; try again"))
    }

    /// Takes in what was written since, by whomever.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        writer.standings_due = true;
        self.take_news(&mut writer).await?;
        drop(writer);
        self.remember_head().await;
        Ok(())
    }

    /// What a piece of work is part of, if anything.
    pub(crate) fn parent<'a>(&'a self, given: Option<&'a Trace>) -> Option<&'a Trace> {
        given.or(self.options.trace.as_ref())
    }

    /// The trace of work that begins now.
    pub(crate) fn begin_trace(&self, given: Option<&Trace>) -> Trace {
        let parent = self.parent(given);
        match &self.options.spans {
            Some(spans) => spans.begin(parent),
            None => parent.map_or_else(Trace::quiet, Trace::child),
        }
    }

    /// Whether a source may be contacted at all.
    pub(crate) fn permitted(&self, id: &SourceId) -> Result<()> {
        self.ensure_up_to_date()?;
        self.trusted(id)
    }

    /// Whether a source is none of those that must not be contacted.
    pub(crate) fn trusted(&self, id: &SourceId) -> Result<()> {
        let forbidden = self.forbidden.load();
        let Some(reason) = forbidden.get(id) else { return Ok(()) };
        // A file that is not trusted does not take away what was added by command.
        let now = self.now.load();
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
        let unknown = shown_short(unknown, 200);
        let message = format!(
            "the document of `{id}` leads to `{unknown}`, which was not so when the project's file was trusted; look at \
             it, then run `toolcrib trust`"
        );
        Err(Error::new(Code::Forbidden, message))
    }

    pub(crate) fn unknown_source(&self, name: &str) -> Error {
        let now = self.now.load();
        // A source of a damaged journal may be among the records that are lost.
        if let Err(damaged) = now.ensure_undamaged() {
            return damaged;
        }
        let near = nearest(name, now.inventory.sources().map(|(id, _)| id.as_str()));
        let hint = match near {
            Some(near) => format!("; did you mean `{near}`?"),
            None => "; `toolcrib sources` lists them".to_owned(),
        };
        Error::new(Code::NotFound, format!("no source named `{name}`{hint}"))
    }
}
