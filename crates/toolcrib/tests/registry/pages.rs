//! Large results: read page by page, by the client that called and nobody else, for a while.

use std::time::Duration;

use serde_json::{Value, json};
use toolcrib::testkit::Scripted;
use toolcrib::{CallOptions, ClientId, Code, Output, Registry};

use crate::support::{Bench, agent, call, open_yaml};

const LIMIT: usize = 1024;

/// A source whose tool `say` gives back what it is told to.
async fn open() -> Bench {
    let git = Scripted::new(["say"]);
    git.answer(|_, input| input["result"].clone());
    open_yaml("sources: { git: { command: x, result_limit: 1KiB } }", &[("git", &git)]).await
}

async fn say(registry: &Registry, client: Option<u64>, result: Value) -> Output {
    let options = CallOptions { client: client.map(ClientId), ..CallOptions::default() };
    registry.call(&agent(), "git__say", json!({ "result": result }), options).await.unwrap()
}

fn long() -> Value {
    json!("0123456789".repeat(500))
}

fn next(output: &Output) -> String {
    output.page.as_ref().unwrap().next.clone().unwrap()
}

fn blocks(output: &Output) -> Vec<Value> {
    serde_json::from_str(output.content()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_fits_passes_as_it_is() {
    let bench = open().await;
    let result = json!({"vendor": {"x": 1}, "content": [{"type": "odd", "y": 2}], "_meta": {"z": 3}});
    let output = say(&bench, None, result.clone()).await;
    assert_eq!(serde_json::from_str::<Value>(output.raw.get()).unwrap(), result);
    assert_eq!((output.meta(), &output.page), (Some(r#"{"z":3}"#), &None));
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_read_to_its_end_and_called_once() {
    let git = Scripted::new(["say"]);
    git.answer(|_, input| input["result"].clone());
    let bench = open_yaml("sources: { git: { command: x, result_limit: 1KiB } }", &[("git", &git)]).await;
    let mut output = say(&bench, Some(1), long()).await;
    let mut read = String::new();
    for number in 1.. {
        let page = output.page.clone().unwrap();
        assert_eq!((page.number, page.total_bytes), (number, 5039));
        assert!(output.raw.get().len() <= LIMIT, "{}", output.raw.get().len());
        read.push_str(blocks(&output)[0]["text"].as_str().unwrap());
        match page.next {
            Some(next) => output = bench.page(Some(ClientId(1)), &next).unwrap(),
            None => break,
        }
    }
    assert_eq!(json!(read), long());
    assert_eq!(git.calls(), 1);
    let stats = bench.stats();
    assert_eq!((stats.calls, stats.errors), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_it_whole_gets_it_whole() {
    let bench = open().await;
    let options = CallOptions { whole: true, ..CallOptions::default() };
    let output = bench.call(&agent(), "git__say", json!({"result": long()}), options).await.unwrap();
    assert_eq!((output.page.clone(), &blocks(&output)[0]["text"], blocks(&output).len()), (None, &long(), 1));
    let shown = serde_json::to_value(&output).unwrap();
    let keys: Vec<&String> = shown.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["content", "structured", "is_error", "elapsed_ms", "source"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_is_for_the_client_that_called_while_it_is_there() {
    let bench = open().await;
    let cursor = next(&say(&bench, Some(1), long()).await);
    for other in [None, Some(ClientId(2))] {
        let error = bench.page(other, &cursor).unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput);
        assert!(error.message.contains("call the tool again"), "{}", error.message);
    }
    assert!(bench.page(Some(ClientId(1)), &cursor).is_ok());
    bench.client_gone(ClientId(2));
    assert!(bench.page(Some(ClientId(1)), &cursor).is_ok(), "it may be read again");
    bench.client_gone(ClientId(1));
    assert!(bench.page(Some(ClientId(1)), &cursor).is_err());

    let options = CallOptions { client: Some(ClientId(3)), fleeting: true, ..CallOptions::default() };
    let output = bench.call(&agent(), "git__say", json!({"result": long()}), options).await.unwrap();
    bench.client_gone(ClientId(3));
    assert!(bench.page(Some(ClientId(4)), &next(&output)).is_ok(), "a client of one request has but its cursor");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_has_its_time_and_its_bounds() {
    let bench = open().await;
    let first = next(&say(&bench, None, long()).await);
    tokio::time::sleep(Duration::from_secs(599)).await;
    assert!(bench.page(None, &first).is_ok());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(bench.page(None, &first).is_err());

    let oldest = next(&say(&bench, None, long()).await);
    let second = next(&say(&bench, None, long()).await);
    for _ in 0..255 {
        say(&bench, None, long()).await;
    }
    assert!(bench.page(None, &oldest).is_err() && bench.page(None, &second).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cursor_is_told_so() {
    let bench = open().await;
    let cursor = next(&say(&bench, None, long()).await);
    let id = cursor.rsplit_once('-').unwrap().0;
    for wrong in ["", "-", "x", "-1", "\u{1b}[31m", &"9".repeat(10_000), id, &format!("{id}-0"), &format!("{id}-99")] {
        let error = bench.page(None, wrong).unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput, "{wrong}");
        assert!(error.message.len() < 300 && !error.message.contains('\u{1b}'), "{}", error.message);
    }
}

/// A long answer was taken for a failure.
#[tokio::test(start_paused = true)]
async fn a_long_answer_is_a_sign_of_life() {
    let bench = open().await;
    for _ in 0..10 {
        assert!(call(&bench, "git__say", json!({"result": long()})).await.is_ok());
    }
}
