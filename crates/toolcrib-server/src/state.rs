//! State shared by all routes: the registry, the MCP endpoint, the loaded configuration, authentication and caches.
//!
//! It is created once per server and never replaced as a whole. Parts that change at run time are behind their own
//! swap, lock or channel, so that a request takes only what it needs and readers do not wait.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;
use toolcrib::config_file::LoadedConfig;
use toolcrib::{Principal, Registry, Result};
use toolcrib_mcp::server::McpEndpoint;

use crate::activity::Activity;
use crate::auth::Authenticator;
use crate::http_metrics::HttpMetrics;
use crate::rest::{EventFeed, ResponseCache, SourceListCache};

/// Handle to the shared state of one server. Cheap to clone; all clones share the same state.
#[derive(Debug, Clone)]
pub struct AppState(Arc<AppStateInner>);

/// Everything that [`HttpServer`](crate::HttpServer) needs besides the socket and the MCP service.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The merged configuration and the files that it was loaded from.
    pub loaded_config: LoadedConfig,
    /// Data directory, which holds `admin.token` unless `TOOLCRIB_ADMIN_TOKEN` is set.
    pub data_dir: PathBuf,
    /// Requires a token from every client, whatever `identity.loopback` says. For a server behind a reverse proxy, whose
    /// requests all seem to come from this machine.
    pub require_token: bool,
    /// Treats connections of this process to itself like those of the MCP servers it started: with
    /// `identity.loopback: owner` they need a token. Otherwise an agent could use a tool that fetches URLs to reach this
    /// server with local privileges. Set it to false in a program that is a client of its own server.
    pub refuse_own_process: bool,
}

/// Fields behind [`AppState`], reached through `Deref`. Public only because `Deref::Target` is; all fields are private
/// to this crate.
#[derive(Debug)]
pub struct AppStateInner {
    /// Catalogue, calls, history and tokens. All data that is not about HTTP is here.
    pub(crate) registry: Registry,
    /// Speaks the MCP protocol at `/mcp` and owns its sessions.
    pub(crate) endpoint: McpEndpoint,
    /// The configuration; replaced on reload, so that each request loads it anew.
    pub(crate) loaded_config: ArcSwap<LoadedConfig>,
    /// Why the files of the configuration cannot be loaded; the last valid one is in effect meanwhile.
    pub(crate) config_error: ArcSwapOption<String>,
    /// Data directory, as `GET /api/config` reports it.
    pub(crate) data_dir: PathBuf,
    /// Tokens, sessions and the identification of local processes.
    pub(crate) auth: Authenticator,
    /// Recent calls, discoveries and journal records, for the console.
    pub(crate) activity: Activity,
    /// Counters of requests and connections, for `/metrics`.
    pub(crate) http_metrics: HttpMetrics,
    /// Rendered REST responses that depend on the view and the URI alone.
    pub(crate) response_cache: ResponseCache,
    /// The rendered `GET /api/sources`, which also depends on the clock and on connection states.
    pub(crate) source_list_cache: SourceListCache,
    /// Source of the event streams at `/api/events`.
    pub(crate) event_feed: EventFeed,
    /// Cancelled when the drain timeout is over: each request still in progress then gets
    /// [`stopping_error`](crate::rest::stopping_error).
    pub(crate) stopping: CancellationToken,
    /// Held from the check whether a source exists until its declaration is written. Of two concurrent requests for the
    /// same id, the second then gets `CONFLICT`.
    pub(crate) declare_lock: tokio::sync::Mutex<()>,
}

impl AppState {
    /// Creates the state for a server that listens on `address`. Fails when `address` is reachable from other machines
    /// and none of them could be authenticated.
    pub(crate) fn new(
        config: ServerConfig,
        registry: Registry,
        endpoint: McpEndpoint,
        address: SocketAddr,
    ) -> Result<AppState> {
        let auth = Authenticator::open(address, registry.clone(), &config)?;
        Ok(AppState(Arc::new(AppStateInner {
            endpoint,
            loaded_config: ArcSwap::from_pointee(config.loaded_config),
            config_error: ArcSwapOption::empty(),
            data_dir: config.data_dir,
            auth,
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

    /// Place of the administrator's token, for messages to local users: the path of a file, or the name of a variable.
    pub fn admin_token_location(&self) -> &str {
        self.auth.admin_token_location()
    }

    /// Creates a one-time link that signs in to the console as administrator, and returns its path. The link expires
    /// after ten minutes, and works in every process on the store.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE` if the link cannot be stored.
    pub async fn create_login_path(&self) -> Result<String> {
        self.auth.create_login_path().await
    }

    /// Records why the configuration cannot be loaded, or that it can. Readiness, metrics and console report it. The
    /// reason is readable without credentials, so it must not name directories.
    pub fn set_config_error(&self, reason: Option<String>) {
        self.config_error.store(reason.map(Arc::new));
    }

    /// Checks a configuration before a reload applies it.
    ///
    /// # Errors
    /// `CONFIG_INVALID` if a server with this address would refuse to start with it.
    pub fn check_config(&self, loaded_config: &LoadedConfig) -> Result<()> {
        self.auth.check_config(&loaded_config.config)
    }

    /// Applies what a configuration takes away from callers, before its rules are in force. Callers that it admits are
    /// admitted by [`set_config`](AppState::set_config), when they are.
    pub fn restrict(&self, loaded_config: &LoadedConfig) {
        self.auth.restrict(&loaded_config.config);
        self.event_feed.auth_changes.send_replace(());
    }

    /// Reads the keys of identity providers again that are in files (`jwks`). If a file cannot be read, its old keys
    /// stay.
    pub async fn reload_key_files(&self) {
        self.auth.reload_key_files().await;
    }

    /// Returns why the configuration cannot be loaded, for a reader; `None` if it can. The reason may quote names of
    /// rules and tools, so as long as there are rules only administrators get more than the place.
    pub(crate) fn config_error_for(&self, reader: &Principal) -> Option<String> {
        let reason = self.config_error.load();
        let reason = reason.as_ref()?;
        let rules = self.registry.rules();
        let has_rules = !rules.in_force().is_empty() || rules.may_restrict_access();
        if self.registry.visibility(reader).shows_rules() || !has_rules {
            return Some(reason.to_string());
        }
        // `toolcrib.yaml:5: groups.desk: …`
        let place = reason.split(": ").next().filter(|place| {
            place.rsplit_once(':').is_some_and(|(_, line)| line.bytes().all(|digit| digit.is_ascii_digit()))
        });
        Some(format!(
            "{}the log of `serve` has the reason",
            place.map(|place| format!("{place}: ")).unwrap_or_default()
        ))
    }

    /// Replaces the configuration after a reload. Open streams are authorized again with it at once.
    pub fn set_config(&self, loaded_config: LoadedConfig) {
        // Stored before the streams are notified: their check must already see the new setting.
        self.auth.set_config(&loaded_config.config);
        self.loaded_config.store(Arc::new(loaded_config));
        self.event_feed.auth_changes.send_replace(());
    }
}

impl std::ops::Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.0
    }
}
