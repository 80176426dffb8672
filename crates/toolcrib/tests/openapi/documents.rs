//! Documents, from a file and from an address.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use toolcrib::refresh::RefreshStatus;

use crate::server::{LoopbackServer, reply};
use crate::support::{OpenApiTestRegistry, pets_document};

#[tokio::test]
async fn an_unchanged_document_is_not_read_again_and_a_changed_one_is() {
    let version = Arc::new(AtomicUsize::new(1));
    let now = version.clone();
    let server = LoopbackServer::start(move |heard, _| {
        let tag = format!("\"{}\"", now.load(Ordering::SeqCst));
        if heard.header("if-none-match") == tag {
            return reply(304, "", "");
        }
        let name = format!("tool{}", now.load(Ordering::SeqCst));
        let document = json!({
            "openapi": "3.0.3",
            "info": { "title": "T", "version": "1" },
            "paths": { "/x": { "get": { "operationId": name, "responses": {} } } },
        });
        reply(200, &format!("etag: {tag}"), &document.to_string())
    })
    .await;
    let source =
        json!({ "openapi": format!("{}/api.json", server.url), "auth": { "bearer": "s3cret-token" }, "ttl": "0s" });
    let bench = OpenApiTestRegistry::open(tempfile::tempdir().unwrap(), json!({ "shop": source })).await;
    assert_eq!(bench.refresh_source("shop").await.status, RefreshStatus::Success);
    assert_eq!(bench.refresh_source("shop").await.status, RefreshStatus::Unchanged);
    assert_eq!(server.requests()[1].header("if-none-match"), "\"1\"");
    assert!(server.requests().iter().all(|heard| heard.header("authorization") == "Bearer s3cret-token"));

    version.store(2, Ordering::SeqCst);
    let outcome = bench.refresh_source("shop").await;
    assert_eq!((outcome.added, outcome.removed), (vec!["shop__tool2".to_owned()], vec!["shop__tool1".to_owned()]));
    // A server that the document does not name is where the document is.
    bench.call("shop__tool2", json!({})).await.unwrap();
    assert!(server.request_lines().contains(&"GET /x".to_owned()));
}

#[tokio::test]
async fn what_a_document_leads_to_is_read_and_watched_too() {
    let server = LoopbackServer::start(|_, _| reply(204, "", "")).await;
    let mut document = pets_document(&server);
    document["paths"]["/pets/{id}"]["get"]["parameters"][0] = json!({ "$ref": "parts.yaml#/id" });
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("api.json"), document.to_string()).unwrap();
    let part = |name: &str| format!("id: {{ name: {name}, in: path, required: true, schema: {{ type: string }} }}");
    std::fs::write(home.path().join("parts.yaml"), part("id")).unwrap();
    let bench = OpenApiTestRegistry::open(home, json!({ "shop": { "openapi": "api.json", "ttl": "0s" } })).await;
    bench.call("shop__getPet", json!({ "id": "x" })).await.unwrap();
    assert_eq!(server.request_lines(), ["GET /v1/pets/x"]);
    assert_eq!(bench.refresh_source("shop").await.status, RefreshStatus::Unchanged);

    std::fs::write(bench.home.path().join("parts.yaml"), part("id").replace("string", "integer")).unwrap();
    let changed = bench.refresh_source("shop").await.changed;
    assert_eq!(changed.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["shop__getPet"]);
    // Without it the document is read for what is left, until it is back.
    std::fs::remove_file(bench.home.path().join("parts.yaml")).unwrap();
    assert_eq!(bench.refresh_source("shop").await.error, None);
    std::fs::write(bench.home.path().join("parts.yaml"), part("id").replace("string", "boolean")).unwrap();
    assert_eq!(bench.refresh_source("shop").await.changed.len(), 1);
}

#[tokio::test]
async fn a_document_that_is_none_fails_its_source_alone() {
    let server = LoopbackServer::start(|_, _| reply(404, "", "")).await;
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("good.json"), pets_document(&server).to_string()).unwrap();
    std::fs::write(home.path().join("words.json"), "only words").unwrap();
    std::fs::write(home.path().join("cut.json"), &pets_document(&server).to_string()[..200]).unwrap();
    let large = std::fs::File::create(home.path().join("large.json")).unwrap();
    large.set_len(100 * 1024 * 1024).unwrap();
    let sources = json!({
        "good": { "openapi": "good.json" },
        "words": { "openapi": "words.json" },
        "cut": { "openapi": "cut.json" },
        "large": { "openapi": "large.json" },
        "missing": { "openapi": "missing.json" },
        "away": { "openapi": format!("{}/api.json", server.url) },
    });
    let bench = OpenApiTestRegistry::open(home, sources).await;
    for source in ["words", "cut", "large", "missing", "away"] {
        let outcome = bench.refresh_source(source).await;
        assert_eq!(outcome.status, RefreshStatus::Failed, "{source}");
        assert!(!outcome.error.unwrap().message.is_empty());
    }
    assert_eq!(bench.tool_names().await, ["good__getPet", "good__makePet"]);
}
