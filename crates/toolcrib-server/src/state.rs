//! Everything the routes share: the registry, the MCP endpoint, the configuration as it was last read, who may do what.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use toolcrib::config_file::LoadedConfig;
use toolcrib::{Registry, Result};
use toolcrib_mcp::server::McpEndpoint;

use crate::activity::Activity;
use crate::auth::Authenticator;
use crate::http_metrics::HttpMetrics;
use crate::rest::{EventFeed, ResponseCache, SourceListCache};

/// Cheap to clone; all clones are one house.
#[derive(Debug, Clone)]
pub struct AppState(Arc<AppStateInner>);

/// What a house is made with, besides a surface.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The configuration as it was found.
    pub loaded_config: LoadedConfig,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Asks everybody for a token, whatever `identity.loopback` says: for a place behind a proxy.
    pub require_token: bool,
    /// Treats connections of this process to itself like those of servers that it started: with `identity.loopback: owner`
    /// they need a token. A tool that fetches addresses, or an API on this machine, is then no way in for its callers. False
    /// for a program whose own code is a client of its server.
    pub refuse_own_process: bool,
}

#[derive(Debug)]
/// What is in it, for this crate.
pub struct AppStateInner {
    pub(crate) registry: Registry,
    pub(crate) endpoint: McpEndpoint,
    /// The configuration; replaced when it is read again.
    pub(crate) loaded_config: ArcSwap<LoadedConfig>,
    /// The data directory, as `GET /api/config` tells it.
    pub(crate) data_dir: PathBuf,
    pub(crate) auth: Authenticator,
    /// What happened lately, for the console.
    pub(crate) activity: Activity,
    pub(crate) http_metrics: HttpMetrics,
    /// Answers over REST that hold for as long as the catalogue does.
    pub(crate) response_cache: ResponseCache,
    pub(crate) source_list_cache: SourceListCache,
    /// What those who listen to `/api/events` hear.
    pub(crate) event_feed: EventFeed,
    /// Fires when the server stops and no request in progress may go on: each is answered with [`stopping`].
    ///
    /// [`stopping`]: crate::api::stopping
    pub(crate) stopping: CancellationToken,
    /// Held while a declaration is compared with what there is and written: of two for one id, one comes first.
    pub(crate) declare_lock: tokio::sync::Mutex<()>,
}

impl AppState {
    pub(crate) fn new(
        setup: ServerConfig,
        registry: Registry,
        endpoint: McpEndpoint,
        address: SocketAddr,
    ) -> Result<AppState> {
        let loopback = setup.loaded_config.config.identity.loopback;
        let access = Authenticator::open(
            address,
            &setup.data_dir,
            &registry,
            setup.require_token,
            setup.refuse_own_process,
            loopback,
        )?;
        Ok(AppState(Arc::new(AppStateInner {
            endpoint,
            loaded_config: ArcSwap::from_pointee(setup.loaded_config),
            data_dir: setup.data_dir,
            auth: access,
            activity: Activity::default(),
            http_metrics: HttpMetrics::new(registry.now()),
            response_cache: ResponseCache::default(),
            source_list_cache: SourceListCache::default(),
            event_feed: EventFeed::new(registry.clone()),
            stopping: CancellationToken::new(),
            declare_lock: tokio::sync::Mutex::default(),
            registry,
        })))
    }

    /// The path of a link to the console that signs in as who runs this: good once, for ten minutes.
    pub fn create_login_path(&self) -> String {
        self.auth.create_login_path(&self.registry)
    }

    /// The configuration was read again.
    pub fn set_config(&self, found: LoadedConfig) {
        self.auth.set_loopback(found.config.identity.loopback);
        self.loaded_config.store(Arc::new(found));
        self.event_feed.notify_auth_changed();
    }
}

impl std::ops::Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.0
    }
}
