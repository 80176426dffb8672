//! Tests a store that fails or hangs: reads do not need it, and readiness and metrics report it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use toolcrib::config::Config;
use toolcrib::core::features::{FeatureList, FeatureSummary};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::manifest::PackedManifest;
use toolcrib::core::{Error, Result, Timestamp};
use toolcrib::store::{
    CacheCount, CallCount, ChangeCounters, Commit, CommitOutcome, CountBatch, DiscoveryCheck, Lease, Login,
    MemoryStore, NodeStatus, SourceStatus, Store, StoreAdministration, StoredRecord, StoredSnapshot, TokenUse,
};
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Code, Refresh, RegistryOptions, Source, SourceId};
use toolcrib_mcp::{ClientOptions, ConnectTarget, McpClient, RequestOptions, WireError};
use toolcrib_testkit::programs::scripted_source;

use super::support::{RestTestServer, start_with, wait_until};
use crate::test_server::{TEST_TIMEOUT, cookie_header, finish_request};

const HEALTHY: u8 = 0;
const FAILING: u8 = 1;
const HANGING: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct FaultyStore {
    store: MemoryStore,
    mode: AtomicU8,
    /// Number of reads of all sessions.
    login_reads: AtomicUsize,
    /// Nodes that share the store.
    nodes: Mutex<Option<Vec<NodeStatus>>>,
}

impl FaultyStore {
    /// A store that several nodes share.
    pub(crate) fn with_nodes(nodes: Vec<NodeStatus>) -> FaultyStore {
        FaultyStore { nodes: Mutex::new(Some(nodes)), ..FaultyStore::default() }
    }

    pub(crate) fn set_nodes(&self, nodes: Vec<NodeStatus>) {
        *self.nodes.lock() = Some(nodes);
    }

    fn set_mode(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    async fn available(&self) -> Result<&MemoryStore> {
        match self.mode.load(Ordering::SeqCst) {
            HANGING => std::future::pending().await,
            FAILING => Err(Error::new(Code::StoreUnavailable, "the disk is gone")),
            _ => Ok(&self.store),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        self.available().await?.records(after, limit).await
    }
    async fn commit(&self, commit: Commit<'_>) -> Result<CommitOutcome> {
        self.available().await?.commit(commit).await
    }
    async fn put_manifest(&self, manifest: &PackedManifest) -> Result<()> {
        self.available().await?.put_manifest(manifest).await
    }
    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<PackedManifest>> {
        self.available().await?.manifests(wanted).await
    }
    async fn put_features(&self, features: &FeatureList) -> Result<()> {
        self.available().await?.put_features(features).await
    }
    async fn feature_summaries(&self, wanted: &[Fingerprint]) -> Result<Vec<FeatureSummary>> {
        self.available().await?.feature_summaries(wanted).await
    }
    async fn features(&self, wanted: &[Fingerprint]) -> Result<Vec<FeatureList>> {
        self.available().await?.features(wanted).await
    }
    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        self.available().await?.put_definition(name, definition).await
    }
    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        self.available().await?.definitions(wanted).await
    }
    async fn remove_definitions(&self, source: &SourceId, keep: Option<Fingerprint>, head: u64) -> Result<bool> {
        self.available().await?.remove_definitions(source, keep, head).await
    }
    async fn source_statuses(&self) -> Result<BTreeMap<SourceId, SourceStatus>> {
        self.available().await?.source_statuses().await
    }
    async fn checks(&self, source: &SourceId) -> Result<Vec<DiscoveryCheck>> {
        self.available().await?.checks(source).await
    }
    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        self.available().await?.invalidate(source).await
    }
    async fn remove_source_status(&self, source: &SourceId, head: u64) -> Result<bool> {
        self.available().await?.remove_source_status(source, head).await
    }
    async fn acquire_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        self.available().await?.acquire_lease(source, holder, duration).await
    }
    async fn renew_lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<bool> {
        self.available().await?.renew_lease(source, holder, duration).await
    }
    async fn release_lease(&self, source: &SourceId, holder: &str) -> Result<()> {
        self.available().await?.release_lease(source, holder).await
    }
    async fn add_counts(&self, batch: &CountBatch, calls: &[CallCount], needs: &[CacheCount]) -> Result<()> {
        self.available().await?.add_counts(batch, calls, needs).await
    }
    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        self.available().await?.call_counts().await
    }
    async fn cache_counts(&self) -> Result<Vec<CacheCount>> {
        self.available().await?.cache_counts().await
    }
    async fn record_token_uses(&self, uses: &[TokenUse]) -> Result<()> {
        self.available().await?.record_token_uses(uses).await
    }
    async fn token_uses(&self) -> Result<Vec<TokenUse>> {
        self.available().await?.token_uses().await
    }
    async fn put_login(&self, login: &Login) -> Result<()> {
        self.available().await?.put_login(login).await
    }
    async fn remove_login(&self, digest: Fingerprint) -> Result<bool> {
        self.available().await?.remove_login(digest).await
    }
    async fn logins(&self, now: Timestamp) -> Result<Vec<Login>> {
        self.login_reads.fetch_add(1, Ordering::SeqCst);
        self.available().await?.logins(now).await
    }
    async fn put_snapshot(&self, snapshot: &StoredSnapshot) -> Result<()> {
        self.available().await?.put_snapshot(snapshot).await
    }
    async fn snapshot(&self) -> Result<Option<StoredSnapshot>> {
        self.available().await?.snapshot().await
    }
    fn administration(&self) -> &dyn StoreAdministration {
        self.store.administration()
    }
    async fn nodes(&self) -> Result<Option<Vec<NodeStatus>>> {
        self.available().await?;
        Ok(self.nodes.lock().clone())
    }
    async fn key(&self) -> Result<[u8; 32]> {
        self.available().await?.key().await
    }
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        self.available().await?.check_integrity(limit).await
    }
    async fn change_counters(&self) -> Result<ChangeCounters> {
        self.available().await?.change_counters().await
    }
    async fn close(&self) {}
}

async fn start_with_faulty_store() -> (RestTestServer, Arc<FaultyStore>) {
    let shop = ScriptedSource::new(["order"]);
    let faulty_store = Arc::new(FaultyStore::default());
    let options = RegistryOptions { store: Some(faulty_store.clone()), ..RegistryOptions::default() };
    let server = start_with(config_with_sources(["shop"]), options, &[("shop", &shop)]).await;
    server.registry.refresh(Refresh::default()).await;
    (server, faulty_store)
}

/// Regression: a client got an empty list, and no notification later.
#[tokio::test]
async fn prompts_that_the_store_cannot_read_are_a_retryable_error() {
    let directory = tempfile::tempdir().unwrap();
    let features_file = directory.path().join("features.json");
    std::fs::write(&features_file, r#"{"prompts": [{"name": "review"}]}"#).unwrap();
    let source = scripted_source(&["--features-file", features_file.to_str().unwrap()]);
    let config = json!({"expose": {"mode": "full"}, "sources": {"s": source}}).to_string();
    let config = Config::read(&config, "toolcrib.json", directory.path()).unwrap();
    let store = Arc::new(FaultyStore::default());
    let start = async || {
        let options = RegistryOptions { store: Some(store.clone()), ..RegistryOptions::default() };
        start_with(config.clone(), options, &[]).await
    };
    let first = start().await;
    first.registry.refresh(Refresh::default()).await;
    first.stop().await;
    // The second process knows of the list, and reads it when a client requests it.
    let server = start().await;
    let target = ConnectTarget::Http { url: server.mcp_url(), headers: Default::default() };
    let client = McpClient::connect(target, ClientOptions::new("test", "0")).await.unwrap();
    let list_prompts = async || client.request("prompts/list", None, &RequestOptions::new(TEST_TIMEOUT)).await;
    store.set_mode(FAILING);
    let Err(WireError::Rpc(error)) = list_prompts().await else { panic!("an error is expected") };
    let data: serde_json::Value = serde_json::from_str(error.data.unwrap().get()).unwrap();
    assert_eq!((&data["error"]["code"], &data["error"]["retryable"]), (&json!("STORE_UNAVAILABLE"), &json!(true)));
    store.set_mode(HEALTHY);
    assert!(list_prompts().await.unwrap().get().contains("s__review"));
}

#[tokio::test]
async fn a_refresh_that_the_store_refuses_is_unavailable() {
    let (server, faulty_store) = start_with_faulty_store().await;
    faulty_store.set_mode(FAILING);
    let response = server.post("/api/sources/shop/refresh?force=true", &json!({})).await;
    assert!(response.header("x-toolcrib-stale").is_some(), "the failure is known with its first response");
    let outcome = response.expect_json(503);
    assert_eq!((&outcome["status"], &outcome["error"]["code"]), (&json!("failed"), &json!("STORE_UNAVAILABLE")));
}

#[tokio::test]
async fn reads_and_calls_do_not_depend_on_the_store() {
    let (server, faulty_store) = start_with_faulty_store().await;
    // The first summary counts tokens and stores them, so it is requested while the store works.
    server.get("/api/context").await.expect_json(200);
    for mode in [HANGING, FAILING] {
        faulty_store.set_mode(mode);
        for path in [
            "/api/sources",
            "/api/sources/shop",
            "/api/tools",
            "/api/tools?limit=1",
            "/api/tools?state=deprecated",
            "/api/tools/shop__order",
            "/api/search?q=order",
            "/api/context?budget=90",
            "/api/stats",
            "/api/config",
            "/api/whoami",
            "/api/openapi.json",
        ] {
            server.get(path).await.expect_json(200);
        }
        for path in ["/healthz", "/metrics", "/"] {
            assert_eq!(server.get(path).await.status, 200, "{path}");
        }
        server.post("/api/tools/shop__order/call", &json!({})).await.expect_json(200);
    }
}

#[tokio::test]
async fn readiness_and_metrics_report_a_failing_store() {
    let (server, faulty_store) = start_with_faulty_store().await;
    let ready = async || server.get("/readyz").await.expect_json(200);
    assert_eq!(ready().await, json!({ "status": "ready", "store": { "state": "ok" } }));
    faulty_store.set_mode(FAILING);
    wait_until("it is degraded", async || ready().await["status"] == "degraded").await;
    let store = ready().await["store"].clone();
    assert_eq!(store["state"], "down");
    assert!(store["since"].is_string(), "{store}");
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("\ntoolcrib_ready 1") && metrics.contains("\ntoolcrib_store{state=\"down\"} 1"));
    let stale = metrics.lines().find_map(|line| line.strip_prefix("toolcrib_store_stale_seconds ")).unwrap();
    assert!(stale.parse::<u64>().unwrap() >= 1, "{stale}");
    assert!(server.get("/").await.body.contains("The store does not answer"));
    faulty_store.set_mode(HEALTHY);
    wait_until("it is ready", async || ready().await["status"] == "ready").await;
}

#[tokio::test]
async fn responses_are_marked_as_stale_while_the_store_is_down() {
    let (server, faulty_store) = start_with_faulty_store().await;
    faulty_store.set_mode(FAILING);
    wait_until("it is degraded", async || server.get("/readyz").await.expect_json(200)["status"] == "degraded").await;
    for (path, status) in [
        ("/api/tools", 200),
        ("/api/tools", 200),
        ("/", 200),
        ("/healthz", 200),
        ("/readyz", 200),
        ("/nothing", 404),
        ("/mcp", 405),
    ] {
        let response = server.get(path).await;
        let seconds: u64 = response.header("x-toolcrib-stale").unwrap().parse().unwrap();
        assert_eq!((response.status, (1..60).contains(&seconds)), (status, true), "{path}: {response:?}");
    }
    let write = server.send_as_admin("POST", "/api/sources/shop/disable", &json!({})).await;
    assert_eq!((write.status, write.error_code().as_str()), (503, "STORE_UNAVAILABLE"));
    assert!(write.header("x-toolcrib-stale").is_some() && write.header("x-toolcrib-position").is_some());
    faulty_store.set_mode(HEALTHY);
    wait_until("it is not stale", async || server.get("/api/tools").await.header("x-toolcrib-stale").is_none()).await;
}

#[tokio::test]
async fn known_sessions_work_without_the_store_and_none_can_be_started() {
    let (server, faulty_store) = start_with_faulty_store().await;
    let cookie = cookie_header(&server.post_login(&server.admin_token).await);
    let whoami = async || server.send("GET", "/api/whoami", &cookie, "").await.expect_json(200);
    let csrf = whoami().await["csrf"].as_str().unwrap().to_owned();
    let link = server.app_state.create_login_path().await.unwrap();
    faulty_store.set_mode(FAILING);
    assert_eq!(whoami().await["name"], "admin");
    for response in [server.post_login(&server.admin_token).await, server.get(&link).await] {
        assert_eq!((response.status, response.header("set-cookie")), (503, None), "{response:?}");
        assert!(response.body.contains("STORE_UNAVAILABLE") && response.body.contains("name=\"token\""));
        assert_eq!(response.header("retry-after"), Some("1"));
    }
    assert!(server.app_state.create_login_path().await.is_err());
    // The logout takes effect here at once, and in the store when it works again.
    let headers = format!("{cookie}X-CSRF-Token: {csrf}\r\n");
    assert_eq!(server.send("POST", "/logout", &headers, "").await.status, 303);
    assert_eq!(whoami().await["name"], "local");
    // The store cannot tell whether this session exists, and would still have it.
    let name = cookie.split('=').next().unwrap();
    let unknown = format!("{name}={}\r\n", toolcrib::registry::random_secret());
    let failed = server.send("POST", "/logout", &unknown, "").await;
    assert_eq!((failed.status, failed.error_code().as_str()), (503, "STORE_UNAVAILABLE"), "{failed:?}");
    assert_eq!(failed.header("set-cookie"), None);
    faulty_store.set_mode(HEALTHY);
    assert_eq!(server.send("POST", "/logout", &unknown, "").await.status, 303);
    wait_until("the session is removed", async || faulty_store.store.logins(Timestamp(0)).await.unwrap().len() == 1)
        .await;
    assert_eq!(whoami().await["name"], "local");
    assert_eq!(server.get(&link).await.status, 303, "the link was not used up");
}

#[tokio::test]
async fn wrong_cookies_hardly_read_the_store() {
    let (server, faulty_store) = start_with_faulty_store().await;
    let name = cookie_header(&server.post_login(&server.admin_token).await);
    let name = name.split('=').next().unwrap();
    let reads = || faulty_store.login_reads.load(Ordering::SeqCst);
    let before = reads();
    for _ in 0..4 {
        let flood = (0..50).map(|_| async {
            let cookie = format!("{name}={}\r\n", toolcrib::registry::random_secret());
            server.send("GET", "/api/whoami", &cookie, "").await.expect_json(200)["name"] == "local"
        });
        assert!(futures_util::future::join_all(flood).await.into_iter().all(|is_local| is_local));
    }
    // A few for each batch and of maintenance, however slow the machine is, for 200 cookies.
    assert!(reads() - before <= 100, "{} reads", reads() - before);

    let stale = format!("{name}={}\r\n", toolcrib::registry::random_secret());
    server.send("GET", "/api/whoami", &stale, "").await.expect_json(200);
    faulty_store.set_mode(HANGING);
    let before = reads();
    for cookie in [&*stale, &*format!("{name}=short\r\n")].repeat(10) {
        server.send("GET", "/api/whoami", cookie, "").await.expect_json(200);
    }
    // One of maintenance may have begun before.
    assert!(reads() - before <= 1, "the store is not asked twice for one id, nor for what cannot be one");
    let unknown = format!("{name}={}\r\n", toolcrib::registry::random_secret());
    assert_eq!(server.send("GET", "/api/whoami", &unknown, "").await.expect_json(200)["name"], "local");
}

#[tokio::test]
async fn a_truncated_body_is_a_bad_request() {
    let (server, _) = start_with_faulty_store().await;
    let mut stream = server.connect().await;
    let head = format!(
        "POST /api/tools/shop__order/call HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{{}}\r\nnonsense\r\n",
        server.address
    );
    let response = finish_request(&mut stream, head.as_bytes()).await;
    assert_eq!((response.status, response.error_code().as_str()), (400, "BAD_REQUEST"), "{response:?}");
}
