//! Opening: configuration, store, journal, catalogue. Nothing is contacted.

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
use crate::connections::{Connectors, SourceEvents};
use crate::metrics::Metrics;
use crate::refresh::{InFlightDiscoveries, Refresh};
use crate::result_pages::PageStore;
use crate::store::{ErrorSummary, MemoryStore, SourceStatus, Store, StoreState};
use crate::usage::UsageCounters;

/// How often other processes' writes are looked for, and counters written.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

impl Registry {
    /// Reads what is known and lays the configuration over it. Contacts no source.
    ///
    /// A journal with a record that must not be ignored and that only a newer Toolcrib understands opens too, for reading:
    /// the configuration is not laid over it, and calls and changes are refused with `STORE_UNAVAILABLE`.
    ///
    /// A damaged journal opens in the same way; where its file cannot be read at all and [`Options::head`] tells that there
    /// was one, with nothing in it.
    pub async fn open(config: Config, options: RegistryOptions) -> Result<Registry> {
        let error = match Registry::open_readable(&config, options.clone()).await {
            Err(error) if StoreState::from_error(&error) == StoreState::Damaged => error,
            opened => return opened,
        };
        match options.head_file.clone() {
            Some(head) if head.read() != Ok(None) => {
                let head = head.with_store_damage(StoreState::Damaged, &error.message);
                if let Some(damaged) = &options.store {
                    damaged.close().await;
                }
                let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
                let options = RegistryOptions { store: Some(store), head_file: Some(head), ..options };
                Registry::open_readable(&config, options).await
            }
            Some(_) | None => Err(error),
        }
    }

    async fn open_readable(config: &Config, options: RegistryOptions) -> Result<Registry> {
        let store = options.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let key = store.key().await?;
        let (notices, _) = broadcast::channel(1024);
        let news = SourceEvents::new(notices.clone());
        let shared = Arc::new(RegistryInner {
            store_key: key,
            default_settings: ArcSwap::from_pointee(config.defaults.clone()),
            expose: ArcSwap::from_pointee(config.expose.clone()),
            warm: ArcSwap::from_pointee(config.warm),
            writer: tokio::sync::Mutex::new(super::publish::WriterState::new(&options)),
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            notices,
            connectors: Connectors::new(&options, news),
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
        shared.connectors.registry.set(&shared);
        shared.catch_up().await?;
        shared.reconcile(config).await?;
        shared.warn_of_unused_overrides();
        shared.clone().spawn_maintenance();
        let alive = Arc::new(shared.shutdown.clone().drop_guard());
        let registry = Registry { shared, _shutdown_guard: alive };
        registry.record_builtins().await;
        Ok(registry)
    }

    /// Lays a configuration, read again, over what is known. Only sources of the configuration are touched.
    pub async fn reconfigure(&self, config: &Config) -> Result<()> {
        self.shared.ensure_usable()?;
        self.shared.default_settings.store(Arc::new(config.defaults.clone()));
        self.shared.expose.store(Arc::new(config.expose.clone()));
        self.shared.warm.store(Arc::new(config.warm));
        self.shared.reconcile(config).await?;
        self.shared.republish().await;
        self.record_builtins().await;
        Ok(())
    }

    /// Built-in tools are at hand: listing them contacts nobody, so they are never missing.
    /// They are written down only when they changed.
    async fn record_builtins(&self) {
        let now = self.shared.snapshot.load_full();
        if now.ensure_usable().is_err() {
            return;
        }
        let mut changed = Vec::new();
        for source in now.effective_sources.values().filter(|source| source.kind.is_builtin()) {
            let known = now.inventory.source(&source.id).and_then(|state| state.manifest);
            let offered = self.shared.connectors.builtins().load_source(source);
            match offered.map(|tools| Manifest::new(&source.id, &tools, Vec::new(), &self.shared.options.bounds)) {
                Ok(manifest) if known == Some(manifest.fingerprint) => {}
                // A failure is found again, and written down, by the refresh.
                Ok(_) | Err(_) => changed.push(source.id.clone()),
            }
        }
        if !changed.is_empty() {
            self.refresh(Refresh { sources: Some(changed), force: true, ..Refresh::default() }).await;
        }
    }
}

impl RegistryInner {
    async fn reconcile(&self, config: &Config) -> Result<()> {
        let (mut declared, mut invalid) = (Vec::new(), BTreeMap::new());
        for declaration in &config.sources {
            match &declaration.source {
                Ok(source) => declared.push(source),
                Err(faults) => {
                    let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    invalid.insert(declaration.id.clone(), ErrorSummary::new(Code::ConfigInvalid, message));
                }
            }
        }
        let inventory = self.snapshot.load().inventory.clone();
        let declarations =
            declared.iter().map(|source| self.declaration(source, Origin::Config)).collect::<Result<Vec<_>>>()?;
        let mut kept: Vec<SourceId> = invalid.keys().cloned().collect();
        kept.extend(self.block_untrusted_sources(&inventory, &declared, &mut invalid));
        let wishes = reconcile(&inventory, declarations, &kept);
        let mut wishes: Vec<Command> =
            wishes.into_iter().filter(|wish| !is_already_applied(&inventory, wish)).collect();
        if self.ensure_usable().is_err() && !wishes.is_empty() {
            tracing::warn!(changes = wishes.len(), "what changed in the configuration is not taken over");
            wishes.clear();
        }
        for wish in wishes {
            match &wish {
                Command::Declare(declaration) => {
                    let source: Option<&&Source> = declared.iter().find(|source| source.id == declaration.source);
                    if let Some(source) = source {
                        self.store.put_definition(declaration.definition, source).await?;
                    }
                    if inventory.source(&declaration.source).is_some_and(|state| state.origin == Origin::Runtime) {
                        tracing::warn!(source = %declaration.source, "the configuration's declaration wins over the one made at run time");
                    }
                }
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
            self.execute(wish, Actor::config()).await?;
        }
        self.publish_invalid(invalid);
        Ok(())
    }

    /// While a file is not trusted, none of its sources is contacted, neither those that it declares nor those that it
    /// may have declared before, which stay as they are. What the store does not know of is listed with the reason.
    fn block_untrusted_sources(
        &self,
        inventory: &Inventory,
        declared: &[&Source],
        invalid: &mut BTreeMap<SourceId, ErrorSummary>,
    ) -> Vec<SourceId> {
        let trust = self.trust.load();
        let mut forbidden = trust.blocked_sources();
        let Some(untrusted) = &trust.untrusted else {
            self.blocked_sources.store(Arc::new(forbidden));
            return Vec::new();
        };
        let configured = inventory.sources().filter(|(_, state)| state.origin == Origin::Config);
        let undeclared = configured.map(|(id, _)| id).filter(|id| !declared.iter().any(|source| source.id == **id));
        let undeclared: Vec<SourceId> = undeclared.cloned().collect();
        for id in untrusted.sources.iter().filter(|id| inventory.source(id).is_none()) {
            let failure = ErrorSummary::new(Code::Forbidden, untrusted.reason.clone());
            invalid.entry(id.clone()).or_insert(failure);
        }
        forbidden.extend(undeclared.iter().map(|id| (id.clone(), untrusted.reason.clone())));
        self.blocked_sources.store(Arc::new(forbidden));
        undeclared
    }

    /// A variable that overrides nothing is most likely a slip.
    fn warn_of_unused_overrides(&self) {
        let now = self.snapshot.load();
        for fault in overrides_from_env(self.options.environment.iter().cloned(), now.effective_sources.keys()).errors {
            tracing::warn!("{fault}");
        }
    }

    /// The registry's own upkeep, until it ends: others' writes, counters, announced changes.
    fn spawn_maintenance(self: Arc<Self>) {
        let shared = self.clone();
        self.tasks.spawn(async move {
            let mut pulse = None;
            let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = shared.shutdown.cancelled() => return,
                    _ = ticks.tick() => {
                        shared.maintain_connections();
                        shared.run_maintenance_tick(&mut pulse).await;
                    }
                    source = shared.connectors.source_events.next_changed_source() => shared.clone().on_tools_changed(source),
                }
            }
        });
    }

    /// Has those connections looked after that clients rely on and that are gone.
    fn maintain_connections(&self) {
        if self.ensure_usable().is_err() {
            return;
        }
        for connector in self.connectors.connectors().into_iter().filter(|connector| connector.needs_maintenance()) {
            let ended = self.shutdown.clone();
            self.tasks.spawn(ended.run_until_cancelled_owned(async move { connector.maintain().await }));
        }
    }

    async fn run_maintenance_tick(&self, pulse: &mut Option<u64>) {
        self.result_pages.remove_expired();
        let written = self.usage.flush(&*self.store).await;
        let followed = match self.options.follow_writes {
            true => self.follow_writes(pulse).await,
            false => Ok(()),
        };
        if let Err(error) = &followed {
            tracing::warn!(%error, "cannot take in what others wrote; reads go on");
        }
        self.maintenance.record(&written.and(followed), self.options.clock.now());
    }

    async fn follow_writes(&self, pulse: &mut Option<u64>) -> Result<()> {
        let now = self.store.change_counter().await?;
        // The end of a process that held a lease is written nowhere.
        let discovering = self.snapshot.load().statuses.values().any(SourceStatus::is_being_discovered);
        if *pulse == Some(now) && !discovering {
            return Ok(());
        }
        self.catch_up().await?;
        *pulse = Some(now);
        self.usage.load(&*self.store).await
    }
}

/// Whether a wish needs no writing; decided on what is at hand, so that an unchanged start takes no lock in the store.
fn is_already_applied(inventory: &Inventory, wish: &Command) -> bool {
    inventory.decide(wish).is_ok_and(|events| events.is_empty())
}
