//! Provides nodes: servers with registries of their own over one store.

use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::store;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Refresh, Registry, RegistryOptions};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};
pub(crate) use toolcrib_testkit::observe::wait_until_async as wait_until;
use toolcrib_testkit::postgres;

pub(crate) use crate::test_server::RawHttpResponse;
use crate::test_server::{RunningServer, cookie_header, open_scripted, server_config};

/// Runs test functions, which take a [`SharedStore`], with a SQLite file and with PostgreSQL.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() { super::$test(crate::nodes::support::SharedStore::sqlite()).await })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                match crate::nodes::support::SharedStore::postgres() {
                    Some(store) => super::$test(store).await,
                    None => toolcrib_testkit::programs::skip(stringify!($test), "PostgreSQL is not installed"),
                }
            })*
        }
    };
}
pub(crate) use on_each_store;

/// An empty store that several registries can open.
pub(crate) struct SharedStore {
    location: String,
    /// `None` for a database.
    directory: Option<TempDir>,
}

impl SharedStore {
    pub(crate) fn sqlite() -> SharedStore {
        let directory = tempfile::tempdir().unwrap();
        SharedStore { location: directory.path().to_str().unwrap().to_owned(), directory: Some(directory) }
    }

    /// `None` without PostgreSQL.
    pub(crate) fn postgres() -> Option<SharedStore> {
        Some(SharedStore { location: postgres::shared_database()?, directory: None })
    }

    /// Returns what is stored, as far as it is text: all files, or the rows of the logins.
    fn stored_text(&self) -> String {
        let Some(directory) = &self.directory else {
            return postgres::run_sql(&self.location, "SELECT logins::text FROM logins");
        };
        let files =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        files.map(|content| String::from_utf8_lossy(&content).into_owned()).collect()
    }
}

/// A store, and the nodes on it with one scripted source `shop`.
pub(crate) struct NodeGroup {
    store: SharedStore,
    pub(crate) shop: Arc<ScriptedSource>,
}

/// One server with its registry.
pub(crate) struct Node {
    pub(crate) registry: Registry,
    pub(crate) server: RunningServer,
}

impl NodeGroup {
    pub(crate) fn new(store: SharedStore) -> NodeGroup {
        let order = json!({
            "name": "order", "description": "Orders something for a customer",
            "inputSchema": { "type": "object", "properties": { "what": { "type": "string" } } },
        });
        let tools = [order, json!("refund"), json!("ship")];
        NodeGroup { store, shop: ScriptedSource::new(tools) }
    }

    pub(crate) fn stored_text(&self) -> String {
        self.store.stored_text()
    }

    pub(crate) async fn start_node(&self) -> Node {
        self.start_node_in(tempfile::tempdir().unwrap()).await
    }

    /// Starts a node with this data directory, which has its admin token.
    pub(crate) async fn start_node_in(&self, data_dir: TempDir) -> Node {
        self.start_configured_node(data_dir, false).await
    }

    /// Starts a node on which local processes need a token too.
    pub(crate) async fn start_node_requiring_token(&self) -> Node {
        self.start_configured_node(tempfile::tempdir().unwrap(), true).await
    }

    async fn start_configured_node(&self, data_dir: TempDir, require_token: bool) -> Node {
        let store = store::open(&self.store.location).await.unwrap();
        let options = RegistryOptions { store: Some(store), ..RegistryOptions::default() };
        let config = config_with_sources(["shop"]);
        let registry = open_scripted(config.clone(), options, &[("shop", &self.shop)]).await;
        let service = McpService::new(registry.clone(), config.expose.clone());
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server_config = ServerConfig { require_token, ..server_config(config, data_dir.path()) };
        let http_server = HttpServer::new(listener, service, server_config).unwrap();
        Node { registry, server: RunningServer::start(http_server, data_dir) }
    }

    /// Starts two nodes; the first one discovers the source, and both have applied the records.
    pub(crate) async fn start_two(store: SharedStore) -> (NodeGroup, Node, Node) {
        let group = NodeGroup::new(store);
        let (one, other) = (group.start_node().await, group.start_node().await);
        one.registry.refresh(Refresh::default()).await;
        wait_until("both nodes are at the same position", async || {
            one.registry.position() == other.registry.position()
        })
        .await;
        (group, one, other)
    }
}

impl Node {
    /// Stops the node and returns its data directory.
    pub(crate) async fn stop(self) -> TempDir {
        let data_dir = self.server.stop_keeping_data().await;
        self.registry.close().await;
        data_dir
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> RawHttpResponse {
        self.server.send("GET", path, headers, "").await
    }

    pub(crate) async fn post_form(&self, path: &str, headers: &str, body: &str) -> RawHttpResponse {
        let headers = format!("Content-Type: application/x-www-form-urlencoded\r\n{headers}");
        self.server.send("POST", path, &headers, body).await
    }

    pub(crate) async fn post_as_admin(&self, path: &str, body: &Value) -> RawHttpResponse {
        let headers =
            format!("Content-Type: application/json\r\nAuthorization: Bearer {}\r\n", self.server.admin_token);
        self.server.send("POST", path, &headers, body.to_string()).await
    }

    /// Posts one MCP message.
    pub(crate) async fn post_mcp(&self, path: &str, headers: &str, message: &Value) -> RawHttpResponse {
        let headers =
            format!("Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{headers}");
        self.server.send("POST", path, &headers, message.to_string()).await
    }

    /// Signs in with a token and returns the cookie as a header line.
    pub(crate) async fn sign_in(&self, token: &str) -> String {
        cookie_header(&self.server.post_login(token).await)
    }

    pub(crate) async fn whoami(&self, cookie: &str) -> Value {
        self.get("/api/whoami", cookie).await.expect_json(200)
    }
}

/// The position in the header of a response.
#[track_caller]
pub(crate) fn position(response: &RawHttpResponse) -> u64 {
    let header = response.header("x-toolcrib-position");
    assert!(header.is_some(), "no position: {response:?}");
    header.unwrap().parse().unwrap()
}
