//! Provides a test server over scripted sources, and a small HTTP client for it.

use serde_json::Value;
use toolcrib::config::Config;
use toolcrib::testkit::config_with_sources;
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_server::{HttpServer, McpService, ServerLimits, bind};
pub(crate) use toolcrib_testkit::observe::wait_until_async as wait_until;

pub(crate) use crate::test_server::{RawHttpResponse, TEST_TIMEOUT};
use crate::test_server::{RunningServer, SourceScripts, open_scripted, server_config};

/// A server on loopback with a registry in memory. Tests change the registry directly to set up what they request.
pub(crate) struct RestTestServer {
    pub(crate) registry: Registry,
    server: RunningServer,
}

impl std::ops::Deref for RestTestServer {
    type Target = RunningServer;

    fn deref(&self) -> &RunningServer {
        &self.server
    }
}

/// Starts a server whose sources are not discovered yet.
pub(crate) async fn start_undiscovered(sources: SourceScripts<'_>) -> RestTestServer {
    start_with(config_with_sources(sources.iter().map(|(id, _)| *id)), RegistryOptions::default(), sources).await
}

/// Starts a server and discovers every source.
pub(crate) async fn start_discovered(sources: SourceScripts<'_>) -> RestTestServer {
    start_limited(sources, ServerLimits::default()).await
}

pub(crate) async fn start_with(config: Config, options: RegistryOptions, sources: SourceScripts<'_>) -> RestTestServer {
    let registry = open_scripted(config.clone(), options, sources).await;
    start_with_limits(config, registry, ServerLimits::default()).await
}

/// Starts a server with these limits and discovers every source.
pub(crate) async fn start_limited(sources: SourceScripts<'_>, limits: ServerLimits) -> RestTestServer {
    let config = config_with_sources(sources.iter().map(|(id, _)| *id));
    let registry = open_scripted(config.clone(), RegistryOptions::default(), sources).await;
    let server = start_with_limits(config, registry, limits).await;
    server.registry.refresh(Refresh::default()).await;
    server
}

async fn start_with_limits(config: Config, registry: Registry, limits: ServerLimits) -> RestTestServer {
    let data_dir = tempfile::tempdir().unwrap();
    let service = McpService::new(registry.clone(), config.expose.clone());
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let http_server =
        HttpServer::with_limits(listener, service, server_config(config, data_dir.path()), limits).unwrap();
    RestTestServer { registry, server: RunningServer::start(http_server, data_dir) }
}

impl RestTestServer {
    pub(crate) async fn get(&self, path: &str) -> RawHttpResponse {
        self.send("GET", path, "", b"").await
    }

    /// Sends JSON with the administrator's token.
    pub(crate) async fn send_as_admin(&self, method: &str, path: &str, body: &Value) -> RawHttpResponse {
        let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", self.admin_token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &headers, body).await
    }

    /// Posts JSON without a token.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> RawHttpResponse {
        self.send("POST", path, "Content-Type: application/json\r\n", body.to_string()).await
    }

    /// Shuts the server down and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }
}
