//! Policy applies to the steps of a workflow, and the sources it refers to must exist.

use serde_json::{Value, json};
use toolcrib::core::inventory::{Actor, Command};
use toolcrib::core::{SourceId, ToolId};
use toolcrib::refresh::RefreshStatus;
use toolcrib::{CallContext, Code, Principal};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use super::{
    buy_workflow, list_step, open_shop_with_workflow, order_step, order_step_with, run_buy, run_buy_with, shop_document,
};
use crate::openapi::support::OpenApiTestRegistry;

fn start_shop_server() -> LoopbackServer {
    LoopbackServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::json(200, r#"[{"sku": "lamp"}]"#),
        _ => HttpReply::json(201, r#"{"id": 7}"#),
    })
}

#[tokio::test]
async fn a_step_cannot_call_a_denied_tool() {
    let server = start_shop_server();
    let workflow = buy_workflow(json!([list_step(), order_step()]), json!({}));
    for (verdict, code, expected) in [
        ("deny", Code::Forbidden, "`shop__placeOrder` is denied (rule `placeOrder: deny`)"),
        (
            "ask",
            Code::Forbidden,
            "`shop__placeOrder` needs consent before each call (rule `placeOrder: ask`); `toolcrib call --yes` gives it",
        ),
        ("hide", Code::Forbidden, "it needs a tool that is not available to this caller"),
    ] {
        let registry = open_shop_with_workflow(&server, &workflow, json!({ "tools": { "placeOrder": verdict } })).await;
        let error = run_buy(&registry).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains("step `order`") && error.message.contains(expected), "{error}");
        assert_eq!(error.details.unwrap()["step"], "order");
        assert!(verdict != "hide" || !error.message.contains("placeOrder"), "{}", error.message);
    }
    assert_eq!(server.request_lines(), ["GET /products?category=light"; 3]);
}

#[tokio::test]
async fn consent_to_a_workflow_covers_its_steps() {
    let server = start_shop_server();
    let registry = open_shop_with_workflow(
        &server,
        &buy_workflow(json!([order_step()]), json!({})),
        json!({ "tools": { "*": "ask" } }),
    )
    .await;
    run_buy_with(&registry, CallContext { consent: true, ..CallContext::default() }).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /orders"]);
}

#[tokio::test]
async fn a_disabled_tool_is_not_called() {
    let server = start_shop_server();
    let registry = open_shop_with_workflow(&server, &buy_workflow(json!([order_step()]), json!({})), json!({})).await;
    run_buy(&registry).await.unwrap();
    let tool = ToolId { source: SourceId::parse("shop").unwrap(), name: "placeOrder".into() };
    registry.execute(Command::DisableTool(tool), Actor::config()).await.unwrap();
    let error = run_buy(&registry).await.unwrap_err();
    assert!(error.message.contains("`shop__placeOrder` is disabled"), "{error}");
    assert_eq!(server.request_lines().len(), 1);
}

#[tokio::test]
async fn invalid_step_arguments_send_no_request() {
    let server = start_shop_server();
    let invalid_step =
        |step: &str| order_step_with(json!({ "stepId": step, "requestBody": { "payload": { "sku": 5 } } }));
    let cookie = json!([{ "name": "session", "in": "cookie", "value": "x" }]);
    for (steps, code, expected) in [
        (json!([invalid_step("one")]), Code::ToolInvalidInput, "wrong arguments for `shop__placeOrder`: /body/sku"),
        (
            // The caller cannot correct the document.
            json!([order_step_with(json!({ "parameters": cookie }))]),
            Code::ToolExecutionFailed,
            "`shop__placeOrder` has no cookie parameter `session`",
        ),
        // An earlier step has had effects, so the caller must not simply retry with other arguments.
        (json!([list_step(), invalid_step("two")]), Code::ToolExecutionFailed, "step `two` of the workflow `buy`"),
    ] {
        let error = run_buy(&open_shop_with_workflow(&server, &buy_workflow(steps, json!({})), json!({})).await)
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(expected), "{error}");
    }
    assert_eq!(server.request_lines(), ["GET /products?category=light"]);
}

#[tokio::test]
async fn an_unknown_source_or_operation_is_named() {
    let server = start_shop_server();
    let described = |name: &str, url: &str, operation: &str| {
        let mut workflow = buy_workflow(json!([order_step_with(json!({ "operationId": operation }))]), json!({}));
        workflow["sourceDescriptions"] = json!([{ "name": name, "url": url, "type": "openapi" }]);
        workflow
    };
    for (workflow, expected) in [
        (
            described("Super Market", "https://market.example/api.json", "placeOrder"),
            "no OpenAPI source is declared as `Super Market` (there are `shop`); \
             `toolcrib add super_market --openapi https://market.example/api.json` declares it",
        ),
        (
            described("shop", "x", "steal"),
            "the source `shop` has no operation `steal`; `toolcrib tools --source shop` lists them",
        ),
    ] {
        let error = run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await.unwrap_err();
        let expected = format!("step `order` of the workflow `buy` cannot be executed: {expected}");
        assert!(!error.rest_message().contains("`toolcrib"), "{}", error.rest_message());
        assert_eq!((error.code, error.is_retryable(), error.message), (Code::ToolUnavailable, false, expected));
    }
    let workflow = described("another", "api.json", "placeOrder");
    run_buy(&open_shop_with_workflow(&server, &workflow, json!({})).await).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /orders"], "a source is also found by its document");
}

#[tokio::test]
async fn an_operation_is_found_among_several_sources() {
    let server = start_shop_server();
    let other: Value = json!({
        "openapi": "3.1.0", "info": { "title": "Other", "version": "1" }, "servers": [{ "url": server.url }],
        "paths": { "/products": { "get": { "operationId": "list products", "responses": {} } } },
    });
    let mut workflow = buy_workflow(json!([order_step()]), json!({}));
    let described = |name: &str| json!({ "name": name, "url": "https://x.example", "type": "openapi" });
    workflow["sourceDescriptions"] = json!([described("other"), described("shop"), described("gone")]);
    let mut second = workflow["workflows"][0].clone();
    second["workflowId"] = json!("look");
    second["steps"] = json!([list_step()]);
    workflow["workflows"].as_array_mut().unwrap().push(second);
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [("api.json", shop_document(&server)), ("other.json", other), ("flow.json", workflow)] {
        std::fs::write(home.path().join(name), text.to_string()).unwrap();
    }
    let sources = json!({ "shop": { "openapi": "api.json" }, "other": { "openapi": "other.json" },
        "errands": { "workflow": "flow.json" } });
    let registry = OpenApiTestRegistry::open(home, sources).await;
    run_buy(&registry).await.unwrap();
    let error = registry.call("errands__look", json!({ "category": "light" })).await.unwrap_err();
    assert!(error.message.contains("both `other` and `shop` have an operation `list products`"), "{error}");
    assert_eq!(server.request_lines(), ["POST /orders"]);
}

#[tokio::test]
async fn a_document_is_parsed_again_only_after_a_change() {
    let server = start_shop_server();
    let workflow = buy_workflow(json!([order_step()]), json!({}));
    let registry = open_shop_with_workflow(&server, &workflow, json!({})).await;
    assert_eq!(registry.refresh_source("errands").await.status, RefreshStatus::Success);
    registry.sources().invalidate(None).await.unwrap();
    assert_eq!(registry.refresh_source("errands").await.status, RefreshStatus::Unchanged);
    run_buy(&registry).await.unwrap();

    let mut changed = workflow.clone();
    changed["workflows"][0]["steps"] = json!([list_step()]);
    let mut broken = workflow["workflows"][0].clone();
    broken["workflowId"] = json!("broken");
    broken["steps"] = json!([]);
    changed["workflows"].as_array_mut().unwrap().push(broken);
    std::fs::write(registry.home.path().join("flow.json"), changed.to_string()).unwrap();
    run_buy(&registry).await.unwrap();
    assert_eq!(
        server.request_lines(),
        ["POST /orders", "GET /products?category=light"],
        "a call uses the current file"
    );
    registry.sources().invalidate(None).await.unwrap();
    registry.refresh_source("errands").await;
    let set_aside = registry.view(&Principal::local("test")).skipped_tools(&SourceId::parse("errands").unwrap());
    assert_eq!(set_aside[0].reason, "it has no steps (at `/workflows/1/steps`)");

    std::fs::remove_file(registry.home.path().join("flow.json")).unwrap();
    let error = run_buy(&registry).await.unwrap_err();
    assert_eq!(error.code, Code::ToolUnavailable);
    assert!(error.message.contains("flow.json` cannot be read"), "{error}");
}

#[tokio::test]
async fn a_call_of_a_skipped_workflow_says_why() {
    let mut workflow = buy_workflow(json!([order_step()]), json!({}));
    workflow["workflows"].as_array_mut().unwrap().push(json!({ "workflowId": "buy more", "steps": [] }));
    let reason = "`errands__buy_more` is skipped: it has no steps (at `/workflows/1/steps`); \
                  `toolcrib doctor` lists all skipped tools";
    // Rules keep it from agents like any other tool.
    let unknown = "no tool named `errands__buy_more`; did you mean `errands__buy`?";
    for (rules, expected) in
        [(json!({}), reason), (json!({ "buy more": "hide" }), unknown), (json!({ "buy_more": "deny" }), unknown)]
    {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("flow.json"), workflow.to_string()).unwrap();
        let sources = json!({ "errands": { "workflow": "flow.json", "tools": rules } });
        let registry = OpenApiTestRegistry::open(home, sources).await;
        let error = registry.call("errands__buy_more", json!({})).await.unwrap_err();
        assert_eq!(error.code, Code::ToolNotImplemented, "{rules}");
        assert_eq!(error.message, expected, "{rules}");
    }
}
