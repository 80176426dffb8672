//! Opening: configuration, store, journal, catalogue. Nothing is contacted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_core::config::{Config, overrides};
use toolcrib_core::inventory::{Actor, Command, Inventory, Origin, reconcile};
use toolcrib_core::manifest::Manifest;
use toolcrib_core::{Code, Result, Source, SourceId};

use super::{Options, Registry, Shared, Snapshot, Upkeep};
use crate::call::ValidationPermits;
use crate::connections::{Connections, News};
use crate::counters::Counters;
use crate::held::Held;
use crate::meters::Meters;
use crate::refresh::{Refresh, Runs};
use crate::store::{Failure, MemoryStore, Standing, Store, StoreState};

/// How often other processes' writes are looked for, and counters written.
const FOLLOW: Duration = Duration::from_millis(500);

impl Registry {
    /// Reads what is known and lays the configuration over it. Contacts no source.
    ///
    /// A journal with a record that must not be ignored and that only a newer Toolcrib understands opens too, for reading:
    /// the configuration is not laid over it, and calls and changes are refused with `STORE_UNAVAILABLE`.
    ///
    /// A damaged journal opens in the same way; where its file cannot be read at all and [`Options::head`] tells that there
    /// was one, with nothing in it.
    pub async fn open(config: Config, options: Options) -> Result<Registry> {
        let error = match Registry::open_readable(&config, options.clone()).await {
            Err(error) if StoreState::of(&error) == StoreState::Damaged => error,
            opened => return opened,
        };
        match options.head.clone() {
            Some(head) if head.read() != Ok(None) => {
                let head = head.with_unusable(StoreState::Damaged, &error.message);
                if let Some(damaged) = &options.store {
                    damaged.close().await;
                }
                let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
                let options = Options { store: Some(store), head: Some(head), ..options };
                Registry::open_readable(&config, options).await
            }
            Some(_) | None => Err(error),
        }
    }

    async fn open_readable(config: &Config, options: Options) -> Result<Registry> {
        let store = options.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let key = store.key().await?;
        let (notices, _) = broadcast::channel(1024);
        let news = News::new(notices.clone());
        let shared = Arc::new(Shared {
            key,
            defaults: ArcSwap::from_pointee(config.defaults.clone()),
            expose: ArcSwap::from_pointee(config.expose.clone()),
            warm: ArcSwap::from_pointee(config.warm),
            writer: tokio::sync::Mutex::new(super::publish::Writer::over(&options)),
            now: ArcSwap::from_pointee(Snapshot::default()),
            notices,
            connections: Connections::new(&options, news),
            held: Held::default(),
            counters: Counters::default(),
            meters: Meters::default(),
            upkeep: Upkeep::new(options.clock.now()),
            runs: Runs::default(),
            turns: Semaphore::new(options.parallel.max(1)),
            validation_permits: ValidationPermits::default(),
            counting: tokio::sync::Mutex::default(),
            forbidden: ArcSwap::from_pointee(options.trust.forbidden()),
            trust: ArcSwap::from_pointee(options.trust.clone()),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
            store,
            options,
        });
        shared.connections.origin.is(&shared);
        shared.catch_up().await?;
        shared.reconcile(config).await?;
        shared.warn_of_environment();
        shared.clone().tend();
        let alive = Arc::new(shared.ended.clone().drop_guard());
        let registry = Registry { shared, _alive: alive };
        registry.record_builtins().await;
        Ok(registry)
    }

    /// Lays a configuration, read again, over what is known. Only sources of the configuration are touched.
    pub async fn reconfigure(&self, config: &Config) -> Result<()> {
        self.shared.ensure_up_to_date()?;
        self.shared.defaults.store(Arc::new(config.defaults.clone()));
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
        let now = self.shared.now.load_full();
        if now.ensure_up_to_date().is_err() {
            return;
        }
        let mut changed = Vec::new();
        for source in now.sources.values().filter(|source| source.kind.is_builtin()) {
            let known = now.inventory.source(&source.id).and_then(|state| state.manifest);
            let offered = self.shared.connections.builtins().adopt(source);
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

impl Shared {
    async fn reconcile(&self, config: &Config) -> Result<()> {
        let (mut declared, mut invalid) = (Vec::new(), BTreeMap::new());
        for declaration in &config.sources {
            match &declaration.source {
                Ok(source) => declared.push(source),
                Err(faults) => {
                    let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                    invalid.insert(declaration.id.clone(), Failure::new(Code::ConfigInvalid, message));
                }
            }
        }
        let inventory = self.now.load().inventory.clone();
        let declarations =
            declared.iter().map(|source| self.declaration(source, Origin::Config)).collect::<Result<Vec<_>>>()?;
        let mut kept: Vec<SourceId> = invalid.keys().cloned().collect();
        kept.extend(self.forbid_untrusted(&inventory, &declared, &mut invalid));
        let wishes = reconcile(&inventory, declarations, &kept);
        let mut wishes: Vec<Command> = wishes.into_iter().filter(|wish| !already_so(&inventory, wish)).collect();
        if self.ensure_up_to_date().is_err() && !wishes.is_empty() {
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
                    self.store.forget_definitions(id, None).await?;
                    self.store.forget(id).await?;
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
    fn forbid_untrusted(
        &self,
        inventory: &Inventory,
        declared: &[&Source],
        invalid: &mut BTreeMap<SourceId, Failure>,
    ) -> Vec<SourceId> {
        let trust = self.trust.load();
        let mut forbidden = trust.forbidden();
        let Some(untrusted) = &trust.untrusted else {
            self.forbidden.store(Arc::new(forbidden));
            return Vec::new();
        };
        let configured = inventory.sources().filter(|(_, state)| state.origin == Origin::Config);
        let undeclared = configured.map(|(id, _)| id).filter(|id| !declared.iter().any(|source| source.id == **id));
        let undeclared: Vec<SourceId> = undeclared.cloned().collect();
        for id in untrusted.sources.iter().filter(|id| inventory.source(id).is_none()) {
            let failure = Failure::new(Code::Forbidden, untrusted.reason.clone());
            invalid.entry(id.clone()).or_insert(failure);
        }
        forbidden.extend(undeclared.iter().map(|id| (id.clone(), untrusted.reason.clone())));
        self.forbidden.store(Arc::new(forbidden));
        undeclared
    }

    /// A variable that overrides nothing is most likely a slip.
    fn warn_of_environment(&self) {
        let now = self.now.load();
        for fault in overrides(self.options.environment.iter().cloned(), now.sources.keys()).faults {
            tracing::warn!("{fault}");
        }
    }

    /// The registry's own upkeep, until it ends: others' writes, counters, announced changes.
    fn tend(self: Arc<Self>) {
        let shared = self.clone();
        self.tasks.spawn(async move {
            let mut pulse = None;
            let mut ticks = tokio::time::interval(FOLLOW);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = shared.ended.cancelled() => return,
                    _ = ticks.tick() => {
                        shared.tend_connections();
                        shared.tick(&mut pulse).await;
                    }
                    source = shared.connections.news.changed_source() => shared.clone().heed(source),
                }
            }
        });
    }

    /// Has those connections looked after that clients rely on and that are gone.
    fn tend_connections(&self) {
        if self.ensure_up_to_date().is_err() {
            return;
        }
        for connector in self.connections.all().into_iter().filter(|connector| connector.neglected()) {
            let ended = self.ended.clone();
            self.tasks.spawn(ended.run_until_cancelled_owned(async move { connector.tend().await }));
        }
    }

    async fn tick(&self, pulse: &mut Option<u64>) {
        self.held.sweep();
        let written = self.counters.flush(&*self.store).await;
        let followed = match self.options.follow {
            true => self.follow(pulse).await,
            false => Ok(()),
        };
        if let Err(error) = &followed {
            tracing::warn!(%error, "cannot take in what others wrote; reads go on");
        }
        self.upkeep.saw(&written.and(followed), self.options.clock.now());
    }

    async fn follow(&self, pulse: &mut Option<u64>) -> Result<()> {
        let now = self.store.pulse().await?;
        // The end of a process that held a lease is written nowhere.
        let discovering = self.now.load().standings.values().any(Standing::is_being_discovered);
        if *pulse == Some(now) && !discovering {
            return Ok(());
        }
        self.catch_up().await?;
        *pulse = Some(now);
        self.counters.read(&*self.store).await
    }
}

/// Whether a wish needs no writing; decided on what is at hand, so that an unchanged start takes no lock in the store.
fn already_so(inventory: &Inventory, wish: &Command) -> bool {
    inventory.decide(wish).is_ok_and(|events| events.is_empty())
}
