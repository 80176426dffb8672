//! No workflow gets around a rule, and what it needs must be there.

use serde_json::{Value, json};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::{SourceId, ToolId};
use toolcrib::refresh::Refreshed;
use toolcrib::{CallOptions, Code};

use super::{bench, buy, list, order, order_and, run, run_with, shop};
use crate::server::{Server, json as answer};
use crate::support::Bench;

async fn open() -> Server {
    Server::start(|heard, _| match heard.method.as_str() {
        "GET" => answer(200, r#"[{"sku": "lamp"}]"#),
        _ => answer(201, r#"{"id": 7}"#),
    })
    .await
}

#[tokio::test]
async fn what_a_rule_denies_no_step_does() {
    let server = open().await;
    let flow = buy(json!([list(), order()]), json!({}));
    for (verdict, code, told) in [
        ("deny", Code::Forbidden, "a rule of its source denies `shop__placeOrder`"),
        (
            "ask",
            Code::Forbidden,
            "`shop__placeOrder` needs consent before each call; on the command line, `--yes` gives it",
        ),
        ("hide", Code::ToolExecutionFailed, "no tool named `shop__placeOrder`"),
    ] {
        let bench = bench(&server, &flow, json!({ "tools": { "placeOrder": verdict } })).await;
        let error = run(&bench).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains("step `order`") && error.message.contains(told), "{error}");
        assert_eq!(error.details.unwrap()["step"], "order");
    }
    assert_eq!(server.lines(), ["GET /products?category=light"; 3]);
}

#[tokio::test]
async fn who_consents_to_a_workflow_consents_to_its_steps() {
    let server = open().await;
    let bench = bench(&server, &buy(json!([order()]), json!({})), json!({ "tools": { "*": "ask" } })).await;
    run_with(&bench, CallOptions { consent: true, ..CallOptions::default() }).await.unwrap();
    assert_eq!(server.lines(), ["POST /orders"]);
}

#[tokio::test]
async fn a_disabled_tool_is_not_called() {
    let server = open().await;
    let bench = bench(&server, &buy(json!([order()]), json!({})), json!({})).await;
    run(&bench).await.unwrap();
    let tool = ToolId { source: SourceId::parse("shop").unwrap(), name: "placeOrder".into() };
    bench.execute(Command::DisableTool(tool), Actor::config()).await.unwrap();
    let error = run(&bench).await.unwrap_err();
    assert!(error.message.contains("`shop__placeOrder` is disabled"), "{error}");
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn what_does_not_fit_the_operation_never_leaves() {
    let server = open().await;
    let wrong = |step: &str| order_and(json!({ "stepId": step, "requestBody": { "payload": { "sku": 5 } } }));
    let token = json!([{ "name": "Authorization", "in": "header", "value": "Bearer x" }]);
    for (steps, code, told) in [
        (json!([wrong("one")]), Code::ToolInvalidInput, "wrong arguments for `shop__placeOrder`: /body/sku"),
        (json!([order_and(json!({ "parameters": token }))]), Code::ToolInvalidInput, "`auth` of the source `shop`"),
        // Something has happened by then, so that the same call with other arguments is not the same.
        (json!([list(), wrong("two")]), Code::ToolExecutionFailed, "step `two` of the workflow `buy`"),
    ] {
        let error = run(&bench(&server, &buy(steps, json!({})), json!({})).await).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(told), "{error}");
    }
    assert_eq!(server.lines(), ["GET /products?category=light"]);
}

#[tokio::test]
async fn a_source_that_is_not_there_is_named() {
    let server = open().await;
    let described = |name: &str, url: &str, operation: &str| {
        let mut flow = buy(json!([order_and(json!({ "operationId": operation }))]), json!({}));
        flow["sourceDescriptions"] = json!([{ "name": name, "url": url, "type": "openapi" }]);
        flow
    };
    for (flow, told) in [
        (
            described("Super Market", "https://market.example/api.json", "placeOrder"),
            "`Super Market` is none of the OpenAPI sources here (there are `shop`); \
             `toolcrib add super_market --openapi https://market.example/api.json` declares it",
        ),
        (
            described("shop", "x", "steal"),
            "the source `shop` has no operation `steal`; `toolcrib tools --source shop` shows what it has",
        ),
    ] {
        let error = run(&bench(&server, &flow, json!({})).await).await.unwrap_err();
        let expected = format!("step `order` of the workflow `buy` cannot be taken: {told}");
        assert_eq!((error.code, error.retryable(), error.message), (Code::ToolUnavailable, false, expected));
    }
    let flow = described("another", "api.json", "placeOrder");
    run(&bench(&server, &flow, json!({})).await).await.unwrap();
    assert_eq!(server.lines(), ["POST /orders"], "a source is known by its document, too");
}

#[tokio::test]
async fn among_several_sources_the_one_that_has_the_operation_is_meant() {
    let server = open().await;
    let other: Value = json!({
        "openapi": "3.1.0", "info": { "title": "Other", "version": "1" }, "servers": [{ "url": server.url }],
        "paths": { "/products": { "get": { "operationId": "list products", "responses": {} } } },
    });
    let mut flow = buy(json!([order()]), json!({}));
    let described = |name: &str| json!({ "name": name, "url": "https://x.example", "type": "openapi" });
    flow["sourceDescriptions"] = json!([described("other"), described("shop"), described("gone")]);
    let mut second = flow["workflows"][0].clone();
    second["workflowId"] = json!("look");
    second["steps"] = json!([list()]);
    flow["workflows"].as_array_mut().unwrap().push(second);
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [("api.json", shop(&server)), ("other.json", other), ("flow.json", flow)] {
        std::fs::write(home.path().join(name), text.to_string()).unwrap();
    }
    let sources = json!({ "shop": { "openapi": "api.json" }, "other": { "openapi": "other.json" },
        "errands": { "workflow": "flow.json" } });
    let bench = Bench::open(home, sources).await;
    run(&bench).await.unwrap();
    let error = bench.call("errands__look", json!({ "category": "light" })).await.unwrap_err();
    assert!(error.message.contains("both `other` and `shop` have an operation `list products`"), "{error}");
    assert_eq!(server.lines(), ["POST /orders"]);
}

#[tokio::test]
async fn a_document_is_read_again_only_when_it_is_another() {
    let server = open().await;
    let flow = buy(json!([order()]), json!({}));
    let bench = bench(&server, &flow, json!({})).await;
    assert_eq!(bench.refreshed("errands").await.status, Refreshed::Success);
    bench.invalidate(None).await.unwrap();
    assert_eq!(bench.refreshed("errands").await.status, Refreshed::Unchanged);
    run(&bench).await.unwrap();

    let mut changed = flow.clone();
    changed["workflows"][0]["steps"] = json!([list()]);
    let mut broken = flow["workflows"][0].clone();
    broken["workflowId"] = json!("broken");
    broken["steps"] = json!([]);
    changed["workflows"].as_array_mut().unwrap().push(broken);
    std::fs::write(bench.home.path().join("flow.json"), changed.to_string()).unwrap();
    run(&bench).await.unwrap();
    assert_eq!(
        server.lines(),
        ["POST /orders", "GET /products?category=light"],
        "a call goes by what the file says now"
    );
    bench.invalidate(None).await.unwrap();
    bench.refreshed("errands").await;
    let set_aside = bench.catalog().set_aside(&SourceId::parse("errands").unwrap());
    assert_eq!(set_aside[0].reason, "it has no steps (at `/workflows/1/steps`)");

    std::fs::remove_file(bench.home.path().join("flow.json")).unwrap();
    let error = run(&bench).await.unwrap_err();
    assert_eq!(error.code, Code::ToolUnavailable);
    assert!(error.message.contains("flow.json` cannot be read"), "{error}");
}
