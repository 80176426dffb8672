//! No workflow gets around a rule, and what it needs must be there.

use serde_json::{Value, json};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::{SourceId, ToolId};
use toolcrib::refresh::RefreshStatus;
use toolcrib::{CallOptions, Code};

use super::{
    buy_workflow, list_step, open_shop_with_workflow, order_step, order_step_with, run_buy, run_buy_with, shop_document,
};
use crate::server::{LoopbackServer, json_reply as answer};
use crate::support::OpenApiTestRegistry;

async fn start_shop_server() -> LoopbackServer {
    LoopbackServer::start(|heard, _| match heard.method.as_str() {
        "GET" => answer(200, r#"[{"sku": "lamp"}]"#),
        _ => answer(201, r#"{"id": 7}"#),
    })
    .await
}

#[tokio::test]
async fn what_a_rule_denies_no_step_does() {
    let server = start_shop_server().await;
    let flow = buy_workflow(json!([list_step(), order_step()]), json!({}));
    for (verdict, code, told) in [
        ("deny", Code::Forbidden, "a rule of its source denies `shop__placeOrder`"),
        (
            "ask",
            Code::Forbidden,
            "`shop__placeOrder` needs consent before each call; on the command line, `--yes` gives it",
        ),
        ("hide", Code::ToolExecutionFailed, "no tool named `shop__placeOrder`"),
    ] {
        let bench = open_shop_with_workflow(&server, &flow, json!({ "tools": { "placeOrder": verdict } })).await;
        let error = run_buy(&bench).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains("step `order`") && error.message.contains(told), "{error}");
        assert_eq!(error.details.unwrap()["step"], "order");
    }
    assert_eq!(server.request_lines(), ["GET /products?category=light"; 3]);
}

#[tokio::test]
async fn who_consents_to_a_workflow_consents_to_its_steps() {
    let server = start_shop_server().await;
    let bench = open_shop_with_workflow(
        &server,
        &buy_workflow(json!([order_step()]), json!({})),
        json!({ "tools": { "*": "ask" } }),
    )
    .await;
    run_buy_with(&bench, CallOptions { consent: true, ..CallOptions::default() }).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /orders"]);
}

#[tokio::test]
async fn a_disabled_tool_is_not_called() {
    let server = start_shop_server().await;
    let bench = open_shop_with_workflow(&server, &buy_workflow(json!([order_step()]), json!({})), json!({})).await;
    run_buy(&bench).await.unwrap();
    let tool = ToolId { source: SourceId::parse("shop").unwrap(), name: "placeOrder".into() };
    bench.execute(Command::DisableTool(tool), Actor::config()).await.unwrap();
    let error = run_buy(&bench).await.unwrap_err();
    assert!(error.message.contains("`shop__placeOrder` is disabled"), "{error}");
    assert_eq!(server.request_lines().len(), 1);
}

#[tokio::test]
async fn what_does_not_fit_the_operation_never_leaves() {
    let server = start_shop_server().await;
    let wrong = |step: &str| order_step_with(json!({ "stepId": step, "requestBody": { "payload": { "sku": 5 } } }));
    let token = json!([{ "name": "Authorization", "in": "header", "value": "Bearer x" }]);
    for (steps, code, told) in [
        (json!([wrong("one")]), Code::ToolInvalidInput, "wrong arguments for `shop__placeOrder`: /body/sku"),
        (
            json!([order_step_with(json!({ "parameters": token }))]),
            Code::ToolInvalidInput,
            "`auth` of the source `shop`",
        ),
        // Something has happened by then, so that the same call with other arguments is not the same.
        (json!([list_step(), wrong("two")]), Code::ToolExecutionFailed, "step `two` of the workflow `buy`"),
    ] {
        let error = run_buy(&open_shop_with_workflow(&server, &buy_workflow(steps, json!({})), json!({})).await)
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(told), "{error}");
    }
    assert_eq!(server.request_lines(), ["GET /products?category=light"]);
}

#[tokio::test]
async fn a_source_that_is_not_there_is_named() {
    let server = start_shop_server().await;
    let described = |name: &str, url: &str, operation: &str| {
        let mut flow = buy_workflow(json!([order_step_with(json!({ "operationId": operation }))]), json!({}));
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
        let error = run_buy(&open_shop_with_workflow(&server, &flow, json!({})).await).await.unwrap_err();
        let expected = format!("step `order` of the workflow `buy` cannot be executed: {told}");
        assert_eq!((error.code, error.is_retryable(), error.message), (Code::ToolUnavailable, false, expected));
    }
    let flow = described("another", "api.json", "placeOrder");
    run_buy(&open_shop_with_workflow(&server, &flow, json!({})).await).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /orders"], "a source is known by its document, too");
}

#[tokio::test]
async fn among_several_sources_the_one_that_has_the_operation_is_meant() {
    let server = start_shop_server().await;
    let other: Value = json!({
        "openapi": "3.1.0", "info": { "title": "Other", "version": "1" }, "servers": [{ "url": server.url }],
        "paths": { "/products": { "get": { "operationId": "list products", "responses": {} } } },
    });
    let mut flow = buy_workflow(json!([order_step()]), json!({}));
    let described = |name: &str| json!({ "name": name, "url": "https://x.example", "type": "openapi" });
    flow["sourceDescriptions"] = json!([described("other"), described("shop"), described("gone")]);
    let mut second = flow["workflows"][0].clone();
    second["workflowId"] = json!("look");
    second["steps"] = json!([list_step()]);
    flow["workflows"].as_array_mut().unwrap().push(second);
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [("api.json", shop_document(&server)), ("other.json", other), ("flow.json", flow)] {
        std::fs::write(home.path().join(name), text.to_string()).unwrap();
    }
    let sources = json!({ "shop": { "openapi": "api.json" }, "other": { "openapi": "other.json" },
        "errands": { "workflow": "flow.json" } });
    let bench = OpenApiTestRegistry::open(home, sources).await;
    run_buy(&bench).await.unwrap();
    let error = bench.call("errands__look", json!({ "category": "light" })).await.unwrap_err();
    assert!(error.message.contains("both `other` and `shop` have an operation `list products`"), "{error}");
    assert_eq!(server.request_lines(), ["POST /orders"]);
}

#[tokio::test]
async fn a_document_is_read_again_only_when_it_is_another() {
    let server = start_shop_server().await;
    let flow = buy_workflow(json!([order_step()]), json!({}));
    let bench = open_shop_with_workflow(&server, &flow, json!({})).await;
    assert_eq!(bench.refresh_source("errands").await.status, RefreshStatus::Success);
    bench.invalidate(None).await.unwrap();
    assert_eq!(bench.refresh_source("errands").await.status, RefreshStatus::Unchanged);
    run_buy(&bench).await.unwrap();

    let mut changed = flow.clone();
    changed["workflows"][0]["steps"] = json!([list_step()]);
    let mut broken = flow["workflows"][0].clone();
    broken["workflowId"] = json!("broken");
    broken["steps"] = json!([]);
    changed["workflows"].as_array_mut().unwrap().push(broken);
    std::fs::write(bench.home.path().join("flow.json"), changed.to_string()).unwrap();
    run_buy(&bench).await.unwrap();
    assert_eq!(
        server.request_lines(),
        ["POST /orders", "GET /products?category=light"],
        "a call goes by what the file says now"
    );
    bench.invalidate(None).await.unwrap();
    bench.refresh_source("errands").await;
    let set_aside = bench.catalog().excluded_tools(&SourceId::parse("errands").unwrap());
    assert_eq!(set_aside[0].reason, "it has no steps (at `/workflows/1/steps`)");

    std::fs::remove_file(bench.home.path().join("flow.json")).unwrap();
    let error = run_buy(&bench).await.unwrap_err();
    assert_eq!(error.code, Code::ToolUnavailable);
    assert!(error.message.contains("flow.json` cannot be read"), "{error}");
}
