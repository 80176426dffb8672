//! [`Registry`], the entry point of the library.
//!
//! Behind it are the owners of the work, each of which knows only those before it: `Connectors` (connections and
//! circuit breakers), `State` (the write path and the snapshot that readers see), `Refresher` (discovers tool lists),
//! `Dispatcher` (checks and sends calls) and `Maintenance` (the periodic task).

// Opening and closing.
mod builder;
mod open;

// Commands that change the inventory.
mod access_tokens;
mod declare;
mod enable;
mod precondition;
mod prune;
mod rule_definitions;
mod rule_preview;

// Reading sources and tools.
mod api_requirements;
mod effective_config;
mod position;
mod source_view;
mod sources_version;
mod stats;
mod token_counts;
mod tool_view;
mod tools;

// Reading the past.
mod history;
mod lockfile;
mod removed_tools;
mod tool_versions;

// Restricting all of this to what a principal may see.
mod visibility;

// Checking and repairing the store.
mod damage;
mod verify;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::sync::DropGuard;
use toolcrib_catalog::{Catalog, View};
use toolcrib_core::access::Role;
use toolcrib_core::access_rules::AccessScope;
use toolcrib_core::inventory::{Actor, Command, Inventory};
use toolcrib_core::principal::{Principal, PrincipalIdentity};
use toolcrib_core::{Result, Timestamp};

use crate::call::Dispatcher;
use crate::connectors::Connectors;
use crate::maintenance::Maintenance;
use crate::node::NodeId;
use crate::refresh::Refresher;
use crate::shared_runs::SharedRuns;
use crate::state::State;
use crate::tasks::Tasks;
use crate::{BuiltinDefinition, BuiltinHandler};
use token_counts::TokenCounter;

pub use crate::breaker::{BreakerState, BreakerView};
pub use crate::logins::{ConsoleSession, Logins, MAX_CONSOLE_SESSION_AGE};
pub use crate::notice::{DiscoveryStage, FeatureOutcome, RegistryNotice, SourceTransitionNotice};
pub use crate::options::{NamedStore, RegistryOptions, Trust, UntrustedFile, default_node_label};
pub use crate::store_health::StoreHealth;
pub use access_tokens::{AccessTokens, CreatedToken, TokenRequest, TokenView, random_secret, random_token};
pub use api_requirements::{ApiRequirements, ApiServer, MissingScheme, api_requirements};
pub use builder::RegistryBuilder;
pub use damage::DamageAcceptance;
pub use declare::DeclareOutcome;
pub use effective_config::Configuration;
pub use enable::{EnableOutcome, EnableTarget, EnabledState};
pub use history::{History, HistoryPage, HistoryQuery, HistoryRecord};
pub use lockfile::Lockfiles;
pub use precondition::Precondition;
pub use removed_tools::{FoundTool, RemovedTool, RemovedToolsPage, RemovedToolsQuery};
pub use rule_definitions::{CallerVerdict, GroupMembers, PreviewCaller, RuleDefinitions, ToolAccess, ToolGroup};
pub use rule_preview::{CallerChange, RuleChange, RuleChangePreview, ToolChanges, VerdictChange};
pub use source_view::{ConnectionState, DiscoveryStatus, SourceHealth, SourceView, Sources};
pub use sources_version::{ListHints, SourcesVersion};
pub use stats::{SourceStats, Statistics, Stats, ToolStats};
pub use tool_versions::ToolVersion;
pub use tool_view::{ExecutionView, ToolView};
pub use toolcrib_catalog::filter::ToolFilter;
pub use verify::{StoreMaintenance, Verification};
pub use visibility::Visibility;

/// One catalogue of tools over a store, with the connections to the sources behind it.
///
/// Cheap to clone; all clones are handles to the same registry. It has the methods that most programs need; nine of
/// them, such as [`Registry::sources`], return a group of further ones.
///
/// About twenty methods besides these groups and its constructors: those that programs call in every request.
#[derive(Debug, Clone)]
pub struct Registry {
    options: Arc<RegistryOptions>,
    pub(crate) connectors: Arc<Connectors>,
    pub(crate) state: Arc<State>,
    pub(crate) refresher: Arc<Refresher>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    maintenance: Arc<Maintenance>,
    logins: Arc<Logins>,
    /// Reads of new records for requests that wait for a position.
    catch_ups: Arc<SharedRuns>,
    /// Locked while such a run goes on, which its caller may have left.
    background_catch_up: Arc<tokio::sync::Mutex<()>>,
    token_counter: Arc<TokenCounter>,
    notices: broadcast::Sender<RegistryNotice>,
    pub(crate) tasks: Tasks,
    /// Starts the shutdown when the last clone is dropped, which ends the registry's tasks, connections and processes.
    _shutdown_guard: Arc<DropGuard>,
}

/// An administrator, who sees everything.
static UNRESTRICTED: LazyLock<Principal> =
    LazyLock::new(|| Principal::new(PrincipalIdentity::Local, "toolcrib", Role::Admin));

/// Time that connections get to close; what is still open after that ends with the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time of the last writes of a registry that closes. A store that is down must not delay the end of the process.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

impl Registry {
    /// Returns the current catalogue with every tool, whatever a principal may see: for administration and metrics.
    /// Everything that is shown to a client is read through [`Registry::view`]. Lock-free.
    pub fn unrestricted_catalog(&self) -> Arc<Catalog> {
        self.state.snapshot().catalog.clone()
    }

    /// Returns the folded journal behind the catalogue, which also has disabled sources and deprecated tools.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.state.snapshot().inventory.clone()
    }

    /// Returns the current catalogue as a principal may see it: the tools of its groups, for an administrator also denied
    /// and hidden ones. Lock-free.
    pub fn view(&self, principal: &Principal) -> View {
        self.state.snapshot().view(principal)
    }

    /// Returns which groups and policies hold for a principal. Lock-free.
    pub fn scope(&self, principal: &Principal) -> Arc<AccessScope> {
        self.state.snapshot().scope(principal)
    }

    /// Executes a command and returns the version of the journal afterwards. A command that changes nothing succeeds
    /// and writes nothing. Fails with `CONFLICT` if other processes keep writing, and with `STORE_UNAVAILABLE` while
    /// the journal is damaged or too new.
    pub async fn execute(&self, command: Command, actor: Actor) -> Result<u64> {
        self.state.execute(&[command], actor, Precondition::NONE).await?;
        Ok(self.state.snapshot().inventory.version)
    }

    /// Adds a tool of the host program. It needs no configuration and lives as long as this process. Without a handler
    /// it is only listed, and the host executes it. Visible at once, without a record in the journal.
    pub fn register_builtin(&self, definition: BuiltinDefinition, handler: Option<BuiltinHandler>) -> Result<()> {
        self.connectors.builtins().register(definition, handler)?;
        self.state.publish_embedded();
        Ok(())
    }

    /// Subscribes to notices. A slow subscriber misses notices (`RecvError::Lagged`) instead of delaying the registry.
    pub fn subscribe(&self) -> broadcast::Receiver<RegistryNotice> {
        self.notices.subscribe()
    }

    /// Writes counts and uses of tokens, closes every connection and its process, and closes the store. Waits 15
    /// seconds at most.
    pub async fn close(self) {
        self.close_within(SHUTDOWN_TIMEOUT).await;
    }

    /// Like [`Registry::close`], with another limit for closing connections; what is still open after that ends with
    /// the process. Other clones can still read the last snapshot; their writes fail.
    pub async fn close_within(self, limit: Duration) {
        // The tasks first: the shutdown must have begun before connections are closed, or one could be reopened.
        let ending = futures_util::future::join(self.tasks.close(), self.connectors.close_all());
        if tokio::time::timeout(limit, ending).await.is_err() {
            tracing::warn!("some connections were not closed in time; they end with the process");
        }
        let write_rest = async {
            // Other processes need not wait for the leases of this one to expire.
            self.refresher.release_leases().await;
            // Failures have been logged; these counts are lost with the process.
            let _ = self.dispatcher.monitoring.usage.flush(&*self.state.store).await;
            let _ = self.dispatcher.monitoring.token_uses.flush(&*self.state.store).await;
            let _ = self.maintenance.remove_node().await;
        };
        if tokio::time::timeout(FINAL_WRITE_TIMEOUT, write_rest).await.is_err() {
            tracing::warn!("the store does not answer; the last counts of calls are not written");
        }
        self.state.store.close().await;
    }

    /// Returns the current time by the registry's clock.
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// Returns the identity of this process among all that share the store. Handles that only this process can serve
    /// begin with it.
    pub fn node(&self) -> &NodeId {
        &self.state.node
    }

    /// Returns the label that people gave this process among the nodes that share the store.
    pub fn node_label(&self) -> &str {
        &self.options.node_label
    }

    /// Returns the sources: reads, declares and switches them.
    pub fn sources(&self) -> Sources<'_> {
        Sources { registry: self, precondition: Precondition::NONE }
    }

    /// Returns the refresher, which decides whether tool lists are fresh enough and discovers them.
    pub fn refresher(&self) -> &Arc<Refresher> {
        &self.refresher
    }

    /// Returns the past: records of the journal, discoveries, and tools as they were.
    pub fn history(&self) -> History<'_> {
        self.history_for(&UNRESTRICTED)
    }

    /// Returns the past as a principal may see it.
    pub fn history_for<'a>(&'a self, principal: &'a Principal) -> History<'a> {
        History { registry: self, principal }
    }

    /// Returns the access tokens.
    pub fn tokens(&self) -> AccessTokens<'_> {
        AccessTokens { registry: self, precondition: Precondition::NONE }
    }

    /// Returns the console sessions and login links.
    pub fn logins(&self) -> &Logins {
        &self.logins
    }

    /// Returns the groups, access rules and policies.
    pub fn rules(&self) -> RuleDefinitions<'_> {
        self.rules_for(&UNRESTRICTED)
    }

    /// Returns the groups, access rules and policies for an administrator, who may be limited to the tools of groups.
    pub fn rules_for<'a>(&'a self, reader: &'a Principal) -> RuleDefinitions<'a> {
        RuleDefinitions { registry: self, reader, precondition: Precondition::NONE }
    }

    /// Returns lockfiles of the catalogue, and what changed since one was written.
    pub fn lockfile(&self) -> Lockfiles<'_> {
        self.lockfile_for(&UNRESTRICTED)
    }

    /// Returns lockfiles of the catalogue as a principal may see it.
    pub fn lockfile_for<'a>(&'a self, principal: &'a Principal) -> Lockfiles<'a> {
        Lockfiles { registry: self, principal }
    }

    /// Returns counts of calls, cache lookups and tokens.
    pub fn statistics(&self) -> Statistics<'_> {
        self.statistics_for(&UNRESTRICTED)
    }

    /// Returns the counts that a principal may see.
    pub fn statistics_for<'a>(&'a self, principal: &'a Principal) -> Statistics<'a> {
        Statistics { registry: self, principal }
    }

    /// Returns the configuration: what applies now, and how to change it.
    pub fn configuration(&self) -> Configuration<'_> {
        Configuration { registry: self }
    }

    /// Returns the checks and repairs of the store.
    pub fn store(&self) -> StoreMaintenance<'_> {
        StoreMaintenance { registry: self }
    }
}
