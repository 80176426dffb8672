//! Discovery of documents from files and URLs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use toolcrib::refresh::RefreshStatus;
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use super::support::{OpenApiTestRegistry, pets_document};

#[tokio::test]
async fn an_unchanged_document_is_not_read_again_and_a_changed_one_is() {
    let version = Arc::new(AtomicUsize::new(1));
    let current_version = version.clone();
    let server = LoopbackServer::start(move |request| {
        let tag = format!("\"{}\"", current_version.load(Ordering::SeqCst));
        if request.header("if-none-match") == Some(&tag) {
            return HttpReply::new(304, "", "");
        }
        let name = format!("tool{}", current_version.load(Ordering::SeqCst));
        let document = json!({
            "openapi": "3.0.3",
            "info": { "title": "T", "version": "1" },
            "paths": { "/x": { "get": { "operationId": name, "responses": {} } } },
        });
        HttpReply::new(200, &format!("etag: {tag}"), document.to_string())
    });
    let source =
        json!({ "openapi": format!("{}/api.json", server.url), "auth": { "bearer": "s3cret-token" }, "ttl": "0s" });
    let registry = OpenApiTestRegistry::open(tempfile::tempdir().unwrap(), json!({ "shop": source })).await;
    assert_eq!(registry.refresh_source("shop").await.status, RefreshStatus::Success);
    assert_eq!(registry.refresh_source("shop").await.status, RefreshStatus::Unchanged);
    assert_eq!(server.requests()[1].header("if-none-match"), Some("\"1\""));
    assert!(server.requests().iter().all(|request| request.header("authorization") == Some("Bearer s3cret-token")));

    version.store(2, Ordering::SeqCst);
    let outcome = registry.refresh_source("shop").await;
    assert_eq!((outcome.added, outcome.removed), (vec!["shop__tool2".to_owned()], vec!["shop__tool1".to_owned()]));
    // Without `servers`, requests go to the origin of the document.
    registry.call("shop__tool2", json!({})).await.unwrap();
    assert!(server.request_lines().contains(&"GET /x".to_owned()));
}

#[tokio::test]
async fn referenced_documents_are_read_and_checked_for_changes() {
    let server = LoopbackServer::start(|_| HttpReply::new(204, "", ""));
    let mut document = pets_document(&server);
    document["paths"]["/pets/{id}"]["get"]["parameters"][0] = json!({ "$ref": "parts.yaml#/id" });
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("api.json"), document.to_string()).unwrap();
    let part = |name: &str| format!("id: {{ name: {name}, in: path, required: true, schema: {{ type: string }} }}");
    std::fs::write(home.path().join("parts.yaml"), part("id")).unwrap();
    let registry = OpenApiTestRegistry::open(home, json!({ "shop": { "openapi": "api.json", "ttl": "0s" } })).await;
    registry.call("shop__getPet", json!({ "id": "x" })).await.unwrap();
    assert_eq!(server.request_lines(), ["GET /v1/pets/x"]);
    assert_eq!(registry.refresh_source("shop").await.status, RefreshStatus::Unchanged);

    std::fs::write(registry.home.path().join("parts.yaml"), part("id").replace("string", "integer")).unwrap();
    let changed = registry.refresh_source("shop").await.changed;
    assert_eq!(changed.iter().map(|change| change.name.as_str()).collect::<Vec<_>>(), ["shop__getPet"]);
    // A missing referenced document excludes only what needs it, until it is back.
    std::fs::remove_file(registry.home.path().join("parts.yaml")).unwrap();
    assert_eq!(registry.refresh_source("shop").await.error, None);
    std::fs::write(registry.home.path().join("parts.yaml"), part("id").replace("string", "boolean")).unwrap();
    assert_eq!(registry.refresh_source("shop").await.changed.len(), 1);
}

#[tokio::test]
async fn an_invalid_document_fails_only_its_own_source() {
    let server = LoopbackServer::start(|_| HttpReply::new(404, "", ""));
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
    let registry = OpenApiTestRegistry::open(home, sources).await;
    for source in ["words", "cut", "large", "missing", "away"] {
        let outcome = registry.refresh_source(source).await;
        assert_eq!(outcome.status, RefreshStatus::Failed, "{source}");
        assert!(!outcome.error.unwrap().message.is_empty());
    }
    assert_eq!(registry.tool_names().await, ["good__getPet", "good__makePet"]);
}
