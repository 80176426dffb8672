//! Provides a test server with one scripted source and a manual clock, and a raw HTTP client for it.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use toolcrib::clock::{Clock, ManualClock};
use toolcrib::config::{Config, LoopbackAccess};
use toolcrib::config_file::LoadedConfig;
use toolcrib::core::Timestamp;
use toolcrib::core::access::Role;
use toolcrib::core::inventory::Actor;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Registry, RegistryOptions, Result};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

pub(crate) use crate::test_server::{RawHttpResponse, TEST_TIMEOUT};
use crate::test_server::{RunningServer, cookie_header, open_scripted, server_config};

/// A server whose clock the test moves, so that tokens, sessions and links expire without waiting.
pub(crate) struct AuthTestServer {
    pub(crate) registry: Registry,
    pub(crate) clock: ManualClock,
    server: RunningServer,
}

impl std::ops::Deref for AuthTestServer {
    type Target = RunningServer;

    fn deref(&self) -> &RunningServer {
        &self.server
    }
}

/// Opens a registry with a manual clock, without a server.
pub(crate) async fn open_registry() -> (Registry, ManualClock) {
    let (clock, manual_clock) = Clock::manual(Timestamp(1_794_700_800_000));
    let scripted = ScriptedSource::new([json!({ "name": "push", "inputSchema": { "type": "object" } })]);
    let options = RegistryOptions { clock, ..RegistryOptions::default() };
    (open_scripted(config_with_sources(["git"]), options, &[("git", &scripted)]).await, manual_clock)
}

pub(crate) async fn build_server(
    registry: &Registry,
    listen: &str,
    require_token: bool,
) -> Result<(HttpServer, TempDir)> {
    build_configured_server(registry, listen, require_token, config_with_sources(["git"])).await
}

pub(crate) async fn build_configured_server(
    registry: &Registry,
    listen: &str,
    require_token: bool,
    config: Config,
) -> Result<(HttpServer, TempDir)> {
    let directory = tempfile::tempdir().unwrap();
    let service = McpService::new(registry.clone(), config.expose.clone());
    let server_config = ServerConfig { require_token, ..server_config(config, directory.path()) };
    let http_server = HttpServer::new(bind(listen.parse().unwrap()).await?, service, server_config)?;
    Ok((http_server, directory))
}

impl AuthTestServer {
    /// Starts a server on loopback.
    pub(crate) async fn on_loopback() -> AuthTestServer {
        let (registry, manual_clock) = open_registry().await;
        AuthTestServer::start(registry, manual_clock, "127.0.0.1:0", false).await
    }

    /// Starts a server that listens on every address. Returns it with the tokens of a viewer, an agent and an admin.
    pub(crate) async fn on_network() -> (AuthTestServer, [String; 3]) {
        let (registry, manual_clock) = open_registry().await;
        let mut tokens = Vec::new();
        for role in Role::ALL {
            let name = format!("the-{role}");
            tokens.push(registry.tokens().create(&name, role, None, Actor::new("test")).await.unwrap().token);
        }
        (AuthTestServer::start(registry, manual_clock, "0.0.0.0:0", false).await, tokens.try_into().unwrap())
    }

    pub(crate) async fn start(
        registry: Registry,
        manual_clock: ManualClock,
        listen: &str,
        require_token: bool,
    ) -> AuthTestServer {
        let (http_server, directory) = build_server(&registry, listen, require_token).await.unwrap();
        AuthTestServer::from_server(registry, manual_clock, http_server, directory)
    }

    pub(crate) fn from_server(
        registry: Registry,
        manual_clock: ManualClock,
        http_server: HttpServer,
        directory: TempDir,
    ) -> AuthTestServer {
        AuthTestServer { registry, clock: manual_clock, server: RunningServer::start(http_server, directory) }
    }

    pub(crate) async fn create_token(&self, name: &str, role: Role, expires: Option<Duration>) -> String {
        self.registry.tokens().create(name, role, expires, Actor::new("test")).await.unwrap().token
    }

    /// Reloads the configuration with this loopback access.
    pub(crate) fn set_loopback(&self, loopback: LoopbackAccess) {
        let mut config = config_with_sources(["git"]);
        config.identity.loopback = loopback;
        self.app_state.set_config(LoadedConfig::from_config(config));
    }

    /// Creates a one-time login link and returns its path.
    pub(crate) async fn login_link(&self) -> String {
        self.app_state.create_login_path().await.unwrap()
    }

    /// Opens a stream and reads the head of the response.
    pub(crate) async fn open_stream(&self, path: &str, headers: &str) -> TcpStream {
        self.open_stream_with("GET", path, headers, "").await
    }

    pub(crate) async fn open_stream_with(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.start_request(method, path, headers, body).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::time::timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        stream
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> RawHttpResponse {
        self.send("GET", path, headers, "").await
    }

    /// Posts JSON with its content type.
    pub(crate) async fn post(&self, path: &str, headers: &str, body: Value) -> RawHttpResponse {
        self.send("POST", path, &format!("Content-Type: application/json\r\n{headers}"), body.to_string()).await
    }

    pub(crate) async fn post_form(&self, path: &str, headers: &str, body: &str) -> RawHttpResponse {
        self.send("POST", path, &format!("Content-Type: application/x-www-form-urlencoded\r\n{headers}"), body).await
    }

    /// Signs in with a token. Returns the cookie as a header line, and the CSRF token of the session.
    pub(crate) async fn sign_in(&self, token: &str) -> (String, String) {
        let cookie = cookie_header(&self.post_login(token).await);
        let csrf = self.get("/api/whoami", &cookie).await.json()["csrf"].as_str().unwrap().to_owned();
        (cookie, csrf)
    }
}

pub(crate) fn bearer_header(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}
