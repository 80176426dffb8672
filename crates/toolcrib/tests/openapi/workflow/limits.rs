//! Limits of workflows: timeout, cancellation, number of steps, limits on calls.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolcrib::call::CallDeadline;
use toolcrib::config::Config;
use toolcrib::testkit::progress_channel;
use toolcrib::{CallContext, Code};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

use super::{buy_workflow, list_step, open_shop_with_workflow, order_step, order_step_with, run_buy, run_buy_with};
use crate::openapi::support::run_past_deadline;

fn start_silent_orders() -> LoopbackServer {
    LoopbackServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::json(200, r#"[{"sku": "lamp"}]"#),
        _ => HttpReply::never(),
    })
}

#[tokio::test]
async fn the_timeout_covers_all_steps_together() {
    let server = start_silent_orders();
    let registry =
        open_shop_with_workflow(&server, &buy_workflow(json!([list_step(), order_step()]), json!({})), json!({})).await;
    let deadline = Some(CallDeadline::after(Duration::from_secs(40)));
    let call = run_buy_with(&registry, CallContext { deadline, ..CallContext::default() });
    let error = run_past_deadline(&server, 2, call).await.unwrap_err();
    assert_eq!((error.code, error.details), (Code::ToolExecutionFailed, Some(json!({ "step": "order" }))));
    assert!(error.message.starts_with("the workflow `buy` did not finish within"), "{}", error.message);
    assert!(error.message.ends_with("it reached step `order`"), "{}", error.message);
}

#[tokio::test]
async fn a_step_has_no_more_time_than_its_source_allows() {
    let server = start_silent_orders();
    let workflow = buy_workflow(json!([list_step(), order_step()]), json!({}));
    let registry = open_shop_with_workflow(&server, &workflow, json!({ "call_timeout": "40s" })).await;
    let error = run_past_deadline(&server, 2, run_buy(&registry)).await.unwrap_err();
    assert!(error.message.contains("failed at step `order`: `POST /orders` timed out after 40s"), "{error}");
}

#[tokio::test]
async fn a_delay_beyond_the_deadline_fails_at_once() {
    let server = LoopbackServer::start(|_| HttpReply::json(503, r#"{"message": "closed"}"#));
    let retry = json!([{ "name": "again", "type": "retry", "retryAfter": 3600, "retryLimit": 1 }]);
    let registry = open_shop_with_workflow(
        &server,
        &buy_workflow(json!([order_step_with(json!({ "onFailure": retry }))]), json!({})),
        json!({}),
    )
    .await;
    let error = run_buy(&registry).await.unwrap_err();
    let expected = "the workflow `buy` failed at step `order`: the pause of 1h before its retry exceeds what is left of 1m; \
                    `POST /orders` answered 503 Service Unavailable: closed";
    assert_eq!(error.message, expected);
    assert_eq!(server.request_lines().len(), 1);
}

#[tokio::test]
async fn cancelling_the_call_ends_the_workflow() {
    let server = start_silent_orders();
    let registry = open_shop_with_workflow(
        &server,
        &buy_workflow(json!([list_step(), order_step(), second_list_step()]), json!({})),
        json!({}),
    )
    .await;
    let (progress, mut progress_receiver) = progress_channel();
    let cancel = CancellationToken::new();
    let options = CallContext { on_progress: Some(progress), cancel: cancel.clone(), ..CallContext::default() };
    let cancelling = async {
        progress_receiver.recv().await.unwrap();
        progress_receiver.recv().await.unwrap();
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(run_buy_with(&registry, options), cancelling);
    assert_eq!(result.unwrap_err().message, "the call was cancelled");
    assert!(server.request_lines().len() <= 2);
}

fn second_list_step() -> serde_json::Value {
    let mut step = list_step();
    step["stepId"] = json!("again");
    step
}

#[tokio::test]
async fn a_loop_ends_after_a_hundred_steps() {
    let server = LoopbackServer::start(|_| HttpReply::json(200, "[]"));
    let mut step = list_step();
    step["onSuccess"] = json!([{ "name": "round", "type": "goto", "stepId": "list" }]);
    let registry = open_shop_with_workflow(&server, &buy_workflow(json!([step]), json!({})), json!({})).await;
    let error = run_buy(&registry).await.unwrap_err();
    assert_eq!(error.message, "the workflow `buy` failed at step `list`: the workflow takes more than 100 steps");
    assert_eq!(server.request_lines().len(), 100);
}

/// A workflow that holds the only permit of its caller must not wait for its own steps.
#[tokio::test]
async fn steps_count_for_their_source_and_not_again_for_the_caller() {
    let server = LoopbackServer::start(|request| match request.method.as_str() {
        "GET" => HttpReply::json(200, r#"[{"sku": "lamp"}]"#),
        _ => HttpReply::json(201, r#"{"id": 7}"#),
    });
    let workflow = buy_workflow(json!([list_step(), order_step()]), json!({}));
    let registry = open_shop_with_workflow(&server, &workflow, json!({})).await;
    let text = json!({
        "sources": {
            "shop": { "openapi": "api.json", "limits": { "concurrent_calls": 1, "calls_per_minute": 4 } },
            "errands": { "workflow": "flow.json", "limits": { "concurrent_calls": 1 } },
        },
        "limits": { "concurrent_calls": 1, "calls_per_minute": 3 },
    });
    let config = Config::read(&text.to_string(), "toolcrib.json", registry.home.path()).unwrap();
    registry.configuration().apply(&config).await.unwrap();
    let (first, second) = tokio::join!(run_buy(&registry), run_buy(&registry));
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    let error = run_buy(&registry).await.unwrap_err();
    assert_eq!(error.code, Code::ToolExecutionFailed, "actions of the document may handle it: {}", error.message);
    assert!(error.message.contains("more than 4 calls per minute of the source `shop`"), "{}", error.message);
    let error = run_buy(&registry).await.unwrap_err();
    assert_eq!(error.details.unwrap()["by"], "caller");
    let callers = registry.statistics().metrics().callers;
    assert_eq!(callers.len(), 1, "steps are not counted as calls of a caller: {callers:?}");
}
