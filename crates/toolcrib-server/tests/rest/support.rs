//! Provides a test server over scripted sources, and a small HTTP client for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::config::Config;
use toolcrib::config_file::LoadedConfig;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_server::{HttpServer, McpService, ServerConfig, ServerLimits, bind};

pub(crate) use crate::raw_http::{RawHttpResponse, TEST_TIMEOUT};
use crate::raw_http::{send_and_read, send_request};

/// A server on loopback with a registry in memory. Tests change the registry directly to set up what they request.
pub(crate) struct RestTestServer {
    pub(crate) registry: Registry,
    pub(crate) address: String,
    pub(crate) admin_token: String,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    _data_dir: TempDir,
}

/// Starts a server whose sources are not discovered yet.
pub(crate) async fn start_undiscovered(sources: &[(&str, &Arc<ScriptedSource>)]) -> RestTestServer {
    let options = RegistryOptions {
        connector_factory: Some(ScriptedSource::connector_factory(sources.iter().copied())),
        ..RegistryOptions::default()
    };
    start_with(config_with_sources(sources.iter().map(|(id, _)| *id)), options).await
}

/// Starts a server and discovers every source.
pub(crate) async fn start_discovered(sources: &[(&str, &Arc<ScriptedSource>)]) -> RestTestServer {
    let server = start_undiscovered(sources).await;
    server.registry.refresh(Refresh::default()).await;
    server
}

pub(crate) async fn start_with(config: Config, options: RegistryOptions) -> RestTestServer {
    start_with_limits(config, options, ServerLimits::default()).await
}

/// Starts a server with these limits and discovers every source.
pub(crate) async fn start_limited(sources: &[(&str, &Arc<ScriptedSource>)], limits: ServerLimits) -> RestTestServer {
    let options = RegistryOptions {
        connector_factory: Some(ScriptedSource::connector_factory(sources.iter().copied())),
        ..RegistryOptions::default()
    };
    let server = start_with_limits(config_with_sources(sources.iter().map(|(id, _)| *id)), options, limits).await;
    server.registry.refresh(Refresh::default()).await;
    server
}

async fn start_with_limits(config: Config, options: RegistryOptions, limits: ServerLimits) -> RestTestServer {
    let data_dir = tempfile::tempdir().unwrap();
    let registry = Registry::open(config.clone(), options).await.unwrap();
    let service = McpService::new(registry.clone(), config.expose.clone());
    let server_config = ServerConfig {
        loaded_config: LoadedConfig::from_config(config),
        data_dir: data_dir.path().to_owned(),
        require_token: false,
        // The client of a test runs in the same process as the server.
        refuse_own_process: false,
    };
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let http_server = HttpServer::with_limits(listener, service, server_config, limits).unwrap();
    let address = http_server.address().to_string();
    let admin_token = std::fs::read_to_string(data_dir.path().join("admin.token")).unwrap().trim().to_owned();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(http_server.run(shutdown.clone().cancelled_owned()));
    RestTestServer { registry, address, admin_token, shutdown, task, _data_dir: data_dir }
}

impl RestTestServer {
    pub(crate) async fn get(&self, path: &str) -> RawHttpResponse {
        self.send("GET", path, "", b"").await
    }

    /// Sends JSON with the administrator's token.
    pub(crate) async fn send_as_admin(&self, method: &str, path: &str, body: &Value) -> RawHttpResponse {
        let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", self.admin_token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &headers, body.as_bytes()).await
    }

    /// Posts JSON without a token.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> RawHttpResponse {
        self.send("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes()).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> RawHttpResponse {
        send_and_read(&self.address, method, path, headers, body).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    /// Sends a request and returns the connection without reading from it.
    pub(crate) async fn start_request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        send_request(&self.address, method, path, headers, body).await
    }

    /// Starts the shutdown of the server.
    pub(crate) fn begin_shutdown(&self) {
        self.shutdown.cancel();
    }

    /// Shuts the server down and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.begin_shutdown();
        tokio::time::timeout(TEST_TIMEOUT, self.task).await.unwrap().unwrap();
    }
}

/// Polls until the condition holds. `what` names it in the failure message.
pub(crate) async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, waiting).await.is_ok(), "timed out waiting for: {what}");
}
