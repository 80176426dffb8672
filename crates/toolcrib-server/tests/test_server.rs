//! A running HTTP server, and requests to it as raw bytes, so that a test can send what no HTTP client would.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolcrib::config::Config;
use toolcrib::config_file::LoadedConfig;
use toolcrib::testkit::{ScriptedSource, open_with_connectors};
use toolcrib::{Registry, RegistryOptions};
use toolcrib_server::{AppState, HttpServer, ServerConfig};
pub(crate) use toolcrib_testkit::observe::TEST_TIMEOUT;
pub(crate) use toolcrib_testkit::raw_http::RawHttpResponse;
use toolcrib_testkit::raw_http::encode_request;
use url::Url;

/// Ids of sources with the scripted sources that replace them.
pub(crate) type SourceScripts<'a> = &'a [(&'a str, &'a Arc<ScriptedSource>)];

/// Opens a registry in which these sources are scripted.
pub(crate) async fn open_scripted(config: Config, options: RegistryOptions, sources: SourceScripts<'_>) -> Registry {
    let factory = ScriptedSource::connector_factory(sources.iter().copied());
    open_with_connectors(config, options, factory).await.unwrap()
}

/// Configuration of a server that needs no token on loopback.
pub(crate) fn server_config(config: Config, data_dir: &Path) -> ServerConfig {
    ServerConfig {
        loaded_config: LoadedConfig::from_config(config),
        data_dir: data_dir.to_owned(),
        require_token: false,
        // The client of a test runs in the same process as the server.
        refuse_own_process: false,
    }
}

/// A server that runs until it is stopped or dropped.
pub(crate) struct RunningServer {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The contents of `admin.token`.
    pub(crate) admin_token: String,
    pub(crate) app_state: AppState,
    shutdown: CancellationToken,
    _shutdown_guard: DropGuard,
    task: JoinHandle<()>,
    data_dir: TempDir,
}

impl RunningServer {
    pub(crate) fn start(http_server: HttpServer, data_dir: TempDir) -> RunningServer {
        let address = format!("127.0.0.1:{}", http_server.address().port());
        let admin_token = std::fs::read_to_string(data_dir.path().join("admin.token")).unwrap().trim().to_owned();
        let app_state = http_server.app_state().clone();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(http_server.run(shutdown.clone().cancelled_owned()));
        let _shutdown_guard = shutdown.clone().drop_guard();
        RunningServer { address, admin_token, app_state, shutdown, _shutdown_guard, task, data_dir }
    }

    /// Sends one request on a new connection and reads the response. `headers` are complete lines and may contain `Host`.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
    ) -> RawHttpResponse {
        let mut stream = self.start_request(method, path, headers, body).await;
        finish_request(&mut stream, b"").await
    }

    /// Sends a request on a new connection and returns the connection without reading from it.
    pub(crate) async fn start_request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
    ) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(&encode_request(&self.address, method, path, headers, body.as_ref())).await.unwrap();
        stream
    }

    /// Posts the form of the login.
    pub(crate) async fn post_login(&self, token: &str) -> RawHttpResponse {
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        self.send("POST", "/login", headers, format!("token={token}")).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    pub(crate) fn mcp_url(&self) -> Url {
        format!("http://{}/mcp", self.address).parse().unwrap()
    }

    /// Starts the shutdown of the server.
    pub(crate) fn begin_shutdown(&self) {
        self.shutdown.cancel();
    }

    /// Shuts the server down, waits until it has ended and returns its address.
    pub(crate) async fn stop(self) -> String {
        let address = self.address.clone();
        self.stop_keeping_data().await;
        address
    }

    /// Shuts the server down, waits until it has ended and returns its data directory.
    pub(crate) async fn stop_keeping_data(self) -> TempDir {
        self.begin_shutdown();
        tokio::time::timeout(TEST_TIMEOUT, self.task).await.unwrap().unwrap();
        self.data_dir
    }
}

/// Returns the header line that sends the cookie set by the response to a login.
#[track_caller]
pub(crate) fn cookie_header(login: &RawHttpResponse) -> String {
    assert_eq!(login.status, 303, "{login:?}");
    let set = login.header("set-cookie").unwrap();
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}

/// Sends the rest of a request and reads its response.
pub(crate) async fn finish_request(stream: &mut TcpStream, rest: &[u8]) -> RawHttpResponse {
    stream.write_all(rest).await.unwrap();
    let mut response = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut response)).await.unwrap().unwrap();
    RawHttpResponse::parse(&response)
}
