//! A house with one scripted source, a clock that is moved by hand, and HTTP written by hand.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::clock::{Clock, Hand};
use toolcrib::config_file::Found;
use toolcrib::core::Timestamp;
use toolcrib::core::access::Role;
use toolcrib::core::config::{Config, Loopback};
use toolcrib::core::inventory::Actor;
use toolcrib::testkit::{Scripted, config};
use toolcrib::{Options, Registry, Result};
use toolcrib_server::{Serving, Setup, Surface, bind};

pub(crate) use crate::web::{Answer, SOON};
use crate::web::{begin, exchange};

pub(crate) struct House {
    pub(crate) registry: Registry,
    pub(crate) hand: Hand,
    pub(crate) address: String,
    /// What is in `admin.token`.
    pub(crate) admin: String,
    house: toolcrib_server::House,
    _directory: TempDir,
    _leave: tokio_util::sync::DropGuard,
    _running: JoinHandle<()>,
}

/// A registry and its clock; nobody is served yet.
pub(crate) async fn registry() -> (Registry, Hand) {
    let (clock, hand) = Clock::manual(Timestamp(1_794_700_800_000));
    let scripted = Scripted::new([json!({ "name": "push", "inputSchema": { "type": "object" } })]);
    let connect = Some(Scripted::connect([("git", &Arc::clone(&scripted))]));
    let options = Options { clock, connect, ..Options::default() };
    (Registry::open(config(["git"]), options).await.unwrap(), hand)
}

pub(crate) async fn serving(registry: &Registry, listen: &str, require_token: bool) -> Result<(Serving, TempDir)> {
    configured(registry, listen, require_token, config(["git"])).await
}

pub(crate) async fn configured(
    registry: &Registry,
    listen: &str,
    require_token: bool,
    config: Config,
) -> Result<(Serving, TempDir)> {
    let directory = tempfile::tempdir().unwrap();
    let found = Found::of(config);
    let setup = Setup { found, data: directory.path().to_owned(), require_token, refuse_own_process: false };
    let surface = Surface::new(registry.clone(), setup.found.config.expose.clone());
    let serving = Serving::new(bind(listen.parse().unwrap()).await?, surface, setup)?;
    Ok((serving, directory))
}

impl House {
    /// On loopback.
    pub(crate) async fn local() -> House {
        let (registry, hand) = registry().await;
        House::open(registry, hand, "127.0.0.1:0", false).await
    }

    /// On every address; talked to on this machine. The tokens are for a viewer, an agent and an admin.
    pub(crate) async fn beyond() -> (House, [String; 3]) {
        let (registry, hand) = registry().await;
        let mut tokens = Vec::new();
        for role in Role::ALL {
            let name = format!("the-{role}");
            tokens.push(registry.create_token(&name, role, None, Actor::new("test")).await.unwrap().token);
        }
        (House::open(registry, hand, "0.0.0.0:0", false).await, tokens.try_into().unwrap())
    }

    pub(crate) async fn open(registry: Registry, hand: Hand, listen: &str, require_token: bool) -> House {
        let (serving, directory) = serving(&registry, listen, require_token).await.unwrap();
        House::of(registry, hand, serving, directory)
    }

    pub(crate) fn of(registry: Registry, hand: Hand, serving: Serving, directory: TempDir) -> House {
        let address = format!("127.0.0.1:{}", serving.address().port());
        let admin = std::fs::read_to_string(directory.path().join("admin.token")).unwrap().trim().to_owned();
        let (leave, house) = (CancellationToken::new(), serving.house().clone());
        let running = tokio::spawn(serving.run(leave.clone().cancelled_owned()));
        let (_leave, _running, _directory) = (leave.drop_guard(), running, directory);
        House { registry, hand, address, admin, house, _directory, _leave, _running }
    }

    pub(crate) async fn token(&self, name: &str, role: Role, expires: Option<Duration>) -> String {
        self.registry.create_token(name, role, expires, Actor::new("test")).await.unwrap().token
    }

    /// The configuration was changed, and read again.
    pub(crate) fn set_loopback(&self, loopback: Loopback) {
        let mut config = config(["git"]);
        config.identity.loopback = loopback;
        self.house.reread(Found::of(config));
    }

    /// Where the printed link leads.
    pub(crate) fn link(&self) -> String {
        self.house.login_path()
    }

    /// `headers` are whole lines.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        exchange(&self.address, method, path, headers, body.as_bytes()).await
    }

    /// A stream, once its head has been answered.
    pub(crate) async fn watch(&self, path: &str, headers: &str) -> TcpStream {
        self.watch_request("GET", path, headers, "").await
    }

    pub(crate) async fn watch_request(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = begin(&self.address, method, path, headers, body.as_bytes()).await;
        let mut begun = Vec::new();
        while !begun.ends_with(b"\r\n\r\n") {
            begun.push(tokio::time::timeout(SOON, stream.read_u8()).await.unwrap().unwrap());
        }
        assert!(begun.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&begun));
        stream
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> Answer {
        self.send("GET", path, headers, "").await
    }

    /// JSON, with what is needed to send it.
    pub(crate) async fn post(&self, path: &str, headers: &str, body: Value) -> Answer {
        self.send("POST", path, &format!("Content-Type: application/json\r\n{headers}"), &body.to_string()).await
    }

    pub(crate) async fn form(&self, path: &str, headers: &str, body: &str) -> Answer {
        self.send("POST", path, &format!("Content-Type: application/x-www-form-urlencoded\r\n{headers}"), body).await
    }

    /// Signs in with a token: the cookie as a header line, and the token of the session's pages.
    pub(crate) async fn signed_in(&self, token: &str) -> (String, String) {
        let answer = self.form("/login", "", &format!("token={token}")).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = cookie(&answer);
        let csrf = self.get("/api/whoami", &cookie).await.json()["csrf"].as_str().unwrap().to_owned();
        (cookie, csrf)
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The cookie that an answer sets, as the header line that sends it.
#[track_caller]
pub(crate) fn cookie(answer: &Answer) -> String {
    let set = answer.header("set-cookie").unwrap();
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}
