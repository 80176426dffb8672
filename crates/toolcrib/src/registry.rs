//! [`Registry`], the entry point of the library.
//!
//! Behind it are the owners of the work, each of which knows only those before it: `Connectors` (connections and
//! circuit breakers), `State` (the write path and the snapshot that readers see), `Refresher` (discovers tool lists),
//! `Dispatcher` (checks and sends calls) and `Maintenance` (the periodic task).

// Opening and closing.
mod open;
mod options;

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

// Checking and repairing the store.
mod damage;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::sync::DropGuard;
use toolcrib_core::catalog::{Caller, Catalog, View};
use toolcrib_core::config::{Expose, WarmPolicy};
use toolcrib_core::inventory::{Actor, Command, Inventory, Origin};
use toolcrib_core::{Code, Error, Result, Source, SourceId};

use crate::builtin::{BuiltinDefinition, BuiltinHandler};
use crate::call::Dispatcher;
use crate::maintenance::Maintenance;
use crate::metrics::MetricsSnapshot;
use crate::refresh::{Refresh, RefreshOutcome, Refresher};
use crate::state::State;
use crate::trace::Trace;
use token_counts::TokenCounter;

pub use crate::breaker::{BreakerState, BreakerView};
pub use crate::maintenance::StoreHealth;
pub use crate::state::{DiscoveryStage, RegistryNotice};
pub use access_tokens::{CreatedToken, TokenView, random_secret, random_token};
pub use api_requirements::{ApiRequirements, ApiServer, MissingScheme, api_requirements};
pub use damage::DamageAcceptance;
pub use declare::DeclareOutcome;
pub use enable::{EnableOutcome, EnableTarget, EnabledState};
pub use historical::{HistoricalTool, ToolVersion};
pub use history::{HistoryPage, HistoryQuery, HistoryRecord};
pub use list_hints::ListHints;
pub use options::{RegistryOptions, Trust, UntrustedFile};
pub use source_view::{ConnectionState, DiscoveryStatus, SourceHealth, SourceView};
pub use sources_version::SourcesVersion;
pub use stats::{SourceStats, Stats, ToolStats};
pub use tool_detail::{ExecutionView, ToolDetail};
pub use tools::{ToolFilter, ToolView};
pub use verify::Verification;

/// One catalogue of tools over a store, with the connections to the sources behind it.
///
/// Cheap to clone; all clones are handles to the same registry.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) state: Arc<State>,
    pub(crate) refresher: Arc<Refresher>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    maintenance: Arc<Maintenance>,
    token_counter: Arc<TokenCounter>,
    /// Starts the shutdown when the last clone is dropped, which ends the registry's tasks, connections and processes.
    _shutdown_guard: Arc<DropGuard>,
}

/// Time that connections get to close; what is still open after that ends with the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

impl Registry {
    /// Returns the current catalogue. Lock-free.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.state.snapshot().catalog.clone()
    }

    /// Returns the folded journal behind the catalogue, which also has disabled sources and deprecated tools.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.state.snapshot().inventory.clone()
    }

    /// Returns the current catalogue as `caller` may see it.
    pub fn view(&self, caller: &Caller) -> View {
        View { catalog: self.catalog(), caller: caller.clone() }
    }

    /// Returns which tools agents are shown, per configuration.
    pub fn expose(&self) -> Arc<Expose> {
        self.state.settings.load().expose.clone()
    }

    /// Returns when missing and stale sources are discovered ahead of requests, per configuration; for programs that
    /// serve clients.
    pub fn warm(&self) -> WarmPolicy {
        self.state.settings.load().warm
    }

    /// Executes a command and returns the version of the journal afterwards. A command that changes nothing succeeds
    /// and writes nothing. Fails with `CONFLICT` if other processes keep writing, and with `STORE_UNAVAILABLE` while
    /// the journal is damaged or too new.
    pub async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.state.execute(command, actor).await
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
        let snapshot = self.state.snapshot();
        let state = snapshot.inventory.source(id).ok_or_else(|| snapshot.unknown_source_error(id.as_str()))?;
        if state.origin == Origin::Config {
            let message =
                format!("`{id}` is declared in the configuration; remove it there, or run `toolcrib disable {id}`");
            return Err(Error::new(Code::Conflict, message).with_retryable(false));
        }
        // The event first: if the process ends in between, the source is removed, and only rows without use are left.
        self.execute(Command::Remove(id.clone()), actor).await?;
        self.state.store.remove_definitions(id, None).await?;
        self.state.store.remove_source_status(id).await?;
        if let Some(logs) = &self.state.options.logs_directory {
            // The log file goes with its source; it may not exist.
            let _ = std::fs::remove_file(crate::server_logs::log_path(logs, id));
        }
        Ok(())
    }

    /// Marks one or all sources as stale: they are discovered again when they are next needed, and their tools stay
    /// listed until then.
    pub async fn invalidate(&self, source: Option<&SourceId>) -> Result<()> {
        let snapshot = self.state.snapshot();
        snapshot.ensure_usable()?;
        let ids: Vec<SourceId> = match source {
            Some(id) if snapshot.inventory.source(id).is_none() => {
                return Err(snapshot.unknown_source_error(id.as_str()));
            }
            Some(id) => vec![id.clone()],
            None => snapshot.inventory.sources().map(|(id, _)| id.clone()).collect(),
        };
        for id in &ids {
            self.state.store.invalidate(id).await?;
            // A discovery that is running now may have read the list before this request.
            self.refresher.invalidate_after_run(id.clone());
        }
        self.state.catch_up().await
    }

    /// Adds a tool of the host program. It needs no configuration and lives as long as this process. Without a handler
    /// it is only listed, and the host executes it. Visible at once, without a record in the journal.
    pub fn register_builtin(&self, definition: BuiltinDefinition, handler: Option<BuiltinHandler>) -> Result<()> {
        self.state.connectors.builtins().register(definition, handler)?;
        self.state.publish_embedded();
        Ok(())
    }

    /// Returns the sources that must not be contacted, each with the reason.
    pub fn blocked_sources(&self) -> Arc<BTreeMap<SourceId, String>> {
        self.state.snapshot().blocked_sources.clone()
    }

    /// Whether the project's configuration file is trusted; also true when there is none.
    pub fn is_trusted(&self) -> bool {
        self.state.trust.load().untrusted.is_none()
    }

    /// Replaces the trust. Call [`Registry::reconfigure`] with the same configuration afterwards.
    pub fn set_trust(&self, trust: Trust) {
        self.state.set_trust(trust);
    }

    /// Returns the error for an unknown source, with the most similar known name.
    pub fn unknown_source_error(&self, name: &str) -> Error {
        self.state.snapshot().unknown_source_error(name)
    }

    /// Subscribes to notices. A slow subscriber misses notices (`RecvError::Lagged`) instead of delaying the registry.
    pub fn subscribe(&self) -> broadcast::Receiver<RegistryNotice> {
        self.state.notices.subscribe()
    }

    /// Returns what this process has counted since it opened the registry.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.dispatcher.monitoring.metrics_snapshot()
    }

    /// Writes the counts, closes every connection and its process, and closes the store. Waits 15 seconds at most.
    pub async fn close(self) {
        self.close_within(SHUTDOWN_TIMEOUT).await;
    }

    /// Like [`Registry::close`], with another limit for closing connections; what is still open after that ends with
    /// the process. Other clones can still read the last snapshot; their writes fail.
    pub async fn close_within(self, limit: Duration) {
        // The tasks first: the shutdown must have begun before connections are closed, or one could be reopened.
        let ending = futures_util::future::join(self.state.tasks.close(), self.state.connectors.close_all());
        if tokio::time::timeout(limit, ending).await.is_err() {
            tracing::warn!("some connections were not closed in time; they end with the process");
        }
        // The failure has been logged; these counts are lost with the process.
        let _ = self.dispatcher.monitoring.usage.flush(&*self.state.store).await;
        self.state.store.close().await;
    }

    /// Fails if calls cannot be expected to work. A store that is down prevents changes, but not calls. The error names
    /// no path: `/readyz` is answered without credentials.
    pub fn check_ready(&self) -> Result<()> {
        self.maintenance.check_ready()
    }

    /// Returns the health of the store, without accessing it.
    pub fn store_health(&self) -> StoreHealth {
        self.maintenance.store_health()
    }

    /// Counts the tokens of tools that were not counted yet, so that
    /// [`View::full_token_count`](toolcrib_core::catalog::View::full_token_count) only has to add them up. Neither a
    /// start nor a discovery counts tokens: loading the tokenizer alone would take too long.
    pub async fn count_tokens(&self) {
        self.token_counter.count_tokens().await;
    }
}
