//! Opening a registry: store, journal, catalogue, configuration. Makes no network requests and starts no process.

use std::sync::Arc;

use tokio::sync::broadcast;
use toolcrib_config::Config;
use toolcrib_core::Result;
use toolcrib_core::inventory::Actor;
use toolcrib_core::manifest::Manifest;
use tracing::Instrument;

use super::position;
use super::token_counts::TokenCounter;
use super::{Registry, RegistryOptions};
use crate::call::Dispatcher;
use crate::connectors::{ConnectorFactory, Connectors, SourceEvents};
use crate::logins::Logins;
use crate::maintenance::Maintenance;
use crate::monitoring::Monitoring;
use crate::refresh::{Refresh, Refresher, Requester};
use crate::shared_runs::SharedRuns;
use crate::state::State;
use crate::store::{MemoryStore, Store, StoreState};
use crate::tasks::Tasks;
use crate::trace::Trace;

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
        Registry::open_with_connectors(config, options, ConnectorFactory::default()).await
    }

    /// Like [`Registry::open`], with some connectors replaced.
    pub(crate) async fn open_with_connectors(
        config: Config,
        options: RegistryOptions,
        factory: ConnectorFactory,
    ) -> Result<Registry> {
        let error = match Registry::open_readable(&config, options.clone(), factory.clone()).await {
            Err(error) if StoreState::from_error(&error) == StoreState::Damaged => error,
            opened => return opened,
        };
        match options.head_file.clone() {
            Some(head_file) if head_file.read().await != Ok(None) => {
                let head_file = head_file.with_store_damage(StoreState::Damaged, &error.message);
                // Nothing can be read: serve an empty store in memory, marked as damaged.
                if let Some(damaged) = &options.store {
                    damaged.close().await;
                }
                let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
                let options = RegistryOptions { store: Some(store), head_file: Some(head_file), ..options };
                Registry::open_readable(&config, options, factory).await
            }
            Some(_) | None => Err(error),
        }
    }

    /// Opens a registry over a store whose journal can be read, at least in part. Fails if the store cannot be read at
    /// all.
    async fn open_readable(config: &Config, options: RegistryOptions, factory: ConnectorFactory) -> Result<Registry> {
        let store = options.store.clone().unwrap_or_else(|| Arc::new(MemoryStore::new()));
        let store_key = store.key().await?;
        // A subscriber may fall this many notices behind before it misses some. One that needs all records fills gaps
        // from the journal.
        let (notices, _) = broadcast::channel(1024);
        let monitoring = Arc::new(Monitoring::new(&options));
        let options = Arc::new(options);
        let tasks = Tasks::default();
        // Each of these knows only those before it.
        let connectors = Arc::new(Connectors::new(options.clone(), factory, SourceEvents::new(notices.clone())));
        let state = State::new(store, store_key, config, &options, &notices, connectors.clone(), tasks.clone());
        let state = Arc::new(state);
        let refresher =
            Refresher::new(state.clone(), connectors.clone(), monitoring.clone(), options.clone(), tasks.clone());
        let refresher = Arc::new(refresher);
        let dispatcher =
            Dispatcher::new(state.clone(), connectors.clone(), refresher.clone(), monitoring, options.clone());
        let dispatcher = Arc::new(dispatcher);
        let logins = Arc::new(Logins::new(state.clone()));
        let maintenance = Maintenance::new(
            state.clone(),
            connectors.clone(),
            refresher.clone(),
            dispatcher.clone(),
            logins.clone(),
            tasks.clone(),
        );
        let maintenance = Arc::new(maintenance);
        let token_counter = Arc::new(TokenCounter::new(state.clone(), tasks.clone()));
        // What opening logs belongs to the command, or to no request.
        let trace = options.trace.clone().unwrap_or_else(Trace::log_only);
        let span = tracing::info_span!("open", trace_id = %trace.id());
        state.begin_with_snapshot().instrument(span.clone()).await;
        // Read the journal first, then apply the configuration to it.
        state.catch_up().instrument(span.clone()).await?;
        state.reconcile(config).instrument(span.clone()).await?;
        if !options.environment.is_empty() {
            // A source that only the environment declares is published by no record.
            state.republish().instrument(span.clone()).await;
        }
        let snapshot = state.snapshot();
        span.in_scope(|| state.log_environment_switches());
        for error in snapshot.environment.errors() {
            tracing::warn!("{error}");
        }
        // Not worth a failed start; maintenance reads them again.
        if let Err(error) = maintenance.load_token_uses().await {
            tracing::warn!(%error, "last uses of tokens cannot be read");
        }
        if let Err(error) = maintenance.load_nodes().await {
            tracing::warn!(%error, "the nodes that share the store cannot be read");
        }
        maintenance.spawn();
        if options.follow_writes {
            tasks.spawn_until_shutdown(state.clone().keep_snapshots());
        }
        let _shutdown_guard = Arc::new(tasks.shutdown_guard());
        let registry = Registry {
            options,
            connectors,
            state,
            refresher,
            dispatcher,
            maintenance,
            logins,
            catch_ups: Arc::new(SharedRuns::new(position::CATCH_UP_INTERVAL)),
            background_catch_up: Arc::default(),
            token_counter,
            notices,
            tasks,
            _shutdown_guard,
        };
        registry.record_builtins().await;
        Ok(registry)
    }

    /// Records the built-in tools of this version where they differ from the stored manifest. Listing them makes no
    /// requests, so they are never missing. On the next start of the same version the fingerprints are equal, and
    /// nothing is written.
    pub(super) async fn record_builtins(&self) {
        let snapshot = self.state.snapshot();
        if snapshot.ensure_usable().is_err() {
            return;
        }
        let builtins = snapshot.effective_sources.values().filter(|source| source.kind.is_builtin());
        let mut changed = Vec::new();
        // The files that an untrusted source names are not read.
        for source in builtins.filter(|source| snapshot.ensure_can_contact(&source.id).is_ok()) {
            let known = snapshot.inventory.source(&source.id).and_then(|state| state.manifest);
            let references = self.connectors.secret_files().read_for(&source.kind).await;
            let tools = self.connectors.builtins().load_source(source, &references);
            match tools.map(|tools| Manifest::new(&source.id, &tools, Vec::new(), &self.options.tool_limits)) {
                Ok(manifest) if known == Some(manifest.fingerprint) => {}
                // A refresh finds the same failure again and records it.
                Ok(_) | Err(_) => changed.push(source.id.clone()),
            }
        }
        if !changed.is_empty() {
            // Not by the command or host that opens the registry: another version of Toolcrib has other tools.
            let requester = Requester { actor: Some(Actor::system()), ..Requester::default() };
            self.refresh(Refresh { sources: Some(changed), force: true, requester, ..Refresh::brief() }).await;
        }
    }
}
