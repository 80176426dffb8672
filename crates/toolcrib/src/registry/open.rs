//! Opening a registry (store, journal, catalogue, configuration) and its periodic maintenance. Opening makes no
//! network requests and starts no process; maintenance may restore connections and refresh announced sources.
//!
//! Reconciling compares the configuration with the inventory and executes only the differences as commands, so a start
//! with an unchanged configuration writes nothing and takes no lock in the store. Maintenance is one task per registry
//! that runs until it closes: it flushes counts, removes expired result pages, follows the writes of other processes,
//! and handles announced changes of sources.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_core::config::{Config, overrides_from_env};
use toolcrib_core::inventory::{Actor, Command, Inventory, Origin, reconcile};
use toolcrib_core::manifest::Manifest;
use toolcrib_core::{Code, Result, Source, SourceId};

use super::{MaintenanceState, Registry, RegistryInner, RegistryOptions, Snapshot};
use crate::call::ValidationPermits;
use crate::connectors::{Connectors, SourceEvents};
use crate::metrics::Metrics;
use crate::refresh::{InFlightDiscoveries, Refresh};
use crate::result_pages::PageStore;
use crate::store::{ErrorSummary, MemoryStore, SourceStatus, Store, StoreState};
use crate::usage::UsageCounters;

/// Interval of maintenance: following other processes' writes and writing counts. A tick without changes costs one
/// cheap statement of the store (`Store::change_counter`).
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

impl Registry {
    /// Opens a registry: reads the store, folds the journal, publishes the catalogue, and reconciles the configuration
    /// with it. Makes no network requests and starts no process.
    ///
    /// A journal with a critical record of a newer Toolcrib opens read-only: the configuration is not applied, and
    /// calls and changes fail with `STORE_UNAVAILABLE`.
    ///
    /// A damaged journal opens in the same way. If its file cannot be read at all and [`RegistryOptions::head_file`]
    /// says that there was a journal, the registry opens empty instead.
    pub async fn open(config: Config, options: RegistryOptions) -> Result<Registry> {
        let error = match Registry::open_readable(&config, options.clone()).await {
            Err(error) if StoreState::from_error(&error) == StoreState::Damaged => error,
            opened => return opened,
        };
        match options.head_file.clone() {
            Some(head_file) if head_file.read() != Ok(None) => {
                let head_file = head_file.with_store_damage(StoreState::Damaged, &error.message);
                // Nothing can be read: serve an empty store in memory, marked as damaged.
                if let Some(damaged) = &options.store {
                    damaged.close().await;
                }
                let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
                let options = RegistryOptions { store: Some(store), head_file: Some(head_file), ..options };
                Registry::open_readable(&config, options).await
            }
            Some(_) | None => Err(error),
        }
    }

    /// Opens a registry over a store whose journal can be read, at least in part. Fails if the store cannot be read at
    /// all.
    async fn open_readable(config: &Config, options: RegistryOptions) -> Result<Registry> {
        let store = options.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let store_key = store.key().await?;
        // A subscriber may fall this many notices behind before it misses some. One that needs all records fills gaps
        // from the journal.
        let (notices, _) = broadcast::channel(1024);
        let source_events = SourceEvents::new(notices.clone());
        let inner = Arc::new(RegistryInner {
            store_key,
            default_settings: ArcSwap::from_pointee(config.defaults.clone()),
            expose: ArcSwap::from_pointee(config.expose.clone()),
            warm: ArcSwap::from_pointee(config.warm),
            writer: tokio::sync::Mutex::new(super::publish::WriterState::new(&options)),
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            notices,
            connectors: Connectors::new(&options, source_events),
            result_pages: PageStore::default(),
            usage: UsageCounters::default(),
            metrics: Metrics::default(),
            maintenance: MaintenanceState::new(options.clock.now()),
            discoveries: InFlightDiscoveries::default(),
            discovery_permits: Semaphore::new(options.max_parallel_discoveries.max(1)),
            validation_permits: ValidationPermits::default(),
            token_count_lock: tokio::sync::Mutex::default(),
            blocked_sources: ArcSwap::from_pointee(options.trust.blocked_sources()),
            trust: ArcSwap::from_pointee(options.trust.clone()),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            store,
            options,
        });
        // Workflows call tools of other sources through the registry.
        inner.connectors.registry.set(&inner);
        // Read the journal first, then apply the configuration to it.
        inner.catch_up().await?;
        inner.reconcile(config).await?;
        inner.warn_of_unused_overrides();
        inner.clone().spawn_maintenance();
        let shutdown_guard = Arc::new(inner.shutdown.clone().drop_guard());
        let registry = Registry { inner, _shutdown_guard: shutdown_guard };
        registry.record_builtins().await;
        Ok(registry)
    }

    /// Applies a configuration that was read again. Only sources of the configuration change; those added at run time
    /// stay. Fails, before anything changes, while the journal is damaged or too new.
    pub async fn reconfigure(&self, config: &Config) -> Result<()> {
        self.inner.ensure_usable()?;
        self.inner.default_settings.store(Arc::new(config.defaults.clone()));
        self.inner.expose.store(Arc::new(config.expose.clone()));
        self.inner.warm.store(Arc::new(config.warm));
        self.inner.reconcile(config).await?;
        self.inner.republish().await;
        self.record_builtins().await;
        Ok(())
    }

    /// Records the built-in tools of this version where they differ from the stored manifest. Listing them makes no
    /// requests, so they are never missing. On the next start of the same version the fingerprints are equal, and
    /// nothing is written.
    async fn record_builtins(&self) {
        let snapshot = self.inner.snapshot.load_full();
        if snapshot.ensure_usable().is_err() {
            return;
        }
        let mut changed = Vec::new();
        for source in snapshot.effective_sources.values().filter(|source| source.kind.is_builtin()) {
            let known = snapshot.inventory.source(&source.id).and_then(|state| state.manifest);
            let tools = self.inner.connectors.builtins().load_source(source);
            match tools.map(|tools| Manifest::new(&source.id, &tools, Vec::new(), &self.inner.options.tool_limits)) {
                Ok(manifest) if known == Some(manifest.fingerprint) => {}
                // A refresh finds the same failure again and records it.
                Ok(_) | Err(_) => changed.push(source.id.clone()),
            }
        }
        if !changed.is_empty() {
            self.refresh(Refresh { sources: Some(changed), force: true, ..Refresh::default() }).await;
        }
    }
}

impl RegistryInner {
    /// Turns the difference between configuration and inventory into commands and executes them.
    async fn reconcile(&self, config: &Config) -> Result<()> {
        let mut declared = Vec::new();
        let mut invalid = BTreeMap::new();
        for declaration in &config.sources {
            match &declaration.source {
                Ok(source) => declared.push(source),
                Err(faults) => {
                    let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    invalid.insert(declaration.id.clone(), ErrorSummary::new(Code::ConfigInvalid, message));
                }
            }
        }
        // Compare the configuration with the journal. A source with an invalid declaration is reported as such and
        // otherwise left as it is: a typing error must not remove its tools and history.
        let inventory = self.snapshot.load().inventory.clone();
        let declarations =
            declared.iter().map(|source| self.declaration(source, Origin::Config)).collect::<Result<Vec<_>>>()?;
        // Sources that stay in the inventory although no valid declaration was read for them.
        let mut retained: Vec<SourceId> = invalid.keys().cloned().collect();
        retained.extend(self.block_untrusted_sources(&inventory, &declared, &mut invalid));
        let commands = reconcile(&inventory, declarations, &retained);
        let mut commands: Vec<Command> =
            commands.into_iter().filter(|command| !is_already_applied(&inventory, command)).collect();
        // A damaged or too new journal opens read-only; the log says that the configuration was not applied.
        if self.ensure_usable().is_err() && !commands.is_empty() {
            tracing::warn!(changes = commands.len(), "changes of the configuration are not applied");
            commands.clear();
        }
        for command in commands {
            match &command {
                Command::Declare(declaration) => {
                    // First the content, then the event that refers to it.
                    let source: Option<&&Source> = declared.iter().find(|source| source.id == declaration.source);
                    if let Some(source) = source {
                        self.store.put_definition(declaration.definition, source).await?;
                    }
                    // A source added at run time under the same name gives way, with a warning.
                    if inventory.source(&declaration.source).is_some_and(|state| state.origin == Origin::Runtime) {
                        tracing::warn!(source = %declaration.source, "the declaration in the configuration takes precedence over the one made at run time");
                    }
                }
                // The configuration no longer has it. Old definitions may hold secrets.
                Command::Remove(id) => {
                    self.store.remove_definitions(id, None).await?;
                    self.store.remove_source_status(id).await?;
                }
                Command::Enable(_)
                | Command::Disable(_)
                | Command::Record(_)
                | Command::EnableTool(_)
                | Command::DisableTool(_)
                | Command::CreateToken(_)
                | Command::ChangeToken(_)
                | Command::RevokeToken(_)
                | Command::AcceptDamage { .. } => {}
            }
            self.execute(command, Actor::config()).await?;
        }
        self.publish_invalid(invalid);
        Ok(())
    }

    /// Blocks the sources of an untrusted file: those it declares, and those of the store that it may have declared
    /// before, which stay as they are and are returned. A blocked source that the store does not know is listed as
    /// invalid, with the reason. Without this, a file that lost its trust would lose all its sources in the store,
    /// because none of its declarations is read.
    fn block_untrusted_sources(
        &self,
        inventory: &Inventory,
        declared: &[&Source],
        invalid: &mut BTreeMap<SourceId, ErrorSummary>,
    ) -> Vec<SourceId> {
        let trust = self.trust.load();
        let mut blocked = trust.blocked_sources();
        let Some(untrusted) = &trust.untrusted else {
            self.blocked_sources.store(Arc::new(blocked));
            return Vec::new();
        };
        let configured = inventory.sources().filter(|(_, state)| state.origin == Origin::Config);
        let undeclared = configured.map(|(id, _)| id).filter(|id| !declared.iter().any(|source| source.id == **id));
        let undeclared: Vec<SourceId> = undeclared.cloned().collect();
        for id in untrusted.sources.iter().filter(|id| inventory.source(id).is_none()) {
            let failure = ErrorSummary::new(Code::Forbidden, untrusted.reason.clone());
            invalid.entry(id.clone()).or_insert(failure);
        }
        blocked.extend(undeclared.iter().map(|id| (id.clone(), untrusted.reason.clone())));
        self.blocked_sources.store(Arc::new(blocked));
        undeclared
    }

    /// Logs override variables that match no source, most likely a misspelt name.
    fn warn_of_unused_overrides(&self) {
        let snapshot = self.snapshot.load();
        for error in
            overrides_from_env(self.options.environment.iter().cloned(), snapshot.effective_sources.keys()).errors
        {
            tracing::warn!("{error}");
        }
    }

    /// Spawns the maintenance task. It runs until the registry closes.
    fn spawn_maintenance(self: Arc<Self>) {
        let shared = self.clone();
        self.tasks.spawn(async move {
            let mut last_change = None;
            let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
            // After a pause, e.g. of a laptop that slept, one tick is enough.
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = shared.shutdown.cancelled() => return,
                    _ = ticks.tick() => {
                        shared.maintain_connections();
                        shared.run_maintenance_tick(&mut last_change).await;
                    }
                    source = shared.connectors.source_events.next_changed_source() => shared.clone().on_tools_changed(source),
                }
            }
        });
    }

    /// Lets connectors restore connections that clients depend on and that were lost, in the background. Each connector
    /// runs as a task of its own, because a connection attempt may take as long as its timeout.
    fn maintain_connections(&self) {
        if self.ensure_usable().is_err() {
            return;
        }
        for connector in self.connectors.connectors().into_iter().filter(|connector| connector.needs_maintenance()) {
            let shutdown = self.shutdown.clone();
            self.tasks.spawn(shutdown.run_until_cancelled_owned(async move { connector.maintain().await }));
        }
    }

    /// Removes expired result pages, writes counts, and applies what other processes wrote. Never ends the task: a
    /// failure is logged, reported by readiness checks, and tried again with the next tick.
    async fn run_maintenance_tick(&self, last_change: &mut Option<u64>) {
        self.result_pages.remove_expired();
        let flushed = self.usage.flush(&*self.store).await;
        let followed = if self.options.follow_writes { self.follow_writes(last_change).await } else { Ok(()) };
        if let Err(error) = &followed {
            tracing::warn!(%error, "records of other processes cannot be read; the current catalogue is still served");
        }
        self.maintenance.record(&flushed.and(followed), self.options.clock.now());
    }

    /// Catches up if the store has changed since `last_change`. `last_change` is updated only after everything was
    /// read, so a failure is repeated with the next tick.
    async fn follow_writes(&self, last_change: &mut Option<u64>) -> Result<()> {
        let change = self.store.change_counter().await?;
        // A lease can end without a write: when its process was killed. So read the statuses on each tick while a lease
        // is held.
        let discovering = self.snapshot.load().statuses.values().any(SourceStatus::is_being_discovered);
        if *last_change == Some(change) && !discovering {
            return Ok(());
        }
        self.catch_up().await?;
        *last_change = Some(change);
        self.usage.load(&*self.store).await
    }
}

/// Whether a command would change nothing. Decided on the snapshot, so that a start with an unchanged configuration
/// takes no lock in the store.
fn is_already_applied(inventory: &Inventory, command: &Command) -> bool {
    inventory.decide(command).is_ok_and(|events| events.is_empty())
}
