//! A store that fails or hangs: reads do not touch it, and who watches over us is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::manifest::Packed;
use toolcrib::core::{Error, Result};
use toolcrib::store::{
    CallCount, Check, Commit, Committed, Lease, MemoryStore, NeedCount, Standing, Store, StoredRecord,
};
use toolcrib::testkit::{Scripted, config};
use toolcrib::{Code, Options, Refresh, Source, SourceId};

use crate::support::{Stage, staged, until};
use crate::web::finish;

const WELL: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;

#[derive(Debug, Default)]
struct Shaky {
    store: MemoryStore,
    mood: AtomicU8,
}

impl Shaky {
    fn turn(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    async fn well(&self) -> Result<&MemoryStore> {
        match self.mood.load(Ordering::SeqCst) {
            HANGS => std::future::pending().await,
            FAILS => Err(Error::new(Code::StoreUnavailable, "the disk is gone")),
            _ => Ok(&self.store),
        }
    }
}

#[async_trait]
impl Store for Shaky {
    async fn records(&self, after: u64, limit: usize) -> Result<Vec<StoredRecord>> {
        self.well().await?.records(after, limit).await
    }
    async fn commit(&self, commit: Commit<'_>) -> Result<Committed> {
        self.well().await?.commit(commit).await
    }
    async fn put_manifest(&self, manifest: &Packed) -> Result<()> {
        self.well().await?.put_manifest(manifest).await
    }
    async fn manifests(&self, wanted: &[Fingerprint]) -> Result<Vec<Packed>> {
        self.well().await?.manifests(wanted).await
    }
    async fn put_definition(&self, name: Fingerprint, definition: &Source) -> Result<()> {
        self.well().await?.put_definition(name, definition).await
    }
    async fn definitions(&self, wanted: &[Fingerprint]) -> Result<Vec<(Fingerprint, Source)>> {
        self.well().await?.definitions(wanted).await
    }
    async fn forget_definitions(&self, source: &SourceId, but: Option<Fingerprint>) -> Result<()> {
        self.well().await?.forget_definitions(source, but).await
    }
    async fn standings(&self) -> Result<BTreeMap<SourceId, Standing>> {
        self.well().await?.standings().await
    }
    async fn checks(&self, source: &SourceId) -> Result<Vec<Check>> {
        self.well().await?.checks(source).await
    }
    async fn invalidate(&self, source: &SourceId) -> Result<()> {
        self.well().await?.invalidate(source).await
    }
    async fn forget(&self, source: &SourceId) -> Result<()> {
        self.well().await?.forget(source).await
    }
    async fn lease(&self, source: &SourceId, holder: &str, duration: Duration) -> Result<Lease> {
        self.well().await?.lease(source, holder, duration).await
    }
    async fn release(&self, source: &SourceId, holder: &str) -> Result<()> {
        self.well().await?.release(source, holder).await
    }
    async fn count(&self, calls: &[CallCount], needs: &[NeedCount]) -> Result<()> {
        self.well().await?.count(calls, needs).await
    }
    async fn call_counts(&self) -> Result<Vec<CallCount>> {
        self.well().await?.call_counts().await
    }
    async fn need_counts(&self) -> Result<Vec<NeedCount>> {
        self.well().await?.need_counts().await
    }
    async fn key(&self) -> Result<[u8; 32]> {
        self.well().await?.key().await
    }
    async fn check_integrity(&self, limit: usize) -> Result<Vec<String>> {
        self.well().await?.check_integrity(limit).await
    }
    async fn pulse(&self) -> Result<u64> {
        self.well().await?.pulse().await
    }
    async fn close(&self) {}
}

async fn on_shaky() -> (Stage, Arc<Shaky>) {
    let (shop, shaky) = (Scripted::new(["order"]), Arc::new(Shaky::default()));
    let connect = Some(Scripted::connect([("shop", &shop)]));
    let options = Options { connect, store: Some(shaky.clone()), ..Options::default() };
    let stage = staged(config(["shop"]), options).await;
    stage.registry.refresh(Refresh::default()).await;
    (stage, shaky)
}

#[tokio::test]
async fn reads_and_calls_leave_the_store_alone() {
    let (stage, shaky) = on_shaky().await;
    // Counting tokens for the first summary is work that is stored.
    stage.get("/api/context").await.with(200);
    for mood in [HANGS, FAILS] {
        shaky.turn(mood);
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
            stage.get(path).await.with(200);
        }
        for path in ["/healthz", "/metrics", "/"] {
            assert_eq!(stage.get(path).await.status, 200, "{path}");
        }
        stage.post("/api/tools/shop__order/call", &json!({})).await.with(200);
    }
}

#[tokio::test]
async fn who_watches_is_told_while_the_store_fails() {
    let (stage, shaky) = on_shaky().await;
    let ready = async || stage.get("/readyz").await.with(200);
    assert_eq!(ready().await, json!({ "status": "ready", "store": { "state": "ok" } }));
    shaky.turn(FAILS);
    until("it is degraded", async || ready().await["status"] == "degraded").await;
    let store = ready().await["store"].clone();
    assert_eq!(store["state"], "down");
    assert!(store["since"].is_string(), "{store}");
    let metrics = stage.get("/metrics").await.body;
    assert!(metrics.contains("\ntoolcrib_ready 1") && metrics.contains("\ntoolcrib_store{state=\"down\"} 1"));
    assert!(stage.get("/").await.body.contains("The store does not answer"));
    shaky.turn(WELL);
    until("it is ready", async || ready().await["status"] == "ready").await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_called_large() {
    let (stage, _) = on_shaky().await;
    let mut stream = stage.connect().await;
    let head = format!(
        "POST /api/tools/shop__order/call HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{{}}\r\nnonsense\r\n",
        stage.address
    );
    let answer = finish(&mut stream, head.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "BAD_REQUEST"), "{answer:?}");
}
