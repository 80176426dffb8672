//! A workflow ends: in time, when nobody waits for it any more, and after so many steps.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolcrib::{CallOptions, Code};

use super::{bench, buy, list, order, order_and, run, run_with};
use crate::server::{Answer, Server, json as answer};

async fn silent_orders() -> Server {
    Server::start(|heard, _| match heard.method.as_str() {
        "GET" => answer(200, r#"[{"sku": "lamp"}]"#),
        _ => Answer::Silence,
    })
    .await
}

#[tokio::test]
async fn the_deadline_holds_for_all_steps_together() {
    let server = silent_orders().await;
    let bench = bench(&server, &buy(json!([list(), order()]), json!({})), json!({})).await;
    let options = CallOptions { timeout: Some(Duration::from_millis(800)), ..CallOptions::default() };
    let error = run_with(&bench, options).await.unwrap_err();
    assert_eq!((error.code, error.details), (Code::ToolExecutionFailed, Some(json!({ "step": "order" }))));
    assert!(error.message.starts_with("the workflow `buy` is not done within"), "{}", error.message);
    assert!(error.message.ends_with("it got as far as step `order`"), "{}", error.message);
}

#[tokio::test]
async fn a_step_has_no_more_time_than_its_source_allows() {
    let server = silent_orders().await;
    let flow = buy(json!([list(), order()]), json!({}));
    let bench = bench(&server, &flow, json!({ "call_timeout": "400ms" })).await;
    let error = run(&bench).await.unwrap_err();
    assert!(error.message.contains("failed at step `order`: `POST /orders` did not answer within"), "{error}");
}

#[tokio::test]
async fn a_pause_beyond_the_deadline_is_not_waited_for() {
    let server = Server::start(|_, _| answer(503, "{}")).await;
    let retry = json!([{ "name": "again", "type": "retry", "retryAfter": 3600, "retryLimit": 1 }]);
    let bench = bench(&server, &buy(json!([order_and(json!({ "onFailure": retry }))]), json!({})), json!({})).await;
    let error = run(&bench).await.unwrap_err();
    assert!(error.message.contains("is not done within"), "{error}");
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn who_leaves_takes_the_workflow_along() {
    let server = silent_orders().await;
    let bench = bench(&server, &buy(json!([list(), order(), list_again()]), json!({})), json!({})).await;
    let (progress, mut told) = mpsc::channel(8);
    let cancel = CancellationToken::new();
    let options = CallOptions { progress: Some(progress), cancel: cancel.clone(), ..CallOptions::default() };
    let leaving = async {
        told.recv().await.unwrap();
        told.recv().await.unwrap();
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(run_with(&bench, options), leaving);
    assert_eq!(result.unwrap_err().message, "the call was cancelled");
    assert!(server.lines().len() <= 2);
}

fn list_again() -> serde_json::Value {
    let mut step = list();
    step["stepId"] = json!("again");
    step
}

#[tokio::test]
async fn a_circle_ends_after_a_hundred_steps() {
    let server = Server::start(|_, _| answer(200, "[]")).await;
    let mut step = list();
    step["onSuccess"] = json!([{ "name": "round", "type": "goto", "stepId": "list" }]);
    let bench = bench(&server, &buy(json!([step]), json!({})), json!({})).await;
    let error = run(&bench).await.unwrap_err();
    assert_eq!(error.message, "the workflow `buy` failed at step `list`: the workflow takes more than 100 steps");
    assert_eq!(server.lines().len(), 100);
}
