//! Tests the OpenAPI document: against its golden file, against real responses, and as a source of Toolcrib itself.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Principal, Registry, RegistryOptions};
use toolcrib_testkit::programs;

use super::support::{RestTestServer, start_discovered};

const GOLDEN_PATH: &str = "tests/rest/openapi.json";

/// The golden file makes every change of the interface visible in a review.
#[tokio::test]
async fn the_openapi_document_matches_the_golden_file() {
    let server = start_discovered(&[]).await;
    let document = server.get("/api/openapi.json").await.expect_json(200);
    let written = format!("{}\n", serde_json::to_string_pretty(&document).unwrap());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN_PATH);
    if std::env::var_os("TOOLCRIB_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, &written).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    let first_difference = written.lines().zip(expected.lines()).position(|(one, other)| one != other);
    assert!(
        written == expected,
        "it differs from line {first_difference:?}; run with TOOLCRIB_WRITE_GOLDEN=1 to rewrite {GOLDEN_PATH}"
    );
}

/// Spectral and Redocly, with their recommended rules, find neither errors nor warnings.
#[tokio::test]
async fn linters_report_no_warning() {
    let Some((spectral, redocly)) = programs::spectral().zip(programs::redocly()) else {
        return programs::skip("linters_report_no_warning", "spectral and redocly are not installed");
    };
    let server = start_discovered(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("openapi.json", &server.get("/api/openapi.json").await.expect_json(200).to_string());
    write("spectral.json", r#"{"extends":["spectral:oas"]}"#);
    let lint = |(program, leading): programs::Program, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(leading).args(arguments).current_dir(directory.path()).env("HOME", directory.path());
        // Redocly must send nothing: neither usage data nor a question for updates.
        command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true").env("CI", "true");
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    };
    let problems =
        lint(spectral, &["lint", "openapi.json", "--ruleset", "spectral.json", "--format", "json", "--quiet"]);
    assert_eq!(problems, json!([]), "spectral");
    let report = lint(redocly, &["lint", "openapi.json", "--extends", "recommended", "--format", "json"]);
    assert_eq!((&report["totals"]["errors"], &report["totals"]["warnings"]), (&json!(0), &json!(0)), "{report}");
}

#[tokio::test]
async fn the_document_lists_every_code_and_describes_every_operation() {
    let server = start_discovered(&[]).await;
    let document = server.get("/api/openapi.json").await.expect_json(200);
    let codes = &document["components"]["schemas"]["Code"]["enum"];
    assert_eq!(*codes, json!(toolcrib::Code::ALL));
    let paths = document["paths"].as_object().unwrap().values();
    for operation in paths.flat_map(|path| path.as_object().unwrap().values()) {
        let (summary, description) =
            (operation["summary"].as_str().unwrap(), operation["description"].as_str().unwrap());
        assert!(!summary.is_empty() && description.len() > summary.len(), "{operation}");
    }
}

#[tokio::test]
async fn toolcrib_can_call_its_own_api() {
    let shop = ScriptedSource::new(["order"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    let document: Value = server.get("/api/openapi.json").await.expect_json(200);
    let paths = document["paths"].as_object().unwrap().values();
    let operations: usize = paths.map(|path| path.as_object().unwrap().len()).sum();

    let registry = Registry::open(config_with_sources([]), RegistryOptions::default()).await.unwrap();
    let keys = json!({
        "openapi": format!("http://{}/api/openapi.json", server.address), "auth": { "bearer": server.admin_token },
    });
    let source = toolcrib::config::parse_source("crib", &keys, Path::new("/")).unwrap();
    let id = source.id.clone();
    let outcome =
        registry.sources().declare(source, toolcrib::core::inventory::Actor::new("test"), None).await.unwrap();
    assert_eq!((outcome.added.len(), outcome.error), (operations, None));
    assert_eq!(registry.sources().get(&id).unwrap().skipped, []);

    let caller = Principal::local("test");
    let call = async |tool: &str, input: Value| {
        let output = registry.call(tool, input).caller(caller.clone()).await.unwrap();
        assert!(!output.is_error(), "{}", output.content());
        serde_json::from_str::<Value>(output.structured().unwrap()).unwrap()
    };
    assert_eq!(call("crib__list_sources", json!({})).await["sources"][0]["id"], "shop");
    let called =
        call("crib__call_tool", json!({ "name": "shop__order", "body": { "arguments": { "what": 7 } } })).await;
    assert_eq!(called["content"][0]["text"], "order {\"what\":7}");
    assert_eq!(call("crib__disable_source", json!({ "id": "shop" })).await["changed"], true);
}

#[tokio::test]
async fn responses_match_the_openapi_document() {
    let shop = ScriptedSource::new(["order", "return"]);
    let server = start_discovered(&[("shop", &shop)]).await;
    shop.set_tools(["order"]);
    let document = server.get("/api/openapi.json").await.expect_json(200);
    let call = json!({ "arguments": {} });
    let new = json!({ "name": "away", "url": "http://127.0.0.1:1", "connect_timeout": "1s" });
    let rule = json!({ "when": [{ "claim": "team", "in": ["a", "b"] }], "groups": ["desk"] });
    for (method, path, route, body) in [
        ("GET", "/api/sources", "/api/sources", Value::Null),
        ("GET", "/api/sources/shop", "/api/sources/{id}", Value::Null),
        ("GET", "/api/tools", "/api/tools", Value::Null),
        ("GET", "/api/tools?format=gemini", "/api/tools", Value::Null),
        ("GET", "/api/tools?limit=0", "/api/tools", Value::Null),
        ("GET", "/api/tools/shop__order", "/api/tools/{name}", Value::Null),
        ("GET", "/api/tools/shop__nothing", "/api/tools/{name}", Value::Null),
        ("GET", "/api/search?q=order", "/api/search", Value::Null),
        ("GET", "/api/search?q=zzzz", "/api/search", Value::Null),
        ("GET", "/api/context", "/api/context", Value::Null),
        ("GET", "/api/config", "/api/config", Value::Null),
        ("POST", "/api/tools/shop__order/call", "/api/tools/{name}/call", call),
        ("GET", "/api/stats", "/api/stats", Value::Null),
        ("POST", "/api/sources/shop/refresh?force=true", "/api/sources/{id}/refresh", Value::Null),
        ("GET", "/api/tools?state=deprecated", "/api/tools", Value::Null),
        ("POST", "/api/sources", "/api/sources", new),
        ("POST", "/api/sources/away/refresh?force=true", "/api/sources/{id}/refresh", Value::Null),
        ("PATCH", "/api/sources/away", "/api/sources/{id}", json!({ "title": "Away" })),
        ("POST", "/api/refresh", "/api/refresh", Value::Null),
        ("POST", "/api/sources/away/disable", "/api/sources/{id}/disable", Value::Null),
        ("POST", "/api/sources/away/enable", "/api/sources/{id}/enable", Value::Null),
        ("POST", "/api/sources/away/invalidate", "/api/sources/{id}/invalidate", Value::Null),
        ("POST", "/api/tools/shop__order/disable", "/api/tools/{name}/disable", Value::Null),
        ("POST", "/api/tools/shop__order/enable", "/api/tools/{name}/enable", Value::Null),
        ("DELETE", "/api/sources/away", "/api/sources/{id}", Value::Null),
        ("PUT", "/api/groups/desk", "/api/groups/{name}", json!({ "select": [{ "source": "shop" }], "tools": ["x"] })),
        ("PUT", "/api/groups/desk", "/api/groups/{name}", json!({ "tool": [] })),
        ("GET", "/api/groups", "/api/groups", Value::Null),
        ("GET", "/api/groups/desk", "/api/groups/{name}", Value::Null),
        ("PUT", "/api/access/all?dry_run=true", "/api/access/{name}", json!({ "groups": ["desk"] })),
        ("PUT", "/api/access/all", "/api/access/{name}", rule),
        ("GET", "/api/access", "/api/access", Value::Null),
        ("PUT", "/api/policies/ask", "/api/policies/{name}", json!({ "match": { "group": "desk" }, "verdict": "ask" })),
        ("PUT", "/api/policies/ask", "/api/policies/{name}", json!({ "verdict": "hide" })),
        ("GET", "/api/policies", "/api/policies", Value::Null),
        ("POST", "/api/explain", "/api/explain", json!({ "tool": "shop__order", "claims": {} })),
        ("POST", "/api/explain", "/api/explain", json!({ "tool": "nothing" })),
        ("GET", "/api/tools/shop__order/callers", "/api/tools/{name}/callers", Value::Null),
        ("GET", "/api/tools?group=desk", "/api/tools", Value::Null),
        ("GET", "/api/tools?group=none", "/api/tools", Value::Null),
        ("GET", "/api/whoami", "/api/whoami", Value::Null),
        ("DELETE", "/api/policies/ask?dry_run=true", "/api/policies/{name}", Value::Null),
        ("DELETE", "/api/policies/ask", "/api/policies/{name}", Value::Null),
        ("DELETE", "/api/policies/ask", "/api/policies/{name}", Value::Null),
        ("DELETE", "/api/groups/desk", "/api/groups/{name}", Value::Null),
        ("GET", "/api/sources", "/api/sources", Value::Null),
    ] {
        check_response(&server, &document, (method, path, route), &body).await;
    }
}

async fn check_response(
    server: &RestTestServer,
    document: &Value,
    (method, path, route): (&str, &str, &str),
    body: &Value,
) {
    let response = server.send_as_admin(method, path, body).await;
    let operation = &document["paths"][route][method.to_lowercase()];
    let described = &operation["responses"][response.status.to_string()];
    assert!(described.is_object(), "{method} {path}: undocumented status {}: {}", response.status, response.body);
    let described = match described["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => described,
    };
    let Some(content) = described.get("content") else {
        assert_eq!(response.body, "", "{method} {path}");
        return;
    };
    let mut schema = content["application/json"]["schema"].clone();
    schema["components"] = document["components"].clone();
    let faults: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&response.json())
        .map(|error| error.to_string())
        .collect();
    assert_eq!(faults, [""; 0], "{method} {path}: {}", response.body);
}
