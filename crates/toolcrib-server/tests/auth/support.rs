//! A house with one scripted source, a clock that is moved by hand, and HTTP written by hand.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::clock::{Clock, ManualClock};
use toolcrib::config_file::LoadedConfig;
use toolcrib::core::Timestamp;
use toolcrib::core::access::Role;
use toolcrib::core::config::{Config, LoopbackAccess};
use toolcrib::core::inventory::Actor;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Registry, RegistryOptions, Result};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

pub(crate) use crate::raw_http::{RawHttpResponse, TEST_TIMEOUT};
use crate::raw_http::{send_and_read, send_request};

pub(crate) struct AuthTestServer {
    pub(crate) registry: Registry,
    pub(crate) clock: ManualClock,
    pub(crate) address: String,
    /// What is in `admin.token`.
    pub(crate) admin_token: String,
    app_state: toolcrib_server::AppState,
    _directory: TempDir,
    _leave: tokio_util::sync::DropGuard,
    _running: JoinHandle<()>,
}

/// A registry and its clock; nobody is served yet.
pub(crate) async fn open_registry() -> (Registry, ManualClock) {
    let (clock, hand) = Clock::manual(Timestamp(1_794_700_800_000));
    let scripted = ScriptedSource::new([json!({ "name": "push", "inputSchema": { "type": "object" } })]);
    let connect = Some(ScriptedSource::connector_factory([("git", &Arc::clone(&scripted))]));
    let options = RegistryOptions { clock, connector_factory: connect, ..RegistryOptions::default() };
    (Registry::open(config_with_sources(["git"]), options).await.unwrap(), hand)
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
    let found = LoadedConfig::from_config(config);
    let setup = ServerConfig {
        loaded_config: found,
        data_dir: directory.path().to_owned(),
        require_token,
        refuse_own_process: false,
    };
    let surface = McpService::new(registry.clone(), setup.loaded_config.config.expose.clone());
    let serving = HttpServer::new(bind(listen.parse().unwrap()).await?, surface, setup)?;
    Ok((serving, directory))
}

impl AuthTestServer {
    /// On loopback.
    pub(crate) async fn on_loopback() -> AuthTestServer {
        let (registry, hand) = open_registry().await;
        AuthTestServer::start(registry, hand, "127.0.0.1:0", false).await
    }

    /// On every address; talked to on this machine. The tokens are for a viewer, an agent and an admin.
    pub(crate) async fn on_network() -> (AuthTestServer, [String; 3]) {
        let (registry, hand) = open_registry().await;
        let mut tokens = Vec::new();
        for role in Role::ALL {
            let name = format!("the-{role}");
            tokens.push(registry.create_token(&name, role, None, Actor::new("test")).await.unwrap().token);
        }
        (AuthTestServer::start(registry, hand, "0.0.0.0:0", false).await, tokens.try_into().unwrap())
    }

    pub(crate) async fn start(
        registry: Registry,
        hand: ManualClock,
        listen: &str,
        require_token: bool,
    ) -> AuthTestServer {
        let (serving, directory) = build_server(&registry, listen, require_token).await.unwrap();
        AuthTestServer::from_server(registry, hand, serving, directory)
    }

    pub(crate) fn from_server(
        registry: Registry,
        hand: ManualClock,
        serving: HttpServer,
        directory: TempDir,
    ) -> AuthTestServer {
        let address = format!("127.0.0.1:{}", serving.address().port());
        let admin = std::fs::read_to_string(directory.path().join("admin.token")).unwrap().trim().to_owned();
        let (leave, server) = (CancellationToken::new(), serving.app_state().clone());
        let running = tokio::spawn(serving.run(leave.clone().cancelled_owned()));
        let (_leave, _running, _directory) = (leave.drop_guard(), running, directory);
        AuthTestServer {
            registry,
            clock: hand,
            address,
            admin_token: admin,
            app_state: server,
            _directory,
            _leave,
            _running,
        }
    }

    pub(crate) async fn create_token(&self, name: &str, role: Role, expires: Option<Duration>) -> String {
        self.registry.create_token(name, role, expires, Actor::new("test")).await.unwrap().token
    }

    /// The configuration was changed, and read again.
    pub(crate) fn set_loopback(&self, loopback: LoopbackAccess) {
        let mut config = config_with_sources(["git"]);
        config.identity.loopback = loopback;
        self.app_state.set_config(LoadedConfig::from_config(config));
    }

    /// Where the printed link leads.
    pub(crate) fn login_link(&self) -> String {
        self.app_state.create_login_path()
    }

    /// `headers` are whole lines.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> RawHttpResponse {
        send_and_read(&self.address, method, path, headers, body.as_bytes()).await
    }

    /// A stream, once its head has been answered.
    pub(crate) async fn open_stream(&self, path: &str, headers: &str) -> TcpStream {
        self.open_stream_with("GET", path, headers, "").await
    }

    pub(crate) async fn open_stream_with(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = send_request(&self.address, method, path, headers, body.as_bytes()).await;
        let mut begun = Vec::new();
        while !begun.ends_with(b"\r\n\r\n") {
            begun.push(tokio::time::timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
        }
        assert!(begun.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&begun));
        stream
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> RawHttpResponse {
        self.send("GET", path, headers, "").await
    }

    /// JSON, with what is needed to send it.
    pub(crate) async fn post(&self, path: &str, headers: &str, body: Value) -> RawHttpResponse {
        self.send("POST", path, &format!("Content-Type: application/json\r\n{headers}"), &body.to_string()).await
    }

    pub(crate) async fn post_form(&self, path: &str, headers: &str, body: &str) -> RawHttpResponse {
        self.send("POST", path, &format!("Content-Type: application/x-www-form-urlencoded\r\n{headers}"), body).await
    }

    /// Signs in with a token: the cookie as a header line, and the token of the session's pages.
    pub(crate) async fn sign_in(&self, token: &str) -> (String, String) {
        let answer = self.post_form("/login", "", &format!("token={token}")).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = cookie_header(&answer);
        let csrf = self.get("/api/whoami", &cookie).await.json()["csrf"].as_str().unwrap().to_owned();
        (cookie, csrf)
    }
}

pub(crate) fn bearer_header(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The cookie that an answer sets, as the header line that sends it.
#[track_caller]
pub(crate) fn cookie_header(answer: &RawHttpResponse) -> String {
    let set = answer.header("set-cookie").unwrap();
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}
