//! Tests that what is told about a source, its settings, errors and calls does not name tools that its reader may not know of.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib::testkit::ScriptedSource;
use toolcrib::{Refresh, RegistryOptions};

use super::support::{RestTestServer, start_with};
use crate::test_server::SourceScripts;

async fn start(yaml: &str, sources: SourceScripts<'_>) -> RestTestServer {
    let config = Config::read(yaml, "toolcrib.yaml", Path::new("/")).unwrap();
    let server = start_with(config, RegistryOptions::default(), sources).await;
    server.registry.refresh(Refresh::default()).await;
    server
}

impl RestTestServer {
    /// Sends a request without a token and returns the status and the text of its response.
    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let response = self.send(method, path, "", b"").await;
        (response.status, response.body)
    }

    async fn call_as_admin(&self, tool: &str) -> Value {
        let response = self.send_as_admin("POST", &format!("/api/tools/{tool}/call"), &json!({})).await;
        serde_json::from_str(&response.body).unwrap()
    }
}

/// Regression: the error of a failed call has the name of its tool.
#[tokio::test]
async fn the_error_of_a_call_is_for_readers_that_see_its_tool() {
    const RULES: &str = "sources: { shop: { command: x } }
groups: { desk: { tools: [shop__order] } }
access: [{ name: all, groups: [desk] }]
";
    let shop = ScriptedSource::new(["order", "refund"]);
    let server = start(RULES, &[("shop", &shop)]).await;
    let last_error = async || server.get("/api/sources/shop").await.expect_json(200)["last_error"].clone();
    shop.fail("`refund` of `shop` failed: the till is open");
    server.call_as_admin("shop__refund").await;
    let withheld = last_error().await;
    assert_eq!((&withheld["code"], &withheld["retryable"]), (&json!("TOOL_UNAVAILABLE"), &json!(true)), "{withheld}");
    for path in ["/api/sources", "/api/sources/shop", "/", "/sources", "/sources/shop"] {
        let (status, body) = server.ask("GET", path).await;
        assert!(status == 200 && !body.contains("refund") && !body.contains("till"), "{path}: {body}");
    }
    let shown = server.send_as_admin("GET", "/api/sources/shop", &Value::Null).await.body;
    assert!(shown.contains("the till is open"), "{shown}");

    shop.fail("`order` of `shop` failed: the till is open");
    server.call_as_admin("shop__order").await;
    assert_eq!(last_error().await["message"], "`order` of `shop` failed: the till is open");
    // A failed discovery has no tool, but may name one.
    shop.fail("`shop__refund` is listed twice. The server has exited.");
    server.registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    assert_eq!(last_error().await["message"], "The server has exited.");
}

/// Regression: only rules with `deny` and `hide` were left out.
#[tokio::test]
async fn settings_that_name_tools_are_for_readers_that_see_all_of_them() {
    const SOURCES: &str = "
sources:
  shop: { command: x, tools: { refund: ask }, essential: [refund] }
  api: { openapi: ./refund-free.yaml, include: ['*refund*'], exclude: [refund_all], include_tags: [refunds] }
expose: { essential: [shop__refund] }
";
    let groups = format!(
        "{SOURCES}groups: {{ desk: {{ select: {{ without_tags: [x], name: order }} }} }}
policies: [{{ name: p, match: {{ name: refund }}, verdict: hide }}]\n"
    );
    let shop = ScriptedSource::new(["order", "refund"]);
    for (rules, path, is_withheld) in [
        (SOURCES, "/sources/shop", false),
        (SOURCES, "/api/config", false),
        (&groups, "/sources/shop", true),
        (&groups, "/sources/api", true),
        (&groups, "/api/config", true),
    ] {
        let server = start(rules, &[("shop", &shop)]).await;
        let (status, body) = server.ask("GET", path).await;
        let body = body.replace("refund-free", "");
        assert!(status == 200 && body.contains("refund") != is_withheld, "{path}: {body}");
    }
}
