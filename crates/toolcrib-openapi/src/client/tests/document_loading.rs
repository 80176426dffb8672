use std::collections::BTreeMap;
use std::path::Path;

use toolcrib_connector::document::DocumentVersions;
use toolcrib_connector::{Discovered, Discovery};
use toolcrib_core::Result;
use toolcrib_core::source::Auth;

use super::documents::DocumentLoader;
use super::resolved_source::ResolvedSource;
use super::*;

fn source_at(document: &str) -> OpenApiSource {
    OpenApiSource { document: document.into(), ..OpenApiSource::default() }
}

/// Loads the main document and those at the given relative URLs.
async fn load_documents(openapi: OpenApiSource, urls: &[&str]) -> Result<Vec<String>> {
    let connector = connector(openapi);
    let resolved = ResolvedSource::resolve(&connector.source, &connector.references.read().await)?;
    let documents = DocumentLoader::new(&connector, &resolved, None)?;
    let mut texts = vec![documents.load(documents.main_url()).await?];
    for url in urls {
        texts.push(documents.load(&documents.main_url().join(url).unwrap()).await?);
    }
    Ok(texts)
}

async fn discover(connector: &OpenApiConnector, known_versions: Option<DocumentVersions>) -> Result<Discovered> {
    let discovery = Discovery {
        timeout: Duration::from_secs(10),
        era: None,
        keep_connection: false,
        known_versions,
        references: Arc::new(connector.references.read().await),
        trace: None,
    };
    connector.discover(discovery).await
}

async fn is_unchanged(openapi: OpenApiSource, known: &DocumentVersions) -> bool {
    discover(&connector(openapi), Some(known.clone())).await.is_ok_and(|offer| offer.unchanged)
}

async fn document_versions(openapi: OpenApiSource, urls: &[&str]) -> DocumentVersions {
    let connector = connector(openapi);
    let resolved = ResolvedSource::resolve(&connector.source, &connector.references.read().await).unwrap();
    let documents = DocumentLoader::new(&connector, &resolved, None).unwrap();
    documents.load(documents.main_url()).await.unwrap();
    for url in urls {
        documents.load(&documents.main_url().join(url).unwrap()).await.unwrap();
    }
    documents.versions().unwrap()
}

#[tokio::test]
async fn an_unchanged_document_is_recognised_by_etag_or_hash() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/tagged" if request.header("if-none-match") == Some("\"v1\"") => HttpReply::new(304, "", ""),
        "/tagged" => HttpReply::new(200, "etag: \"v1\"", "{}"),
        "/changing" => HttpReply::new(200, "", request.number.to_string()),
        _ => HttpReply::new(200, "", "{}"),
    });
    for (path, refs, expected) in [
        ("tagged", &[][..], true),
        ("plain", &[], true),
        ("plain", &["tagged", "other"], true),
        ("changing", &[], false),
        ("plain", &["changing"], false),
    ] {
        let source = source_at(&format!("{}/{path}", server.url));
        let known = document_versions(source.clone(), refs).await;
        assert_eq!(known.documents.len(), 1 + refs.len());
        assert_eq!(is_unchanged(source.clone(), &known).await, expected, "{path} {refs:?}");
        let other = DocumentVersions { reader: "another".into(), ..known.clone() };
        assert!(!is_unchanged(source.clone(), &other).await);
    }

    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("api.yaml");
    std::fs::write(&file, "\u{feff}a: 1").unwrap();
    let source = source_at(file.to_str().unwrap());
    let known = document_versions(source.clone(), &[]).await;
    assert!(is_unchanged(source.clone(), &known).await);
    std::fs::write(&file, "a: 2").unwrap();
    assert!(!is_unchanged(source, &known).await);
}

#[tokio::test]
async fn a_compressed_document_is_decoded_within_the_limit() {
    use std::io::Write;
    let gzip = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    let document = gzip(b"\xef\xbb\xbf{\"openapi\": \"3.1.0\"}");
    let bomb = gzip(&vec![b' '; 65 * 1024 * 1024]);
    let server = LoopbackServer::start(move |request| {
        let body = if request.target == "/bomb" { bomb.clone() } else { document.clone() };
        HttpReply::new(200, "content-encoding: gzip", body)
    });
    let loaded = load_documents(source_at(&format!("{}/api.json", server.url)), &[]).await.unwrap();
    assert_eq!(loaded, [r#"{"openapi": "3.1.0"}"#]);
    assert_eq!(server.requests()[0].header("accept-encoding"), Some("gzip, deflate"));
    let error = load_documents(source_at(&format!("{}/bomb", server.url)), &[]).await.unwrap_err();
    assert!(error.message.contains("is larger than 64 MiB"), "{error}");
}

#[tokio::test]
async fn a_refused_document_is_an_error_that_says_whether_a_retry_may_help() {
    for (status, header, code, retryable) in [
        (401, "", Code::AuthRequired, false),
        (403, "www-authenticate: Bearer error=\"insufficient_scope\"", Code::AuthRequired, false),
        (403, "", Code::ToolExecutionFailed, false),
        (404, "", Code::ToolUnavailable, false),
        (405, "", Code::ToolUnavailable, false),
        (410, "", Code::ToolUnavailable, false),
        (418, "", Code::ToolUnavailable, false),
        (408, "", Code::ToolUnavailable, true),
        (425, "", Code::ToolUnavailable, true),
        (429, "", Code::RateLimited, true),
        (503, "retry-after: 7", Code::RateLimited, true),
        (503, "", Code::ToolUnavailable, true),
        (500, "", Code::ToolUnavailable, true),
        (204, "", Code::ToolUnavailable, false),
    ] {
        let server = LoopbackServer::start(move |_| HttpReply::new(status, header, ""));
        let error = discover(&connector(source_at(&format!("{}/api.json", server.url))), None).await.unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (code, retryable), "{status} {header}: {error}");
        assert!(error.message.contains("instead of a document"), "{error}");
        let details = error.details.unwrap_or_default();
        if code == Code::RateLimited {
            let wait = if header.is_empty() { Value::Null } else { json!(7000) };
            assert_eq!((&details["by"], &details["retry_after_ms"]), (&json!("source"), &wait), "{status}");
        }
        if status == 403 {
            assert_eq!(details["upstream_status"], 403);
        }
    }
}

#[tokio::test]
async fn only_the_origin_of_the_document_gets_credentials() {
    let other = LoopbackServer::start(|_| HttpReply::new(200, "", "other"));
    let server = LoopbackServer::start(|_| HttpReply::new(200, "", "main"));
    let source = OpenApiSource {
        auth: Some(Auth::Bearer("token".into())),
        headers: BTreeMap::from([("X-Team".to_owned(), "a".to_owned())]),
        allow_refs: vec![format!("{}/specs/", other.url)],
        ..source_at(&format!("{}/api.json?key=s3cret", server.url))
    };
    let allowed = format!("{}/specs/x.json", other.url);
    let texts = load_documents(source.clone(), &["pet.json", &allowed]).await.unwrap();
    assert_eq!(texts, ["main", "main", "other"]);
    assert_eq!(server.request_lines(), ["GET /api.json?key=s3cret", "GET /pet.json"]);
    for request in server.requests() {
        assert_eq!((request.header("authorization"), request.header("x-team")), (Some("Bearer token"), Some("a")));
    }
    assert_eq!((other.requests()[0].header("authorization"), other.requests()[0].header("x-team")), (None, None));

    // The credentials are for the API, which has another origin here.
    load_documents(OpenApiSource { base_url: Some(other.url.clone()), ..source.clone() }, &[]).await.unwrap();
    let last = server.requests().pop().unwrap();
    assert_eq!((last.header("authorization"), last.header("x-team")), (None, None));

    // An allowed prefix ends at a path segment.
    let prefix_only = OpenApiSource { allow_refs: vec![format!("{}/specs", other.url)], ..source.clone() };
    assert!(load_documents(prefix_only.clone(), &[&allowed]).await.is_ok());
    assert!(load_documents(prefix_only, &[&format!("{}/specs-evil/x.json", other.url)]).await.is_err());

    let known = document_versions(source.clone(), &[]).await;
    assert!(!serde_json::to_string(&known).unwrap().contains("s3cret"));
    let error = load_documents(source, &[&format!("{}/private.json", other.url)]).await.unwrap_err();
    let url = format!("{}/private.json", other.url);
    let expected_message =
        format!("`{url}` is outside the document's own directory or origin; add it to `allow_refs` of the source");
    assert_eq!((error.code, error.message), (Code::Forbidden, expected_message));
}

#[cfg(unix)]
#[tokio::test]
async fn files_reference_only_files_in_their_directory() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    for (name, text) in [("specs/api.yaml", "main"), ("specs/a/pet.yaml", "pet"), ("other/x.yaml", "x")] {
        std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        std::fs::write(path(name), text).unwrap();
    }
    std::os::unix::fs::symlink(path("other/x.yaml"), path("specs/link.yaml")).unwrap();
    let source = source_at(path("specs/api.yaml").to_str().unwrap());
    assert_eq!(load_documents(source.clone(), &["a/pet.yaml"]).await.unwrap(), ["main", "pet"]);
    for outside in ["../other/x.yaml", "link.yaml", "/etc/passwd", "http://127.0.0.1:1/x.yaml"] {
        let error = load_documents(source.clone(), &[outside]).await.unwrap_err();
        assert!(error.message.contains("is outside the document's own directory or origin"), "{outside}: {error}");
    }
    let allowed = OpenApiSource { allow_refs: vec![path("other").to_str().unwrap().into()], ..source };
    assert_eq!(load_documents(allowed, &["../other/x.yaml", "link.yaml"]).await.unwrap(), ["main", "x", "x"]);
}

#[tokio::test]
async fn invalid_documents_are_rejected_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    let large = home.path().join("large.json");
    std::fs::File::create(&large).unwrap().set_len(65 * 1024 * 1024).unwrap();
    let bytes = home.path().join("bytes.json");
    std::fs::write(&bytes, b"gr\x00n").unwrap();
    let check = async |document: &Path, expected: &str| {
        let error = load_documents(source_at(document.to_str().unwrap()), &[]).await.unwrap_err();
        assert_eq!(error.code, Code::ConfigInvalid);
        assert!(error.message.contains(expected), "{error}");
    };
    check(&large, "is larger than 64 MiB").await;
    check(&bytes, "is not UTF-8 text").await;
    std::fs::write(&bytes, b"\x1f\x8b\x08").unwrap();
    check(&bytes, "is compressed with gzip").await;
    check(home.path(), "is not a regular file").await;
    check(Path::new("/dev/zero"), "is not a regular file").await;
    check(&home.path().join("missing"), "cannot be read: ").await;

    let server = LoopbackServer::start(|_| HttpReply::new(404, "", ""));
    let error = load_documents(source_at(&format!("{}/api.json?key=s3cret", server.url)), &[]).await.unwrap_err();
    let expected_message = format!("`{}/api.json` answered 404 Not Found instead of a document", server.url);
    assert_eq!((error.code, error.message), (Code::ToolUnavailable, expected_message));

    let names: Vec<String> = (0..64).map(|number| format!("{number}.json")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let server = LoopbackServer::start(|_| HttpReply::new(200, "", "{}"));
    let source = source_at(&format!("{}/api.json", server.url));
    assert_eq!(load_documents(source.clone(), &names[..63]).await.unwrap().len(), 64);
    let error = load_documents(source, &names).await.unwrap_err();
    assert_eq!(error.message, "the document references more than 63 others");
}

#[tokio::test]
async fn a_resolved_reference_in_a_url_is_only_sent_to_its_server() {
    let document = r##"{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{
        "/p":{"get":{"operationId":"p","parameters":[{"$ref":"../common.json#/q"}]}},
        "/x":{"get":{"operationId":"x","parameters":[{"$ref":"gone.json#/q"}]}}}}"##;
    let server = LoopbackServer::start(move |request| match request.target.as_str() {
        "/v1/t0ken-123/api.json" => HttpReply::new(200, "", document),
        "/v1/common.json" => HttpReply::new(200, "", r#"{"q":{"name":"q","in":"query","schema":{"type":"string"}}}"#),
        other => HttpReply::new(404, "content-type: text/plain", other),
    });
    let reference = "${env:TOOLCRIB_NO_SUCH_VARIABLE:-t0ken-123}";
    let connector = connector(source_at(&format!("{}/v1/{reference}/api.json", server.url)));
    let offer = discover(&connector, None).await.unwrap();
    let expected = ["GET /v1/t0ken-123/api.json", "GET /v1/t0ken-123/gone.json", "GET /v1/common.json"];
    assert_eq!(server.request_lines(), expected);
    let stored = format!("{:?} {:?} {:?}", offer.tools, offer.skipped, offer.versions);
    assert!(!stored.contains("t0ken-123") && stored.contains("v1/***/gone.json"), "{stored}");
    assert!(stored.contains(r#""server":"/""#) || stored.contains(r#"\"server\":\"/\""#), "{stored}");

    let known =
        document_versions(source_at(&format!("{}/v1/{reference}/api.json", server.url)), &["../common.json"]).await;
    assert!(is_unchanged(source_at(&format!("{}/v1/{reference}/api.json", server.url)), &known).await);
    let error = load_documents(source_at(&format!("{}/{reference}/none.json", server.url)), &[]).await.unwrap_err();
    assert_eq!(error.message, format!("`{}/***/none.json` answered 404 Not Found instead of a document", server.url));
}
