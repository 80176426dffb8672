//! A served registry over scripted sources, and a small client.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::config_file::Found;
use toolcrib::core::config::Config;
use toolcrib::testkit::{Scripted, config};
use toolcrib::{Options, Refresh, Registry};
use toolcrib_server::{Limits, Serving, Setup, Surface, bind};

pub(crate) use crate::web::{Answer, SOON};
use crate::web::{begin, exchange};

pub(crate) struct Stage {
    pub(crate) registry: Registry,
    pub(crate) address: String,
    pub(crate) token: String,
    leave: CancellationToken,
    running: JoinHandle<()>,
    _data: TempDir,
}

/// Served, and not discovered yet.
pub(crate) async fn stage(sources: &[(&str, &Arc<Scripted>)]) -> Stage {
    let options = Options { connect: Some(Scripted::connect(sources.iter().copied())), ..Options::default() };
    staged(config(sources.iter().map(|(id, _)| *id)), options).await
}

/// Served, and every source discovered.
pub(crate) async fn known(sources: &[(&str, &Arc<Scripted>)]) -> Stage {
    let stage = stage(sources).await;
    stage.registry.refresh(Refresh::default()).await;
    stage
}

pub(crate) async fn staged(config: Config, options: Options) -> Stage {
    staged_within(config, options, Limits::default()).await
}

/// Served within other limits, and every source discovered.
pub(crate) async fn limited(sources: &[(&str, &Arc<Scripted>)], limits: Limits) -> Stage {
    let options = Options { connect: Some(Scripted::connect(sources.iter().copied())), ..Options::default() };
    let stage = staged_within(config(sources.iter().map(|(id, _)| *id)), options, limits).await;
    stage.registry.refresh(Refresh::default()).await;
    stage
}

async fn staged_within(config: Config, options: Options, limits: Limits) -> Stage {
    let data = tempfile::tempdir().unwrap();
    let registry = Registry::open(config.clone(), options).await.unwrap();
    let surface = Surface::new(registry.clone(), config.expose.clone());
    let found = Found::of(config);
    let setup = Setup { found, data: data.path().to_owned(), require_token: false, refuse_own_process: false };
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let serving = Serving::with_limits(listener, surface, setup, limits).unwrap();
    let address = serving.address().to_string();
    let token = std::fs::read_to_string(data.path().join("admin.token")).unwrap().trim().to_owned();
    let leave = CancellationToken::new();
    let running = tokio::spawn(serving.run(leave.clone().cancelled_owned()));
    Stage { registry, address, token, leave, running, _data: data }
}

impl Stage {
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"").await
    }

    /// JSON with the administrator's token.
    pub(crate) async fn manage(&self, method: &str, path: &str, body: &Value) -> Answer {
        let headers = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", self.token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &headers, body.as_bytes()).await
    }

    /// JSON without a token.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes()).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        exchange(&self.address, method, path, headers, body).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    /// A request under way.
    pub(crate) async fn open(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        begin(&self.address, method, path, headers, body).await
    }

    /// Asks the server to leave.
    pub(crate) fn leave(&self) {
        self.leave.cancel();
    }

    pub(crate) async fn end(self) {
        self.leave();
        tokio::time::timeout(SOON, self.running).await.unwrap().unwrap();
    }
}

/// Polls until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, waiting).await.is_ok(), "in vain: {what}");
}
